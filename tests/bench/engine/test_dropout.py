"""Dropout by key: the masks are fair, independent, and the same in every backend, on every device, after a resume."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import identical, largest_gap, resumed, trained
from test_backends import naive_fedavg
from torch import Tensor, nn

from bench.engine.dropout import Dropout, Masks, mix, replace_dropout, step_keys
from bench.models.registry import MODELS, ModelInfo

CPU = torch.device("cpu")
KINDS = [
    (nn.Dropout, (6, 5)),
    (nn.Dropout1d, (6, 5, 7)),
    (nn.Dropout2d, (6, 5, 3, 3)),
    (nn.Dropout3d, (6, 5, 2, 2, 2)),
]


def keys(count: int, seed: int = 0) -> Tensor:
    return step_keys(torch.Generator().manual_seed(seed), count)


def drawn(key: Tensor, shape: tuple[int, ...], share: float, times: int = 1) -> list[Tensor]:
    """The first masks of a step."""
    masks = Masks()
    with masks.under(key):
        return [masks.kept(shape, share, CPU) for _ in range(times)]


# The hash


def test_the_hash_is_lowbias32() -> None:
    """Beside unsigned 32-bit arithmetic, which wraps by itself."""
    x = np.concatenate([np.arange(1000), 2**32 - 1 - np.arange(1000)]).astype(np.uint32)
    y = x.copy()
    y ^= y >> np.uint32(16)
    y *= np.uint32(0x7FEB352D)
    y ^= y >> np.uint32(15)
    y *= np.uint32(0x846CA68B)
    y ^= y >> np.uint32(16)
    given = torch.from_numpy(x.astype(np.int64))
    assert torch.equal(mix(given), torch.from_numpy(y.astype(np.int64)))
    assert torch.equal(given, torch.from_numpy(x.astype(np.int64))), "the argument stays as it is"
    assert [mix(int(number)) for number in x[:10]] == y[:10].tolist()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_share_kept_is_what_was_asked_for(p: float) -> None:
    """In all, element by element over keys, and key by key, within 4 standard errors of a fair coin."""
    kept = torch.stack([drawn(key, (4096,), 1 - p)[0] for key in keys(500)]).double()
    scale = math.sqrt(p * (1 - p))
    assert abs(float(kept.mean()) - (1 - p)) < 4 * scale / math.sqrt(kept.numel())
    for axis, count in ((0, 500), (1, 4096)):
        scores = (kept.mean(axis) - (1 - p)) / scale * math.sqrt(count)
        assert abs(float(scores.var()) - 1) < 4 * math.sqrt(2 / len(scores))


def test_masks_are_independent() -> None:
    """Across applications in a step, steps, and neighbouring elements: correlations within 4 standard errors."""
    p = 0.1
    masks = torch.stack(
        [torch.stack(drawn(key, (4096,), 1 - p, times=3)) for key in keys(200)]
    ).double()
    values = (masks - (1 - p)) / math.sqrt(p * (1 - p))  # (steps, applications, elements)
    pairs = {
        "applications": values[:, :1] * values[:, 1:],
        "stacked.steps": values[1:] * values[:-1],
        **{
            f"elements {lag} apart": values[..., lag:] * values[..., :-lag]
            for lag in (1, 2, 64, 1024)
        },
    }
    for what, products in pairs.items():
        assert abs(float(products.mean())) < 4 / math.sqrt(products.numel()), what
    matrix = torch.corrcoef(values[:, 0])
    assert abs(float(matrix.fill_diagonal_(0).std()) * 64 - 1) < 0.05, "any two steps"


def test_every_application_of_a_step_has_its_own_mask_and_a_step_repeats_them() -> None:
    masks, key = Masks(), keys(1)[0]
    with masks.under(key):
        first = [masks.kept((64,), 0.5, CPU) for _ in range(3)]
        with masks.under(keys(1, seed=1)[0]):
            other = masks.kept((64,), 0.5, CPU)
        fourth = masks.kept((64,), 0.5, CPU)
    again = drawn(key, (64,), 0.5, times=4)
    assert all(torch.equal(a, b) for a, b in zip([*first, fourth], again, strict=True))
    assert len({tuple(mask.tolist()) for mask in (*again, other)}) == 5


# The layer


@pytest.mark.parametrize(("kind", "shape"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_values_and_slopes_are_x_times_mask_over_share(
    kind: type[nn.Module], shape: tuple[int, ...], p: float
) -> None:
    module = nn.Sequential(kind(p))
    masks = replace_dropout(module)
    assert masks is not None
    key = keys(1)[0]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    with masks.under(key):
        found = module(x)
    wide = shape if kind is nn.Dropout else (*shape[:2], *[1] * (len(shape) - 2))
    mask = drawn(key, wide, 1 - p)[0].double()
    expected = x * mask / (1 - p) if p < 1 else x * 0
    assert torch.equal(found, expected)
    assert set(mask.unique().tolist()) == {0.0: {1.0}, 0.3: {0.0, 1.0}, 1.0: {0.0}}[p]
    slopes = [torch.autograd.grad((y * y).sum(), x)[0] for y in (found, expected)]
    assert torch.equal(*slopes)


def test_without_a_key_or_in_evaluation_nothing_is_dropped() -> None:
    module = nn.Sequential(nn.Dropout(0.5))
    masks = replace_dropout(module)
    assert masks is not None
    x = torch.randn(8, 8)
    assert torch.equal(module.train()(x), x)
    with masks.under(keys(1)[0]):
        assert not torch.equal(module(x), x)
        assert torch.equal(module.eval()(x), x)
        with masks.under(None):
            assert torch.equal(module.train()(x), x)


def test_replacing_finds_every_layer_of_its_kinds() -> None:
    module = nn.Sequential(
        nn.Dropout(0.1), nn.Sequential(nn.Linear(2, 2), nn.Dropout2d(0.2)), nn.ReLU()
    ).eval()
    assert replace_dropout(module) is not None
    kinds = [type(part) for part in module.modules()]
    assert kinds.count(Dropout) == 2
    assert not {nn.Dropout, nn.Dropout2d} & set(kinds)
    assert [part.p for part in module.modules() if isinstance(part, Dropout)] == [0.1, 0.2]
    assert not any(part.training for part in module.modules())
    assert replace_dropout(nn.Sequential(nn.Linear(2, 2))) is None
    assert replace_dropout(nn.Sequential(nn.AlphaDropout(0.1))) is None


# Runs


def Dropping(channels: int, batchnorm: bool) -> nn.Module:
    """A body for the toy data with both kinds of dropout."""
    norm = [nn.BatchNorm1d(16)] if batchnorm else []
    convolution = [
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.3),
        nn.Flatten(),
    ]
    return nn.Sequential(*convolution, nn.Linear(64, 16), *norm, nn.ReLU(), nn.Dropout(0.5))


@pytest.fixture
def dropping(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a small registered model with dropout."""
    info = ModelInfo(
        "test_dropout:Dropping", "", 16, lambda channels: 0, size=8, batchnorm_form=True
    )
    monkeypatch.setitem(MODELS, "dropping", info)
    return "dropping"


