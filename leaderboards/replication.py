"""Our runs beside printed numbers: corresponding runs, their results, their distance from print.

A run corresponds to a printed number if its algorithm, hyper-parameters and setting are the
number's. If there is no such run, one that is shorter, has less data or another model is taken, and
is marked.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pandas as pd

from leaderboards.board import current
from leaderboards.flags import FLAGS
from leaderboards.numbers import ANY, FRACTION, VARIANCE, Curve, Number
from leaderboards.published import Counterpart, PrintedCell
from leaderboards.rows.frames import by_run, records
from leaderboards.rows.schema import SHORTENING, WHEN_DIVERGED
from leaderboards.tables.captions import SYMBOLS
from leaderboards.tables.model import Head, ResultTable, Row, Sheet, TableCell, number_text

if TYPE_CHECKING:
    from leaderboards.rows.store import Folders

Run = Mapping[str, Any]  # a row of `runs`, its setting read as `setting`

_SHORTENED = FLAGS["shortened"].mark
_INCOMPLETE = FLAGS["partial"].mark
_COPIES = FLAGS["data"].mark
# State -> text in place of our number, and the note below the table.
_STATES = {
    "missing": ("not run", ""),
    "unmeasured": ("not measured", "not measured: the runs did not record it"),
    "failed": ("failed", "failed: no run finished, and some failed"),
    "stopped": ("stopped", "stopped: a search stopped every run early"),
    "diverged": ("DIVERGED", f"DIVERGED k/n: k of n runs; {WHEN_DIVERGED}"),
    "unreached": ("", "reached k of n: so many seeds reached the target, and no mean is given"),
}
_FIELDS = (  # of a printed number's setting, by which a table places it
    "dataset",
    "alpha",
    "num_clients",
    "participation",
    "local_epochs",
    "classes_per_client",
)
_SYMBOLS = {**SYMBOLS, "classes_per_client": "n"}
# The three columns of a place. Cells apply the metric's own scale.
_COLUMNS = tuple(Number(name, name, ANY) for name in ("ours", "printed", "difference"))


@dataclass(frozen=True)
class Replication:
    """Our result for a printed number.

    Args:
        counterpart: the number and the configuration.
        state: `value`; `diverged` (some run did; the values exist, but mean little); `unreached`
            (some run never reached the target); `unmeasured`; `failed` or `stopped` (all runs
            were); `missing`.
        values: one for each seed that has a value.
        n: number of finished seeds.
        incomplete: number of seeds that failed or were stopped, if others finished.
        shortened: the fields that differ from the number's setting, with our values; empty for a
            run as printed.
        copies: number of copies of the data that the finished runs were trained on.
        diverged: number of finished runs that diverged.
    """

    counterpart: Counterpart
    state: str
    values: tuple[float, ...] = ()
    n: int = 0
    incomplete: int = 0
    shortened: Mapping[str, Any] = field(default_factory=dict)
    copies: int = 1
    diverged: int = 0

    @property
    def printed(self) -> PrintedCell:
        """The printed number."""
        return self.counterpart.printed

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None unless every finished seed has a value."""
        if not self.values or len(self.values) != self.n:
            return None
        return math.fsum(self.values) / self.n

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (n - 1); None below two seeds."""
        if self.mean is None or self.n < 2:
            return None
        return statistics.stdev(self.values)

    @property
    def difference(self) -> float | None:
        """Our mean minus the printed value."""
        return None if self.mean is None else self.mean - self.printed.value

    @property
    def overlap(self) -> bool | None:
        """Return whether the intervals mean ± std meet.

        None for two numbers without spread, and for shortened runs.
        """
        stds = (self.std, self.printed.std)
        spreads = [std for std in stds if std is not None]
        if self.difference is None or self.shortened or not spreads:
            return None
        return abs(self.difference) <= math.fsum(spreads)


def replications(counterparts: Sequence[Counterpart], results: Folders) -> list[Replication]:
    """Find the result of stored runs for each counterpart."""
    algorithms = {(counterpart.algorithm, counterpart.hp_json) for counterpart in counterparts}
    frame = current(results.runs())
    stored_algorithms = pd.MultiIndex.from_frame(frame[["algorithm", "hp_json"]])
    frame = frame[stored_algorithms.isin(pd.MultiIndex.from_tuples(algorithms))]
    runs: dict[tuple[str, str], list[Run]] = {}
    for run in records(frame):
        run["setting"] = json.loads(run["setting_json"])
        runs.setdefault((run["algorithm"], run["hp_json"]), []).append(run)
    settings = [counterpart.setting for counterpart in counterparts]
    choices = []
    needed = set()
    for counterpart in counterparts:
        own_runs = runs.get((counterpart.algorithm, counterpart.hp_json), [])
        nearest, shortened = _nearest_runs(counterpart, own_runs, settings)
        choices.append((counterpart, nearest, shortened))
        needed |= {run["run_key"] for run in nearest if run["status"] == "finished"}
    curves = by_run(results.curves(needed)) if needed else {}
    return [_replication(*choice, curves) for choice in choices]


def shortened_by(asked: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a setting with less than was asked for, or another model.

    None if the setting is another problem.
    """
    if not asked.keys() <= setting.keys():
        return None
    differing = {}
    for name, value in setting.items():
        if name not in asked or value != asked[name]:
            differing[name] = value
    if differing.keys() - {*SHORTENING, "model", "model_version"}:
        return None
    longer = any(setting[name] > asked[name] for name in SHORTENING)
    return None if longer else differing


