"""Named random streams: each purpose, round and client draws from a generator of its own.

No generator state is ever saved, and an algorithm's own draws never move the data order: two algorithms with one seed
see the same clients and the same batches.
"""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, *keys: str | int) -> torch.Generator:
    """A CPU generator that depends on nothing but `seed` and `keys`.

    Args:
        seed: the run's seed.
        keys: purpose, then round and client where they matter.

    Returns:
        a fresh generator: the same arguments give the same numbers, on every device's behalf.
    """
    digest = hashlib.sha256(repr((int(seed), *keys)).encode()).digest()
    # Torch's Mersenne twister takes 32 bits of its seed.
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))
