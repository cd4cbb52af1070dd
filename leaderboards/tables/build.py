"""Tables made from a leaderboard: their layout, and the ranks of the cells in each column."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from leaderboards.flags import FLAGS, flags_of
from leaderboards.numbers import NUMBERS, Number, metric_of
from leaderboards.problems import (
    BY,
    Place,
    Problem,
    Record,
    label_of,
    problems,
    setting_of,
    values_of,
)
from leaderboards.rows.schema import canonical_json, own_name, own_names
from leaderboards.shell_text import typed
from leaderboards.stats.best import from_best
from leaderboards.tables.captions import captions, labels_of, notes, title
from leaderboards.tables.model import NOT_RUN, Head, ResultTable, Row, TableCell

K = TypeVar("K", bound=Hashable)


def tables_of(
    board_rows: Iterable[Record],
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
        board_rows: the rows of `board.leaderboard`, as `rows.frames.records` gives them.
        metrics: the metrics to show side by side.
        all_configurations: also show configurations that were not selected.
        defaults: default hyper-parameters by algorithm; a value other than the default is then
            always shown, a hyper-parameter that always has its default never.
        by: fields of the setting whose values become columns instead of separate tables.
        intervals: print 95 % intervals instead of standard deviations.
        tuned: fields of the setting over which configurations were selected, as given to
            `board.leaderboard`.
    """
    records = [{**record, "chosen": _configuration(record, tuned)} for record in board_rows]
    names = _worth_showing(records, defaults or {})
    names = {algorithm: [*own_names, *tuned] for algorithm, own_names in names.items()}
    tables = []
    for problem in problems(records, by, tuned=tuned):
        at_defaults: dict[tuple[str, Place], Record] = {}
        if not all_configurations:
            at_defaults = _at_defaults(problem, defaults or {}, tuned)
        heads = _heads(problem, metrics, at_defaults)
        unranked = list(_rows(problem, heads, names, all_configurations, at_defaults))
        ranked = _ranked_rows(unranked)
        common = _common_marks(ranked)
        rows = tuple(_with_own_marks(row, common, intervals) for row in ranked)
        above = captions(problem, metrics, common, intervals)
        below = notes(rows, heads)
        name = title(problem)
        tables.append(ResultTable(name, above, heads, rows, below, problem.setting, problem.by))
    return tables


def _heads(
    problem: Problem,
    metrics: Sequence[Number],
    at_defaults: Mapping[tuple[str, Place], Record],
) -> tuple[Head, ...]:
    """Make the headings of a table: at each place the metrics, then the defaults where they ran."""
    places_with_defaults = set()
    for (_, place), record in at_defaults.items():
        if not record["selected"]:
            places_with_defaults.add(place)
    heads = []
    for place, label in labels_of(problem).items():
        heads += [Head(place, label, metric) for metric in metrics]
        if place in places_with_defaults:
            heads.append(Head(place, label, metrics[0], at_defaults=True))
    return tuple(heads)


def _with_own_marks(row: Row, common: Collection[str], intervals: bool) -> Row:
    """Leave out of a row's cells the marks that the captions explain for all cells."""
    cells = []
    for cell in row.cells:
        marks = tuple(mark for mark in cell.marks if mark not in common)
        cells.append(replace(cell, marks=marks, interval=intervals))
    return replace(row, cells=tuple(cells))


def _rows(
    problem: Problem,
    heads: Sequence[Head],
    names: Mapping[str, Sequence[str]],
    all_configurations: bool,
    at_defaults: Mapping[tuple[str, Place], Record],
) -> Iterator[Row]:
    """Yield a row for each algorithm, or for each of its configurations, not ranked yet."""

    def place_of(record: Record) -> Place:
        return _place_of(record, problem)

    for label, contest in _grouped(problem.records, label_of).items():
        algorithm = contest[0]["algorithm"]
        model = contest[0]["model"]
        listed = all_configurations or _undecided(contest, problem)
        lines = [contest]
        if listed:
            by_configuration = _grouped(contest, lambda record: canonical_json(record["chosen"]))
            lines = list(by_configuration.values())
        for line in lines:
            record_at = {}
            for place, records in _grouped(line, place_of).items():
                record_at[place] = min(records, key=_shown_first)
            cells = []
            for head in heads:
                if head.at_defaults:
                    record = at_defaults.get((label, head.place))
                    cells.append(_default_cell(record, head.metric))
                else:
                    cells.append(_cell(record_at.get(head.place), head.metric, listed))
            configurations = [
                record_at[place]["chosen"] if place in record_at else None
                for place in problem.places
            ]
            texts = _texts_of(configurations, names[algorithm])
            yield Row(algorithm, model, texts, tuple(cells))