def _nearest_runs(
    counterpart: Counterpart, runs: Sequence[Run], settings: Sequence[Mapping[str, Any]]
) -> tuple[list[Run], dict[str, Any]]:
    """Choose the runs that correspond to a number, and what shortens them.

    Runs of one setting belong together, and the setting nearest to the number's is chosen: first by
    whether it has finished runs, then by its model, then by its share of rounds, epochs and data.
    If a table compares numbers of epochs, a full run of another of the `settings` is not a
    shortened run of this number.
    """
    runs_of: dict[str, list[Run]] = {}  # by setting_json
    shortened_of: dict[str, dict[str, Any]] = {}
    for run in runs:
        shortened = shortened_by(counterpart.setting, run["setting"])
        if shortened is None:
            continue
        if shortened and any(shortened_by(other, run["setting"]) == {} for other in settings):
            continue
        shortened_of[run["setting_json"]] = shortened
        runs_of.setdefault(run["setting_json"], []).append(run)
    if not runs_of:
        return [], {}

    def nearness(setting_json: str) -> tuple[bool, bool, list[float]]:
        setting = {**counterpart.setting, **shortened_of[setting_json]}
        finished = any(run["status"] == "finished" for run in runs_of[setting_json])
        shares = [float(setting[name]) for name in SHORTENING]
        return finished, "model" not in shortened_of[setting_json], shares

    nearest = max(runs_of, key=nearness)
    return runs_of[nearest], shortened_of[nearest]


def _replication(
    counterpart: Counterpart,
    runs: Sequence[Run],
    shortened: Mapping[str, Any],
    curves: Mapping[str, Curve],
) -> Replication:
    finished = [run for run in runs if run["status"] == "finished"]
    if not finished:
        states = {run["status"] for run in runs}
        state = "missing"
        if states:
            state = "failed" if "failed" in states else "stopped"
        return Replication(counterpart, state, shortened=shortened)
    printed = counterpart.printed
    values = []
    for run in finished:
        curve = curves.get(run["run_key"], {})
        value = printed.value_of(curve)
        if value is not None:
            values.append(value)
    state = "value"
    diverged = sum(bool(run["diverged"]) for run in finished)
    if diverged:
        state = "diverged"
    elif len(values) < len(finished):
        state = "unreached" if printed.rule == "to_target" else "unmeasured"
    hashes = {run["dataset_hash"] for run in finished if run["dataset_hash"]}
    return Replication(
        counterpart,
        state,
        tuple(values),
        n=len(finished),
        incomplete=len(runs) - len(finished),
        shortened=shortened,
        copies=len(hashes),
        diverged=diverged,
    )


