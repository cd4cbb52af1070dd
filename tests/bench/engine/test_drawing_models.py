"""Models that draw random numbers by themselves: found, named, repeated on the loop, refused elsewhere."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import identical, resumed, simulate, trained
from outside_world import place, world

from bench.engine.own_draws import drawing_layer
from bench.engine.rng import global_states, seeded
from bench.errors import UsageError
from bench.sweep import command as sweep

__all__ = ["place", "world"]
SHAPE = (1, 8, 8)
MODELS = """\
import random

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from bench.models import ModelInfo


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 16)
        self.part = self.make()

    def make(self):
        return nn.Identity()

    def forward(self, x):
        return self.part(self.dense(x.flatten(1)))


class FunctionalBody(Body):
    def forward(self, x):
        return F.dropout(self.dense(x.flatten(1)), 0.5, self.training)


class AttentionBody(Body):
    def make(self):
        return nn.MultiheadAttention(16, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        tokens = self.dense(x.flatten(1))[:, None].expand(-1, 3, -1)
        return self.part(tokens, tokens, tokens, need_weights=False)[0].mean(1)


class EncoderBody(Body):
    def make(self):
        return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, batch_first=True)

    def forward(self, x):
        return self.part(self.dense(x.flatten(1))[:, None].expand(-1, 3, -1)).mean(1)


class DepthBody(Body):
    def make(self):
        return torchvision.ops.StochasticDepth(0.5, "row")


class AlphaBody(Body):
    def make(self):
        return nn.AlphaDropout(0.5)


class NumpyBody(Body):
    def forward(self, x):
        scale = np.random.rand() + 0.5 if self.training else 1.0
        return self.dense(x.flatten(1)) * scale


class PythonBody(Body):
    def forward(self, x):
        scale = random.random() + 0.5 if self.training else 1.0
        return self.dense(x.flatten(1)) * scale


class AlwaysBody(Body):
    def forward(self, x):
        return F.dropout(self.dense(x.flatten(1)), 0.5)


class PrivateBody(Body):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return self.dense(x.flatten(1)) * (1 + 0.1 * self.calls)


class LargeBatchBody(Body):
    def forward(self, x):
        return F.dropout(self.dense(x.flatten(1)), 0.5, self.training and len(x) > 4)


class LayersBody(Body):
    def make(self):
        return nn.Sequential(nn.Dropout(0.5), nn.ReLU())


def body_of(kind):
    return lambda channels, batchnorm: kind()


functional, attention, encoder = body_of(FunctionalBody), body_of(AttentionBody), body_of(EncoderBody)
depth, alpha, numpy_ = body_of(DepthBody), body_of(AlphaBody), body_of(NumpyBody)
python, always, private, layers = (body_of(k) for k in (PythonBody, AlwaysBody, PrivateBody, LayersBody))
FUNCTIONAL, ATTENTION, ENCODER, DEPTH, ALPHA, NUMPY, PYTHON, ALWAYS, PRIVATE, LAYERS = (
    ModelInfo(f"drawing:{name}", "")
    for name in "functional attention encoder depth alpha numpy_ python always private layers".split()
)
large_batch = body_of(LargeBatchBody)
LARGE_BATCH = ModelInfo("drawing:large_batch", "")
"""
DRAWING = {
    "FUNCTIONAL": "body (FunctionalBody)",
    "ATTENTION": "body.part (MultiheadAttention)",
    "ENCODER": "body.part.self_attn (MultiheadAttention)",
    "DEPTH": "body.part (StochasticDepth)",
    "ALPHA": "body.part (AlphaDropout)",
    "NUMPY": "body (NumpyBody)",
    "PYTHON": "body (PythonBody)",
}


@pytest.fixture
def drawing(world: Path) -> Path:
    (world / "drawing.py").write_text(MODELS)
    return world


@pytest.mark.parametrize(("name", "layer"), DRAWING.items())
def test_the_drawing_layer_is_named(name: str, layer: str, drawing: Path) -> None:
    before = global_states()
    assert drawing_layer(f"drawing:{name}", SHAPE) == layer
    assert global_states() == before


@pytest.mark.parametrize("name", ["drawing:LAYERS", "my_world:NET", "mlp", "distilbert"])
def test_keyed_dropout_and_own_models_pass(name: str, drawing: Path) -> None:
    assert drawing_layer(name, SHAPE) == ""


@pytest.mark.parametrize("name", ["ALWAYS", "PRIVATE"])
def test_what_cannot_be_repeated_is_refused(name: str, drawing: Path) -> None:
    with pytest.raises(UsageError, match=f"drawing:{name}"):
        drawing_layer(f"drawing:{name}", SHAPE)


@pytest.mark.parametrize("name", DRAWING)
def test_a_run_repeats_and_resumes(name: str, drawing: Path, tmp_path: Path) -> None:
    options = {"model": f"drawing:{name}", "precision": "fp32"}
    first = trained("fedavg", rounds=4, **options)
    torch.rand(3), np.random.rand(3), random.random()
    before = global_states()
    assert identical(first, trained("fedavg", rounds=4, **options))
    assert global_states() == before
    assert identical(first, resumed(tmp_path / "state", "fedavg", **options))
    assert not identical(first, trained("fedavg", rounds=4, seed=1, **options))


@pytest.mark.parametrize("algorithm", ["feddkd", "feddf", "scaffold", "moon", "fedgen"])
def test_servers_and_gradients_repeat_too(algorithm: str, drawing: Path, tmp_path: Path) -> None:
    options = {"model": "drawing:FUNCTIONAL", "precision": "fp32"}
    first = trained(algorithm, rounds=4, **options)
    assert identical(first, resumed(tmp_path / "state", algorithm, **options))


def test_draws_that_no_trial_pass_showed_end_the_run(drawing: Path) -> None:
    model = "drawing:LARGE_BATCH"
    assert drawing_layer(model, SHAPE) == ""
    with pytest.raises(RuntimeError, match=r"round 1, client \d+: .*nn\.Dropout"):
        trained("fedavg", model=model, batch_size=8)


def test_a_stack_refuses_them(drawing: Path) -> None:
    with pytest.raises(UsageError, match=r"body\.part \(StochasticDepth\).*nn\.Dropout"):
        simulate("fedavg", "stacked", model="drawing:DEPTH")


@pytest.mark.parametrize("option", [("--backend", "stacked"), ("--pack", "2")])
def test_a_sweep_refuses_them(
    option: tuple[str, str], drawing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--algo", "fedavg", "--dataset", "digits", "--set", "model=drawing:DEPTH", "--dry-run"]
    assert sweep.main([*asked]) == 0
    assert sweep.main([*asked, *option]) == 2
    assert "drawing:DEPTH" in capsys.readouterr().err


def test_seeding_is_undone_on_errors() -> None:
    before = global_states()
    drawn = []

    def draw_and_fail() -> None:
        with seeded(torch.Generator().manual_seed(1)):
            drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            draw_and_fail()
    assert drawn[0] == drawn[1]
    assert global_states() == before
