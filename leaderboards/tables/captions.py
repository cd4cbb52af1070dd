"""The text around a table: what it shows, how configurations were selected, what its marks mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from leaderboards.flags import FLAGS, STATES
from leaderboards.numbers import NUMBERS, Number
from leaderboards.problems import Place, Problem, Record, label_of
from leaderboards.rows.schema import WHEN_DIVERGED
from leaderboards.shell_text import typed
from leaderboards.stats.seeds import INTERVAL_FROM
from leaderboards.tables.model import Head, ResultTable, Row

SYMBOLS = {"alpha": "α", "participation": "C", "num_clients": "K", "local_epochs": "E"}

GLOBAL_MODEL = "of the global model"  # in the quantities of `leaderboards.numbers`
_MANY = 4  # up to so many algorithms with equal numbers are named one by one
_DIVERGED_RUNS = "DIVERGED k/n: k of n runs did, and the algorithm is ranked last there"
_AT_DEFAULTS = (
    "at defaults: the default hyper-parameters at the chosen values of tuned fields, where both ran"
)
_UNREACHED = "k of n: so many seeds have the value, and no mean is given"
_LOCAL = (  # fields of local training, how each is written, and the value that is not mentioned
    ("optimizer", "{}", None),
    ("lr", "lr {}", None),
    ("momentum", "momentum {}", 0.0),
    ("weight_decay", "weight decay {}", 0.0),
    ("lr_decay", "lr decay {}", 1.0),
    ("batch_size", "batch size {}", None),
    ("augmentation", "{}", "none"),
    ("fraction", "fraction {} of the data", 1.0),
)
_TITLE = (  # texts, and the fields that each needs
    ("{dataset}", ("dataset",)),
    ("{model}", ("model",)),
    ("clients' models {client_models}", ("client_models",)),
    ("{partition}, {num_clients} clients", ("partition", "num_clients")),
    ("{rounds} rounds × {local_epochs} local epochs", ("rounds", "local_epochs")),
    ("α = {alpha:g}", ("alpha",)),
    ("participation {participation:g}", ("participation",)),
)
IN_TITLE = frozenset(name for _, names in _TITLE for name in names)


def title(problem: Problem) -> str:
    """Write the title of a table: what all numbers of its problem have in common."""
    shared = _shared(problem)
    line = " · ".join(
        text.format(**shared)
        for text, names in _TITLE
        if all(shared.get(name) is not None for name in names)
    )
    return re.sub(r"(?<!\d)1 (client|round|local epoch)s\b", r"1 \1", line)


def _shared(problem: Problem) -> dict[str, Any]:
    """Return the fields that have one value in all cells of a problem, those side by side included."""
    values = {name: {place[i] for place in problem.places} for i, name in enumerate(problem.by)}
    return {
        **problem.setting,
        **{name: next(iter(seen)) for name, seen in values.items() if len(seen) == 1},
    }


def labels_of(problem: Problem) -> dict[Place, str]:
    """Label each place with its values of the fields that vary between places."""
    varying = [i for i in range(len(problem.by)) if len({place[i] for place in problem.places}) > 1]
    return {
        place: ", ".join(_field_text(problem.by[i], place[i]) for i in varying)
        for place in problem.places
    }


def _field_text(name: str, value: Any) -> str:
    symbol = SYMBOLS.get(name, name)
    return f"no {symbol}" if value is None else f"{symbol} = {typed(value)}"


def captions(
    problem: Problem,
    metrics: Sequence[Number],
    common_marks: Collection[str] = (),
    intervals: bool = False,
) -> tuple[str, ...]:
    """Write the lines above a table.

    Args:
        problem: of the table; fields in which neighbouring problems differ are mentioned unless the
            title has them.
        metrics: of the columns.
        common_marks: keys of `flags.FLAGS` that hold for every cell.
        intervals: whether intervals are printed instead of standard deviations.
    """
    records = problem.records
    training = local_training(_shared(problem), problem.differing)
    spread = _metrics_line(metrics, intervals)
    lines = [of_whose_models(spread, records, marked=True), f"local training: {training}"]
    if any(record["configurations"] for record in records):
        tried = (
            (label_of(record["algorithm"], record["model"]), record["configurations"])
            for record in records
        )
        lines += [_selection(records), f"configurations tried: {_ranges(tried)}"]
        lines.append(_diverged(records))
    gaps = [
        (
            label_of(record["algorithm"], record["model"]),
            NUMBERS["best_val_accuracy"].unit.scale * record["validation_gap"],
        )
        for record in records
        if record.get("chosen_on")
        and record["validation_gap"] is not None
        and not record["diverged"]
    ]
    if gaps:
        text = "validation minus test accuracy in the round of the best validation accuracy, points"
        lines.append(f"{text}: {_extremes(gaps)}")
    for key, flag in FLAGS.items():
        if key in common_marks and key != "personal":  # which the first line says
            lines.append(f"all runs: {flag.meaning}")
    return tuple(line[0].upper() + line[1:] for line in lines if line)


def of_whose_models(text: str, records: Sequence[Record], marked: bool = False) -> str:
    """Say in a text on numbers `of the global model` which rows are of each client's own.

    `marked`: whether the table marks its personal rows; their algorithms are named else.
    """
    personal = [record for record in records if record["personal"]]
    if not personal:
        return text
    if len(personal) == len(records):
        return text.replace(GLOBAL_MODEL, "of each client's own model")
    labels = sorted({label_of(record["algorithm"], record["model"]) for record in personal})
    which = f"rows with {FLAGS['personal'].mark}" if marked else ", ".join(labels)
    return text.replace(GLOBAL_MODEL, f"{GLOBAL_MODEL} ({which}: of each client's own)", 1)


def records_of(tables: Sequence[ResultTable]) -> list[Record]:
    """List the leaderboard's rows that tables show."""
    records: list[Record] = []
    for table in tables:
        for row in table.rows:
            records += [cell.record for cell in row.cells if cell.record is not None]
    return records


