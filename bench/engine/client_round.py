"""One client's round, ready for either backend: its schedule, teachers, noise and starting point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Local, Memory, Message, Outputs, Params, Plan, Plugin, Upload, layers
from bench.engine.federation import Federation, Source
from bench.engine.network import Network
from bench.engine.optimizers import Optimizer
from bench.engine.pytree import detached_copy, has_nan, num_bytes, tensors
from bench.engine.rng import stream
from bench.engine.samples import draw_crops
from bench.engine.server_context import FedView
from search_spaces.setting import Setting


@dataclass(frozen=True)
class Problem:
    """The parts of a run that do not change."""

    algorithm: Algorithm
    setting: Setting
    seed: int
    net: Network
    fed: FedView
    federation: Federation
    optimizer: Optimizer

    @cached_property
    def clients_fed(self) -> FedView:
        """The `fed` of the clients' hooks."""
        return self.fed.for_clients()

    def fed_of(self, client: int) -> FedView:
        """Return the `fed` of a client's own hooks, with the client's number and sample counts."""
        return replace(self.clients_fed, member=partial(self.federation.client, client))

    def noise(self, generator: torch.Generator) -> Any:
        """Return the algorithm's draws for one step with a full batch, on the generator's device."""
        return self.algorithm.noise(self.clients_fed, generator, self.setting.batch_size)

    @cached_property
    def acts_before_steps(self) -> bool:
        """Return whether the algorithm does anything in `before_step`: the default is not worth a call per step."""
        idle = (Algorithm.before_step, Plugin.before_step)
        return any(type(layer).before_step not in idle for layer in layers(self.algorithm))


@dataclass(frozen=True)
class Schedule:
    """The samples that each local step takes.

    Args:
        positions: (steps, B) int64 into the client's own samples. A short last batch of an epoch is filled up with
            other samples of the client, because BatchNorm would see copies of one sample as a constant batch. Without
            BatchNorm the loop leaves this padding out.
        weight: (steps, B), 0 for padding.
        sizes: number of samples of each step, without padding.
    """

    positions: Tensor
    weight: Tensor
    sizes: tuple[int, ...]

    def on(self, device: torch.device, dtype: torch.dtype) -> Schedule:
        """Move the tensors to a device, and the weights to that type."""
        return Schedule(self.positions.to(device), self.weight.to(device, dtype), self.sizes)

    @staticmethod
    def draw(
        generator: torch.Generator, num_examples: int, steps: int, batch_size: int, whole_batches: bool = False
    ) -> Schedule:
        """Draw a fresh order for each epoch, cut into batches, for as many steps as wanted.

        With `whole_batches` an epoch's short last batch is left out, unless it is the only one.
        """
        per_epoch = _batches_per_epoch(num_examples, batch_size, whole_batches)
        places = torch.arange(per_epoch * batch_size)
        epochs = math.ceil(steps / per_epoch)
        orders = [torch.randperm(num_examples, generator=generator)[places % num_examples] for _ in range(epochs)]
        weight = (places < num_examples).double().view(per_epoch, batch_size).repeat(epochs, 1)[:steps]
        sizes = tuple(int(size) for size in weight.sum(1).tolist())
        return Schedule(torch.cat(orders).view(-1, batch_size)[:steps], weight, sizes)


