"""The reference backend, `Loop`, which trains client after client; the fastest for convolutions on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from algorithms.base import Batch, Local, Outputs
from bench.engine.client_round import (
    LOSS,
    ClientResult,
    ClientWork,
    Problem,
    RoundWork,
    finish,
    leaves_of,
    step_means,
)
from bench.engine.dropout import step_keys
from bench.engine.pytree import apart_from, to, tree_map
from bench.engine.rng import stream
from bench.errors import of_hook, result_or_error


class Loop:
    """Backend that trains the clients of a round one by one; it pads batches only for networks with BatchNorm."""

    server = None  # servers' steps are executed one by one

    def train(self, job: RoundWork) -> list[ClientResult]:
        """Train every client of a run to its end, in order.

        Raises:
            RuntimeError: a hook failed; the message names the round and the client.
        """
        results = []
        for work in job.clients:
            own = job.of(work.client)
            try:
                own_draws = job.problem.own_draws("client", job.round, work.client)
                with job.problem.products(), own_draws:
                    results.append(self._client(own, work))
            except Exception as error:
                reason = of_hook(error, own.message, work.memory)
                raise RuntimeError(f"round {job.round}, client {work.client}: {reason}") from error
        return results

    def train_all(
        self, jobs: Sequence[RoundWork]
    ) -> Iterator[tuple[RoundWork, list[ClientResult] | Exception]]:
        """Train each run; yield it with the results of its clients, or its error."""
        for job in jobs:
            yield job, result_or_error(self.train, job)

    def _client(self, job: RoundWork, work: ClientWork) -> ClientResult:
        problem, message = job.problem, job.message
        net, algorithm, device = problem.net, problem.algorithm, problem.federation.device
        # A copy of the generator, because a second attempt must see the same numbers.
        noise, schedule, source = (
            work.noise.clone_state(),
            work.schedule.on(device, net.dtype),
            work.source.on(device),
        )
        work = replace(work, schedule=schedule, source=source, noise=noise)
        plan = job.plan(torch.tensor(float(work.steps), device=device, dtype=net.dtype))
        local: Local = {**work.local, "params": leaves_of(net, work.local["params"])}
        leaves = [local["params"][name] for name in net.trainable]
        state = problem.optimizer.init(leaves)
        totals = {
            name: torch.zeros((), device=device, dtype=net.dtype)
            for name in (LOSS, *algorithm.terms)
        }
        keys = (
            dropout_keys(problem, work, job.round).to(device)
            if net.has_dropout
            else [None] * work.steps
        )
        for step in range(work.steps):
            batch = _batch(problem, work, step)
            if problem.acts_before_steps:
                changed = algorithm.before_step(net, local, batch, message, plan)
                extras = {
                    name: tree_map(Tensor.detach, tree)
                    for name, tree in changed.items()
                    if name != "params"
                }
                local = {**apart_from(leaves, extras), "params": local["params"]}
            with net.dropout(keys[step]):
                losses = algorithm.local_loss(net, local, batch, message, work.memory, plan)
            means = step_means(algorithm, batch, losses)
            grads = torch.autograd.grad(
                means[LOSS], leaves, allow_unused=True, materialize_grads=True
            )
            problem.optimizer.step(leaves, grads, state, job.lr, step + 1, stacked=False)
            for name, total in totals.items():
                total += means[name].detach()
        local = {
            **local,
            "params": {name: value.detach() for name, value in local["params"].items()},
        }
        means = {name: total / work.steps for name, total in totals.items()}
        return finish(problem, work, local, means, message, plan)


def _batch(problem: Problem, work: ClientWork, step: int) -> Batch:
    """Make the batch of one step: at the end of an epoch it may be short, unless BatchNorm needs it filled up."""
    size = problem.setting.batch_size if problem.net.batch_statistics else work.schedule.sizes[step]
    positions = work.schedule.positions[step, :size]
    x = work.source.take(step, size)
    teacher = {
        name: Outputs(*(part.index_select(0, positions) for part in out))
        for name, out in work.tables.items()
    }
    with torch.no_grad():
        for name, params in work.teachers.items():
            if name not in teacher:
                teacher[name] = problem.net.eval(params, x)
    noise = to(problem.noise(work.noise), x.device)
    return Batch(
        x, work.source.labels(step, size), work.schedule.weight[step, :size], noise, teacher
    )


def dropout_keys(problem: Problem, work: ClientWork, round: int) -> Tensor:
    """Draw (steps, 2) keys of a client's dropout masks in a round, on the CPU."""
    return step_keys(stream(problem.seed, "dropout", round, work.client), work.steps)