def _undecided(contest: Sequence[Record], problem: Problem) -> bool:
    """Tell whether some place has finished configurations, but no selected one."""
    finished = [record for record in contest if record["n"]]
    places = {_place_of(record, problem) for record in finished}
    decided = {_place_of(record, problem) for record in finished if record["selected"]}
    return places != decided


def _shown_first(record: Record) -> tuple[bool, bool, str]:
    """Sort the records of a place: the selected one, then records that say what went wrong."""
    return not record["selected"], not record["failed"], record["hp_json"]


def _place_of(record: Record, problem: Problem) -> Place:
    return values_of(setting_of(record["setting_json"]), problem.by)


def _at_defaults(
    problem: Problem, defaults: Mapping[str, Mapping[str, Any]], tuned: Sequence[str]
) -> dict[tuple[str, Place], Record]:
    """Find the runs with default hyper-parameters at the chosen values of the tuned fields.

    Returns:
        (label, place) -> row, where these ran; it is the selected one if they were chosen.
    """
    contests = _grouped(
        problem.records, lambda record: (label_of(record), _place_of(record, problem))
    )
    records_at_defaults = {}
    for key, records in contests.items():
        algorithm = records[0]["algorithm"]
        chosen = next((record["chosen"] for record in records if record["selected"]), None)
        if chosen is None or algorithm not in defaults:
            continue
        own = own_names(algorithm, defaults[algorithm])
        sought = {name: chosen[name] if name in tuned else own.get(name) for name in chosen}
        for record in records:
            if record["n"] and record["chosen"] == sought:
                records_at_defaults[key] = record
    return records_at_defaults


def _cell(record: Record | None, metric: Number, listed: bool) -> TableCell:
    state = state_of(record, metric)
    if record is None or not record["n"]:
        return TableCell(state, metric, record)
    flags = flags_of(record)
    marks = tuple(key for key in flags if FLAGS[key].mark and (listed or key != "selected"))
    return TableCell(state, metric, record, marks=marks)


def _default_cell(record: Record | None, metric: Number) -> TableCell:
    """Make the cell of the default hyper-parameters, which says so if they were chosen."""
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
    # A target, which no run may have reached, is neither one of `NUMBERS` nor read off one metric.
    is_target = metric.name not in NUMBERS and not metric_of(metric)
    return "unreached" if record.get(f"{metric.name}_count") or is_target else "missing"


def _common_marks(rows: Sequence[Row]) -> frozenset[str]:
    """Find the marks that all cells with results share.

    The captions explain these once, above the table.
    """
    marks = []
    for row in rows:
        with_result = [cell for cell in row.cells if cell.state in ("value", "diverged")]
        marks += [set(cell.marks) for cell in with_result]
    if not marks:
        return frozenset()
    return frozenset(set.intersection(*marks) & {"shortened", "mixed", "data", "personal"})


def _ranked_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Mark the cells of each column, and sort the rows."""
    cells_of_rows = [row.cells for row in rows]
    columns = map(_marked_column, zip(*cells_of_rows, strict=True))
    marked = []
    for row, cells in zip(rows, zip(*columns, strict=True), strict=True):
        marked.append(replace(row, cells=cells))
    return in_order(marked)


def in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Sort rows by their cells.

    Complete rows come first, by mean position; reference rows are the last. An algorithm's rows
    stay together, in the order of their hyper-parameters; their best cells decide its position.
    """
    rows_by_label: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_label.setdefault(row.label, []).append(row)
    groups = sorted(rows_by_label.values(), key=_sort_key)
    return tuple(chain.from_iterable(groups))


