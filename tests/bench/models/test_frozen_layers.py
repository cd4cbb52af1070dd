"""Frozen layers are constants of the network: not trained, sent, averaged or kept; LoRA is made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import (
    INFO,
    TINY,
    apart,
    identical,
    largest_gap,
    resumed,
    simulate,
    toy_dataset,
    toy_split,
    trained,
)
from outside_world import place, world
from test_texts import text_run
from torch import nn

from algorithms.base import Params
from bench import models
from bench.engine import tracking
from bench.engine.network import Network, constant_names, initial_params, make_module
from bench.engine.run_models import RunModel, run_models
from bench.engine.simulation import Simulation
from bench.engine.together import advance_together
from bench.errors import UsageError
from bench.models import outside
from bench.planning.run_spec import setting_identity
from bench.trial import results
from search_spaces import Setting

__all__ = ["place", "world"]
SHAPE = (1, 8, 8)
# The first half multiplies pixels by powers of two and adds neighbours: exact in floating point, in
# any batch.
HALVES = """\
import torch
from torch import nn
from bench.models import ModelInfo


def features(x):
    return x.reshape(len(x), -1)[:, :32] * 0.5


class DrawnHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(64, 16).requires_grad_(False)
        self.order = torch.randperm(16)
        self.dense = nn.Linear(16, 8)

    def forward(self, x):
        return self.dense(self.frozen(x.reshape(len(x), -1)).relu()[:, self.order])


def drawn(channels, batchnorm):
    return DrawnHalf()


DRAWN = ModelInfo("halves:drawn", "")


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((32,), 0.5), requires_grad=False)

    def forward(self, x):
        return x.reshape(len(x), -1)[:, :32] * self.scale


def second():
    return nn.Sequential(nn.Linear(32, 8), nn.ReLU())


def frozen(channels, batchnorm):
    return nn.Sequential(Half(), second())


class Alone(nn.Module):
    def __init__(self, channels, batchnorm):
        super().__init__()
        self.second = second()

    def forward(self, x):
        return self.second(features(x))


