"""`--dry-run`: the runs of a plan, the origin of each value, feasible partitions, and the cost.

It is text or JSON. Imports neither torch nor ray.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.data import hashes, info_of, read
from bench.errors import UsageError
from bench.execution import Execution
from bench.executors.trials import missing_run_specs, trials_of
from bench.machine import count_gpus, cpu_count
from bench.models import num_parameters, parse
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
from bench.planning.run_spec import RunSpec, Varied, trial_name, varied_names
from bench.planning.search import Search, run_specs_of
from bench.planning.tables import name_in_print
from bench.sweep.preflight import gpu_share, mirror_url, other_data_notes
from bench.sync.mirror import check_place
from bench.terminal.console import console, print_json
from bench.terminal.words import counted, duration, span
from leaderboards import Store
from leaderboards.rows.schema import own_name
from leaderboards.shell_text import typed
from search_spaces import Grid, Setting

if TYPE_CHECKING:
    from rich.console import Console

PROCESS_BYTES = 900 * 2**20  # python, torch and ray in one worker, measured
# Seeds of a configuration whose partitions are drawn, in milliseconds each; a sweep draws all.
CHECKED_SEEDS = 100
ROW_BYTES = 60 * 2**10  # a row and its curve file

Report = dict[str, Any]  # as `--json` prints it


def print_dry_run(plan: Plan, execution: Execution) -> None:
    """Print what a sweep would do, without network access."""
    report = make_report(plan, execution)
    if plan.options.json:
        print_json(report)
    else:
        _print_text(plan, report)


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
    samples = [_sample_run(search) for search in plan.searches]
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
    largest = max([*sizes, seeds] if searches else sizes, default=1)
    states = at_once * largest if plan.searches else min(at_once * largest, len(missing))
    largest_model = max(map(_model_bytes, plan.settings), default=0)
    memory = [_memory(setting, largest) for setting in plan.settings]
    report = _table_report(plan) if plan.places else {}
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
    report |= {
        "memory_bytes_per_trial": max(memory, default=0.0),
        # Of new rows, and of the states of runs at work.
        "disk_bytes": len(missing) * ROW_BYTES + states * 8 * largest_model,
        "tracked": bool(options.track),  # if so, `disk_bytes` leaves out those files
    }
    report |= _later_runs(plan, store, searched=not missing and not searches)
    report |= {
        "out": execution.out,
        # Setting field -> where its value came from, if not from the preset.
        "origins": dict(plan.origins),
        "notes": [*plan.notes, *other_data_notes(plan, out, data_hashes)],
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


def _later_runs(plan: Plan, store: Store, searched: bool) -> Report:
    """Count the runs that follow the search; those that are not stored once it is `searched`.

    The numbers of all such runs include stored ones.
    """
    second_runs = 0
    second_to_do: int | None = None
    confirming_to_do: int | None = None
    if plan.stages:
        from bench.planning.two_stage import planned, second_stage

        configurations = sum(plan.options.budget - len(stages.rates) for stages in planned(plan))
        second_runs = configurations * plan.options.seeds
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
                "partition": _partition_status(run_spec, [*seeds], plan.options.data_dir),
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
        status = _partition_status(run_spec, seeds_of[case], plan.options.data_dir)
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
                "partition": _partition_status(search, range(seeds), plan.options.data_dir),
                "seconds_per_run_at_most": time.high if time.known else None,
            }
        )
    return searches


def _sample_run(search: Search) -> RunSpec:
    """Make one run of a search; its time is the estimate for all of them."""
    values = {name: grid.values[0] for name, grid in search.values.items()}
    return run_specs_of(search, entry(search.algorithm).resolve(values), 1)[0]


def _partition_status(part: RunSpec | Search, seeds: Sequence[int], data_dir: str | None) -> str:
    """Return `feasible`, why not, or `unknown` without the data.

    `seeds`: of partitions; of many only the first are drawn, as it says.
    """
    from bench.data.splits import split_like

    setting = split_like(part.setting)
    pooled = "pooled" in entry(part.algorithm).needs
    normed = not pooled and any(parse(model).has_batchnorm for model in part.setting.models)
    drawn = seeds[:CHECKED_SEEDS]
    status = "feasible"
    if len(drawn) < len(seeds):
        status += f" (first {len(drawn)} of {len(seeds)} seeds)"
    most = 0  # clients with too few samples
    for seed in drawn:
        problem, smallest, count = _draw(setting, seed, data_dir)
        if problem:
            return problem
        if normed and smallest < 2:
            why = f"BatchNorm takes statistics over a batch, and a client has {smallest} sample"
            return f"NOT feasible: {why}"
        most = max(most, count)
    if most:
        status += (
            f"; too few samples for tests and validation of their own: {most} of "
            f"{setting.num_clients} clients, which train on all and count for neither"
        )
        if len(drawn) > 1:
            status += " (seed with most)"
    return status


@cache
def _draw(setting: Setting, seed: int, data_dir: str | None) -> tuple[str, int, int]:
    """Draw a partition.

    Returns:
        Why it cannot be drawn, or an empty text; the samples of the smallest client; the number of
        clients with too few samples for the tests and the validation of their own that the setting
        asks for, 0 if it does not ask for both.
    """
    from bench.data.splits import split

    dataset = read(setting.dataset, data_dir)
    if dataset is None:
        return "unknown: the data are not here", 0, 0
    try:
        drawn = split(setting, dataset.train_y, seed, dataset.train_groups)
    except UsageError as problem:
        return f"NOT feasible: {problem}", 0, 0
    smallest = min(map(len, drawn.clients))
    lacking = 0
    if setting.local_validation_fraction:
        lacking = sum(len(index) == 0 for index in drawn.local_validations)
    return "", smallest, lacking


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


# A printed table.


def _table_report(plan: Plan) -> Report:
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


def _table_sentence(plan: Plan) -> str:
    """Summarise a table: `Table 3 of fedgkd: 72 printed cells, 216 models evaluated, ...`."""
    counts = _table_report(plan)
    title = f"{name_in_print(counts.pop('table'))} of {plan.paper}"
    figures = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    text = f"{title}: {figures} ({counted(plan.options.seeds, 'seed')})"
    ambiguous: dict[str, None] = {}
    for place in plan.places:
        if len(place.run_specs) > 1:
            ambiguous[place.printed.algorithm] = None
    if ambiguous:
        text += f"; of {', '.join(ambiguous)} everything that the paper tried is run"
    return text


# As text.


def _print_text(plan: Plan, report: Report) -> None:
    out = console()
    if plan.places:
        out.print(_table_sentence(plan), soft_wrap=True)
    if plan.parts:
        _print_tables(out, plan, report)
    lines = [f"note: {note}" for note in report["notes"]]
    if plan.parts:
        lines.append(_cost_line(report))
        lines += _second_stage_lines(report)
        lines += _confirmation_lines(plan, report)
    for line in lines:
        out.print(line, soft_wrap=True)


def _print_tables(out: Console, plan: Plan, report: Report) -> None:
    """Print the setting, hyper-parameters, configurations, and searches."""
    from rich.table import Table

    columns = ("configuration", "seeds", "to do", "partition", "time a run")
    searched = ("source", "configurations", "runs to do, at most", "partition", "time a run, about")
    for headings, rows in (
        (("setting", "value", "from"), _setting_rows(plan)),
        (("algorithm", "hyper-parameter", "value", "default"), _hyperparameter_rows(plan)),
        (columns, _configuration_rows(report["trials"])),
        (("chosen by Optuna", "space", *searched), _search_rows(plan, report["searches"])),
    ):
        table = Table(*headings)
        for row in rows:
            table.add_row(*row)
        if table.rows:
            out.print(table)


def _setting_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield each field of the setting with its values and their origin."""
    preset = f"preset {plan.paper}" if plan.paper else "default"
    names: dict[str, None] = {}
    for setting in plan.settings:
        names |= dict.fromkeys(setting.as_dict())
    for name in names:
        settings = plan.settings
        if name in plan.tuned:
            settings = tuple(run_spec.setting for run_spec in plan.run_specs)
        values = dict.fromkeys(typed(getattr(setting, name)) for setting in settings)
        for search in plan.searches:
            if name in search.tuned:
                values[str(search.tuned[name])] = None
        yield name, ", ".join(values), plan.origins.get(name, preset)