@pytest.mark.parametrize("name", ["fedgkd", "moon", "feddkd", "feddf"])
@pytest.mark.parametrize("form", ["", "+bn"])
def test_stacked_equals_loop_under_dropout(name: str, dropping: str, form: str) -> None:
    """Clients are of unequal sizes and one is smaller than a batch; with BatchNorm both backends pad."""
    loop, stacked = (
        trained(name, backend, model=dropping + form) for backend in ("loop", "stacked")
    )
    assert largest_gap(loop, stacked) < 1e-10


@pytest.mark.parametrize("name", ["fedgkd", "feddkd"])
@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_resumed_run_is_bit_equal(name: str, dropping: str, backend: str, tmp_path: Path) -> None:
    options = {"precision": "fp32", "model": dropping}
    assert identical(
        trained(name, backend, 4, **options), resumed(tmp_path, name, backend, **options)
    )


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_naive_run_gives_the_same(dropping: str, backend: str) -> None:
    simulation = trained("fedavg", backend, model=dropping)
    expected = naive_fedavg(rounds=2, dropout=True, model=dropping)
    assert (
        max(float((simulation.server.params[n] - expected[n]).abs().max()) for n in expected)
        < 1e-12
    )
    without = naive_fedavg(rounds=2, model=dropping)
    assert (
        max(float((simulation.server.params[n] - without[n]).abs().max()) for n in without) > 1e-3
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_draws_the_same_masks(dropping: str) -> None:
    masks, cuda = Masks(), torch.device("cuda")
    for key in keys(3):
        with masks.under(key.to(cuda)):
            found = masks.kept((64, 4096), 0.9, cuda)
        assert torch.equal(found.cpu(), drawn(key, (64, 4096), 0.9)[0])
    cpu, gpu = trained("fedavg", model=dropping), trained("fedavg", model=dropping, device="cuda")
    gap = max(
        float((cpu.server.params[n] - gpu.server.params[n].cpu()).abs().max())
        for n in cpu.net.names
    )
    assert gap < 1e-9
