"""Which operators a round spends its time in, by torch's own profiler."""

from __future__ import annotations

from typing import Any

from torch.profiler import ProfilerActivity, profile

from bench.perf.training import smaller
from bench.perf.workload import Workload, one_round, simulation

MOST = 15  # operators that are shown


def measure_profile(work: Workload, algorithm: str) -> dict[str, Any]:
    """The operators of one round with the most time of their own.

    The profiler slows what it watches, on a processor small operators more than large ones: shares tell where to look,
    not how fast the round is. What it keeps lies between the round's tensors, so that a processor's freed memory is not
    all used again: operators that mostly move memory take up to twice as long as without it. Its log lines on stderr go
    away with KINETO_LOG_LEVEL=5 in the environment.

    Args:
        work: what is trained, with few clients of few samples.
        algorithm: registry name.

    Returns:
        `clock`, `CUDA` or `CPU`; `seconds`, of all operators, or of a GPU's kernels; `operators`, the first `MOST` by
        their own time: `name`, `calls`, `seconds`, `share` of all.
    """
    run = simulation(smaller(work), algorithm)
    one_round(run)
    cuda = work.device == "cuda"
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]
    with profile(activities=activities) as watched:
        one_round(run)
    attribute = "self_device_time_total" if cuda else "self_cpu_time_total"
    # Of a GPU the kernels: the operators that launched them have the same time once more.
    entries = [entry for entry in watched.key_averages() if (entry.device_type.name != "CPU") == cuda]
    spent = sorted(((getattr(entry, attribute), entry) for entry in entries), key=lambda pair: -pair[0])
    total = sum(own for own, _ in spent)
    operators = [
        {"name": entry.key, "calls": entry.count, "seconds": own / 1e6, "share": own / total}
        for own, entry in spent[:MOST]
    ]
    return {"clock": "CUDA" if cuda else "CPU", "seconds": total / 1e6, "operators": operators}
