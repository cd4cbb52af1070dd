"""Rounds of one algorithm with prescribed local models; everything else is the algorithm's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

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
    batch,
    draw,
    forward,
    model,
)
from bench.selftest.toy import gap

CPU = torch.device("cpu")
Make = Callable[..., Algorithm]
Objective = Callable[[Params], Tensor]
Loss = Callable[[Params, Batch], Tensor]  # (B,) nats of each sample, or a scalar
Pass = tuple[Params, Batch]  # the model and the mini-batch of a prescribed training step


class LossAndGrad(NamedTuple):
    """A loss in nats, a scalar, and its gradient by trainable name."""

    loss: Tensor
    grad: Params


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
    norm: bool = True
    lrs: tuple[float, ...] = (0.1,)
    momentum: float = 0.0

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

    def message(self) -> Message:
        """Return the server's message of the coming round.

        The hook is called once a round, as in a real run.
        """
        if self._sent is None:
            message = self.algorithm.broadcast(self.fed, self.server)
            self._sent = tensors(message, CPU, torch.float64)
        return self._sent

    def fed_of(self, client: int) -> LabFed:
        """Return the federation as a client's hooks see it."""
        data = self.clients[client]
        counts = data.y.bincount(minlength=lab.CLASSES).double()
        return replace(self.fed.for_clients(), client=Client(client, counts.sum(), counts))

    def visit(self, client: int, steps: float = 1.0) -> Visit:
        """Start a client's coming round, in which it will take `steps` local steps."""
        if client not in self.memories:
            memory = self.algorithm.init_client(self.fed_of(client), detached_copy(self.initial))
            self.memories[client] = detached_copy(tensors(memory, CPU, torch.float64))
        num_steps = torch.tensor(steps, dtype=torch.float64)
        plan = LocalPlan(self.number, self.lr, self.momentum, num_steps, self.fed.public)
        return Visit(self, client, self.received(), self.memories[client], plan)

    def received(self) -> Message:
        """Return the message as every client receives it: of entries by model, the one model's."""
        message = self.message()
        listed = [name for name in self.algorithm.by_model if name in message]
        return {**message, **{name: message[name][lab.MODEL] for name in listed}}

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
        self,
        clients: Sequence[int],
        passes: Mapping[int, list[Pass]] | None = None,
        steps: Mapping[int, float] | None = None,
    ) -> dict[int, Params]:
        """Run a round; return the models at which the clients end, which are `local(client)`.

        Args:
            clients: those that take part.
            passes: of each client; without them it makes one, at `local(client)`.
            steps: the number of local steps that each client is told; without them, its passes.
        """
        if passes is None:
            passes = {k: [(self.local(k), batch("round", self.number, k))] for k in clients}
        if steps is None:
            steps = {k: len(passes[k]) for k in clients}
        visits = {k: self.visit(k, steps[k]) for k in clients}
        for k, visit in visits.items():
            for params, samples in passes[k]:
                visit.step_loss(params, samples)
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
        return max(
            gap(self.received()["params"], expected),
            gap(self.algorithm.evaluated(self.server)[""], expected),
        )