FROZEN = ModelInfo("halves:frozen", "")
ALONE = ModelInfo("halves:Alone", "")
"""


@pytest.fixture
def halves(world: Path) -> Path:
    (world / "halves.py").write_text(HALVES)
    return world


def equal(frozen: Params, alone: Params) -> bool:
    """The second half is called `body.1` behind a frozen first one, `body.second` without."""
    renamed = {name.replace("body.1", "body.second"): value for name, value in frozen.items()}
    return renamed.keys() == alone.keys() and all(
        torch.equal(renamed[name], alone[name]) for name in alone
    )


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedcad", "feddf"])
def test_a_frozen_half_equals_its_features(algorithm: str, backend: str, halves: Path) -> None:
    runs = [
        trained(algorithm, backend, model=f"halves:{name}", precision="fp32")
        for name in ("FROZEN", "ALONE")
    ]
    frozen, alone = runs
    assert equal(frozen.server.params, alone.server.params)
    assert frozen.progress.traffic == alone.progress.traffic
    assert frozen.progress.curves == alone.progress.curves
    assert frozen.net.constants.keys() == {"body.0.scale"}


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_frozen_model_resumes(backend: str, halves: Path, tmp_path: Path) -> None:
    options = {"model": "halves:FROZEN", "precision": "fp32"}
    whole = trained("fedcad", backend, 4, **options)
    assert identical(whole, resumed(tmp_path / "state", "fedcad", backend, **options))


def test_a_frozen_model_trains_in_packs(halves: Path) -> None:
    members = [simulate("fedavg", "stacked", seed, model="halves:FROZEN") for seed in (0, 1)]
    assert not advance_together(members, 2)
    assert apart(members) is None
    for seed, member in enumerate(members):
        assert largest_gap(member, trained("fedavg", seed=seed, model="halves:FROZEN")) < 1e-10


@pytest.mark.parametrize("model", ["halves:DRAWN", "mlp"])
def test_a_pack_takes_one_runs_constants_for_that_run_alone(model: str, halves: Path) -> None:
    """Constants that are drawn belong to a seed."""
    members = [simulate("fedavg", "stacked", seed, model=model) for seed in (0, 1)]
    assert not advance_together(members, 2)
    for seed, member in enumerate(members):
        assert largest_gap(member, trained("fedavg", seed=seed, model=model)) < 1e-10
    checksums = {member.net.checksum for member in members}
    assert len(checksums) == (1 if model == "mlp" else 2)


def test_frozen_numbers_are_not_counted(halves: Path) -> None:
    second_half = 32 * 8 + 8 + 8 * 3 + 3
    assert models.num_parameters("halves:FROZEN", SHAPE, 3) == second_half
    run = trained("fedavg", model="halves:FROZEN", precision="fp32", participation=1.0, rounds=1)
    assert run.progress.traffic.bytes_up == 4 * 4 * second_half


# Frozen BatchNorm

NORMS = '''\
import torch
from torch import nn
from bench.models import ModelInfo


class Resting(nn.Module):
    """Its norm stays in evaluation mode, with frozen weights if asked for."""

    def __init__(self, frozen=True):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.norm.running_mean.fill_(3.0)
        self.norm.requires_grad_(not frozen)
        self.dense = nn.Linear(64, 8)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.dense(self.norm(x.flatten(1)))


class Moving(nn.Module):
    """Its norm is frozen, but takes the statistics of batches."""

    def __init__(self, channels, batchnorm):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.norm.requires_grad_(False)
        self.dense = nn.Linear(64, 8)

    def forward(self, x):
        return self.dense(self.norm(x.flatten(1)))


RESTING = ModelInfo("norms:resting", "")
TRAINED = ModelInfo("norms:trained", "", always_batchnorm=True)
MOVING = ModelInfo("norms:Moving", "", always_batchnorm=True)
WRONG = ModelInfo("norms:resting", "", always_batchnorm=True)


def resting(channels, batchnorm):
    return Resting()


def trained(channels, batchnorm):
    return Resting(frozen=False)
'''
AFFINE = {"body.norm.weight", "body.norm.bias"}
STATISTICS = {"body.norm.running_mean", "body.norm.running_var"}


@pytest.fixture
def norms(world: Path) -> Path:
    (world / "norms.py").write_text(NORMS)
    return world


@pytest.mark.parametrize(
    ("model", "constants", "takes_statistics"),
    [
        ("RESTING", AFFINE | STATISTICS, False),
        ("TRAINED", STATISTICS, False),
        ("MOVING", AFFINE, True),
    ],
)
def test_batchnorm_is_constant_where_it_rests(
    model: str, constants: set[str], takes_statistics: bool, norms: Path
) -> None:
    loop, stacked = (
        trained("fedavg", backend, model=f"norms:{model}") for backend in ("loop", "stacked")
    )
    assert largest_gap(loop, stacked) < 1e-9
    assert set(loop.net.constants) == constants
    assert loop.net.batch_statistics == takes_statistics
    assert not constants & set(loop.server.params)
    before = initial_params(
        make_module(lambda: models.make(f"norms:{model}", SHAPE, 3), 0),
        torch.float64,
        torch.device("cpu"),
    )
    moved = {
        name
        for name in loop.server.params
        if not torch.equal(before[name], loop.server.params[name])
    }
    assert (moved & STATISTICS == STATISTICS) is takes_statistics


def test_a_resting_norm_is_no_batchnorm(norms: Path) -> None:
    with pytest.raises(UsageError, match="always_batchnorm"):
        models.make("norms:WRONG", SHAPE, 3)


def test_finding_constants_changes_no_mode() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm1d(2)).eval())
    modes = [part.training for part in module.modules()]
    assert constant_names(module) == frozenset()
    assert [part.training for part in module.modules()] == modes


# Identity, stored models

LOADED = """\
from pathlib import Path
import torch
from torch import nn
from bench.models import ModelInfo


def body(channels, batchnorm):
    first, second = nn.Linear(64, 16), nn.Linear(16, 8)
    first.weight.data = torch.load(Path(__file__).with_name("weights.pt"), weights_only=True)
    first.requires_grad_(False)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second)


