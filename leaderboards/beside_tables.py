"""Ours beside print as tables in the layout of the paper's: its rows, its columns, three figures in each place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboards.beside import Beside
from leaderboards.cells import Cell, Head, Row, Table, Words
from leaderboards.metrics import METRICS, Metric
from leaderboards.published import UNITS, PrintedCell
from leaderboards.schema import WHEN_DIVERGED

_SHORTENED = "†"
_INCOMPLETE = "§"
_WORDS = {
    "missing": "not run",
    "unavailable": "cannot run",
    "unmeasured": "not measured",
    "failed": "failed",
    "stopped": "stopped",
}
_MEANINGS = {
    "unavailable": "cannot run: see the reasons below",
    "unmeasured": "not measured: the runs have no such number",
    "failed": "failed: every run did",
    "stopped": "stopped: every run was, early, by a search",
    "diverged": f"DIVERGED: {WHEN_DIVERGED}",
    "unreached": "reached k of n: only so many seeds came to the target, and no mean is taken",
}
_PLACE = ("dataset", "alpha", "num_clients", "participation", "local_epochs", "metric")
_SYMBOLS = {"alpha": "α", "num_clients": "K", "participation": "C", "local_epochs": "E"}
# The three columns of a place. The metric's own scale is applied by the cells.
_COLUMNS = tuple(Metric(name, name, name, unit="", scale=1.0) for name in ("ours", "printed", "difference"))


def beside_table(found: Sequence[Beside], title: str) -> Table:
    """One table of results with ours, the printed value, and the difference in each of its places.

    A row of print with several configurations has a row for each of them.

    Args:
        found: its cells, in the order of print, each with what our runs reached.
        title: to stand above.
    """
    places = list(dict.fromkeys(_place(one.asked.printed) for one in found))
    varying = [i for i in range(len(_PLACE)) if len({place[i] for place in places}) > 1]
    labels = [_label(place, varying) for place in places]
    heads = tuple(Head((number,), label, column) for number, label in enumerate(labels) for column in _COLUMNS)
    remarks = _numbered(found)
    lines: dict[tuple[str, str], dict[tuple[Any, ...], Beside]] = {}
    for one in found:
        lines.setdefault((one.asked.printed.printed, one.asked.label), {})[_place(one.asked.printed)] = one
    rows = tuple(
        Row(name, "", label, tuple(cell for place in places for cell in _cells(line.get(place), remarks)))
        for (name, label), line in lines.items()
    )
    captions = tuple(_captions(found, [i for i in range(len(_PLACE)) if i not in varying]))
    return Table(title, captions, heads, rows, tuple(_notes(found, remarks)), {})


def records(found: Sequence[Beside]) -> Iterator[dict[str, Any]]:
    """Every cell and configuration as a flat record, numbers as stored: for CSV and JSON."""
    for one in found:
        printed = one.asked.printed
        yield {
            **{name: getattr(printed, name) for name in ("paper", "table", "dataset", "model", "heterogeneity")},
            **{name: getattr(printed, name) for name in _PLACE[1:-1]},
            "rounds": printed.rounds,
            "algorithm": printed.algorithm,
            "printed_as": printed.printed,
            "hyperparameters": one.asked.hp_json,
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
            "reason": one.asked.reason,
            "note": printed.note or "",
        }


def _place(printed: PrintedCell) -> tuple[Any, ...]:
    return (*(getattr(printed, name) for name in _PLACE[:-1]), printed.measured)


def _label(place: Sequence[Any], varying: Sequence[int]) -> str:
    """What tells a place from the table's others; its metric, where nothing does."""
    parts = []
    for i in varying or [len(_PLACE) - 1]:
        name, value = _PLACE[i], place[i]
        if name == "metric":
            parts.append(value.short)
        elif value is not None:
            parts.append(f"{_SYMBOLS[name]} = {value:g}" if name in _SYMBOLS else str(value))
    return ", ".join(parts)


