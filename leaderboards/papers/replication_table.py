"""Ours beside print as tables in the layout of the paper's: its rows, its columns, three figures in each place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboards.metrics import METRICS, Metric
from leaderboards.papers.replication import Replication
from leaderboards.published import UNITS, PrintedCell
from leaderboards.rows.schema import WHEN_DIVERGED
from leaderboards.tables.captions import SYMBOLS
from leaderboards.tables.model import Cell, Head, Row, Table

_SHORTENED = "†"
_INCOMPLETE = "§"
# State -> what stands in place of our number, and the note below.
_STATES = {
    "missing": ("not run", ""),
    "unavailable": ("cannot run", "cannot run: see the reasons below"),
    "unmeasured": ("not measured", "not measured: the runs have no such number"),
    "failed": ("failed", "failed: every run did"),
    "stopped": ("stopped", "stopped: every run was, early, by a search"),
    "diverged": ("DIVERGED", f"DIVERGED: {WHEN_DIVERGED}"),
    "unreached": ("", "reached k of n: only so many seeds came to the target, and no mean is taken"),
}
_PLACE = ("dataset", "alpha", "num_clients", "participation", "local_epochs", "metric")
# The three columns of a place. The metric's own scale is applied by the cells.
_COLUMNS = tuple(Metric(name, name, name, unit="", scale=1.0) for name in ("ours", "printed", "difference"))


def replication_table(rows: Sequence[Replication], title: str) -> Table:
    """Make one table of a paper's numbers, in the order of print: ours, the printed value, and the difference.

    A row of print with several candidates has a row for each of them.
    """
    places = list(dict.fromkeys(_place(one.candidate.printed) for one in rows))
    varying = [i for i in range(len(_PLACE)) if len({place[i] for place in places}) > 1]
    heads = tuple(Head((i,), _label(place, varying), column) for i, place in enumerate(places) for column in _COLUMNS)
    remarks = dict.fromkeys(note for one in rows if (note := one.candidate.printed.note))
    numbers = {note: number for number, note in enumerate(remarks, start=1)}  # that mark the cells of a note
    lines: dict[tuple[str, str], dict[tuple[Any, ...], Replication]] = {}
    for one in rows:
        printed = one.candidate.printed
        lines.setdefault((printed.printed, one.candidate.label), {})[_place(printed)] = one
    body = tuple(
        Row(name, "", label, tuple(cell for place in places for cell in _cells(line.get(place), numbers)))
        for (name, label), line in lines.items()
    )
    above = tuple(_captions(rows, [i for i in range(len(_PLACE)) if i not in varying]))
    return Table(title, above, heads, body, tuple(_notes(rows, numbers)), {})


def records(rows: Sequence[Replication]) -> Iterator[dict[str, Any]]:
    """Give every number and candidate as a flat record, numbers as stored: for CSV and JSON."""
    for one in rows:
        printed = one.candidate.printed
        yield {
            **{name: getattr(printed, name) for name in ("paper", "table", "dataset", "model", "heterogeneity")},
            **{name: getattr(printed, name) for name in _PLACE[1:-1]},
            "rounds": printed.rounds,
            "algorithm": printed.algorithm,
            "printed_as": printed.printed,
            "hyperparameters": one.candidate.hp_json,
            "metric": printed.metric,
            "unit": printed.unit,
            "state": one.state,
            "ours": one.mean,
            "ours_std": one.std,
            "n": one.n,
            "with_value": len(one.values),
            "printed": printed.value,
            "printed_std": printed.std,
            "difference": one.difference,
            "overlap": one.overlap,
            "shortened": ", ".join(f"{name}={value}" for name, value in one.shortened.items()),
            "reason": one.candidate.reason,
            "note": printed.note or "",
        }


def _place(printed: PrintedCell) -> tuple[Any, ...]:
    return (*(getattr(printed, name) for name in _PLACE[:-1]), printed.measured)


def _label(place: Sequence[Any], varying: Sequence[int]) -> str:
    """Name what tells a place from the table's others; its metric, if nothing does."""
    parts = []
    for i in varying or [len(_PLACE) - 1]:
        name, value = _PLACE[i], place[i]
        if name == "metric":
            parts.append(value.short)
        elif value is not None:
            parts.append(f"{SYMBOLS[name]} = {value:g}" if name in SYMBOLS else str(value))
    return ", ".join(parts)