OWN = ModelInfo("loaded:body", "")
"""


DRAWN = LOADED.replace("    first.weight.data", "    # first.weight.data").replace(
    "loaded:", "drawn:"
)
FREE = LOADED.replace("    first.requires_grad_", "    # first.requires_grad_").replace(
    "loaded:", "free:"
)


WITH_MASK = """\
from pathlib import Path
import torch
from torch import nn
from bench.models import ModelInfo


class Masked(nn.Module):
    def __init__(self, channels, batchnorm):
        super().__init__()
        self.dense = nn.Linear(64, 16)
        weights = torch.load(Path(__file__).with_name("weights.pt"), weights_only=True)
        self.register_buffer("mask", KEPT, persistent=False)

    def forward(self, x):
        return self.dense(x.flatten(1)) * self.mask.sum()


OWN = ModelInfo("NAME:Masked", "")
"""
MASK = WITH_MASK.replace("KEPT", "weights > 1").replace("NAME", "mask")
SHARE = WITH_MASK.replace("KEPT", "weights.max()").replace("NAME", "share")
PLAIN = WITH_MASK.replace(
    'self.register_buffer("mask", KEPT, persistent=False)', "self.mask = weights > 1"
).replace("NAME", "plain")


@pytest.mark.parametrize(
    ("name", "text"),
    [("loaded", LOADED), ("free", FREE), ("mask", MASK), ("share", SHARE), ("plain", PLAIN)],
)
def test_loaded_weights_are_in_the_version(name: str, text: str, world: Path) -> None:
    (world / f"{name}.py").write_text(text)
    setting = replace(TINY, model=f"{name}:OWN")
    weights = torch.linspace(0, 1, 16 * 64).view(16, 64)
    versions = []
    for scale in (1.0, 1.0, 2.0):
        torch.save(scale * weights, world / "weights.pt")
        outside.examined.cache_clear()
        versions.append(setting_identity(setting)["model_version"])
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.parametrize(("name", "text"), [("drawn", DRAWN), ("free", FREE)])
def test_weights_that_the_source_says_leave_the_version(name: str, text: str, world: Path) -> None:
    (world / f"{name}.py").write_text(text)
    torch.save(torch.zeros(16, 64), world / "weights.pt")
    assert models.version(f"{name}:OWN", SHAPE) == models.source_version(f"{name}:OWN")


ORDERED = """\
import torch
from torch import nn
from bench.models import ModelInfo


class Ordered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.randperm(16))
        self.dense = nn.Linear(64, 16)

    def forward(self, x):
        return self.dense(x.flatten(1))[:, self.order]


def body(channels, batchnorm):
    return Ordered()


