"""What tests share: a tiny federation with clients of unequal sizes, one of them smaller than a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithms import ALGORITHMS, build
from algorithms.base import Algorithm
from bench.data import DatasetInfo
from bench.data.dataset import Dataset
from bench.data.splits import Split
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from search_spaces import Setting

INFO = DatasetInfo(
    name="toy",
    title="noise with a class-dependent mean",
    num_classes=3,
    input_shape=(1, 8, 8),
    train_size=60,
    test_size=30,
    scale=255,
    normalizations={"standard": ((0.5,), (0.25,)), "none": ((0.0,), (1.0,))},
    loader="",
    flip=True,
)
TINY = Setting(
    dataset="digits",
    model="mlp",
    num_clients=4,
    participation=0.75,
    rounds=4,
    local_epochs=2,
    batch_size=8,
    lr=0.1,
    validation_fraction=0.1,
    auxiliary_per_class=2,
    precision="fp64",
)


def toy_dataset() -> Dataset:
    """60 training and 30 test images of 8x8; the class shifts the mean, so that there is something to learn."""
    draw = np.random.RandomState(0)

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 3
        pixels = draw.randint(0, 120, (count, 1, 8, 8)) + 60 * labels[:, None, None, None]
        return pixels.astype(np.uint8), labels.astype(np.int64)

    return Dataset.of("toy", images(60), images(30))


def toy_split() -> Split:
    """Clients of 21, 13, 9 and 5 samples: the last is smaller than a batch. 6 auxiliary samples, 6 for validation."""
    order = np.random.RandomState(1).permutation(60).astype(np.int64)
    sizes = np.cumsum([21, 13, 9, 5])
    clients = tuple(np.split(order[:48], sizes[:-1]))
    # Two auxiliary samples of each class: those at the end, whose labels are known by construction.
    rest = order[48:]
    auxiliary = np.concatenate([np.flatnonzero(np.arange(60) % 3 == label)[:2] for label in range(3)])
    none = tuple(np.empty(0, np.int64) for _ in clients)
    return Split(clients=clients, local_tests=none, auxiliary=auxiliary, validation=rest[:6], hash="toy")


def simulate(
    algorithm: str | Algorithm,
    backend: str = "loop",
    seed: int = 0,
    folder: StateFolder | None = None,
    device: str = "cpu",
    **fields: object,
) -> Simulation:
    """A simulation on the toy federation; `fields` change the setting."""
    made = build(algorithm) if isinstance(algorithm, str) else algorithm
    setting = replace(TINY, **fields)  # type: ignore[arg-type]
    return Simulation(made, setting, seed, toy_dataset(), INFO, toy_split(), device, backend, folder)


def largest_gap(left: Simulation, right: Simulation) -> float:
    """The largest difference between two runs' global models."""
    return max(float((left.server.params[n] - right.server.params[n]).abs().max()) for n in left.server.params)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread: bit-equality holds at equal threads. No width of a terminal: what starts the tests may set one."""
    torch.set_num_threads(1)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(params=list(ALGORITHMS))
def name(request: pytest.FixtureRequest) -> str:
    """Every registered algorithm: being registered is being tested."""
    return str(request.param)
