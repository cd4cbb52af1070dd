"""On a CUDA device: the same draws, and the same results within float tolerance.

`pytest -m gpu` runs these alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import apart, identical, largest_gap, nothing_falls_back, resumed, simulate, trained
from test_own_samples import trained as trained_on_own_samples

from algorithms.fedavg import FedAvg
from bench.engine.loop import Loop
from bench.engine.process import give_back_gpu_memory
from bench.engine.stacked.step_executors import cuda_graphs
from bench.engine.together import advance_together
from bench.errors import Slower
from bench.perf.workload import Workload, one_round, simulation
from bench.selftest.candidate import candidate
from bench.selftest.toy import EQUAL_SIZES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(
    ("model", "backend"), [("mlp+bn", "stacked"), ("cnn_digits", "stacked"), ("cnn_digits", "loop")]
)
def test_a_gpu_gives_what_a_cpu_gives(name: str, model: str, backend: str) -> None:
    cpu, gpu = trained(name, model=model), trained(name, backend, model=model, device="cuda")
    assert largest_gap(cpu, gpu) < 1e-9
    assert cpu.progress.traffic == gpu.progress.traffic


def test_group_norm_in_a_residual_network() -> None:
    cpu, gpu = (
        trained("fedgkd", "stacked", model="resnet8", device=device) for device in ("cpu", "cuda")
    )
    assert largest_gap(cpu, gpu) < 1e-9


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_precisions_stay_near_each_other(precision: str) -> None:
    options = {"model": "cnn_digits", "augmentation": "flip_crop", "device": "cuda"}
    exact, other = (
        trained("fedcad", "stacked", 1, precision=given, **options) for given in ("fp64", precision)
    )
    assert largest_gap(exact, other) < (1e-5 if precision == "fp32" else 0.05)


@pytest.mark.parametrize("model", ["cnn_digits+bn", "mlp+bn"])
def test_bfloat16_with_batch_norm(model: str) -> None:
    options = {"model": model, "device": "cuda", "local_epochs": 1}
    exact = trained("fedavg", "stacked", 1, precision="fp32", **options)
    with nothing_falls_back():
        other = trained("fedavg", "stacked", 1, precision="bf16", **options)
    assert 0 < largest_gap(exact, other) < 0.05


@pytest.mark.parametrize("model", ["mlp+bn", "cnn_digits+bn"])
@pytest.mark.parametrize("algorithm", ["local", "fedbn"])
def test_clients_models_side_by_side_score_as_on_a_cpu(algorithm: str, model: str) -> None:
    options = {"model": model, "finetune_steps": 2, "new_clients": 0.2}
    cpu = trained_on_own_samples(algorithm, **options)
    gpu = trained_on_own_samples(algorithm, "stacked", device="cuda", **options)
    for suffix, points in cpu.progress.curves.items():
        for (at, name, value), point in zip(points, gpu.progress.curves[suffix], strict=True):
            assert (at, name) == point[:2]
            assert value == pytest.approx(point[2], abs=1e-9)


def test_a_state_goes_on_on_a_gpu(name: str, tmp_path: Path) -> None:
    options = {"model": "mlp", "device": "cuda"}
    whole, again = (
        trained(name, "stacked", 4, **options),
        resumed(tmp_path, name, "stacked", **options),
    )
    assert identical(whole, again) or largest_gap(whole, again) < 1e-12


def test_captured_packs_equal_lone_runs(name: str) -> None:
    """Round 1 captures, the others replay."""
    options = {"sizes": EQUAL_SIZES, "local_epochs": 3, "lr_decay": 0.9}
    alone = [candidate(name).simulate("loop", seed=seed, **options) for seed in (0, 1)]
    pack = [
        candidate(name).simulate("stacked", seed=seed, device="cuda", **options) for seed in (0, 1)
    ]
    for run in alone:
        run.advance(3)
    with nothing_falls_back():
        failures = advance_together(pack, 3)
    assert not failures
    assert apart(pack) is None
    assert all(largest_gap(one, other) < 1e-9 for one, other in zip(alone, pack, strict=True))


def test_a_step_that_waits_costs_no_memory_after_its_capture_failed() -> None:
    """A later capture succeeds, and what both took can be freed."""
    capture = cuda_graphs()
    held: list[torch.Tensor] = []
    give_back_gpu_memory()
    before = torch.cuda.memory_reserved()

    def waits() -> None:
        held.append(torch.ones(2**22, device="cuda"))
        held[-1].sum().item()

    with pytest.raises(RuntimeError):
        capture(waits)
    held.clear()
    totals = [torch.zeros((), device="cuda")]
    replay = capture(lambda: totals[0].add_(1))
    replay()
    replay()
    assert totals.pop().item() == 2
    del replay
    give_back_gpu_memory()
    assert torch.cuda.memory_reserved() <= before


def test_runs_of_two_precisions_take_turns() -> None:
    """Each computes in its own, whichever was made last."""
    options = {"model": "cnn_digits", "device": "cuda", "local_epochs": 1}
    before = products()
    asked: dict[str, set[tuple[str, bool]]] = {"tf32": set(), "fp32": set()}

    @dataclass(frozen=True)
    class Listens(FedAvg):
        precision: str = "fp32"

        def upload(self, *given: Any) -> Any:
            asked[self.precision].add(products())
            return super().upload(*given)

    for backend in ("loop", "stacked"):
        runs = [
            simulate(Listens(precision), backend, precision=precision, **options)
            for precision in asked
        ]
        for run in (*runs, *runs):
            run.advance(1)
    assert asked == {"tf32": {("high", True)}, "fp32": {("highest", False)}}
    assert products() == before


def products() -> tuple[str, bool]:
    """How this process computes float32 products at present: matrices, and convolutions in TF32."""
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def test_short_of_memory_fewer_clients_train_at_once() -> None:
    """The process may take two fifths of what 64 clients of a CNN take: a quarter of them or fewer train at once."""
    work = Workload(
        "cnn_cifar", clients=64, cohort=64, samples=64, epochs=1, device="cuda", backend="stacked"
    )
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
    torch.cuda.set_per_process_memory_fraction(
        allowed / torch.cuda.get_device_properties(0).total_memory
    )
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
