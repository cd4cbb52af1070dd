"""Named random streams: each purpose, round and client draws from a generator of its own.

No generator state is ever saved, and an algorithm's own draws never change the data order: two algorithms with one seed
see the same clients and the same batches.
"""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, *keys: str | int) -> torch.Generator:
    """Make a CPU generator that depends on the run's seed and `keys` alone: purpose, then round and client."""
    digest = hashlib.sha256(repr((int(seed), *keys)).encode()).digest()
    # Torch's Mersenne twister takes 32 bits of its seed.
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))
