"""The contract between an algorithm and the engine: twelve hooks, whose defaults are FedAvg.

Five kinds of data: the server sends a *message*; a client trains its *local* state during a round,
keeps its *memory* between rounds and sends back an *upload*; `Server` is the server's own state.

A client's hooks see neither the server's samples nor its state: what a client is to know is sent in
the message, where it is counted as traffic.

Four rules make backends interchangeable:

1. Only the engine calls hooks; a hook never calls another hook (except that a plug-in forwards to
   its base's).
2. Pure hooks (`before_step`, `local_loss`, `upload`) draw no random numbers and do not branch on
   data, numeric fields or the plan's numbers, because the engine may vmap them over clients.
   Randomness enters through `start` and `noise`.
3. Losses are per example, shape (B,); a scalar regulariser broadcasts. The engine takes the masked
   mean.
4. An algorithm extends `Algorithm`, or `Plugin` to wrap another; it never extends another
   algorithm.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from algorithms.entry import About
from algorithms.losses import cross_entropy
from search_spaces.bounds import Bounds, Grid, Range, Value, cast, check, check_relation, kind_of

Params = dict[str, Tensor]
Message = dict[str, Any]
Local = dict[str, Any]
Memory = dict[str, Any]
Upload = dict[str, Any]
ServerStep = Callable[["Net", Any, Any, Any], Any]

NEEDS = {  # what an algorithm may require of the engine
    "projection_head": "a model with MOON's projection head, its `+head` form",
    "batchnorm": "a model with BatchNorm, its `+bn` form",
    "validation": "samples held out, of which the server has inputs and labels",
    "auxiliary": "the server's own labelled samples, some of each class",
    "public": "samples without labels that the server and all clients have, `fed.public`",
    "public_labels": "the labels of the public samples, too",
    "images": "inputs that are images",
    "sgd": "local SGD, with or without momentum, not Nesterov's",
    "plain_sgd": "local SGD without momentum and without clipping",
    "pooled": "one client that holds the training data of all",
    "common_features": "models with one number of features; unlike ones are pooled (`+fd64`)",
    "common_head": "models with one form of head",
}


class Outputs(NamedTuple):
    """A network's outputs: logits (B, C), and the features (B, D) that its head turns into them."""

    logits: Tensor
    features: Tensor


class Data:
    """A whole set of labelled samples.

    Args:
        x: (N, ...) inputs as the network takes them, or a function that makes them, called on first
            access.
        y: (N,) int64 labels.
    """

    def __init__(self, x: Tensor | Callable[[], Tensor], y: Tensor) -> None:
        self._x = x
        self.y = y

    @property
    def x(self) -> Tensor:
        """(N, ...) inputs, normalised and not augmented."""
        if not isinstance(self._x, Tensor):
            self._x = self._x()
        return self._x


