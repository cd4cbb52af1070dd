"""Samples a second of each model, backend, precision and pack size, beside what the machine measured here allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch

from bench.engine.simulation import choose_backend
from bench.perf import memory
from bench.perf.ceilings import bound, check_precision, measure_ceilings, synchroniser
from bench.perf.costs import Costs, costs_of
from bench.perf.energy import Energy
from bench.perf.measure import Keep, figure, guarded, nothing
from bench.perf.report import case_name
from bench.perf.split import measure_split
from bench.perf.workload import Workload, simulations, together

ALGORITHM = "fedavg"
BOUND_SHARE = 0.25  # of what binds on a GPU, at least
PREPARING = {"cpu": 1, "cuda": 2}  # rounds: a pack's first measures memory, its second captures what fits


@dataclass(frozen=True)
class Case:
    """One row of the measurement.

    Args:
        work: what each run trains.
        name: of the model; that of `work` may be one of the same arithmetic.
        pack: runs side by side.
    """

    work: Workload
    name: str
    pack: int

    @property
    def asked(self) -> dict[str, Any]:
        """What tells it from the other rows."""
        work = self.work
        known = {"dataset": work.dataset, "image_size": work.image_size, "optimizer": work.optimizer}
        how = {"backend": work.backend, "precision": work.precision, "pack": self.pack, "batch_size": work.batch_size}
        return {**known, "model": self.name, **how}


def cases(
    works: Mapping[str, Workload], backends: Sequence[str], precisions: Sequence[str], packs: Sequence[int]
) -> list[Case]:
    """Every combination; `auto` and the backend that it stands for are one.

    Args:
        works: by the name of the model, and what else tells them apart.
        backends: of the engine.
        precisions: of training.
        packs: numbers of runs side by side.
    """
    device = torch.device(next(iter(works.values())).device)
    resolved = dict.fromkeys(choose_backend(name, device) for name in backends)
    return [
        Case(replace(work, backend=backend, precision=precision), name.partition(" ")[0], pack)
        for (name, work), backend, precision, pack in product(works.items(), resolved, precisions, packs)
    ]


def measure_throughput(
    asked: Sequence[Case], split: Sequence[Workload], rounds: int, say: Callable[[str], None], keep: Keep = nothing
) -> dict[str, Any]:
    """The ceilings of the machine, the rates of all cases beside them, and where the time of a round goes.

    Args:
        asked: of `cases`.
        split: what is taken apart into phases.
        rounds: timed, of each.
        say: told what is being done.
        keep: given the result so far.

    Returns:
        `ceilings`; `rates`, an entry for each case; `split`, by model.
    """
    device = asked[0].work.device
    precisions = dict.fromkeys(case.work.precision for case in asked)
    say(f"throughput: what the machine can do in {', '.join(precisions)}")
    ceilings = measure_ceilings(device, list(precisions))
    found: dict[str, Any] = {"work": _described(asked[0].work), "ceilings": ceilings, "rates": [], "split": {}}
    for case in asked:
        say(f"throughput: {case_name(case.asked)}")
        found["rates"].append(case.asked | guarded(partial(rate, case, ceilings, rounds)))
        keep(found)
    for work in split:
        say(f"throughput: {work.model}, a round's phases")
        found["split"][work.model] = measure_split(work, ALGORITHM, rounds)
        keep(found)
    return found


def rate(case: Case, ceilings: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """One case's figures: rounds are timed singly after those that prepare.

    Returns:
        `rate`, and on a CPU with one thread `cpu_rate`, by processor time; the FLOPs and, as an estimate, the bytes of
        a sample; their shares of the ceilings; which of these binds, and the share of what it allows that is reached;
        the memory peak, and of what; the energy.

    Raises:
        UsageError: the device does not compute in the case's precision.
    """
    check_precision(case.work.device, case.work.precision)
    wait = synchroniser(case.work.device)
    since_begin = memory.begin(case.work.device)
    runs = simulations(case.work, ALGORITHM, case.pack)
    advance, samples = together(runs), case.pack * case.work.processed
    for _ in range(PREPARING[case.work.device]):
        advance()
    energy = Energy(case.work.device)
    turns = [energy.timed(advance, wait) for _ in range(rounds)]
    spent = energy.of(samples * rounds)
    found = {"rate": figure([samples / turn.seconds for turn in turns], "samples/s")}
    if case.work.device == "cpu" and torch.get_num_threads() == 1:
        found["cpu_rate"] = figure([samples / turn.cpu_seconds for turn in turns], "samples/s")
    kept = {"memory": memory.peak(case.work.device), "memory_of": "the case" if since_begin else "the process"}
    return found | roofline(case, costs_of(runs[0]), ceilings, found["rate"]) | kept | {"energy": spent}


def roofline(case: Case, costs: Costs, ceilings: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """A rate beside the ceilings."""
    precision, median = case.work.precision, found["median"]
    binding, allowed = bound(ceilings, precision, costs.flops, costs.bytes)
    # A target for a GPU: there a program of small models is far from what the hardware could do.
    limit = BOUND_SHARE if case.work.device == "cuda" else None
    return {
        "flops_per_sample": costs.flops,
        "bytes_per_sample_estimate": costs.bytes,
        "arithmetic_share": median * costs.flops / ceilings["matrix"][precision]["median"],
        "bandwidth_share_estimate": median * costs.bytes / ceilings["copy"]["median"],
        "binds": binding,
        "bound": allowed,
        "bound_share": figure([median / allowed], "x", limit, at_least=True),
    }


def _described(work: Workload) -> dict[str, Any]:
    names = ("clients", "cohort", "samples", "epochs", "device", "augmentation")
    return {name: getattr(work, name) for name in names}
