"""A federation small enough to run in milliseconds: clients of unequal sizes.

One of them is smaller than a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from algorithms.base import Algorithm, Params
from bench.data import DatasetInfo
from bench.data.dataset import Dataset
from bench.data.splits import Split
from bench.engine.pytree import pairs
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from search_spaces import Setting

SIZES = (21, 13, 9, 5)
EQUAL_SIZES = (12, 12, 12, 12)
TEST_SAMPLES = 30
INFO = DatasetInfo(
    name="toy",
    title="noise with a class-dependent mean",
    num_classes=3,
    input_shape=(1, 8, 8),
    train_size=66,
    test_size=TEST_SAMPLES,
    scale=255,
    normalizations={"standard": ((0.5,), (0.25,)), "none": ((0.0,), (1.0,))},
    loader="",
    flip=True,
)
TINY = Setting(
    dataset="digits",
    model="mlp",
    num_clients=len(SIZES),
    participation=0.75,
    rounds=4,
    local_epochs=2,
    batch_size=8,
    lr=0.1,
    validation_fraction=0.1,
    auxiliary_per_class=2,
    precision="fp64",
)
# Values that shorten server work, which would otherwise take longer than the rest of a toy run.
SHORT: Mapping[str, Mapping[str, Any]] = {
    "fedgen": {"generator_steps": 5},
    "fedtgp": {"server_epochs": 5},
    "feddf": {"server_lr": 0.003, "max_steps": 12, "check_every": 2, "patience": 4},
}
FORMS = {"projection_head": "+head", "batchnorm": "+bn"}
Models = dict[tuple[str, int | None], Params]


def toy_dataset() -> Dataset:
    """Make 66 training and 30 test images of 8x8.

    The class shifts the mean, so that there is something to learn.
    """
    draw = np.random.RandomState(0)

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 3
        noise = draw.randint(0, 120, (count, 1, 8, 8))
        pixels = noise + 60 * labels[:, None, None, None]
        return pixels.astype(np.uint8), labels.astype(np.int64)

    return Dataset.of("toy", images(66), images(TEST_SAMPLES))


def toy_split(sizes: Sequence[int] = SIZES) -> Split:
    """Split into clients of these many samples, 48 in all.

    There are 6 auxiliary samples, and 12 for validation. The last client has no sample of one
    class.
    """
    order = np.random.RandomState(21).permutation(60).astype(np.int64)
    ends = np.cumsum(sizes)[:-1]
    clients = tuple(np.sort(part) for part in np.split(order[:48], ends))
    auxiliary = np.array([60, 63, 61, 64, 62, 65], np.int64)  # two of each class
    none = tuple(np.empty(0, np.int64) for _ in clients)
    return Split(clients, none, none, auxiliary, validation=order[48:], hash="toy")


def supplied(model: str, needs: frozenset[str]) -> str:
    """Return the model in the form that these needs require."""
    missing = [form for need, form in FORMS.items() if need in needs and form not in model]
    return model + "".join(missing)


def simulate(
    algorithm: Algorithm,
    backend: str = "loop",
    seed: int = 0,
    folder: StateFolder | None = None,
    device: str = "cpu",
    sizes: Sequence[int] = SIZES,
    **fields: object,
) -> Simulation:
    """Start a simulation on the toy federation.

    Args:
        algorithm: the algorithm; the model must be in the form that it needs.
        backend: `loop`, `stacked`, or `auto`.
        seed: of all random streams.
        folder: of the state, if it is saved.
        device: of training.
        sizes: samples of each client.
        **fields: fields of the setting that replace those of `TINY`.
    """
    setting = replace(TINY, **{"num_clients": len(sizes), **fields})  # type: ignore[arg-type]
    return Simulation(
        algorithm, setting, seed, toy_dataset(), INFO, toy_split(sizes), device, backend, folder
    )


def models_of(simulation: Simulation) -> Models:
    """Return the evaluated models of a run: (suffix of the row, client or None) -> full model.

    A client's model is a personal one.
    """
    models: Models = {}
    for suffix, row in simulation.algorithm.evaluated(simulation.server).items():
        if set(row) == set(simulation.net.names):
            models[suffix, None] = row
        else:
            clients = range(len(simulation.federation.clients))
            models |= {(suffix, client): simulation.local_model(row, client) for client in clients}
    return models


def largest_gap(left: Simulation, right: Simulation) -> float:
    """Return the largest difference between two runs' models, evaluated and the server's own."""
    return max(gap(models_of(left), models_of(right)), gap(left.server.params, right.server.params))


def distance(left: Simulation, right: Simulation) -> float:
    """Return the distance of two runs' models, evaluated and the server's own; inf for NaN."""
    models = [*models_of(left).values(), left.server.params]
    others = [*models_of(right).values(), right.server.params]
    squares = [
        (model.double() - other.double()).square().sum() for model, other in pairs(models, others)
    ]
    total = float(torch.stack(squares).sum())
    return math.inf if math.isnan(total) else math.sqrt(total)


def gap(got: Any, expected: Any) -> float:
    """Return the largest absolute difference of two trees of tensors.

    It is inf for NaN and for different names or shapes.
    """
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(expected):
            return math.inf
        return max((gap(got[key], expected[key]) for key in expected), default=0.0)
    if isinstance(expected, list | tuple):
        return gap(dict(enumerate(got)), dict(enumerate(expected)))
    if not isinstance(got, torch.Tensor) or got.shape != expected.shape:
        return math.inf
    difference = got.detach().double().cpu() - expected.detach().double().cpu()
    largest = float(difference.abs().max())
    return math.inf if math.isnan(largest) else largest


def items(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) of every leaf, whether or not it is a tensor."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from items(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from items(value, f"{path}[{index}]")
    else:
        yield path or "the root", tree


def same(left: Any, right: Any) -> bool:
    """Return whether two trees have the same paths and, bit for bit, the same values.

    NaN counts as equal to itself.
    """
    leaves = dict(items(left))
    others = dict(items(right))
    if leaves.keys() != others.keys():
        return False
    return all(_same_leaf(leaf, others[path]) for path, leaf in leaves.items())


def _same_leaf(left: Any, right: Any) -> bool:
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        return bool(left == right) or bool(left != left and right != right)
    if left.shape != right.shape:
        return False
    both_nan = (left != left) & (right != right)  # integers have no isnan
    return bool(((left == right) | both_nan).all())


def identical(left: Simulation, right: Simulation) -> bool:
    """Return whether two runs are equal, bit for bit.

    Compared are models, further state, memories, counters and curves.
    """
    if left.round != right.round or left.progress.traffic != right.progress.traffic:
        return False
    if not same(left.progress.curves, right.progress.curves):
        return False
    state = {"params": left.server.params, "extra": left.server.extra, "memories": left.memories}
    other = {"params": right.server.params, "extra": right.server.extra, "memories": right.memories}
    return same(state, other)