def local_training(setting: Mapping[str, Any], differing: Iterable[str] = ()) -> str:
    """Describe how clients train, and on how much data: `sgd, lr 0.01, momentum 0.9, batch size 64, flip_crop`.

    Fields in `differing` are mentioned too, if the setting has them.
    """
    texts = {
        name: text for name, text, usual in _LOCAL if name in setting and setting[name] != usual
    }
    further = sorted((set(differing) & setting.keys()) - IN_TITLE - texts.keys())
    values = [text.format(typed(setting[name])) for name, text in texts.items()]
    return ", ".join([*values, *(f"{name} {typed(setting[name])}" for name in further)])


def notes(rows: Sequence[Row], heads: Sequence[Head]) -> tuple[str, ...]:
    """Write the lines below a table, which explain the words and marks that occur in it."""
    cells = [cell for row in rows for cell in row.cells]
    states = {cell.state for cell in cells if cell.words is None}
    marks = set[str]().union(*(cell.marks for cell in cells))
    few = [
        cell
        for row in rows
        if not row.reference
        for cell in row.cells
        if cell.state == "value"
        and 0 < len(cell.seeds) < INTERVAL_FROM
        and cell.metric.differs_by_seed
        and cell.metric.better
    ]
    several = len({row.label for row in rows if any(cell.rank for cell in row.cells)}) > 1
    chosen = [column for column, head in enumerate(heads) if not head.at_defaults]
    competitors = []
    for row in rows:
        if not row.reference:
            competitors.append([row.cells[column] for column in chosen])
    unlike = any(
        len({frozenset(cell.seeds) for cell in line if cell.state == "value" and cell.seeds}) > 1
        for line in (*competitors, *zip(*competitors, strict=True))
    )
    lines = {
        "(1) a single seed, no spread": any(
            cell.state == "value" and cell.n == 1 for cell in cells
        ),
        "best by mean alone: a test needs 3 seeds": any(cell.best for cell in few),
        "rows with fewer than 3 seeds are not ranked where others have 3": any(
            cell.rank is None and cell.competes for cell in few
        ),
        "algorithms ran on different seeds: --reference compares seed by seed": unlike,
        **{f"{flag.mark} {flag.meaning}": key in marks for key, flag in FLAGS.items()},
        **{
            f"{word}{':' * word.isalpha()} {meaning}": state in states
            for state, (word, meaning) in STATES.items()
            if state != "diverged"
        },
        _DIVERGED_RUNS: "diverged" in states,
        f"diverged: {WHEN_DIVERGED}": "diverged" in states,
        _UNREACHED: "unreached" in states,
        "C participation, the share of clients that train in a round": any(
            "C = " in head.label for head in heads
        ),
        "hyper-parameters tried only at their default are not shown": any(
            row.hyperparameters for row in rows
        ),
        "a|b: values by column, from left to right": any(
            "|" in row.hyperparameters for row in rows
        ),
        "complete rows first, by average place of their means over all columns": several
        and len(heads) > 1,
        "reference rows (last) are not ranked": any(row.reference for row in rows),
        _AT_DEFAULTS: any(head.at_defaults for head in heads),
    }
    return tuple(line for line, holds in lines.items() if holds)


