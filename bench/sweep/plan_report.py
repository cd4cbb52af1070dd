"""`--dry-run`: the runs of a plan, the origin of each value, feasible partitions, and the cost; as text or JSON.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.data import hashes, info, read
from bench.errors import UsageError
from bench.executors.trials import missing_run_specs, trials_of
from bench.machine import count_gpus, cpu_count
from bench.models import has_batchnorm, num_parameters
from bench.planning.cost_model import (
    Time,
    estimated_time,
    measured_paces,
    recorded_rates,
    recorded_time,
)
from bench.planning.packing import fitting, program_of
from bench.planning.run_spec import (
    Plan,
    RunSpec,
    Search,
    Varied,
    run_specs_of,
    trial_name,
    varied_names,
)
from bench.planning.tables import name_in_print
from bench.sweep.options import SweepOptions
from bench.sweep.preflight import Resolved, mirror_url, other_data_notes, trial_share
from bench.sync.mirror import check_place
from bench.terminal.console import console
from bench.terminal.words import counted, duration, span
from leaderboards import Store
from leaderboards.rows.schema import own_name
from leaderboards.shell_text import typed
from search_spaces import Grid, Setting

if TYPE_CHECKING:
    from rich.console import Console

    from bench.executors.optuna_search import History

PROCESS_BYTES = 900 * 2**20  # python, torch and ray in one worker, measured
CHECKED_SEEDS = (
    100  # of a configuration; their partitions are drawn, in milliseconds each; a sweep draws all
)
ROW_BYTES = 60 * 2**10  # a row and its curve file

Report = dict[str, Any]  # as `--json` prints it


def print_dry_run(
    plan: Plan, options: SweepOptions, resolved: Resolved, confirming: Sequence[RunSpec]
) -> None:
    """Print what a sweep would do, without network access.

    `confirming`: runs that may follow the search.
    """
    report = make_report(plan, options, resolved, confirming)
    if options.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        _print_text(plan, report)


def make_report(
    plan: Plan, options: SweepOptions, resolved: Resolved, confirming: Sequence[RunSpec]
) -> Report:
    """Collect the figures of a dry run, as `--json` prints them.

    Times are in seconds, None if unknown. Raises UsageError for an invalid mirror.
    """
    data_hashes = hashes(plan.datasets, options.data_dir)
    store = Store(resolved.out, data_hashes)
    missing = missing_run_specs(plan, store)
    mirror = mirror_url(options.mirror, options.offline)
    if mirror:
        check_place(mirror, resolved.out)
    mirrored = f"mirror {mirror}: not contacted; runs that it already has are fetched first and not repeated"
    samples = [_sample_run(search) for search in plan.searches]
    times = _times(options, resolved, [*missing, *samples])
    pasts: Sequence[History] = ()
    if plan.searches:
        from bench.executors.optuna_search import histories

        pasts = histories(plan, plan.searches, str(resolved.out), data_hashes)
    sample_times = [times[run_spec.key] for run_spec in samples]
    searches = _search_reports(plan, pasts, sample_times, options.data_dir)
    concurrent = _concurrent(options, trial_share(options, resolved, plan, missing))
    sizes = [len(trial) for trial in trials_of(plan, missing, resolved.pack)]
    largest = max([*sizes, *[plan.request.seeds] * bool(searches)], default=1)
    to_do = [(run_spec, 1) for run_spec in missing]
    to_do += [
        (run_spec, search["runs_at_most"])
        for run_spec, search in zip(samples, searches, strict=True)
    ]
    known_times = [times[run_spec.key] for run_spec, _ in to_do if times[run_spec.key].known]
    trials = len(sizes) + sum(search["runs_at_most"] for search in searches) // plan.request.seeds
    at_once = min(concurrent, max(1, trials))
    parts = {
        which: [
            (getattr(times[run_spec.key], which), count)
            for run_spec, count in to_do
            if times[run_spec.key].known
        ]
        for which in ("low", "middle", "high")
    }
    low, middle, high = (  # as long as the longest run at least
        max(
            [
                sum(count * time for time, count in part) / at_once,
                *(time for time, count in part if count),
            ]
        )
        for part in parts.values()
    )
    states = at_once * largest if plan.searches else min(at_once * largest, len(missing))
    untimed = [
        run_spec.setting for run_spec, count in to_do if count and not times[run_spec.key].known
    ]
    unknown = {setting.client_models or setting.model for setting in untimed}
    second = _second_stage(plan, store) if plan.stages and not missing else None
    searched = not (missing or searches or second)
    return {
        **({"table": plan.cells[0].printed.table, **_counts(plan)} if plan.cells else {}),
        "paper": plan.paper,  # that the setting is from
        "runs": len(plan.run_specs),
        "to_do": len(missing),  # of these, not stored
        "seeds": len({run_spec.seed for run_spec in plan.run_specs}) or plan.request.seeds,
        "packs": sizes if resolved.pack > 1 else [],  # runs of each trial, if trials hold several
        "concurrent_trials": concurrent,  # that have room
        "trials_at_once": at_once,
        "seconds": None if unknown else middle,  # of the whole sweep
        "seconds_at_least": low,  # of the runs whose time is known
        "seconds_at_most": None if unknown else high,
        "estimated": any(
            time.estimated for time in known_times
        ),  # in part, by a measurement of this machine
        "models_without_rate": sorted(unknown),  # of runs whose time is unknown
        "memory_bytes_per_trial": max(
            (_memory(setting, largest) for setting in plan.settings), default=0.0
        ),
        # Of new rows, and of the states of runs at work.
        "disk_bytes": len(missing) * ROW_BYTES
        + states * 8 * max(map(_model_bytes, plan.settings), default=0),
        "tracked": bool(options.track),  # if so, `disk_bytes` leaves out those files
        "second_stage_runs": _second_stage_runs(
            plan
        ),  # that follow the first stage, stored ones included
        "second_stage_to_do": None if second is None else len(second),
        "confirming_runs_at_most": len(
            confirming
        ),  # that may follow the search, stored ones included
        "confirming_runs_to_do": _confirming_to_do(plan, store)
        if confirming and searched
        else None,
        "out": str(resolved.out),
        "origins": dict(
            plan.origins
        ),  # setting field -> where its value came from, if not from the preset
        "notes": [
            *plan.notes,
            *other_data_notes(plan, resolved.out, data_hashes),
            *_infeasible_confirmations(confirming, options.data_dir),
            *[mirrored] * bool(mirror),
        ],
        "trials": _configuration_reports(plan, times, options.data_dir),
        "searches": searches,
    }


def _concurrent(options: SweepOptions, gpus: float) -> int:
    """Count the trials that run at once.

    `gpus`: each one's share of a GPU; a remote cluster's size is unknown here.
    """
    if options.executor == "inline":
        return 1
    fit = max(
        1,
        fitting(
            cpu_count(), count_gpus(), options.cpus_per_trial, 0.0 if options.address else gpus
        ),
    )
    requested = options.max_concurrent or fit
    return requested if options.address else min(fit, requested)


def _times(
    options: SweepOptions, resolved: Resolved, missing: Sequence[RunSpec]
) -> dict[str, Time]:
    """Estimate the time of each missing run, by run key: from stored runs of its algorithm, else by measuring this CPU.

    If nothing can be measured, the stored runs of other algorithms on the same data set and model
    are used.
    """
    rates = recorded_rates(Store(resolved.out), resolved.device)
    times = {run_spec.key: recorded_time(rates, run_spec) for run_spec in missing}
    unknown = [run_spec for run_spec in missing if not times[run_spec.key].known]
    measurable = resolved.device == "cpu" and options.backend != "stacked" and not options.address
    paces = measured_paces(unknown, options.cpus_per_trial) if measurable else {}
    for run_spec in unknown:
        pace = paces.get(program_of(run_spec))
        times[run_spec.key] = (
            estimated_time(run_spec, pace) if pace else recorded_time(rates, run_spec, of_all=True)
        )
    return times


def _configuration_reports(
    plan: Plan, times: dict[str, Time], data_dir: str | None
) -> list[Report]:
    """Describe the plan's configurations, each in one setting, over its seeds.

    `times`: of runs to do, by run key.
    """
    varied = varied_names(plan.run_specs)
    configurations = []
    for _, members in groupby(plan.run_specs, key=_configuration):
        run_specs = list(members)
        run_spec, keys = run_specs[0], [member.key for member in run_specs]
        to_do = [key for key in keys if key in times]
        time = times[to_do[0]] if to_do else Time(0.0, 0.0)
        configurations.append(
            {
                "name": trial_name([run_spec], varied).removesuffix(f" seed {run_spec.seed}"),
                "algorithm": run_spec.algorithm,
                "hyperparameters": dict(run_spec.hyperparameters),
                "setting": run_spec.setting.as_dict(),
                "run_keys": keys,
                "to_do": len(to_do),
                "partition": _partition_status(run_spec, _partition_seeds(run_specs), data_dir),
                "seconds_per_run": time.middle if time.known else None,
                "seconds_per_run_at_least": time.low if time.known else None,
                "seconds_per_run_at_most": time.high if time.known else None,
            }
        )
    return configurations


def _second_stage(plan: Plan, store: Store) -> list[RunSpec]:
    """List the runs of the second stage that are not stored; all runs of the first are."""
    from bench.planning.two_stage import second_stage

    return missing_run_specs(second_stage(plan, store.runs()), store)


def _second_stage_runs(plan: Plan) -> int:
    """Count the runs of the second stage, stored ones included."""
    if not plan.stages:
        return 0
    from bench.planning.two_stage import planned

    configurations = sum(plan.request.budget - len(stages.rates) for stages in planned(plan))
    return configurations * plan.request.seeds


def _configuration(run_spec: RunSpec) -> tuple[Any, ...]:
    """Return all that the seeds and replicates of a configuration share."""
    return (
        run_spec.algorithm,
        run_spec.hyperparameters,
        replace(run_spec.setting, partition_seed=None),
    )


def _partition_seeds(run_specs: Sequence[RunSpec]) -> list[int]:
    """List the seeds of the partitions of some runs, each once."""
    return list(
        dict.fromkeys(run_spec.setting.partition_seed_of(run_spec.seed) for run_spec in run_specs)
    )


def _confirming_to_do(plan: Plan, store: Store) -> int:
    """Count the runs that confirm what a search chose, all of which is stored, and are not stored themselves."""
    from bench.planning.confirm import confirmation

    return len(missing_run_specs(confirmation(plan, store.runs()), store))


def _infeasible_confirmations(confirming: Sequence[RunSpec], data_dir: str | None) -> Iterator[str]:
    """Describe the partitions of runs that may follow the search which cannot be drawn."""
    groups: dict[tuple[str, Setting], list[RunSpec]] = {}
    for run_spec in confirming:
        groups.setdefault((run_spec.algorithm, run_spec.setting), []).append(run_spec)
    statuses = []
    for run_specs in groups.values():
        statuses.append(
            _partition_status(run_specs[0], [run_spec.seed for run_spec in run_specs], data_dir)
        )
    yield from dict.fromkeys(
        f"confirming runs are {status}" for status in statuses if status.startswith("NOT")
    )


def _search_reports(
    plan: Plan,
    pasts: Sequence[History],
    times: Sequence[Time],
    data_dir: str | None,
) -> list[Report]:
    """Describe the plan's searches by Optuna, and the runs that they may add.

    `pasts`: the history of each search; `times`: of a run of each.
    """
    if not plan.searches:
        return []
    from bench.executors.optuna_search import remaining, size

    searches = []
    for search, past, time in zip(plan.searches, pasts, times, strict=True):
        space = {
            name: str(values)
            for name, values in search.tuned.items()
            if values != Grid(getattr(search.setting, name))
        }
        space |= {
            own_name(search.algorithm, name): str(grid)
            for name, grid in search.values.items()
            if len(grid.values) > 1
        }
        searches.append(
            {
                "algorithm": search.algorithm,
                "setting": search.setting.as_dict(),
                "space": space,  # values or interval of each hyper-parameter that has several
                "relations": list(search.where),
                "source": search.source,
                "configurations": int(
                    min(plan.request.configurations, size(search))
                ),  # stored ones included
                "runs_at_most": plan.request.seeds
                * remaining(plan, search, past.known),  # still to do
                "partition": _partition_status(search, range(plan.request.seeds), data_dir),
                "seconds_per_run_at_most": time.high if time.known else None,
            }
        )
    return searches


def _sample_run(search: Search) -> RunSpec:
    """Make one run of a search; its time is the estimate for all of them."""
    values = {name: grid.values[0] for name, grid in search.values.items()}
    return run_specs_of(search, entry(search.algorithm).resolve(values), 1)[0]


def _partition_status(item: RunSpec | Search, seeds: Sequence[int], data_dir: str | None) -> str:
    """Return `feasible`, why not, or `unknown` without the data; of many seeds only the first are drawn, as it says."""
    from bench.data.splits import split_like

    split_setting = split_like(item.setting)
    normed = [model for model in item.setting.models if has_batchnorm(model)]
    if normed and "pooled" not in entry(item.algorithm).needs:
        split_setting = replace(split_setting, model=normed[0])
    drawn = seeds[:CHECKED_SEEDS]
    feasible = (
        "feasible"
        if len(drawn) == len(seeds)
        else f"feasible (first {len(drawn)} of {len(seeds)} seeds)"
    )
    checks = [_check_partition(split_setting, seed, data_dir) for seed in drawn]
    problem = next((problem for problem, _ in checks if problem), "")
    if problem:
        return problem
    uncounted = [count for _, count in checks]
    if not any(uncounted):
        return feasible
    most = max(uncounted)
    remark = f"too few samples for tests and validation of their own: {most}"
    remark += f" of {split_setting.num_clients} clients, which train on all and count for neither"
    return f"{feasible}; {remark}" + " (seed with most)" * (len(drawn) > 1)


@cache
def _check_partition(setting: Setting, seed: int, data_dir: str | None) -> tuple[str, int]:
    """Return why a partition cannot be drawn, or is too fine for BatchNorm; and a count of clients.

    They have too few samples for the tests and the validation of their own that the setting asks
    for; 0 if it does not ask for both.
    """
    from bench.data.splits import split

    dataset = read(setting.dataset, data_dir)
    if dataset is None:
        return "unknown: the data are not here", 0
    try:
        drawn = split(setting, dataset.train_y, seed, dataset.train_groups)
    except UsageError as problem:
        return f"NOT feasible: {problem}", 0
    smallest = min(len(index) for index in drawn.clients)
    if smallest < 2 and has_batchnorm(setting.model):
        why = f"BatchNorm takes statistics over a batch, and a client has {smallest} sample"
        return f"NOT feasible: {why}", 0
    if not setting.local_validation_fraction:
        return "", 0
    return "", sum(len(index) == 0 for index in drawn.local_validations)


def _model_bytes(setting: Setting) -> int:
    """Count the bytes of the largest model of a setting."""
    data = info(setting.dataset).sized(setting.image_size)
    counts = [num_parameters(name, data.input_shape, data.num_classes) for name in setting.models]
    return 4 * max(counts)


def _memory(setting: Setting, pack: int = 1) -> float:
    """Estimate the bytes of a trial of `pack` runs: process, three data sets, a client's crops and inputs, models."""
    data = info(setting.dataset).sized(setting.image_size)
    image = math.prod(data.input_shape)
    pixels = (data.train_size + data.test_size) * image
    client = data.train_size / setting.num_clients * image * 8
    public = setting.public_set[1] * image * 4 if setting.public_set else 0
    return (
        PROCESS_BYTES
        + 3 * pixels
        + pack * public
        + pack * (client + 8 * setting.cohort_size * _model_bytes(setting))
    )