def _numbered(found: Sequence[Beside]) -> dict[str, int]:
    """The notes of print, each with the number that marks its cells."""
    notes = dict.fromkeys(one.asked.printed.note for one in found if one.asked.printed.note)
    return {note: number for number, note in enumerate(notes, start=1) if note}


def _cells(one: Beside | None, remarks: Mapping[str, int]) -> list[Cell]:
    if one is None:
        return [Words("missing", column, words="") for column in _COLUMNS]
    state = one.state if one.state in ("value", "diverged", "failed") else "missing"
    printed = one.asked.printed
    theirs = _number(printed, printed.value, printed.std) + (f" [{remarks[printed.note]}]" if printed.note else "")
    return [
        Words(state, _COLUMNS[0], words=_ours(one)),
        Words("value", _COLUMNS[1], words=theirs),
        Words("value" if one.difference is not None else "missing", _COLUMNS[2], words=_difference(one)),
    ]


def _ours(one: Beside) -> str:
    marks = _SHORTENED * bool(one.shortened) + _INCOMPLETE * bool(one.incomplete)
    if one.state == "unreached":
        return f"reached {len(one.values)} of {one.n}{marks}"
    if one.mean is None:
        return ("DIVERGED" if one.state == "diverged" else _WORDS[one.state]) + marks
    text = f"{_number(one.asked.printed, one.mean, one.std)} ({one.n}){marks}"
    return f"DIVERGED {text}" if one.state == "diverged" else text


def _number(printed: PrintedCell, value: float, std: float | None) -> str:
    metric = printed.measured
    texts = [f"{part * metric.scale:.{metric.decimals}f}" for part in (value, std) if part is not None]
    return " ± ".join(texts)


def _difference(one: Beside) -> str:
    if one.difference is None:
        return ""
    metric = one.asked.printed.measured
    verdict = {True: " overlap", False: " apart", None: ""}[one.overlap]
    return f"{one.difference * metric.scale:+.{metric.decimals}f}{verdict}"


def _captions(found: Sequence[Beside], common: Sequence[int]) -> Iterator[str]:
    """The lines above: what all places have in common, what is measured, how many cells have runs."""
    place = _place(found[0].asked.printed)
    shared = [_label(place, [i]) for i in common if _PLACE[i] != "metric" and place[i] is not None]
    if shared:
        yield ", ".join(shared)
    yield "Ours: mean ± std (n seeds); printed: as in the paper; difference: ours less printed"
    units = {"fraction": ", in %", "fraction^2": f", {METRICS['fm'].unit}"}
    metrics = dict.fromkeys(one.asked.printed.measured for one in found)
    yield from dict.fromkeys(metric.meaning + units.get(UNITS[metric.quantity], "") for metric in metrics)
    cells = {one.asked.printed for one in found}
    run = {one.asked.printed for one in found if one.n}
    full = {one.asked.printed for one in found if one.n and not one.shortened}
    yield f"{len(run)} of {len(cells)} printed cells have runs, {len(full)} of them as printed"


def _notes(found: Sequence[Beside], remarks: Mapping[str, int]) -> Iterator[str]:
    """What the words and marks in the table mean, why cells cannot run, what is known of printed values."""
    if any(one.overlap is not None for one in found):
        yield "overlap, apart: whether the intervals mean ± std meet"
    shortened = dict.fromkeys(_shortening(one) for one in found if one.shortened)
    if shortened:
        yield f"{_SHORTENED} not the printed setting: {' | '.join(shortened)}"
    if any(one.incomplete for one in found):
        yield f"{_INCOMPLETE} some seeds failed or were stopped"
    states = {one.state for one in found}
    yield from (meaning for state, meaning in _MEANINGS.items() if state in states)
    for reason in dict.fromkeys(one.asked.reason for one in found if one.state == "unavailable"):
        yield f"cannot run: {reason}"
    yield from (f"[{number}] {note}" for note, number in remarks.items())


def _shortening(one: Beside) -> str:
    setting = one.asked.setting
    return ", ".join(f"{name} {value} for {setting[name]}" for name, value in one.shortened.items())
