"""The bytes that tensors on the pretended device hold, and a limit on them."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

TOTAL = 8 * 2**30


class Memory:
    """Counts each storage once, from its first tensor to the end of its last.

    Attributes:
        held: bytes now.
        peak: most since it was last forgotten.
        allowed: bytes; what would take more is out of memory.
    """

    def __init__(self) -> None:
        self.held, self.peak, self.allowed = 0, 0, TOTAL
        self._tensors: dict[int, int] = {}  # by address of their storage

    def hold(self, tensor: Tensor) -> None:
        """Count a tensor's storage for as long as the tensor lives.

        Raises:
            torch.OutOfMemoryError: there is no room for it.
        """
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size:
            return
        if address not in self._tensors:
            if self.held + size > self.allowed:
                raise torch.OutOfMemoryError(f"{size} bytes beside {self.held} held are more than {self.allowed}")
            self.held += size
            self.peak = max(self.peak, self.held)
        self._tensors[address] = self._tensors.get(address, 0) + 1
        weakref.finalize(tensor, self._release, address, size).atexit = False

    def _release(self, address: int, size: int) -> None:
        self._tensors[address] -= 1
        if not self._tensors[address]:
            del self._tensors[address]
            self.held -= size

    def forget_peak(self, device: object = None) -> None:
        """Begin a new peak."""
        self.peak = self.held

    def allow(self, share: float, device: object = None) -> None:
        """Allow a share of the total."""
        self.allowed = int(share * TOTAL)