@dataclass(frozen=True)
class Batch:
    """The samples of one local step.

    Args:
        x: (B, ...) normalised and augmented inputs.
        y: (B,) int64 labels.
        weight: (B,) 1 for a sample, 0 for padding.
        noise: tensors that the algorithm's `noise` hook drew for this step.
        teacher: outputs of the frozen models on `x`, by the names that `teachers` gave.
        reported: what `report` was given.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    noise: Any = field(default_factory=dict)
    teacher: Mapping[str, Outputs] = field(default_factory=dict)
    reported: dict[str, Tensor] = field(default_factory=dict)

    def report(self, **terms: Tensor) -> None:
        """Report terms of the loss for the curve, from `local_loss` alone.

        Their names are in `Algorithm.terms`; each is (B,) or a scalar.
        """
        self.reported.update(terms)


@dataclass(frozen=True)
class LocalPlan:
    """A client's local training in this round, read-only.

    If clients are stacked, `round`, `lr` and `num_steps` may be tensors whose values cannot be
    read. Arithmetic and comparisons, as in `(plan.round > 1) * term`, work with numbers and
    tensors; `if`, `float()`, `range()` and indexing do not.

    Args:
        round: number of the round, from 1; a scalar tensor if the program of a stack reads it anew
            in each round.
        lr: local learning rate of this round; a scalar tensor in the same case, and if stacked runs
            differ in it.
        momentum: SGD momentum.
        num_steps: optimiser steps tau_k that this client takes, a scalar tensor.
        public: the public samples, as `Fed.public`.
    """

    round: int | Tensor
    lr: float | Tensor
    momentum: float
    num_steps: Tensor
    public: Data | None = None


@dataclass(frozen=True)
class Server:
    """The server's state between rounds.

    Args:
        params: the global model w_t: parameters and floating-point buffers by name.
        round: number of finished rounds.
        extra: further state of the algorithm: trees (dict, tuple) of tensors and plain numbers.
        metrics: what the server reports of this round, by name: scalars for the curve, which no
            later round sees.
    """

    params: Params
    round: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def next(
        self, params: Params, metrics: Mapping[str, Any] | None = None, **extra: Any
    ) -> Server:
        """Return the state after this round, with a new model.

        Names in `extra` replace old ones.
        """
        return Server(params, self.round + 1, {**self.extra, **extra}, metrics or {})


class Net(Protocol):
    """The network as hooks see it: a function of its parameters.

    A missing or unknown name is an error.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters and floating-point buffers; frozen values are constants."""

    @property
    def trainable(self) -> tuple[str, ...]:
        """The names that the local optimiser trains."""

    @property
    def batchnorm(self) -> frozenset[str]:
        """The names that belong to BatchNorm layers, recognised by module type."""

    @property
    def num_classes(self) -> int:
        """C, the number of classes."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""

    @property
    def feature_dim(self) -> int:
        """D, the number of features."""

    @property
    def common(self) -> Net:
        """The network of the setting's `model`; itself, unless clients have others."""

    def __call__(self, params: Params, x: Tensor) -> Outputs:
        """Return the outputs in training mode.

        BatchNorm layers take the batch's statistics and write their running statistics into the
        tensors of `params`, in place. A hook that trains a second model, or must not move a model's
        statistics, passes `{**params, **{name: params[name].clone() for name in net.batchnorm}}`.
        """

    def eval(self, params: Params, x: Tensor) -> Outputs:
        """Return the outputs in evaluation mode; gradients flow, and nothing is written."""

    def head(self, params: Params, features: Tensor) -> Tensor:
        """Return logits (B, C) of features (B, D), by the last linear layer.

        In `lenet5_120` these are the last two. The names of its tensors begin with `head.`.
        """

    def normalise(self, x: Tensor) -> Tensor:
        """Normalise generated images in [0, 1] as the network expects its inputs."""


@dataclass(frozen=True)
class Client:
    """A client, which `init_client` and `start` find in `fed.client`.

    Args:
        number: index of the client, from 0 to K - 1.
        num_examples: n_k, its training samples, a scalar tensor.
        label_counts: (C,) numbers of its training samples by class; they sum to n_k.
    """

    number: int
    num_examples: Tensor
    label_counts: Tensor


class Fed(Protocol):
    """The server's view of the federation; in a client's hooks it also describes that client."""

    @property
    def net(self) -> Net:
        """The network: in a client's hooks its own, in the server's that of `model`."""

    @property
    def nets(self) -> Mapping[str, Net]:
        """The clients' networks by name of the model; one, unless `client_models` has more."""

    @property
    def initial(self) -> Mapping[str, Params]:
        """The initial model w_0 of each of `nets`, which all clients of that model share."""

    @property
    def num_clients(self) -> int:
        """K, the number of clients."""

    @property
    def rounds(self) -> int:
        """R, the number of rounds of the whole run."""

    @property
    def batch_size(self) -> int:
        """B, the batch size of the clients' local steps."""

    @property
    def auxiliary(self) -> Data:
        """The server's labelled samples, for an algorithm that needs `auxiliary`.

        Raises:
            AttributeError: a client's hook reads them; send what it needs in the message, where it
                is counted.
        """

    @property
    def validation(self) -> Data:
        """The held-out samples, for an algorithm that needs `validation`.

        A client's hook cannot read them either.
        """

    @property
    def public(self) -> Data:
        """The public samples, for an algorithm that needs `public`; in pure hooks `plan.public`.

        If a client's hook reads them, each client's bytes_down count them, once in the run.

        Raises:
            AttributeError: labels are read, and the algorithm does not need `public_labels`.
        """

    @property
    def client(self) -> Client:
        """The client that `init_client` or `start` is called for.

        Raises:
            AttributeError: another hook reads it; the server knows only what its clients upload.
        """

    def initialised(self, *keys: str | int) -> Params:
        """Return all parameters and buffers of a new network.

        They are drawn from the server's stream of these keys.
        """

    def stream(self, *keys: str | int) -> torch.Generator:
        """Return the generator of these keys, at its start.

        Such streams are the server's only source of randomness. Draws that are to differ between
        rounds need the round among the keys.
        """

    def repeat(
        self, step: ServerStep, state: Any, inputs: Any, given: Any, net: Net | None = None
    ) -> Any:
        """Train on the server: apply `step(net, state, one, given)` to each `one` of `inputs`.

        Returns the last state.

        If clients are stacked on a GPU, the step is captured once and replayed, in later rounds
        too. So, like the pure hooks, it must not draw random numbers or branch on data, and values
        that differ between rounds must reach it through `state`, `one` and `given`. It must write
        into neither `one` nor `given`; it may use autograd.

        Args:
            step: a method of the algorithm, or a function of a module; it closes over nothing.
            state: tree of tensors and numbers; not written to. The step returns it with the same
                structure.
            inputs: tree of tensors, each with a leading axis over the steps.
            given: tree of tensors and numbers that all steps read.
            net: the network that the step gets, one of `nets`; None for `fed.net`.

        Raises:
            TypeError: the step is neither.
            ValueError: the step changes the structure of the state, or writes into `one` or
                `given`; or the inputs have no common leading axis.
        """