# A printed table.


def _counts(plan: Plan) -> dict[str, int]:
    """Count the printed cells, the models evaluated for them, and the runs that train these models."""
    models = (
        len({run_spec.key for cell in plan.cells for run_spec in cell.run_specs})
        * plan.request.seeds
    )
    return {
        "printed_cells": len(plan.cells),
        "models_evaluated": models,
        "runs": len(plan.run_specs),
    }


def _table_sentence(plan: Plan) -> str:
    """Summarise a table: `Table 3 of fedgkd: 72 printed cells, 216 models evaluated, 216 runs (3 seeds); ...`."""
    counts = _counts(plan)
    figures = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    title = f"{name_in_print(plan.cells[0].printed.table)} of {plan.paper}"
    text = f"{title}: {figures} ({counted(plan.request.seeds, 'seed')})"
    ambiguous = dict.fromkeys(
        cell.printed.algorithm for cell in plan.cells if len(cell.run_specs) > 1
    )
    if ambiguous:
        text += f"; of {', '.join(ambiguous)} everything that the paper tried is run"
    return text


# As text.


def _print_text(plan: Plan, report: Report) -> None:
    out = console()
    if plan.cells:
        out.print(_table_sentence(plan), soft_wrap=True)
    if plan.run_specs or plan.searches:
        _print_tables(out, plan, report)
    lines = [f"note: {note}" for note in report["notes"]]
    if plan.run_specs or plan.searches:
        lines += [
            _cost_line(report),
            *_second_stage_lines(report),
            *_confirmation_lines(plan, report),
        ]
    for line in lines:
        out.print(line, soft_wrap=True)