def _cells(one: Replication | None, remarks: Mapping[str, int]) -> list[Cell]:
    if one is None:
        return [Cell("missing", column, words="") for column in _COLUMNS]
    printed = one.candidate.printed
    metric = printed.measured
    theirs = _number(printed, printed.value, printed.std) + (f" [{remarks[printed.note]}]" if printed.note else "")
    difference = ""
    if one.difference is not None:
        verdict = {True: " overlap", False: " apart", None: ""}[one.overlap]
        difference = f"{one.difference * metric.scale:+.{metric.decimals}f}{verdict}"
    state = one.state if one.state in ("value", "diverged", "failed") else "missing"
    return [
        Cell(state, _COLUMNS[0], words=_ours(one)),
        Cell("value", _COLUMNS[1], words=theirs),
        Cell("value" if difference else "missing", _COLUMNS[2], words=difference),
    ]


def _ours(one: Replication) -> str:
    marks = _SHORTENED * bool(one.shortened) + _INCOMPLETE * bool(one.incomplete)
    if one.state == "unreached":
        return f"reached {len(one.values)} of {one.n}{marks}"
    if one.mean is None:
        return _STATES[one.state][0] + marks
    text = f"{_number(one.candidate.printed, one.mean, one.std)} ({one.n}){marks}"
    return f"DIVERGED {text}" if one.state == "diverged" else text


def _number(printed: PrintedCell, value: float, std: float | None) -> str:
    metric = printed.measured
    return " ± ".join(f"{part * metric.scale:.{metric.decimals}f}" for part in (value, std) if part is not None)


def _captions(rows: Sequence[Replication], common: Sequence[int]) -> Iterator[str]:
    """The lines above: what all places have in common, what is measured, how many numbers have runs."""
    place = _place(rows[0].candidate.printed)
    shared = [_label(place, [i]) for i in common if _PLACE[i] != "metric" and place[i] is not None]
    if shared:
        yield ", ".join(shared)
    yield "Ours: mean ± std (n seeds); printed: as in the paper; difference: ours less printed"
    units = {"fraction": ", in %", "fraction^2": f", {METRICS['fm'].unit}"}
    metrics = dict.fromkeys(one.candidate.printed.measured for one in rows)
    yield from dict.fromkeys(metric.meaning + units.get(UNITS[metric.quantity], "") for metric in metrics)
    cells = {one.candidate.printed for one in rows}
    run = {one.candidate.printed for one in rows if one.n}
    full = {one.candidate.printed for one in rows if one.n and not one.shortened}
    yield f"{len(run)} of {len(cells)} printed cells have runs, {len(full)} of them as printed"


def _notes(rows: Sequence[Replication], remarks: Mapping[str, int]) -> Iterator[str]:
    """The meaning of words and marks in the table, why cells cannot run, what is known of printed values."""
    if any(one.overlap is not None for one in rows):
        yield "overlap, apart: whether the intervals mean ± std meet"
    shortened = dict.fromkeys(
        ", ".join(f"{name} {value} for {one.candidate.setting[name]}" for name, value in one.shortened.items())
        for one in rows
        if one.shortened
    )
    if shortened:
        yield f"{_SHORTENED} not the printed setting: {' | '.join(shortened)}"
    if any(one.incomplete for one in rows):
        yield f"{_INCOMPLETE} some seeds failed or were stopped"
    states = {one.state for one in rows}
    yield from (note for state, (_, note) in _STATES.items() if state in states and note)
    for reason in dict.fromkeys(one.candidate.reason for one in rows if one.state == "unavailable"):
        yield f"cannot run: {reason}"
    yield from (f"[{number}] {note}" for note, number in remarks.items())
