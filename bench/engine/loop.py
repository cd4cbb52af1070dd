"""`Loop`: the reference backend, client after client. The fastest for convolutions on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from algorithms.base import Batch, Local, Outputs
from bench.engine.dropout import step_keys
from bench.engine.streams import stream
from bench.engine.tasks import Job, Problem, Task, Trained, finish, leaves_of
from bench.engine.trees import apart_from, to, tree_map


class Loop:
    """Trains the clients of a round one by one, batches unpadded unless BatchNorm would see the difference."""

    name = "loop"
    server = None  # servers' steps are made as they come

    def train(self, job: Job) -> list[Trained]:
        """Every client of a run to its end, in the order of its tasks.

        Raises:
            RuntimeError: a hook failed; the message names the round and the client.
        """
        return [self._guarded(job, task) for task in job.tasks]

    def train_all(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Trained]]]:
        """Each run with what came of its clients; it raises as `train` does."""
        return ((job, self.train(job)) for job in jobs)

    def _guarded(self, job: Job, task: Task) -> Trained:
        try:
            return self._client(job, task)
        except Exception as error:
            raise RuntimeError(f"round {job.round}, client {task.client}: {error}") from error

    def _client(self, job: Job, task: Task) -> Trained:
        problem, message = job.problem, job.message
        net, algorithm, device = problem.net, problem.algorithm, problem.federation.device
        task = replace(task, schedule=task.schedule.on(device, net.dtype), source=task.source.on(device))
        plan = job.plan(torch.tensor(float(task.steps), device=device, dtype=net.dtype))
        local: Local = {**task.local, "params": leaves_of(net, task.local["params"])}
        leaves = [local["params"][name] for name in net.trainable]
        state = problem.optimizer.init(leaves)
        total = torch.zeros((), device=device, dtype=net.dtype)
        keys = dropout_keys(problem, task, job.round).to(device) if net.has_dropout else [None] * task.steps
        for step in range(task.steps):
            batch = make_batch(problem, task, step)
            if problem.acts_before_steps:
                made = algorithm.before_step(net, local, batch, message, plan)
                beside = {name: tree_map(Tensor.detach, tree) for name, tree in made.items() if name != "params"}
                local = {**apart_from(leaves, beside), "params": local["params"]}
            with net.dropout(keys[step]):
                loss = masked_mean(algorithm.local_loss(net, local, batch, message, task.memory, plan), batch.weight)
            grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            problem.optimizer.step(leaves, grads, state, job.lr, step + 1, stacked=False)
            total += loss.detach()
        local = {**local, "params": {name: value.detach() for name, value in local["params"].items()}}
        return finish(problem, task, local, total / task.steps, message, plan)


def make_batch(problem: Problem, task: Task, step: int) -> Batch:
    """The batch of one step: short where the epoch ends, filled up only for BatchNorm's sake."""
    size = problem.setting.batch_size if problem.net.batchnorm else task.schedule.sizes[step]
    positions = task.schedule.positions[step, :size]
    x = task.source.take(step, size)
    teacher: dict[str, Outputs] = task.table(positions)
    with torch.no_grad():
        for name, params in task.teachers.items():
            if name not in teacher:
                teacher[name] = problem.net.eval(params, x)
    noise = to(problem.noise(task.noise), x.device)
    return Batch(x, task.source.labels(step, size), task.schedule.weight[step, :size], noise, teacher)


def dropout_keys(problem: Problem, task: Task, round: int) -> Tensor:
    """(steps, 2) keys of a client's dropout masks in a round, on the CPU."""
    return step_keys(stream(problem.seed, "dropout", round, task.client), task.steps)


def masked_mean(loss: Tensor, weight: Tensor) -> Tensor:
    """The mean of per-example losses (B,) over the samples that count.

    Raises:
        ValueError: a loss of another shape: a mean has counted the padding, any other would broadcast.
    """
    if loss.shape != weight.shape:
        raise ValueError(
            f"a loss is one value a sample, of shape ({len(weight)},), to which a scalar term may be added; got shape "
            f"{tuple(loss.shape)}"
        )
    # Of a client that is done, and has no samples left in a stack, it is 0.
    return (loss * weight).sum() / weight.sum().clamp(min=1)
