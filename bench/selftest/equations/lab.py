"""A laboratory for algorithms: a network and a federation in which every number is known.

B batch, C classes, D features, K clients, N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from algorithms.base import Batch, Cohort, Data, Net, Outputs, Params, ServerStep
from bench.engine.pytree import stack, tree_map
from bench.engine.rng import stream
from bench.engine.server_context import ServersOwn, ServerSteps

SEED = 20
MODEL = "lab"  # name of the one model
SIDE = 4
PIXELS = 16
CLASSES = 4
FEATURES = 6
BATCH_SIZE = 5
ROUNDS = 8  # of a whole run, of which checks make the first ones
# n_k; client 1 is smaller than a batch.
SIZES: Mapping[int, float] = {0: 9.0, 1: 4.0, 2: 7.0, 3: 12.0, 4: 6.0}
PIXEL_MEAN = 0.3
PIXEL_STD = 0.5
Cohorts = tuple[tuple[int, ...], ...]  # the clients of each round
Objective = Callable[[Params], Tensor]

ONE: Cohorts = ((0, 2, 3),)
TWO: Cohorts = ((0, 2, 3), (1, 2, 4))
THREE: Cohorts = ((0, 2, 3), (1, 4), (1, 2, 3))
FIVE: Cohorts = (*THREE, (0, 4), (2, 3))
CLIENT = 2  # takes part in each of these sequences of rounds
# The labels in a client's passes. Label 3 has one owner.
LABELS: Mapping[int, tuple[int, ...]] = {
    0: (0, 1),
    1: (0, 2),
    2: (1, 2),
    3: (0, 1, 3),
    4: (0, 1, 2),
}
PASSES = 3  # of a client in a round

# Of BatchNorm, as in torch.
MOMENTUM = 0.1
EPS = 1e-5

SHAPES = {
    "body.weight": (FEATURES, PIXELS),
    "body.bias": (FEATURES,),
    "head.weight": (CLASSES, FEATURES),
    "head.bias": (CLASSES,),
}
HEAD = ("head.weight", "head.bias")
NORM = ("norm.weight", "norm.bias")
STATISTICS = ("norm.running_mean", "norm.running_var")
NAMES = (*SHAPES, *NORM, *STATISTICS)


class LossAndGrad(NamedTuple):
    """A loss in nats, a scalar, and its gradient by trained name."""

    loss: Tensor
    grad: Params


def trained(params: Params) -> list[str]:
    """Return the names of a model's trained entries, which are all but running statistics."""
    return sorted(params.keys() - STATISTICS)


def leaves_of(params: Params) -> Params:
    """Return a copy of a model whose trained entries require a gradient."""
    names = trained(params)
    return {n: w.detach().clone().requires_grad_(n in names) for n, w in params.items()}


def loss_and_grad_of(objective: Objective, params: Params) -> LossAndGrad:
    """Return an objective at `params`, and its gradient by the trained entries."""
    leaves = leaves_of(params)
    loss = objective(leaves)
    names = trained(params)
    grad = torch.autograd.grad(loss, [leaves[name] for name in names], materialize_grads=True)
    return LossAndGrad(loss.detach(), dict(zip(names, grad, strict=True)))


def draw(*keys: str | int) -> torch.Generator:
    """Return the laboratory's random generator for these keys."""
    return stream(SEED, "equations", *keys)


def forward(params: Mapping[str, Tensor], x: Tensor, training: bool = True) -> Outputs:
    """Run the network: z = W2 h + b2, h = relu(norm(W1 x + b1)).

    norm is BatchNorm if `params` has it.
    """
    h = x.reshape(len(x), -1) @ params["body.weight"].T + params["body.bias"]
    if "norm.weight" in params:
        mean = params["norm.running_mean"]
        var = params["norm.running_var"]
        if training:
            mean = h.mean(0)
            var = ((h - h.mean(0)) ** 2).mean(0)
        h = (h - mean) / (var + EPS).sqrt() * params["norm.weight"] + params["norm.bias"]
    h = h.relu()
    return Outputs(head(params, h), h)


