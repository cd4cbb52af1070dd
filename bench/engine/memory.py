"""What this process takes of a GPU's memory, and whether an error says that it did not suffice."""

from __future__ import annotations

import gc

import torch

_SIGNS = (
    *("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED"),
    # Each of cuDNN's kernels has been tried, and none found room to work in; it says so, too, where it has none.
    *("unable to find an engine", "Unable to find a valid cuDNN algorithm"),
)
_forgotten = 0  # bytes: the largest peak of this process before torch's own was reset


def forget_peak(device: torch.device) -> None:
    """Begin a peak of one's own; that of the process stays known."""
    global _forgotten
    _forgotten = largest_peak()
    torch.cuda.reset_peak_memory_stats(device)


def largest_peak() -> int:
    """The most bytes that the allocator held of the current device since `release`, captured programs' gaps with it."""
    return max(_forgotten, torch.cuda.max_memory_reserved())


def release() -> None:
    """Give back what nothing uses of a device, and forget all peaks."""
    global _forgotten
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    _forgotten = 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that: those of CUDA's libraries have no class for it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
