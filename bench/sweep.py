"""`python -m bench.sweep`: plan a sweep, run what is missing of it, print its leaderboard."""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms import entry
from bench import options as command
from bench.budget import TUNED
from bench.console import report_problem
from bench.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, EnvironmentProblem, UsageError
from bench.execution import (
    Execution,
    count_gpus,
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
from bench.tuning.runner import Outcome, Resources, missing_units, run_plan, trials_of
from bench.unit import Unit
from bench.values import logs_of, tracks_of
from bench.words import counted
from leaderboards import Store, StoreError

if TYPE_CHECKING:
    from bench.tuning.progress import Observer


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["reproduce"]:
        from bench.reproduce import main as reproduce

        return reproduce(argv[1:])
    verbose = "-v" in argv or "--verbose" in argv
    try:
        given, layers = command.parse(argv)
        return _dispatch(given, layers, argv)
    except UsageError as error:
        return report_problem(error, EXIT_USAGE, verbose)
    except (EnvironmentProblem, StoreError) as error:
        return report_problem(error, EXIT_ENVIRONMENT, verbose)
    except KeyboardInterrupt:
        return report_problem(KeyboardInterrupt("interrupted before anything ran"), EXIT_INTERRUPTED)


def _dispatch(given: argparse.Namespace, layers: Sequence[command.Layer], argv: list[str]) -> int:
    if given.list:
        from bench.show import print_registry

        print_registry(getattr(given, "algo", []), given.json)
        return EXIT_OK
    if given.show and not hasattr(given, "algo"):
        given.algo = ["all"]
    given.track = tracks_of(given.track)
    given.log = logs_of(given.log)
    request = command.make_request(given, layers)
    plan = make_plan(request)
    if given.show:
        from bench.show import print_spaces

        print_spaces(plan, given.json)
        return EXIT_OK
    _check_numbers(given)
    out = Path(given.out).resolve() if given.out else default_out().resolve()
    gpus = None if given.gpus_per_trial == "auto" else given.gpus_per_trial
    device, gpus = resolve_device(given.device, gpus, bool(given.address))
    packs_itself = given.pack == "auto"
    given.pack = resolve_pack(given.pack, device, given.backend, plan.request.seeds)
    if packs_itself and count_gpus() > 1 and plan.request.scheduler == "none":  # no GPU shall wait for the others
        given.pack = max(1, min(given.pack, math.ceil(len(plan.units) / count_gpus())))
    _check_scheduler(given, plan.request.seeds)
    if given.dry_run:
        from bench.dry_run import print_dry_run

        _say(_pack_notes(given, device))
        print_dry_run(plan, given, out, device)
        return EXIT_OK
    from bench.mirror import mirror_url, mirrored

    mirror = mirror_url(given.mirror, given.offline)
    if mirror:
        check_out(out)
    with mirrored(mirror, out, None if plan.searches else {unit.key for unit in plan.units}, given.force):
        return run(plan, given, argv, out, device, gpus)


def _check_numbers(given: argparse.Namespace) -> None:
    for option, lowest in (("cpus_per_trial", 1), ("max_concurrent", 1), ("time_budget", 0), ("save_seconds", 0)):
        value = getattr(given, option)
        if value is not None and value < lowest:
            raise UsageError(f"--{option.replace('_', '-')} must be >= {lowest}, got {value}")
    if not given.address and given.cpus_per_trial > cpu_count():
        raise UsageError(
            f"--cpus-per-trial {given.cpus_per_trial} is more than the {counted(cpu_count(), 'core')} of this machine"
        )


def _check_scheduler(given: argparse.Namespace, seeds: int) -> None:
    """One trial at a time leaves nothing to compare, unless it holds several configurations."""
    if given.scheduler != "none" and 1 < given.pack < 2 * seeds and given.search != "optuna":
        raise UsageError(
            f"--scheduler {given.scheduler} with --pack {given.pack} and {counted(seeds, 'seed')}: a configuration's "
            "seeds stay together and are compared within their pack, which holds one; give "
            f"--pack {8 * seeds}, at least {2 * seeds}, or --pack 1"
        )
    if given.executor == "inline" and given.scheduler != "none" and (given.pack == 1 or given.search == "optuna"):
        raise UsageError(
            f"--scheduler {given.scheduler} compares running trials: use --executor ray, or, without Optuna, a --pack "
            "of several runs, whose configurations are compared within their trial"
        )


def _pack_notes(given: argparse.Namespace, device: str) -> Iterator[str]:
    if given.pack > 1 and not packs_train_together(device, given.backend):
        yield f"--pack {given.pack}: client by client (--backend loop) a pack's runs train in turn; stacked, together"


def run(plan: Plan, given: argparse.Namespace, argv: Sequence[str], out: Path, device: str, gpus: float | None) -> int:
    """Run what is missing, rebuild the leaderboard, print it.

    Raises:
        UsageError: a partition that no draw satisfies.
        EnvironmentProblem: data missing, `out` not writable.
    """
    if plan.cells and not plan.units:
        raise UsageError("nothing to run: " + "; ".join(plan.notes))
    from bench.track import Tracking
    from bench.tuning.log_writer import logged

    check_out(out)
    store = Store(out)
    units = missing_units(plan, store, given.force, plan.request.scheduler == "asha")
    tracking = Tracking(plan, units, out, given.track, given.force)
    _announce(plan, units)
    _say(tracking.before())
    _say(_pack_notes(given, device))
    status = EXIT_OK
    with logged(given.log, plan, units, store, offline=given.offline, fresh=given.force, say=_say) as observers:
        if units or plan.searches:
            execution = _execution(given, argv, out, device)
            prepare_data(plan, units, execution)
            if gpus is None:
                gpus = share(units, given.pack, store) if given.gpus_per_trial else default_share(given.pack)
            outcome = _run_missing(plan, units, execution, _resources(given, gpus), given.quiet, observers)
            _say_ended(outcome, given.verbose)
            status = outcome.exit_status
            _say(tracking.after())
    _compact(store)
    _rebuild(store)
    _print_board(plan, out, given.json)
    return status


def _execution(given: argparse.Namespace, argv: Sequence[str], out: Path, device: str) -> Execution:
    from bench import provenance

    return Execution(
        out=str(out),
        data_dir=str(Path(given.data_dir).resolve()) if given.data_dir else None,
        offline=given.offline,
        device=device,
        backend=given.backend,
        threads=given.cpus_per_trial,
        force=given.force,
        save_seconds=given.save_seconds,
        track=given.track,
        provenance=provenance.of_command(argv),
    )


def _resources(given: argparse.Namespace, gpus: float) -> Resources:
    return Resources(
        executor=given.executor,
        concurrent=given.max_concurrent,
        cpus=given.cpus_per_trial,
        gpus=gpus,
        address=given.address,
        time_budget=given.time_budget,
        pack=given.pack,
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


def _say_ended(outcome: Outcome, verbose: bool) -> None:
    """What the user has to know of a sweep that did not end well."""
    if outcome.interrupted:
        sys.stderr.write("interrupted: what was under way is saved; the same command goes on from there\n")
    for problem in dict.fromkeys(outcome.problems):
        sys.stderr.write(f"problem: {problem}\n")
    tracebacks = list(dict.fromkeys(outcome.tracebacks))
    if verbose:
        sys.stderr.write("\n".join(tracebacks))
    elif tracebacks:
        _say(["failed runs are tried again by the same command; with --verbose it prints their tracebacks"])


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
        later = f"python -m bench.boards compact {store.out}"
        sys.stderr.write(f"note: the files of single runs were not packed ({error}); `{later}` does it\n")


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
        _say([f"selected over {', '.join(tuned)} as well; again: python -m bench.compare --tuned {' '.join(tuned)}"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(1)
