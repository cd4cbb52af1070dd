"""`--dry-run`: prints a plan, the origin of each value, and the cost, as text or JSON.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from algorithms import entry
from bench.execution import Execution
from bench.planning.plan import Plan
from bench.planning.tables import name_in_print
from bench.planning.trial_names import Varied, trial_name, varied_names
from bench.sweep.plan_report import Report, make_report, sample_run, table_report
from bench.terminal.console import console, print_json
from bench.terminal.words import counted, duration, span
from leaderboards.shell_text import typed

if TYPE_CHECKING:
    from rich.console import Console


def print_dry_run(plan: Plan, execution: Execution) -> None:
    """Print what a sweep would do, without network access."""
    report = make_report(plan, execution)
    if plan.options.json:
        print_json(report)
    else:
        _print_text(plan, report)


def _print_text(plan: Plan, report: Report) -> None:
    out = console()
    if plan.places:
        out.print(_table_sentence(plan), soft_wrap=True)
    _print_tables(out, plan, report)
    lines = [f"note: {note}" for note in report["notes"]]
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
        high = trial["seconds_per_run_at_most"]
        time = "stored"
        if trial["to_do"]:
            time = "unknown" if high is None else span(trial["seconds_per_run_at_least"], high)
        seeds = str(len(trial["run_keys"]))
        yield trial["name"], seeds, str(trial["to_do"]), trial["partition"], time


def _search_rows(plan: Plan, searches: Sequence[Report]) -> Iterator[tuple[str, ...]]:
    """Yield the spaces that Optuna chooses from, and how many runs each adds at most."""
    samples = [sample_run(search) for search in plan.searches]
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
        at_least = f"at least {duration(low)}" if low else "unknown"
        time = f"{at_least} (no recorded rate for {', '.join(report['models_without_rate'])} here)"
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
            f"{choices} that the search chooses (one for each row and cell), {on_seeds}"
        )


def _table_sentence(plan: Plan) -> str:
    """Summarise a table: `Table 3 of fedgkd: 72 printed cells, 216 models evaluated, ...`."""
    counts = table_report(plan)
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
