"""On paper: what 1, 8 and 64 GPUs give for all printed tables, from measured rates, and where more are of no use.

A table is a heap of packs, each the work of one GPU. More GPUs than packs are idle, and no table ends before its
longest pack does. Nothing is guessed: a problem without a measured rate is unknown, and is named.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.perf.tables import problem_of, tables
from bench.planning.unit import Unit, distinct_runs
from bench.planning.work import samples_of

GPUS = (1, 8, 64)
HOUR = 3600.0
NEGLIGIBLE = 1e-9  # a share of a time that is rounding
FORWARD = 1 / 3  # of a training step, in time: a forward pass, as an evaluation is, of three


@dataclass(frozen=True)
class Rates:
    """What was measured.

    Args:
        samples: samples/s of a whole pack of FedAvg runs, by problem, then by pack size.
        times: a round's time over FedAvg's, by model and algorithm. It is measured on few clients of few samples, where
            a server's own work weighs more than in a table's runs: rather too much than too little.
    """

    samples: Mapping[str, Mapping[int, float]]
    times: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @staticmethod
    def of(records: Sequence[Mapping[str, Any]], precision: str) -> Rates:
        """Those of records: of the faster backend, and of two ratios the one that stands later."""
        samples, times = dict[str, dict[int, float]](), dict[tuple[str, str], float]()
        for parts in (record["parts"] for record in records):
            for entry in parts.get("throughput", {}).get("rates", ()):
                if "rate" in entry and entry["precision"] == precision:
                    names = ("model", "dataset", "image_size", "optimizer", "batch_size")
                    by_pack = samples.setdefault(" ".join(str(entry[name]) for name in names), {})
                    by_pack[entry["pack"]] = max(by_pack.get(entry["pack"], 0.0), entry["rate"]["median"])
            for model, entries in parts.get("training", {}).get("algorithms", {}).items():
                times |= {(model, name): own["ratio"]["median"] for name, own in entries.items() if "ratio" in own}
        return Rates(samples, times)

    def seconds(self, unit: Unit, pack: int) -> float | None:
        """A run's share of a pack's time; None where its problem was not measured with such a pack."""
        rate = self.samples.get(problem_of(unit.setting), {}).get(pack)
        if rate is None:
            return None
        trained, evaluated = samples_of(unit.setting)
        return (trained * self.ratio(unit) + evaluated * FORWARD) / rate

    def ratio(self, unit: Unit) -> float:
        """Of the algorithm's round to FedAvg's; 1 where it was not measured, which `assumed` tells."""
        return self.times.get(_pair(unit), 1.0)

    def assumed(self, unit: Unit) -> bool:
        """Whether the algorithm is taken to be as fast as FedAvg for want of a measured ratio."""
        return unit.algorithm != "fedavg" and _pair(unit) not in self.times


def _pair(unit: Unit) -> tuple[str, str]:
    return unit.setting.model.partition("+")[0], unit.algorithm


@dataclass(frozen=True)
class Heap:
    """What a table consists of.

    Args:
        groups: runs that may share packs, by pack size: the seconds of each pack.
        unknown: problems without a rate, each with the number of its runs.
        assumed: algorithms that are taken to be as fast as FedAvg.
    """

    groups: Sequence[Mapping[int, Sequence[float]]]
    unknown: Mapping[str, int]
    assumed: Sequence[str]

    def packs(self, limit: float = math.inf) -> list[float]:
        """Seconds of each pack, of sizes that take the least time in all while no pack takes more than `limit`.

        A group whose packs are all longer has those that end first.
        """
        return [seconds for group in self.groups for seconds in _chosen(group, limit)]

    @property
    def limits(self) -> list[float]:
        """The longest pack of each group and size: the values of `limit` that make a difference."""
        return sorted({max(packs) for group in self.groups for packs in group.values()})

    @property
    def floor(self) -> float:
        """Seconds that no number of GPUs goes below: of the longest pack, all groups having those that end first."""
        return max(self.packs(0.0))

    def least(self, gpus: int) -> float:
        """Seconds with so many GPUs, and the pack sizes that suit them."""
        return min(makespan(self.packs(limit), gpus) for limit in self.limits)

    @property
    def useful(self) -> int:
        """The fewest GPUs that reach the floor: with more of them it grows no faster."""
        floor = self.floor
        packs = self.packs(floor)
        count = max(1, math.ceil(sum(packs) / floor - NEGLIGIBLE))
        while makespan(packs, count) > floor * (1 + NEGLIGIBLE):
            count += 1
        return count


def _chosen(group: Mapping[int, Sequence[float]], limit: float) -> Sequence[float]:
    within = [packs for packs in group.values() if max(packs) <= limit]
    return min(within, key=sum) if within else min(group.values(), key=max)


def heap_of(units: Sequence[Unit], rates: Rates) -> Heap:
    """A table's runs in packs of one problem and algorithm, of every size that was measured."""
    members: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        members.setdefault((problem_of(unit.setting), unit.algorithm), []).append(unit)
    groups, unknown, assumed = [], dict[str, int](), dict[str, None]()
    for (problem, algorithm), own in members.items():
        sizes = sorted(rates.samples.get(problem, ()))
        if not sizes:
            unknown[problem] = unknown.get(problem, 0) + len(own)
            continue
        if rates.assumed(own[0]):
            assumed[algorithm] = None
        groups.append({size: list(_pack_seconds(own, rates, sizes, size)) for size in sizes})
    return Heap(groups, unknown, list(assumed))


