"""A model of another package: found, counted, looked at, made in its forms, and refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import largest_gap, simulate
from outside_world import install, place, world

from bench import models
from bench.engine import tracking
from bench.errors import UsageError
from bench.models import outside
from bench.trial import results

__all__ = ["place", "world"]
SHAPE = (1, 8, 8)
HEAD = "from torch import nn\nfrom bench.models import ModelInfo\n"
NORMED = """\
def body(channels, batchnorm):
    norm = [nn.BatchNorm1d(16)] if batchnorm else []
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, 16), *norm, nn.ReLU())
"""


def write(place: Path, name: str, text: str) -> str:
    """A module `name` whose model is `name:OWN`."""
    (place / f"{name}.py").write_text(HEAD + text)
    return f"{name}:OWN"


def trainable(module: torch.nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


@pytest.mark.parametrize("form", ["", "+head"])
def test_figures_are_counted(world: Path, form: str) -> None:
    name = "my_world:NET" + form
    made = models.make(name, SHAPE, 3)
    assert made.head.out_features == 3
    assert models.num_parameters(name, SHAPE, 3) == trainable(made)
    assert outside.examined(name, SHAPE) == outside.BodyFacts(32, 64 * 32 + 32, None)
    assert made(torch.zeros(4, *SHAPE)).logits.shape == (4, 3)


def test_a_bn_form_is_there_where_it_is_said(world: Path) -> None:
    name = write(
        world,
        "normed",
        NORMED + "OWN = ModelInfo('normed:body', '', size=8, batchnorm_form=True)\n",
    )
    plain, normed = models.make(name, SHAPE, 3), models.make(name + "+bn", SHAPE, 3)
    assert trainable(normed) - trainable(plain) == 32
    assert models.num_parameters(name + "+bn", SHAPE, 3) == trainable(normed)
    assert models.parse(name + "+bn").has_batchnorm
    assert models.parse(name + "+bn+head").name == name + "+head+bn"
    with pytest.raises(UsageError, match=r"'my_world:NET'.*\+bn"):
        models.parse("my_world:NET+bn")


TIED = """\
class Body(nn.Module):
    def __init__(self, channels, batchnorm):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels) if batchnorm else nn.Identity()
        self.first, self.second = nn.Conv2d(channels, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.third = nn.Conv2d(4, 4, 3, padding=1)
        self.third.weight = self.second.weight
        self.act, self.again = nn.PReLU(), self.norm

    def forward(self, x):
        x = self.act(self.first(self.again(self.norm(x))))
        return self.act(self.third(self.act(self.second(x)))).mean((2, 3))


OWN = ModelInfo("tied:Body", "", size=8, batchnorm_form=True)
"""


def test_layers_may_share_parameters(world: Path) -> None:
    name = write(world, "tied", TIED)
    for model in (name, name + "+bn"):
        loop, stacked = (
            simulate("fedcad", backend, model=model) for backend in ("loop", "stacked")
        )
        loop.advance(2)
        stacked.advance(2)
        assert largest_gap(loop, stacked) < 1e-10


@pytest.mark.parametrize("algorithm", ["fedavg", "fedbn"])
def test_kept_models_are_loaded_by_all_names(algorithm: str, world: Path) -> None:
    run = simulate(algorithm, model=write(world, "tied", TIED) + "+bn", participation=1.0)
    run.tracker.what = frozenset({"models"})
    run.advance(1)
    results.write_tracked(run, world, {"": "a" * 64}, {"": algorithm})
    module = models.make(run.setting.model, SHAPE, 3).double()
    module.load_state_dict(
        tracking.load_model(world, "a" * 64, client=1 if algorithm == "fedbn" else None)
    )
    assert torch.equal(module.body.third.weight, run.server.params["body.second.weight"])


def test_an_entry_point_gives_it_a_name(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(world, monkeypatch, models="shapenet = my_world:NET")
    assert models.num_parameters("shapenet+head", SHAPE, 3) == models.num_parameters(
        "my_world:NET+head", SHAPE, 3
    )
    with pytest.raises(UsageError, match="shapenet"):
        models.info("shapenot")


MISTAKES = {
    "OWN = nn.Linear(1, 1)\n": "ModelInfo",
    "OWN = ModelInfo('{}:body', '')\n": "no 'body'",
    "def body(channels): ...\nOWN = ModelInfo('{}:body', '')\n": "TypeError",
    "def body(channels, batchnorm): ...\nOWN = ModelInfo('{}:body', '')\n": "NoneType",
    "def body(*_): return nn.Conv2d(1, 4, 3)\nOWN = ModelInfo('{}:body', '')\n": r"\(2, 4, 6, 6\)",
    "def body(*_): return nn.Linear(9, 4)\nOWN = ModelInfo('{}:body', '')\n": "RuntimeError",
    NORMED + "OWN = ModelInfo('{}:body', '', always_batchnorm=True)\n": "always_batchnorm",
    "def body(*_): return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten())\nOWN = ModelInfo('{}:body', '')\n": (
        "always_batchnorm=True"
    ),
    NORMED + "OWN = ModelInfo('{}:body', '', features=17)\n": "17.*16",
    NORMED + "OWN = ModelInfo('{}:body', '', 16, lambda channels: 1)\n": "1,040",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named(world: Path, text: str) -> None:
    module = f"wrong_{list(MISTAKES).index(text)}"
    name = write(world, module, text.replace("{}", module))
    with pytest.raises(UsageError, match=f"model '{name}'.*{MISTAKES[text]}"):
        models.make(name, SHAPE, 3)


def test_a_model_of_vectors_trains_on_vectors_only(world: Path) -> None:
    text = (
        "def body(numbers, batchnorm): return nn.Linear(numbers, 4)\n"
        "OWN = ModelInfo('line:body', '', vectors=True)\n"
    )
    name = write(world, "line", text)
    assert models.num_parameters(name, (2,), 3) == 2 * 4 + 4 + 4 * 3 + 3
    models.check_model(name, (2,), "vectors")
    for other, shape, kind in ((name, (128,), "texts"), ("distilbert_tiny", (2,), "vectors")):
        with pytest.raises(UsageError, match=kind):
            models.check_model(other, shape, kind)
