"""Rates on one device: each model, backend, precision and pack size, and the operators of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch.profiler import ProfilerActivity, profile

from bench.engine.simulation import choose_backend
from bench.errors import UsageError
from bench.perf.measure import Record, Say, figure, guarded, synchroniser, timed
from bench.perf.training import operations, smaller
from bench.perf.workload import Workload, one_round, simulation, simulations, together

ALGORITHM = "fedavg"
PREPARING = {"cpu": 1, "cuda": 2}  # rounds: a pack's first measures memory, its second captures what fits
MOST = 15  # operators of a profile


@dataclass(frozen=True)
class Case:
    """One rate to measure: `pack` runs of one workload side by side."""

    work: Workload
    pack: int

    @property
    def name(self) -> str:
        """As printed: `resnet8, stacked, bf16, pack 8`."""
        return f"{self.work.model}, {self.work.backend}, {self.work.precision}, pack {self.pack}"


def cases(
    works: Sequence[Workload], backends: Sequence[str], precisions: Sequence[str], packs: Sequence[int]
) -> list[Case]:
    """Return every combination; `auto` and the backend that it stands for are one."""
    resolved = dict.fromkeys(choose_backend(name, torch.device(works[0].device)) for name in backends)
    return [
        Case(replace(work, backend=backend, precision=precision), pack)
        for work, backend, precision, pack in product(works, resolved, precisions, packs)
    ]


def measure_throughput(record: Record, asked: Sequence[Case], rounds: int, say: Say) -> None:
    """Measure FedAvg's samples a second in each case; the record gets `rates`, an entry for each."""
    record["rates"] = []
    for case in asked:
        say(f"throughput: {case.name}")
        names = ("model", "augmentation", "backend", "precision")
        described = {name: getattr(case.work, name) for name in names} | {"pack": case.pack, "name": case.name}
        record["rates"].append(described | guarded(partial(rate, case, rounds)))


def rate(case: Case, rounds: int) -> Record:
    """Time rounds singly after those that prepare; raises UsageError if the device does not compute in the precision.

    Returns `rate`; `flops`, the counted operations a second; on a GPU `memory`, the most that its allocator held; on a
    CPU with one thread `cpu_rate`, by processor time.
    """
    device = case.work.device
    check_precision(device, case.work.precision)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    runs = simulations(case.work, ALGORITHM, case.pack)
    advance, samples = together(runs), case.pack * case.work.processed
    for _ in range(PREPARING[device]):
        advance()
    times = [timed(advance, synchroniser(device)) for _ in range(rounds)]
    figures = {"rate": figure([samples / spent.seconds for spent in times], "samples/s")}
    if device == "cuda":
        figures["memory"] = figure([torch.cuda.max_memory_allocated() / 1e6], "MB")
    elif torch.get_num_threads() == 1:
        figures["cpu_rate"] = figure([samples / spent.cpu_seconds for spent in times], "samples/s")
    alone = replace(case.work, clients=1, cohort=1)
    per_sample = operations(simulation(alone, ALGORITHM)) / alone.processed
    return figures | {"flops": figure([samples * per_sample / spent.seconds for spent in times], "FLOP/s")}


def check_precision(device: str, precision: str) -> None:
    """Raise UsageError if a device does not compute in a precision."""
    if device == "cpu" and precision == "tf32":
        raise UsageError("TF32 is a GPU's: a CPU has none")


def measure_profile(work: Workload, algorithm: str) -> Record:
    """List the operators of one round with the most time of their own, by torch's profiler.

    The profiler slows small operators more than large ones: shares tell where to look, not how fast the round is. Its
    log lines on stderr go away with KINETO_LOG_LEVEL=5 in the environment.

    Returns `seconds` of all operators, or of a GPU's kernels; `operators`, the first `MOST`: `name`, `calls`,
    `seconds`, `share` of all.
    """
    run = simulation(smaller(work), algorithm)
    one_round(run)
    cuda = work.device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]) as watched:
        one_round(run)
    attribute = "self_device_time_total" if cuda else "self_cpu_time_total"
    # Of a GPU only the kernels: the operators that launched them have the same time once more.
    entries = [entry for entry in watched.key_averages() if (entry.device_type.name != "CPU") == cuda]
    times = sorted(((getattr(entry, attribute), entry) for entry in entries), key=lambda pair: -pair[0])
    total = sum(time for time, _ in times)
    operators = [
        {"name": entry.key, "calls": entry.count, "seconds": time / 1e6, "share": time / total}
        for time, entry in times[:MOST]
    ]
    return {"seconds": figure([total / 1e6], "s"), "operators": operators}
