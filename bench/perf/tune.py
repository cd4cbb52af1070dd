"""Costs that Ray Tune adds to a sweep: of its start, of a trial, of a reported step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.errors import EXIT_OK, EnvironmentProblem
from bench.execution import Execution
from bench.executors.progress import Quiet, Watched
from bench.executors.trials import trials_of
from bench.perf.measure import Record, Say, figure
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.provenance import command_columns

# Targets.
SECONDS_A_TRIAL = 1.0
MILLISECONDS_A_STEP = 10.0
TRIAL_ROUNDS = "2"  # of a trial that is trivially small


class Clock(Quiet):
    """A display that shows nothing and records when trials report and end."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.updates: list[float] = []
        self.ends: list[float] = []

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Record the time of a report."""
        self.updates.append(time.perf_counter() - self.began)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Record the time of a trial's end."""
        self.ends.append(time.perf_counter() - self.began)


def measure_tune(record: Record, trials: int, steps: int, threads: int, say: Say) -> None:
    """Time the same small trials on the embedded digits under both executors, one at a time.

    The record gets `inline`, `ray` and `overhead`, Ray's cost beyond the inline one. At least two
    `trials` of one step are needed, because Tune's cost is measured after the first, and at least
    two `steps` (reports) of one long trial.

    Raises EnvironmentProblem if Ray cannot start, or a trial failed.
    """
    from bench.executors.runner import import_executor

    say("tune: importing Ray")
    import_executor("ray")
    clocks: dict[str, list[tuple[Clock, Clock]]] = {"inline": [], "ray": []}
    for executor in ("inline", "ray", "inline"):
        say(f"tune: {trials} small trials and one of {steps} reports, {executor}")
        execution = Execution(out="", threads=threads)
        small = _sweep(executor, {"rounds": (TRIAL_ROUNDS,)}, trials, execution)
        execution = replace(execution, rounds_per_report=1)
        long = _sweep(executor, {"rounds": (str(steps),)}, 1, execution)
        clocks[executor].append((small, long))
    record |= {executor: _times(runs) for executor, runs in clocks.items()}
    extra = {}
    for name in ("first_trial", "trial", "step"):
        extra[name] = record["ray"][name]["median"] - record["inline"][name]["median"]
    record["overhead"] = {
        "start": figure([extra["first_trial"]], "s"),  # of Ray and its first worker
        "trial": figure([extra["trial"]], "s", SECONDS_A_TRIAL),
        "step": figure([extra["step"]], "ms", MILLISECONDS_A_STEP),
    }


def _sweep(
    executor: str, values: Mapping[str, tuple[str, ...]], seeds: int, execution: Execution
) -> Clock:
    """Run FedAvg with each seed, with results in a temporary folder."""
    from bench.executors.runner import run_plan

    small = {"local_epochs": ("1",), "participation": ("0.2",)}
    plan = make_plan(SweepOptions(("fedavg",), values={**small, **values}, seeds=seeds))
    with tempfile.TemporaryDirectory() as out:
        folder = str(Path(out).resolve())
        placed = replace(
            execution,
            out=folder,
            executor=executor,
            concurrent=1,
            provenance=command_columns("bench.perf"),
        )
        clock = Clock()
        events = run_plan(plan, trials_of(plan, plan.run_specs, placed.pack), placed, clock)
    if events.interrupted:
        raise KeyboardInterrupt
    if events.exit_status != EXIT_OK:
        raise EnvironmentProblem(
            f"a trial failed under {executor}: {'; '.join(events.problems) or events.statuses}"
        )
    return clock


def _times(runs: Sequence[tuple[Clock, Clock]]) -> Record:
    """Summarise the seconds of first and later trials, and the milliseconds of later steps."""
    first = []
    trials: list[float] = []
    steps: list[float] = []
    for small, long in runs:
        first.append(small.ends[0])
        trials += [after - before for before, after in pairwise(small.ends)]
        steps += [1000 * (after - before) for before, after in pairwise(long.updates)]
    return {
        "first_trial": figure(first, "s"),
        "trial": figure(trials, "s"),
        "step": figure(steps, "ms"),
    }
