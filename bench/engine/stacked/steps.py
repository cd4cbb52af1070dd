"""What each step of a stack takes, for all its clients side by side, so that a step's batches are one gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from algorithms.base import Outputs
from bench.engine.loop import dropout_keys
from bench.engine.stacked.static_buffers import NoBuffers, StaticBuffers
from bench.engine.tasks import Job, Task
from bench.engine.trees import leaves, stack, to, tree_map


@dataclass(frozen=True)
class Steps:
    """The schedules of a stack of n clients, in its order.

    What stands behind a client's last step is never read by a step of its own.

    Attributes:
        index: (steps, n, B) training samples.
        weight: (steps, n, B), 0 is padding.
        draws: (steps, n, B, 4) of `draw_crops`, or None.
        noise: (steps, n, ...) what the algorithms' `noise` hooks drew; None where they draw nothing.
        keys: (steps, n, axes=2) of dropout masks, or None.
        rows: (steps, n, B) into `tables`; None without them.
        tables: the teachers' stored outputs on the clients' samples, one client's under another's, by name.
        widths: of `Samples.widths` for each step, the largest of the clients'; or None.
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
    def of(entries: Sequence[tuple[Job, Task]], buffers: NoBuffers | StaticBuffers) -> Steps:
        """Those of the clients of one or several runs, in the order of the stack."""
        problem, tasks = entries[0][0].problem, [task for _, task in entries]
        device = problem.federation.device

        def placed(name: str, tree: Any) -> Any:
            return None if tree is None else buffers.place(name, to(tree, device), axes=2)

        draws = [task.source.draws for task in tasks if task.source.draws is not None]
        widths = [task.source.widths for task in tasks if task.source.widths is not None]
        rows, tables = _tables(tasks)
        return Steps(
            index=placed("index", pad_sequence([task.source.rows for task in tasks])),
            weight=placed("weight", pad_sequence([task.schedule.weight for task in tasks]).to(problem.net.dtype)),
            draws=placed("draws", pad_sequence(draws) if draws else None),
            noise=placed("noise", _noise(entries)),
            keys=placed("keys", _keys(entries) if problem.net.has_dropout else None),
            rows=placed("rows", rows),
            tables=buffers.place("tables", tables),
            widths=[max(step) for step in zip_longest(*widths, fillvalue=0)] if widths else None,
        )

    def at(self, step: Tensor, clients: int) -> Steps:
        """One step of the first clients: every tensor without its leading axis. `step`: (1,) int64, on the device."""

        def cut(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, step)[0, :clients]

        steps = [self.index, self.weight, self.draws, self.noise, self.keys, self.rows]
        index, weight, draws, noise, keys, rows = (tree_map(cut, value) for value in steps)
        return Steps(index, weight, draws, noise, keys, rows, self.tables, self.widths)

    @property
    def stored(self) -> dict[str, Outputs]:
        """The teachers' stored outputs on a step's samples, of what `at` gave."""
        rows = self.rows
        return {name: Outputs(out.logits[rows], out.features[rows]) for name, out in self.tables.items()}


def _tables(tasks: Sequence[Task]) -> tuple[Tensor | None, dict[str, Outputs]]:
    """The clients' tables one under another, and for each step the rows there."""
    if not tasks[0].tables:
        return None, {}
    begins = torch.tensor([0, *(len(task.source.index) for task in tasks[:-1])]).cumsum(0).tolist()
    rows = pad_sequence([task.schedule.positions + first for task, first in zip(tasks, begins, strict=True)])
    joined = {name: _joined([task.tables[name] for task in tasks]) for name in tasks[0].tables}
    return rows, joined


def _joined(tables: list[Outputs]) -> Outputs:
    return Outputs(torch.cat([out.logits for out in tables]), torch.cat([out.features for out in tables]))


def _noise(entries: Sequence[tuple[Job, Task]]) -> Any:
    """Drawn once for a round, whatever becomes of the program: a second attempt must see the same numbers."""
    drawn = [task.drawn_noise(job.problem) for job, task in entries]
    first = drawn[0][0]
    if next(leaves(first), None) is None:  # nothing is drawn, or numbers: one for all, which `stack` sees to
        return first and stack([step for steps in drawn for step in steps])
    longest = max(len(steps) for steps in drawn)
    # A client that is done repeats its last draw, which no step of its own reads.
    by_step = [stack([steps[min(step, len(steps) - 1)] for steps in drawn]) for step in range(longest)]
    return stack(by_step)


def _keys(entries: Sequence[tuple[Job, Task]]) -> Tensor:
    return pad_sequence([dropout_keys(job.problem, task, job.round) for job, task in entries])
