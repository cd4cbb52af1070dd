"""Running a planned sweep: what is missing of it, then its leaderboard."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from algorithms import entry
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EnvironmentProblem, UsageError
from bench.execution import Execution, default_out
from bench.identity import identity_json
from bench.planning.confirm import confirmation, stand_ins, tuned_at
from bench.planning.plan import Plan
from bench.planning.unit import Unit
from bench.planning.work import RecordedRates
from bench.stored.under_way import count_saved
from bench.sweep.ready import check_out, prepare_data
from bench.sweep.resolve import Resolved, pack_notes, trial_share
from bench.terminal.console import report_problem, say
from bench.terminal.streams import UnreadError
from bench.terminal.words import counted
from bench.tuning.runner import Outcome, Resources, missing_units, run_plan, trials_of
from leaderboards import Store, StoreError
from leaderboards.commands import shell_command, typed

if TYPE_CHECKING:
    from bench.tuning.events import Observer
    from bench.tuning.progress import Ahead
    from search_spaces import Value


def run(plan: Plan, given: argparse.Namespace, argv: Sequence[str], resolved: Resolved) -> int:
    """Run what is missing, rebuild the leaderboard, print it.

    Raises:
        UsageError: a partition that no draw satisfies.
        EnvironmentProblem: data missing, `out` not writable.
    """
    if plan.cells and not plan.units:
        raise UsageError("nothing to run: " + "; ".join(plan.notes))
    check_out(resolved.out)
    store, shown, standing, began = Store(resolved.out), plan, _Standing(), monotonic()
    try:
        status = _train(plan, given, argv, resolved, standing, stand_ins(plan))
        if plan.request.confirm:
            shown = confirmation(plan, store.runs())
            if shown.units and status in (EXIT_OK, EXIT_FAILED):
                status = _train(shown, given, argv, resolved, standing, spent=monotonic() - began) or status
        _make_tables(shown, store, given.json, tuned_at(plan) if plan.request.confirm else None)
    except KeyboardInterrupt:
        if not standing.ended:
            raise
        same = "the same command without --force" if given.force else "the same command"
        told = f"interrupted when the trials had ended: their runs are stored, {same} makes the tables"
        return report_problem(KeyboardInterrupt(told), EXIT_INTERRUPTED)
    return status


@dataclass
class _Standing:
    """Whether the trials of a sweep have ended: an interrupt then costs its tables alone."""

    ended: bool = False


def _train(
    plan: Plan,
    given: argparse.Namespace,
    argv: Sequence[str],
    resolved: Resolved,
    standing: _Standing,
    later: Sequence[Unit] = (),
    spent: float = 0.0,
) -> int:
    """Run what is missing of a plan; returns the exit status.

    Args:
        plan: the runs, or the search.
        given: the options.
        argv: the command line.
        resolved: what the options come to.
        standing: of the sweep, kept up to date.
        later: runs that may follow these, whose data and partitions have to be there as well.
        spent: seconds of the time budget that are over.
    """
    from bench.sweep.track import Tracking
    from bench.tuning.log_writer import logged

    store = Store(resolved.out)
    units = missing_units(plan, store)
    tracking = Tracking(plan, units, resolved.out, given.track, given.force)
    _announce(plan, units, 0 if given.force else count_saved(resolved.out, {unit.key for unit in units}))
    say(*tracking.before())
    say(*pack_notes(given, resolved))
    status, standing.ended = EXIT_OK, not (units or plan.searches)
    with logged(given.log, plan, units, store, offline=given.offline, fresh=given.force) as observers:
        if not standing.ended:
            execution = _execution(given, argv, resolved)
            prepare_data(plan, [*units, *later], execution)
            resources = _resources(given, resolved, trial_share(given, resolved, plan, units, store), spent)
            outcome = _run_missing(plan, units, execution, resources, given.quiet, observers)
            status, standing.ended = outcome.exit_status, True
            keys = None if plan.searches else {unit.key for unit in units}
            _say_ended(outcome, given, bool(count_saved(resolved.out, keys)))
            say(*tracking.after())
    return status


def _make_tables(plan: Plan, store: Store, as_json: bool, confirmed_at: Mapping[str, Value] | None) -> None:
    """Compact, rebuild and print. `confirmed_at`: as `print_leaderboard` takes it."""
    _compact(store)
    _rebuild(store)
    if confirmed_at is not None and not plan.units:
        say("no configuration has finished on seed 0 yet: there is none to confirm")
    with suppress(UnreadError):  # what the trials came to stands, whoever reads the tables
        _print_board(plan, store.out, as_json, confirmed_at)
        sys.stdout.flush()


def _execution(given: argparse.Namespace, argv: Sequence[str], resolved: Resolved) -> Execution:
    from bench import provenance

    return Execution(
        out=str(resolved.out),
        data_dir=str(Path(given.data_dir).resolve()) if given.data_dir else None,
        offline=given.offline,
        device=resolved.device,
        backend=given.backend,
        threads=given.cpus_per_trial,
        force=given.force,
        save_seconds=given.save_seconds,
        track=given.track,
        provenance=provenance.of_command(argv),
    )


def _resources(given: argparse.Namespace, resolved: Resolved, gpus: float, spent: float) -> Resources:
    return Resources(
        executor=given.executor,
        concurrent=given.max_concurrent,
        cpus=given.cpus_per_trial,
        gpus=gpus,
        address=given.address,
        time_budget=None if given.time_budget is None else max(0.0, given.time_budget - spent),
        pack=resolved.pack,
    )


def _run_missing(
    plan: Plan,
    units: Sequence[Unit],
    execution: Execution,
    resources: Resources,
    quiet: bool,
    observers: Sequence[Observer],
) -> Outcome:
    """Run the units and searches with a display."""
    from bench.tuning.progress import make_display

    display = make_display(_ahead(plan, units, execution, resources.pack), quiet)
    try:
        return run_plan(plan, units, execution, resources, display, observers)
    finally:
        display.close()


def _ahead(plan: Plan, units: Sequence[Unit], execution: Execution, pack: int) -> Ahead:
    """What there is to do, by the rates of runs that are stored beside it."""
    from bench.tuning.progress import Ahead
    from bench.tuning.search import histories, remaining

    rates = RecordedRates(Store(Path(execution.out)), execution.device)

    def work(units: Sequence[Unit]) -> float:
        return sum(rates.work(unit.algorithm, unit.setting) for unit in units)

    trials = trials_of(plan, units, pack)
    past = histories(plan, plan.searches, execution.out)
    chosen = [(remaining(plan, search, one.known), search) for search, one in zip(plan.searches, past, strict=True)]
    searched = sum(plan.request.seeds * count * rates.work(one.algorithm, one.setting) for count, one in chosen)
    return Ahead(
        trials=len(trials) + sum(count for count, _ in chosen),
        work=sum(map(work, trials)) + searched,
        of=lambda trial: work(trial.units),
    )


def _say_ended(outcome: Outcome, given: argparse.Namespace, saved: bool) -> None:
    """What the user has to know of a sweep that did not end well. `saved`: whether a run has a state to go on from."""
    if outcome.interrupted:
        sys.stderr.write(f"interrupted{_after_interruption(outcome, given.force, saved)}\n")
    for problem in dict.fromkeys(outcome.problems):
        sys.stderr.write(f"problem: {problem}\n")
    tracebacks = list(dict.fromkeys(outcome.tracebacks))
    if given.verbose:
        sys.stderr.write("\n".join(tracebacks))
    elif tracebacks:
        say("failed runs are tried again by the same command; with --verbose it prints their tracebacks")


def _after_interruption(outcome: Outcome, force: bool, saved: bool) -> str:
    """What there is of a sweep that was interrupted, and what the same command does.

    Args:
        outcome: how it ended.
        force: stored runs are run again, which takes no state up.
        saved: whether a run has a state to go on from.
    """
    if force:
        return ": with --force the same command begins anew; without, it goes on with the runs that are not stored"
    if saved:
        return ": what was under way is saved; the same command goes on from there"
    if set(outcome.statuses) - {"interrupted"}:
        return " between two runs: those that ended are stored; the same command goes on with the others"
    return " before any run had done a round: there is nothing to save; the same command begins anew, give it more time"


def _announce(plan: Plan, units: Sequence[Unit], saved: int) -> None:
    """What there is to do; of `saved` runs only the rest."""
    say(*plan.notes)
    done = len(plan.units) - len(units)
    if plan.units:
        stored = f", {done} already stored" if done else ""
        rest = f" ({saved} from where it was saved)" if saved else ""
        searched = f", and the trials of {', '.join(sorted({one.algorithm for one in plan.searches}))}"
        to_do = f"{len(units)} to do{rest}{searched if plan.searches else ''}"
        sys.stderr.write(f"{counted(len(plan.units), 'run')}{stored}, {to_do}\n")


def _compact(store: Store) -> None:
    """Pack the small files if they are many. What prevents it is worth a note only: the runs are stored."""
    from leaderboards.rows.segments import compact_if_many

    try:
        compact_if_many(store.out)
    except (OSError, StoreError) as error:
        later = shell_command("bench.boards", "compact", store.out)
        say(f"the small files of this folder were not compacted ({error}); `{later}` does it")


def _rebuild(store: Store) -> None:
    try:
        if store.status():
            store.rebuild()
    except OSError as error:
        raise EnvironmentProblem(
            f"the leaderboard cannot be written: {error}; the runs are stored, give the same command again"
        ) from None


def _print_board(plan: Plan, out: Path, as_json: bool, confirmed_at: Mapping[str, Value] | None) -> None:
    """The tables of the sweep's own algorithms and settings."""
    from bench.terminal.render import print_leaderboard

    names = {name for unit in plan.units for name in unit.row_names.values()}
    names |= {name for search in plan.searches for name in entry(search.algorithm).rows.values()}
    settings = {unit.setting for unit in plan.units} | {search.setting for search in plan.searches}
    where = {
        "algorithm": sorted(names),
        "setting_json": sorted(map(identity_json, settings)),
    }
    own = {key for unit in plan.units for key in unit.rows.values()}
    style = "json" if as_json else "table"
    print_leaderboard(
        out, where=where, style=style, tuned=plan.tuned, confirmed_at=confirmed_at, file=sys.stdout, own=own
    )
    if as_json or not (plan.tuned or confirmed_at is not None):
        return
    folder = () if out == default_out().resolve() else ("--out", out)
    options: tuple[object, ...] = ("--tuned", *plan.tuned) if plan.tuned else ()
    if confirmed_at is not None:
        options += ("--confirmed", *(f"{name}={typed(value)}" for name, value in confirmed_at.items()))
    over = f"selected over {', '.join(plan.tuned)} as well; " if plan.tuned else ""
    say(f"{over}again: {shell_command('bench.compare', *options, *folder)}")
