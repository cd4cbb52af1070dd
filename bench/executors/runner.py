"""Executes a plan's trials by Ray Tune or in this process."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.errors import EnvironmentProblem, Slower, Waiting
from bench.execution import Execution
from bench.executors.events import Display, Events, Observer
from bench.executors.interruption import Interruption
from bench.executors.trials import Outcome, Resources, Sweep, trials_of
from bench.planning.model import Plan
from bench.planning.run_spec import RunSpec

# Variables that quiet Ray, which reads them when it is imported.
RAY_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # what Tune still does when its cluster is given up would start another one
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def run_plan(
    plan: Plan,
    units: Sequence[RunSpec],
    execution: Execution,
    resources: Resources,
    display: Display,
    observers: Sequence[Observer] = (),
) -> Outcome:
    """Run the missing `units` of a plan, and its searches; `observers` watch the trials beside the display.

    Raises:
        EnvironmentProblem: no cluster, or no trial could be placed.
    """
    out = Path(execution.out)
    remove_leftovers(out)
    interruption = Interruption(out, display)
    events, outcome = Events(*observers, display), Outcome()
    execution = replace(
        execution,
        stop_file=str(interruption.path),
        notice_file=str(out / "state" / f".said-{uuid.uuid4().hex[:8]}"),
        report_curves=events.needs_curves,
    )
    execute = import_executor(resources.executor)
    budget = resources.time_budget
    timer = threading.Timer(budget or 0.0, interruption.stop, [f"time budget of {budget or 0:g} s spent"])
    timer.daemon = True
    if budget is not None:
        timer.start()
    try:
        with interruption, warnings_said(display.say):
            trials = trials_of(plan, units, resources.pack)
            execute(Sweep(plan, trials, execution, resources, events, outcome, interruption))
    finally:
        timer.cancel()
        Path(str(execution.notice_file)).unlink(missing_ok=True)
        outcome.interrupted = interruption.raised
    return outcome


@contextmanager
def warnings_said(say: Callable[[str], None]) -> Iterator[None]:
    """Give the suite's own warnings to `say`, each text once; others are shown as before."""
    before, told = warnings.showwarning, set[str]()

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, Slower | Waiting):
            before(message, category, *place, **more)
        elif str(message) not in told:
            told.add(str(message))
            say(f"warning: {message}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def remove_leftovers(out: Path) -> None:
    """Remove what killed sweeps left below `out`/state; a day old, because another sweep may be using its own."""
    for path in (out / "state").glob(".*-*"):
        with suppress(OSError):  # gone meanwhile, or another user's
            if path.name.startswith((".said-", ".stop-", ".tune-")) and time.time() - path.stat().st_mtime > 86400:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def import_executor(name: str) -> Callable[[Sweep], None]:
    """Import the executor of a name, `inline` or `ray`; raises EnvironmentProblem if Ray cannot be imported."""
    if name == "inline":
        from bench.executors.inline import run_inline

        return run_inline
    for variable, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        from bench.executors.ray_executor import run_ray
    except ImportError as error:
        advice = "pip install 'ray[tune]'; a sweep works without it with --executor inline"
        raise EnvironmentProblem(f"Ray cannot be imported: {error}; {advice}") from error
    return run_ray
