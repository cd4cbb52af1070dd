"""Vectors: FedGKD's toy task in the plane, and the model for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import largest_gap

from algorithms import build
from bench import data
from bench.data.splits import split
from bench.engine.simulation import Simulation
from search_spaces import SETTINGS

SETTING = SETTINGS["fedkd", "toy2d"]


def run(algorithm: str, backend: str = "loop", **changes: object) -> Simulation:
    dataset, setting = data.load("toy2d"), replace(SETTING, **changes)
    info, shares = data.info("toy2d"), split(setting, dataset.train_y, 0)
    return Simulation(build(algorithm), setting, 0, dataset, info, shares, backend=backend)


def test_points_fill_the_square_and_classes_are_its_quadrants():
    found = data.load("toy2d")
    assert (found.train_x.dtype, found.train_x.shape, found.test_x.shape) == (
        np.float32,
        (1000, 2),
        (1000, 2),
    )
    for x, y in ((found.train_x, found.train_y), (found.test_x, found.test_y)):
        assert -4 <= x.min() < -3.9
        assert 3.9 < x.max() <= 4
        corners = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
        np.testing.assert_array_equal(np.sign(x), corners[y])
    assert not np.array_equal(found.train_x, found.test_x)
    assert not found.train_x.flags.writeable


@pytest.mark.parametrize("algorithm", ["fedgkd", "fedgen"])
def test_stacked_equals_loop(algorithm):
    loop, stacked = (run(algorithm, backend, precision="fp64") for backend in ("loop", "stacked"))
    for simulation in (loop, stacked):
        simulation.advance(2)
    assert largest_gap(loop, stacked) < 1e-10


def test_it_is_learnt():
    simulation = run("fedavg", alpha=10.0, rounds=5)
    simulation.advance(5)
    accuracy = [value for _, name, value in simulation.progress.curves[""] if name == "accuracy"]
    assert accuracy[-1] > 0.9
