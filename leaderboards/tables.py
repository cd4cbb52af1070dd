"""Leaderboard -> tables: what is shown where, and which cells are ranked against each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from leaderboards import frames
from leaderboards.boards import base_model
from leaderboards.captions import captions, notes, place_label, title
from leaderboards.cells import BY, Cell, Head, Place, Record, Row, Table, flat
from leaderboards.commands import typed
from leaderboards.identity import canonical_json
from leaderboards.metrics import METRICS, Metric
from leaderboards.schema import own_name
from leaderboards.stats.paired import rankable, shared_ranks

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
    by: Sequence[str] = BY,
    intervals: bool = False,
    tuned: Sequence[str] = (),
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
        by: fields of the setting whose values stand side by side, instead of making tables of their own.
        intervals: print 95 % intervals instead of standard deviations.
        tuned: fields of the setting over which configurations were selected, as given to `boards.leaderboard`.
    """
    records = [_with_fields(record, tuned) for record in frames.records(board)]
    shown = {name: [*names, *tuned] for name, names in _tuned(records, defaults or {}).items()}
    apart = frozenset((*by, *tuned))
    groups = [(json.loads(key), found) for key, found in sorted(_grouped(records, lambda r: _shared(r, apart)).items())]
    first = ("dataset", "model", "partition", "num_clients")
    groups.sort(key=lambda group: [_sortable(group[0].get(name)) for name in (*first, *group[0])])
    settings = [setting for setting, _ in groups]
    tables = []
    for setting, members in groups:
        heads = _heads({_place(record, by) for record in members}, by, metrics)
        rows = _ranked(list(_rows(members, heads, by, shown, all_configurations)))
        differing = [name for name in setting if any(other.get(name) != setting[name] for other in settings)]
        common = _common_marks(rows)
        rows = tuple(_dressed(row, common, intervals) for row in rows)
        above = captions(setting, differing, metrics, members, common, intervals)
        name = title(setting, by, [head.place for head in heads])
        tables.append(Table(name, above, heads, rows, notes(rows, heads), setting, tuple(by)))
    return tables


def _heads(places: set[Place], by: Sequence[str], metrics: Sequence[Metric]) -> tuple[Head, ...]:
    varying = [name for i, name in enumerate(by) if len({place[i] for place in places}) > 1]
    labels = {place: place_label(place, by, varying) for place in sorted(places, key=_order)}
    return tuple(Head(place, label, metric) for place, label in labels.items() for metric in metrics)


def _rows(
    records: Sequence[Record], heads: Sequence[Head], by: Sequence[str], tuned: Tuned, all_configurations: bool
) -> Iterator[Row]:
    for (algorithm, model), contest in _grouped(records, lambda r: (r["algorithm"], r["model"])).items():
        listed = all_configurations or _undecided(contest, by)
        lines = _grouped(contest, lambda r: canonical_json(r["chosen"])) if listed else {"": contest}
        for line in lines.values():
            places = _grouped(line, lambda r: _place(r, by))
            shown = {place: min(found, key=_precedence) for place, found in places.items()}
            cells = tuple(_cell(shown.get(head.place), head.metric, listed) for head in heads)
            yield Row(algorithm, model, _hyperparameters(shown, tuned[algorithm]), cells)


def _undecided(contest: Sequence[Record], by: Sequence[str]) -> bool:
    """Whether some place has finished configurations, but none of them was selected."""
    places = _grouped([record for record in contest if record["n"]], lambda r: _place(r, by)).values()
    return any(not any(record["selected"] for record in found) for found in places)


def _precedence(record: Record) -> tuple[bool, bool, str]:
    """Which of a place's records stands for its algorithm: the selected one, else one that says what went wrong."""
    return not record["selected"], not record["failed"], record["hp_json"]


def _cell(record: Record | None, metric: Metric, listed: bool) -> Cell:
    if record is None or not record["n"]:
        return Cell(state_of(record, metric), metric, record)
    marks = {
        "shortened": record["shortened"],
        "versions_mixed": record["versions_mixed"],
        "partial": record["failed"] or record["stopped"],
        "selected": listed and record["selected"],
    }
    return Cell(state_of(record, metric), metric, record, marks=tuple(name for name, holds in marks.items() if holds))


def state_of(record: Record | None, metric: Metric) -> str:
    """The state of a cell (`Cell.state`). A column of which no run has a value was not asked for: it is missing."""
    if record is None:
        return "missing"
    if not record["n"]:
        return "failed" if record["failed"] else "stopped"
    if record["diverged"]:
        return "diverged"
    if record[f"{metric.name}_mean"] is not None:
        return "value"
    return "unreached" if record.get(f"{metric.name}_count") or metric.name not in METRICS else "missing"


def _common_marks(rows: Sequence[Row]) -> frozenset[str]:
    """The marks that every cell with runs has: they are said once, above the table."""
    marks = [set(cell.marks) for row in rows for cell in row.cells if cell.state in ("value", "diverged")]
    return frozenset(set.intersection(*marks) & {"shortened", "versions_mixed"}) if marks else frozenset()


