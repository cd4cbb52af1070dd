"""The most memory that a piece of work held at once: the GPU's where it is used, else the process's."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

from bench.execution import largest_resident
from bench.perf.measure import Figure, figure

_PROCESS = Path("/proc/self")


def begin(device: str) -> bool:
    """Start to watch; False where only the peak since the process began can be told."""
    gc.collect()  # what was measured before may refer to itself
    from bench.engine.process import give_back_memory, release_gpu

    if device == "cuda":
        release_gpu()
        return True
    give_back_memory()  # what earlier work left would hide what this one takes
    try:
        (_PROCESS / "clear_refs").write_text("5")  # sets Linux's high-water mark to what is held now
    except OSError:
        return False
    return True


def peak(device: str) -> Figure:
    """The most since `begin`, in MB.

    Of a GPU it is what its allocator held, as in the rows of a sweep; of the CPU the whole process, with its libraries.
    """
    if device == "cuda":
        from bench.engine.process import largest_gpu_peak

        return figure([largest_gpu_peak() / 1e6], "MB")
    largest = _high_water() or largest_resident(resource.getrusage(resource.RUSAGE_SELF))
    return figure([largest / 1e6], "MB")


def _high_water() -> int | None:
    """Bytes; None where there is no such file or line."""
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
