"""`python -m bench.sweep`: plan a sweep, train its missing runs, print its leaderboard."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from bench import data
from bench.errors import EXIT_FAILED, EXIT_OK, EnvironmentProblem, Unfit
from bench.execution import Execution, default_out
from bench.executors.progress import Observer, make_display, work_of
from bench.executors.runner import run_plan
from bench.executors.trials import Outcome, Resources, missing_run_specs, searched_rows, trials_of
from bench.planning.plan import make_plan
from bench.planning.run_spec import Plan, RunSpec, Search, run_specs_of, setting_identity
from bench.provenance import command_columns
from bench.sweep.options import SweepOptions, parse
from bench.sweep.preflight import (
    Resolved,
    check_algorithms,
    check_out,
    check_start,
    check_track,
    fitting_plan,
    make_request,
    mirror_url,
    other_data_notes,
    prepare_data,
    resolve,
    track_notes,
    trial_share,
)
from bench.terminal.console import UnreadError, exit_status, say, tell
from bench.terminal.words import counted
from leaderboards import Store, StoreError, canonical_json
from leaderboards.numbers import number_named
from leaderboards.selection import shown_of, with_protocol
from leaderboards.shell_text import shell_command, typed
from search_spaces import setting_defaults

if TYPE_CHECKING:
    import pandas as pd

    from search_spaces import Value

Contest = tuple[str, str, str]  # cell, algorithm, model


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["reproduce"]:
        from bench.sweep.reproduce import main as reproduce

        return reproduce(argv[1:])
    return exit_status(
        lambda: _dispatch(parse(argv), argv), verbose="-v" in argv or "--verbose" in argv
    )


@dataclass(frozen=True)
class Prepared:
    """A sweep that can begin.

    Args:
        plan: what runs.
        resolved: the options that depend on the machine.
        confirming: runs that may follow the search; their data and partitions are checked as well.
    """

    plan: Plan
    resolved: Resolved
    confirming: tuple[RunSpec, ...]


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended.

    Args:
        status: exit status of the command.
        plan: what ran last: with `--confirm`, the confirmation.
        store: the result folder, with rows of the data at hand.
        confirmed_at: `tuned_at` of a plan with `--confirm`; None without.
    """

    status: int
    plan: Plan
    store: Store
    confirmed_at: Mapping[str, Value] | None


def _dispatch(options: SweepOptions, argv: list[str]) -> int:
    """Execute the command."""
    if options.list:
        from bench.sweep.show import print_registry

        print_registry(options.algo, options.json)
        return EXIT_OK
    if options.show:
        from bench.sweep.show import print_spaces

        plan = make_plan(make_request(options if options.algo else replace(options, algo=("all",))))
        print_spaces(plan, options.json, "dataset" in options.given)
        return EXIT_OK
    prepared = prepare(options)
    if options.dry_run:
        from bench.sweep.plan_report import print_dry_run

        print_dry_run(prepared.plan, options, prepared.resolved, prepared.confirming)
        return EXIT_OK
    swept = run(prepared, options, shell_command("bench.sweep", *argv))
    with suppress(UnreadError):  # a closed pipe does not change how the trials ended
        _print_board(swept, options.json)
        sys.stdout.flush()
    return swept.status


def prepare(options: SweepOptions, left_out: Mapping[str, str] | None = None) -> Prepared:
    """Plan a sweep, and check what can be checked before anything is fetched or written.

    Args:
        options: of the sweep.
        left_out: algorithms of `all` that cannot run, and what each needs.

    Raises:
        UsageError: the options conflict, a value is not allowed, or this machine lacks what they
            ask for.
    """
    request = replace(make_request(options), left_out=left_out or {})
    plan = fitting_plan(request, options.data_dir)
    confirming: list[RunSpec] = []
    if plan.request.confirm:
        from bench.planning.confirm import stand_ins

        confirming = stand_ins(plan)  # raises if a value of --confirm-at is not allowed
    return ready(plan, options, confirming)


