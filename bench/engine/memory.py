"""A GPU's memory as this process takes it."""

from __future__ import annotations

import gc

import torch


def largest_peak() -> int:
    """The most bytes that the allocator held of the current device since `release`, unused gaps included."""
    return torch.cuda.max_memory_reserved()


def give_back() -> None:
    """Give back unused memory of a device; what is left of a failed attempt may refer to itself."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


def release() -> None:
    """Give back unused memory of a device, and forget the peak."""
    give_back()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
