"""Programs and GPUs that runs share: packs, and each trial's share of a GPU. Imports neither torch nor ray."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from algorithms import entry
from bench.planning.run_spec import RunSpec


def program_of(unit: RunSpec) -> Hashable:
    """A key that is equal for runs which one program can train: their steps differ in packable numbers only."""
    fields = entry(unit.algorithm).fields
    fixed = tuple(
        (item.name, unit.hyperparameters[item.name]) for item in fields if not (item.packable and item.kind == "float")
    )
    return unit.algorithm, fixed, tuple(unit.setting.of_program().items())


def packs_of(configurations: Sequence[Sequence[RunSpec]], size: int) -> list[list[RunSpec]]:
    """Configurations as packs of at most `size` runs.

    A seed's configurations come first, then further seeds: with one seed clients have equal samples, and a stack of
    equal clients shrinks late. Runs that are given together, as all seeds of a configuration, stay together, if need be
    in a larger pack.
    """
    by_program: dict[Hashable, list[Sequence[RunSpec]]] = {}
    for members in configurations:
        by_program.setdefault(program_of(members[0]), []).append(members)
    packs: list[list[RunSpec]] = []
    for same in by_program.values():
        together = sum(map(len, same))
        even = math.ceil(together / math.ceil(together / size))  # as many packs as it takes, none of them left small
        pack: list[RunSpec] = []
        for members in sorted(same, key=lambda units: units[0].seed):
            if not pack or len(pack) >= even or len(pack) + len(members) > size:
                packs.append(pack := [])
            pack.extend(members)
    return packs


def fitting(cores: float, devices: float, cpus: int, gpus: float) -> int:
    """Count the trials that fit at once, each with so many of the `cores` and `devices` (GPUs, or a share of one)."""
    by_cores = int(cores // cpus)
    if not gpus:
        return by_cores
    # A trial's share lies on one GPU: four GPUs hold four trials of 0.6, not six.
    whole = int(devices)
    return min(by_cores, int(whole // gpus) if gpus >= 1 else whole * int(1 / gpus + 1e-9))
