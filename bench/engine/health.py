"""What stopped being finite in a round: the client and the term, for the row's `error`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Params
from bench.engine.tasks import Problem, Task, Trained, outputs_on
from bench.engine.trees import spoilt, total


def complaint(
    problem: Problem, round: int, tasks: list[Task], trained: list[Trained], models: list[Params], message: Any
) -> str | None:
    """One sentence on the first thing that is not finite, or None.

    Losses and models have to be finite; what else clients train and the server sends may hold infinities on purpose (a
    mask of -inf), but no NaN.

    Args:
        problem: the run's.
        round: just finished.
        tasks: the round's clients.
        trained: what came of them, in the same order.
        models: the server's new model, and those that are evaluated.
        message: what it would send next: all that the next round builds on.
    """
    parts = [(result.client, name, value) for result in trained for name, value in result.health.items()]
    parts += [(result.client, "", result.loss) for result in trained]
    parts += [(-1, "model", total(model)) for model in models]
    parts += [(-1, name, spoilt(tree)) for name, tree in message.items() if name != "params"]
    values = torch.stack([value.to(problem.federation.device) for _, _, value in parts]).tolist()
    lost = [(client, name) for (client, name, _), value in zip(parts, values, strict=True) if not math.isfinite(value)]
    if not lost:
        return None
    client, name = lost[0]
    if client < 0:
        return f"round {round}: the server's {name} is not finite"
    task = next(task for task in tasks if task.client == client)
    return f"round {round}, client {client}: {_term(problem, task, name)} not finite"


def _term(problem: Problem, task: Task, name: str) -> str:
    """Which part of the client's objective it was: its own state, a teacher, or the loss with neither to blame."""
    for teacher, table in (task.tables or outputs_on(problem.net, task.teachers, task.source)).items():
        if not _finite(table.logits) or not _finite(table.features):
            return f"outputs of the teacher {teacher!r} are"
    return f"{name!r}, which it trains beside its model, is" if name else "the training loss is"


def _finite(value: Tensor) -> bool:
    return bool(value.isfinite().all())
