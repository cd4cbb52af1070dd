"""Running a planned sweep: what is missing of it, then its leaderboard."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from algorithms import entry
from bench import provenance
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EnvironmentProblem, UsageError
from bench.execution import Execution, default_out
from bench.executors.runner import run_plan
from bench.executors.trials import Outcome, Resources, missing_units, trials_of
from bench.identity import identity_json
from bench.planning.cost_model import RecordedRates
from bench.planning.model import Plan, Search
from bench.planning.run_spec import RunSpec
from bench.stored.saved_states import count_saved
from bench.sweep.options import SweepOptions
from bench.sweep.preflight import check_algorithms, check_out, prepare_data
from bench.sweep.resolve import Resolved, pack_notes, trial_share
from bench.terminal.console import UnreadError, report_problem, say, tell
from bench.terminal.words import counted
from leaderboards import Store, StoreError
from leaderboards.shell_text import shell_command, typed

if TYPE_CHECKING:
    from bench.executors.events import Observer
    from bench.executors.progress import Ahead
    from search_spaces import Value


def run(
    plan: Plan, options: SweepOptions, argv: Sequence[str], resolved: Resolved, confirming: Sequence[RunSpec]
) -> int:
    """Run what is missing, rebuild the leaderboard, print it; returns the exit status.

    `confirming` are runs that may follow the search, whose data and partitions have to be there as well.

    Raises:
        UsageError: a partition that no draw satisfies.
        EnvironmentProblem: data missing, `out` not writable.
    """
    if plan.cells and not plan.units:
        raise UsageError("nothing to run: " + "; ".join(plan.notes))
    check_out(resolved.out)
    store, began = Store(resolved.out), monotonic()
    status = _train(plan, options, argv, resolved, confirming)
    try:
        confirmed_at = None
        if plan.request.confirm:
            from bench.planning.confirm import confirmation, tuned_at

            confirmed_at, plan = tuned_at(plan), confirmation(plan, store.runs())
            if plan.units and status in (EXIT_OK, EXIT_FAILED):
                status = _train(plan, options, argv, resolved, spent=monotonic() - began) or status
        _make_tables(plan, store, options.json, confirmed_at)
    except KeyboardInterrupt:
        message = "interrupted: runs that have ended are stored; the same command without --force does the rest"
        return report_problem(KeyboardInterrupt(message), EXIT_INTERRUPTED)
    return status


def _train(
    plan: Plan,
    options: SweepOptions,
    argv: Sequence[str],
    resolved: Resolved,
    confirming: Sequence[RunSpec] = (),
    spent: float = 0.0,
) -> int:
    """Run what is missing of a plan; returns the exit status. `spent`: seconds of the time budget that are over."""
    from bench.executors.progress import make_display
    from bench.sweep.track import Tracking

    out = resolved.out
    store = Store(out)
    units = missing_units(plan, store)
    tracking = Tracking(plan, units, out, options.track, options.force)
    _announce(plan, units, 0 if options.force else count_saved(out, {unit.key for unit in units}))
    say(*tracking.before(), *pack_notes(options, resolved))
    with _logs(options, plan, units, store) as observers:
        if not (units or plan.searches):
            return EXIT_OK
        execution = Execution(
            out=str(out),
            data_dir=str(Path(options.data_dir).resolve()) if options.data_dir else None,
            offline=options.offline,
            device=resolved.device,
            backend=options.backend,
            threads=options.cpus_per_trial,
            force=options.force,
            save_seconds=options.save_seconds,
            track=options.track,
            provenance=provenance.of_command(argv),
        )
        resources = Resources(
            executor=options.executor,
            concurrent=options.max_concurrent,
            cpus=options.cpus_per_trial,
            gpus=trial_share(options, resolved, plan, units, store),
            address=options.address,
            time_budget=None if options.time_budget is None else max(0.0, options.time_budget - spent),
            pack=resolved.pack,
            verbose=options.verbose,
        )
        if not options.uncertified:
            execution = replace(execution, certified=check_algorithms([*units, *plan.searches]))
        prepare_data(plan, [*units, *confirming], execution)
        display = make_display(_ahead(plan, units, execution, resources.pack), options.quiet)
        try:
            outcome = run_plan(plan, units, execution, resources, display, observers)
        finally:
            display.close()
        keys = None if plan.searches else {unit.key for unit in units}
        _say_ended(outcome, options, bool(count_saved(out, keys)))
        say(*tracking.after())
    vanished = missing_units(replace(plan, request=replace(plan.request, force=False), units=tuple(units)), store)
    if outcome.exit_status == EXIT_OK and vanished:
        raise EnvironmentProblem(
            f"{counted(len(vanished), 'run')} of this sweep ended and are not in {out}: it was deleted or changed "
            "meanwhile; the same command runs them again"
        )
    return outcome.exit_status


def _logs(
    options: SweepOptions, plan: Plan, units: Sequence[RunSpec], store: Store
) -> AbstractContextManager[list[Observer]]:
    """The observers that `--log` asks for."""
    if not options.log:
        return nullcontext([])
    from bench.executors.log_writer import logged

    return logged(options.log, plan, units, store, offline=options.offline, fresh=options.force)


def _ahead(plan: Plan, units: Sequence[RunSpec], execution: Execution, pack: int) -> Ahead:
    """The trials to come and their work, by the rates of stored runs."""
    from bench.executors.progress import Ahead

    rates = RecordedRates(Store(Path(execution.out)), execution.device)

    def work(units: Sequence[RunSpec]) -> float:
        return sum(rates.work(unit.algorithm, unit.setting) for unit in units)

    trials = trials_of(plan, units, pack)
    chosen: list[tuple[int, Search]] = []
    if plan.searches:
        from bench.executors.optuna_search import histories, remaining

        past = histories(plan, plan.searches, execution.out)
        chosen = [(remaining(plan, search, one.known), search) for search, one in zip(plan.searches, past, strict=True)]
    searched = sum(plan.request.seeds * count * rates.work(one.algorithm, one.setting) for count, one in chosen)
    return Ahead(
        trials=len(trials) + sum(count for count, _ in chosen),
        work=sum(map(work, trials)) + searched,
        of=lambda trial: work(trial.units),
    )


def _announce(plan: Plan, units: Sequence[RunSpec], saved: int) -> None:
    """Say what there is to do; of `saved` runs only the rest."""
    say(*plan.notes)
    done = len(plan.units) - len(units)
    if plan.units:
        stored = f", {done} already stored" if done else ""
        rest = f" ({saved} from where it was saved)" if saved else ""
        searched = f", and the trials of {', '.join(sorted({one.algorithm for one in plan.searches}))}"
        to_do = f"{len(units)} to do{rest}{searched if plan.searches else ''}"
        sys.stderr.write(f"{counted(len(plan.units), 'run')}{stored}, {to_do}\n")


def _say_ended(outcome: Outcome, options: SweepOptions, saved: bool) -> None:
    """Say what went wrong, and what the same command does. `saved`: whether a run has a state to go on from."""
    if outcome.interrupted:
        if options.force:
            told = "with --force the same command begins anew; without, it goes on with the runs that are not stored"
        elif saved:
            told = "what was under way is saved; the same command goes on from there"
        else:
            told = "nothing was under way; the same command does what is not stored"
        sys.stderr.write(f"interrupted: {told}\n")
    for problem in dict.fromkeys(outcome.problems):
        tell(f"problem: {problem}")
    tracebacks = list(dict.fromkeys(outcome.tracebacks))
    if options.verbose:
        sys.stderr.write("\n".join(tracebacks))
    elif tracebacks:
        say("failed runs are tried again by the same command; with --verbose it prints their tracebacks")


def _make_tables(plan: Plan, store: Store, as_json: bool, confirmed_at: Mapping[str, Value] | None) -> None:
    """Compact, rebuild and print. `confirmed_at`: as `print_leaderboard` takes it."""
    from leaderboards.rows.segments import compact_if_many

    try:
        compact_if_many(store.out)
    except (OSError, StoreError) as error:
        later = shell_command("bench.boards", "compact", store.out)
        say(f"the small files of this folder were not compacted ({error}); `{later}` does it")
    try:
        if store.status():
            store.rebuild()
    except OSError as error:
        raise EnvironmentProblem(
            f"the leaderboard cannot be written: {error}; the runs are stored, give the same command again"
        ) from None
    if confirmed_at is not None and not plan.units:
        say("no configuration has finished on seed 0 yet: there is none to confirm")
    with suppress(UnreadError):  # a closed pipe does not change how the trials ended
        _print_board(plan, store.out, as_json, confirmed_at)
        sys.stdout.flush()


def _print_board(plan: Plan, out: Path, as_json: bool, confirmed_at: Mapping[str, Value] | None) -> None:
    """Print the tables of the sweep's own algorithms and settings, and the command that prints them again."""
    from bench.terminal.render import print_leaderboard

    names = {name for unit in plan.units for name in unit.row_names.values()}
    names |= {name for search in plan.searches for name in entry(search.algorithm).rows.values()}
    settings = {identity_json(setting) for setting in {unit.setting for unit in plan.units}}
    if plan.searches:
        runs = Store(out).runs(columns=("algorithm", "setting_json"))
        settings |= {text for _, text in plan.of_searches(zip(runs.algorithm, runs.setting_json, strict=True))}
    print_leaderboard(
        out,
        where={"algorithm": sorted(names), "setting_json": sorted(settings)},
        style="json" if as_json else "table",
        tuned=plan.tuned,
        confirmed_at=confirmed_at,
        file=sys.stdout,
        own={key for unit in plan.units for key in unit.rows.values()},
        known={unit.algorithm for unit in plan.units} | {search.algorithm for search in plan.searches},
    )
    if as_json or not (plan.tuned or confirmed_at is not None):
        return
    folder = () if out == default_out().resolve() else ("--out", out)
    words: tuple[object, ...] = ("--tuned", *plan.tuned) if plan.tuned else ()
    if confirmed_at is not None:
        words += ("--confirmed", *(f"{name}={typed(value)}" for name, value in confirmed_at.items()))
    over = f"selected over {', '.join(plan.tuned)} as well; " if plan.tuned else ""
    say(f"{over}again: {shell_command('bench.compare', *words, *folder)}")
