"""`python -m bench.sweep`: plan a sweep, train its missing runs, print its leaderboard."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from bench import data, state_files
from bench.errors import EXIT_FAILED, EXIT_OK, EnvironmentProblem, Unfit
from bench.execution import Execution, default_out
from bench.executors.progress import Events, Observer, make_display, work_of
from bench.executors.runner import run_plan
from bench.executors.trials import Trials, missing_run_specs, searched_rows, trials_of
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, setting_identity
from bench.planning.search import run_specs_of
from bench.provenance import command_columns
from bench.sweep.feasible import fitting_plan, prepare_data
from bench.sweep.parser import parse
from bench.sweep.preflight import (
    check_algorithms,
    check_out,
    check_start,
    check_track,
    completed,
    gpu_share,
    mirror_url,
    other_data_notes,
    resolve,
    track_notes,
)
from bench.terminal.console import UnreadError, exit_status, say, tell
from bench.terminal.words import counted
from leaderboards import Store, StoreError, canonical_json
from leaderboards.numbers import number_named
from leaderboards.selection import DEFAULT_RULE, shown_of, with_protocol
from leaderboards.shell_text import shell_command, typed
from search_spaces import Setting, setting_defaults

if TYPE_CHECKING:
    import pandas as pd

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


def _dispatch(options: SweepOptions, argv: list[str]) -> int:
    """Execute the command."""
    if options.list:
        from bench.sweep.show import print_registry

        print_registry(options.algo, options.json)
        return EXIT_OK
    if options.show:
        from bench.sweep.show import print_spaces

        shown = options if options.algo else replace(options, algo=("all",))
        print_spaces(make_plan(completed(shown)))
        return EXIT_OK
    if options.dry_run:
        from bench.sweep.plan_text import print_dry_run

        plan = prepare(options)
        print_dry_run(plan, ready(plan))
        return EXIT_OK
    status, plan, store = sweep(options, shell_command("bench.sweep", *argv))
    with suppress(UnreadError):  # a closed pipe does not change how the trials ended
        _print_board(plan, store)
        sys.stdout.flush()
    return status


def sweep(options: SweepOptions, command: str) -> tuple[int, Plan, Store]:
    """Plan a sweep and train its missing runs, as `run` does, whose results it returns.

    Of `--algo all` only those algorithms run that fit the data, which may have to be fetched first.

    Raises:
        UsageError: the options conflict, a value is not allowed, this machine lacks what they ask
            for, or a partition cannot be drawn.
        EnvironmentProblem: data are missing, or the result folder is not writable.
    """
    left_out: Mapping[str, str] = {}
    while True:
        plan = prepare(options, left_out)
        try:
            return run(plan, ready(plan), command)
        except Unfit as problem:
            if not options.every_algorithm:
                raise
            left_out = {**plan.left_out, **problem.needs}


def prepare(options: SweepOptions, left_out: Mapping[str, str] | None = None) -> Plan:
    """Plan a sweep, with the runs that may confirm its choices.

    Args:
        options: of the sweep.
        left_out: algorithms of `all` that cannot run, and what each needs.

    Raises:
        UsageError: the options conflict, or a value is not allowed.
    """
    plan = fitting_plan(completed(options), left_out)
    if not plan.options.confirm:
        return plan
    from bench.planning.confirm import stand_ins

    return replace(plan, confirming=tuple(stand_ins(plan)))


def ready(plan: Plan) -> Execution:
    """Resolve how this machine executes a plan, and check the stored models that it starts from.

    Raises:
        UsageError: this machine lacks what the options ask for, or there is no such model.
    """
    execution = resolve(plan)
    check_start(plan, Path(execution.out))
    check_track(plan)
    return execution


def run(plan: Plan, execution: Execution, command: str) -> tuple[int, Plan, Store]:
    """Train the missing runs of a plan, with its mirror if there is one; rebuild the leaderboard.

    Args:
        plan: the sweep's.
        execution: of `ready`.
        command: how a user writes it, for the provenance of rows.

    Returns:
        The exit status, the plan that ran last, which confirms with `--confirm`, and the result
        folder with rows of the data at hand.

    Raises:
        Unfit: some algorithms cannot run on the data.
        UsageError: a partition cannot be drawn.
        EnvironmentProblem: data are missing, or the result folder is not writable.
    """
    options = plan.options
    out = Path(execution.out)
    check_out(out)
    mirror = mirror_url(options.mirror, options.offline)
    if not mirror:
        return _run_stages(plan, execution, command)
    from bench.sync.mirror import mirrored

    keys = None
    if not plan.searches and not options.confirm:
        keys = {run_spec.key for run_spec in plan.run_specs}
    with mirrored(mirror, out, keys):
        return _run_stages(plan, execution, command)


def _run_stages(plan: Plan, execution: Execution, command: str) -> tuple[int, Plan, Store]:
    """Train the plan, its second stage, and the runs that confirm; rebuild the leaderboard."""
    options = plan.options
    began = monotonic()
    status = _train(plan, execution, command)
    store = Store(Path(execution.out), data.hashes(plan.datasets, options.data_dir))
    if plan.stages and status in (EXIT_OK, EXIT_FAILED):
        from bench.planning.two_stage import second_stage

        second = second_stage(plan, store.runs())
        if not second.run_specs:
            say(*second.notes)
        else:
            status = _train(second, execution, command, spent=monotonic() - began) or status
    if options.confirm:
        from bench.planning.confirm import confirmation

        plan = confirmation(plan, store.runs())
        if plan.run_specs and status in (EXIT_OK, EXIT_FAILED):
            status = _train(plan, execution, command, spent=monotonic() - began) or status
        if not plan.run_specs:
            say("no configuration has finished on seed 0 yet: there is none to confirm")
    _rebuild(store)
    return status, plan, store


def _train(plan: Plan, execution: Execution, command: str, spent: float = 0.0) -> int:
    """Train the missing runs of a plan; return the exit status.

    `spent`: seconds of the time budget used so far.
    """
    options = plan.options
    out = Path(execution.out)
    data_hashes = _data_hashes(plan, out)
    store = Store(out, data_hashes)
    run_specs = missing_run_specs(plan, store)
    _announce(plan, run_specs, out)
    say(*other_data_notes(plan, out, data_hashes))
    say(*track_notes(plan, run_specs, out))
    logs: AbstractContextManager[list[Observer]] = nullcontext([])
    if options.log:
        from bench.executors.logs import logged

        logs = logged(plan, run_specs, store)
    with logs as observers:
        if not (run_specs or plan.searches):
            return EXIT_OK
        trials = trials_of(plan, run_specs, execution.pack)
        certified: tuple[str, ...] = ()
        if not options.uncertified:
            certified = check_algorithms([*run_specs, *plan.searches])
        time_budget = options.time_budget
        if time_budget is not None:
            time_budget = max(0.0, time_budget - spent)
        execution = replace(
            execution,
            data_hashes=data_hashes,
            certified=certified,
            provenance=command_columns(command),
            gpus=gpu_share(plan, execution, trials),
            time_budget=time_budget,
        )
        prepare_data(plan, [*run_specs, *plan.confirming], execution)
        count, work = _trials_and_work(plan, trials, execution)
        display = make_display(count, work, options.quiet)
        try:
            events = run_plan(plan, trials, execution, display, observers)
        finally:
            display.close()
        _report_end(events, options)
    if events.exit_status == EXIT_OK:
        _check_stored(plan, run_specs, out)
    return events.exit_status


def _check_stored(plan: Plan, run_specs: Sequence[RunSpec], out: Path) -> None:
    """Raise EnvironmentProblem unless the runs that ended are in the result folder."""
    # Another machine may have trained on other data.
    options = replace(plan.options, force=False)
    rest = replace(plan, options=options, run_specs=tuple(run_specs))
    vanished = missing_run_specs(rest, Store(out))
    if vanished:
        raise EnvironmentProblem(
            f"{counted(len(vanished), 'run')} of this sweep ended and are not in {out}: it was "
            "deleted or changed meanwhile; the same command runs them again"
        )


def _data_hashes(plan: Plan, out: Path) -> dict[str, str]:
    """Return data set -> hash of the data at hand, which those of stored runs are compared with.

    A data set that is not here is fetched first if runs are to do and others may be stored.

    Raises:
        EnvironmentProblem: it cannot be fetched.
    """
    options = plan.options
    hashes = data.hashes(plan.datasets, options.data_dir)
    store = Store(out, hashes)
    if store.begun:
        to_do = replace(plan, run_specs=tuple(missing_run_specs(plan, store)))
        for name in sorted({*to_do.datasets} - hashes.keys()):
            hashes[name] = data.load(name, options.data_dir, options.offline).hash
    return hashes


def _trials_and_work(plan: Plan, trials: Trials, execution: Execution) -> tuple[int, float]:
    """Count the trials to run, those of searches too, and sum up their work (`work_of`)."""
    count = len(trials)
    work = sum(map(work_of, trials))
    if plan.searches:
        from bench.executors.optuna_search import past_tries

        for past in past_tries(plan, execution.out, execution.data_hashes):
            wanted = past.remaining(plan.options.configurations)
            count += wanted
            work += wanted * work_of(run_specs_of(past.search, {}, plan.options.seeds))
    return count, work


def _announce(plan: Plan, run_specs: Sequence[RunSpec], out: Path) -> None:
    """Report how many runs there are to do, and how many go on from where they were saved."""
    say(*plan.notes)
    if not plan.run_specs:
        return
    line = counted(len(plan.run_specs), "run")
    stored = len(plan.run_specs) - len(run_specs)
    if stored:
        line += f", {stored:,} already stored"
    line += f", {len(run_specs):,} to do"
    saved = 0
    if not plan.options.force:
        for run_spec in run_specs:
            saved += (out / state_files.FOLDER / run_spec.key / state_files.MANIFEST).exists()
    if saved:
        line += f" ({saved} from where it was saved)"
    if plan.searches:
        names = sorted({search.algorithm for search in plan.searches})
        line += f", and the trials of {', '.join(names)}"
    sys.stderr.write(f"{line}\n")


def _report_end(events: Events, options: SweepOptions) -> None:
    """Report the problems of a sweep, and what giving the same command again does."""
    if events.interrupted:
        how = "begins anew, as --force asks" if options.force else "goes on from what is saved"
        sys.stderr.write(f"interrupted: the same command {how}\n")
    for problem in dict.fromkeys(events.problems):
        tell(f"problem: {problem}")
    tracebacks = list(dict.fromkeys(events.tracebacks))
    if options.verbose:
        sys.stderr.write("\n".join(tracebacks))
    elif tracebacks:
        say(
            "failed runs are tried again by the same command; with --verbose it prints their "
            "tracebacks"
        )


def _rebuild(store: Store) -> None:
    """Compact the rows of a result folder if there are many, and write its leaderboard."""
    from leaderboards.rows.compaction import compact_if_many

    with suppress(OSError, StoreError):  # the next sweep compacts them
        compact_if_many(store.out)
    if store.status():
        Store(store.out).rebuild()


def contests_of(plan: Plan, store: Store) -> set[Contest]:
    """Find the contests (cell, algorithm, model) that a sweep has runs in."""
    from leaderboards.problems import cell_of

    settings: dict[Setting, str] = {}
    rows: set[tuple[str, str]] = set()
    for run_spec in plan.run_specs:
        setting = run_spec.setting
        if setting not in settings:
            settings[setting] = canonical_json(setting_identity(setting))
        rows |= {(name, settings[setting]) for name in run_spec.row_names.values()}
    if plan.searches:
        searched = searched_rows(plan, store)
        rows |= set(zip(searched.algorithm, searched.setting_json, strict=True))
    return {(cell_of(text, plan.tuned), name, json.loads(text)["model"]) for name, text in rows}


def board_of(plan: Plan, store: Store) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the leaderboard of a sweep's own contests, and return with it the runs that it counts.

    Says which runs of other versions are left out.
    """
    from bench.terminal.render import note_superseded
    from leaderboards.board import CONTEST, leaderboard

    chosen_by = plan.options.chosen_by
    contests = contests_of(plan, store)
    every = with_protocol(store.runs(), plan.options.select_on)
    planned = every[every["algorithm"].isin({name for _, name, _ in contests})]
    note_superseded(planned, plan.tuned, plan.of_own_versions(planned))
    runs = plan.of_own_versions(every)
    if plan.confirmed_at is not None:
        from leaderboards.confirmed import confirmed

        runs = confirmed(runs, plan.tuned, plan.confirmed_at, setting_defaults(), chosen_by)
    board = leaderboard(runs, tuned=plan.tuned, chosen_by=chosen_by)
    columns = [board[name] for name in CONTEST]
    own = [row in contests for row in zip(*columns, strict=True)]
    return board.loc[own], runs


