"""What a sweep's options come to on this machine. Imports neither torch nor ray."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.execution import cpu_count, packs_train_together, resolve_device, resolve_pack
from bench.executors.runner import trials_of
from bench.planning.plan import Plan
from bench.planning.shares import default_share, share
from bench.planning.unit import Unit
from bench.terminal.values import result_folder
from bench.terminal.words import counted
from leaderboards import Store


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


def resolve(given: argparse.Namespace, plan: Plan) -> Resolved:
    """What the options come to.

    Raises:
        UsageError: what cannot be on this machine, or not together.
    """
    _check_numbers(given)
    asked = None if given.gpus_per_trial == "auto" else given.gpus_per_trial
    device, gpus = resolve_device(given.device, asked, bool(given.address))
    runs = len(plan.units) if plan.request.scheduler == "none" else None
    pack = resolve_pack(given.pack, device, given.backend, plan.request.seeds, runs)
    _check_scheduler(given, pack, plan.request.seeds)
    _check_address(given)
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


def _check_address(given: argparse.Namespace) -> None:
    if given.address and given.executor == "inline":
        raise UsageError(f"--address {given.address} names a Ray cluster: use --executor ray, or leave --address out")


def trial_share(
    given: argparse.Namespace, resolved: Resolved, plan: Plan, units: Sequence[Unit], store: Store
) -> float:
    """How much of a GPU each trial gets: as said, or by the most runs that one holds. `units`: those to do."""
    if resolved.gpus is not None:
        return resolved.gpus
    # A configuration that Optuna chooses is a trial of its own, all its seeds together.
    held = [plan.request.seeds] * bool(plan.searches)
    runs = max([*held, *map(len, trials_of(plan, units, resolved.pack))], default=1)
    runs = runs if packs_train_together(resolved.device, given.backend) else 1
    return share([*units, *plan.searches], runs, store) if given.gpus_per_trial == "auto" else default_share(runs)


def pack_notes(given: argparse.Namespace, resolved: Resolved) -> Iterator[str]:
    """What the user should know of packs."""
    if resolved.pack > 1 and not packs_train_together(resolved.device, given.backend):
        turns = "client by client (--backend loop) a pack's runs train in turn; stacked, together"
        yield f"--pack {resolved.pack}: {turns}"
