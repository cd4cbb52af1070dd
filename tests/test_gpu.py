"""On a CUDA device: the same draws, and the same results within float tolerance. `pytest -m gpu` runs these alone."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from conftest import largest_gap, simulate
from test_resume import identical

from bench.engine.loop import Loop
from bench.engine.pack import Pack
from bench.engine.state import StateFolder
from bench.errors import Slower
from bench.perf.workload import Workload, one_round, simulation
from bench.selftest.candidate import candidate
from bench.selftest.toy import EQUAL_SIZES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize(
    ("model", "backend"), [("mlp+bn", "stacked"), ("cnn_digits", "stacked"), ("cnn_digits", "loop")]
)
def test_a_gpu_gives_what_a_cpu_gives(name: str, model: str, backend: str) -> None:
    cpu = simulate(name, "loop", model=model)
    gpu = simulate(name, backend, model=model, device="cuda")
    cpu.advance(2)
    gpu.advance(2)
    assert largest_gap(cpu, gpu) < 1e-9
    assert cpu.progress.traffic == gpu.progress.traffic


def test_group_norm_in_a_residual_network() -> None:
    cpu, gpu = (simulate("fedgkd", "stacked", model="resnet8", device=device) for device in ("cpu", "cuda"))
    cpu.advance(2)
    gpu.advance(2)
    assert largest_gap(cpu, gpu) < 1e-9


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_precisions_stay_near_each_other(precision: str) -> None:
    exact = simulate("fedcad", "stacked", model="cnn_digits", augmentation="flip_crop", device="cuda")
    other = simulate(
        "fedcad", "stacked", model="cnn_digits", augmentation="flip_crop", device="cuda", precision=precision
    )
    exact.advance(1)
    other.advance(1)
    assert largest_gap(exact, other) < (1e-5 if precision == "fp32" else 0.05)


@pytest.mark.parametrize("model", ["cnn_digits+bn", "mlp+bn"])
def test_bfloat16_with_batch_norm(model: str) -> None:
    options = {"model": model, "device": "cuda", "local_epochs": 1}
    exact, other = (simulate("fedavg", "stacked", precision=precision, **options) for precision in ("fp32", "bf16"))
    exact.advance(1)
    with captured():
        other.advance(1)
    assert 0 < largest_gap(exact, other) < 0.05


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


@contextmanager
def captured() -> Iterator[None]:
    """Every step is captured: what falls back says so in a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Slower)
        yield


def test_captured_packs_equal_lone_runs(name: str) -> None:
    """Round 1 captures, the others replay."""
    options = {"sizes": EQUAL_SIZES, "local_epochs": 3, "lr_decay": 0.9}
    alone = [candidate(name).simulate("loop", seed=seed, **options) for seed in (0, 1)]
    pack = Pack([candidate(name).simulate("stacked", seed=seed, device="cuda", **options) for seed in (0, 1)])
    for run in alone:
        run.advance(3)
    with captured():
        pack.advance(3)
    assert not pack.failures
    assert not pack.apart
    assert all(largest_gap(one, other) < 1e-9 for one, other in zip(alone, pack.members, strict=True))


def test_short_of_memory_half_the_clients_go_on() -> None:
    """The process may take two fifths of what 64 clients of a CNN take: a quarter of them or fewer train at once."""
    work = Workload("cnn_cifar", clients=64, cohort=64, samples=64, epochs=1, device="cuda", backend="stacked")
    whole, capped = simulation(work, "fedavg"), simulation(work, "fedavg")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    one_round(whole)
    least = torch.cuda.max_memory_reserved() - before
    whole.trainer = Loop()
    gc.collect()
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + least * 2 // 5
    with at_most(allowed), pytest.warns(Slower, match="64 clients"):
        one_round(capped)
    assert largest_gap(whole, capped) < 1e-5


@contextmanager
def at_most(allowed: int) -> Iterator[None]:
    """The process may take so many bytes of the device."""
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(0).total_memory)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