def _print_board(plan: Plan, store: Store) -> None:
    """Print the accuracies of `shown_of` in the sweep's own contests."""
    from bench.compare.filters import stated
    from bench.terminal.render import defaults, render
    from leaderboards.board import with_seeds
    from leaderboards.rows.frames import records
    from leaderboards.tables import tables_of

    board, runs = board_of(plan, store)
    metrics = [number_named(name) for name in shown_of(board)]
    board = with_seeds(board, runs, metrics, plan.tuned)
    tables = tables_of(
        records(stated(board, plan.tuned)),
        metrics,
        defaults=defaults({part.algorithm for part in plan.parts}),
        tuned=plan.tuned,
    )
    render(tables, "json" if plan.options.json else "table")
    if not plan.options.json and not board.empty:
        _suggest_compare(plan, store.out)


def _suggest_compare(plan: Plan, out: Path) -> None:
    """Say which command prints the tables again, if it needs options of how they were chosen."""
    words: list[object] = []
    over = ""
    if plan.tuned:
        words += ["--tuned", *plan.tuned]
        over = f"selected over {', '.join(plan.tuned)} as well; "
    if plan.options.chosen_by != DEFAULT_RULE:
        words += ["--chosen-by", plan.options.chosen_by]
    if plan.options.select_on is not None:
        words += ["--select-on", plan.options.select_on]
    if plan.confirmed_at is not None:
        words.append("--confirmed")
        words += [f"{name}={typed(value)}" for name, value in plan.confirmed_at.items()]
    if not words:
        return
    if out != default_out().resolve():
        words += ["--out", out]
    say(f"{over}again: {shell_command('bench.compare', *words)}")
