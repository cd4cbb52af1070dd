"""Tables made from a leaderboard: their layout, and the ranks of the cells in each column."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from leaderboards.flags import FLAGS, flags_of
from leaderboards.numbers import NUMBERS, Number, metric_of
from leaderboards.problems import BY, Place, Problem, Record, label_of, problems, setting_of
from leaderboards.rows.frames import records as rows_of
from leaderboards.rows.schema import canonical_json, own_name
from leaderboards.shell_text import typed
from leaderboards.stats.seeds import rankable, shared_ranks
from leaderboards.tables.captions import captions, labels_of, notes, title
from leaderboards.tables.model import Cell, Head, Row, Table

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K", bound=Hashable)


def tables_of(
    board: pd.DataFrame,
    metrics: Sequence[Number],
    all_configurations: bool = False,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    by: Sequence[str] = BY,
    intervals: bool = False,
    tuned: Sequence[str] = (),
) -> list[Table]:
    """Make the tables of a leaderboard, one per data set, model and setting.

    A row is an algorithm with its selected configuration, which may differ between columns. Each
    configuration has a row if several were tried and none was selected, or with
    `all_configurations`; only selected ones are ranked.

    Args:
        board: as `board.leaderboard` returns it, or some of its rows.
        metrics: the metrics to show side by side.
        all_configurations: also show configurations that were not selected.
        defaults: default hyper-parameters by algorithm; a value other than the default is then
            always shown, a hyper-parameter that always has its default never.
        by: fields of the setting whose values become columns instead of separate tables.
        intervals: print 95 % intervals instead of standard deviations.
        tuned: fields of the setting over which configurations were selected, as given to
            `board.leaderboard`.
    """
    records = [{**record, "chosen": _configuration(record, tuned)} for record in rows_of(board)]
    names = {
        key: [*names, *tuned] for key, names in _worth_showing(records, defaults or {}).items()
    }
    tables = []
    for problem in problems(records, by, tuned=tuned):
        labels = labels_of(problem)
        heads = tuple(
            Head(place, label, metric) for place, label in labels.items() for metric in metrics
        )
        rows = _ranked_rows(list(_rows(problem, heads, names, all_configurations)))
        common = _common_marks(rows)
        rows = tuple(
            replace(
                row,
                cells=tuple(
                    replace(
                        cell,
                        marks=tuple(m for m in cell.marks if m not in common),
                        interval=intervals,
                    )
                    for cell in row.cells
                ),
            )
            for row in rows
        )
        above = captions(problem, metrics, common, intervals)
        below = notes(rows, heads)
        name = title(problem)
        tables.append(Table(name, above, heads, rows, below, problem.setting, problem.by))
    return tables


def _rows(
    problem: Problem,
    heads: Sequence[Head],
    names: Mapping[str, Sequence[str]],
    all_configurations: bool,
) -> Iterator[Row]:
    def place_of(record: Record) -> Place:
        return tuple(setting_of(record["setting_json"]).get(name) for name in problem.by)

    for contest in _grouped(
        problem.records, lambda r: label_of(r["algorithm"], r["model"])
    ).values():
        algorithm, model = contest[0]["algorithm"], contest[0]["model"]
        # Configurations are listed one by one if some place has finished ones but no selected one.
        tried = _grouped([record for record in contest if record["n"]], place_of).values()
        undecided = any(not any(record["selected"] for record in members) for members in tried)
        listed = all_configurations or undecided
        lines = (
            _grouped(contest, lambda r: canonical_json(r["chosen"])) if listed else {"": contest}
        )
        for line in lines.values():
            # Show each place's selected record, else one that says what went wrong.
            record_at = {
                place: min(
                    members, key=lambda r: (not r["selected"], not r["failed"], r["hp_json"])
                )
                for place, members in _grouped(line, place_of).items()
            }
            cells = tuple(_cell(record_at.get(head.place), head.metric, listed) for head in heads)
            configurations = [
                record_at[place]["chosen"] if place in record_at else None
                for place in problem.places
            ]
            yield Row(algorithm, model, _hyperparameters(configurations, names[algorithm]), cells)


def _cell(record: Record | None, metric: Number, listed: bool) -> Cell:
    flags = flags_of(record) if record is not None and record["n"] else []
    marks = tuple(key for key in flags if FLAGS[key].mark and (listed or key != "selected"))
    return Cell(state_of(record, metric), metric, record, marks=marks)


def state_of(record: Record | None, metric: Number) -> str:
    """Return the state of a cell (`Cell.state`).

    A column in which no run has a value was not asked for: `missing`.
    """
    if record is None:
        return "missing"
    if not record["n"]:
        return "failed" if record["failed"] else "stopped"
    if record["diverged"]:
        return "diverged"
    if record[f"{metric.name}_mean"] is not None:
        return "value"
    sought = metric.name not in NUMBERS and not metric_of(
        metric
    )  # a target, which no run may have reached
    return "unreached" if record.get(f"{metric.name}_count") or sought else "missing"


def _common_marks(rows: Sequence[Row]) -> frozenset[str]:
    """Find the marks that all cells with results share: the captions explain them once, above the table."""
    marks = [
        set(cell.marks) for row in rows for cell in row.cells if cell.state in ("value", "diverged")
    ]
    if not marks:
        return frozenset()
    return frozenset(set.intersection(*marks) & {"shortened", "mixed", "data", "personal"})


def _ranked_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rank the cells of each column and sort the rows: complete ones first, by mean position; reference rows last."""
    references = [row.reference for row in rows]
    columns = [
        _ranked_column(column, references)
        for column in zip(*(row.cells for row in rows), strict=True)
    ]
    # An algorithm's rows stay together, in the order of their hyper-parameters; their best cells
    # decide its position.
    rows_by_label: dict[str, list[Row]] = {}
    for row, cells in zip(rows, zip(*columns, strict=True), strict=True):
        rows_by_label.setdefault(row.label, []).append(replace(row, cells=cells))
    return tuple(
        row for members in sorted(rows_by_label.values(), key=_sort_key) for row in members
    )


