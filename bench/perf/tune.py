"""What Ray Tune adds to a sweep: seconds a trial, milliseconds a reported step, seconds to start."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import provenance
from bench.errors import EXIT_OK, EnvironmentProblem
from bench.execution import Execution
from bench.perf.measure import figure, timed
from bench.plan import Request, make_plan

SECONDS_A_TRIAL, MILLISECONDS_A_STEP = 1.0, 10.0  # targets
TRIAL_ROUNDS = "2"  # of a trial that is trivially small


@dataclass
class Clock:
    """A `bench.tuning.progress.Display` that shows nothing and notes when it was told something."""

    began: float = field(default_factory=time.perf_counter)
    updates: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def update(self, trial: str, report: Mapping[str, Any], share: float) -> None:
        """A trial reported."""
        self.updates.append(time.perf_counter() - self.began)

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """A trial ended."""
        self.ends.append(time.perf_counter() - self.began)

    def say(self, line: str) -> None:
        """Pass it on."""
        sys.stderr.write(line + "\n")

    def close(self) -> None:
        """Nothing to do."""


def measure_tune(trials: int, steps: int, threads: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The same small trials on the embedded digits under both executors, one at a time.

    Args:
        trials: of one step, at least 2; Tune's share is taken after the first.
        steps: reports of one long trial, at least 2.
        threads: of each trial.
        say: told what is being done.

    Raises:
        EnvironmentProblem: Ray cannot start, or a trial failed.
    """
    say("tune: importing Ray")
    imported = timed(_import_ray).seconds
    clocks = {}
    for executor in ("inline", "ray"):
        say(f"tune: {trials} small trials, {executor}")
        many = _sweep(executor, {"rounds": (TRIAL_ROUNDS,)}, trials, Execution(out="", threads=threads))
        say(f"tune: a trial of {steps} reports, {executor}")
        long = _sweep(executor, {"rounds": (str(steps),)}, 1, Execution(out="", threads=threads, rounds_per_report=1))
        clocks[executor] = many, long
    found: dict[str, Any] = {name: _times(*pair) for name, pair in clocks.items()}
    found["overhead"] = _overhead(found["inline"], found["ray"])
    found["ray"]["import_seconds"] = imported
    return found


def _import_ray() -> None:
    import bench.tuning.cluster  # noqa: F401 (with the settings that Ray reads when it is imported)


def _sweep(executor: str, values: Mapping[str, tuple[str, ...]], seeds: int, execution: Execution) -> Clock:
    """Run FedAvg's seeds into a folder that is thrown away."""
    from dataclasses import replace

    from bench.tuning.runner import Resources, run_plan

    small = {"local_epochs": ("1",), "participation": ("0.2",)}
    plan = make_plan(Request(("fedavg",), "digits", values={**small, **values}, seeds=seeds))
    with tempfile.TemporaryDirectory() as out:
        placed = replace(execution, out=str(Path(out).resolve()), provenance=provenance.of_command([]))
        clock = Clock()
        outcome = run_plan(plan, plan.units, placed, Resources(executor, concurrent=1, cpus=execution.threads), clock)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.exit_status != EXIT_OK:
        raise EnvironmentProblem(f"a trial failed under {executor}: {'; '.join(outcome.problems) or outcome.statuses}")
    return clock


def _times(many: Clock, long: Clock) -> dict[str, Any]:
    """Seconds to the first trial's end, of each later trial, and milliseconds of each later step."""
    return {
        "first_trial_seconds": many.ends[0],
        "trial": figure([after - before for before, after in pairwise(many.ends)], "s"),
        "step": figure([1000 * (after - before) for before, after in pairwise(long.updates)], "ms"),
        # A mean beside the medians: an occasional slow step (a saved state) counts by its whole length.
        "mean_trial_seconds": (many.ends[-1] - many.ends[0]) / (len(many.ends) - 1),
        "mean_step_milliseconds": 1000 * (long.updates[-1] - long.updates[0]) / (len(long.updates) - 1),
    }


def _overhead(inline: Mapping[str, Any], ray: Mapping[str, Any]) -> dict[str, Any]:
    """What Ray takes beyond the same work done inline."""
    trial = ray["mean_trial_seconds"] - inline["mean_trial_seconds"]
    step = ray["mean_step_milliseconds"] - inline["mean_step_milliseconds"]
    return {
        "start": figure([ray["first_trial_seconds"] - ray["mean_trial_seconds"]], "s"),
        "trial": figure([trial], "s", SECONDS_A_TRIAL),
        "step": figure([step], "ms", MILLISECONDS_A_STEP),
    }
