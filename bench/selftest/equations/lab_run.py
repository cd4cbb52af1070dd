"""Rounds of one algorithm with prescribed local models; everything else is the algorithm's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Client,
    Data,
    Local,
    LocalPlan,
    Memory,
    Message,
    Outputs,
    Params,
    Server,
    Upload,
)
from bench.engine.pytree import detached_copy, stack, tensors, tree_map
from bench.selftest.equations import lab
from bench.selftest.equations.formulas import cross_entropy, masked, weighted
from bench.selftest.equations.lab import (
    PASSES,
    SIZES,
    LabCohort,
    LabFed,
    LabNet,
    LossAndGrad,
    batch,
    draw,
    forward,
    leaves_of,
    loss_and_grad_of,
    model,
)
from bench.selftest.toy import gap

Make = Callable[..., Algorithm]
Loss = Callable[[Params, Batch], Tensor]  # (B,) nats of each sample, or a scalar
Pass = tuple[Params, Batch]  # the model and the mini-batch of a prescribed training step
Gaps = Iterator[float]  # absolute gaps between an algorithm and the formulas


@dataclass
class LabRun:
    """The rounds of one algorithm; the arguments are those of `checks.Check`.

    Attributes:
        initial: w_0.
        memories: of the clients that have taken part.
        last: the model at which each client ended its last round; w_0 if it has had none.
        clients: each client's data.
        cohort: the last round's clients, as the server saw them.
    """

    make: Make
    options: Mapping[str, Any]
    norm: bool
    lrs: tuple[float, ...]
    momentum: float

    def __post_init__(self) -> None:
        self.net = LabNet(self.norm)
        self.fed = LabFed(self.net)
        self.algorithm = self.make(**self.options)
        self.initial = model(self.net, "initial")
        self.clients: dict[int, Data] = {k: lab.client_samples(k) for k in SIZES}
        self.memories: dict[int, Memory] = {}
        self.last: dict[int, Params] = dict.fromkeys(SIZES, self.initial)
        self.server: Server = self.algorithm.init_server(self.fed, detached_copy(self.initial))
        self._sent: Message | None = None

    @property
    def number(self) -> int:
        """The number of the coming round, from 1."""
        return self.server.round + 1

    @property
    def lr(self) -> float:
        """The local learning rate of the coming round."""
        return self.lrs[min(self.server.round, len(self.lrs) - 1)]

    @property
    def evaluated(self) -> dict[str, Params]:
        """The evaluated models by suffix."""
        return self.algorithm.evaluated(self.server)

    def message(self) -> Message:
        """Return the server's message of the coming round.

        The hook is called once a round, as in a real run.
        """
        if self._sent is None:
            self._sent = in_float64(self.algorithm.broadcast(self.fed, self.server))
        return self._sent

    def received(self) -> Message:
        """Return the message as every client receives it: of entries by model, the one model's."""
        message = self.message()
        listed = [name for name in self.algorithm.by_model if name in message]
        return {**message, **{name: message[name][lab.MODEL] for name in listed}}

    def fed_of(self, client: int) -> LabFed:
        """Return the federation as a client's hooks see it."""
        counts = self.clients[client].y.bincount(minlength=lab.CLASSES).double()
        return replace(self.fed.for_clients(), client=Client(client, counts.sum(), counts))

    def visit(self, client: int, steps: float = PASSES) -> Visit:
        """Start a client's coming round, in which it will take `steps` local steps."""
        return Visit(self, client, steps)

    def local(self, client: int) -> Params:
        """Return the prescribed model with which a client ends the coming round."""
        return model(self.net, "local", self.number, client)

    def passes(self, client: int, count: int = PASSES) -> list[Pass]:
        """Return prescribed passes of the client's coming round, which hold some labels only."""
        owned = torch.tensor(lab.LABELS[client])
        passes = []
        for i in range(count):
            samples = batch("pass", self.number, client, i)
            samples = replace(samples, y=owned[samples.y % len(owned)])
            passes.append((model(self.net, "pass", self.number, client, i), samples))
        return passes

    def round(
        self, clients: Iterable[int], steps: Mapping[int, float] | None = None
    ) -> dict[int, Params]:
        """Run a round of clients, which make their passes; return the models at which they end.

        Each is told that it takes as many steps, or those of `steps`.
        """
        visits = {}
        for k in clients:
            visits[k] = self.visit(k, steps[k] if steps else PASSES)
            for params, samples in self.passes(k):
                visits[k].step_loss(params, samples)
        return self.close(visits)

    def close(
        self, visits: Mapping[int, Visit], models: dict[int, Params] | None = None
    ) -> dict[int, Params]:
        """Let every visited client upload, and the server step; return the clients' models.

        Clients end at their model of `models`, or else at `local(client)`.
        """
        models = models or {k: self.local(k) for k in visits}
        number = self.number
        uploads = stack([visit.upload(models[k]) for k, visit in visits.items()])
        for name in self.algorithm.by_model:
            uploads[name] = {lab.MODEL: uploads[name]}
        self.cohort = LabCohort(self.net, number, self.lr, detached_copy(models), self.clients)
        self.server = self.algorithm.server_step(self.fed, self.server, uploads, self.cohort)
        self.last |= models
        self._sent = None
        if self.server.round != number:
            raise ValueError(
                "server_step must return server.next(...): "
                f"round {self.server.round} after {number}"
            )
        return models

    def model_gap(self, expected: Params) -> float:
        """Return the largest gap of the next broadcast and the evaluated model from `expected`."""
        return max(gap(self.received()["params"], expected), gap(self.evaluated[""], expected))

    def rounds(self, cohorts: lab.Cohorts) -> FedAvgRecord:
        """Run these cohorts' rounds, and return an independent record of FedAvg's server."""
        history = FedAvgRecord([self.initial])
        for clients in cohorts:
            history.locals.append(self.round(clients))
            history.globals.append(weighted(history.locals[-1]))
        return history

    def local_gap(self, client: int, start: Params, loss: Loss) -> float:
        """Return the largest gap of one client's start, loss and gradient in the coming round."""
        # With these keys no sample's features are all zero, where the cosine that MOON prints is
        # undefined.
        visit = self.visit(client)
        samples = batch("compared")
        params = model(self.net, "compared")
        start_gap = gap(visit.local["params"], start)
        printed = loss_and_grad_of(partial(mean_of, loss, samples), params)
        return max(start_gap, gap(visit.step_loss(params, samples), printed))

    def every_local_gap(self, loss: Loss, received: Params | None = None) -> float:
        """Return the largest `local_gap` of clients that go on from their last models.

        `received`: entries that each takes from the server.
        """
        return max(self.local_gap(k, self.last[k] | (received or {}), loss) for k in SIZES)


