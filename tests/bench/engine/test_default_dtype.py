"""A program may set torch's default type to float64: its runs are the same, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from conftest import identical, make, trained

from bench.engine.network import drawn_module
from bench.engine.simulation import Simulation

# Draws that a default configuration does without.
OPTIONS = {
    "feddkd": {"dkd_dropout": 0.5},
    "fedgen": {"label_embedding": True},
    "fedkf": {"variant": "code", "t1_unvisited": "w0"},
}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def both(algorithm: Any, **options: Any) -> list[Simulation]:
    runs = []
    for dtype in (torch.float32, torch.float64):
        with default_dtype(dtype):
            runs.append(trained(algorithm, precision="fp32", **options))
            assert torch.get_default_dtype() == dtype
    return runs


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_the_default_type_moves_nothing(name: str, backend: str) -> None:
    assert identical(*both(name, backend=backend))


@pytest.mark.parametrize("name", OPTIONS)
def test_the_default_type_moves_no_further_draw(name: str) -> None:
    assert identical(*both(make(name, **OPTIONS[name])))


@pytest.mark.parametrize("model", ["cnn_digits+bn", "mlp+head"])
def test_the_default_type_moves_no_model(model: str) -> None:
    assert identical(*both("fedavg", model=model, augmentation="flip_crop_rotate"))


def test_a_failing_model_leaves_the_default_type() -> None:
    def fail() -> torch.nn.Module:
        raise KeyError

    with default_dtype(torch.float64):
        with pytest.raises(KeyError):
            drawn_module(fail, torch.Generator())
        assert torch.get_default_dtype() == torch.float64