def _marked_column(cells: Sequence[TableCell]) -> list[TableCell]:
    """Mark the best cells of a column, and cells that a test excludes from being best."""
    metric = cells[0].metric
    ranked = [i for i, cell in enumerate(cells) if cell.competes and cell.rank is not None]
    differ = len({cells[i].statistic("mean") for i in ranked}) > 1
    seeds = {str(i): cells[i].seeds for i in ranked}
    excluded: set[int] = set()
    if metric.differs_by_seed and all(seeds.values()):
        distances = from_best(seeds, metric.higher_is_better)
        excluded = {int(distance.algorithm) for distance in distances if distance.excluded}
    marked = []
    for i, cell in enumerate(cells):
        best = differ and i in ranked and cell.rank == 1
        marked.append(replace(cell, best=best, excluded=i in excluded and not best))
    return marked


def _score(cell: TableCell) -> float | None:
    """Return the cell's mean, negated if lower is better.

    None if the cell does not compete, or if neither higher nor lower is better.
    """
    if not cell.competes or not cell.metric.better:
        return None
    mean = cell.statistic("mean")
    return mean if mean is None or cell.metric.higher_is_better else -mean


def _sort_key(rows: Sequence[Row]) -> tuple[bool, int, int, float, str]:
    """Return an algorithm's sort key.

    Competitors come first, then fewest columns without a ranked mean, then the sum of ranks, score
    and label.
    """
    best_ranks = []
    scores = []
    cells_of_rows = [row.cells for row in rows]
    columns = list(zip(*cells_of_rows, strict=True))
    for cells in columns:
        ranks = [cell.rank for cell in cells if cell.rank is not None and cell.state == "value"]
        if ranks:
            best_ranks.append(min(ranks))
        scores += [score for score in map(_score, cells) if score is not None]
    lacking = len(columns) - len(best_ranks)
    mean_score = sum(scores) / max(1, len(scores))
    return rows[0].reference, lacking, sum(best_ranks), -mean_score, rows[0].label


def _texts_of(
    configurations: Sequence[Mapping[str, Any] | None], names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Format the hyper-parameters of a row, a text for each place, as `Row` has them.

    Switches that are off everywhere and empty values are left out; 0 is neither. A number with more
    than six digits, such as one drawn by a search, is printed with four.

    Args:
        configurations: one for each place; None where nothing was run.
        names: the hyper-parameters.
    """
    texts_of = {}
    for name in names:
        values = []
        texts = []
        for configuration in configurations:
            if configuration and name in configuration:
                value = configuration[name]
                values.append(value)
                texts.append(_short_text(value))
            else:
                texts.append(NOT_RUN)
        if any(value is not None and value is not False for value in values):
            texts_of[name] = tuple(texts)
    return texts_of


def _short_text(value: Any) -> str:
    long = isinstance(value, float) and float(f"{value:.6g}") != value
    return f"{value:.4g}" if long else typed(value)


def _worth_showing(
    records: Sequence[Record], defaults: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Select the hyper-parameters worth showing, by algorithm.

    These have several values, or another one than the default. Of an algorithm without known
    defaults, as of one from outside, select all.
    """
    tried: dict[str, dict[str, set[str]]] = {}
    for record in records:
        values_of = tried.setdefault(record["algorithm"], {})
        for name, value in json.loads(record["hp_json"]).items():
            values_of.setdefault(name, set()).add(typed(value))
    shown: dict[str, list[str]] = {}
    for algorithm, values_of in tried.items():
        shown[algorithm] = []
        for name, values in values_of.items():
            is_default = False
            if algorithm in defaults:
                is_default = values == {typed(defaults[algorithm].get(name))}
            if not is_default:
                shown[algorithm].append(own_name(algorithm, name))
    return shown


def _grouped(records: Iterable[Record], key: Callable[[Record], K]) -> dict[K, list[Record]]:
    groups: dict[K, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _configuration(record: Record, tuned: Sequence[str]) -> dict[str, Any]:
    """Return a record's hyper-parameters, and the tuned fields of its setting."""
    setting = setting_of(record["setting_json"])
    values = own_names(record["algorithm"], json.loads(record["hp_json"]))
    return values | {name: setting[name] for name in tuned if name in setting}
