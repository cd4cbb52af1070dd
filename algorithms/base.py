"""The contract between an algorithm and the engine: eleven hooks, whose defaults are FedAvg.

Five nouns: a *message* is what the server sends, a *local* what a client trains this round, a *memory* what it keeps
between rounds, an *upload* what it sends back, and `Server` what the server keeps.

Four rules make backends interchangeable:

1. Only the engine calls hooks; a hook never calls another hook (a plug-in forwards to its base's).
2. Pure hooks (`before_step`, `local_loss`, `upload`) draw nothing and do not branch on data, on numeric fields or on
   the plan's numbers: the engine may vmap them over clients. Randomness enters through `start` and `noise`.
3. Losses are per example, shape (B,); a scalar regulariser broadcasts. The engine takes the masked mean.
4. An algorithm extends `Algorithm`, or `Plugin` to wrap another; it never extends another algorithm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from algorithms.entry import About
from algorithms.losses import cross_entropy
from search_spaces.bounds import Bounds, cast, check, check_relation, kind_of

Params = dict[str, Tensor]
Message = dict[str, Any]
Local = dict[str, Any]
Memory = dict[str, Any]
Upload = dict[str, Any]
Lazy = Tensor | Callable[[], Tensor]
ServerStep = Callable[["Net", Any, Any, Any], Any]

NEEDS = {  # what an algorithm may ask of the engine
    "projection_head": "a model with MOON's projection head, its `+head` form",
    "batchnorm": "a model with BatchNorm, its `+bn` form",
    "validation": "samples held out, of which the server has inputs and labels",
    "auxiliary": "the server's own labelled samples, some of each class",
    "images": "inputs that are images",
    "sgd": "local SGD, with or without momentum, not Nesterov's",
    "plain_sgd": "local SGD without momentum and without clipping",
    "pooled": "one client that holds the training data of all",
}


class Outputs(NamedTuple):
    """A network's answer: logits (B, C) before the softmax, and the features (B, D) that its head turns into them."""

    logits: Tensor
    features: Tensor


class Data:
    """Labelled samples, held as a whole.

    Args:
        x: (N, ...) as the network takes them, or, as the others, a function that makes them when first asked for.
        y: (N,) int64.
        weight: (N,), where 0 marks padding.
    """

    def __init__(self, x: Lazy, y: Lazy, weight: Lazy) -> None:
        self._parts = {"x": x, "y": y, "weight": weight}

    @property
    def x(self) -> Tensor:
        """(N, ...), normalised and not augmented."""
        return self._made("x")

    @property
    def y(self) -> Tensor:
        """(N,) int64 labels."""
        return self._made("y")

    @property
    def weight(self) -> Tensor:
        """(N,) 1 for a sample, 0 for padding."""
        return self._made("weight")

    def _made(self, name: str) -> Tensor:
        part = self._parts[name]
        made = self._parts[name] = part if isinstance(part, Tensor) else part()
        return made


@dataclass(frozen=True)
class Batch:
    """One local step's samples.

    Args:
        x: (B, ...) normalised and augmented inputs.
        y: (B,) int64 labels.
        weight: (B,) 1 for a sample, 0 for padding.
        noise: what the algorithm's `noise` hook drew for this step.
        teacher: frozen models' outputs on `x`, by the names that `teachers` gave.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    noise: Any = field(default_factory=dict)
    teacher: Mapping[str, Outputs] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A client's local training in this round, read-only.

    Where clients are stacked, `round`, `lr` and `num_steps` may be tensors without a value to look at. Arithmetic and
    comparisons, as in `(plan.round > 1) * term`, work with numbers and tensors; `if`, `float()`, `range()` and an index
    do not.

    Args:
        round: from 1; a scalar tensor where a stack's program reads it anew in each round.
        lr: local learning rate of this round; a scalar tensor there, and where stacked runs differ in it.
        momentum: SGD momentum.
        optimizer: `sgd` or `adam`.
        num_steps: optimiser steps tau_k that this client takes, a scalar tensor.
    """

    round: int | Tensor
    lr: float | Tensor
    momentum: float
    optimizer: str
    num_steps: Tensor


@dataclass(frozen=True)
class Server:
    """What the server keeps between rounds.

    Args:
        params: the global model w_t: parameters and floating-point buffers by name.
        round: finished rounds.
        extra: further state of the algorithm: trees (dict, tuple) of tensors and plain numbers.
    """

    params: Params
    round: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def next(self, params: Params, **extra: Any) -> Server:
        """The server after this round, with a new model; names in `extra` replace those of old."""
        return Server(params, self.round + 1, {**self.extra, **extra})