class Cohort(Protocol):
    """The server's only access to its clients: to those of this round, or to `everyone`."""

    ids: Tensor
    num_examples: Tensor
    lr: float

    @property
    def groups(self) -> Mapping[str, Cohort]:
        """The clients of each model that some of them have, by its name, in the order of `ids`."""

    def mean(self, tree: Any, among: Tensor | None = None) -> Any:
        """Return the mean over the client axis, weighted by examples.

        `among` (m,) of 0 and 1 leaves clients out.
        """

    def everyone(self) -> Cohort:
        """Return a cohort of all K clients, for means over values that the server caches."""

    def gradients(
        self,
        loss: Any,
        params: Params,
        batch_size: int,
        *,
        augmented: bool = False,
        among: Tensor | None = None,
    ) -> Params:
        """Return each client's gradient (m, ...) of `loss` at `params` on one fresh mini-batch.

        This is one communication.

        Args:
            loss: a method of the algorithm, `loss(net, params, local_params, batch)` of shape (B,).
            params: model that is sent, and differentiated in its trainable names.
            batch_size: samples per client.
            augmented: whether the samples are augmented as in local training, if the setting
                augments.
            among: (m,) of 0 and 1, the clients that answer; the others' gradients are 0, and they
                send nothing.
        """


def log(low: float, high: float) -> Range:
    """Return the range from `low` to `high`, to be tried evenly on a logarithmic scale.

    `low` is above 0.
    """
    return Range(low, high, log=True)


def linear(low: float, high: float) -> Range:
    """Return the range from `low` to `high`, to be tried evenly."""
    return Range(low, high, log=False)