def head(params: Mapping[str, Tensor], h: Tensor) -> Tensor:
    """Return the logits W2 h + b2 of features."""
    return h @ params["head.weight"].T + params["head.bias"]


def moved_statistics(params: Mapping[str, Tensor], x: Tensor) -> Params:
    """Return BatchNorm's running mean and (unbiased) variance after one training pass on `x`.

    There are none without BatchNorm.
    """
    if "norm.weight" not in params:
        return {}
    h = (x.reshape(len(x), -1) @ params["body.weight"].T + params["body.bias"]).detach()
    statistics = {"norm.running_mean": h.mean(0), "norm.running_var": h.var(0)}
    return {
        name: (1 - MOMENTUM) * params[name] + MOMENTUM * statistics[name] for name in STATISTICS
    }


def ignore(observed: Tensor) -> None:
    """Do nothing with what passes through a network."""


class LabNet:
    """An implementation of `algorithms.base.Net` with one hidden layer, with or without BatchNorm.

    `on_train` is called with each input in training mode.
    """

    num_classes = CLASSES
    feature_dim = FEATURES
    input_shape = (1, SIDE, SIDE)

    def __init__(self, norm: bool = True) -> None:
        self.names = NAMES if norm else tuple(SHAPES)
        self.trainable = tuple(name for name in self.names if name not in STATISTICS)
        self.batchnorm = frozenset(self.names) - frozenset(SHAPES)
        self.on_train = ignore

    @property
    def common(self) -> LabNet:
        """Itself, because all have one model."""
        return self

    def __call__(self, params: Params, x: Tensor) -> Outputs:
        """Run in training mode; the running statistics in `params` change in place."""
        self._check(params)
        self.on_train(x)
        out = forward(params, x)
        with torch.no_grad():
            for name, value in moved_statistics(params, x).items():
                params[name].copy_(value)
        return out

    def eval(self, params: Params, x: Tensor) -> Outputs:
        """Run in evaluation mode."""
        self._check(params)
        return forward(params, x, training=False)

    def head(self, params: Params, features: Tensor) -> Tensor:
        """Apply the last layer alone."""
        return head(params, features)

    def normalise(self, x: Tensor) -> Tensor:
        """Return (x - mean) / std."""
        return (x - PIXEL_MEAN) / PIXEL_STD

    def _check(self, params: Params) -> None:
        if set(params) != set(self.names):
            raise KeyError(
                f"the network has the parameters {sorted(self.names)}, got {sorted(params)}"
            )


def model(net: LabNet, *keys: str | int) -> Params:
    """Draw a model for these keys, with positive variances."""
    generator = draw("model", *keys)
    shapes = {name: SHAPES.get(name, (FEATURES,)) for name in net.names}
    params = {
        n: 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
        for n, shape in shapes.items()
    }
    for name in params.keys() & {"norm.weight", "norm.running_var"}:
        params[name] = params[name].abs() + 0.5
    return params


