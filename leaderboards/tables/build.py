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
from leaderboards.stats.best import from_best
from leaderboards.stats.seeds import rankable
from leaderboards.tables.captions import captions, labels_of, notes, title
from leaderboards.tables.model import Head, ResultTable, Row, TableCell

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
) -> list[ResultTable]:
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
    rows = rows_of(board)
    return tables_of_records(
        rows, metrics, all_configurations, defaults, by, intervals=intervals, tuned=tuned
    )


def tables_of_records(
    board_rows: Iterable[Record],
    metrics: Sequence[Number],
    all_configurations: bool = False,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    by: Sequence[str] = BY,
    intervals: bool = False,
    tuned: Sequence[str] = (),
) -> list[ResultTable]:
    """Make the tables of a leaderboard's rows, None for empty values; see `tables_of`."""
    records = [{**record, "chosen": _configuration(record, tuned)} for record in board_rows]
    names = {
        key: [*names, *tuned] for key, names in _worth_showing(records, defaults or {}).items()
    }
    tables = []
    for problem in problems(records, by, tuned=tuned):
        labels = labels_of(problem)
        at_defaults = {} if all_configurations else _at_defaults(problem, defaults or {}, tuned)
        compared = {place for (_, place), row in at_defaults.items() if not row["selected"]}
        heads: tuple[Head, ...] = ()
        for place, label in labels.items():
            heads += tuple(Head(place, label, metric) for metric in metrics)
            if place in compared:
                heads += (Head(place, label, metrics[0], at_defaults=True),)
        listed = list(_rows(problem, heads, names, all_configurations, at_defaults))
        rows = _ranked_rows(listed)
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
        tables.append(ResultTable(name, above, heads, rows, below, problem.setting, problem.by))
    return tables


def _rows(
    problem: Problem,
    heads: Sequence[Head],
    names: Mapping[str, Sequence[str]],
    all_configurations: bool,
    at_defaults: Mapping[tuple[str, Place], Record],
) -> Iterator[Row]:
    def place_of(record: Record) -> Place:
        return _place_of(record, problem)

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
            cells = []
            for head in heads:
                if head.at_defaults:
                    record = at_defaults.get((label_of(algorithm, model), head.place))
                    cells.append(_default_cell(record, head.metric))
                else:
                    cells.append(_cell(record_at.get(head.place), head.metric, listed))
            configurations = [
                record_at[place]["chosen"] if place in record_at else None
                for place in problem.places
            ]
            shown = _hyperparameters(configurations, names[algorithm])
            yield Row(algorithm, model, shown, tuple(cells))


def _place_of(record: Record, problem: Problem) -> Place:
    return tuple(setting_of(record["setting_json"]).get(name) for name in problem.by)


def _at_defaults(
    problem: Problem, defaults: Mapping[str, Mapping[str, Any]], tuned: Sequence[str]
) -> dict[tuple[str, Place], Record]:
    """Find the runs with default hyper-parameters at the chosen values of the tuned fields.

    Returns:
        (label, place) -> row, where these ran; it is the selected one if they were chosen.
    """
    contests = _grouped(
        problem.records,
        lambda record: (
            label_of(record["algorithm"], record["model"]),
            _place_of(record, problem),
        ),
    )
    found = {}
    for key, records in contests.items():
        algorithm = records[0]["algorithm"]
        chosen = next((record["chosen"] for record in records if record["selected"]), None)
        if chosen is None or algorithm not in defaults:
            continue
        own = {own_name(algorithm, name): value for name, value in defaults[algorithm].items()}
        sought = {name: chosen[name] if name in tuned else own.get(name) for name in chosen}
        for record in records:
            if record["n"] and record["chosen"] == sought:
                found[key] = record
    return found


def _cell(record: Record | None, metric: Number, listed: bool) -> TableCell:
    flags = flags_of(record) if record is not None and record["n"] else []
    marks = tuple(key for key in flags if FLAGS[key].mark and (listed or key != "selected"))
    return TableCell(state_of(record, metric), metric, record, marks=marks)


def _default_cell(record: Record | None, metric: Number) -> TableCell:
    """Make the cell of the default hyper-parameters, which says so if they are the chosen ones."""
    if record is not None and record["selected"]:
        return TableCell("missing", metric, words="as chosen")
    return _cell(record, metric, listed=False)


def state_of(record: Record | None, metric: Number) -> str:
    """Return the state of a cell (`TableCell.state`).

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


def _ranked_column(cells: Sequence[TableCell], references: Sequence[bool]) -> list[TableCell]:
    """Rank the cells of a column by means, and mark those that a test excludes from being best.

    Cells with a diverged run share the last rank.
    """
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
    ordered = sorted(scores.values(), reverse=True)
    ranks = {i: 1 + ordered.index(score) for i, score in scores.items()}
    differ = len(set(scores.values())) > 1
    seeds = {str(i): cells[i].seeds for i in scores}
    excluded: set[int] = set()
    if metric.differs_by_seed and all(seeds.values()):
        distances = from_best(seeds, metric.higher_is_better)
        excluded = {int(entry.algorithm) for entry in distances if entry.excluded}
    ranked = []
    for i, (cell, reference) in enumerate(zip(cells, references, strict=True)):
        rank = ranks.get(i)
        if cell.is_diverged_rival and metric.better and not reference:
            rank = 1 + len(scores)
        best = differ and i in scores and rank == 1
        ranked.append(replace(cell, rank=rank, best=best, excluded=i in excluded and not best))
    return ranked


def _score(cell: TableCell) -> float | None:
    """Return the cell's mean, negated if lower is better; None if the cell does not compete, or neither is better."""
    mean = cell.statistic("mean") if cell.competes and cell.metric.better else None
    return mean if mean is None or cell.metric.higher_is_better else -mean


def _sort_key(rows: Sequence[Row]) -> tuple[bool, int, float, float, str]:
    """Return an algorithm's sort key.

    Competitors come first, then fewest columns without a ranked mean, then mean rank, score and
    label.
    """
    best_ranks = []
    scores = []
    columns = list(zip(*(row.cells for row in rows), strict=True))
    for cells in columns:
        with_mean = [cell for cell in cells if cell.rank is not None and cell.state == "value"]
        if with_mean:
            best_ranks.append(min(int(cell.rank or 0) for cell in with_mean))
        scores += [score for score in map(_score, cells) if score is not None]
    mean_rank = sum(best_ranks) / max(1, len(best_ranks))
    mean_score = sum(scores) / max(1, len(scores))
    lacking = len(columns) - len(best_ranks)
    return rows[0].reference, lacking, mean_rank, -mean_score, rows[0].label


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