class Visit:
    """One client in one round of `run`."""

    def __init__(self, run: LabRun, client: int, steps: float) -> None:
        fed = run.fed_of(client)
        algorithm = run.algorithm
        if client not in run.memories:
            memory = algorithm.init_client(fed, detached_copy(run.initial))
            run.memories[client] = detached_copy(in_float64(memory))
        self.run = run
        self.client = client
        self.message = run.received()
        self.memory = run.memories[client]
        num_steps = torch.tensor(steps, dtype=torch.float64)
        self.plan = LocalPlan(run.number, run.lr, run.momentum, num_steps, fed.public)
        start = algorithm.start(fed, self.message, self.memory, draw("start", run.number, client))
        self.local: Local = detached_copy(in_float64(start))
        self.teachers = algorithm.teachers(self.message, self.memory)
        self._noise = draw("noise", run.number, client)

    def step(self, params: Params, samples: Batch) -> Batch:
        """Call `before_step` at the local model `params`; return the completed batch.

        It has noise and the teachers' outputs.
        """
        run = self.run
        noise = run.algorithm.noise(run.fed.for_clients(), self._noise, run.fed.batch_size)
        with torch.no_grad():
            outputs = {name: run.net.eval(w, samples.x) for name, w in self.teachers.items()}
        samples = replace(samples, noise=noise, teacher=outputs)
        local = {**self.local, "params": leaves_of(params)}
        after = run.algorithm.before_step(run.net, local, samples, self.message, self.plan)
        self.local = tree_map(Tensor.detach, after)
        return samples

    def step_loss(self, params: Params, samples: Batch) -> LossAndGrad:
        """Return the mean loss of one whole step at `params`, and its gradient."""
        return self.loss(params, self.step(params, samples))

    def loss(self, params: Params, samples: Batch) -> LossAndGrad:
        """Return the mean loss and its gradient without `before_step`, on a completed batch."""
        run = self.run

        def objective(w: Params) -> Tensor:
            local = {**self.local, "params": w}
            loss = run.algorithm.local_loss(
                run.net, local, samples, self.message, self.memory, self.plan
            )
            return masked(loss, samples.weight)

        return loss_and_grad_of(objective, params)

    def upload(self, params: Params) -> Upload:
        """Return the upload at `params`, and store the client's new memory."""
        run = self.run
        local = {**self.local, "params": detached_copy(params)}
        data = run.clients[self.client]
        upload, memory = run.algorithm.upload(
            run.net, local, data, self.message, self.memory, self.plan
        )
        run.memories[self.client] = detached_copy(in_float64(memory))
        sent: Upload = detached_copy(in_float64(upload))
        return sent


def in_float64(tree: Any) -> Any:
    """Return a tree as the engine passes it on: numbers are tensors, too."""
    return tensors(tree, torch.device("cpu"), torch.float64)


@dataclass(frozen=True)
class FedAvgRecord:
    """An independent record of FedAvg's server."""

    globals: list[Params]  # w_0, w_1, ..., the last being the start of the coming round
    # For each finished round, each client's final model.
    locals: list[dict[int, Params]] = field(default_factory=list)

    @property
    def received(self) -> Params:
        """The model w_t that the coming round starts from."""
        return self.globals[-1]


def student(w: Params, samples: Batch) -> Tensor:
    """Return logits (B, C) in training mode."""
    return forward(w, samples.x).logits


def constant(w: Params, x: Tensor) -> Outputs:
    """Return the outputs of a model in evaluation mode, through which no gradient flows."""
    return Outputs(*map(Tensor.detach, forward(w, x, training=False)))


def ce(w: Params, samples: Batch) -> Tensor:
    """Return the cross entropy of each sample, (B,) nats, by the network in training mode."""
    return cross_entropy(student(w, samples), samples.y)


def fedavg_loss(w: Params, samples: Batch, history: FedAvgRecord, **options: Any) -> Tensor:
    """Return FedAvg's F_k, the cross entropy, whatever the hyper-parameters."""
    return ce(w, samples)


def mean_of(loss: Loss, samples: Batch, w: Params) -> Tensor:
    """Return a model's loss on a batch: the mean over its samples, unless it is a scalar."""
    value = loss(w, samples)
    return masked(value, samples.weight) if value.dim() else value


def holds(statement: bool) -> float:
    """Return the gap of a statement: 0 if it is true, or inf."""
    return 0.0 if statement else math.inf