def replication_sheet(rows: Sequence[Replication], title: str) -> Sheet:
    """Make one table of a paper's numbers, in the order of print.

    A place has three columns: ours, the printed value, and the difference. A row of print with
    several counterparts has a row for each of them.
    """
    printed_at: dict[tuple[Any, ...], PrintedCell] = {}  # place -> one of its numbers
    for row in rows:
        printed_at.setdefault(_place(row.printed), row.printed)
    varying = []
    for name in _FIELDS:
        values = {getattr(printed, name) for printed in printed_at.values()}
        if len(values) > 1:
            varying.append(name)
    heads = tuple(_heads(list(printed_at.values()), varying))
    numbers: dict[str, int] = {}  # of remarks, printed in the cells that have the remark
    lines: dict[tuple[str, str], dict[tuple[Any, ...], Replication]] = {}
    for row in rows:
        printed = row.printed
        if printed.note:
            numbers.setdefault(printed.note, len(numbers) + 1)
        line = lines.setdefault((printed.printed, row.counterpart.label), {})
        line[_place(printed)] = row
    body = []
    for (name, label), line in lines.items():
        cells = chain.from_iterable(_cells(line.get(place), numbers) for place in printed_at)
        texts = {}
        for word in label.split():
            hyperparameter, _, value = word.partition("=")
            texts[hyperparameter] = [value] * len(printed_at)
        body.append(Row(name, "", texts, tuple(cells)))
    common = [name for name in _FIELDS if name not in varying]
    above = tuple(_captions(rows, common))
    below = tuple(_notes(rows, numbers))
    table = ResultTable(title, above, heads, tuple(body), below, {})
    return Sheet(table, tuple(_records(rows)))


def _heads(numbers: Sequence[PrintedCell], varying: Sequence[str]) -> Iterator[Head]:
    """Yield the headings of the places of `numbers`, by the fields and metrics that vary."""
    metrics = {printed.measured for printed in numbers}
    for i, printed in enumerate(numbers):
        texts = _field_texts(printed, varying)
        if len(metrics) > 1 or not varying:
            texts.append(printed.measured.short)
        for column in _COLUMNS:
            yield Head((i,), ", ".join(texts), column)


def _records(rows: Sequence[Replication]) -> Iterator[dict[str, Any]]:
    """Yield every number and counterpart as a flat record, with numbers as stored."""
    for row in rows:
        printed = row.printed
        of_setting = ("dataset", "model", "client_models", "heterogeneity", *_FIELDS[1:])
        fields = ("paper", "table", *of_setting, "rounds")
        yield {
            **{name: getattr(printed, name) for name in fields},
            "algorithm": row.counterpart.algorithm,
            "printed_as": printed.printed,
            "hyperparameters": row.counterpart.hp_json,
            "metric": printed.metric,
            "unit": printed.unit,
            "state": row.state,
            "ours": row.mean,
            "ours_std": row.std,
            "n": row.n,
            "with_value": len(row.values),
            "printed": printed.value,
            "printed_std": printed.std,
            "difference": row.difference,
            "overlap": row.overlap,
            "shortened": ", ".join(f"{name}={value}" for name, value in row.shortened.items()),
            "note": printed.note or "",
        }


def _place(printed: PrintedCell) -> tuple[Any, ...]:
    fields = [getattr(printed, name) for name in _FIELDS]
    return (*fields, printed.measured)


def _field_texts(printed: PrintedCell, names: Sequence[str]) -> list[str]:
    """Describe those of the fields that have a value: `cifar10`, `C = 0.2`."""
    texts = []
    for name in names:
        value = getattr(printed, name)
        if value is not None:
            texts.append(f"{_SYMBOLS[name]} = {value:g}" if name in _SYMBOLS else str(value))
    return texts


