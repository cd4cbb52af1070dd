"""Timing of two actions side by side, and figures with their spread.

Imports neither torch nor ray.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.errors import EnvironmentProblem, UsageError, with_its_kind

Figure = dict[str, Any]
Record = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Spent:
    """Costs of a call or a process: wall-clock and processor time; of a process also memory."""

    seconds: float
    cpu_seconds: float
    memory: int = 0  # bytes, the largest resident size


def message_of(error: Exception) -> str:
    """Return the message of an error for a record; an unexpected one begins with its kind."""
    expected = isinstance(error, UsageError | EnvironmentProblem)
    return str(error) if expected else with_its_kind(error)


def guarded(action: Callable[[], Record]) -> Record:
    """Return an entry of a record.

    If the action fails, it has the reason as `left_out` (a usage error) or `error`.
    """
    try:
        return action()
    except UsageError as reason:
        return {"left_out": str(reason)}
    except Exception as error:
        return {"error": message_of(error)}


def synchroniser(device: str) -> Callable[[], object]:
    """Return a function that waits until the device is idle."""
    if device != "cuda":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def timed(action: Callable[[], object], synchronise: Callable[[], object] = lambda: None) -> Spent:
    """Call an action once and time it.

    `synchronise` is called before both readings of the clocks.
    """
    synchronise()
    wall = time.perf_counter()
    cpu = time.process_time()
    action()
    synchronise()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def alternate(
    first: Callable[[], object],
    second: Callable[[], object],
    pairs: int,
    synchronise: Callable[[], object] = lambda: None,
) -> list[tuple[Spent, Spent]]:
    """Time two actions in turn, `pairs` times: first, second, second, first, ...

    A steady drift cancels in this order.
    """
    times = []
    for pair in range(pairs):
        order = (second, first) if pair % 2 else (first, second)
        spent = {action: timed(action, synchronise) for action in order}
        times.append((spent[first], spent[second]))
    return times


def figure(
    values: Sequence[float], unit: str, limit: float | None = None, at_least: bool = False
) -> Figure:
    """Summarise single measurements, at least one.

    Returns `median`, `low` and `high` (quartiles), `n`, `unit` (`x` for a ratio); with a target
    `limit` also `limit`, `bound` and `met`.
    """
    quartiles = [values[0]] * 3
    if len(values) > 1:
        quartiles = statistics.quantiles(values, n=4, method="inclusive")
    low, median, high = quartiles
    summary: Figure = {"median": median, "low": low, "high": high, "n": len(values), "unit": unit}
    if limit is not None:
        met = median >= limit if at_least else median <= limit
        summary |= {"limit": limit, "bound": ">=" if at_least else "<=", "met": met}
    return summary


def seconds_of(times: Sequence[Spent], limit: float | None = None) -> Record:
    """Summarise times: `seconds` with the target, and `cpu_seconds`."""
    return {
        "seconds": figure([spent.seconds for spent in times], "s", limit),
        "cpu_seconds": figure([spent.cpu_seconds for spent in times], "s"),
    }