def ready(plan: Plan, options: SweepOptions, confirming: Sequence[RunSpec] = ()) -> Prepared:
    """Resolve what depends on the machine, and check the stored models that a plan starts from.

    Raises:
        UsageError: this machine lacks what the options ask for, or there is no such model.
    """
    resolved = resolve(options, plan, confirming)
    everything: list[RunSpec | Search] = [*plan.run_specs, *plan.searches, *confirming]
    check_start(everything, resolved.out)
    check_track(everything, options.track)
    return Prepared(plan, resolved, tuple(confirming))


def run(prepared: Prepared, options: SweepOptions, command: str) -> Swept:
    """Train the missing runs of a sweep, with its mirror if there is one, and rebuild the leaderboard.

    `command`: how a user writes it, for the provenance of rows.

    Raises:
        UsageError: a partition cannot be drawn.
        EnvironmentProblem: data are missing, or the result folder is not writable.
    """
    try:
        return _run_mirrored(prepared, options, command)
    except Unfit as problem:  # found out only now, because the data had to be fetched
        if options.algo != ("all",):
            raise
        unfit = {**prepared.plan.request.left_out, **problem.needs}
    return run(prepare(options, unfit), options, command)


def _run_mirrored(prepared: Prepared, options: SweepOptions, command: str) -> Swept:
    mirror = mirror_url(options.mirror, options.offline)
    if not mirror:
        return _run_stages(prepared, options, command)
    from bench.sync.mirror import mirrored

    plan = prepared.plan
    out = prepared.resolved.out
    check_out(out)
    keys = (
        None
        if plan.searches or plan.request.confirm
        else {run_spec.key for run_spec in plan.run_specs}
    )
    with mirrored(mirror, out, keys):
        return _run_stages(prepared, options, command)


def _run_stages(prepared: Prepared, options: SweepOptions, command: str) -> Swept:
    """Train the plan, then its second stage, then the runs that confirm; rebuild the leaderboard."""
    plan = prepared.plan
    resolved = prepared.resolved
    check_out(resolved.out)
    began = monotonic()
    status = _train(plan, options, command, resolved, prepared.confirming)
    store = Store(resolved.out, data.hashes(plan.datasets, options.data_dir))
    if plan.stages and status in (EXIT_OK, EXIT_FAILED):
        from bench.planning.two_stage import second_stage

        second = second_stage(plan, _selecting(plan, store))
        if second.run_specs:
            status = _train(second, options, command, resolved, spent=monotonic() - began) or status
    confirmed_at = None
    if plan.request.confirm:
        from bench.planning.confirm import confirmation, tuned_at

        confirmed_at = tuned_at(plan)
        plan = confirmation(plan, _selecting(plan, store))
        if plan.run_specs and status in (EXIT_OK, EXIT_FAILED):
            status = _train(plan, options, command, resolved, spent=monotonic() - began) or status
        if not plan.run_specs:
            say("no configuration has finished on seed 0 yet: there is none to confirm")
    _rebuild(store)
    return Swept(status, plan, store, confirmed_at)


def _selecting(plan: Plan, store: Store) -> pd.DataFrame:
    """Read the stored runs, each with the samples that the command selects on."""
    return with_protocol(store.runs(), plan.request.select_on)


