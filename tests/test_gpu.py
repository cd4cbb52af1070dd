"""On a CUDA device: the same draws, and the same results within float tolerance. `pytest -m gpu` runs these alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import largest_gap, simulate
from test_resume import identical

from bench.engine.simulation import choose_backend
from bench.engine.state import StateFolder

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("model", ["mlp+bn", "cnn_digits"])
def test_a_gpu_gives_what_a_cpu_gives(name: str, model: str, backend: str) -> None:
    cpu = simulate(name, "loop", model=model)
    gpu = simulate(name, backend, model=model, device="cuda")
    cpu.advance(2)
    gpu.advance(2)
    assert largest_gap(cpu, gpu) < 1e-9
    assert cpu.progress.traffic == gpu.progress.traffic


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_precisions_stay_near_each_other(precision: str) -> None:
    exact = simulate("fedcad", "stacked", model="cnn_digits", augmentation="flip_crop", device="cuda")
    other = simulate(
        "fedcad", "stacked", model="cnn_digits", augmentation="flip_crop", device="cuda", precision=precision
    )
    exact.advance(1)
    other.advance(1)
    assert largest_gap(exact, other) < (1e-5 if precision == "fp32" else 0.05)


def test_stacking_is_the_choice_on_a_gpu() -> None:
    assert choose_backend("auto", torch.device("cuda")) == "stacked"


def test_a_state_goes_on_on_a_gpu(name: str, tmp_path: Path) -> None:
    whole = simulate(name, "stacked", model="mlp", device="cuda")
    whole.advance(4)
    first = simulate(name, "stacked", model="mlp", device="cuda", folder=StateFolder(tmp_path))
    first.advance(2)
    first.save()
    second = simulate(name, "stacked", model="mlp", device="cuda", folder=StateFolder(tmp_path))
    assert second.load()
    second.advance(2)
    assert identical(whole, second) or largest_gap(whole, second) < 1e-12
