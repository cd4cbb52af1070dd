"""`--dry-run`: what would run, where each value comes from, whether the partitions exist, and the cost.

Imports neither torch nor ray.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from algorithms import entry
from bench.data import groups, info, labels
from bench.execution import count_gpus, cpu_count
from bench.models import num_parameters
from bench.planning.confirm import stand_ins
from bench.planning.labels import trial_name, varied_names
from bench.planning.packs import program_of
from bench.planning.plan import Plan
from bench.planning.shares import fitting
from bench.planning.unit import Unit
from bench.planning.work import RecordedRates, Time, estimated_time
from bench.sweep.dry_run_summary import print_summary
from bench.sweep.paces import measured_paces
from bench.sweep.resolve import Resolved, trial_share
from bench.sync.place import local_folder
from bench.sync.session import check_place, mirror_url
from bench.terminal.console import console
from bench.terminal.words import span
from bench.tuning.runner import missing_units, trials_of
from leaderboards import Store
from leaderboards.commands import typed
from search_spaces import Setting

PROCESS_BYTES = 900 * 2**20  # python, torch and ray in one worker, measured
ROW_BYTES = 60 * 2**10  # a row and its curve file
SEEDS_LOOKED_AT = 100  # of a configuration, for whether their partitions exist: milliseconds each; a sweep looks at all


@dataclass(frozen=True)
class Line:
    """One configuration in one setting, over its seeds."""

    name: str
    units: tuple[Unit, ...]
    to_do: int
    partition: str
    time: Time


def print_dry_run(plan: Plan, given: argparse.Namespace, resolved: Resolved) -> None:
    """Print the resolved setting and the table of trials. Downloads nothing, and asks nothing of the network."""
    out = resolved.out
    store = Store(out)
    mirror = _mirror(plan, given, out, missing_units(plan, store))
    lines = _lines(plan, {unit.key for unit in mirror.missing}, RecordedRates(store, resolved.device), given.data_dir)
    if resolved.device == "cpu" and given.backend != "stacked" and not given.address:
        lines = _estimated(lines, given.cpus_per_trial)
    concurrent = _concurrent(given, trial_share(given, resolved, plan, mirror.missing, store))
    summary = _summary(plan, concurrent, resolved.pack, mirror, lines) | {"out": str(out)}
    if plan.cells:
        from bench.sweep.dry_run_table import print_cells, summary_of

        summary |= summary_of(plan) | {"runs": len(plan.units)}
    if given.json:
        sys.stdout.write(json.dumps(_as_json(plan, lines, summary), indent=2) + "\n")
        return
    if plan.cells:
        print_cells(plan)
    if plan.units or plan.searches:
        _print_setting(plan)
        _print_hyperparameters(plan)
        _print_lines(plan, lines)
    print_summary(plan, summary)


def _concurrent(given: argparse.Namespace, gpus: float) -> int:
    """Trials at once, each with a share of a GPU; how large a cluster is, nobody knows here."""
    if given.executor == "inline":
        return 1
    fit = max(1, fitting(cpu_count(), count_gpus(), given.cpus_per_trial, 0.0 if given.address else gpus))
    asked: int = given.max_concurrent or fit
    return asked if given.address else min(fit, asked)


def _summary(plan: Plan, concurrent: int, pack: int, mirror: _Mirrored, lines: Sequence[Line]) -> dict[str, Any]:
    """The figures of the whole sweep; `packs` are the sizes of its trials where these hold several runs."""
    to_do = len(mirror.missing)
    packs = [len(trial) for trial in trials_of(plan, mirror.missing, pack)] if pack > 1 else []
    largest = max(packs, default=1)
    at_once = min(concurrent, max(1, len(packs) or to_do))
    unknown = {line.units[0].setting.model for line in lines if not line.time.known}
    known = [line for line in lines if line.time.known]
    least, seconds, most = (
        sum(getattr(line.time, which) * line.to_do for line in known) / at_once for which in ("low", "middle", "high")
    )
    whole = not (unknown or plan.searches)
    return {
        "paper": plan.paper,
        "runs": len(plan.units),
        "to_do": to_do,
        "seeds": len({unit.seed for unit in plan.units}) or plan.request.seeds,
        "packs": packs,
        "concurrent_trials": concurrent,
        "seconds": seconds if whole else None,
        "seconds_at_least": least,
        "seconds_at_most": most if whole else None,
        "estimated": any(line.time.estimated for line in lines),
        "models_without_rate": sorted(unknown),
        "memory_bytes_per_trial": max((_memory(setting, largest) for setting in plan.settings), default=0.0),
        "disk_bytes": _disk(plan, to_do, concurrent * largest),
        "mirror": mirror.url,
        "stored_in_mirror": mirror.stored,
        "confirming_runs_at_most": len(stand_ins(plan)),
    }


@dataclass(frozen=True)
class _Mirrored:
    """A mirror as a dry run sees it.

    Args:
        url: where it is; None where there is none.
        stored: runs that would be brought from it; None where that cannot be known without the network.
        missing: the runs that neither it nor the folder has.
    """

    url: str | None
    stored: int | None
    missing: list[Unit]


def _mirror(plan: Plan, given: argparse.Namespace, out: Path, missing: list[Unit]) -> _Mirrored:
    """What a mirror changes: a folder of this machine is looked into as the result folder is, others are not asked.

    Raises:
        UsageError: it cannot be the mirror of `out`.
    """
    url = mirror_url(given.mirror, given.offline)
    folder = local_folder(url) if url else None
    if url is None or folder is None:
        return _Mirrored(url, None, missing)
    check_place(url, out)
    request = replace(plan.request, force=False)  # rows are brought, whether or not they are made again
    left = missing_units(replace(plan, request=request, units=tuple(missing)), Store(folder))
    return _Mirrored(url, len(missing) - len(left), missing if plan.request.force else left)


def _lines(plan: Plan, missing: set[str], rates: RecordedRates, data_dir: str | None) -> list[Line]:
    varied = varied_names(plan.units)
    made = []
    for _, members in groupby(plan.units, key=lambda unit: (unit.algorithm, unit.hyperparameters, unit.setting)):
        units = tuple(members)
        unit = units[0]
        to_do = sum(member.key in missing for member in units)
        made.append(
            Line(
                name=trial_name([unit], varied).removesuffix(f" seed {unit.seed}"),
                units=units,
                to_do=to_do,
                partition=_partition(unit.setting, [member.seed for member in units], data_dir),
                time=Time(*[rates.seconds(unit.algorithm, unit.setting) if to_do else 0.0] * 2),
            )
        )
    return made


def _estimated(lines: Sequence[Line], threads: int) -> list[Line]:
    """The lines, those whose time no recorded rate tells with an estimate, as far as this machine was measured."""
    paces = measured_paces([line.units[0] for line in lines if not line.time.known], threads)
    return [
        replace(line, time=estimated_time(line.units[0], pace))
        if not line.time.known and (pace := paces.get(program_of(line.units[0])))
        else line
        for line in lines
    ]


def _partition(setting: Setting, seeds: Sequence[int], data_dir: str | None) -> str:
    """`feasible`, why not, or `unknown` where the data are not here; of very many seeds the first are looked at."""
    from bench.data.splits import split_like

    like = split_like(setting)
    for seed in seeds[:SEEDS_LOOKED_AT]:
        answer = _feasible(like, seed, data_dir)
        if answer:
            return answer
    return "feasible" if len(seeds) <= SEEDS_LOOKED_AT else f"feasible (first {SEEDS_LOOKED_AT} of {len(seeds)} seeds)"


@cache
def _feasible(setting: Setting, seed: int, data_dir: str | None) -> str:
    from bench.data.splits import feasible

    known = labels(setting.dataset, data_dir)
    if known is None:
        return "unknown: the data are not here"
    reason = feasible(setting, known, seed, groups(setting.dataset, data_dir))
    return f"NOT feasible: {reason}" if reason else ""


def _model_bytes(setting: Setting) -> int:
    data = info(setting.dataset).sized(setting.image_size)
    return 4 * num_parameters(setting.model, data.input_shape, data.num_classes)


def _memory(setting: Setting, pack: int = 1) -> float:
    """Bytes of a trial of `pack` runs, estimated: process, data set thrice, a client's crops and inputs, models."""
    data = info(setting.dataset).sized(setting.image_size)
    image = math.prod(data.input_shape)
    pixels = (data.train_size + data.test_size) * image
    client = data.train_size / setting.num_clients * image * 8
    return PROCESS_BYTES + 3 * pixels + pack * (client + 8 * setting.cohort_size * _model_bytes(setting))


