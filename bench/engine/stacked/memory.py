"""How many clients a device's memory holds, measured on the first of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from bench.engine.memory import forget_peak

# Of what is free: later rounds may have larger tables of teachers' answers, and the allocator has gaps.
SHARE_OF_FREE = 0.8


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
