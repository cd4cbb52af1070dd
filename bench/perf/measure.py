"""Timing two things side by side, whole processes, and figures with their spread. Imports neither torch nor ray."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import bench
from bench.errors import EnvironmentProblem, UsageError, with_its_kind
from bench.execution import largest_resident

Figure = dict[str, Any]
Record = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Spent:
    """Costs of a call or a process: wall-clock and processor time; of a process also memory and stderr."""

    seconds: float
    cpu_seconds: float
    memory: int = 0  # bytes, the largest resident size
    errors: str = ""


def message_of(error: Exception) -> str:
    """Word an error for a record; an unexpected one begins with its kind."""
    return str(error) if isinstance(error, UsageError | EnvironmentProblem) else with_its_kind(error)


def guarded(action: Callable[[], Record]) -> Record:
    """Return an entry of a record; if the action fails, the reason as `left_out` (a usage error) or `error`."""
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
    """Call an action once and time it; `synchronise` is called before both readings of the clocks."""
    synchronise()
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    synchronise()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def alternate(
    first: Callable[[], object],
    second: Callable[[], object],
    pairs: int,
    synchronise: Callable[[], object] = lambda: None,
) -> list[tuple[Spent, Spent]]:
    """Time both in turn, `pairs` times: first, second, second, first, ..., so that a steady drift cancels."""
    times = []
    for pair in range(pairs):
        if pair % 2:
            after = timed(second, synchronise)
            times.append((timed(first, synchronise), after))
        else:
            before = timed(first, synchronise)
            times.append((before, timed(second, synchronise)))
    return times


def run_python(arguments: Sequence[str], **environment: str) -> Spent:
    """Run the interpreter to its end, this source tree importable; its standard output is thrown away.

    `environment` replaces variables of the user's. Raises EnvironmentProblem if it failed.
    """
    path = os.pathsep.join(part for part in (str(bench.ROOT), os.environ.get("PYTHONPATH")) if part)
    names = {**os.environ, "PYTHONPATH": path, **environment}
    with tempfile.TemporaryFile("w+") as errors:
        before = time.perf_counter()
        process = subprocess.Popen([sys.executable, *arguments], env=names, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        written = errors.read()
    if process.returncode:
        last = written.strip().splitlines()[-1:] or ["no message"]
        raise EnvironmentProblem(f"`python {' '.join(arguments)}` ended with status {process.returncode}: {last[0]}")
    return Spent(seconds, used.ru_utime + used.ru_stime, largest_resident(used), written)


def figure(values: Sequence[float], unit: str, limit: float | None = None, at_least: bool = False) -> Figure:
    """Summarise single measurements, at least one: median, quartiles, and a target `limit` if there is one.

    Returns `median`, `low` and `high` (quartiles), `n`, `unit` (`x` for a ratio); with a target also `limit`, `bound`
    and `met`.
    """
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
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
