"""What this process takes of a GPU's memory."""

from __future__ import annotations

import gc

import torch

_forgotten = 0  # bytes: the largest peak of this process before torch's own was reset


def forget_peak(device: torch.device) -> None:
    """Begin a peak of one's own; that of the process stays known."""
    global _forgotten
    _forgotten = largest_peak()
    torch.cuda.reset_peak_memory_stats(device)


def largest_peak() -> int:
    """The most bytes that the allocator held of the current device since `release`, captured programs' gaps with it."""
    return max(_forgotten, torch.cuda.max_memory_reserved())


def give_back() -> None:
    """Give back what nothing uses of a device; what is left of an attempt may refer to itself."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


def release() -> None:
    """Give back what nothing uses of a device, and forget all peaks."""
    global _forgotten
    give_back()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
    _forgotten = 0