def samples(count: int, *keys: str | int) -> tuple[Tensor, Tensor]:
    """Draw inputs (count, 1, side, side) and labels (count,) for these keys."""
    generator = draw("samples", *keys)
    x = torch.randn(count, 1, SIDE, SIDE, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def batch(*keys: str | int, padded: bool = True) -> Batch:
    """Draw B samples; the last is padding, unless `padded` is false."""
    x, y = samples(BATCH_SIZE, "batch", *keys)
    weight = torch.ones(BATCH_SIZE, dtype=torch.float64)
    if padded:
        weight[-1] = 0.0
    return Batch(x, y, weight)


def client_samples(client: int) -> Data:
    """Draw a client's n_k samples."""
    return Data(*samples(int(SIZES[client]), "client", client))


def server_samples(name: str) -> Data:
    """Draw samples for the server, three of each class."""
    x, _ = samples(3 * CLASSES, "server", name)
    return Data(x, torch.arange(3 * CLASSES) % CLASSES)


def requested(data: Data, round: int, call: int, size: int, augmented: bool = False) -> Batch:
    """Return a client's mini-batch for the `call`-th gradient request of a round.

    It is mirrored if `augmented`.
    """
    count = len(data.y)
    rows = (torch.arange(min(size, count)) + 3 * round + call) % count
    x = data.x[rows]
    weight = torch.ones(len(rows), dtype=torch.float64)
    return Batch(x.flip(-1) if augmented else x, data.y[rows], weight)


@dataclass
class LabFed:
    """An implementation of `algorithms.base.Fed`.

    The public samples are the auxiliary ones. `drawn_models` holds the networks that `initialised`
    returned.
    """

    net: LabNet
    auxiliary: Data = field(default_factory=partial(server_samples, "auxiliary"))
    validation: Data = field(default_factory=partial(server_samples, "validation"))
    public: Data = field(default_factory=partial(server_samples, "auxiliary"))
    batch_size: int = BATCH_SIZE
    client: Any = None  # the `Client` whose hook is called; None for the server's hooks
    drawn_models: list[Params] = field(default_factory=list)

    num_clients = len(SIZES)
    rounds = ROUNDS

    @property
    def nets(self) -> dict[str, LabNet]:
        """The one network."""
        return {MODEL: self.net}

    @property
    def initial(self) -> dict[str, Params]:
        """Its w_0."""
        return {MODEL: model(self.net, "initial")}

    def for_clients(self) -> LabFed:
        """Return the view of the clients' hooks, without the server's samples."""
        return replace(self, auxiliary=ServersOwn("auxiliary"), validation=ServersOwn("validation"))

    def initialised(self, *keys: str | int) -> Params:
        """Draw a network for these keys."""
        self.drawn_models.append(model(self.net, "initialised", *keys))
        return self.drawn_models[-1]

    def stream(self, *keys: str | int) -> torch.Generator:
        """Return the server's random generator for these keys."""
        return draw("server", *keys)

    def repeat(
        self, step: ServerStep, state: Any, inputs: Any, given: Any, net: Net | None = None
    ) -> Any:
        """Return the state after one step for each of `inputs`."""
        steps = ServerSteps(self.net, torch.device("cpu"), torch.float64, capture=lambda: None)
        return steps.repeat(step, state, inputs, given)


@dataclass
class LabCohort:
    """An implementation of `algorithms.base.Cohort` from clients' data and final local models.

    Clients are in the uploads' order. `answering` lists, for each gradient request, the clients
    that answered it.
    """

    net: LabNet
    round: int
    lr: float
    models: Mapping[int, Params]
    clients: Mapping[int, Data]
    answering: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = torch.tensor(list(self.models))
        self.num_examples = torch.tensor([SIZES[k] for k in self.models], dtype=torch.float64)

    def mean(self, tree: Any, among: Tensor | None = None) -> Any:
        """Average over the leading axis, weighted by examples; `among` leaves clients out."""
        sizes = self.num_examples if among is None else self.num_examples * among
        shares = sizes / sizes.sum()
        return tree_map(lambda value: torch.tensordot(shares, value, 1), tree)

    @property
    def groups(self) -> dict[str, Cohort]:
        """All of them, who have one model."""
        return {MODEL: self}

    def everyone(self) -> Cohort:
        """Return the cohort of all K clients."""
        return replace(self, models={k: {} for k in self.clients})

    def gradients(
        self,
        loss: Any,
        params: Params,
        batch_size: int,
        *,
        augmented: bool = False,
        among: Tensor | None = None,
    ) -> Params:
        """Return each client's gradient (m, ...) on its requested mini-batch.

        It is 0 for clients that do not answer.
        """
        call = len(self.answering)
        answers = torch.ones(len(self.models)) if among is None else among
        self.answering.append(list(compress(self.models, answers.tolist())))

        def risk(client: int, w: Params) -> Tensor:
            samples = requested(self.clients[client], self.round, call, batch_size, augmented)
            value: Tensor = loss(self.net, w, self.models[client], samples)
            return value.mean()

        grads = []
        for client, answer in zip(self.models, answers, strict=True):
            grad = loss_and_grad_of(partial(risk, client), params).grad
            grads.append({name: answer * value for name, value in grad.items()})
        stacked: Params = stack(grads)
        return stacked
