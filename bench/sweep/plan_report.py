"""The figures of a dry run: the runs of a plan, feasible partitions, and the cost.

Imports neither torch nor ray.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from algorithms import entry
from bench.data import hashes, info_of
from bench.execution import Execution
from bench.executors.trials import missing_run_specs, trials_of
from bench.machine import count_gpus, cpu_count
from bench.models import num_parameters
from bench.planning.cost_model import (
    Pace,
    Time,
    estimated_time,
    measured_paces,
    recorded_rates,
    recorded_time,
)
from bench.planning.packing import fitting, program_of
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec
from bench.planning.search import Search, first_run
from bench.planning.trial_names import trial_name, varied_names
from bench.sweep.feasible import partition_status
from bench.sweep.preflight import gpu_share, mirror_url, other_data_notes, track_notes
from bench.sync.mirror import check_place
from leaderboards import Store
from leaderboards.rows.schema import own_name
from search_spaces import Grid, Setting

PROCESS_BYTES = 900 * 2**20  # python, torch and ray in one worker, measured
ROW_BYTES = 60 * 2**10  # a row and its curve file

Report = dict[str, Any]  # as `--json` prints it


def make_report(plan: Plan, execution: Execution) -> Report:
    """Collect the figures of a dry run, as `--json` prints them.

    Times are in seconds, None if unknown. Raises UsageError for an invalid mirror.
    """
    options = plan.options
    seeds = options.seeds
    out = Path(execution.out)
    data_hashes = hashes(plan.datasets, options.data_dir)
    store = Store(out, data_hashes)
    missing = missing_run_specs(plan, store)
    mirror = mirror_url(options.mirror, options.offline)
    if mirror:
        check_place(mirror, out)
    samples = [sample_run(search) for search in plan.searches]
    times = _times(execution, [*missing, *samples])
    searches = _search_reports(plan, [times[sample.key] for sample in samples], out, data_hashes)
    trials = trials_of(plan, missing, execution.pack)
    gpus = gpu_share(plan, execution, trials)
    concurrent = _concurrent(execution, gpus)
    sizes = [len(trial) for trial in trials]
    chosen = sum(search["runs_at_most"] for search in searches)
    at_once = min(concurrent, max(1, len(sizes) + chosen // seeds))
    work = [(run_spec, 1) for run_spec in missing]
    for sample, search in zip(samples, searches, strict=True):
        work.append((sample, search["runs_at_most"]))
    report = table_report(plan) if plan.places else {}
    report["paper"] = plan.paper  # that the setting is from
    report |= {
        "runs": len(plan.run_specs),
        "to_do": len(missing),  # of these, not stored
        "seeds": len({run_spec.seed for run_spec in plan.run_specs}) or seeds,
        "packs": sizes if execution.pack > 1 else [],  # runs of each trial, if it holds several
        "concurrent_trials": concurrent,  # that have room
        "trials_at_once": at_once,
    }
    report |= _duration(work, times, at_once)
    report |= _bytes(plan, len(missing), sizes, at_once)
    report |= _later_runs(plan, store, searched=not missing and not searches)
    report |= {
        "out": execution.out,
        # Setting field -> where its value came from, if not from the preset.
        "origins": dict(plan.origins),
        "notes": [
            *plan.notes,
            *other_data_notes(plan, out, data_hashes),
            *track_notes(plan, missing, out),
        ],
        "trials": _configuration_reports(plan, times),
        "searches": searches,
    }
    report["notes"] += _infeasible_confirmations(plan)
    if mirror:
        report["notes"].append(
            f"mirror {mirror}: not contacted; runs that it already has are fetched first and not "
            "repeated"
        )
    return report


def _duration(
    work: Sequence[tuple[RunSpec, int]], times: Mapping[str, Time], at_once: int
) -> Report:
    """Describe the time of a whole sweep, which takes as long as its longest run at least.

    Args:
        work: the runs to do, and one of each search, with the number of such runs.
        times: run key -> time of one.
        at_once: trials that run side by side.
    """
    known: list[tuple[int, Time]] = []
    unknown = set()
    for run_spec, count in work:
        if count and times[run_spec.key].known:
            known.append((count, times[run_spec.key]))
        elif count:
            unknown.add(run_spec.setting.client_models or run_spec.setting.model)
    totals = {}
    for which in ("low", "middle", "high"):
        total = 0.0
        longest = 0.0
        for count, time in known:
            seconds = getattr(time, which)
            total += count * seconds
            longest = max(longest, seconds)
        totals[which] = max(total / at_once, longest)
    return {
        "seconds": None if unknown else totals["middle"],
        "seconds_at_least": totals["low"],  # of the runs whose time is known
        "seconds_at_most": None if unknown else totals["high"],
        # In part, by a measurement of this machine.
        "estimated": any(times[run_spec.key].estimated for run_spec, _ in work),
        "models_without_rate": sorted(unknown),  # of runs whose time is unknown
    }


def _bytes(plan: Plan, missing: int, sizes: Sequence[int], at_once: int) -> Report:
    """Estimate the memory of a trial, and the disk that a sweep takes.

    `missing` runs are to do, in trials of `sizes`; a search's trials have all seeds.
    """
    largest = max([*sizes, plan.options.seeds] if plan.searches else sizes, default=1)
    states = at_once * largest if plan.searches else min(at_once * largest, missing)
    largest_model = max(map(_model_bytes, plan.settings))
    memory = [_memory(setting, largest) for setting in plan.settings]
    return {
        "memory_bytes_per_trial": max(memory),
        # Of new rows, and of the states of runs at work.
        "disk_bytes": missing * ROW_BYTES + states * 8 * largest_model,
        "tracked": bool(plan.options.track),  # if so, `disk_bytes` leaves out those files
    }


def _later_runs(plan: Plan, store: Store, searched: bool) -> Report:
    """Count the runs that follow the search; those that are not stored once it is `searched`.

    The numbers of all such runs include stored ones.
    """
    second_runs = 0
    second_to_do: int | None = None
    confirming_to_do: int | None = None
    if plan.stages:
        from bench.planning.two_stage import count_second_stage, second_stage

        second_runs = count_second_stage(plan)
        if searched:
            second = second_stage(plan, store.runs())
            second_to_do = len(missing_run_specs(second, store))
    if plan.confirming and searched and not second_to_do:
        from bench.planning.confirm import confirmation

        confirming_to_do = len(missing_run_specs(confirmation(plan, store.runs()), store))
    return {
        "second_stage_runs": second_runs,
        "second_stage_to_do": second_to_do,
        "confirming_runs_at_most": len(plan.confirming),
        "confirming_runs_to_do": confirming_to_do,
    }


def _concurrent(execution: Execution, gpus: float) -> int:
    """Count the trials that run at once.

    `gpus`: each one's share of a GPU; a remote cluster's size is unknown here.
    """
    if execution.executor == "inline":
        return 1
    share = 0.0 if execution.address else gpus
    fit = max(1, fitting(cpu_count(), count_gpus(), execution.threads, share))
    requested = execution.concurrent or fit
    return requested if execution.address else min(fit, requested)


def _times(execution: Execution, missing: Sequence[RunSpec]) -> dict[str, Time]:
    """Estimate the time of each missing run, by run key.

    It is known from stored runs of its algorithm, else by measuring this CPU. If nothing can be
    measured, the stored runs of other algorithms on the same data set and model are used.
    """
    rates = recorded_rates(Store(Path(execution.out)), execution.device)
    times = {run_spec.key: recorded_time(rates, run_spec) for run_spec in missing}
    unknown = [run_spec for run_spec in missing if not times[run_spec.key].known]
    paces: Mapping[Hashable, Pace] = {}
    on_cpu = execution.device == "cpu" and not execution.address
    if on_cpu and execution.backend != "stacked":
        paces = measured_paces(unknown, execution.threads)
    for run_spec in unknown:
        pace = paces.get(program_of(run_spec))
        if pace:
            times[run_spec.key] = estimated_time(run_spec, pace)
        else:
            times[run_spec.key] = recorded_time(rates, run_spec, of_all=True)
    return times


def _configuration_reports(plan: Plan, times: Mapping[str, Time]) -> list[Report]:
    """Describe the plan's configurations, each in one setting, over its seeds.

    `times`: of runs to do, by run key.
    """
    varied = varied_names(plan.run_specs)
    configurations = []
    for _, members in groupby(plan.run_specs, key=attrgetter("configuration")):
        run_specs = list(members)
        run_spec = run_specs[0]
        keys = [member.key for member in run_specs]
        to_do = [key for key in keys if key in times]
        time = times[to_do[0]] if to_do else Time(0.0, 0.0)
        seeds = dict.fromkeys(member.setting.partition_seed_of(member.seed) for member in run_specs)
        configurations.append(
            {
                "name": trial_name([run_spec], varied).removesuffix(f" seed {run_spec.seed}"),
                "algorithm": run_spec.algorithm,
                "hyperparameters": dict(run_spec.hyperparameters),
                "setting": run_spec.setting.as_dict(),
                "run_keys": keys,
                "to_do": len(to_do),
                "partition": partition_status(run_spec, [*seeds], plan.options.data_dir),
                "seconds_per_run": time.middle if time.known else None,
                "seconds_per_run_at_least": time.low if time.known else None,
                "seconds_per_run_at_most": time.high if time.known else None,
            }
        )
    return configurations


def _infeasible_confirmations(plan: Plan) -> list[str]:
    """Describe the partitions of runs that may follow the search which cannot be drawn."""
    seeds_of: dict[tuple[str, Setting], list[int]] = {}
    first_of: dict[tuple[str, Setting], RunSpec] = {}
    for run_spec in plan.confirming:
        case = (run_spec.algorithm, run_spec.setting)
        first_of.setdefault(case, run_spec)
        seeds_of.setdefault(case, []).append(run_spec.seed)
    notes: dict[str, None] = {}
    for case, run_spec in first_of.items():
        status = partition_status(run_spec, seeds_of[case], plan.options.data_dir)
        if status.startswith("NOT"):
            notes[f"confirming runs are {status}"] = None
    return list(notes)


def _search_reports(
    plan: Plan, times: Sequence[Time], out: Path, data_hashes: Mapping[str, str]
) -> list[Report]:
    """Describe the plan's searches by Optuna, and the runs that they may add.

    `times`: of a run of each; `data_hashes`: data set -> hash of the data at hand.
    """
    if not plan.searches:
        return []
    from bench.executors.optuna_search import past_tries

    seeds = plan.options.seeds
    wanted = plan.options.configurations
    searches = []
    pasts = past_tries(plan, str(out), data_hashes)
    for past, time in zip(pasts, times, strict=True):
        search = past.search
        space = {}
        for name, values in search.tuned.items():
            if values != Grid(getattr(search.setting, name)):
                space[name] = str(values)
        for name, values in search.values.items():
            if len(values.values) > 1:
                space[own_name(search.algorithm, name)] = str(values)
        searches.append(
            {
                "algorithm": search.algorithm,
                "setting": search.setting.as_dict(),
                "space": space,  # values or interval of each hyper-parameter that has several
                "relations": list(search.where),
                "source": search.source,
                # Stored ones included.
                "configurations": past.possible(wanted),
                "runs_at_most": seeds * past.remaining(wanted),  # still to do
                "partition": partition_status(search, range(seeds), plan.options.data_dir),
                "seconds_per_run_at_most": time.high if time.known else None,
            }
        )
    return searches


def sample_run(search: Search) -> RunSpec:
    """Make one run of a search; its time is the estimate for all of them."""
    values = {name: grid.values[0] for name, grid in search.values.items()}
    return first_run(search, entry(search.algorithm).resolve(values))


def _model_bytes(setting: Setting) -> int:
    """Count the bytes of the largest model of a setting."""
    data = info_of(setting)
    counts = [num_parameters(name, data.input_shape, data.num_classes) for name in setting.models]
    return 4 * max(counts)


def _memory(setting: Setting, pack: int = 1) -> float:
    """Estimate the bytes of a trial of `pack` runs.

    They are of the process, three data sets, a client's crops and inputs, and models.
    """
    data = info_of(setting)
    image = math.prod(data.input_shape)
    pixels = (data.train_size + data.test_size) * image
    client = data.train_size / setting.num_clients * image * 8
    public = setting.public_set[1] * image * 4 if setting.public_set else 0
    models = 8 * setting.cohort_size * _model_bytes(setting)
    return PROCESS_BYTES + 3 * pixels + pack * public + pack * (client + models)


def table_report(plan: Plan) -> Report:
    """Name the table, and count its places, the models evaluated for them, and the runs."""
    keys = set()
    for place in plan.places:
        keys |= {run_spec.key for run_spec in place.run_specs}
    return {
        "table": plan.places[0].printed.table,
        "printed_cells": len(plan.places),
        "models_evaluated": len(keys) * plan.options.seeds,
        "runs": len(plan.run_specs),
    }
