"""Comparisons over all cells of tables: differences from a reference; ranks, wins and scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, gt, lt
from statistics import median
from typing import Any

from leaderboards.board import of_last_model
from leaderboards.flags import FLAGS
from leaderboards.numbers import NUMBERS, Number
from leaderboards.problems import REFERENCES, SPLIT_FIELDS, values_of
from leaderboards.rows.schema import canonical_json
from leaderboards.stats.aggregate import (
    CellScores,
    Improvement,
    Standing,
    improvement,
    standings_of,
)
from leaderboards.stats.pooled import PooledDifference, Values, pooled_differences
from leaderboards.tables.captions import differ_in_seeds, of_whose_models, records_of
from leaderboards.tables.model import (
    ResultTable,
    Row,
    Sheet,
    TableCell,
    interval_text,
    limits,
    number_text,
    sheet,
)
from leaderboards.tables.sheets import matching_label, p_text

CellPair = tuple[TableCell, TableCell]  # an algorithm's cell, and the reference's
# The setting of a cell, and the table cells of its rivals by label.
PooledCell = tuple[Mapping[str, Any], Mapping[str, TableCell]]

_DIFFERENCE = "difference: mean over cells of the mean difference in the cell"
_POOLED = (
    "p: sign flips of partitions, corrected for all algorithms (Westfall-Young max-T)",
    "p by seed: the same for seeds, whose partitions at all alphas flip together; it is at least "
    "2^(1 - seeds)",
    "ahead in: partitions in which the algorithm is better",
    "traffic, time: of a run, in multiples of the reference's in the same cell, median over cells "
    "without a diverged run",
    "time is of the shortest runs, where both ran in one environment: device, processor, threads, "
    "backend, pack, versions; unknown if the reference's runs yield another algorithm's rows, too",
)
_DIVERGED = "diverged: runs that did, of all in the compared cells"
_EASIER = "cells with a run that did not get there are left out, and are the harder ones"
_AS_ONE = "replicates of a partition are one run"
_RANKS = (
    "average rank: of means, over cells; 1 is best, a diverged run makes an algorithm the last",
    "win rate: share of cells in which it has the best mean, untested",
)
_SCORE = (
    "score: 0 is `local` and 100 is `centralized` in the same cell, mean of the middle half of all "
    "runs; a diverged run counts with its last model",
    "score's interval: stratified bootstrap over seeds, too narrow with few seeds (at 3 it covers "
    "some 80 %)",
)
_BETTER = (
    "P: probability that a run is better than one of the reference in the same cell; its interval: "
    "stratified bootstrap over seeds, not paired"
)
_UNLIKE_SEEDS = (
    "algorithms ran on different seeds, and each counts with all of its own: "
    "differences from a reference are paired"
)
BASELINES = ("fedavg", "local")  # what pictures and pages compare with: the first that ran
_ZERO = "local"  # whose mean is 0 of a normalised score
_ONE = "centralized"  # whose mean is 1


@dataclass(frozen=True)
class Gain:
    """An algorithm beside a reference over all cells that both have.

    Args:
        pooled: the difference, its simultaneous interval and its test.
        diverged: number of its runs there that diverged; replicates of a partition are one run.
        tried: number of its runs there.
        traffic: bytes sent and received in a run over the reference's, median over cells; None if
            that is unknown, or the reference sends nothing.
        sent: bytes sent and received in a run, median over cells in which the reference sends
            nothing; None if there is none.
        time: seconds of the shortest run over the seconds of the reference's shortest run, median
            over cells and environments that both have; None if there is none, or the reference's
            runs yield rows of another algorithm, too, whose time they include.
        platforms_mixed: whether in some cell the two ran on unlike platforms.
    """

    pooled: PooledDifference
    diverged: int
    tried: int
    traffic: float | None
    sent: float | None
    time: float | None
    platforms_mixed: bool


def baseline(tables: Sequence[ResultTable], reference: str) -> str | None:
    """Return the label that `reference` means in the tables; None if it has no row there."""
    labels: dict[str, None] = {}
    for table in tables:
        labels |= dict.fromkeys(row.label for row in table.rows)
    return matching_label(list(labels), reference)


def usual_baseline(tables: Sequence[ResultTable]) -> str:
    """Return the label of the rows that pictures and pages compare with."""
    labels = [baseline(tables, name) for name in BASELINES]
    return next(filter(None, labels), BASELINES[0])


def gains(tables: Sequence[ResultTable], metric: Number, label: str) -> tuple[Gain, ...]:
    """Compare the algorithms with a reference over all cells, by one test for all of them.

    Of accuracies, runs that diverged count with that of their last model.

    Args:
        tables: of one leaderboard, made `with_seeds`, with a column of the metric.
        metric: the number that is compared.
        label: of the reference's rows, as `baseline` returns it.

    Returns:
        The algorithms that have a cell with the reference, the best first; empty if neither higher
        nor lower is better.
    """
    if not metric.better or not metric.differs_by_seed:
        return ()
    cells = _pooled_cells(tables, metric)
    differences = pooled_differences(_values_by_cluster(cells), label)
    results = []
    for difference in differences:
        method = difference.method
        shared = [rivals for _, rivals in cells if method in rivals and label in rivals]
        pairs = [(rivals[method], rivals[label]) for rivals in shared]
        diverged, tried = _diverged_of([cell for cell, _ in pairs])
        traffic = _ratio(pairs, _traffic)
        sent = _beside_silence(pairs)
        timed = [pair for pair in pairs if not pair[1].shares_runs]
        time = _ratio(timed, attrgetter("shortest"))
        mixed = any(cell.is_unlike(reference) for cell, reference in pairs)
        results.append(Gain(difference, diverged, tried, traffic, sent, time, mixed))
    results.sort(key=lambda gain: gain.pooled.difference, reverse=metric.higher_is_better)
    return tuple(results)


def _diverged_of(cells: Sequence[TableCell]) -> tuple[int, int]:
    """Return how many runs of an algorithm's cells diverged, and how many there are."""
    records = [cell.record or {} for cell in cells]
    diverged = sum(int(record["diverged_count"]) for record in records)
    return diverged, sum(int(record["n"]) for record in records)


