"""A GPU's memory: what this process takes of it, and how many clients it holds."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Protocol

import torch

# Of what is free: later rounds may have larger tables of teachers' answers, and the allocator has gaps.
SHARE_OF_FREE = 0.8

_earlier_peak = 0  # bytes: the largest peak of this process before torch's own was reset


def largest_peak() -> int:
    """The most bytes that the allocator held of the current device since `release`, unused gaps included."""
    return max(_earlier_peak, torch.cuda.max_memory_reserved())


def give_back() -> None:
    """Give back unused memory of a device; what is left of a failed attempt may refer to itself."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


def release() -> None:
    """Give back unused memory of a device, and forget all peaks."""
    global _earlier_peak
    give_back()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
    _earlier_peak = 0


class Meter(Protocol):
    """Measures a device's memory in bytes."""

    def begin(self) -> None:
        """Forget the peak so far."""

    def peak(self) -> int:
        """The most that was taken since `begin`, beyond what was taken then."""

    def free(self) -> int:
        """How much could be taken now."""


@dataclass
class CudaMeter:
    """Measures one CUDA device, by its driver and by what the allocator holds of it.

    Not by what is in use: a captured step keeps all memory that it ever used, gaps included.
    """

    device: torch.device
    _before: int = 0

    def begin(self) -> None:
        """As `Meter` says."""
        global _earlier_peak
        torch.cuda.empty_cache()
        _earlier_peak = largest_peak()
        torch.cuda.reset_peak_memory_stats(self.device)
        self._before = torch.cuda.memory_reserved(self.device)

    def peak(self) -> int:
        """As `Meter` says."""
        return torch.cuda.max_memory_reserved(self.device) - self._before

    def free(self) -> int:
        """As `Meter` says."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]


def clients_that_fit(clients: int, meter: Meter) -> int | None:
    """How many clients fit, after `clients` have been trained since the meter began: at least these.

    None if they took nothing, because they fitted into gaps or had been captured before.
    """
    each = meter.peak() // clients
    return max(clients, int(SHARE_OF_FREE * meter.free()) // each) if each else None
