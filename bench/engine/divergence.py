"""The client and term that stopped being finite in a round, for the row's `error`."""

from __future__ import annotations

import math
from typing import Any

import torch

from algorithms.base import Params
from bench.engine.client_round import ClientResult, ClientWork, Problem, outputs_on
from bench.engine.pytree import has_nan, total


def nonfinite_reason(
    problem: Problem,
    round: int,
    works: list[ClientWork],
    results: list[ClientResult],
    models: list[Params],
    message: Any,
) -> str | None:
    """Say what is not finite first, or give None.

    Losses and models have to be finite; other things that clients train and the server sends may hold infinities on
    purpose (a mask of -inf), but no NaN. `models` are the server's new model and those that are evaluated, `message` is
    the next round's.
    """
    parts = [(result.client, name, value) for result in results for name, value in result.nan_in.items()]
    parts += [(result.client, "", result.loss) for result in results]
    parts += [(-1, "model", total(model)) for model in models]
    parts += [(-1, name, has_nan(tree)) for name, tree in message.items() if name != "params"]
    values = torch.stack([value.to(problem.federation.device) for _, _, value in parts]).tolist()
    lost = [(client, name) for (client, name, _), value in zip(parts, values, strict=True) if not math.isfinite(value)]
    if not lost:
        return None
    client, name = lost[0]
    if client < 0:
        return f"round {round}: the server's {name} is not finite"
    work = next(work for work in works if work.client == client)
    term = f"{name!r}, which it trains beside its model, is" if name else "the training loss is"
    for teacher, table in (work.tables or outputs_on(problem.net, work.teachers, work.source)).items():
        if not (table.logits.isfinite().all() and table.features.isfinite().all()):
            term = f"outputs of the teacher {teacher!r} are"
            break
    return f"round {round}, client {client}: {term} not finite"