def _ratio(
    pairs: Sequence[CellPair], costs: Callable[[TableCell], Mapping[str, float]]
) -> float | None:
    """Return costs in multiples of the reference's, median over cells without a diverged run.

    `costs`: returns a cell's costs by a name; those of one name are compared.
    """
    ratios = []
    for cell, reference in pairs:
        if cell.state == "value" and reference.state == "value":
            reference_costs = costs(reference)
            for name, cost in costs(cell).items():
                if reference_costs.get(name):
                    ratios.append(cost / reference_costs[name])
    return median(ratios) if ratios else None


def _beside_silence(pairs: Sequence[CellPair]) -> float | None:
    """Return the traffic, median over undiverged cells whose reference sends nothing."""
    sent: list[float] = []
    for cell, reference in pairs:
        if cell.state == "value" and _traffic(reference).get("bytes") == 0:
            sent += _traffic(cell).values()
    return median(sent) if sent else None


def _traffic(cell: TableCell) -> dict[str, float]:
    record = cell.record or {}
    sent = record["bytes_up_mean"]
    received = record["bytes_down_mean"]
    return {} if sent is None or received is None else {"bytes": float(sent + received)}


def over_cells(
    tables: Sequence[ResultTable], metric: Number, reference: str | None = None
) -> Sheet | None:
    """Pool the cells of all tables.

    A cell counts if several algorithms have finished runs there, and one of them has a value.
    Reference rows (`centralized`, `local`) and configurations that were not selected take no part.
    An algorithm with a diverged run is the last of its cell. Where `local` and `centralized` have
    means in every cell, scores are normalised by them.

    Args:
        tables: of one leaderboard, made `with_seeds`, with a column of the metric.
        metric: the number that is compared.
        reference: as for `against`.

    Returns:
        None if fewer than two algorithms have values in all of two or more cells, or if neither
        higher nor lower is better.
    """
    if not metric.better:
        return None
    cells = _contested_cells(tables, metric)
    values: dict[Hashable, dict[str, list[float]]] = {}
    diverged: dict[Hashable, set[str]] = {}
    for key, rivals in cells.items():
        values[key] = {label: list(cell.seeds.values()) for label, cell in rivals.items()}
        diverged[key] = {label for label, cell in rivals.items() if cell.state == "diverged"}
    scales = _scales(tables, metric)
    standings = standings_of(
        values, metric.higher_is_better, metric.differs_by_seed, diverged, scales
    )
    if standings.cells < 2 or len(standings.ranked) < 2:
        return None
    names = [standing.algorithm for standing in standings.ranked]
    label = matching_label(names, reference) if reference else None
    better = _improvements(values, names, label, metric) if label else {}
    headings = ["average rank", "win rate"]
    texts = {}
    for standing in standings.ranked:
        win_rate = f"{100 * standing.win_rate:.0f} %"
        texts[standing.algorithm] = [f"{standing.average_rank:.2f}", win_rate]
    notes = [*_RANKS]
    if standings.ranked[0].iqm is not None:
        headings.append("score [95 %]")
        notes += _SCORE
        for standing in standings.ranked:
            texts[standing.algorithm].append(_score_text(standing))
    if better:
        headings.append(f"P(better than {label}) [95 %]")
        notes.append(_BETTER)
        for name in names:
            texts[name].append(_probability(better.get(name)))
    notes += [*_seeds_noted(cells, names, metric), *standings.remarks]
    if reference and not better:
        notes.append(f"no P: it needs a reference that is ranked in every cell, unlike {reference}")
    return sheet(
        f"Over {standings.cells} cells · {metric.short}",
        [f"{description_of(metric, tables)}: all cells and seeds"],
        [(name, "") for name in headings],
        texts,
        notes,
        [
            _standing_record(standing, metric, label, better.get(standing.algorithm))
            for standing in standings.ranked
        ],
    )