def _print_tables(out: Console, plan: Plan, report: Report) -> None:
    """Print the setting, every hyper-parameter with all its values and its default, and the configurations."""
    from rich.table import Table

    table = Table("setting", "value", "from")
    preset = f"preset {plan.paper}" if plan.paper else "default"
    names = dict.fromkeys(name for setting in plan.settings for name in setting.as_dict())
    for name in names:
        settings = (
            [run_spec.setting for run_spec in plan.run_specs]
            if name in plan.tuned
            else plan.settings
        )
        values = dict.fromkeys(typed(getattr(setting, name)) for setting in settings)
        values |= dict.fromkeys(
            str(search.tuned[name]) for search in plan.searches if name in search.tuned
        )
        table.add_row(name, ", ".join(values), plan.origins.get(name, preset))
    out.print(table)
    hyper: dict[tuple[str, str], dict[str, None]] = {}
    for run_spec in plan.run_specs:
        for name, value in run_spec.hyperparameters.items():
            hyper.setdefault((run_spec.algorithm, name), {})[typed(value)] = None
    table = Table("algorithm", "hyper-parameter", "value", "default")
    for (algorithm, name), texts in hyper.items():
        default = typed(entry(algorithm).defaults()[name])
        table.add_row(
            algorithm, name, ", ".join(texts), "" if list(texts) == [default] else default
        )
    if hyper:
        out.print(table)
    table = Table("configuration", "seeds", "to do", "partition", "time a run")
    for trial in report["trials"]:
        low, high = trial["seconds_per_run_at_least"], trial["seconds_per_run_at_most"]
        time = "unknown" if low is None or high is None else span(low, high)
        table.add_row(
            trial["name"],
            str(len(trial["run_keys"])),
            str(trial["to_do"]),
            trial["partition"],
            time if trial["to_do"] else "stored",
        )
    if report["trials"]:
        out.print(table)
    if report["searches"]:
        _print_searches(out, plan, report["searches"])