def _ranked_column(cells: Sequence[Cell], references: Sequence[bool]) -> list[Cell]:
    """Rank the cells of a column; cells that no test tells apart share a rank if values by seed are known."""
    metric = cells[0].metric
    scores = {
        i: score
        for i, (cell, reference) in enumerate(zip(cells, references, strict=True))
        if not reference and (score := _score(cell)) is not None
    }
    if metric.differs_by_seed:
        # Those that miss the value count as well: a single seed is not ranked because three seeds
        # missed a target.
        enough = rankable(
            {i: cell.n for i, cell in enumerate(cells) if cell.is_rival and not references[i]}
        )
        scores = {i: score for i, score in scores.items() if i in enough}
    positions = {
        i: 1 + sum(other > score for other in scores.values()) for i, score in scores.items()
    }
    seeds = {str(i): cells[i].seeds for i in scores}
    if metric.differs_by_seed and all(seeds.values()):
        ranks = {
            int(place.algorithm): place.rank
            for place in shared_ranks(seeds, metric.higher_is_better)
        }
    else:
        ranks = positions
    emphasis = {}
    if len(set(scores.values())) > 1:
        words = {1: "shared", 2: "second"}
        emphasis = {i: words.get(rank, "") for i, rank in ranks.items()}
        emphasis |= dict.fromkeys((i for i, position in positions.items() if position == 1), "best")
    return [
        replace(cell, rank=ranks.get(i), position=positions.get(i), emphasis=emphasis.get(i, ""))
        for i, cell in enumerate(cells)
    ]


def _score(cell: Cell) -> float | None:
    """Return the cell's mean, negated if lower is better; None if the cell does not compete, or neither is better."""
    mean = cell.statistic("mean") if cell.competes and cell.metric.better else None
    return mean if mean is None or cell.metric.higher_is_better else -mean


def _sort_key(rows: Sequence[Row]) -> tuple[bool, int, float, float, str]:
    """Return an algorithm's sort key: competitors first, then fewest unranked columns, mean position, score, label."""
    columns = list(zip(*(row.cells for row in rows), strict=True))
    best = [
        min((cell.position for cell in cells if cell.position is not None), default=None)
        for cells in columns
    ]
    positions = [position for position in best if position is not None]
    scores = [score for cells in columns for cell in cells if (score := _score(cell)) is not None]
    mean_position, mean_score = (
        sum(values) / max(1, len(values)) for values in (positions, scores)
    )
    return rows[0].reference, len(best) - len(positions), mean_position, -mean_score, rows[0].label


def _hyperparameters(
    configurations: Sequence[Mapping[str, Any] | None], names: Sequence[str]
) -> str:
    """Format the hyper-parameters `names`: `mu=0.1`, or `mu=0.1|–|1` if they differ by place, from left to right.

    The configuration of a place in which nothing was run is None. Switches that are off everywhere
    and empty values are left out; 0 is neither. A number with more than six digits, such as one
    drawn by a search, is printed with four.
    """
    parts = []
    for name in names:
        values = [
            values[name] for values in configurations if values is not None and name in values
        ]
        if any(value is not None and value is not False for value in values):
            texts = [
                _short_text(values[name]) if values and name in values else "–"
                for values in configurations
            ]
            unequal = len(set(texts) - {"–"}) > 1
            parts.append(f"{name}={'|'.join(texts) if unequal else _short_text(values[0])}")
    return " ".join(parts)


def _short_text(value: Any) -> str:
    long = isinstance(value, float) and float(f"{value:.6g}") != value
    return f"{value:.4g}" if long else typed(value)


def _worth_showing(
    records: Sequence[Record], defaults: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Select the hyper-parameters worth showing, by algorithm: with several values, or not at a known default.

    For algorithms without known defaults, select all if no algorithm at all has several values.
    """
    tried: dict[str, dict[str, set[str]]] = {}
    for record in records:
        names = tried.setdefault(record["algorithm"], {})
        for name, value in json.loads(record["hp_json"]).items():
            names.setdefault(name, set()).add(typed(value))
    vary = any(len(values) > 1 for names in tried.values() for values in names.values())

    def worth(algorithm: str, name: str, values: set[str]) -> bool:
        if algorithm in defaults:
            return values != {typed(defaults[algorithm].get(name))}
        return len(values) > 1 or not vary

    return {
        algorithm: [
            own_name(algorithm, name)
            for name, values in names.items()
            if worth(algorithm, name, values)
        ]
        for algorithm, names in tried.items()
    }


def _grouped(records: Iterable[Record], key: Callable[[Record], K]) -> dict[K, list[Record]]:
    groups: dict[K, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _configuration(record: Record, tuned: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a record: its hyper-parameters, and the tuned fields of its setting."""
    setting = setting_of(record["setting_json"])
    values = {
        own_name(record["algorithm"], name): value
        for name, value in json.loads(record["hp_json"]).items()
    }
    return values | {name: setting[name] for name in tuned}
