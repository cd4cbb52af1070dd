"""`python -m bench.sweep`: plan a sweep, run what is missing of it, print its leaderboard."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms import entry
from bench import options as command
from bench.budget import TUNED
from bench.console import exit_status, report_problem
from bench.errors import EXIT_INTERRUPTED, EXIT_OK, EnvironmentProblem, UsageError
from bench.execution import (
    Execution,
    cpu_count,
    default_out,
    packs_train_together,
    resolve_device,
    resolve_pack,
)
from bench.identity import identity_json
from bench.plan import Plan, make_plan
from bench.ready import check_out, prepare_data
from bench.shares import default_share, share
from bench.streams import UnreadError
from bench.tuning.runner import Outcome, Resources, missing_units, run_plan, trials_of
from bench.under_way import any_saved
from bench.unit import Unit
from bench.values import logs_of, result_folder, tracks_of
from bench.words import counted
from leaderboards import Store, StoreError
from leaderboards.commands import shell_command

if TYPE_CHECKING:
    from bench.tuning.progress import Observer


@dataclass(frozen=True)
class Resolved:
    """What a sweep's options come to on this machine.

    Args:
        out: results folder.
        device: `cpu` or `cuda`.
        gpus: of each trial; None where a trial's share is for its pack, or for what was measured, to say.
        pack: most runs of a trial.
    """

    out: Path
    device: str
    gpus: float | None
    pack: int


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["reproduce"]:
        from bench.reproduce import main as reproduce

        return reproduce(argv[1:])
    return exit_status(lambda: _sweep(argv), verbose="-v" in argv or "--verbose" in argv)


def _sweep(argv: list[str]) -> int:
    try:
        given, layers = command.parse(argv)
        return _dispatch(given, layers, argv)
    except KeyboardInterrupt:
        return report_problem(KeyboardInterrupt("interrupted before anything ran"), EXIT_INTERRUPTED)


def _dispatch(given: argparse.Namespace, layers: Sequence[command.Layer], argv: list[str]) -> int:
    if given.list:
        from bench.show import print_registry

        print_registry(getattr(given, "algo", []), given.json)
        return EXIT_OK
    if given.show and not hasattr(given, "algo"):
        given.algo = ["all"]
    given.track, given.log = tracks_of(given.track), logs_of(given.log)
    plan = make_plan(command.make_request(given, layers))
    if given.show:
        from bench.show import print_spaces

        print_spaces(plan, given.json)
        return EXIT_OK
    resolved = _resolve(given, plan)
    if given.dry_run:
        from bench.dry_run import print_dry_run

        _say(_pack_notes(given, resolved))
        print_dry_run(plan, given, resolved.out, resolved.device, resolved.pack)
        return EXIT_OK
    from bench.mirror import mirror_url, mirrored

    mirror = mirror_url(given.mirror, given.offline)
    if mirror:
        check_out(resolved.out)
    with mirrored(mirror, resolved.out, None if plan.searches else {unit.key for unit in plan.units}, given.force):
        return run(plan, given, argv, resolved)


def _resolve(given: argparse.Namespace, plan: Plan) -> Resolved:
    """Raise UsageError for what cannot be on this machine, or not together."""
    _check_numbers(given)
    asked = None if given.gpus_per_trial == "auto" else given.gpus_per_trial
    device, gpus = resolve_device(given.device, asked, bool(given.address))
    runs = len(plan.units) if plan.request.scheduler == "none" else None
    pack = resolve_pack(given.pack, device, given.backend, plan.request.seeds, runs)
    _check_scheduler(given, pack, plan.request.seeds)
    return Resolved(result_folder(given.out), device, gpus, pack)


def _check_numbers(given: argparse.Namespace) -> None:
    for option, lowest in (("cpus_per_trial", 1), ("max_concurrent", 1), ("time_budget", 0), ("save_seconds", 0)):
        value = getattr(given, option)
        if value is not None and not value >= lowest:
            raise UsageError(f"--{option.replace('_', '-')} must be >= {lowest}, got {value}")
    if not given.address and given.cpus_per_trial > cpu_count():
        raise UsageError(
            f"--cpus-per-trial {given.cpus_per_trial} is more than the {counted(cpu_count(), 'core')} of this machine"
        )


def _check_scheduler(given: argparse.Namespace, pack: int, seeds: int) -> None:
    """One trial at a time leaves nothing to compare, unless it holds several configurations."""
    if given.scheduler != "none" and 1 < pack < 2 * seeds and given.search != "optuna":
        raise UsageError(
            f"--scheduler {given.scheduler} with --pack {pack} and {counted(seeds, 'seed')}: a configuration's "
            "seeds stay together and are compared within their pack, which holds one; give "
            f"--pack {8 * seeds}, at least {2 * seeds}, or --pack 1"
        )
    if given.executor == "inline" and given.scheduler != "none" and (pack == 1 or given.search == "optuna"):
        raise UsageError(
            f"--scheduler {given.scheduler} compares running trials: use --executor ray, or, without Optuna, a --pack "
            "of several runs, whose configurations are compared within their trial"
        )


def _pack_notes(given: argparse.Namespace, resolved: Resolved) -> Iterator[str]:
    if resolved.pack > 1 and not packs_train_together(resolved.device, given.backend):
        turns = "client by client (--backend loop) a pack's runs train in turn; stacked, together"
        yield f"--pack {resolved.pack}: {turns}"


def run(plan: Plan, given: argparse.Namespace, argv: Sequence[str], resolved: Resolved) -> int:
    """Run what is missing, rebuild the leaderboard, print it.

    Raises:
        UsageError: a partition that no draw satisfies.
        EnvironmentProblem: data missing, `out` not writable.
    """
    if plan.cells and not plan.units:
        raise UsageError("nothing to run: " + "; ".join(plan.notes))
    from bench.track import Tracking
    from bench.tuning.log_writer import logged

    check_out(resolved.out)
    store = Store(resolved.out)
    units = missing_units(plan, store, given.force, plan.request.scheduler == "asha")
    tracking = Tracking(plan, units, resolved.out, given.track, given.force)
    _announce(plan, units)
    _say(tracking.before())
    _say(_pack_notes(given, resolved))
    status = EXIT_OK
    with logged(given.log, plan, units, store, offline=given.offline, fresh=given.force, say=_say) as observers:
        if units or plan.searches:
            execution = _execution(given, argv, resolved)
            prepare_data(plan, units, execution)
            resources = _resources(given, resolved, units, store)
            outcome = _run_missing(plan, units, execution, resources, given.quiet, observers)
            keys = None if plan.searches else {unit.key for unit in units}
            _say_ended(outcome, given.verbose, any_saved(resolved.out, keys))
            status = outcome.exit_status
            _say(tracking.after())
    _compact(store)
    _rebuild(store)
    with suppress(UnreadError):  # what the trials came to stands, whoever reads the tables
        _print_board(plan, resolved.out, given.json)
        sys.stdout.flush()
    return status


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


def _resources(given: argparse.Namespace, resolved: Resolved, units: Sequence[Unit], store: Store) -> Resources:
    gpus = resolved.gpus
    if gpus is None:
        measured = given.gpus_per_trial == "auto"
        gpus = share(units, resolved.pack, store) if measured else default_share(resolved.pack)
    return Resources(
        executor=given.executor,
        concurrent=given.max_concurrent,
        cpus=given.cpus_per_trial,
        gpus=gpus,
        address=given.address,
        time_budget=given.time_budget,
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
    from bench.tuning.search import remaining

    trials = len(trials_of(plan, units, resources.pack))
    trials += sum(remaining(plan, search, execution.out) for search in plan.searches)
    display, table = make_display(trials, quiet)
    try:
        return run_plan(plan, units, execution, resources, display, [*table, *observers])
    finally:
        display.close()


def _say_ended(outcome: Outcome, verbose: bool, saved: bool) -> None:
    """What the user has to know of a sweep that did not end well. `saved`: whether a run has a state to go on from."""
    if outcome.interrupted:
        sys.stderr.write(f"interrupted{_interrupted(outcome, saved)}\n")
    for problem in dict.fromkeys(outcome.problems):
        sys.stderr.write(f"problem: {problem}\n")
    tracebacks = list(dict.fromkeys(outcome.tracebacks))
    if verbose:
        sys.stderr.write("\n".join(tracebacks))
    elif tracebacks:
        _say(["failed runs are tried again by the same command; with --verbose it prints their tracebacks"])


def _interrupted(outcome: Outcome, saved: bool) -> str:
    """What there is of a sweep that was interrupted, and what the same command does."""
    if saved:
        return ": what was under way is saved; the same command goes on from there"
    if set(outcome.statuses) - {"interrupted"}:
        return " between two runs: those that ended are stored; the same command goes on with the others"
    return " before any run had done a round: there is nothing to save; the same command begins anew, give it more time"


def _announce(plan: Plan, units: Sequence[Unit]) -> None:
    _say(plan.notes)
    done = len(plan.units) - len(units)
    if plan.units:
        stored = f", {done} already stored" if done else ""
        sys.stderr.write(f"{counted(len(plan.units), 'run')}{stored}, {len(units)} to do\n")


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        sys.stderr.write(f"note: {note}\n")


def _compact(store: Store) -> None:
    """Pack the small files if they are many. What prevents it is worth a note only: the runs are stored."""
    from leaderboards.compaction import compact_if_many

    try:
        compact_if_many(store)
    except (OSError, StoreError) as error:
        later = shell_command("bench.boards", "compact", store.out)
        sys.stderr.write(f"note: the small files of this folder were not compacted ({error}); `{later}` does it\n")


def _rebuild(store: Store) -> None:
    try:
        if store.status():
            store.rebuild()
    except OSError as error:
        raise EnvironmentProblem(
            f"the leaderboard cannot be written: {error}; the runs are stored, give the same command again"
        ) from None


def _print_board(plan: Plan, out: Path, as_json: bool) -> None:
    """The tables of the sweep's own algorithms and settings."""
    from bench.render import print_leaderboard

    names = {name for unit in plan.units for name in unit.row_names.values()}
    names |= {name for search in plan.searches for name in entry(search.algorithm).rows.values()}
    settings = {unit.setting for unit in plan.units} | {search.setting for search in plan.searches}
    where = {
        "algorithm": sorted(names),
        "setting_json": sorted(map(identity_json, settings)),
    }
    tuned = TUNED if plan.request.budget else ()
    print_leaderboard(out, where=where, style="json" if as_json else "table", tuned=tuned, file=sys.stdout)
    if tuned and not as_json:
        folder = () if out == default_out().resolve() else ("--out", out)
        again = shell_command("bench.compare", "--tuned", *tuned, *folder)
        _say([f"selected over {', '.join(tuned)} as well; again: {again}"])


if __name__ == "__main__":
    sys.exit(main())
