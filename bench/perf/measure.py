"""Timing two things side by side, and figures with their spread. Imports neither torch nor ray."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.errors import EnvironmentProblem, UsageError, with_its_kind

Figure = dict[str, Any]
Keep = Callable[[dict[str, Any]], None]  # given a part's result so far, which goes on growing


@dataclass(frozen=True)
class Spent:
    """What one call took.

    Args:
        seconds: on the clock on the wall.
        cpu_seconds: of the process that works; what others on the machine do adds little to it.
    """

    seconds: float
    cpu_seconds: float


def failure(error: Exception) -> str:
    """What a record says of it; only what is not said in words already has the kind of error before it."""
    said = isinstance(error, UsageError | EnvironmentProblem)
    return str(error) if said else with_its_kind(error)


def guarded(action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An entry of a record; where it fails, why it is `left_out`, or the `error`: the others' are not lost with it."""
    try:
        return action()
    except UsageError as reason:
        return {"left_out": str(reason)}
    except Exception as error:
        return {"error": failure(error)}


def nothing(*_: object) -> None:
    """Does nothing: the `synchronise` of a device that works while it is called, the `keep` of a part in one piece."""


def timed(action: Callable[[], object], synchronise: Callable[[], object] = nothing) -> Spent:
    """Call once and time it.

    Args:
        action: what is timed.
        synchronise: waits until a device has done what it was given; called before both readings of the clocks.
    """
    synchronise()
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    synchronise()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def alternate(
    first: Callable[[], object],
    second: Callable[[], object],
    pairs: int,
    synchronise: Callable[[], object] = nothing,
) -> list[tuple[Spent, Spent]]:
    """Time both in turn, `pairs` times, so that what else the machine does falls on both.

    The order is first, second, second, first, first, ...: a steady drift then cancels as well.
    """
    found = []
    for pair in range(pairs):
        if pair % 2:
            after = timed(second, synchronise)
            found.append((timed(first, synchronise), after))
        else:
            before = timed(first, synchronise)
            found.append((before, timed(second, synchronise)))
    return found


def figure(values: Sequence[float], unit: str, limit: float | None = None, at_least: bool = False) -> Figure:
    """A measured quantity: the median, the quartiles as its spread, and a target where there is one.

    Args:
        values: single measurements, at least one.
        unit: of all of them; `x` for a ratio.
        limit: the target, or None.
        at_least: whether the target is a lower limit.

    Returns:
        `median`, `low` and `high` (quartiles), `least`, `n`, `unit`; with a target also `limit`, `bound` and `met`.
    """
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    spread = {"median": quartiles[1], "low": quartiles[0], "high": quartiles[2], "least": min(values)}
    made: Figure = {**spread, "n": len(values), "unit": unit}
    if limit is not None:
        met = quartiles[1] >= limit if at_least else quartiles[1] <= limit
        made |= {"limit": limit, "bound": ">=" if at_least else "<=", "met": met}
    return made
