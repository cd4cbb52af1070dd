"""Feasibility of the partitions of a plan.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from algorithms import entry
from bench.data import read
from bench.errors import UsageError
from bench.models import parse
from bench.planning.run_spec import RunSpec
from bench.planning.search import Search
from search_spaces import Setting

# Seeds of a configuration whose partitions are drawn, in milliseconds each; a sweep draws all.
CHECKED_SEEDS = 100


def partition_status(part: RunSpec | Search, seeds: Sequence[int], data_dir: str | None) -> str:
    """Return `feasible`, why not, or `unknown` without the data.

    `seeds`: of partitions; of many only the first are drawn, as it says.
    """
    from bench.data.splits import split_like

    setting = split_like(part.setting)
    pooled = "pooled" in entry(part.algorithm).needs
    normed = not pooled and any(parse(model).has_batchnorm for model in part.setting.models)
    drawn = seeds[:CHECKED_SEEDS]
    status = "feasible"
    if len(drawn) < len(seeds):
        status += f" (first {len(drawn)} of {len(seeds)} seeds)"
    most = 0  # clients with too few samples
    for seed in drawn:
        problem, smallest, count = _draw(setting, seed, data_dir)
        if problem:
            return problem
        if normed and smallest < 2:
            why = f"BatchNorm takes statistics over a batch, and a client has {smallest} sample"
            return f"NOT feasible: {why}"
        most = max(most, count)
    if most:
        status += (
            f"; too few samples for tests and validation of their own: {most} of "
            f"{setting.num_clients} clients, which train on all and count for neither"
        )
        if len(drawn) > 1:
            status += " (seed with most)"
    return status


@cache
def _draw(setting: Setting, seed: int, data_dir: str | None) -> tuple[str, int, int]:
    """Draw a partition.

    Returns:
        Why it cannot be drawn, or an empty text; the samples of the smallest client; the number of
        clients with too few samples for the tests and the validation of their own that the setting
        asks for, 0 if it does not ask for both.
    """
    from bench.data.splits import split

    dataset = read(setting.dataset, data_dir)
    if dataset is None:
        return "unknown: the data are not here", 0, 0
    try:
        drawn = split(setting, dataset.train_y, seed, dataset.train_groups)
    except UsageError as problem:
        return f"NOT feasible: {problem}", 0, 0
    smallest = min(map(len, drawn.clients))
    lacking = 0
    if setting.local_validation_fraction:
        lacking = sum(len(index) == 0 for index in drawn.local_validations)
    return "", smallest, lacking
