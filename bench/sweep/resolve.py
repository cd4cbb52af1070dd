"""From a sweep's options to a `Request`, and to what of them depends on the machine. Imports neither torch nor ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.execution import UNPACKED_SHARE, cpu_count, packs_train_together, resolve_device, resolve_pack
from bench.executors.trials import trials_of
from bench.planning.model import Plan
from bench.planning.request import Request
from bench.planning.run_spec import RunSpec
from bench.sweep.options import SweepOptions
from bench.sweep.preflight import full_keys
from bench.terminal.values import result_folder
from bench.terminal.words import counted


def make_request(options: SweepOptions) -> Request:
    """Say what the options ask to run; raises UsageError if they exclude each other or lack an algorithm or model."""
    given = options.given
    if "num_samples" in given and (options.budget or options.search == "grid"):
        raise UsageError(
            f"--num-samples {options.num_samples} is for --search random or --search optuna, and --budget has a number "
            "of its own: leave it out"
        )
    _check_confirm(options)
    if not options.algo and not options.table:
        raise UsageError("--algo is missing: name an algorithm, several, or all; --list shows them")
    values = dict(options.values)
    if "start_from" in values:
        values["start_from"] = full_keys(values["start_from"], result_folder(options.out))
    seeds = options.seeds
    if options.table and options.paper and "seeds" not in given:
        from bench.planning.tables import table_of

        seeds = table_of(options.paper, options.table)[1].runs
    return Request(
        algorithms=options.algo,
        dataset=options.dataset if "dataset" in given or not options.table else "",
        paper=options.paper,
        values=values,
        origins=options.origins,
        seeds=seeds,
        search=options.search,
        num_samples=options.num_samples,
        budget=options.budget or 0,
        scheduler=options.scheduler,
        confirm=options.confirm or 0,
        confirm_at=options.confirm_at,
        force=options.force,
        table=options.table,
    )


def _check_confirm(options: SweepOptions) -> None:
    """Refuse what `--confirm` excludes: the seeds of a search and of its confirmation are told by it alone."""
    if options.confirm_at and not options.confirm:
        raise UsageError("--confirm-at says where --confirm runs what the search chose: give --confirm 3, too")
    if options.confirm and "seeds" in options.given:
        reported = f"reports seeds 1 to {options.confirm}"
        raise UsageError(f"--confirm {options.confirm} searches seed 0 and {reported}: leave --seeds out")
    if options.confirm and options.table:
        raise UsageError("--table runs a paper's own configurations on its own seeds: leave out --confirm, or --table")


@dataclass(frozen=True)
class Resolved:
    """The options that depend on the machine, resolved."""

    out: Path  # results folder
    device: str  # `cpu` or `cuda`
    gpus: float | None  # of each trial; None if its pack decides
    pack: int  # most runs of a trial


def resolve(options: SweepOptions, plan: Plan) -> Resolved:
    """Resolve what depends on the machine; raises UsageError for an option that it cannot meet."""
    if not options.address and options.cpus_per_trial > cpu_count():
        raise UsageError(
            f"--cpus-per-trial {options.cpus_per_trial} is more than the {counted(cpu_count(), 'core')} of this machine"
        )
    device, gpus = resolve_device(options.device, options.gpus_per_trial, bool(options.address))
    runs = len(plan.units) if plan.request.scheduler == "none" else None
    pack = resolve_pack(options.pack, device, options.backend, plan.request.seeds, runs)
    _check_scheduler(options, pack, plan.request.seeds)
    if options.address and options.executor == "inline":
        raise UsageError(f"--address {options.address} names a Ray cluster: use --executor ray, or leave --address out")
    return Resolved(result_folder(options.out), device, gpus, pack)


def _check_scheduler(options: SweepOptions, pack: int, seeds: int) -> None:
    """Refuse ASHA where one trial at a time, of one configuration, leaves nothing to compare."""
    if options.scheduler != "none" and 1 < pack < 2 * seeds and options.search != "optuna":
        raise UsageError(
            f"--scheduler {options.scheduler} with --pack {pack} and {counted(seeds, 'seed')}: a configuration's "
            "seeds stay together and are compared within their pack, which holds one; give "
            f"--pack {8 * seeds}, at least {2 * seeds}, or --pack 1"
        )
    if options.executor == "inline" and options.scheduler != "none" and (pack == 1 or options.search == "optuna"):
        raise UsageError(
            f"--scheduler {options.scheduler} compares running trials: use --executor ray, or, without Optuna, a "
            "--pack of several runs, whose configurations are compared within their trial"
        )


def trial_share(options: SweepOptions, resolved: Resolved, plan: Plan, units: Sequence[RunSpec]) -> float:
    """The share of a GPU of each trial: as given, or by the most runs that one holds. `units`: those to do.

    A pack has a GPU to itself; runs of one small model share it.
    """
    if resolved.gpus is not None:
        return resolved.gpus
    # A configuration that Optuna chooses is a trial of its own, all its seeds together.
    held = [plan.request.seeds] * bool(plan.searches)
    runs = max([*held, *map(len, trials_of(plan, units, resolved.pack))], default=1)
    return 1.0 if runs > 1 and packs_train_together(resolved.device, options.backend) else UNPACKED_SHARE
