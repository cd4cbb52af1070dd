"""The words around a table: what it shows, how configurations were selected, what its marks mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaderboards.commands import typed
from leaderboards.metrics import METRICS, Metric
from leaderboards.schema import WHEN_DIVERGED
from leaderboards.stats.intervals import INTERVAL_FROM

if TYPE_CHECKING:
    from leaderboards.cells import Cell, Head, Place, Record, Row

SYMBOLS = {"alpha": "α", "participation": "C", "num_clients": "K", "local_epochs": "E"}
WORDS = {"missing": "–", "failed": "failed", "stopped": "stopped", "diverged": "DIVERGED"}
MARKS = {"shortened": "†", "versions_mixed": "‡", "partial": "§", "selected": "✓"}

_WORD_NOTES = {
    "missing": "not run, or not measured",
    "failed": "every run failed",
    "stopped": "every run was stopped early by the search",
    "diverged": WHEN_DIVERGED,
}
_INTERVALS = "mean [95 % interval: Student's t, from 3 seeds on] (n seeds)"
_UNREACHED = "k of n: only so many seeds reached it, were evaluated at that round or tracked it, and no mean is taken"
_MARK_NOTES = {
    "shortened": "fewer rounds or less data than the preset",
    "versions_mixed": "seeds run under different package versions",
    "partial": "some seeds failed or were stopped",
    "selected": "selected",
}
_IN_TITLE = {"dataset", "model", "partition", "num_clients", "rounds", "local_epochs", "optimizer", "lr", "batch_size"}


_LOCAL = (  # fields of local training, how they are said, and the value that goes without saying
    ("optimizer", "{}", None),
    ("lr", "lr {}", None),
    ("momentum", "momentum {}", 0.0),
    ("weight_decay", "weight decay {}", 0.0),
    ("lr_decay", "lr decay {}", 1.0),
    ("batch_size", "batch size {}", None),
    ("augmentation", "{}", "none"),
    ("fraction", "fraction {} of the data", 1.0),
)
_TITLE = (  # fields that are said together, and how
    ("{dataset}", ("dataset",)),
    ("{model}", ("model",)),
    ("{partition}, {num_clients} clients", ("partition", "num_clients")),
    ("{rounds} rounds × {local_epochs} local epochs", ("rounds", "local_epochs")),
    ("α = {alpha:g}", ("alpha",)),
    ("participation {participation:g}", ("participation",)),
)


def title(setting: Mapping[str, Any], by: Sequence[str], places: Sequence[Place]) -> str:
    """What all numbers of a table have in common.

    Args:
        setting: every field but those of `by`.
        by: the fields that columns stand for.
        places: their values.
    """
    values = {name: {place[i] for place in places} for i, name in enumerate(by)}
    known = {**setting, **{name: next(iter(found)) for name, found in values.items() if len(found) == 1}}
    said = ((text, names) for text, names in _TITLE if all(known.get(name) is not None for name in names))
    line = " · ".join(text.format(**known) for text, _ in said)
    return re.sub(r"(?<!\d)1 (client|round|local epoch)s\b", r"1 \1", line)


def captions(
    setting: Mapping[str, Any],
    differing: Iterable[str],
    metrics: Sequence[Metric],
    records: Sequence[Record],
    common_marks: Collection[str] = (),
    intervals: bool = False,
) -> tuple[str, ...]:
    """The lines above a table.

    Args:
        setting: what the table's records share.
        differing: fields in which the tables beside this one differ from it; those that the title lacks are shown.
        metrics: of the columns.
        records: rows of the leaderboard that the table is made of.
        common_marks: keys of `MARKS` that hold for every cell.
        intervals: whether intervals are printed, instead of standard deviations.
    """
    lines = [
        _measured(metrics, intervals),
        f"local training: {local_training(setting, differing)}",
        *([_selection(records), _budget(records)] if any(record["configurations"] for record in records) else []),
        *_gap(records),
    ]
    lines += [f"all runs: {_MARK_NOTES[mark]}" for mark in MARKS if mark in common_marks]
    return tuple(line[0].upper() + line[1:] for line in lines)


def local_training(setting: Mapping[str, Any], differing: Iterable[str] = ()) -> str:
    """How clients train, and on how much: `sgd, lr 0.01, momentum 0.9, batch size 64, flip_crop`.

    Args:
        setting: the fields that are known.
        differing: further fields to name with their values.
    """
    said = {name: text for name, text, usual in _LOCAL if name in setting and setting[name] != usual}
    further = sorted(set(differing) - _IN_TITLE - said.keys())
    values = [text.format(typed(setting[name])) for name, text in said.items()]
    return ", ".join([*values, *(f"{name} {typed(setting[name])}" for name in further)])


def notes(rows: Sequence[Row], heads: Sequence[Head]) -> tuple[str, ...]:
    """The lines below a table: only of words and marks that occur in it."""
    cells = [cell for row in rows for cell in row.cells]
    states, marks = {cell.state for cell in cells}, {mark for cell in cells for mark in cell.marks}
    single = any(cell.state == "value" and cell.record is not None and cell.record["n"] == 1 for cell in cells)
    found = ["(1) a single seed, no spread"] if single else []
    found += _few_seeds([cell for row in rows if not row.reference for cell in row.cells if cell.state == "value"])
    found += [f"{MARKS[mark]} {meaning}" for mark, meaning in _MARK_NOTES.items() if mark in marks]
    found += [f"{_said(WORDS[state])} {meaning}" for state, meaning in _WORD_NOTES.items() if state in states]
    found += [_UNREACHED] * ("unreached" in states)
    if any("C = " in head.label for head in heads):
        found.append("C participation, the share of clients that train in a round")
    if any(row.hyperparameters for row in rows):
        found.append("hyper-parameters left at their defaults are not shown")
    if any("|" in row.hyperparameters for row in rows):
        found.append("a|b values differ between the columns, from left to right")
    if any(len(cell.seeds) > 2 and cell.rank is not None for cell in cells):
        found.append("what a paired t test over seeds (Holm, 5 %) cannot tell from the best shares its rank")
    if len({row.label for row in rows if any(cell.rank for cell in row.cells)}) > 1 and len(rows[0].cells) > 1:
        found.append("rows by mean rank over all columns, then by mean")
    if any(row.reference for row in rows):
        found.append("reference rows (last) are not ranked")
    return tuple(found)


def _few_seeds(cells: Sequence[Cell]) -> list[str]:
    """What is said of competitors' cells with fewer seeds than a test takes."""
    few = [cell for cell in cells if 0 < len(cell.seeds) < INTERVAL_FROM and cell.metric.differs_by_seed]
    beside = any(cell.rank is None and cell.record is not None and cell.record["selected"] for cell in few)
    found = ["best and second by mean alone: a test needs 3 seeds"] * any(cell.emphasis for cell in few)
    return found + ["rows with fewer than 3 seeds are not ranked where others have 3"] * beside


