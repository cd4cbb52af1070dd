"""The passes that examine a model from outside: inputs, comparisons, exceptions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from outside_world import place, world
from test_drawing_models import MODELS

from bench.engine.own_draws import drawing_layer, mixes_samples, refuse, still_buffers
from bench.engine.trial_passes import other_samples, stacks
from bench.engine.trial_passes.other_samples import _cut
from bench.engine.trial_passes.passes import _inputs, close, largest_value, same
from bench.engine.trial_passes.stacks import check_stacks
from bench.errors import UsageError

__all__ = ["place", "world"]
SHAPE = (1, 8, 8)
BACKWARD = """

class Torn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return slope * torch.rand(1)


class TornBody(Body):
    def forward(self, x):
        return Torn.apply(self.dense(x.flatten(1)))


torn = body_of(TornBody)
TORN = ModelInfo("drawing:torn", "")
"""


@pytest.fixture
def drawing(world: Path) -> Path:
    (world / "drawing.py").write_text(MODELS + BACKWARD)
    return world


def test_a_backward_pass_may_draw_too(drawing: Path) -> None:
    assert drawing_layer("drawing:TORN", SHAPE) == "the model's backward pass"


def test_a_model_that_draws_is_not_judged(drawing: Path) -> None:
    assert mixes_samples("drawing:FUNCTIONAL", SHAPE) is False
    assert mixes_samples("mlp+bn", SHAPE) is False, "the network finds it by itself"
    assert still_buffers("mlp+bn", SHAPE) == frozenset()


@pytest.mark.parametrize("further", [0, 1])
def test_large_models_are_not_tried_in_stacks(
    further: int, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    numbers = 64 * 32 + 32 + 33 * 2  # of the example with two classes
    monkeypatch.setattr(stacks, "LARGEST_STACKED", numbers - further)
    monkeypatch.setattr(stacks, "_differing_in_stack", lambda *given: tried.append(given))
    check_stacks("my_world:NET", SHAPE)
    check_stacks("mlp", SHAPE)
    assert len(tried) == 1 - further


def test_a_refusal_names_layer_and_place() -> None:
    error = refuse("mlp", "body.drop (DropPath)", "on a GPU")
    assert isinstance(error, UsageError)
    assert str(error) == (
        "model 'mlp': body.drop (DropPath) draws from a global random generator, and can therefore "
        "not be trained on a GPU: give --device cpu --backend loop --pack 1, or drop by nn.Dropout "
        "layers, whose masks are repeatable everywhere"
    )


def test_inputs_suit_any_model() -> None:
    texts = _inputs((9,), is_text=True)
    assert texts.shape == (4, 9)
    assert set(texts[:, :5].unique().tolist()) == {1, 2, 3}
    assert (texts == 3).sum() == 1, "one sample alone has the last token"
    assert texts[3, 0] == 3
    assert not texts[:3, 5:].any()
    assert texts[3, 5:].all()
    images = _inputs((1, 30, 30), is_text=False)
    assert (images.shape, images.dtype) == ((4, 1, 30, 30), torch.float32)
    assert images.std().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(images, _inputs((1, 30, 30), is_text=False))


def test_texts_are_cut_to_the_longest() -> None:
    texts = torch.tensor([[1, 0, 2, 0, 0], [3, 0, 0, 0, 0]])
    assert torch.equal(_cut(texts), texts[:, :3])
    images = torch.zeros(2, 3)
    assert _cut(images) is images


@pytest.mark.parametrize(
    ("values", "largest"),
    [([1.0, -3.0], 3.0), ([math.nan, 2.0, -math.inf], 2.0), ([math.nan], 0.0), ([], 0.0)],
)
def test_the_largest_value_is_a_finite_one(values: list[float], largest: float) -> None:
    assert largest_value(torch.tensor(values)) == largest


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ([1.0, math.nan], [1.0, math.nan], True),
        ([1.0, math.nan], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, math.nan], False),
        ([1.0], [1.0 + 1e-7], False),
        ([math.inf], [math.inf], True),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_equal_to_the_bit_but_for_nan(first: list[float], second: list[float], equal: bool) -> None:
    assert same(torch.tensor(first), torch.tensor(second)) is equal


@pytest.mark.parametrize(
    ("first", "second", "allowed", "expected"),
    [
        ([10.0, 1.0], [10.0, 1.00099], None, True),
        ([10.0, 1.0], [10.0, 1.0011], None, False),
        ([10.0, 1.0], [10.0, 1.0011], 0.01, True),
        ([10.0, 1.0], [10.0, 1.0009], 0.0, False),
        ([1e-9], [9e-7], None, True),
        ([1e-9], [2e-6], None, False),
        ([math.nan, 1.0], [math.nan, 1.0], None, True),
        ([math.nan, 1.0], [1.0, 1.0], None, False),
        ([1.0], [1.0, 1.0], None, False),
    ],
)
def test_rounding_is_a_ten_thousandth(
    first: list[float], second: list[float], allowed: float | None, expected: bool
) -> None:
    one = torch.tensor(first, dtype=torch.float64)
    other = torch.tensor(second, dtype=torch.float64)
    assert close(one, other, allowed) is expected


@pytest.mark.parametrize(
    ("feature", "slope", "buffer", "mixes"),
    [
        (0.0, 0.0, 0.0, False),
        (0.0, 0.05, 0.0, False),
        (0.0, 0.2, 0.0, True),
        (0.2, 0.0, 0.0, True),
        (0.0, 0.0, 0.2, True),
    ],
)
def test_the_largest_gradient_measures_rounding(
    feature: float, slope: float, buffer: float, mixes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a gradient of 1,000, differences of 0.1 are rounding."""
    alone: list[float] = []

    def of_samples(model: str, net: Any, params: Any, x: Any, part: Any) -> Any:
        is_alone = float(bool(alone))
        alone.append(is_alone)
        params["buffer"] += is_alone * buffer
        features = torch.ones(2) + is_alone * feature
        small = torch.zeros(1) + is_alone * slope
        return features, {"a": torch.tensor([-1000.0]), "b": small}

    monkeypatch.setattr(other_samples, "of_samples", of_samples)
    values = {"buffer": torch.ones(1)}
    net: Any = None
    found = other_samples._mixes_in_training("m", net, values, torch.ones(4, 2), [0, 1])
    assert found is mixes
    assert values["buffer"] == 1, "copies are changed"
