"""Leaderboard -> tables: what is shown where, and which cells are ranked against each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from leaderboards.boards import base_model
from leaderboards.captions import captions, notes, place_label, title
from leaderboards.cells import Cell, Head, Place, Record, Row, Table, flat
from leaderboards.identity import canonical_json
from leaderboards.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Head", "Row", "Table", "flat", "tables_of"]

Tuned = Mapping[str, Sequence[str]]  # algorithm -> names of the hyper-parameters to show
K = TypeVar("K", bound=Hashable)


def tables_of(
    board: pd.DataFrame,
    metrics: Sequence[Metric],
    all_configurations: bool = False,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Table]:
    """The tables of a leaderboard, one per data set, model and setting.

    A row is an algorithm with its selected configuration, which may be another one in each column. Where several were
    tried and none was selected, and with `all_configurations`, each configuration has a row; the selected are ranked.

    Args:
        board: as `boards.leaderboard` gives it, or some of its rows.
        metrics: to stand side by side.
        all_configurations: also show those that were not selected.
        defaults: of the hyper-parameters, by algorithm; a value unlike its default is then always shown, a fixed
            default never.
    """
    records = _records(board)
    tuned = _tuned(records, defaults or {})
    groups = [(json.loads(key), members) for key, members in sorted(_grouped(records, _shared).items())]
    first = ("dataset", "model", "partition", "num_clients")
    groups.sort(key=lambda group: [_sortable(group[0][name]) for name in (*first, *group[0])])
    settings = [setting for setting, _ in groups]
    tables = []
    for setting, members in groups:
        heads = _heads({_place(record) for record in members}, metrics)
        rows = _ranked(list(_rows(members, heads, tuned, all_configurations)))
        differing = [name for name in setting if any(other.get(name) != setting[name] for other in settings)]
        common = _common_marks(rows)
        rows = tuple(_without(row, common) for row in rows)
        above = captions(setting, differing, metrics, members, common)
        tables.append(Table(title(setting, [h.place for h in heads]), above, heads, rows, notes(rows, heads), setting))
    return tables


def _heads(places: set[Place], metrics: Sequence[Metric]) -> tuple[Head, ...]:
    alphas, shares = (len({place[i] for place in places}) for i in (0, 1))
    labels = {place: place_label(*place, alphas, shares) for place in sorted(places, key=_order)}
    return tuple(Head(place, label, metric) for place, label in labels.items() for metric in metrics)


def _rows(records: Sequence[Record], heads: Sequence[Head], tuned: Tuned, all_configurations: bool) -> Iterator[Row]:
    for (algorithm, model), contest in _grouped(records, lambda r: (r["algorithm"], r["model"])).items():
        listed = all_configurations or _undecided(contest)
        lines = _grouped(contest, lambda r: r["hp_json"]) if listed else {"": contest}
        for line in lines.values():
            shown = {place: min(found, key=_precedence) for place, found in _grouped(line, _place).items()}
            cells = tuple(_cell(shown.get(head.place), head.metric, listed) for head in heads)
            yield Row(algorithm, model, _hyperparameters(shown, tuned[algorithm]), cells)


def _undecided(contest: Sequence[Record]) -> bool:
    """Whether some place has finished configurations, but none of them was selected."""
    places = _grouped([record for record in contest if record["n"]], _place).values()
    return any(not any(record["selected"] for record in found) for found in places)


def _precedence(record: Record) -> tuple[bool, bool, str]:
    """Which of a place's records stands for its algorithm: the selected one, else one that says what went wrong."""
    return not record["selected"], not record["failed"], record["hp_json"]


def _cell(record: Record | None, metric: Metric, listed: bool) -> Cell:
    if record is None:
        return Cell("missing", metric)
    if not record["n"]:
        return Cell("failed" if record["failed"] else "stopped", metric, record)
    marks = {
        "shortened": record["shortened"],
        "versions_mixed": record["versions_mixed"],
        "partial": record["failed"] or record["stopped"],
        "selected": listed and record["selected"],
    }
    measured = "missing" if record[f"{metric.name}_mean"] is None else "value"
    state = "diverged" if record["diverged"] else measured
    return Cell(state, metric, record, marks=tuple(name for name, holds in marks.items() if holds))


def _common_marks(rows: Sequence[Row]) -> frozenset[str]:
    """The marks that every cell with runs has: they are said once, above the table."""
    marks = [set(cell.marks) for row in rows for cell in row.cells if cell.state in ("value", "diverged")]
    return frozenset(set.intersection(*marks) & {"shortened", "versions_mixed"}) if marks else frozenset()


def _without(row: Row, marks: frozenset[str]) -> Row:
    cells = (replace(cell, marks=tuple(mark for mark in cell.marks if mark not in marks)) for cell in row.cells)
    return replace(row, cells=tuple(cells))


