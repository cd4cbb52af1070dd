"""One client's round, ready for either backend: its batches, teachers, noise and starting point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Local, Memory, Message, Outputs, Params, Plan, Plugin, Upload, layers
from algorithms.forward import Answers
from bench.engine.crops import draw_crops
from bench.engine.federation import Federation, Source
from bench.engine.network import Network
from bench.engine.optimizers import Optimizer
from bench.engine.schedule import Schedule, draw_schedule
from bench.engine.streams import stream
from bench.engine.trees import num_bytes, own, spoilt, tensors
from bench.engine.view import FedView
from search_spaces.setting import Setting


@dataclass(frozen=True)
class Problem:
    """What does not change during a run."""

    algorithm: Algorithm
    setting: Setting
    seed: int
    net: Network
    fed: FedView
    federation: Federation
    optimizer: Optimizer

    def fed_of(self, client: int) -> FedView:
        """The view of a client's own hooks: the server's, and what the client knows of itself."""
        return replace(self.fed, member=partial(self.federation.client, client))

    def noise(self, generator: torch.Generator) -> Any:
        """What the algorithm draws for one step, where the generator is. Always of a whole batch."""
        return self.algorithm.noise(self.fed, generator, self.setting.batch_size)

    @cached_property
    def acts_before_steps(self) -> bool:
        """Whether the algorithm does anything in `before_step`: the default is not worth a call per step."""
        idle = (Algorithm.before_step, Plugin.before_step)
        return any(type(layer).before_step not in idle for layer in layers(self.algorithm))


@dataclass
class Task:
    """One client's round. What is drawn for its steps is on the CPU, for a backend to move at once.

    Args:
        client: its number.
        schedule: which samples each step takes.
        source: the inputs.
        local: what it trains, the algorithm's `start` copied so that nothing shared is written to.
        memory: what it kept.
        teachers: frozen models by name.
        tables: the teachers' outputs on every sample, where inputs do not change from epoch to epoch.
        noise: generator of the algorithm's `noise` hook.
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
        """What the `noise` hook draws for each step; asked again, the same."""
        if not self._drawn:
            self._drawn = [problem.noise(self.noise) for _ in range(self.steps)]
        return self._drawn

    @property
    def steps(self) -> int:
        """tau_k."""
        return len(self.schedule.sizes)

    def table(self, positions: Tensor) -> dict[str, Outputs]:
        """The teachers' stored outputs on these samples."""
        return {name: Outputs(out.logits[positions], out.features[positions]) for name, out in self.tables.items()}


@dataclass
class Job:
    """One run's round, ready to train.

    Args:
        problem: the run's.
        tasks: its clients'.
        message: what all of them were sent.
        round: from 1.
        lr: local learning rate of the round.
    """

    problem: Problem
    tasks: list[Task]
    message: Message
    round: int
    lr: float

    def plan(self, num_steps: Tensor) -> Plan:
        """That of a client which takes so many steps."""
        setting = self.problem.setting
        return Plan(self.round, self.lr, setting.momentum, setting.optimizer, num_steps)


@dataclass
class Trained:
    """What came of a task: final local model, upload and its bytes, memory, mean training loss in nats, steps, samples.

    `health` has a number for whatever else was trained, by name in `local`: it is finite if that thing is.
    """

    client: int
    params: Params
    upload: Upload
    bytes_up: int
    memory: Memory
    loss: Tensor
    steps: int
    samples: int
    health: dict[str, Tensor]


def make_task(problem: Problem, client: int, round: int, message: Message, memory: Memory) -> Task:
    """Draw everything that a client's round needs, each from its own stream."""
    setting, federation, seed = problem.setting, problem.federation, problem.seed
    order = stream(seed, "order", round, client)
    schedule = draw_schedule(order, setting, federation.sizes, client)
    draws = None
    if setting.augmentation != "none":
        generator = stream(seed, "augment", round, client)
        draws = draw_crops(generator, len(schedule.sizes), setting.batch_size)
    start = problem.algorithm.start(problem.fed_of(client), message, memory, stream(seed, "start", round, client))
    source = federation.source(client, schedule.positions, draws)
    teachers = problem.algorithm.teachers(message, memory)
    return Task(
        client=client,
        schedule=schedule,
        source=source,
        local=tensors(start, federation.device, federation.dtype),
        memory=memory,
        teachers=teachers,
        tables={} if draws is not None else outputs_on(problem.net, teachers, source),
        noise=stream(seed, "noise", round, client),
    )


def outputs_on(net: Network, models: Mapping[str, Params], source: Source) -> dict[str, Outputs]:
    """Frozen models' outputs on all of a client's unaugmented inputs: (n, C) logits, (n, D) features by name."""
    if not models:
        return {}
    answers = Answers(net)
    parts = [{name: answers.on(params, x) for name, params in models.items()} for x in source.chunks()]
    return {
        name: Outputs(torch.cat([p[name].logits for p in parts]), torch.cat([p[name].features for p in parts]))
        for name in models
    }


def leaves_of(net: Network, params: Params) -> Params:
    """A client's own copy of a model, ready to train: 4-d weights in channels-last memory, trainable ones as leaves."""
    copies = {}
    for name, value in params.items():
        layout = torch.channels_last if value.dim() == 4 else torch.contiguous_format
        copies[name] = value.detach().clone(memory_format=layout)
    for name in net.trainable:
        copies[name].requires_grad_()
    return copies


def finish(problem: Problem, task: Task, local: Local, loss: Tensor, message: Message, plan: Any) -> Trained:
    """Ask the algorithm for the upload and the memory, and make both the client's own."""
    federation = problem.federation
    data = federation.data(task.source.index)
    upload, memory = problem.algorithm.upload(problem.net, local, data, message, task.memory, plan)
    upload = tensors(upload, federation.device, federation.dtype)
    return Trained(
        client=task.client,
        params=local["params"],
        upload=upload,  # no copies: before the round is over the server has made its own of all of them
        bytes_up=num_bytes(upload),
        memory=own(tensors(memory, federation.device, federation.dtype)),
        loss=loss,
        steps=task.steps,
        samples=sum(task.schedule.sizes),
        health={name: spoilt(tree) for name, tree in local.items() if name != "params"},
    )