def _seeds_noted(
    cells: Mapping[Hashable, Mapping[str, TableCell]], names: Sequence[str], metric: Number
) -> list[str]:
    """Say in a note if the algorithms `names` have values of different seeds in some cell."""
    if not metric.differs_by_seed:
        return []
    compared = []
    for rivals in cells.values():
        compared.append([rivals[name] for name in names])
    return [_UNLIKE_SEEDS] if any(map(differ_in_seeds, compared)) else []


def _improvements(
    values: CellScores, names: Sequence[str], label: str, metric: Number
) -> dict[str, Improvement]:
    """Compare the algorithms `names`, which every cell has, with the algorithm `label`."""
    others = [name for name in names if name != label]
    return {name: improvement(values, name, label, metric.higher_is_better) for name in others}


def pooled_against(tables: Sequence[ResultTable], metric: Number, reference: str) -> Sheet | None:
    """Print `gains` over a reference; None if there are none. `reference` is as for `against`."""
    label = baseline(tables, reference)
    if not label:
        return None
    gains_of_all = gains(tables, metric, label)
    if not gains_of_all:
        return None
    names = ("difference [simultaneous 95 %]", "p", "p by seed", "ahead in", "cells")
    headings = [(name, "") for name in (*names, "traffic", "time", "diverged")]
    cells = _pooled_cells(tables, metric)
    by_seed = _values_by_cluster(cells, fields=())
    p_by_seed = {entry.method: entry.p for entry in pooled_differences(by_seed, label)}
    rows = {}
    records = []
    for gain in gains_of_all:
        method = gain.pooled.method
        rows[method] = _gain_texts(gain, metric, p_by_seed[method])
        records.append(_gain_record(gain, metric, label, p_by_seed[method]))
    intervals = "no intervals: sign flips of fewer than six partitions exclude nothing"
    if any(gain.pooled.interval for gain in gains_of_all):
        intervals = "the intervals of all algorithms hold at once with 95 % (simultaneous)"
    notes = [_DIFFERENCE, intervals, *_POOLED]
    notes += remarks_on(tables, metric, label, gains_of_all)
    compared = _cells_of_reference(cells, label)
    description = description_of(metric, tables, REFERENCES)
    cells_text = "1 cell" if len(compared) == 1 else f"{len(compared)} cells"
    return sheet(
        f"Over {cells_text} · {metric.short}: difference from {label}",
        [f"{description}; {label} is subtracted; partitions are paired"],
        headings,
        rows,
        notes,
        records,
    )


def description_of(
    metric: Number, tables: Sequence[ResultTable], beside: Collection[str] = ()
) -> str:
    """Describe what is pooled: `Accuracy of the global model on the test set, last round, %`.

    Rows of each client's own model are named. `beside`: reference rows that are shown as well.
    """
    parts = (metric.quantity.capitalize(), metric.of, metric.unit.shown)
    left_out = REFERENCES.difference(beside)
    shown = [record for record in records_of(tables) if record["algorithm"] not in left_out]
    return of_whose_models(", ".join(filter(None, parts)), shown)


def _pooled_cells(tables: Sequence[ResultTable], metric: Number) -> list[PooledCell]:
    """List the cells of a metric in which algorithms have values."""
    cells: list[PooledCell] = []
    for table in tables:
        for column, head in table.results_of(metric):
            rivals = _rivals(table.rows, column)
            if rivals:
                place = dict(zip(table.by, head.place, strict=True))
                cells.append(({**table.setting, **place}, rivals))
    return cells


