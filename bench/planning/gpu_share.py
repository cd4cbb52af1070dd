"""The share of a GPU of each trial, unless it is given, and how many trials fit. Imports neither torch nor ray."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.execution import UNPACKED_SHARE, cpu_count, gpu_memory
from bench.planning.model import Search
from bench.planning.run_spec import RunSpec
from leaderboards import Store

USABLE = 0.9  # of a GPU's memory: each process has a context of its own, and the allocator its gaps
ALIKE = ("algorithm", "dataset", "model", "batch_size", "precision")  # runs that peak alike


def fitting(cores: float, devices: float, cpus: int, gpus: float) -> int:
    """Count the trials that fit at once, each with so many of the `cores` and `devices` (GPUs, or a share of one)."""
    by_cores = int(cores // cpus)
    if not gpus:
        return by_cores
    # A trial's share lies on one GPU: four GPUs hold four trials of 0.6, not six.
    whole = int(devices)
    return min(by_cores, int(whole // gpus) if gpus >= 1 else whole * int(1 / gpus + 1e-9))


def default_share(runs: int) -> float:
    """The share of a trial of so many runs: a pack has a GPU to itself; runs of one small model share it."""
    return 1.0 if runs > 1 else UNPACKED_SHARE


def measured_share(peaks: Sequence[int], memory: int) -> float:
    """The share at which k trials fit, k * peak < memory, and no more of them than cores; all in bytes."""
    together = math.floor(USABLE * memory / max(peaks))
    return 1.0 / max(1, min(together, cpu_count()))


def share(units: Sequence[RunSpec | Search], runs_held: int, store: Store) -> float:
    """`--gpus-per-trial auto`: by the peaks of stored runs that were alike and alone in their trial; else the default.

    Args:
        units: the runs to do.
        runs_held: runs of a trial, at most.
        store: where the peaks are.
    """
    if runs_held > 1:
        return default_share(runs_held)  # a pack takes what memory there is
    runs, memory = store.runs(columns=(*ALIKE, "status", "pack", "device", "peak_memory_bytes")), gpu_memory()
    runs = runs[(runs["status"] == "finished") & (runs["pack"] == 1) & (runs["device"] != "cpu")]
    peaks = runs.groupby(list(ALIKE))["peak_memory_bytes"].max().to_dict() if len(runs) else {}
    kinds = {(unit.algorithm, *(getattr(unit.setting, name) for name in ALIKE[1:])) for unit in units}
    if not memory or not kinds or not kinds <= set(peaks):
        return default_share(runs_held)
    return measured_share([int(peaks[kind]) for kind in kinds], memory)
