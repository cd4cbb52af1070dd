"""What a process that trains settles for itself: how many threads, and that it keeps the memory it has freed."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache

import torch

# Parameters of glibc's mallopt, as <malloc.h> numbers them.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
SIZES = (2**30, 2**25)  # bytes up to which blocks come from the heap: the second is all that an older glibc allows
SETTINGS = ("mmap_threshold", "trim_threshold", "top_pad")  # glibc's names of what decides about it


def prepare_process(threads: int) -> None:
    """Threads of torch's operators, and a heap that stays."""
    torch.set_num_threads(threads)
    keep_freed_memory()


@lru_cache
def keep_freed_memory() -> bool:
    """Let the process keep what it frees, to use it again; whether it will. Once is enough.

    The tensors of a training step are megabytes each. glibc maps a block of such a size when it is asked for, unmaps it
    when it is freed, and the system clears its pages again for the next step. Kept, they cost nothing. The process
    stays as large as its largest step made it, and larger where small things that live on lie between blocks of ever
    new sizes. Elsewhere than under glibc, and where the environment has settings of its own for this, nothing is
    changed.
    """
    library = _glibc()
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    settled = any(f"malloc.{name}" in tunables or f"MALLOC_{name.upper()}_" in os.environ for name in SETTINGS)
    if library is None or settled:
        return False
    return any(library.mallopt(MMAP_THRESHOLD, size) for size in SIZES) and bool(library.mallopt(TRIM_THRESHOLD, -1))


def give_back_memory() -> None:
    """Return to the system what the process keeps and does not use."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@lru_cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