def _unreached(tables: Sequence[ResultTable], metric: Number) -> list[str]:
    """Name the algorithms of which some cell has a run without the number, such as a target."""
    labels: dict[str, None] = {}
    for table in tables:
        for column, _ in table.results_of(metric):
            for row in table.rows:
                if row.cells[column].state == "unreached":
                    labels[row.label] = None
    return list(labels)


def _cells_of_reference(cells: Sequence[PooledCell], label: str) -> list[TableCell]:
    """List the reference's cells that some algorithm is compared in."""
    return [rivals[label] for _, rivals in cells if label in rivals and len(rivals) > 1]


def _rivals(rows: Sequence[Row], column: int) -> dict[str, TableCell]:
    """Return label -> cell of the chosen configuration, for the rows that have a value there."""
    return {row.label: row.cells[column] for row in rows if row.cells[column].is_pooled}


def _values_by_cluster(cells: Sequence[PooledCell], fields: Sequence[str] = SPLIT_FIELDS) -> Values:
    """Return cell -> algorithm -> partition -> value.

    A partition is named by its seed and the values of `fields`.
    """
    values: dict[Hashable, dict[str, dict[Hashable, float]]] = {}
    for place, (setting, rows) in enumerate(cells):
        split = values_of(setting, fields)
        values[place] = {}
        for label, cell in rows.items():
            values[place][label] = {(*split, seed): value for seed, value in cell.seeds.items()}
    return values


def _contested_cells(
    tables: Sequence[ResultTable], metric: Number
) -> dict[Hashable, Mapping[str, TableCell]]:
    """Return cell -> label -> table cell of each rival with a value, for the cells that count.

    A cell counts if several algorithms have finished runs there.
    """
    cells: dict[Hashable, Mapping[str, TableCell]] = {}
    for table in tables:
        rows = [row for row in table.rows if not row.reference]
        for column, head in table.results_of(metric):
            finished = [row for row in rows if row.cells[column].n]
            rivals = _rivals(rows, column)
            if len({row.label for row in finished}) > 1 and rivals:
                cells[_cell_key(table, head.place)] = rivals
    return cells


def _cell_key(table: ResultTable, place: tuple[Any, ...]) -> Hashable:
    return canonical_json(dict(table.setting)), place


def _scales(tables: Sequence[ResultTable], metric: Number) -> dict[Hashable, tuple[float, float]]:
    """Return cell -> means of `local` and `centralized`, where `centralized` is better."""
    scales: dict[Hashable, tuple[float, float]] = {}
    is_better = gt if metric.higher_is_better else lt
    for table in tables:
        rows = {row.algorithm: row for row in table.rows}
        if not metric.differs_by_seed or not {_ZERO, _ONE} <= rows.keys():
            continue
        for column, head in table.results_of(metric):
            zero = _competing_mean(rows[_ZERO].cells[column])
            one = _competing_mean(rows[_ONE].cells[column])
            if zero is not None and one is not None and is_better(one, zero):
                scales[_cell_key(table, head.place)] = (zero, one)
    return scales


def _competing_mean(cell: TableCell) -> float | None:
    return cell.statistic("mean") if cell.competes else None


def _gain_texts(gain: Gain, metric: Number, p_by_seed: float) -> list[str]:
    entry = gain.pooled
    texts = texts_of(gain, metric)
    return [
        texts["difference"],
        p_text(entry.p),
        p_text(p_by_seed),
        f"{_ahead(entry, metric)} of {entry.clusters}",
        str(entry.cells),
        texts["traffic"],
        texts["time"],
        texts["diverged"],
    ]


def texts_of(gain: Gain, metric: Number) -> dict[str, str]:
    """Format the `difference` with its interval, `traffic` and `time` of a run, and `diverged`.

    The last is how many runs diverged, of all in the compared cells: `5/24`.
    """
    difference = number_text(gain.pooled.difference, metric, sign=True)
    return {
        "difference": difference + interval_text(gain.pooled.interval, metric),
        "traffic": _traffic_text(gain),
        "time": _ratio_text(gain.time),
        "diverged": f"{gain.diverged}/{gain.tried}",
    }


def _ratio_text(ratio: float | None) -> str:
    """Format a cost in multiples of the reference's: `1.34x`, `31x`."""
    if ratio is None:
        return "–"
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _in_megabytes(gain: Gain) -> bool:
    """Return whether a gain's traffic is no multiple of the reference's, which sends nothing."""
    return gain.traffic is None and gain.sent is not None


