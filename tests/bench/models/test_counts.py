"""Models for other channels, tokens and numbers have the parameters of the table."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import models
from bench.engine.network import make_module
from bench.errors import UsageError
from bench.models.modules import Classifier
from bench.models.registry import MODELS, Form, ModelInfo

UNFETCHED = [name for name in MODELS if name != "distilbert"]  # which needs a file of weights
FORMS = [*UNFETCHED, *(f"{name}+bn" for name, entry in MODELS.items() if entry.batchnorm_form)]


def shapes_of(name: str) -> list[tuple[int, ...]]:
    """Shapes that a model takes, of unlike numbers of channels, tokens or numbers."""
    entry = models.parse(name).entry
    if entry.kind == "texts":
        return [(1,), (512,)]
    if entry.kind == "vectors":
        return [(1,), (2,), (7,)]
    side = entry.size or 16
    return [(channels, side, side) for channels in (1, 2, 3)]


@pytest.mark.parametrize("name", FORMS)
def test_the_table_counts_for_any_input(name: str) -> None:
    for shape in shapes_of(name):
        with torch.device("meta"):
            module = models.make(name, shape, 7)
        counted = sum(value.numel() for value in module.parameters())
        assert models.num_parameters(name, shape, 7) == counted, shape


@pytest.mark.parametrize(
    ("name", "shape", "kind", "fits"),
    [
        ("mlp", (3, 8, 8), None, True),
        ("mlp", (3, 8, 9), None, False),
        ("mlp", (3, 9, 8), "images", False),
        ("mlp", (8, 8), "images", False),
        ("resnet8", (1, 9, 20), "images", True),
        ("resnet8", (9,), "images", False),
        ("resnet8", (1, 9, 20), "vectors", False),
        ("distilbert", (512,), "texts", True),
        ("distilbert", (513,), "texts", False),
        ("distilbert", (512,), "vectors", False),
        ("distilbert", (1, 8, 8), None, False),
        ("mlp_vectors", (50_000,), "vectors", True),
        ("mlp_vectors", (2, 2), "vectors", False),
    ],
)
def test_inputs_fit_by_kind_and_shape(
    name: str, shape: tuple[int, ...], kind: str | None, fits: bool
) -> None:
    assert models.info(name).fits(shape, kind) is fits


def test_inputs_are_named_in_words() -> None:
    inputs = {name: models.info(name).inputs for name in ("mlp", "resnet8", "mlp_vectors")}
    assert inputs == {
        "mlp": "8x8 inputs",
        "resnet8": "images of any size",
        "mlp_vectors": "vectors of any length",
    }
    assert models.info("distilbert").inputs == "texts of at most 512 tokens"
    assert ModelInfo("module:function", "").inputs == "images of any size"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mlp", Form("mlp", MODELS["mlp"])),
        ("mlp+fd64", Form("mlp", MODELS["mlp"], width=64)),
        ("mlp+fd99999", Form("mlp", MODELS["mlp"], width=99_999)),
        ("mlp+fd1+head+bn", Form("mlp", MODELS["mlp"], 0, 1, True, True)),
        ("distilbert_tiny+lora1", Form("distilbert_tiny", MODELS["distilbert_tiny"], 1)),
        ("distilbert_tiny+lora32", Form("distilbert_tiny", MODELS["distilbert_tiny"], 32)),
    ],
)
def test_a_name_is_read_and_written(name: str, form: Form) -> None:
    assert models.parse(name) == form
    assert form.name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp+bn+bn", r"each once, got 'bn\+bn'"),
        ("mlp+fd4+fd8", r"each once, got 'fd4\+fd8'"),
        ("distilbert_tiny+lora1+lora2", "each once"),
        ("mlp+fd0", r"from 1 to 99999, as in \+fd64, got '\+fd0'"),
        ("mlp+fd100000", r"got '\+fd100000'"),
        ("mlp+fd²", r"got '\+fd²'"),
        ("mlp+fd-1", r"got '\+fd-1'"),
        ("distilbert_tiny+lora0", r"from 1 to 32, as in \+lora8, got '\+lora0'"),
        ("distilbert_tiny+lora33", r"got '\+lora33'"),
        ("mlp+lora4", r"no \+lora form; .*: distilbert, distilbert_scratch, distilbert_tiny$"),
        ("cnn_cifar+bn", r"have one: mlp, .*resnet50_imagenet; .* are: cnn_fedgen, cnn_digits5$"),
        ("cnn_fedgen+bn", r"has BatchNorm as it is: leave out \+bn$"),
    ],
)
def test_forms_without_sense_are_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        models.parse(name)


@pytest.mark.parametrize(
    ("name", "parameters", "features"),
    [
        ("mlp+fd16", 8_320 + (16 + 1) * 10, 16),
        ("mlp+fd16+head", 8_320 + 17 * 16 + 17 * 256 + 257 * 10, 256),
        ("mlp+bn", 8_320 + 256 + 65 * 10, 64),
        ("distilbert_tiny+lora3", 2 * 4 * 3 * 32 + 33 * 32 + 33 * 10, 32),
    ],
)
def test_forms_are_counted_by_hand(name: str, parameters: int, features: int) -> None:
    shape = (12,) if "distilbert" in name else (1, 8, 8)
    assert models.num_parameters(name, shape, 10) == parameters
    assert models.num_features(name, shape) == features


def test_heads_read_what_is_put_between() -> None:
    body = nn.Flatten()
    x = torch.randn(3, 4, 2)
    pooled = Classifier(body, 8, 5, width=2, projection=6, hidden=7).eval()
    halves = x.flatten(1).view(3, 2, 4).mean(2)
    torch.testing.assert_close(pooled(x).features, pooled.projection(halves))
    assert [type(layer) for layer in pooled.head] == [nn.Linear, nn.ReLU, nn.Linear]
    assert [tuple(value.shape) for value in pooled.parameters()] == [
        *((2, 2), (2,), (6, 2), (6,)),
        *((7, 6), (7,), (5, 7), (5,)),
    ]
    plain = Classifier(body, 8, 5)
    assert isinstance(plain.head, nn.Linear)
    assert plain.still_buffers == frozenset()
    assert torch.equal(plain(x).features, x.flatten(1))
    assert torch.equal(plain.train()(x).logits, plain.head(x.flatten(1)))


# ResNet-8


def basic_block(block: nn.Module, x: Tensor, stride: int) -> Tensor:
    """He et al. 2016, Figure 2 and option B."""
    hidden = F.conv2d(x, block.conv1.weight, stride=stride, padding=1)
    hidden = block.norm1(hidden).relu()
    hidden = block.norm2(F.conv2d(hidden, block.conv2.weight, padding=1))
    if stride > 1:
        convolution, norm = block.shortcut
        x = norm(F.conv2d(x, convolution.weight, stride=stride))
    return (hidden + x).relu()


@pytest.mark.parametrize(("name", "width"), [("resnet8", 16), ("resnet8_wide", 64)])
def test_resnet8_is_the_printed_one(name: str, width: int) -> None:
    body = models.make(name, (3, 12, 10), 10).body.eval()
    x = torch.randn(2, 3, 12, 10)
    hidden = body.norm(F.conv2d(x, body.conv.weight, padding=1)).relu()
    for block, stride in zip(body.blocks, (1, 2, 2), strict=True):
        hidden = basic_block(block, hidden, stride)
    assert hidden.shape == (2, 4 * width, 3, 3)
    torch.testing.assert_close(body(x), hidden.mean((2, 3)))


def test_kernels_are_drawn_by_their_outputs() -> None:
    body = make_module(lambda: models.make("resnet8_wide", (3, 8, 8), 10), 0).body
    for part in body.modules():
        if isinstance(part, nn.Conv2d) and part.weight.numel() > 10_000:
            height, width = part.kernel_size
            expected = math.sqrt(2 / (height * width * part.out_channels))
            assert part.weight.std().item() == pytest.approx(expected, rel=0.02)
            assert abs(part.weight.mean().item()) < 0.02 * expected


def test_factors_begin_as_lora_draws_them() -> None:
    """A as a linear layer's weights, within 1 / sqrt(inputs), and B of zeros."""
    body = make_module(lambda: models.make("distilbert_tiny+lora32", (4,), 2), 0).body
    layers = [part for part in body.modules() if hasattr(part, "lora_a")]
    assert len(layers) == 2 * 2
    for layer in layers:
        drawn = layer.lora_a.abs()
        assert drawn.max() <= 32**-0.5
        assert drawn.mean().item() == pytest.approx(32**-0.5 / 2, rel=0.1)
        assert not layer.lora_b.any()
        assert layer.lora_b.shape == layer.lora_a.shape == (32, 32)
    assert not layers[0].weight.requires_grad
    assert layers[0].lora_a.requires_grad