def _said(mark: str) -> str:
    """A mark as its note begins: a word needs a colon to be told from the note's own."""
    return f"{mark}:" if mark.isalpha() else mark


def place_label(place: Place, by: Sequence[str], varying: Collection[str]) -> str:
    """What tells one group of columns from the others: its value of each field that has several."""
    return ", ".join(_value(name, value) for name, value in zip(by, place, strict=True) if name in varying)


def _value(name: str, value: Any) -> str:
    symbol = SYMBOLS.get(name, name)
    if value is None:
        return f"no {symbol}"
    return f"{symbol} = {typed(value)}"


def _measured(metrics: Sequence[Metric], intervals: bool) -> str:
    spread = _INTERVALS if intervals else "mean ± std (n seeds)"
    if len({(metric.quantity, metric.unit) for metric in metrics}) == 1:
        unit = f", {metrics[0].unit}" if metrics[0].unit else ""
        of = "; ".join(f"{metric.short}: {metric.of}" for metric in metrics if metric.of)
        return f"{metrics[0].quantity}{unit}, {spread}" + (f"; {of}" if of else "")
    each = (
        f"{metric.short}: {metric.quantity}{', ' * bool(metric.of)}{metric.of}{', ' * bool(metric.unit)}{metric.unit}"
        for metric in metrics
    )
    return f"{spread}; {'; '.join(each)}"


def _selection(records: Sequence[Record]) -> str:
    searched = sorted({where for record in records if (where := record.get("chosen_on"))})
    other_seeds = "; reported are the seeds other than 0" * bool(searched)
    if all(record["configurations"] <= 1 for record in records):
        return f"one configuration of each algorithm, nothing to select from{other_seeds}"
    if searched:
        return f"configurations selected on the validation split of {' or '.join(searched)}{other_seeds}"
    rules = {record["selected_on"] for record in records if record["n"]}
    texts = {
        "validation": "configurations selected on the validation split, by their mean over seeds",
        "test": "configurations selected ON THE TEST SET: these numbers are optimistic",
        "none": "no validation split to select on: of several configurations all are listed and none is ranked",
        "mixed": "runs disagree about what to select on: of several configurations all are listed and none is ranked",
    }
    return "; ".join(text for rule, text in texts.items() if rule in rules)


def _budget(records: Sequence[Record]) -> str:
    return "configurations tried: " + _ranges((record["algorithm"], record["configurations"]) for record in records)


def _gap(records: Sequence[Record]) -> list[str]:
    """Of confirmed configurations, how much of their validation accuracy the test set does not bear out."""
    points = METRICS["best_val_accuracy"].scale
    found = [
        (record["algorithm"], round(points * record["validation_gap"], 2))
        for record in records
        if record.get("chosen_on") and record["validation_gap"] is not None
    ]
    said = "validation minus test accuracy in the round of the best validation accuracy, points: "
    return [said + _ranges(found, " to ")] if found else []


def _ranges(values: Iterable[tuple[str, float]], to: str = "-") -> str:
    """`fedavg 4, fedcad 3-6`: by algorithm the least and the largest value."""
    found: dict[str, set[float]] = {}
    for name, value in values:
        found.setdefault(name, set()).add(value)
    return ", ".join(f"{name} {to.join(map(str, sorted({min(own), max(own)})))}" for name, own in sorted(found.items()))