def _hyperparameter_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield algorithm and hyper-parameter with all values, and its default if that is another."""
    values: dict[tuple[str, str], dict[str, None]] = {}
    for run_spec in plan.run_specs:
        for name, value in run_spec.hyperparameters.items():
            values.setdefault((run_spec.algorithm, name), {})[typed(value)] = None
    for (algorithm, name), texts in values.items():
        default = typed(entry(algorithm).defaults()[name])
        other = "" if list(texts) == [default] else default
        yield algorithm, name, ", ".join(texts), other


def _configuration_rows(trials: Sequence[Report]) -> Iterator[tuple[str, ...]]:
    """Yield each configuration with its seeds, its runs to do, and their time."""
    for trial in trials:
        low = trial["seconds_per_run_at_least"]
        high = trial["seconds_per_run_at_most"]
        time = "stored"
        if trial["to_do"]:
            time = "unknown" if low is None or high is None else span(low, high)
        seeds = str(len(trial["run_keys"]))
        yield trial["name"], seeds, str(trial["to_do"]), trial["partition"], time


def _search_rows(plan: Plan, searches: Sequence[Report]) -> Iterator[tuple[str, ...]]:
    """Yield the spaces that Optuna chooses from, and how many runs each adds at most."""
    samples = [_sample_run(search) for search in plan.searches]
    varied = varied_names(samples)
    for sample, facts in zip(samples, searches, strict=True):
        fields = Varied(varied[sample.algorithm].fields, ())
        name = trial_name([sample], {sample.algorithm: fields})
        space = [f"{name} in {values}" for name, values in facts["space"].items()]
        seconds = facts["seconds_per_run_at_most"]
        yield (
            name.removesuffix(" seed 0"),
            "\n".join([*space, *facts["relations"]]),
            facts["source"],
            str(facts["configurations"]),
            str(facts["runs_at_most"]),
            facts["partition"],
            "unknown" if seconds is None else duration(seconds),
        )


def _cost_line(report: Report) -> str:
    """Describe the runs to do, with their time, memory and disk."""
    runs = f"{counted(report['runs'], 'run')}, {report['to_do']:,} to do"
    chosen = sum(search["runs_at_most"] for search in report["searches"])
    if not report["to_do"] and not chosen:
        return f"{runs}: all are stored in {report['out']}"
    packs = report["packs"]
    if packs:
        runs += f" in {counted(len(packs), 'pack')} of at most {counted(max(packs), 'run')}"
    if report["searches"]:
        runs += f", and at most {chosen} that Optuna chooses"
    low = report["seconds_at_least"]
    high = report["seconds_at_most"]
    if high is None:
        known = f"at least {duration(low)}" if low else "unknown"
        time = f"{known} (no recorded rate for {', '.join(report['models_without_rate'])} here)"
    else:
        time = f"about {span(low, high)}"
        if report["estimated"]:
            time += " (estimated from counted steps and a short measurement of this machine)"
    trials = counted(report["trials_at_once"], "trial")
    memory = _size(report["memory_bytes_per_trial"])
    disk = f"{_size(report['disk_bytes'])} in {report['out']}"
    if report["tracked"]:
        disk += ", what --track keeps not counted"
    return (
        f"{runs}; time {time} with {trials} at once; memory about {memory} a trial; disk about "
        f"{disk}"
    )


def _size(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def _second_stage_lines(report: Report) -> Iterator[str]:
    """Describe the runs that follow the first stage; the other figures leave them out."""
    to_do = report["second_stage_to_do"]
    runs = counted(report["second_stage_runs"], "run")
    if to_do is not None:
        yield f"of the {runs} of the second stage, {to_do:,} to do, not counted above"
    elif report["second_stage_runs"]:
        yield f"then, not counted above, {runs} of the second stage, at the best learning rates"


def _confirmation_lines(plan: Plan, report: Report) -> Iterator[str]:
    """Describe the runs that may follow the search; the other figures leave them out."""
    most = report["confirming_runs_at_most"]
    to_do = report["confirming_runs_to_do"]
    seeds = len(plan.options.confirm)
    on_seeds = f"on {counted(seeds, 'seed')}"
    if to_do is not None:
        yield (
            f"of the runs that confirm its choices, {on_seeds}, {to_do:,} to do, not counted above"
        )
    elif most:
        choices = counted(most // seeds, "configuration")
        yield (
            f"then, not counted above, at most {counted(most, 'run')}, stored ones included: "
            f"{choices} that the search chooses (one for each algorithm and cell), {on_seeds}"
        )