def _train(
    plan: Plan,
    options: SweepOptions,
    command: str,
    resolved: Resolved,
    confirming: Sequence[RunSpec] = (),
    spent: float = 0.0,
) -> int:
    """Train the missing runs of a plan; return the exit status.

    `spent`: seconds of the time budget used so far.
    """
    out = resolved.out
    data_hashes = _data_hashes(plan, options, out)
    store = Store(out, data_hashes)
    run_specs = missing_run_specs(plan, store)
    saved = sum((out / "state" / run_spec.key / "manifest.json").exists() for run_spec in run_specs)
    _announce(plan, run_specs, 0 if options.force else saved)
    say(*other_data_notes(plan, out, data_hashes))
    say(*track_notes(plan, run_specs, out, options.track))
    logs: AbstractContextManager[list[Observer]] = nullcontext([])
    if options.log:
        from bench.executors.logs import logged

        logs = logged(options.log, plan, run_specs, store, options.offline)
    with logs as observers:
        if not (run_specs or plan.searches):
            return EXIT_OK
        execution = Execution(
            out=str(out),
            data_dir=str(Path(options.data_dir).resolve()) if options.data_dir else None,
            offline=options.offline,
            device=resolved.device,
            backend=options.backend,
            threads=options.cpus_per_trial,
            chosen_by=options.chosen_by,
            select_on=options.select_on,
            force=options.force,
            save_seconds=options.save_seconds,
            track=options.track,
            data_hashes=data_hashes,
            provenance=command_columns(command),
        )
        resources = Resources(
            executor=options.executor,
            concurrent=options.max_concurrent,
            cpus=options.cpus_per_trial,
            gpus=trial_share(options, resolved, plan, run_specs),
            address=options.address,
            time_budget=None
            if options.time_budget is None
            else max(0.0, options.time_budget - spent),
            pack=resolved.pack,
            verbose=options.verbose,
        )
        if not options.uncertified:
            execution = replace(execution, certified=check_algorithms([*run_specs, *plan.searches]))
        prepare_data(plan, [*run_specs, *confirming], execution)
        count, work = _trials_and_work(plan, run_specs, out, resources.pack, data_hashes)
        display = make_display(count, work, options.quiet)
        try:
            outcome = run_plan(plan, run_specs, execution, resources, display, observers)
        finally:
            display.close()
        _report_outcome(outcome, options)
    rest = replace(plan, request=replace(plan.request, force=False), run_specs=tuple(run_specs))
    vanished = missing_run_specs(rest, Store(out))  # another machine may have trained on other data
    if outcome.exit_status == EXIT_OK and vanished:
        raise EnvironmentProblem(
            f"{counted(len(vanished), 'run')} of this sweep ended and are not in {out}: it was deleted or changed "
            "meanwhile; the same command runs them again"
        )
    return outcome.exit_status


def _data_hashes(plan: Plan, options: SweepOptions, out: Path) -> dict[str, str]:
    """Return data set -> hash of the data at hand, which those of stored runs are compared with.

    A data set that is not here is fetched first if runs are to do and others may be stored.

    Raises:
        EnvironmentProblem: it cannot be fetched.
    """
    found = data.hashes(plan.datasets, options.data_dir)
    store = Store(out, found)
    if store.begun:
        to_do = replace(plan, run_specs=tuple(missing_run_specs(plan, store)))
        for name in sorted({*to_do.datasets} - found.keys()):
            found[name] = data.load(name, options.data_dir, options.offline).hash
    return found


def _trials_and_work(
    plan: Plan, run_specs: Sequence[RunSpec], out: Path, pack: int, data_hashes: Mapping[str, str]
) -> tuple[int, float]:
    """Count the trials to run, and sum up their work (`work_of`)."""
    trials = trials_of(plan, run_specs, pack)
    count, work = len(trials), sum(map(work_of, trials))
    if plan.searches:
        from bench.executors.optuna_search import histories, remaining

        pasts = histories(plan, plan.searches, str(out), data_hashes)
        for search, past in zip(plan.searches, pasts, strict=True):
            wanted = remaining(plan, search, past.known)
            count, work = (
                count + wanted,
                work + wanted * work_of(run_specs_of(search, {}, plan.request.seeds)),
            )
    return count, work


def _announce(plan: Plan, run_specs: Sequence[RunSpec], saved: int) -> None:
    """Report how many runs there are to do; `saved` of them continue from a saved state."""
    say(*plan.notes)
    done = len(plan.run_specs) - len(run_specs)
    if plan.run_specs:
        stored = f", {done:,} already stored" if done else ""
        rest = f" ({saved} from where it was saved)" if saved else ""
        searched = f", and the trials of {', '.join(sorted({search.algorithm for search in plan.searches}))}"
        to_do = f"{len(run_specs):,} to do{rest}{searched if plan.searches else ''}"
        sys.stderr.write(f"{counted(len(plan.run_specs), 'run')}{stored}, {to_do}\n")


