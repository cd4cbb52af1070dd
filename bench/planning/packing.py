"""Packs of runs that train as one program, and the trials that share a machine.

Imports neither torch nor ray.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from algorithms import entry
from bench.planning.run_spec import RunSpec


def program_of(run_spec: RunSpec) -> Hashable:
    """Return a key, equal for runs that one program can train.

    Their steps differ only in packable numbers.
    """
    fixed = []
    for item in entry(run_spec.algorithm).fields:
        if not item.packable or item.kind != "float":
            fixed.append((item.name, run_spec.hyperparameters[item.name]))
    return run_spec.algorithm, tuple(fixed), tuple(run_spec.setting.of_program().items())


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
    """Count the trials, each of `cpus` cores and `gpus` GPUs, that fit at once.

    They fit on `cores`, and on `devices`, which are GPUs.
    """
    by_cores = int(cores // cpus)
    if not gpus:
        return by_cores
    # A trial's share lies on one GPU: four GPUs hold four trials of 0.6, not six.
    num_gpus = int(devices)
    if gpus >= 1:
        return min(by_cores, int(num_gpus // gpus))
    of_one_gpu = int(1 / gpus + 1e-9)
    return min(by_cores, num_gpus * of_one_gpu)
