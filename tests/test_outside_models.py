"""A model of another package: found, counted, looked at, made in its forms, and refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import largest_gap, simulate
from outside_world import install, place, world

from bench import models
from bench.engine import tracking
from bench.errors import UsageError
from bench.models import counting
from bench.trial import results

__all__ = ["place", "world"]
ROOT = Path(__file__).resolve().parent.parent
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
    assert counting.counted(name, SHAPE) == (32, 64 * 32 + 32)
    assert made(torch.zeros(4, *SHAPE)).logits.shape == (4, 3)


def test_a_bn_form_is_there_where_it_is_said(world: Path) -> None:
    name = write(world, "normed", NORMED + "OWN = ModelInfo('normed:body', '', size=8, batchnorm_form=True)\n")
    plain, normed = models.make(name, SHAPE, 3), models.make(name + "+bn", SHAPE, 3)
    assert trainable(normed) - trainable(plain) == 32
    assert models.num_parameters(name + "+bn", SHAPE, 3) == trainable(normed)
    assert models.has_batchnorm(name + "+bn")
    assert models.spelt(name + "+bn+head") == name + "+head+bn"
    with pytest.raises(UsageError, match=r"model 'my_world:NET' has no \+bn form"):
        models.parse("my_world:NET+bn")


def test_counting_draws_from_nobody(world: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    models.check_model("my_world:NET", SHAPE)
    assert torch.equal(torch.get_rng_state(), before)
    first = models.make("my_world:NET", SHAPE, 3)
    torch.manual_seed(3)
    second = models.make("my_world:NET", SHAPE, 3)
    assert all(map(torch.equal, first.parameters(), second.parameters()))


def test_both_backends_train_it(world: Path) -> None:
    name = write(world, "normed", NORMED + "OWN = ModelInfo('normed:body', '', size=8, batchnorm_form=True)\n")
    for model in ("my_world:NET", name + "+bn"):
        loop, stacked = (simulate("fedgkd", backend, model=model) for backend in ("loop", "stacked"))
        loop.advance(2)
        stacked.advance(2)
        assert largest_gap(loop, stacked) < 1e-10


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


@pytest.mark.parametrize(("precision", "most"), [("fp64", 1e-10), ("bf16", 0.05)])
def test_layers_may_share_parameters(world: Path, precision: str, most: float) -> None:
    name = write(world, "tied", TIED)
    for model in (name, name + "+bn"):
        loop, stacked = (
            simulate("fedcad", backend, model=model, precision=precision) for backend in ("loop", "stacked")
        )
        loop.advance(2)
        stacked.advance(2)
        assert largest_gap(loop, stacked) < most


@pytest.mark.parametrize("algorithm", ["fedavg", "fedbn"])
def test_kept_models_are_loaded_by_all_names(algorithm: str, world: Path) -> None:
    run = simulate(algorithm, model=write(world, "tied", TIED) + "+bn", participation=1.0)
    run.tracker.what = frozenset({"models"})
    run.advance(1)
    results.write_tracked(run, world, {"": "a" * 64}, {"": algorithm})
    module = models.make(run.setting.model, SHAPE, 3).double()
    module.load_state_dict(tracking.load_model(world, "a" * 64, client=1 if algorithm == "fedbn" else None))
    assert torch.equal(module.body.third.weight, run.server.params["body.second.weight"])


def test_stated_figures_need_no_torch(world: Path) -> None:
    (world / "light.py").write_text(
        "from bench.models import ModelInfo\n"
        "OWN = ModelInfo('my_world:Net', '', 32, lambda channels: (64 * channels + 1) * 32, size=8)\n"
    )
    program = (
        "import sys; from bench import models\n"
        "models.check_model('light:OWN', (1, 8, 8)); models.version('light:OWN')\n"
        "print(models.num_parameters('light:OWN', (1, 8, 8), 3)); assert 'torch' not in sys.modules"
    )
    paths = {"PYTHONPATH": f"{ROOT}:{world}"}
    done = subprocess.run([sys.executable, "-c", program], cwd=world, env=paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == trainable(models.make("light:OWN", SHAPE, 3)) == 65 * 32 + 33 * 3


def test_an_entry_point_gives_it_a_name(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(world, monkeypatch, models="shapenet = my_world:NET")
    assert models.num_parameters("shapenet+head", SHAPE, 3) == models.num_parameters("my_world:NET+head", SHAPE, 3)
    with pytest.raises(UsageError, match=r"no model 'shapenot'.*did you mean shapenet\?"):
        models.info("shapenot")


def test_all_forms_have_one_version(world: Path) -> None:
    assert models.version("my_world:NET") == models.version("my_world:NET+head")
    assert models.version("resnet8+bn") is None


def test_it_takes_what_it_says(world: Path) -> None:
    with pytest.raises(UsageError, match=r"'my_world:NET' takes 8x8 inputs, the data set has 28x28; models that fit: "):
        models.check_model("my_world:NET", (1, 28, 28))


MISTAKES = {
    "OWN = nn.Linear(1, 1)\n": r"raises TypeError.*it must be a bench.models.table.ModelInfo, or a function",
    "OWN = ModelInfo('own', '')\n": r"factory must be 'module:function', got 'own'",
    "OWN = ModelInfo('nn:body', '')\n": r"no module 'nn'",
    "OWN = ModelInfo('{}:body', '')\n": r"has no 'body'; it defines: OWN",
    "body = 3\nOWN = ModelInfo('{}:body', '')\n": r"factory .*:body is no class or function, but int",
    "def body(channels): ...\nOWN = ModelInfo('{}:body', '')\n": r"\(channels=1, batchnorm=False\) raises TypeError",
    "def body(channels, batchnorm): ...\nOWN = ModelInfo('{}:body', '')\n": r"gives NoneType, not a torch.nn.Module",
    "def body(*_): return nn.Conv2d(1, 4, 3)\nOWN = ModelInfo('{}:body', '')\n": (
        r"must turn inputs \(2, 1, 8, 8\) into features \(B, D\), got \(2, 4, 6, 6\)"
    ),
    "def body(*_): return nn.Linear(9, 4)\nOWN = ModelInfo('{}:body', '')\n": (
        r"fails on inputs \(2, 1, 8, 8\): RuntimeError"
    ),
    NORMED + "OWN = ModelInfo('{}:body', '', always_batchnorm=True)\n": (
        r"always_batchnorm is True, and the body has no BatchNorm layer"
    ),
    "def body(*_): return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten())\nOWN = ModelInfo('{}:body', '')\n": (
        r"has BatchNorm layers: say always_batchnorm=True"
    ),
    NORMED + "OWN = ModelInfo('{}:body', '', always_batchnorm=True, batchnorm_form=True)\n": r"exclude each other",
    NORMED + "OWN = ModelInfo('{}:body', '', features=17)\n": r"features is 17, the body gives 16; 0 has them counted",
    NORMED + "OWN = ModelInfo('{}:body', '', 16, lambda channels: 1)\n": (
        r"body_parameters gives 1, the body has 1,040; None has them counted"
    ),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_said(world: Path, text: str) -> None:
    module = f"wrong_{list(MISTAKES).index(text)}"
    name = write(world, module, text.replace("{}", module))
    with pytest.raises(UsageError, match=f"model '{name}'.*{MISTAKES[text]}"):
        models.make(name, SHAPE, 3)


def test_a_model_of_vectors_trains_on_vectors_only(world: Path) -> None:
    text = (
        "def body(numbers, batchnorm): return nn.Linear(numbers, 4)\nOWN = ModelInfo('line:body', '', vectors=True)\n"
    )
    name = write(world, "line", text)
    assert models.num_parameters(name, (2,), 3) == 2 * 4 + 4 + 4 * 3 + 3
    models.check_model(name, (2,), "vectors")
    with pytest.raises(
        UsageError, match=r"takes vectors of any length, the data set has texts of 128 tokens; .*distil"
    ):
        models.check_model(name, (128,), "texts")
    with pytest.raises(UsageError, match="takes texts of at most 512 tokens, the data set has vectors of 2 numbers"):
        models.check_model("distilbert_tiny", (2,), "vectors")
