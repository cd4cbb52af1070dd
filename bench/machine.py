"""The machine: its GPUs and cores, and what a trial takes of them.

Imports neither torch nor ray.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from bench.errors import UsageError

if TYPE_CHECKING:
    from resource import struct_rusage  # not on every system

# Runs of a trial on a GPU; if memory does not hold all their clients, they train in parts.
AUTO_PACK = 32
UNPACKED_SHARE = 0.25  # share of a GPU for a trial that does not fill it


def count_gpus() -> int:
    """Count the CUDA devices that this process may use.

    Asks the driver: torch is not needed for it.
    """
    count = ctypes.c_int(0)
    with suppress(OSError):  # no driver
        cuda = ctypes.CDLL("libcuda.so.1")
        if cuda.cuInit(0) == 0:
            cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def resolve_pack(pack: int | str, device: str, backend: str, runs: int) -> int:
    """Return the most runs of a trial, as given or by `auto`.

    With several GPUs, `auto` divides the `runs` among them, so that no GPU waits for the others.
    """
    if isinstance(pack, int):
        return pack
    if device != "cuda" or not packs_train_together(device, backend):
        return 1
    gpus = count_gpus()
    if gpus < 2:
        return AUTO_PACK
    share = math.ceil(runs / gpus)
    return max(1, min(AUTO_PACK, share))


def packs_train_together(device: str, backend: str) -> bool:
    """Return whether the runs of a trial share a program, not only a process."""
    return backend == "stacked" or (backend == "auto" and device == "cuda")


def resolve_device(device: str, gpus_per_trial: float | None = None, remote: bool = False) -> str:
    """Return the device to train on, `cpu` or `cuda`.

    Args:
        device: `auto`, `cpu` or `cuda`.
        gpus_per_trial: share of a GPU that is asked for; None if none is.
        remote: trials run on a cluster elsewhere, whose GPUs cannot be counted here.

    Raises:
        UsageError: a GPU is requested and there is none, or a share of a GPU is requested for the
            CPU.
    """
    needs_gpu = device == "cuda" or bool(gpus_per_trial)
    has_gpu = remote or count_gpus() > 0
    if needs_gpu and not has_gpu:
        option = "--device cuda" if device == "cuda" else f"--gpus-per-trial {gpus_per_trial:g}"
        raise UsageError(f"{option}: no CUDA GPU is visible here; leave it out to run on the CPU")
    if device == "cpu" and gpus_per_trial:
        raise UsageError(
            f"--device cpu and --gpus-per-trial {gpus_per_trial:g} exclude each other: give one"
        )
    if device == "cuda" and gpus_per_trial == 0:
        raise UsageError("--device cuda needs --gpus-per-trial above 0, got 0")
    if needs_gpu or (device == "auto" and has_gpu and not remote and gpus_per_trial is None):
        return "cuda"
    return "cpu"


def largest_resident(used: struct_rusage) -> int:
    """Return a process's largest resident size in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024  # operating systems count it differently
    return unit * used.ru_maxrss


def cpu_count() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