class Visit:
    """One client in one round of `run`."""

    def __init__(
        self, run: LabRun, client: int, message: Message, memory: Memory, plan: LocalPlan
    ) -> None:
        self.run = run
        self.client = client
        self.message = message
        self.memory = memory
        self.plan = plan
        algorithm = run.algorithm
        start = algorithm.start(
            run.fed_of(client), message, memory, draw("start", run.number, client)
        )
        self.local: Local = detached_copy(tensors(start, CPU, torch.float64))
        self.teachers = algorithm.teachers(message, memory)
        self._noise = draw("noise", run.number, client)

    def step(self, params: Params, samples: Batch) -> Batch:
        """Set the local model to `params` and call `before_step`; return the completed batch.

        It has noise and the teachers' outputs.
        """
        run = self.run
        noise = run.algorithm.noise(run.fed.for_clients(), self._noise, run.fed.batch_size)
        with torch.no_grad():
            outputs = {
                name: run.net.eval(teacher, samples.x) for name, teacher in self.teachers.items()
            }
        samples = replace(samples, noise=noise, teacher=outputs)
        self._set_local_model(params)
        self.local = {
            **tree_map(Tensor.detach, self.before_step(samples)),
            "params": self.local["params"],
        }
        return samples

    def before_step(self, samples: Batch) -> Local:
        """Return what `before_step` makes of the local state, which stays as it is."""
        run = self.run
        return run.algorithm.before_step(run.net, self.local, samples, self.message, self.plan)

    def step_loss(self, params: Params, samples: Batch) -> LossAndGrad:
        """Return the mean loss of one whole step at `params`, and its gradient."""
        return self.loss(params, self.step(params, samples))

    def loss(self, params: Params, samples: Batch) -> LossAndGrad:
        """Return the mean loss and its gradient without `before_step`, on a completed batch."""
        run = self.run
        self._set_local_model(params)
        loss = run.algorithm.local_loss(
            run.net, self.local, samples, self.message, self.memory, self.plan
        )
        mean = masked(loss, samples.weight)
        names = run.net.trainable
        grad = torch.autograd.grad(
            mean, [self.local["params"][n] for n in names], materialize_grads=True
        )
        return LossAndGrad(mean.detach(), dict(zip(names, grad, strict=True)))

    def upload(self, params: Params) -> Upload:
        """Return the upload at `params`, and store the client's new memory."""
        run = self.run
        self.local = {**self.local, "params": detached_copy(params)}
        data = run.clients[self.client]
        upload, memory = run.algorithm.upload(
            run.net, self.local, data, self.message, self.memory, self.plan
        )
        run.memories[self.client] = detached_copy(tensors(memory, CPU, torch.float64))
        sent: Upload = detached_copy(tensors(upload, CPU, torch.float64))
        return sent

    def _set_local_model(self, params: Params) -> None:
        """Make copies of `params` the local model, with trainable tensors as leaves."""
        copies = detached_copy(params)
        for name in self.run.net.trainable:
            copies[name].requires_grad_()
        self.local = {**self.local, "params": copies}


def loss_and_grad_of(objective: Objective, params: Params, names: Sequence[str]) -> LossAndGrad:
    """Return the printed objective at `params`, and its gradient by these names."""
    leaves = {name: value.clone().requires_grad_(name in names) for name, value in params.items()}
    loss = objective(leaves)
    grad = torch.autograd.grad(loss, [leaves[name] for name in names], materialize_grads=True)
    return LossAndGrad(loss.detach(), dict(zip(names, grad, strict=True)))


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


def ce(w: Params, samples: Batch) -> Tensor:
    """Return the cross entropy of each sample, (B,) nats, by the network in training mode."""
    return cross_entropy(forward(w, samples.x).logits, samples.y)


def fedavg_loss(w: Params, samples: Batch, history: FedAvgRecord, **options: Any) -> Tensor:
    """Return FedAvg's F_k, the cross entropy, whatever the hyper-parameters."""
    return ce(w, samples)


def mean_of(loss: Loss, samples: Batch, w: Params) -> Tensor:
    """Return a model's loss on a batch: the mean over its samples, unless it is a scalar."""
    value = loss(w, samples)
    return value if value.dim() == 0 else masked(value, samples.weight)


def holds(statement: bool) -> float:
    """Return the gap of a statement: 0 if it is true, or inf."""
    return 0.0 if statement else math.inf


def run_rounds(run: LabRun, cohorts: lab.Cohorts) -> FedAvgRecord:
    """Run these cohorts' rounds, and return an independent record of FedAvg's server."""
    history = FedAvgRecord([run.initial])
    for clients in cohorts:
        history.locals.append(run.round(clients))
        history.globals.append(weighted(history.locals[-1], SIZES))
    return history


def local_gap(run: LabRun, client: int, start: Params, loss: Loss) -> float:
    """Return the largest gap of one client's start, loss and gradient in the coming round."""
    # With these keys no sample's features are all zero, where the cosine that MOON prints is
    # undefined.
    visit = run.visit(client)
    samples = batch("compared")
    params = model(run.net, "compared")
    start_gap = gap(visit.local["params"], start)
    printed = loss_and_grad_of(partial(mean_of, loss, samples), params, run.net.trainable)
    return max(start_gap, gap(visit.step_loss(params, samples), printed))


def every_local_gap(run: LabRun, loss: Loss, received: Params | None = None) -> float:
    """Return the largest `local_gap` of clients that go on from their last models.

    `received`: entries that each takes from the server.
    """
    return max(local_gap(run, k, run.last[k] | (received or {}), loss) for k in SIZES)
