"""The inputs of each step of a stack, for all its clients: a step's batches are one gather."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain, zip_longest
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from algorithms.base import Outputs
from algorithms.forward import joined
from bench.engine.client_round import ClientWork, RoundWork, RunContext, steps_of
from bench.engine.loop import dropout_keys
from bench.engine.pytree import leaves, stack, to, tree_map
from bench.engine.stacked.step_executors import StepExecutor


@dataclass(frozen=True)
class Steps:
    """The schedules of a stack of n clients, in its order.

    Entries after a client's last step are never read by a step of that client.

    Attributes:
        index: (steps, n, B) int32, training samples.
        weight: (steps, n, B), 0 for padding.
        draws: (steps, n, B, 3 or 4) of `draw_crops`, or None.
        noise: (steps, n, ...) draws of the algorithms' `noise` hooks; None if they draw nothing.
        keys: (steps, n, 2) of dropout masks, or None.
        rows: (steps, n, B) int32, positions in `tables`; None without tables.
        tables: by name, the teachers' stored outputs on the samples of all clients, one client
            after another.
        widths: for each step the largest of the clients' `Samples.widths`, or None.
    """

    index: Tensor
    weight: Tensor
    draws: Tensor | None
    noise: Any
    keys: Tensor | None
    rows: Tensor | None
    tables: dict[str, Outputs]
    widths: list[int] | None

    @staticmethod
    def of(entries: Sequence[tuple[RoundWork, ClientWork]], executor: StepExecutor) -> Steps:
        """Make the steps of the clients of one or several runs, in the order of the stack."""
        context = entries[0][0].context
        works = [work for _, work in entries]
        device = context.federation.device
        room = (_most_steps(entries),)

        def placed(name: str, tree: Any) -> Any:
            return None if tree is None else executor.place(name, to(tree, device), 2, room)

        draws = [work.inputs.draws for work in works if work.inputs.draws is not None]
        widths = [work.inputs.widths for work in works if work.inputs.widths is not None]
        keys = [
            dropout_keys(job.context, work, job.round)
            for job, work in entries
            if context.net.has_dropout
        ]
        weight = pad_sequence([work.schedule.weight for work in works])
        rows, tables = _tables(works)
        return Steps(
            index=placed("index", pad_sequence([work.inputs.rows for work in works])),
            weight=placed("weight", weight.to(device).to(context.net.dtype)),
            draws=placed("draws", pad_sequence(draws) if draws else None),
            noise=placed("noise", _noise(entries)),
            keys=placed("keys", pad_sequence(keys) if keys else None),
            rows=placed("rows", rows),
            tables=executor.place("tables", tables, room=(_most_samples(entries),)),
            widths=[max(step) for step in zip_longest(*widths, fillvalue=0)] if widths else None,
        )

    def at(self, step: Tensor, clients: int) -> Steps:
        """Return one step of the first clients: tensors without their first axis.

        `step`: (1,) int64, on the device.
        """

        def cut(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, step)[0, :clients]

        return Steps(
            index=cut(self.index),
            weight=cut(self.weight),
            draws=tree_map(cut, self.draws),
            noise=tree_map(cut, self.noise),
            keys=tree_map(cut, self.keys),
            rows=tree_map(cut, self.rows),
            tables=self.tables,
            widths=self.widths,
        )

    @property
    def stored(self) -> dict[str, Outputs]:
        """The teachers' stored outputs on the samples of one step, for a result of `at`."""
        rows = self.rows
        if rows is None:
            return {}
        places = rows.flatten()

        def at(table: Tensor) -> Tensor:
            return table.index_select(0, places).view(*rows.shape, -1)

        return {name: Outputs(*map(at, out)) for name, out in self.tables.items()}


def _most_steps(entries: Sequence[tuple[RoundWork, ClientWork]]) -> int:
    """Return the most steps that a client of these runs may take in any round."""
    counts = []
    for context, _ in _contexts(entries):
        sizes = context.federation.sizes
        counts.append(steps_of(context.setting, max(sizes), sizes))
    return max(counts)


def _most_samples(entries: Sequence[tuple[RoundWork, ClientWork]]) -> int:
    """Return the most samples that as many clients of these runs may have together in any round."""
    largest = [
        nlargest(clients, context.federation.sizes) for context, clients in _contexts(entries)
    ]
    return sum(map(sum, largest))


def _contexts(entries: Sequence[tuple[RoundWork, ClientWork]]) -> list[tuple[RunContext, int]]:
    """List each run's context once, with the number of its clients."""
    contexts = {id(job.context): job.context for job, _ in entries}
    clients = Counter(id(job.context) for job, _ in entries)
    return [(context, clients[key]) for key, context in contexts.items()]


def _tables(works: Sequence[ClientWork]) -> tuple[Tensor | None, dict[str, Outputs]]:
    """Concatenate the clients' tables; returns each step's rows in the tables, and the tables."""
    if not works[0].tables:
        return None, {}
    positions = []
    first = 0  # of a client's samples
    for work in works:
        positions.append(work.schedule.positions + first)
        first += len(work.inputs.index)
    rows = pad_sequence(positions)
    tables = {}
    for name in works[0].tables:
        tables[name] = joined([work.tables[name] for work in works])
    return rows, tables


def _noise(entries: Sequence[tuple[RoundWork, ClientWork]]) -> Any:
    """Draw the clients' noise, and stack it."""
    drawn = []
    for job, work in entries:
        generator = work.noise.clone_state()
        drawn.append([job.context.noise(generator) for _ in range(work.steps)])
    first = drawn[0][0]
    if next(leaves(first), None) is None:  # no draws, or one number for all, which `stack` checks
        return first and stack([*chain.from_iterable(drawn)])
    stacked = []
    for step in range(max(map(len, drawn))):
        # A finished client repeats its last draw, which no step of its own reads.
        stacked.append(stack([draws[min(step, len(draws) - 1)] for draws in drawn]))
    return stack(stacked)