def _metrics_line(metrics: Sequence[Number], intervals: bool) -> str:
    spread = "mean [95 % interval: Student's t, from 3 seeds on]" if intervals else "mean ± std"
    spread += " (n seeds)"
    if len({(metric.quantity, metric.unit.shown) for metric in metrics}) == 1:
        unit = f", {metrics[0].unit.shown}" if metrics[0].unit.shown else ""
        of = "; ".join(f"{metric.short}: {metric.of}" for metric in metrics if metric.of)
        return f"{metrics[0].quantity}{unit}, {spread}" + (f"; {of}" if of else "")
    return "; ".join([spread, *map(measured, metrics)])


def measured(metric: Number) -> str:
    """Describe what a column measures: `final: accuracy of the global model on the test set, last round, %`."""
    return f"{metric.short}: {', '.join(part for part in (metric.quantity, metric.of, metric.unit.shown) if part)}"


def _selection(records: Sequence[Record]) -> str:
    rules = {record["selected_on"] for record in records if record["n"]}
    searched = sorted({choice for record in records if (choice := record.get("chosen_on"))})
    other_seeds = "; results are of the seeds other than 0" * bool(searched)
    if all(record["configurations"] <= 1 for record in records):
        return f"one configuration of each algorithm, nothing to select from{other_seeds}"
    if searched:
        samples = "clients' own validation samples" if rules == {"clients"} else "validation split"
        return f"configurations selected on the {samples} of {' or '.join(searched)}{other_seeds}"
    texts = {
        "validation": "configurations selected on the validation split, by their mean over seeds",
        "clients": "configurations selected on the clients' own validation samples, "
        "by their mean over seeds",
        "test": "configurations selected ON THE TEST SET: these numbers are optimistic",
        "none": "no validation split to select on: of several configurations all are listed and none is ranked",
        "mixed": "runs disagree about what to select on: of several configurations all are listed and none is ranked",
    }
    return "; ".join(text for rule, text in texts.items() if rule in rules)


def _diverged(records: Sequence[Record]) -> str:
    """Write how many of the tried configurations diverged, by algorithm; empty if none did."""
    counts: dict[str, set[int]] = {}
    for record in records:
        label = label_of(record["algorithm"], record["model"])
        counts.setdefault(label, set()).add(record["configurations_diverged"])
    texts = [f"{name} {_range(group)}" for name, group in sorted(counts.items()) if any(group)]
    return f"of these, diverged (chosen only if all did): {', '.join(texts)}" if texts else ""


def _ranges(values: Iterable[tuple[str, float]]) -> str:
    """Write `fedavg 4, fedcad 3-6`, the least and largest value by algorithm; if many agree `6 of each algorithm`."""
    groups: dict[str, set[float]] = {}
    for name, value in values:
        groups.setdefault(name, set()).add(value)
    texts = {name: _range(group) for name, group in sorted(groups.items())}
    (usual, count), *_ = Counter(texts.values()).most_common(1)
    if count <= _MANY:
        return ", ".join(f"{name} {text}" for name, text in texts.items())
    others = [f"{name} {text}" for name, text in texts.items() if text != usual]
    return f"{usual} of each algorithm" + f", but {', '.join(others)}" * bool(others)


def _range(values: Collection[float]) -> str:
    """Write `4`, or `3-6`, the least and largest value."""
    return "-".join(map(str, sorted({min(values), max(values)})))


def _extremes(values: Sequence[tuple[str, float]]) -> str:
    """Write `-0.12 (fedavg) to 0.84 (fedcad)`: the smallest and the largest of all values."""
    low, high = (min(values, key=lambda pair: pair[::-1]), max(values, key=lambda pair: pair[::-1]))
    return " to ".join(dict.fromkeys(f"{value:.2f} ({name})" for name, value in (low, high)))
