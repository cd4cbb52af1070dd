"""How many clients a device's memory holds, measured on the first of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

SHARE_OF_FREE = (
    0.8  # of what is free: later rounds may have larger tables of teachers' answers, and the allocator has gaps
)


class Meter(Protocol):
    """What a device says of its memory, in bytes."""

    def begin(self) -> None:
        """Forget the peak so far."""

    def forget_peak(self) -> None:
        """Forget the peak so far, but not what was taken at the beginning."""

    def peak(self) -> int:
        """The most that was taken since `begin`, beyond what was taken then."""

    def free(self) -> int:
        """What could be taken now."""


@dataclass
class CudaMeter:
    """Of one CUDA device, by its allocator and its driver."""

    device: torch.device
    _before: int = 0

    def begin(self) -> None:
        """As `Meter` says."""
        self.forget_peak()
        self._before = torch.cuda.memory_allocated(self.device)

    def forget_peak(self) -> None:
        """As `Meter` says."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> int:
        """As `Meter` says."""
        return torch.cuda.max_memory_allocated(self.device) - self._before

    def free(self) -> int:
        """As `Meter` says: of the driver's, and what the allocator holds and does not use."""
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + unused


def clients_that_fit(clients: int, meter: Meter) -> int:
    """How many fit, after so many have been trained since the meter began; at least these."""
    each = max(1, meter.peak() // clients)
    return max(clients, int(SHARE_OF_FREE * meter.free()) // each)