def _dressed(row: Row, common: frozenset[str], intervals: bool) -> Row:
    """The row without the marks that are said above the table, its cells as they are to be printed."""
    marks = [tuple(mark for mark in cell.marks if mark not in common) for cell in row.cells]
    cells = (replace(cell, marks=kept, interval=intervals) for cell, kept in zip(row.cells, marks, strict=True))
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
    """The cells of a column with their ranks."""
    scores = [None if reference else _score(cell) for cell, reference in zip(cells, references, strict=True)]
    ranked = {i: score for i, score in enumerate(scores) if score is not None}
    if any(cell.metric.differs_by_seed for cell in cells):
        enough = rankable({i: cells[i].n for i in ranked})
        ranked = {i: score for i, score in ranked.items() if i in enough}
    ranks = _shared_ranks(cells, ranked) or {i: 1 + sum(o > s for o in ranked.values()) for i, s in ranked.items()}
    words = {1: "best", 2: "second"} if len(set(ranks.values())) > 1 else {}
    return [replace(cell, rank=ranks.get(i), emphasis=words.get(ranks.get(i, 0), "")) for i, cell in enumerate(cells)]


def _shared_ranks(cells: Sequence[Cell], ranked: Iterable[int]) -> dict[int, int]:
    """Position -> rank, shared by what is not separable; nothing where values by seed are not known, or are costs."""
    values = {str(i): cells[i].seeds for i in ranked}
    if not values or not all(values.values()) or not all(cells[int(i)].metric.differs_by_seed for i in values):
        return {}
    metric = cells[int(next(iter(values)))].metric
    return {int(place.algorithm): place.rank for place in shared_ranks(values, metric.higher_is_better)}


def _score(cell: Cell) -> float | None:
    """The cell's mean, larger is better; None if it takes no part: only what was selected does."""
    mean = cell.statistic("mean")
    if cell.state != "value" or mean is None or cell.record is None or not cell.record["selected"]:
        return None
    return mean if cell.metric.higher_is_better else -mean


def _standing(rows: Sequence[Row]) -> tuple[bool, int, float, float, str]:
    """What algorithms are sorted by: competitors first, few unranked columns before many, mean rank, mean score."""
    columns = list(zip(*(row.cells for row in rows), strict=True))
    best = [min((cell.rank for cell in cells if cell.rank is not None), default=None) for cells in columns]
    ranks = [rank for rank in best if rank is not None]
    scores = [score for cells in columns for cell in cells if (score := _score(cell)) is not None]
    mean_rank, mean_score = (sum(found) / max(1, len(found)) for found in (ranks, scores))
    return rows[0].reference, len(best) - len(ranks), mean_rank, -mean_score, rows[0].label


def _hyperparameters(shown: Mapping[Place, Record], names: Sequence[str]) -> str:
    """The values of `names`: `mu=0.1`, or `mu=0.1|1` where the places, from left to right, have different ones.

    Switches that are off everywhere, and empty values, are left out.
    """
    values = [shown[place]["chosen"] for place in sorted(shown, key=_order)]
    names = [name for name in names if any(not _off(value.get(name)) for value in values)]
    texts = {name: [typed(value[name]) for value in values if name in value] for name in names}
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
            names.setdefault(name, set()).add(typed(value))
    several = {key: [name for name, values in names.items() if len(values) > 1] for key, names in every.items()}
    plain = several if any(several.values()) else {key: list(names) for key, names in every.items()}
    found = {key: _unlike(names, defaults[key]) if key in defaults else plain[key] for key, names in every.items()}
    return {key: [own_name(key, name) for name in names] for key, names in found.items()}


def _unlike(names: Mapping[str, set[str]], defaults: Mapping[str, Any]) -> list[str]:
    return [name for name, values in names.items() if values != {typed(defaults.get(name))}]


def _grouped(records: Iterable[Record], key: Callable[[Record], K]) -> dict[K, list[Record]]:
    groups: dict[K, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _place(record: Record, by: Sequence[str]) -> Place:
    setting = _setting(record["setting_json"])
    return tuple(setting.get(name) for name in by)


def _order(place: Place) -> list[tuple[bool, tuple[bool, float, str]]]:
    """Sorts places field by field, those without a value first."""
    return [(value is not None, _sortable(value)) for value in place]


def _sortable(value: Any) -> tuple[bool, float, str]:
    """Numbers before text, whatever a field holds."""
    number = isinstance(value, int | float)
    return not number, value if number else 0.0, str(value)


def _with_fields(record: Record, tuned: Sequence[str]) -> Record:
    """The record with what was chosen for it: its hyper-parameters, and the tuned fields of its setting."""
    setting = _setting(record["setting_json"])
    own = {own_name(record["algorithm"], name): value for name, value in json.loads(record["hp_json"]).items()}
    return {**record, "chosen": {**own, **{name: setting[name] for name in tuned}}}


def _shared(record: Record, apart: Collection[str]) -> str:
    """What the records of one table have in common: the setting without what columns stand for, and what was tuned."""
    setting = _setting(record["setting_json"])
    return canonical_json({name: value for name, value in setting.items() if name not in apart})


@lru_cache(maxsize=4096)
def _setting(text: str) -> dict[str, Any]:
    """A setting without the variant of its model, which tells rows apart, not tables."""
    setting: dict[str, Any] = json.loads(text)
    return setting | {"model": base_model(setting["model"])}