def hyper(
    default: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple[str, ...] = (),
    packable: bool = True,
    optional: bool = False,
    search: Sequence[Value] | Range | None = None,
) -> Any:
    """Declare a hyper-parameter: a field with a default and a range, checked at construction.

    Args:
        default: the printed equation's value, or the one that `About.defaults_follow` names.
        low: smallest value, or None.
        high: largest value, or None.
        open_low: whether the smallest value itself is excluded.
        open_high: whether the largest value itself is excluded.
        choices: the allowed strings.
        packable: whether configurations that differ in it may train in one program; False if trees
            depend on it.
        optional: whether run keys leave it out at its default, as a field that joins an algorithm
            with stored runs must be left out for their keys to stay valid.
        search: what sweeps try, a list, `log(low, high)` or `linear(low, high)`, where no paper's
            space in `search_spaces` has values and the user gives none; None for the default alone.

    Raises:
        ValueError: the list is empty.
    """
    bounds = Bounds(low, high, open_low, open_high, choices)
    tried = search if search is None or isinstance(search, Range) else Grid(*search)
    metadata = {"bounds": bounds, "packable": packable, "optional": optional, "search": tried}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm. Fields are its hyper-parameters; the hooks below implement FedAvg.

    Raises:
        ValueError: a hyper-parameter has the wrong type or lies outside its range, or two break a
            relation.
    """

    about: ClassVar[About] = About()
    needs: ClassVar[frozenset[str]] = frozenset()
    # Clients upload their model as `params`, as DKD and T1 require.
    uploads_model: ClassVar[bool] = True
    # Whether a client's memory has its whole model, as `params`: rows without a model of the server
    # evaluate it, in place of what `start` makes of it and the next message.
    keeps_model: ClassVar[bool] = False
    # Whether clients may have models of their own. Not if the server averages the weights of all
    # clients, or sends all of them one model to train.
    unlike_models: ClassVar[bool] = False
    # Whether what is evaluated is each client's own model: expected times need it.
    personal: ClassVar[bool] = False
    # The hyper-parameter that counts the steps of the server's own training in a round; empty if
    # the server does not train. Expected times need it.
    server_steps: ClassVar[str] = ""
    # Entries of the message and of uploads whose shapes depend on a client's model. The server has
    # each of them by name of the model, a client has its own model's.
    by_model: ClassVar[tuple[str, ...]] = ()
    # The suffixes that `evaluated` returns.
    rows: ClassVar[tuple[str, ...]] = ("",)
    # The suffixes of the rows that `predict` classifies.
    predicted: ClassVar[tuple[str, ...]] = ()
    # Names of what `local_loss` reports by `batch.report`, in every step.
    terms: ClassVar[tuple[str, ...]] = ()
    # Small tensors of the message, of one shape, kept by `--track message`.
    tracked: ClassVar[tuple[str, ...]] = ()
    # None: 1, or in other packages a number that changes with the source.
    version: ClassVar[int | None] = None

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
        """Return the server's state before round 1, from the initial model w_0."""
        return Server(params)

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the message to every client of the round.

        It is called once more after the last round, whose models are evaluated with the message.
        Its distinct tensors are the traffic down. A message that can be told by fewer numbers, such
        as the factors of a matrix, states how many in `floats`, which is counted instead. Of an
        entry of `by_model`, a dict by name of the model, a client receives its own model's.
        """
        return {"params": server.params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the server's state after the round.

        Each tensor of `uploads` has a leading client axis (m, ...). An entry of `by_model` is a
        dict by name of the model, with an axis over that group.
        """
        return server.next(cohort.mean(uploads["params"]))

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return the models to evaluate by the suffix of their row.

        What one lacks is each client's, as `start` would return it now, or with `keeps_model` as
        the memory has it.
        """
        return {"": server.params}

    def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
        """Return scores (B, C) of samples in a row of `predicted`: the largest is the class.

        `params` is a whole model of the row, `net` its network. The row's loss is the cross entropy
        of the scores, so they must be finite.
        """
        return net.eval(params, x).logits

    # Client, random: ordinary Python; may use `generator`.

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return a client's memory before its first round, with all names it ever has.

        `params` is the initial model w_0.
        """
        return {}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's local state.

        Gradients are taken for the trainable names of its `params`.
        """
        return {"params": message["params"]}

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Draw the random tensors of one step.

        They have the leading axis `batch_size` and independent rows.
        """
        return {}

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return by name the frozen models whose outputs on the batch the loss uses.

        Only select; compute nothing.
        """
        return {}

    # Client, pure: tensors in, tensors out; the engine may vmap these over clients.

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Return the local state after work before the optimiser's step.

        Such work is, for instance, a generator's own step. `params` stay as they are: only the
        optimiser changes them.
        """
        return local

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the local objective: (B,), nats per example.

        A scalar term broadcasts when it is added.
        """
        return cross_entropy(net(local["params"], batch.x).logits, batch.y)

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the client's upload and its new memory.

        `data` is its whole training set, not augmented.

        `metrics` in the upload, scalars by name, are for the curve: they are no traffic, and the
        server does not see them. The curve has their mean over the round's clients, weighted by
        examples. `floats` in the upload, a scalar, is counted as traffic up in place of the
        tensors, as in a message; the server does not see it either.
        """
        return {"params": local["params"]}, memory


@dataclass(frozen=True)
class Plugin(Algorithm):
    """An algorithm around another, which forwards every hook, and `FACTS_OF_BASE`, to `base`.

    Override the one or two hooks that change.
    """

    base: Algorithm = field(default_factory=Algorithm)


FACTS_OF_BASE = (
    "needs",
    "uploads_model",
    "keeps_model",
    "personal",
    "server_steps",
    "by_model",
    "rows",
    "predicted",
    "terms",
    "tracked",
)


def _forwarded(name: str) -> Any:
    """Make a plug-in's hook of this name, with the signature and docstring of `Algorithm`'s."""

    @wraps(getattr(Algorithm, name))
    def hook(plugin: Plugin, *arguments: Any, **named: Any) -> Any:
        return getattr(plugin.base, name)(*arguments, **named)

    return hook


for _name, _member in vars(Algorithm).items():
    if inspect.isfunction(_member) and not _name.startswith("_"):
        setattr(Plugin, _name, _forwarded(_name))
for _name in FACTS_OF_BASE:
    setattr(Plugin, _name, property(attrgetter(f"base.{_name}")))


def layers(algorithm: Algorithm) -> Iterator[Algorithm]:
    """Yield the algorithm and the algorithms that it wraps, from the outside in."""
    yield algorithm
    base = getattr(algorithm, "base", None)
    if isinstance(base, Algorithm):
        yield from layers(base)
