"""Made-up samples with a data set's shapes and classes, which cost what real ones cost and need no file.

Images of a class share a pattern, so that a model learns them: a run on mere noise could diverge before it is timed.
"""

from __future__ import annotations

import numpy as np

from bench.data.dataset import Dataset
from bench.data.splits import Split
from bench.data.table import DatasetInfo

TOKENS = 1000  # of the made-up texts' vocabulary


def made_up(
    constants: DatasetInfo, clients: int, samples: int, auxiliary: int, validation: int, tests: int
) -> tuple[Dataset, Split]:
    """A data set like `constants` says: `samples` of each client, `auxiliary` ones of the server, others held out."""
    owned = clients * samples
    dataset = Dataset.of(
        constants.name, made_up_samples(owned + auxiliary + validation, constants), made_up_samples(tests, constants)
    )
    order = np.arange(owned + auxiliary + validation)
    dealt, server, held_out = np.split(order, [owned, owned + auxiliary])
    empty = tuple(order[:0] for _ in range(clients))
    return dataset, Split(tuple(np.split(dealt, clients)), empty, server, held_out, "equal")


def made_up_samples(count: int, constants: DatasetInfo) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels; the labels in turn."""
    draw, labels = np.random.RandomState(0), np.arange(count, dtype=np.int64) % constants.num_classes
    if constants.kind == "texts":  # as long as they may be: shorter ones cost less
        return draw.randint(1, TOKENS, (count, *constants.input_shape)).astype(np.int32), labels
    patterns = draw.randint(0, constants.scale // 2 + 1, (constants.num_classes, *constants.input_shape), np.uint8)
    noise = draw.randint(0, constants.scale // 2 + 1, (count, *constants.input_shape), np.uint8)
    return patterns[labels] + noise, labels