def _disk(plan: Plan, to_do: int, at_once: int) -> float:
    """Bytes: the rows to come, and the states of the runs that are under way at once."""
    state = max((_model_bytes(setting) for setting in plan.settings), default=0) * 8
    return to_do * ROW_BYTES + (at_once if plan.searches else min(at_once, to_do)) * state


def _print_setting(plan: Plan) -> None:
    from rich.table import Table

    table = Table("setting", "value", "from")
    preset = f"preset {plan.paper}" if plan.paper else "default"
    for name in plan.settings[0].as_dict():
        values = dict.fromkeys(typed(setting.as_dict()[name]) for setting in plan.settings)
        table.add_row(name, ", ".join(values), plan.origins.get(name, preset))
    console().print(table)


def _print_hyperparameters(plan: Plan) -> None:
    """Every hyper-parameter of every algorithm, with all its values and whether that is the default."""
    from rich.table import Table

    values: dict[tuple[str, str], dict[str, None]] = {}
    for unit in plan.units:
        for name, value in unit.hyperparameters.items():
            values.setdefault((unit.algorithm, name), {})[typed(value)] = None
    table = Table("algorithm", "hyper-parameter", "value", "default")
    for (algorithm, name), found in values.items():
        default = typed(entry(algorithm).defaults()[name])
        table.add_row(algorithm, name, ", ".join(found), "" if list(found) == [default] else default)
    if values:
        console().print(table)


def _print_lines(plan: Plan, lines: Sequence[Line]) -> None:
    from rich.table import Table

    table = Table("configuration", "seeds", "to do", "partition", "time a run")
    for line in lines:
        time = "stored" if not line.to_do else span(line.time.low, line.time.high)
        table.add_row(line.name, str(len(line.units)), str(line.to_do), line.partition, time)
    for search in plan.searches:
        table.add_row(f"{search.algorithm}: chosen by Optuna", str(plan.request.seeds), "?", "", "unknown")
    console().print(table)


def _as_json(plan: Plan, lines: Sequence[Line], summary: dict[str, Any]) -> dict[str, Any]:
    return {
        **summary,
        "origins": dict(plan.origins),
        "notes": list(plan.notes),
        "trials": [
            {
                "algorithm": line.units[0].algorithm,
                "hyperparameters": dict(line.units[0].hyperparameters),
                "setting": line.units[0].setting.as_dict(),
                "run_keys": [unit.key for unit in line.units],
                "to_do": line.to_do,
                "partition": line.partition,
                "seconds_per_run": line.time.middle if line.time.known else None,
                "seconds_per_run_at_least": line.time.low if line.time.known else None,
                "seconds_per_run_at_most": line.time.high if line.time.known else None,
                "estimated": line.time.estimated,
            }
            for line in lines
        ],
    }