def draw_schedule(generator: torch.Generator, setting: Setting, sizes: Sequence[int], client: int) -> Schedule:
    """Draw a client's schedule under the setting's step rule; `sizes` are the sample counts of all clients."""
    epochs, batch_size, whole_batches = setting.local_epochs, setting.batch_size, setting.step_rule == "equal"
    steps = {
        "epochs": epochs * _batches_per_epoch(sizes[client], batch_size, False),
        "batches": epochs,
        "equal": epochs * max(1, sum(sizes) // (len(sizes) * batch_size)),
    }[setting.step_rule]
    return Schedule.draw(generator, sizes[client], steps, batch_size, whole_batches)


def _batches_per_epoch(num_examples: int, batch_size: int, whole_batches: bool) -> int:
    """Count the batches of an epoch."""
    return max(1, num_examples // batch_size) if whole_batches else math.ceil(num_examples / batch_size)


@dataclass
class ClientWork:
    """One client's round before training. Draws for its steps are on the CPU; a backend moves them all at once.

    `local` is everything that the client trains, `memory` is from its earlier rounds, `teachers` are frozen models by
    name, `tables` their outputs on every sample, if epochs have the same inputs; the hook `noise` draws from `noise`.
    """

    client: int
    schedule: Schedule
    source: Source
    local: Local
    memory: Memory
    teachers: Mapping[str, Params]
    tables: Mapping[str, Outputs]
    noise: torch.Generator
    _drawn: list[Any] = field(default_factory=list)

    def drawn_noise(self, problem: Problem) -> list[Any]:
        """Return the `noise` of each step, drawn at the first call; later calls return the same."""
        if not self._drawn:
            self._drawn = [problem.noise(self.noise) for _ in range(self.steps)]
        return self._drawn

    @property
    def steps(self) -> int:
        """Number of local steps, tau_k."""
        return len(self.schedule.sizes)


@dataclass
class RoundWork:
    """One run's round (from 1), ready to train: its clients' work, the message to them, the local learning rate."""

    problem: Problem
    clients: list[ClientWork]
    message: Message
    round: int
    lr: float

    def plan(self, num_steps: Tensor) -> Plan:
        """Make the plan of a client that takes so many steps."""
        setting = self.problem.setting
        return Plan(self.round, self.lr, setting.momentum, num_steps)


@dataclass
class ClientResult:
    """A client's final local model, upload and its bytes, memory, mean training loss in nats, steps and samples.

    `nan_in` has a scalar for each other entry of `local`, by its name: NaN if the entry has a NaN, else 0.
    """

    client: int
    params: Params
    upload: Upload
    bytes_up: int
    memory: Memory
    loss: Tensor
    steps: int
    samples: int
    nan_in: dict[str, Tensor]


def make_work(problem: Problem, client: int, round: int, message: Message, memory: Memory) -> ClientWork:
    """Draw everything that a client's round needs, each part from a stream of its own."""
    setting, federation, algorithm = problem.setting, problem.federation, problem.algorithm

    def generator(purpose: str) -> torch.Generator:
        return stream(problem.seed, purpose, round, client)

    schedule = draw_schedule(generator("order"), setting, federation.sizes, client)
    augmented = setting.augmentation != "none"
    draws = draw_crops(generator("augment"), len(schedule.sizes), setting.batch_size) if augmented else None
    start = algorithm.start(problem.fed_of(client), message, memory, generator("start"))
    source = federation.source(client, schedule.positions, draws)
    teachers = algorithm.teachers(message, memory)
    return ClientWork(
        client=client,
        schedule=schedule,
        source=source,
        local=tensors(start, federation.device, federation.dtype),
        memory=memory,
        teachers=teachers,
        tables={} if augmented else outputs_on(problem.net, teachers, source),
        noise=generator("noise"),
    )


@torch.no_grad()
def outputs_on(net: Network, models: Mapping[str, Params], source: Source) -> dict[str, Outputs]:
    """Compute outputs of frozen models on all of a client's unaugmented inputs: (n, C) logits, (n, D) features."""
    if not models:
        return {}
    parts = [{name: net.eval(params, x) for name, params in models.items()} for x in source.chunks()]
    return {
        name: Outputs(torch.cat([p[name].logits for p in parts]), torch.cat([p[name].features for p in parts]))
        for name in models
    }


def leaves_of(net: Network, params: Params) -> Params:
    """Copy a model for a client to train: 4-d weights in channels-last memory, trainable tensors as leaves."""
    copies = {}
    for name, value in params.items():
        layout = torch.channels_last if value.dim() == 4 else torch.contiguous_format
        copies[name] = value.detach().clone(memory_format=layout)
    for name in net.trainable:
        copies[name].requires_grad_()
    return copies


def finish(
    problem: Problem, work: ClientWork, local: Local, loss: Tensor, message: Message, plan: Plan
) -> ClientResult:
    """Call the algorithm's `upload` for a client's upload and new memory, and make the client's result."""
    federation = problem.federation
    data = federation.data(work.source.index)
    upload, memory = problem.algorithm.upload(problem.net, local, data, message, work.memory, plan)
    upload = tensors(upload, federation.device, federation.dtype)
    return ClientResult(
        client=work.client,
        params=local["params"],
        upload=upload,  # not copied: the server copies all uploads before the round is over
        bytes_up=num_bytes(upload),
        memory=detached_copy(tensors(memory, federation.device, federation.dtype)),
        loss=loss,
        steps=work.steps,
        samples=sum(work.schedule.sizes),
        nan_in={name: has_nan(tree) for name, tree in local.items() if name != "params"},
    )
