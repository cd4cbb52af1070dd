"""Settings of a process that trains: threads, a heap that it keeps, and a GPU's memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import lru_cache

import torch

# Parameters of glibc's mallopt, as <malloc.h> numbers them.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
SIZES = (2**30, 2**25)  # bytes up to which blocks come from the heap: the second is all that an older glibc allows

SIGNS = (  # in errors that say that memory did not suffice
    *("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED"),
    # Each of cuDNN's kernels has been tried, and none found room to work in; it says so, too, where it has none.
    *("unable to find an engine", "Unable to find a valid cuDNN algorithm"),
)


def prepare_process(threads: int) -> None:
    """Set the threads of torch's operators, and keep the heap."""
    torch.set_num_threads(threads)
    keep_freed_memory()


@lru_cache
def keep_freed_memory() -> bool:
    """Let the process keep what it frees, to use it again; returns whether it will.

    The tensors of a training step are megabytes each. glibc maps a block of such a size when it is asked for, unmaps it
    when it is freed, and the system clears its pages again for the next step. Kept, they cost nothing. The process
    stays as large as its largest step made it. Without glibc nothing is changed.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return any(library.mallopt(MMAP_THRESHOLD, size) for size in SIZES) and bool(library.mallopt(TRIM_THRESHOLD, -1))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice: those of CUDA's libraries have no class for it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def give_back_gpu_memory() -> None:
    """Give back unused memory of a device; what is left of a failed attempt may refer to itself."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


def release_gpu() -> None:
    """Give back unused memory of a device, and forget the peak."""
    give_back_gpu_memory()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
