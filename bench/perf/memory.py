"""The most memory that a piece of work held at once: the GPU's where it is used, else the process's."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

from bench.perf.measure import Figure, figure

_PROCESS = Path("/proc/self")


def begin(device: str) -> bool:
    """Start to watch; False where only the peak since the process began can be told."""
    gc.collect()  # what was measured before refers to itself
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return True
    try:
        (_PROCESS / "clear_refs").write_text("5")  # sets Linux's high-water mark to what is held now
    except OSError:
        return False
    return True


def peak(device: str) -> Figure:
    """The most since `begin`, in MB.

    Of a GPU it is what tensors held; of the CPU the whole process, with its libraries and what the allocator keeps of
    earlier work.
    """
    if device == "cuda":
        import torch

        return figure([torch.cuda.max_memory_allocated() / 1e6], "MB")
    return figure([(_high_water() or _largest()) / 1e6], "MB")


def _high_water() -> int | None:
    """Bytes; None where there is no such file or line."""
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def _largest() -> int:
    """Bytes, since the process began."""
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