def _print_searches(out: Console, plan: Plan, searches: Sequence[Report]) -> None:
    """Print the spaces that Optuna chooses from, and how many runs each adds at most."""
    from rich.table import Table

    varied = varied_names([_sample_run(search) for search in plan.searches])
    headings = (
        "space",
        "source",
        "configurations",
        "runs to do, at most",
        "partition",
        "time a run, about",
    )
    table = Table("chosen by Optuna", *headings)
    for search, facts in zip(plan.searches, searches, strict=True):
        name = trial_name(
            [_sample_run(search)], {search.algorithm: Varied(varied[search.algorithm].fields, ())}
        )
        seconds = facts["seconds_per_run_at_most"]
        table.add_row(
            name.removesuffix(" seed 0"),
            "\n".join(
                [
                    *(f"{name} in {values}" for name, values in facts["space"].items()),
                    *facts["relations"],
                ]
            ),
            facts["source"],
            str(facts["configurations"]),
            str(facts["runs_at_most"]),
            facts["partition"],
            "unknown" if seconds is None else duration(seconds),
        )
    out.print(table)


def _cost_line(report: Report) -> str:
    """Describe the runs to do, with their time, memory and disk."""
    runs = f"{counted(report['runs'], 'run')}, {report['to_do']:,} to do"
    chosen = sum(search["runs_at_most"] for search in report["searches"])
    if not report["to_do"] and not chosen:
        return f"{runs}: all are stored in {report['out']}"
    if report["packs"]:
        runs += f" in {counted(len(report['packs']), 'pack')} of at most {counted(max(report['packs']), 'run')}"
    if report["searches"]:
        runs += f", and at most {chosen} that Optuna chooses"
    if report["seconds_at_most"] is None:
        known = (
            f"at least {duration(report['seconds_at_least'])}"
            if report["seconds_at_least"]
            else "unknown"
        )
        time = f"{known} (no recorded rate for {', '.join(report['models_without_rate'])} here)"
    else:
        time = f"about {span(report['seconds_at_least'], report['seconds_at_most'])}"
        time += (
            " (estimated from counted steps and a short measurement of this machine)"
            * report["estimated"]
        )
    memory, disk = _size(report["memory_bytes_per_trial"]), _size(report["disk_bytes"])
    return (
        f"{runs}; time {time} with {counted(report['trials_at_once'], 'trial')} at once; memory about {memory} a "
        f"trial; disk about {disk} in {report['out']}{', what --track keeps not counted' * report['tracked']}"
    )


def _size(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def _second_stage_lines(report: Report) -> Iterator[str]:
    """Describe the runs that follow the first stage; the other figures leave them out."""
    most, to_do = report["second_stage_runs"], report["second_stage_to_do"]
    if to_do is not None:
        yield f"of the {counted(most, 'run')} of the second stage, {to_do:,} to do, not counted above"
    elif most:
        yield f"then, not counted above, {counted(most, 'run')} of the second stage, at the best learning rates"


def _confirmation_lines(plan: Plan, report: Report) -> Iterator[str]:
    """Describe the runs that may follow the search; the other figures leave them out."""
    most, seeds, to_do = (
        report["confirming_runs_at_most"],
        len(plan.request.confirm),
        report["confirming_runs_to_do"],
    )
    if to_do is not None:
        yield f"of the runs that confirm its choices, on {counted(seeds, 'seed')}, {to_do:,} to do, not counted above"
    elif most:
        choices = counted(most // seeds, "configuration")
        yield (
            f"then, not counted above, at most {counted(most, 'run')}, stored ones included: {choices} that the search "
            f"chooses (one for each algorithm and cell), on {counted(seeds, 'seed')}"
        )