def _pack_seconds(members: Sequence[Unit], rates: Rates, sizes: Sequence[int], most: int) -> Iterable[float]:
    """Seconds of each pack of up to `most` runs; what is left over has the largest measured size that it fills."""
    # The longest runs together: a pack is busy until its last run ends.
    left = sorted(members, key=lambda unit: -sum(samples_of(unit.setting)))
    while left:
        size = max((known for known in sizes if known <= min(most, len(left))), default=sizes[0])
        pack, left = left[:size], left[size:]
        yield sum(rates.seconds(unit, size) or 0.0 for unit in pack)


def makespan(seconds: Sequence[float], gpus: int) -> float:
    """The time until all packs are done, the longest first, each given to the GPU that is free first."""
    ends = [0.0] * min(gpus, max(1, len(seconds)))
    for pack in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + pack)
    return max(ends)


def measure_scale(records: Sequence[Mapping[str, Any]], precision: str) -> dict[str, Any]:
    """Every table's estimate.

    Args:
        records: of one kind of device, some with the part throughput and, for algorithms' own times, training.
        precision: of the rates.

    Returns:
        `gpus`; `tables` by paper and name, as `estimate` gives them, and `all`, their runs as one heap.
    """
    rates, every = Rates.of(records, precision), dict(tables())
    found = {name: estimate(units, rates) for name, units in every.items()}
    found["all"] = estimate(distinct_runs(unit for units in every.values() for unit in units), rates)
    devices = [record["device"] for record in records if {"throughput", "training"} & set(record["parts"])]
    measured = {"device": devices[0] if devices else "none", "precision": precision}
    return {"gpus": list(GPUS), "measured_on": measured, "tables": found}


def estimate(units: Sequence[Unit], rates: Rates) -> dict[str, Any]:
    """A table's GPU-hours, and its hours on each number of GPUs, the sizes of packs chosen to end first.

    Returns:
        `gpu_hours`, with the packs that take the least; `hours` by number of GPUs; `useful_gpus`, beyond which it is
        not done any sooner, and `least_hours`, which it takes then. None where no run's rate is known; with `unknown`
        problems all of it is of the others alone. `assumed_as_fedavg`: algorithms whose own time was not measured.
    """
    heap = heap_of(units, rates)
    said = {"runs": len(units), "unknown": dict(heap.unknown), "assumed_as_fedavg": list(heap.assumed)}
    if not heap.groups:
        return said | {"gpu_hours": None, "hours": None, "useful_gpus": None, "least_hours": None}
    return said | {
        "gpu_hours": sum(heap.packs()) / HOUR,
        "hours": {str(gpus): heap.least(gpus) / HOUR for gpus in GPUS},
        "useful_gpus": heap.useful,
        "least_hours": heap.floor / HOUR,
    }