OWN = ModelInfo("ordered:body", "")
"""


def test_a_stored_model_cannot_bring_what_is_drawn_beside_floats(world: Path) -> None:
    (world / "ordered.py").write_text(ORDERED)
    (world / "drawn.py").write_text(DRAWN)
    for model in ("ordered:OWN", "drawn:OWN"):
        run = simulate("fedavg", seed=0, model=model, precision="fp32")
        initial = {**run.server.params, **run.net.constants}
        setting = replace(TINY, model=model, precision="fp32")

        def started(seed: int, setting: Setting = setting, initial: Params = initial) -> RunModel:
            (made,) = run_models(setting, seed, INFO, torch.device("cpu"), "loop", initial).values()
            return made

        if model == "drawn:OWN":
            constants = started(1).net.constants
            assert torch.equal(constants["body.1.weight"], initial["body.1.weight"])
        else:
            with pytest.raises(UsageError, match=r"draws its body\.order, which stored models"):
                started(1)


def test_a_stored_model_brings_its_constants(world: Path) -> None:
    (world / "drawn.py").write_text(DRAWN)
    run = simulate("fedavg", seed=0, model="drawn:OWN", precision="fp32")
    run.tracker.what = frozenset({"models"})
    run.advance(1)
    results.write_tracked(run, world, {"": "a" * 64}, {"": "fedavg"})
    stored = tracking.load_model(world, "a" * 64)
    module = models.make("drawn:OWN", SHAPE, 3)
    module.load_state_dict(stored)
    assert torch.equal(module.body[1].weight, run.net.constants["body.1.weight"])
    again = Simulation(
        run.algorithm, run.setting, 1, toy_dataset(), INFO, toy_split(), initial=stored
    )
    assert torch.equal(again.net.constants["body.1.weight"], run.net.constants["body.1.weight"])
    assert all(
        torch.equal(again.server.params[name], run.server.params[name]) for name in run.net.names
    )


# LoRA

TEXTS = (12,)


@pytest.mark.parametrize("rank", [1, 8])
def test_lora_trains_factors_dense_and_head(rank: int) -> None:
    name = f"distilbert_tiny+lora{rank}"
    module = make_module(lambda: models.make(name, TEXTS, 4), seed=0)
    net = Network(module, TEXTS, 4)
    factors = [n for n in net.trainable if "lora_" in n]
    assert len(factors) == 2 * 2 * 2  # two factors of query and value in two layers
    assert {n.split(".")[-2] for n in factors} == {"q_lin", "v_lin"}
    others = {"body.dense.weight", "body.dense.bias", "head.weight", "head.bias"}
    assert set(net.names) == {*factors, *others}
    params = initial_params(module, net.dtype, torch.device("cpu"))
    assert sum(value.numel() for value in params.values()) == models.num_parameters(name, TEXTS, 4)


def made(name: str) -> nn.Module:
    return make_module(lambda: models.make(name, TEXTS, 4), seed=0).eval()


def test_lora_begins_as_the_frozen_model() -> None:
    plain, lora = made("distilbert_tiny"), made("distilbert_tiny+lora8")
    lora.load_state_dict(plain.state_dict(), strict=False)  # the head is drawn after the factors
    ids = torch.randint(1, 1000, (3, *TEXTS), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(lora(ids).logits, plain(ids).logits)


def test_a_factored_layer_is_printed_equation() -> None:
    layer = made("distilbert_tiny+lora8").double().body.encoder.transformer.layer[0].attention.q_lin
    x = torch.randn(5, 32, dtype=torch.float64, requires_grad=True)
    nn.init.normal_(layer.lora_b)
    expected = x @ (layer.weight + layer.lora_b @ layer.lora_a).T + layer.bias
    torch.testing.assert_close(layer(x), expected)
    trained = [x, layer.lora_a, layer.lora_b]
    slopes = torch.autograd.grad(layer(x).square().sum(), trained)
    torch.testing.assert_close(slopes, torch.autograd.grad(expected.square().sum(), trained))


def test_lora_backends_and_traffic_agree() -> None:
    runs = [
        text_run("fedgkd", backend, model="distilbert_tiny+lora8")
        for backend in ("loop", "stacked")
    ]
    for run in runs:
        run.advance(2)
    assert largest_gap(*runs) < 1e-10
    factors, dense, head = 2 * 2 * 2 * 8 * 32, 33 * 32, 33 * 3
    clients_and_rounds = 3 * 2
    for run in runs:
        assert run.progress.traffic.bytes_up == 8 * clients_and_rounds * (factors + dense + head)


def test_lora_learns() -> None:
    run = text_run("fedavg", model="distilbert_tiny+lora8", lr=1e-2, rounds=8, local_epochs=4)
    run.advance(8)
    accuracy = [value for _, name, value in run.progress.curves[""] if name == "accuracy"]
    assert accuracy[-1] > 0.6


@pytest.mark.parametrize(
    "name",
    [
        "mlp+lora8",
        "distilbert_tiny+lora0",
        "distilbert_tiny+lora",
        "distilbert+lora-1",
        "distilbert_tiny+lora33",
        "distilbert_tiny+lora8+lora4",
        "distilbert_tiny+lora8.0",
    ],
)
def test_wrong_lora_forms_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"\+lora"):
        models.parse(name)


def test_lora_comes_first_in_names() -> None:
    assert models.parse("distilbert+head+lora08").name == "distilbert+lora8+head"
