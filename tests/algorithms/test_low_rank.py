"""Truncated matrices at the limits of their entries and of the energy that is kept."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import simulate

from algorithms.low_rank import truncated


@pytest.mark.parametrize("scale", [1e-36, 1e-24, 1.0, 1e20, 1e36])
@pytest.mark.parametrize("energy", [0.2, 0.5])
def test_the_size_of_entries_changes_no_rank(scale: float, energy: float) -> None:
    matrix = torch.randn(30, 20, generator=torch.Generator().manual_seed(0))
    expected, count = truncated({"w": matrix}, energy)
    left, floats = truncated({"w": scale * matrix}, energy)
    assert 0 < int(floats) == int(count)
    torch.testing.assert_close(left["w"] / scale, expected["w"], rtol=1e-3, atol=1e-3)


def test_all_energy_keeps_no_rounding() -> None:
    generator = torch.Generator().manual_seed(1)
    factors = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    matrix = factors @ torch.randn(2, 30, generator=generator, dtype=torch.float64)
    left, floats = truncated({"w": matrix}, 1.0)
    assert int(floats) <= 3 * (20 + 30 + 1)
    torch.testing.assert_close(left["w"], matrix)


def test_nothing_is_sent_of_zeros_and_all_of_vectors() -> None:
    model = {"w": torch.zeros(3, 4), "b": torch.ones(5)}
    left, floats = truncated(model, 0.9)
    assert int(floats) == 5
    assert all(torch.equal(left[name], value) for name, value in model.items())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_stays_for_the_engine_to_find(value: float) -> None:
    matrix = torch.ones(3, 4)
    matrix[1, 2] = value
    left, floats = truncated({"w": matrix}, 0.5)
    assert int(floats) == 12
    torch.testing.assert_close(left["w"], matrix, equal_nan=True)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_fedkd_diverges_and_does_not_fail(backend: str) -> None:
    run = simulate("fedkd", backend, lr=1e100)
    run.advance(3)
    assert run.progress.diverged
    assert "not finite" in run.progress.complaint