def _cells(row: Replication | None, remarks: Mapping[str, int]) -> list[TableCell]:
    if row is None:
        return [TableCell("missing", column, words="") for column in _COLUMNS]
    printed = row.printed
    printed_text = _value_text(printed, printed.value, printed.std)
    if printed.note:
        printed_text += f" [{remarks[printed.note]}]"
    difference = ""
    if row.difference is not None:
        verdict = {True: " overlap", False: " apart", None: ""}[row.overlap]
        difference = number_text(row.difference, printed.measured, sign=True) + verdict
    state = row.state if row.state in ("value", "diverged", "failed") else "missing"
    return [
        TableCell(state, _COLUMNS[0], words=_our_text(row)),
        TableCell("value", _COLUMNS[1], words=printed_text),
        TableCell("value" if difference else "missing", _COLUMNS[2], words=difference),
    ]


def _our_text(row: Replication) -> str:
    marks = ""
    if row.shortened:
        marks += _SHORTENED
    if row.incomplete:
        marks += _INCOMPLETE
    if row.copies > 1:
        marks += _COPIES
    if row.state == "unreached":
        return f"reached {len(row.values)} of {row.n}{marks}"
    word = f"DIVERGED {row.diverged}/{row.n}" if row.state == "diverged" else ""
    if row.mean is None:
        return (word or _STATES[row.state][0]) + marks
    text = f"{_value_text(row.printed, row.mean, row.std)} ({row.n}){marks}"
    return f"{word} {text}".strip()


def _value_text(printed: PrintedCell, value: float, std: float | None) -> str:
    text = number_text(value, printed.measured)
    return text if std is None else f"{text} ± {number_text(std, printed.measured)}"


def _captions(rows: Sequence[Replication], common: Sequence[str]) -> Iterator[str]:
    """Yield the lines above the table: common fields, definitions of metrics, numbers with runs."""
    shared = _field_texts(rows[0].printed, common)
    if shared:
        yield ", ".join(shared)
    yield "Ours: mean ± std (n seeds); printed: as in the paper; difference: ours minus printed"
    units = {FRACTION: f", in {FRACTION.shown}", VARIANCE: f", {VARIANCE.shown}"}
    metrics = dict.fromkeys(row.printed.measured for row in rows)
    meanings = [metric.quantity + units.get(metric.unit, "") for metric in metrics]
    yield from dict.fromkeys(meanings)
    cells = {row.printed for row in rows}
    with_runs = {row.printed for row in rows if row.n}
    as_printed = {row.printed for row in rows if row.n and not row.shortened}
    yield (
        f"{len(with_runs)} of {len(cells)} printed cells have runs, "
        f"{len(as_printed)} of them in the printed setting"
    )


def _notes(rows: Sequence[Replication], remarks: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines below the table: the meaning of words and marks, remarks on print."""
    if any(row.overlap is not None for row in rows):
        yield "overlap, apart: whether the intervals mean ± std meet"
    shortened = dict.fromkeys(_shortening(row) for row in rows if row.shortened)
    if shortened:
        yield f"{_SHORTENED} not the printed setting: {' | '.join(shortened)}"
    if any(row.incomplete for row in rows):
        yield f"{_INCOMPLETE} {FLAGS['partial'].meaning}"
    if any(row.copies > 1 for row in rows):
        yield f"{_COPIES} seeds run on different copies of the data"
    states = {row.state for row in rows}
    for state, (_, note) in _STATES.items():
        if state in states and note:
            yield note
    for remark, number in remarks.items():
        yield f"[{number}] {remark}"


def _shortening(row: Replication) -> str:
    """Say what a shortened run has in place of the printed values: `rounds 20 for 100`."""
    printed = row.counterpart.setting
    fields = [(name, value) for name, value in row.shortened.items() if name in printed]
    return ", ".join(f"{name} {value} for {printed[name]}" for name, value in fields)
