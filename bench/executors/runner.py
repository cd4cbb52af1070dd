"""Execution of a plan's trials by Ray Tune, or one after another in this process, without Ray."""

from __future__ import annotations

import math
import os
import re
import shutil
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import state_files
from bench.errors import EnvironmentProblem
from bench.execution import Execution
from bench.executors.progress import Events, Observer, Quiet, Watched, watched
from bench.executors.trials import Interruption, Trials, divert_warnings
from bench.planning.plan import Plan
from bench.planning.trial_names import varied_names
from leaderboards.rows.files import part_of

if TYPE_CHECKING:
    from bench.trial.run import Run

LEFTOVER = re.compile(r"\.(said|stop|tune)-\w+")  # names of a sweep's files, unless it is killed
# Variables that quiet Ray, which reads them when it is imported.
RAY_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_DEDUP_LOGS": "0",
    # Else Tune, which goes on for a while without its cluster, would start another.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}

Executor = Callable[[Plan, Trials, Execution, Events], None]


def run_plan(
    plan: Plan,
    trials: Trials,
    execution: Execution,
    display: Quiet,
    observers: Sequence[Observer] = (),
) -> Events:
    """Run the trials of a plan's missing runs, and its searches; return how they ended.

    `observers` watch the trials beside the display.

    Raises:
        EnvironmentProblem: there is no cluster, or it cannot place a trial.
    """
    out = Path(execution.out)
    remove_leftovers(out)
    interruption = Interruption(out, display.say)
    notice_file = out / state_files.FOLDER / f".said-{uuid.uuid4().hex[:8]}"
    events = Events([*observers, display])
    execution = replace(
        execution,
        stop_file=str(interruption.path),
        notice_file=str(notice_file),
        report_curves=bool(observers),
    )
    execute = import_executor(execution.executor)
    try:
        with (
            interruption,
            warnings_said(display.say),
            _stopped_after(execution.time_budget, interruption),
        ):
            execute(plan, trials, execution, events)
    finally:
        notice_file.unlink(missing_ok=True)
        events.interrupted = interruption.raised
    return events


@contextmanager
def _stopped_after(seconds: float | None, interruption: Interruption) -> Iterator[None]:
    """Stop the sweep once its time budget is spent, if it has one."""
    if seconds is None:
        yield
        return
    reason = f"time budget of {seconds:g} s spent"
    timer = threading.Timer(seconds, interruption.stop, [reason])
    timer.start()
    if seconds == 0:
        timer.join()  # nothing may begin before it is spent
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def warnings_said(say: Callable[[str], None]) -> Iterator[None]:
    """Pass the suite's own warnings to `say`, each text once.

    Other warnings are shown as before.
    """
    before = warnings.showwarning
    seen = set[str]()

    def say_once(line: str) -> None:
        if line not in seen:
            seen.add(line)
            say(f"warning: {line}")

    divert_warnings(say_once)
    try:
        yield
    finally:
        warnings.showwarning = before


def remove_leftovers(out: Path) -> None:
    """Remove files of killed sweeps below `out`/state, if they are a day old.

    Another sweep may use newer ones.
    """
    for path in part_of(out, state_files.FOLDER).glob(".*"):
        if path.is_symlink() or not LEFTOVER.fullmatch(path.name):
            continue
        with suppress(OSError):  # gone meanwhile, or another user's
            # Of all files below, because Tune rewrites files in place.
            newest = max(file.lstat().st_mtime for file in (path, *path.rglob("*")))
            if time.time() - newest <= 86400:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def import_executor(name: str) -> Executor:
    """Import the executor `inline` or `ray`.

    Raises EnvironmentProblem if Ray cannot be imported.
    """
    if name == "inline":
        return run_inline
    try:
        with ray_environment():
            from bench.executors.ray_executor import run_ray
    except ImportError as error:
        advice = "pip install 'ray[tune]'; a sweep works without it with --executor inline"
        raise EnvironmentProblem(f"Ray cannot be imported: {error}; {advice}") from error

    def run(*arguments: Any) -> None:
        with ray_environment():
            run_ray(*arguments)

    return run


@contextmanager
def ray_environment() -> Iterator[None]:
    """Set those of `RAY_ENVIRONMENT` that the user has not set, and take them back at the end.

    A `Tuner` of the user's in the same process would otherwise write no results. What Ray reads
    when it is imported stays: it does not start by itself in this process.
    """
    added = RAY_ENVIRONMENT.keys() - os.environ.keys()
    for variable in added:
        os.environ[variable] = RAY_ENVIRONMENT[variable]
    try:
        yield
    finally:
        for variable in added:
            os.environ.pop(variable, None)


def run_inline(plan: Plan, trials: Trials, execution: Execution, events: Events) -> None:
    """Run every trial in order, until one finds that the machine is not ready.

    Trials that another sweep on the folder has begun come last, so that sweeps share the work.
    """
    from bench.trial.trial import claim

    differing = varied_names([*chain.from_iterable(trials)])
    waiting = deque(trials)
    passed_over = 0  # trials in a row
    while waiting:
        run_specs = waiting.popleft()
        claimed = claim(run_specs, execution)
        if not claimed and passed_over <= len(waiting):
            waiting.append(run_specs)
            passed_over += 1
            continue
        passed_over = 0
        report = _run_trial(watched(run_specs, differing), execution, events, claimed)
        if report["ends_sweep"]:
            return
    if plan.searches:
        _run_searches(plan, execution, events)


def _run_searches(plan: Plan, execution: Execution, events: Events) -> None:
    """Try the configurations of one search after another."""
    from bench.executors.optuna_search import Proposer, chosen_run_specs, past_tries, varied

    names = varied(plan.searches)
    for past in past_tries(plan, execution.out, execution.data_hashes):
        proposer = Proposer(plan, past)
        while not execution.stopping and (proposal := proposer.propose()):
            run_specs = chosen_run_specs(past.search, proposal.params, plan.options.seeds)
            report = _run_trial(watched(run_specs, names), execution, events)
            if report["ends_sweep"]:
                return
            finished = report["status"] == "finished"
            proposer.tell(proposal, report["objective"] if finished else math.nan)


def _run_trial(
    named: Watched, execution: Execution, events: Events, claimed: Sequence[Run] = ()
) -> dict[str, Any]:
    # Imports torch, which the driver of a sweep under Ray does without.
    from bench.trial.trial import Trial

    events.started(named)
    trial = Trial(named.run_specs, execution, claimed)
    report = trial.report()
    while not report["done"]:
        report = trial.step()
        events.reported(named, report)
    trial.end()
    report = trial.report()  # with errors from the end
    trial.close()
    events.ended(named, report)
    return report
