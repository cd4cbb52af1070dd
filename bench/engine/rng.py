"""Named random streams: each purpose, round and client draws from a generator of its own.

No generator state is ever saved, and an algorithm's own draws never change the data order: two
algorithms with one seed see the same clients and the same batches.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def stream(seed: int, *keys: str | int) -> torch.Generator:
    """Make a CPU generator that depends on the run's seed and `keys` alone.

    These are the purpose, then round and client.
    """
    digest = hashlib.sha256(repr((int(seed), *keys)).encode()).digest()
    # Torch's Mersenne twister takes 32 bits of its seed.
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Seed the global CPU generators of torch, numpy and Python from `generator`, in a block.

    Afterwards they go on as if nothing had been drawn.
    """
    seed = int(torch.randint(2**32, (), generator=generator))
    numpy_state = np.random.get_state()
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


@contextmanager
def nothing_drawn() -> Iterator[None]:
    """Raise RuntimeError at the end of a block that drew from a global CPU generator."""
    before = global_states()
    yield
    if global_states() != before:
        raise RuntimeError(
            "the model or a hook drew from a global random generator, which it did not do in the "
            "trial pass before the run, so that the run could not be repeated: let it draw in "
            "every training pass, whatever the batch, or drop by nn.Dropout layers"
        )


def global_states() -> tuple[object, ...]:
    """Return the states of the global CPU generators, of torch, numpy and Python.

    They are equal if nothing was drawn.
    """
    torch_state = torch.random.get_rng_state().numpy().tobytes()
    numpy_state = np.random.get_state(legacy=False)["state"]
    return torch_state, numpy_state["key"].tobytes(), numpy_state["pos"], random.getstate()
