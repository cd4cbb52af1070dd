"""Settings of a training process: threads, reuse of freed memory, and GPU memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

# Parameters of glibc's mallopt, as <malloc.h> numbers them.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
# Bytes up to which blocks come from the heap: the second is the most that an older glibc allows.
SIZES = (2**30, 2**25)

# Parts of messages of errors that mean out of memory. That cuDNN finds no engine is none of them:
# fewer clients at once would not find one either.
SIGNS = ("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")


def prepare_process(threads: int) -> None:
    """Set the threads of torch's operators, and let the process keep freed memory."""
    torch.set_num_threads(threads)
    keep_freed_memory()


@lru_cache
def keep_freed_memory() -> bool:
    """Let the process keep freed memory for reuse; returns whether it will.

    The tensors of a training step are megabytes each. By default glibc maps a block of such a size
    to allocate it and unmaps it to free it, and the system clears its pages again for the next
    step. Kept blocks cost nothing, but the process stays as large as its largest step made it.
    Without glibc nothing is changed.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    maps_less = any(library.mallopt(MMAP_THRESHOLD, size) for size in SIZES)
    return maps_less and bool(library.mallopt(TRIM_THRESHOLD, -1))


@contextmanager
def float32_products(device: torch.device, precision: str) -> Iterator[None]:
    """Let a GPU use TF32 in float32 products within this context, if `precision` is `tf32`.

    For other precisions it may not. Torch has one such choice a process. Afterwards it is what it
    was before, so runs of different precisions can take turns. Nothing is changed for a CPU, which
    has no TF32.
    """
    if device.type != "cuda":
        yield
        return
    matrices = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    allowed = precision == "tf32"
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        torch.backends.cudnn.allow_tf32 = convolutions


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory; CUDA's libraries have no class for it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def give_back_gpu_memory() -> None:
    """Release unused GPU memory.

    Garbage is collected first, because a failed attempt may leave reference cycles.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


def release_gpu() -> None:
    """Release unused GPU memory, and reset the recorded peak."""
    give_back_gpu_memory()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
