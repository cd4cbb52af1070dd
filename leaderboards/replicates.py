"""Replicates: runs on one partition that differ in participants, batches and dropout alone.

A run's setting has a `partition_seed` where that is not the run's own seed. Comparisons are paired
by partition, so that the replicates of a partition are averaged first, and count as one run of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from leaderboards.problems import CONFIGURATION
from leaderboards.rows.frames import by_text
from leaderboards.rows.schema import canonical_json

if TYPE_CHECKING:
    import pandas as pd

FIELD = "partition_seed"


def without_partition_seed(setting_json: str) -> tuple[str, int | None]:
    """Split a row's setting: what its replicates share, and the seed of its partition or None."""
    setting = json.loads(setting_json)
    seed = setting.pop(FIELD, None)
    return canonical_json(setting), seed


def partitions(runs: pd.DataFrame) -> pd.Series:
    """Return the seed of each run's partition, int64."""
    import pandas as pd

    texts = runs["setting_json"]
    seeds = {text: without_partition_seed(text)[1] for text in texts.unique()}
    # Not by way of float64, which pandas makes of numbers and None, and which has 53 bits.
    own = pd.Series([seeds[text] for text in texts], index=runs.index, dtype="Int64")
    return own.fillna(runs["seed"]).astype("int64")


def by_partition(runs: pd.DataFrame, numbers: Collection[str]) -> pd.DataFrame:
    """Make one row of the replicates of each configuration and partition.

    Runs without replicates stay as they are.

    Args:
        runs: one row for each configuration and seed.
        numbers: columns that are averaged, over the finished replicates. If one of these has no
            value, as of a target that it did not reach, neither has the partition.

    Returns:
        Rows with the seed of the partition as `seed`, and a setting without it. A row has diverged
        if one of its replicates did. All other columns are those of its first finished replicate,
        or of its first replicate if none finished.
    """
    if not _has_replicates(runs):
        return runs
    key = [*CONFIGURATION, "seed"]
    present = [name for name in numbers if name in runs]
    rows = keyed_by_partition(runs)
    first = rows.drop_duplicates(key).set_index(key)
    finished = rows[rows["status"] == "finished"].groupby(key)
    means = finished[present].agg("mean").astype("float64")
    means = means.where(finished[present].count().eq(finished.size(), axis=0))
    averaged = first.index.isin(means.index)
    with_mean = first.index[averaged]
    for name in present:
        first[name] = first[name].astype("float64")
        first.loc[averaged, name] = means[name].reindex(with_mean)
    first.loc[averaged, "diverged"] = finished["diverged"].any().reindex(with_mean)
    columns = [str(name) for name in runs.columns]
    rows = first.reset_index()[columns]
    return rows.sort_values(key, kind="stable")


def replicate_keys(runs: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return for each row of `by_partition` the run keys of its finished replicates, by its own.

    It is empty if no run has replicates. `runs` are as for `by_partition`.
    """
    keys = {}
    if _has_replicates(runs):
        rows = keyed_by_partition(runs)
        finished = rows[rows["status"] == "finished"]
        for _, group in finished.groupby([*CONFIGURATION, "seed"])["run_key"]:
            keys[group.iloc[0]] = tuple(group)
    return keys


def _has_replicates(runs: pd.DataFrame) -> bool:
    return bool(runs["setting_json"].str.contains(f'"{FIELD}"').any())


def keyed_by_partition(runs: pd.DataFrame) -> pd.DataFrame:
    """Replace a run's seed and setting by the seed of its partition and a setting without that.

    Finished runs come first, then runs of lower seeds, unless there are no replicates.
    """
    if not _has_replicates(runs):
        return runs
    texts = runs["setting_json"]
    settings = by_text(texts, lambda text: without_partition_seed(text)[0])
    rows = runs.assign(unfinished=runs["status"] != "finished")
    rows = rows.sort_values(["unfinished", "seed"], kind="stable").drop(columns="unfinished")
    return rows.assign(setting_json=settings.astype(texts.dtype), seed=partitions(runs))
