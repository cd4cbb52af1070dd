"""How many clients a device's memory holds, measured on the first of them."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Protocol

import torch

# Of what is free: later rounds may have larger tables of teachers' answers, and the allocator has gaps.
SHARE_OF_FREE = 0.8
_SIGNS = ("out of memory", "ALLOC_FAILED")
# cuDNN has no room to work in, or no kernel for what it is asked.
_NO_ROOM = ("unable to find an engine", "Unable to find a valid cuDNN algorithm")
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


def is_out_of_memory(error: BaseException, perhaps: bool = False) -> bool:
    """Whether an error says that: CUDA's own have no class for it.

    Args:
        error: what was raised.
        perhaps: whether it is enough that it may say so, as cuDNN's do.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    signs = (*_SIGNS, *_NO_ROOM) if perhaps else _SIGNS
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


class Meter(Protocol):
    """What a device says of its memory, in bytes."""

    def begin(self) -> None:
        """Forget the peak so far."""

    def settle(self) -> None:
        """Give back what nothing uses any more, and forget the peak so far, but not what was taken at the beginning."""

    def peak(self) -> int:
        """The most that was taken since `begin`, beyond what was taken then."""

    def free(self) -> int:
        """What could be taken now."""


@dataclass
class CudaMeter:
    """Of one CUDA device, by its driver and by what the allocator holds of it.

    Not by what is in use: a captured program keeps all that its step ever used, and its gaps.
    """

    device: torch.device
    _before: int = 0

    def begin(self) -> None:
        """As `Meter` says."""
        self.settle()
        self._before = torch.cuda.memory_reserved(self.device)

    def settle(self) -> None:
        """As `Meter` says."""
        torch.cuda.empty_cache()
        forget_peak(self.device)

    def peak(self) -> int:
        """As `Meter` says."""
        return torch.cuda.max_memory_reserved(self.device) - self._before

    def free(self) -> int:
        """As `Meter` says."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]


def clients_that_fit(clients: int, meter: Meter) -> int | None:
    """How many fit, after so many have been trained since the meter began: at least these.

    None if they took nothing, and so tell nothing.
    """
    each = meter.peak() // clients
    if not each:  # it fitted into gaps, or had been captured before
        return None
    return max(clients, int(SHARE_OF_FREE * meter.free()) // each)