def _report_outcome(outcome: Outcome, options: SweepOptions) -> None:
    """Report the problems of a sweep, and what giving the same command again does."""
    if outcome.interrupted:
        how = "begins anew, as --force asks" if options.force else "goes on from what is saved"
        sys.stderr.write(f"interrupted: the same command {how}\n")
    for problem in dict.fromkeys(outcome.problems):
        tell(f"problem: {problem}")
    tracebacks = list(dict.fromkeys(outcome.tracebacks))
    if options.verbose:
        sys.stderr.write("\n".join(tracebacks))
    elif tracebacks:
        say(
            "failed runs are tried again by the same command; with --verbose it prints their tracebacks"
        )


def _rebuild(store: Store) -> None:
    """Compact the rows of a result folder if there are many, and write its leaderboard."""
    from leaderboards.rows.segments import compact_if_many

    with suppress(OSError, StoreError):  # the next sweep compacts them
        compact_if_many(store.out)
    if store.status():
        Store(store.out).rebuild()


def contests_of(swept: Swept) -> set[Contest]:
    """Find the contests (cell, algorithm, model) that a sweep has runs in."""
    from leaderboards.problems import cell_of

    plan = swept.plan
    settings = {
        setting: canonical_json(setting_identity(setting))
        for setting in {run_spec.setting for run_spec in plan.run_specs}
    }
    rows: set[tuple[str, str]] = set()
    for run_spec in plan.run_specs:
        for name in run_spec.row_names.values():
            rows.add((name, settings[run_spec.setting]))
    if plan.searches:
        searched = searched_rows(plan, swept.store)
        rows |= set(zip(searched.algorithm, searched.setting_json, strict=True))
    return {(cell_of(text, plan.tuned), name, json.loads(text)["model"]) for name, text in rows}


def board_of(swept: Swept) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the leaderboard of a sweep's own contests, and return with it the runs that it counts.

    Says which runs of other versions are left out.
    """
    from bench.terminal.render import note_superseded
    from leaderboards.board import CONTEST, leaderboard

    plan = swept.plan
    contests = contests_of(swept)
    every = _selecting(plan, swept.store)
    planned = every[every["algorithm"].isin({name for _, name, _ in contests})]
    note_superseded(planned, plan.tuned, plan.of_own_versions(planned))
    runs = plan.of_own_versions(every)
    if swept.confirmed_at is not None:
        from leaderboards.confirmed import confirmed

        runs = confirmed(
            runs, plan.tuned, swept.confirmed_at, plan.request.chosen_by, setting_defaults()
        )
    board = leaderboard(runs, tuned=plan.tuned, chosen_by=plan.request.chosen_by)
    own = [row in contests for row in zip(*(board[name] for name in CONTEST), strict=True)]
    return board.loc[own], runs


def _print_board(swept: Swept, as_json: bool) -> None:
    """Print the accuracies of `shown_of` in the sweep's own contests."""
    from bench.terminal.render import defaults, render
    from leaderboards.board import with_seeds
    from leaderboards.tables import tables_of

    plan = swept.plan
    board, runs = board_of(swept)
    metrics = [number_named(name) for name in shown_of(board)]
    algorithms = {run_spec.algorithm for run_spec in plan.run_specs}
    algorithms |= {search.algorithm for search in plan.searches}
    tables = tables_of(
        with_seeds(board, runs, metrics, plan.tuned),
        metrics,
        defaults=defaults(algorithms),
        tuned=plan.tuned,
    )
    render(tables, "json" if as_json else "table")
    selected = plan.tuned or swept.confirmed_at is not None
    if selected and not as_json and not board.empty:
        _suggest_compare(plan, swept.store.out, swept.confirmed_at)


def _suggest_compare(plan: Plan, out: Path, confirmed_at: Mapping[str, Value] | None) -> None:
    """Say which command prints the tables again."""
    folder = () if out == default_out().resolve() else ("--out", out)
    words: tuple[object, ...] = ("--tuned", *plan.tuned) if plan.tuned else ()
    if plan.request.select_on is not None:
        words += ("--select-on", plan.request.select_on)
    if confirmed_at is not None:
        words += (
            "--confirmed",
            *(f"{name}={typed(value)}" for name, value in confirmed_at.items()),
        )
    over = f"selected over {', '.join(plan.tuned)} as well; " if plan.tuned else ""
    say(f"{over}again: {shell_command('bench.compare', *words, *folder)}")
