"""Choice among the rows of one run, and among those of one run in one environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leaderboards.rows.reading import read_rows
from leaderboards.rows.schema import COLUMNS, TRACKED_COLUMN, digest

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS = [
    column.name for column in COLUMNS if column.group == "results" and column.name != TRACKED_COLUMN
]
_BEST_FIRST = ("finished", "stopped", "failed")


def counted(index: pa.Table) -> pa.Table:
    """Select the rows of an index that count: the best of each run key and environment."""
    return _first_of_each(_best_first(index), ["run_key", "environment"])


def one_for_each_key(index: pa.Table) -> pa.Table:
    """Select one row for each run key from rows that count.

    It is the latest row of `--force`. Without one it is the earliest finished row, and without a
    finished row the latest.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    done = pc.equal(index["status"], "finished")
    by_file = ("file", "ascending")
    forced = index.filter(index["forced"]).sort_by([("written", "descending"), by_file])
    earliest = index.filter(done).sort_by([("finished", "ascending"), by_file])
    latest = index.filter(pc.invert(done)).sort_by([("finished", "descending"), by_file])
    in_order = pa.concat_tables([forced, earliest, latest])
    return _first_of_each(in_order, ["run_key"]).sort_by("file")


def _best_first(index: pa.Table) -> pa.Table:
    """Sort an index by run key and environment, with the row that counts before the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ranks = pc.index_in(index["status"], pa.array(_BEST_FIRST))
    index = index.append_column("rank", ranks)
    order = [
        ("run_key", "ascending"),
        ("environment", "ascending"),
        ("rank", "ascending"),
        ("preferred", "descending"),
        ("written", "descending"),
        ("file", "ascending"),
        ("holder", "ascending"),
    ]
    return index.sort_by(order).drop_columns(["rank"])


def _first_of_each(index: pa.Table, names: list[str]) -> pa.Table:
    """Select the first row of each group that agrees in the columns `names`."""
    import numpy as np
    import pyarrow as pa

    numbered = index.append_column("place", pa.array(np.arange(index.num_rows)))
    first = numbered.group_by(names).aggregate([("place", "min")])["place_min"]
    return index.take(first.sort())


def judge(index: pa.Table) -> tuple[set[tuple[str, int]], list[list[dict[str, Any]]]]:
    """Find rows that no reader needs, and results that disagree.

    Both are among rows that share run key and environment. Results on different copies of the data
    neither disagree nor replace each other.

    Returns:
        (holder, row) of the rows that no reader needs; and, for each run key and environment with
        different results, one finished row of each result on one copy of the data, best first: its
        columns of the index, and `final_accuracy`.
    """
    import pyarrow.compute as pc

    ordered = _best_first(index)
    identity = pc.binary_join_element_wise(ordered["run_key"], ordered["environment"], "-")
    counts = identity.value_counts()
    is_shared = pc.greater(counts.field("counts"), 1)
    shared = counts.field("values").filter(is_shared)
    rivals = ordered.filter(pc.is_in(identity, shared))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in with_results(rivals):
        groups.setdefault((row["run_key"], row["environment"]), []).append(row)
    outdated = set[tuple[str, int]]()
    disagreeing = []
    for rows in groups.values():
        best, *others = rows
        forced_at = _last_forced(rows)
        results_by_copy = {best["dataset_hash"]: {best["results"]: best}}
        for row in others:
            copy = row["dataset_hash"]
            distinct = results_by_copy.setdefault(copy, {})
            replaced = row["written"] < forced_at.get(copy, row["written"])
            needed = row["status"] == best["status"] == "finished" and not replaced
            if needed and row["results"] not in distinct:
                distinct[row["results"]] = row
            else:
                outdated.add((row["holder"], row["row"]))
        for distinct in results_by_copy.values():
            if len(distinct) > 1:
                disagreeing.append(list(distinct.values()))
    return outdated, disagreeing


def _last_forced(rows: Iterable[Mapping[str, Any]]) -> dict[str | None, Any]:
    """Return when the last forced row was written, by copy of the data."""
    forced_at: dict[str | None, Any] = {}
    for row in rows:
        if row["forced"] and row["status"] == "finished":
            copy = row["dataset_hash"]
            forced_at[copy] = max(row["written"], forced_at.get(copy, row["written"]))
    return forced_at


def results_digests(rows: pa.Table) -> list[str]:
    """Compute 64 digits for each row, which are equal for equal results."""
    return [digest({"results": str([row])}) for row in rows.select(RESULTS).to_pylist()]


def with_results(index: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of an index, each with `results`, a digest, and `final_accuracy`."""
    stored = read_rows(index, RESULTS)
    rows: list[dict[str, Any]]
    rows = index.append_column("final_accuracy", stored["final_accuracy"]).to_pylist()
    for row, results in zip(rows, results_digests(stored), strict=True):
        row["results"] = results
    return rows


def as_good(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether readers need `other` no more beside `row`, of the same run."""
    if row["status"] != other["status"]:
        statuses = (*_BEST_FIRST, row["status"], other["status"])  # unknown statuses come last
        return statuses.index(row["status"]) < statuses.index(other["status"])
    later: bool = row["written"] >= other["written"]
    if row["status"] == "finished" and row["results"] != other["results"]:
        return row["forced"] and later
    return later if row["preferred"] == other["preferred"] else row["preferred"]
