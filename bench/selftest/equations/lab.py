"""A laboratory for algorithms: a network and a federation in which every number is known.

B batch, C classes, D features, K clients, N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Cohort, Data, Net, Outputs, Params, ServerStep
from bench.engine.pytree import tree_map
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
PASSES = 2  # of a client in a round, if it makes prescribed passes

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
    return Outputs(h @ params["head.weight"].T + params["head.bias"], h)


def moved_statistics(params: Mapping[str, Tensor], x: Tensor) -> Params:
    """Return BatchNorm's running mean and (unbiased) variance after one training pass on `x`."""
    h = (x.reshape(len(x), -1) @ params["body.weight"].T + params["body.bias"]).detach()
    statistics = {"norm.running_mean": h.mean(0), "norm.running_var": h.var(0)}
    return {
        name: (1 - MOMENTUM) * params[name] + MOMENTUM * statistics[name] for name in STATISTICS
    }


class LabNet:
    """An implementation of `algorithms.base.Net` with one hidden layer, with or without BatchNorm.

    If set, `on_head` is called with each input of `head`, `on_normalise` with each image that
    `normalise` returns, and `on_train` with each input in training mode.
    """

    num_classes = CLASSES
    feature_dim = FEATURES
    input_shape = (1, SIDE, SIDE)

    def __init__(self, norm: bool = True) -> None:
        self.trainable: tuple[str, ...] = (*SHAPES, *(NORM if norm else ()))
        self.names: tuple[str, ...] = (*self.trainable, *(STATISTICS if norm else ()))
        self.batchnorm = frozenset(name for name in self.names if name.startswith("norm."))
        self.on_head: Callable[[Tensor], None] | None = None
        self.on_normalise: Callable[[Tensor], None] | None = None
        self.on_train: Callable[[Tensor], None] | None = None

    @property
    def common(self) -> LabNet:
        """Itself, because all have one model."""
        return self

    def __call__(self, params: Params, x: Tensor) -> Outputs:
        """Run in training mode; the running statistics in `params` change in place."""
        self._check(params)
        if self.on_train:
            self.on_train(x)
        out = forward(params, x)
        if self.batchnorm:
            with torch.no_grad():
                for name, value in moved_statistics(params, x).items():
                    params[name].copy_(value)
        return out

    def eval(self, params: Params, x: Tensor) -> Outputs:
        """Run in evaluation mode."""
        self._check(params)
        # Copies of the statistics: a training pass may move them before the backward pass reads
        # them again.
        copied = {n: v.clone() if n in STATISTICS else v for n, v in params.items()}
        return forward(copied, x, training=False)

    def head(self, params: Params, features: Tensor) -> Tensor:
        """Apply the last layer alone."""
        if self.on_head:
            self.on_head(features)
        return features @ params["head.weight"].T + params["head.bias"]

    def normalise(self, x: Tensor) -> Tensor:
        """Return (x - mean) / std."""
        images = (x - PIXEL_MEAN) / PIXEL_STD
        if self.on_normalise:
            self.on_normalise(images)
        return images

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

    `drawn_models` holds the networks that `initialised` returned.
    """

    net: LabNet
    auxiliary: Data = field(default_factory=lambda: server_samples("auxiliary"))
    validation: Data = field(default_factory=lambda: server_samples("validation"))
    num_clients: int = len(SIZES)
    rounds: int = ROUNDS
    batch_size: int = BATCH_SIZE
    public_samples: Data | None = None
    client: Any = None  # the `Client` whose hook is called; None for the server's hooks
    drawn_models: list[Params] = field(default_factory=list)

    @property
    def public(self) -> Data:
        """The public samples, which are the auxiliary samples."""
        return self.public_samples or self.auxiliary

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
        return replace(
            self,
            auxiliary=ServersOwn("auxiliary"),
            validation=ServersOwn("validation"),
            public_samples=self.public,
        )

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


class LabCohort:
    """An implementation of `algorithms.base.Cohort` from clients' data and final local models.

    Clients are in the uploads' order. `answering` lists, for each gradient request, the clients
    that answered it.
    """

    def __init__(
        self,
        net: LabNet,
        round: int,
        lr: float,
        models: Mapping[int, Params],
        clients: Mapping[int, Data],
    ) -> None:
        self.net = net
        self.round = round
        self.lr = lr
        self.models = models
        self.clients = clients
        self.ids = torch.tensor(list(models))
        self.num_examples = torch.tensor([SIZES[k] for k in models], dtype=torch.float64)
        self.answering: list[list[int]] = []

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
        no_models: dict[int, Params] = {k: {} for k in self.clients}
        return LabCohort(self.net, self.round, self.lr, no_models, self.clients)

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
        all_grads: dict[str, list[Tensor]] = {}
        answering = [1] * len(self.models) if among is None else among.int().tolist()
        for k, answers in zip(self.models, answering, strict=True):
            copies = {name: value.detach().clone() for name, value in params.items()}
            leaves = {
                name: copies[name].requires_grad_() for name in self.net.trainable if name in copies
            }
            minibatch = requested(self.clients[k], self.round, call, batch_size, augmented)
            value = loss(self.net, copies, self.models[k], minibatch).mean()
            grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
            for name, grad in zip(leaves, grads, strict=True):
                all_grads.setdefault(name, []).append(answers * grad)
        self.answering.append(list(compress(self.models, answering)))
        return {name: torch.stack(client_grads) for name, client_grads in all_grads.items()}
