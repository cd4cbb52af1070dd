"""The reference backend, `Loop`, the fastest for convolutions on a CPU."""

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
    RoundWork,
    RunContext,
    finish,
    leaves_of,
    loss_gradients,
    state_before_step,
    step_means,
)
from bench.engine.dropout import step_keys
from bench.engine.pytree import apart_from, to, tree_map, without
from bench.engine.rng import stream
from bench.errors import of_hook, result_or_error


class Loop:
    """Backend that trains client after client, with padded batches only under BatchNorm."""

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
                own_draws = job.context.own_draws("client", job.round, work.client)
                with job.context.products(), own_draws:
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
        context = job.context
        message = job.message
        net = context.net
        algorithm = context.algorithm
        device = context.federation.device
        work = replace(
            work,
            schedule=work.schedule.on(device, net.dtype),
            inputs=work.inputs.on(device),
            noise=work.noise.clone_state(),
        )
        plan = job.plan(torch.tensor(float(work.steps), device=device, dtype=net.dtype))
        local: Local = {**work.local, "params": leaves_of(net, work.local["params"])}
        leaves = [local["params"][name] for name in net.trainable]
        state = context.optimizer.init(leaves)
        totals = {
            name: torch.zeros((), device=device, dtype=net.dtype)
            for name in (LOSS, *algorithm.terms)
        }
        keys = None
        if net.has_dropout:
            keys = dropout_keys(context, work, job.round).to(device)
        for step in range(work.steps):
            batch = _batch(context, work, step)
            if context.acts_before_steps:
                result = algorithm.before_step(net, local, batch, message, plan)
                changed = state_before_step(result, batch)
                extras = tree_map(Tensor.detach, without(changed, "params"))
                local = {**apart_from(leaves, extras), "params": local["params"]}
            with net.dropout(None if keys is None else keys[step]):
                losses = algorithm.local_loss(net, local, batch, message, work.memory, plan)
            means = step_means(algorithm, batch, losses)
            grads = loss_gradients(means[LOSS], leaves)
            context.optimizer.step(leaves, grads, state, job.lr, step + 1, stacked=False)
            for name, total in totals.items():
                total += means[name].detach()
        params = {name: value.detach() for name, value in local["params"].items()}
        local = {**local, "params": params}
        means = {name: total / work.steps for name, total in totals.items()}
        return finish(context, work, local, means, message, plan)


def _batch(context: RunContext, work: ClientWork, step: int) -> Batch:
    """Make the batch of one step.

    At the end of an epoch it may be short, unless BatchNorm needs it filled up.
    """
    size = work.schedule.sizes[step]
    if context.net.fills_batches:
        size = context.setting.batch_size
    positions = work.schedule.positions[step, :size]
    x = work.inputs.take(step, size)
    teacher = {}
    for name, (logits, features) in work.tables.items():
        of_batch = logits.index_select(0, positions)
        teacher[name] = Outputs(of_batch, features.index_select(0, positions))
    with torch.no_grad():
        for name, params in work.teachers.items():
            if name not in teacher:
                teacher[name] = context.net.eval(params, x)
    labels = work.inputs.labels(step, size)
    weight = work.schedule.weight[step, :size]
    noise = to(context.noise(work.noise), x.device)
    return Batch(x, labels, weight, noise, teacher)


def dropout_keys(context: RunContext, work: ClientWork, round: int) -> Tensor:
    """Draw (steps, 2) keys of a client's dropout masks in a round, on the CPU."""
    return step_keys(stream(context.seed, "dropout", round, work.client), work.steps)