class Net(Protocol):
    """The network as hooks see it: a function of its parameters. A missing or unknown name is an error."""

    @property
    def names(self) -> tuple[str, ...]:
        """All parameters and floating-point buffers."""

    @property
    def trainable(self) -> tuple[str, ...]:
        """Those that the local optimiser trains."""

    @property
    def batchnorm(self) -> frozenset[str]:
        """Those that belong to BatchNorm layers, by module type."""

    @property
    def num_classes(self) -> int:
        """C."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""

    @property
    def feature_dim(self) -> int:
        """D."""

    def __call__(self, params: Params, x: Tensor) -> Outputs:
        """Training mode."""

    def eval(self, params: Params, x: Tensor) -> Outputs:
        """Evaluation mode; gradients flow."""

    def head(self, params: Params, features: Tensor) -> Tensor:
        """Logits (B, C) of features (B, D): the last linear layer, in `lenet5_120` the last two."""

    def normalise(self, x: Tensor) -> Tensor:
        """Generated images in [0, 1] as the network expects its inputs."""


@dataclass(frozen=True)
class Client:
    """One client, as `init_client` and `start` see it in `fed.client`.

    Args:
        number: from 0, below K.
        num_examples: n_k, its training samples, a scalar tensor.
        label_counts: (C,) its training samples of each class; they sum to n_k.
    """

    number: int
    num_examples: Tensor
    label_counts: Tensor


class Fed(Protocol):
    """The server's knowledge of the federation; in a client's hooks also that client's of itself."""

    @property
    def net(self) -> Net:
        """The network."""

    @property
    def num_clients(self) -> int:
        """K."""

    @property
    def num_classes(self) -> int:
        """C."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""

    @property
    def feature_dim(self) -> int:
        """D."""

    @property
    def batch_size(self) -> int:
        """B of the clients' local steps."""

    @property
    def seed(self) -> int:
        """The run's seed."""

    @property
    def auxiliary(self) -> Data:
        """The server's labelled samples, for an algorithm that needs `auxiliary`."""

    @property
    def validation(self) -> Data:
        """The held-out samples, for an algorithm that needs `validation`."""

    @property
    def client(self) -> Client:
        """The client that `init_client` or `start` is called for.

        Raises:
            AttributeError: another hook asks: the server knows of its clients what they upload.
        """

    def initialised(self, *keys: str | int) -> Params:
        """A newly initialised network: all names, drawn from the server's stream of these keys."""

    def stream(self, *keys: str | int) -> torch.Generator:
        """A generator of its own for these keys: the server's only source of randomness."""

    def repeat(self, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
        """The state after `step(net, state, one, given)` for one after another of `inputs`: what a server trains.

        Where clients are stacked on a GPU the step is captured once and replayed, in later rounds too. So it draws
        nothing and branches on no data, like the pure hooks, and whatever differs between rounds reaches it through
        the other three. It writes into neither `one` nor `given`; autograd may be used.

        Args:
            step: a method of the algorithm, or a function of a module; it closes over nothing.
            state: tree of tensors and numbers; not written to. The step gives it back with the structure it has.
            inputs: tree of tensors, each with a leading axis over the steps.
            given: tree of tensors and numbers that all steps read.

        Raises:
            TypeError: the step is something else.
            ValueError: it gives the state another structure, or writes into what it is given; or the inputs have no
                common leading axis.
        """


class Cohort(Protocol):
    """The server's only way to its clients: those of this round, or `everyone`."""

    ids: Tensor
    num_examples: Tensor
    lr: float

    def mean(self, tree: Any, among: Tensor | None = None) -> Any:
        """The mean over the leading client axis, weighted by examples; `among` (m,) of 0 and 1 leaves clients out."""

    def everyone(self) -> Cohort:
        """All K clients, for means over what the server caches."""

    def gradients(
        self, loss: Any, params: Params, batch_size: int, *, augmented: bool = False, among: Tensor | None = None
    ) -> Params:
        """Each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch: one communication.

        Args:
            loss: a method of the algorithm, `loss(net, params, local_params, batch)` of shape (B,).
            params: what is sent and differentiated (its trainable names).
            batch_size: samples per client.
            augmented: whether the samples are augmented as in local training, where the setting augments.
            among: (m,) of 0 and 1, the clients that answer; the others' gradients are 0, and they send nothing.
        """


def hyper(
    default: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple[str, ...] = (),
    packable: bool = True,
) -> Any:
    """A hyper-parameter's field: its default and range, checked at construction.

    Args:
        default: the printed equation's value, or what `About.defaults_follow` says.
        low: smallest value, or None.
        high: largest value, or None.
        open_low: the smallest value itself is not allowed.
        open_high: the largest value itself is not allowed.
        choices: the allowed strings.
        packable: whether configurations that differ in it may train in one program; False if it shapes trees.
    """
    bounds = Bounds(low, high, open_low, open_high, choices)
    return field(default=default, metadata={"bounds": bounds, "packable": packable})


@dataclass(frozen=True)
class Algorithm:
    """One federated algorithm. Fields are its hyper-parameters; the hooks below are FedAvg.

    Raises:
        ValueError: a hyper-parameter has the wrong type or lies outside its range, or two break a relation.
    """

    about: ClassVar[About] = About()
    needs: ClassVar[frozenset[str]] = frozenset()
    uploads_model: ClassVar[bool] = True  # clients upload their model as `params`: what DKD and T1 build on
    rows: ClassVar[tuple[str, ...]] = ("",)  # the suffixes that `evaluated` gives
    tracked: ClassVar[tuple[str, ...]] = ()  # small tensors of the message, of one shape, kept by `--track message`
    version: ClassVar[int | None] = None  # None: 1; of another package's, a number that changes with its source

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            if "bounds" in item.metadata:
                value = cast(item.name, getattr(self, item.name), kind_of(item.type))
                check(item.name, value, item.metadata["bounds"])
                object.__setattr__(self, item.name, value)
        for relation in self.about.where:
            check_relation(relation, vars(self))

    # Server: ordinary Python, once a round.

    def init_server(self, fed: Fed, params: Params) -> Server:
        """The server before round 1, from the initial model w_0."""
        return Server(params)

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """What every client of the round receives; its distinct tensors are the traffic down."""
        return {"params": server.params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """The server after the round; each tensor of `uploads` has a leading client axis (m, ...)."""
        return server.next(cohort.mean(uploads["params"]))

    def evaluated(self, server: Server) -> dict[str, Params]:
        """The models that are evaluated: suffix of the result row's name -> model."""
        return {"": server.params}

    # Client, drawn: ordinary Python; may use `generator`.

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """What a client keeps before it first takes part, given the initial model w_0: all names that it ever keeps."""
        return {}

    def start(self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator) -> Local:
        """What the client trains this round; gradients are taken for the trainable names of its `params`."""
        return {"params": message["params"]}

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Random tensors of one step, leading axis `batch_size`, rows independent."""
        return {}

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Frozen models whose outputs on the batch the loss uses, by name. Selects tensors, computes nothing."""
        return {}

    # Client, pure: tensors in, tensors out; the engine may vmap these over clients.

    def before_step(self, net: Net, local: Local, batch: Batch, message: Message, plan: Plan) -> Local:
        """Work before the optimiser's step, for instance a generator's own step."""
        return local

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """The local objective: (B,) nats per example; a scalar term broadcasts when it is added."""
        return cross_entropy(net(local["params"], batch.x).logits, batch.y)

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: Plan
    ) -> tuple[Upload, Memory]:
        """What the client sends back, and what it keeps; `data` is its whole training set, not augmented."""
        return {"params": local["params"]}, memory


@dataclass(frozen=True)
class Plugin(Algorithm):
    """An algorithm around another: forwards every hook to `base`; override the one or two that change."""

    base: Algorithm = field(default_factory=Algorithm)

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What the base needs, and what the plug-in adds."""
        return self.base.needs

    @property
    def uploads_model(self) -> bool:  # type: ignore[override]
        """The base's."""
        return self.base.uploads_model

    @property
    def rows(self) -> tuple[str, ...]:  # type: ignore[override]
        """The base's, and those that the plug-in adds."""
        return self.base.rows

    @property
    def tracked(self) -> tuple[str, ...]:  # type: ignore[override]
        """The base's."""
        return self.base.tracked

    def init_server(self, fed: Fed, params: Params) -> Server:
        """The base's."""
        return self.base.init_server(fed, params)

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """The base's."""
        return self.base.broadcast(fed, server)

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """The base's."""
        return self.base.server_step(fed, server, uploads, cohort)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """The base's."""
        return self.base.evaluated(server)

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """The base's."""
        return self.base.init_client(fed, params)

    def start(self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator) -> Local:
        """The base's."""
        return self.base.start(fed, message, memory, generator)

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """The base's."""
        return self.base.noise(fed, generator, batch_size)

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """The base's."""
        return self.base.teachers(message, memory)

    def before_step(self, net: Net, local: Local, batch: Batch, message: Message, plan: Plan) -> Local:
        """The base's."""
        return self.base.before_step(net, local, batch, message, plan)

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """The base's."""
        return self.base.local_loss(net, local, batch, message, memory, plan)

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: Plan
    ) -> tuple[Upload, Memory]:
        """The base's."""
        return self.base.upload(net, local, data, message, memory, plan)


def layers(algorithm: Algorithm) -> Iterator[Algorithm]:
    """The algorithm, and those it wraps, inwards."""
    yield algorithm
    base = getattr(algorithm, "base", None)
    if isinstance(base, Algorithm):
        yield from layers(base)
