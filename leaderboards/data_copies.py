"""Comparability of runs: one copy of the data, and for one seed one partition of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leaderboards.problems import cell_of
from leaderboards.replicates import partitions
from leaderboards.rows.frames import by_text

if TYPE_CHECKING:
    import pandas as pd


def on_other_data(runs: pd.DataFrame, cells: pd.Series) -> pd.Series:
    """Return which runs have other data than most runs of their cell.

    Other data are another copy of the data set, or another partition of the same setting and seed.
    If no copy has most runs, all runs of the cell have other data. Runs without a hash agree with
    all.

    Args:
        runs: with the columns `dataset_hash`, `partition_hash`, `setting_json` and `seed`.
        cells: the cell of each run.
    """
    on_other_copy = _unusual(runs["dataset_hash"], cells)
    return on_other_copy | _unusual(runs["partition_hash"], _partitions(runs))


def copies_named(runs: pd.DataFrame) -> Iterator[str]:
    """Yield a phrase for each data set of which runs were trained on several copies or partitions.

    Args:
        runs: finished ones, with the columns of `on_other_data` and `dataset`.
    """
    versions = runs["setting_json"].map(lambda text: json.loads(text).get("dataset_version"))
    for _, group in runs.groupby([runs["dataset"], versions], dropna=False):
        name = str(group["dataset"].iloc[0])
        counts = group["dataset_hash"].value_counts()
        if len(counts) > 1:
            copies = ", ".join(f"{count} on {str(digest)[:8]}" for digest, count in counts.items())
            yield f"runs on {len(counts)} copies of {name}, which do not compare: {copies}"
            continue
        count = int(_unusual(group["partition_hash"], _partitions(group)).sum())
        if count:
            yield (
                f"runs on {name} with another partition than others of their setting and seed: "
                f"{count}"
            )


def _partitions(runs: pd.DataFrame) -> pd.Series:
    """Name the setting and the partition's seed of each run, which decide its partition."""
    cells = by_text(runs["setting_json"], cell_of)
    return cells.astype(str) + " " + partitions(runs).astype(str)


def _unusual(values: pd.Series, groups: pd.Series) -> pd.Series:
    """Return which values are not the most frequent one of their group.

    If several are equally frequent, all of them are returned.
    """
    frame = values.to_frame("value").assign(group=groups)
    sizes = frame.groupby(["group", "value"])["value"].transform("size")
    frame = frame.assign(size=sizes)
    most = frame.groupby("group")["size"].transform("max")
    winners = frame[frame["size"] == most].groupby("group")["value"].nunique()
    single = frame["group"].map(winners) == 1
    usual = (frame["size"] == most) & single
    return values.notna() & ~usual
