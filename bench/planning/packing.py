"""Packs of runs that train as one program, and the trials that share a machine.

Imports neither torch nor ray.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from algorithms import entry
from bench.planning.run_spec import RunSpec


def program_of(run_spec: RunSpec) -> Hashable:
    """Return a key, equal for runs that one program can train: their steps differ only in packable numbers."""
    fields = entry(run_spec.algorithm).fields
    fixed = tuple(
        (item.name, run_spec.hyperparameters[item.name])
        for item in fields
        if not (item.packable and item.kind == "float")
    )
    return run_spec.algorithm, fixed, tuple(run_spec.setting.of_program().items())


def packs_of(run_specs: Sequence[RunSpec], size: int) -> list[list[RunSpec]]:
    """Group runs into packs of at most `size` runs that one program can train.

    A pack takes the configurations of one seed first, then further seeds: under one seed clients
    have equal samples, and a stack of equal clients shrinks late. There are as few packs as
    possible, none of them small.
    """
    programs: dict[Hashable, list[RunSpec]] = {}
    for run_spec in run_specs:
        programs.setdefault(program_of(run_spec), []).append(run_spec)
    packs = []
    for members in programs.values():
        by_seed = sorted(members, key=lambda run_spec: run_spec.seed)
        count = math.ceil(len(members) / size)
        even_size = math.ceil(len(members) / count)
        for begin in range(0, len(members), even_size):
            packs.append(by_seed[begin : begin + even_size])
    return packs


def fitting(cores: float, devices: float, cpus: int, gpus: float) -> int:
    """Count the trials that fit on `cores` and `devices` (GPUs) at once, each with `cpus` cores and `gpus` GPUs."""
    by_cores = int(cores // cpus)
    if not gpus:
        return by_cores
    # A trial's share lies on one GPU: four GPUs hold four trials of 0.6, not six.
    num_gpus = int(devices)
    return min(by_cores, int(num_gpus // gpus) if gpus >= 1 else num_gpus * int(1 / gpus + 1e-9))