def _ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """`rows` with the ranks of their cells, sorted: complete ones first, by mean rank; reference rows last."""
    columns = zip(*(row.cells for row in rows), strict=True)
    ranked = [_ranked_column(column, [row.reference for row in rows]) for column in columns]
    placed = [replace(row, cells=cells) for row, cells in zip(rows, zip(*ranked, strict=True), strict=True)]
    # The rows of an algorithm stay together, in the order of their hyper-parameters, where their best cells stand.
    together: dict[str, list[Row]] = {}
    for row in placed:
        together.setdefault(row.label, []).append(row)
    return tuple(row for rows in sorted(together.values(), key=_standing) for row in rows)


def _ranked_column(cells: Sequence[Cell], references: Sequence[bool]) -> list[Cell]:
    """The cells of a column with their ranks: one more than the number of cells that are better."""
    scores = [None if reference else _score(cell) for cell, reference in zip(cells, references, strict=True)]
    known = [score for score in scores if score is not None]
    ranks = [None if score is None else 1 + sum(other > score for other in known) for score in scores]
    words = {1: "best", 2: "second"} if len(known) > 1 else {}
    return [
        replace(cell, rank=rank, emphasis=words.get(rank or 0, "")) for cell, rank in zip(cells, ranks, strict=True)
    ]


def _score(cell: Cell) -> float | None:
    """The cell's mean, larger is better; None if it takes no part: only what was selected does."""
    mean = cell.statistic("mean")
    if cell.state != "value" or mean is None or cell.record is None or not cell.record["selected"]:
        return None
    return mean if cell.metric.higher_is_better else -mean


def _standing(rows: Sequence[Row]) -> tuple[bool, int, float, str]:
    """What algorithms are sorted by: competitors before references, few unranked columns before many, mean rank."""
    columns = zip(*(row.cells for row in rows), strict=True)
    best = [min((cell.rank for cell in cells if cell.rank is not None), default=None) for cells in columns]
    ranks = [rank for rank in best if rank is not None]
    return rows[0].reference, len(best) - len(ranks), sum(ranks) / max(1, len(ranks)), rows[0].label


def _hyperparameters(shown: Mapping[Place, Record], names: Sequence[str]) -> str:
    """The values of `names`: `mu=0.1`, or `mu=0.1|1` where the places, from left to right, have different ones.

    Switches that are off everywhere, and empty values, are left out.
    """
    values = [json.loads(shown[place]["hp_json"]) for place in sorted(shown, key=_order)]
    names = [name for name in names if any(not _off(value.get(name)) for value in values)]
    texts = {name: [_show(value[name]) for value in values if name in value] for name in names}
    return " ".join(
        f"{name}={found[0] if len(set(found)) == 1 else '|'.join(found)}" for name, found in texts.items() if found
    )


def _off(value: object) -> bool:
    """Whether a value is empty or a switch that is off; 0 is neither."""
    return value is None or value is False


def _tuned(records: Sequence[Record], defaults: Mapping[str, Mapping[str, Any]]) -> Tuned:
    """The hyper-parameters worth showing: those with several values, and those unlike a known default.

    Of algorithms without known defaults, all where no algorithm at all has several values.
    """
    every: dict[str, dict[str, set[str]]] = {}
    for record in records:
        names = every.setdefault(record["algorithm"], {})
        for name, value in json.loads(record["hp_json"]).items():
            names.setdefault(name, set()).add(_show(value))
    several = {key: [name for name, values in names.items() if len(values) > 1] for key, names in every.items()}
    plain = several if any(several.values()) else {key: list(names) for key, names in every.items()}
    return {key: _unlike(names, defaults[key]) if key in defaults else plain[key] for key, names in every.items()}


def _unlike(names: Mapping[str, set[str]], defaults: Mapping[str, Any]) -> list[str]:
    return [name for name, values in names.items() if values != {_show(defaults.get(name))}]


def _records(board: pd.DataFrame) -> list[dict[str, Any]]:
    filled = board.astype(object).where(board.notna(), None)
    return [{str(name): value for name, value in record.items()} for record in filled.to_dict("records")]


def _grouped(records: Iterable[Record], key: Callable[[Record], K]) -> dict[K, list[Record]]:
    groups: dict[K, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _place(record: Record) -> Place:
    return record["alpha"], record["participation"]


def _order(place: Place) -> tuple[bool, float, float]:
    """Sorts places by alpha, those without one first, then by participation."""
    return place[0] is not None, place[0] or 0.0, place[1]


def _sortable(value: Any) -> tuple[bool, float, str]:
    """Numbers before text, whatever a field holds."""
    number = isinstance(value, int | float)
    return not number, value if number else 0.0, str(value)


def _shared(record: Record) -> str:
    """What the records of one table have in common: the setting without alpha, participation and model's variant."""
    setting = json.loads(record["setting_json"])
    setting["model"] = base_model(setting["model"])
    return canonical_json({name: value for name, value in setting.items() if name not in ("alpha", "participation")})


def _show(value: Any) -> str:
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)
