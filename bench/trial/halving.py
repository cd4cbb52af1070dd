"""Successive halving among the configurations of a trial, by ASHA's rule.

Configurations are compared at the same round. Nothing is remembered between rungs: the curves
alone, also of stored runs, decide which configurations go on. So a trial that is interrupted at any
moment goes on as if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leaderboards.selection import selection_value

if TYPE_CHECKING:
    from bench.trial.run import Run

FACTOR = 4  # one configuration in so many goes on, as in Tune's ASHA


def rungs_of(rounds: int, every: int = 1) -> tuple[int, ...]:
    """Return the rounds after which configurations are compared.

    They are a tenth of all, then `FACTOR` times the previous one. Every rung is an evaluated round,
    that is, a multiple of `every`.
    """
    rungs = [max(1, rounds // 10)]
    while rungs[-1] * FACTOR < rounds:
        rungs.append(rungs[-1] * FACTOR)
    evaluated = [-(-rung // every) * every for rung in rungs]
    return tuple(dict.fromkeys(rung for rung in evaluated if rung < rounds))


def next_rung(rungs: Iterable[int], round: int) -> float:
    """Return the first rung after a round; infinity if there is none."""
    return min((rung for rung in rungs if rung > round), default=math.inf)


def losers(runs: Sequence[Run], rungs: Iterable[int]) -> list[Run]:
    """Select the running runs that do not go on after these rungs.

    A rung compares the configurations that have a run with as many rounds, by `objective` over all
    of their seeds; seeds that failed or diverged before count against them. The best 1 / `FACTOR`,
    rounded up, go on; of equal ones the first.
    """
    stopped: list[Run] = []
    configurations = by_configuration(runs)
    for rung in rungs:
        values = {}
        for key, seeds in configurations.items():
            if any(run.round >= rung for run in seeds):
                values[key] = objective(seeds, rung)
        best_first = sorted(values, key=lambda key: values[key], reverse=True)
        going_on = math.ceil(len(best_first) / FACTOR)
        for key in best_first[going_on:]:
            running = [run for run in configurations[key] if run.status == "running"]
            stopped += [run for run in running if run not in stopped]
    return stopped


def by_configuration(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs by configuration; those of a configuration are its seeds."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(replace(run.run_spec, seed=0).key, []).append(run)
    return groups


def lost(run: Run) -> bool:
    """Return whether a run failed or has an unusable state."""
    return run.status in ("failed", "environment")


def objective(seeds: Sequence[Run], until: float = math.inf) -> float:
    """Compute a configuration's value: the mean over its seeds of the validation accuracy.

    It is read up to a round. `Run.selecting_number` says which number it is.

    Returns:
        The value by `selection_value`, for which a seed counts as diverged if it was by that round;
        -inf if there is no value, or if a seed is lost, because a mean over the others would not be
        comparable.
    """
    accuracies = [run.number(run.selecting_number, until) for run in seeds]
    values = [accuracy for accuracy in accuracies if not math.isnan(accuracy)]
    if not values or any(map(lost, seeds)):
        return -math.inf
    diverged = any(run.diverged and run.round <= until for run in seeds)
    return selection_value(values, diverged)