def _traffic_text(gain: Gain) -> str:
    """Format a run's traffic in multiples of the reference's; in MB if that sends nothing."""
    if _in_megabytes(gain):
        return f"{number_text(gain.sent, NUMBERS['bytes_up'])} MB"
    return _ratio_text(gain.traffic)


def remarks_on(
    tables: Sequence[ResultTable], metric: Number, reference: str, compared: Sequence[Gain]
) -> list[str]:
    """Write the notes that hold: on intervals, diverged runs, cells, traffic and platforms.

    Args:
        tables: as for `gains`.
        metric: likewise.
        reference: the label of its row.
        compared: the result of `gains`, or some of it.
    """
    remarks = []
    unbounded = [gain.pooled.method for gain in compared if gain.pooled.interval is None]
    if 0 < len(unbounded) < len(compared):
        names = ", ".join(unbounded)
        remarks.append(f"no interval: too few partitions, or one outweighs the others: {names}")
    cells = _cells_of_reference(_pooled_cells(tables, metric), reference)
    diverged, tried = _diverged_of(cells)
    if diverged or any(gain.diverged for gain in compared):
        of_reference = f" (of {reference} {diverged} of {tried})" if diverged else ""
        remarks.append(f"{_DIVERGED}{of_reference}; {_AS_ONE}; {_of_diverged(metric)}")
    unreached = _unreached(tables, metric)
    if unreached:
        remarks.append(f"{_EASIER}: {', '.join(unreached)}")
    if any(map(_in_megabytes, compared)):
        remarks.append(f"traffic in MB, because {reference} sends nothing")
    return [*remarks, *_platforms_noted(compared)]


def _platforms_noted(compared: Sequence[Gain]) -> list[str]:
    """Name the differences between runs on unlike platforms in a note, if there are any."""
    mixed = [gain.pooled.method for gain in compared if gain.platforms_mixed]
    others = [gain.pooled.method for gain in compared if not gain.platforms_mixed]
    if not mixed:
        return []
    if not others:
        which = "all differences"
    elif len(others) < len(mixed):
        which = f"all differences but those of {', '.join(others)}"
    else:
        which = ", ".join(mixed)
    return [f"some cells compare runs {FLAGS['mixed'].meaning}: {which}"]


def _of_diverged(metric: Number) -> str:
    if of_last_model(metric):
        return "such runs count with the accuracy of their last model"
    return "such runs count only if they have a number"


def _ahead(entry: PooledDifference, metric: Number) -> int:
    """Count the partitions in which the method is better than the reference."""
    return entry.higher if metric.higher_is_better else entry.lower


def _gain_record(gain: Gain, metric: Number, reference: str, p_by_seed: float) -> dict[str, Any]:
    entry = gain.pooled
    return {
        "metric": metric.name,
        "algorithm": entry.method,
        "reference": reference,
        "difference": entry.difference,
        **limits(entry.interval),
        "p": entry.p,
        "p_by_seed": p_by_seed,
        "separable": entry.separable,
        "ahead": _ahead(entry, metric),
        "partitions": entry.clusters,
        "cells": entry.cells,
        "traffic_ratio": gain.traffic,
        "bytes": gain.sent,
        "time_ratio": gain.time,
        "platforms_mixed": gain.platforms_mixed,
        "diverged": gain.diverged,
        "runs_tried": gain.tried,
    }


def _score_text(standing: Standing) -> str:
    text = f"{100 * (standing.iqm or 0.0):.1f}"
    if standing.interval is None:
        return text
    return f"{text} [{100 * standing.interval.low:.1f}, {100 * standing.interval.high:.1f}]"


def _probability(better: Improvement | None) -> str:
    if better is None:
        return ""
    if better.interval is None:
        return f"{better.probability:.2f}"
    return f"{better.probability:.2f} [{better.interval.low:.2f}, {better.interval.high:.2f}]"


def _standing_record(
    standing: Standing, metric: Number, reference: str | None, better: Improvement | None
) -> dict[str, Any]:
    return {
        "metric": metric.name,
        "algorithm": standing.algorithm,
        "average_rank": standing.average_rank,
        "win_rate": standing.win_rate,
        "score": standing.iqm,
        **limits(standing.interval, "score_"),
        "n": standing.n,
        "reference": reference if better else None,
        "probability_of_improvement": better.probability if better else None,
        **limits(better.interval if better else None, "probability_"),
    }
