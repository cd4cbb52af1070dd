"""The models: sizes as printed, shapes, forms, and what each refuses."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from kept import assert_kept
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bench import models
from bench.data.command import main as data_command
from bench.engine.network import Network, initial_params, make_module
from bench.errors import EnvironmentProblem, UsageError
from bench.models import distilbert, weights
from bench.models.modules import MaxPool2

# Parameters as printed or counted from the authors' code.
SIZES = {
    ("cnn_cifar", (3, 32, 32), 10): 62_006,
    ("lenet5", (1, 32, 32), 26): 63_066,
    ("lenet5_120", (1, 32, 32), 26): 63_066,
    ("vgg9", (3, 32, 32), 10): 3_491_530,
    ("vgg9", (3, 32, 32), 100): 3_537_700,
    ("cnn_femnist", (1, 32, 32), 26): 200_666,
    ("cnn_fedgen", (1, 28, 28), 26): 26_962,
    ("cnn_fedproto", (1, 28, 28), 10): 21_840,
    ("cnn_fedproto_18", (1, 28, 28), 10): 19_738,
    ("cnn_fedproto_22", (1, 28, 28), 10): 23_942,
    ("cnn_digits5", (3, 28, 28), 10): 14_219_210,
    ("resnet8", (3, 32, 32), 10): 78_042,
    ("resnet8", (3, 32, 32), 100): 83_892,
    ("resnet8+head", (3, 32, 32), 10): 100_762,
    ("resnet8_wide", (3, 32, 32), 10): 1_227_594,
    ("resnet50", (3, 64, 64), 200): 23_910_152,
    ("resnet50+head", (3, 64, 64), 200): 28_272_648,
    ("resnet50", (3, 32, 32), 100): 23_705_252,
    ("resnet50", (1, 28, 28), 62): 23_626_238,
    ("resnet50_imagenet", (3, 64, 64), 200): 23_917_832,
    ("distilbert_scratch", (128,), 4): 66_956_548,
    ("distilbert_scratch+head", (128,), 4): 67_741_956,
}
# Small inputs that every model accepts, and the size of its features.
SHAPES = {
    "mlp": ((1, 8, 8), 64),
    "cnn_digits": ((1, 8, 8), 128),
    "cnn_cifar": ((3, 32, 32), 84),
    "lenet5": ((1, 32, 32), 84),
    "lenet5_120": ((1, 32, 32), 120),
    "vgg9": ((3, 32, 32), 512),
    "cnn_femnist": ((1, 32, 32), 512),
    "cnn_fedgen": ((1, 28, 28), 32),
    "cnn_fedproto": ((1, 28, 28), 50),
    "cnn_fedproto_18": ((1, 28, 28), 50),
    "cnn_fedproto_22": ((3, 28, 28), 50),
    "cnn_digits5": ((3, 28, 28), 512),
    "resnet8": ((3, 16, 16), 64),
    "resnet8_wide": ((3, 16, 16), 256),
    "resnet50": ((1, 16, 16), 2048),
    "resnet50_imagenet": ((3, 32, 32), 2048),
    "distilbert_tiny": ((12,), 32),
    "mlp_vectors": ((5,), 64),
}
BATCHNORM_FORM = {
    "mlp",
    "mlp_vectors",
    "cnn_digits",
    "resnet8",
    "resnet8_wide",
    "resnet50",
    "resnet50_imagenet",
}
FORMS = [*SHAPES, "mlp+bn+head", *(f"{name}+head" for name in SHAPES)]
FORMS += [f"{name}+bn" for name in sorted(BATCHNORM_FORM)]


def network(name: str, precision: str = "fp32") -> tuple[Network, dict[str, torch.Tensor]]:
    shape, _ = SHAPES[name.partition("+")[0]]
    module = make_module(lambda: models.make(name, shape, 10), seed=0)
    net = Network(module, shape, 10, precision)
    return net, initial_params(module, net.dtype, torch.device("cpu"))


def inputs(name: str, count: int = 4) -> torch.Tensor:
    shape, _ = SHAPES[name.partition("+")[0]]
    generator = torch.Generator().manual_seed(0)
    if models.info(name.partition("+")[0]).kind == "texts":
        return torch.randint(1, 30522, (count, *shape), generator=generator)
    return torch.randn(count, *shape, generator=generator)


@pytest.mark.parametrize(("name", "shape", "classes"), SIZES)
def test_every_kernel_of_a_convolution_may_have_channels_last(
    name: str, shape: tuple[int, ...], classes: int
) -> None:
    module = make_module(lambda: models.make(name, shape, classes), 0)
    kernels = {name for name, value in module.named_parameters() if value.dim() == 4}
    assert kernels == Network(module, shape, classes).conv_weights


@pytest.mark.parametrize(("case", "size"), SIZES.items(), ids=[f"{c[0]}-{c[2]}" for c in SIZES])
def test_sizes_are_the_printed_ones(case: tuple[str, tuple[int, ...], int], size: int) -> None:
    with torch.device("meta"):
        module = models.make(*case)
    assert sum(p.numel() for p in module.parameters()) == size
    assert models.num_parameters(*case) == size


@pytest.mark.parametrize("name", FORMS)
def test_every_form_answers_as_the_table_says(name: str) -> None:
    net, params = network(name)
    base, _, form = name.partition("+")
    assert models.num_parameters(name, net.input_shape, 10) == sum(
        params[key].numel() for key in net.trainable
    )
    assert models.parse(name).has_batchnorm == bool(net.batchnorm)
    assert net.feature_dim == (256 if "head" in form else SHAPES[base][1])
    out = net.eval(params, inputs(name))
    assert out.logits.shape == (4, 10)
    assert out.features.shape == (4, net.feature_dim)
    assert torch.isfinite(out.logits).all()
    torch.testing.assert_close(net.head(params, out.features), out.logits)
    sizes = {"logits": float(out.logits.abs().sum()), "features": float(out.features.abs().sum())}
    assert_kept("models.json", name, sizes, 1e-4)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("mlp+bm", "+head"),
        ("cnn_cifar+bn", "resnet8"),
        ("cnn_digits5+bn", "+bn"),
        ("resnet", "resnet8"),
    ],
)
def test_forms_that_do_not_exist_are_refused(name: str, word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(word)):
        models.parse(name)


@pytest.mark.parametrize(
    ("name", "shape", "fitting"),
    [
        ("lenet5", (1, 28, 28), "cnn_fedgen"),
        ("vgg9", (64,), "distilbert_tiny"),
        ("distilbert", (3, 32, 32), "resnet8"),
        ("distilbert", (513,), "none here"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_with_models_that_do(
    name: str, shape: tuple[int, ...], fitting: str
) -> None:
    with pytest.raises(UsageError, match=f"fit: .*{fitting}"):
        models.check_model(name, shape, "texts" if len(shape) == 1 else "images")


@pytest.mark.parametrize("name", ["vgg9", "cnn_digits5", "distilbert_tiny"])
def test_initialisation_is_the_seeds_and_nobody_elses(name: str) -> None:
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    shape, _ = SHAPES[name]
    first, second, other = (
        make_module(lambda: models.make(name, shape, 10), seed) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), state), "global randomness stays untouched"
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    assert not torch.equal(first.head.weight, other.head.weight)


def test_groups_of_the_resnets() -> None:
    wanted = {"resnet8": 16, "resnet8_wide": 1, "resnet50": 16}
    for name, channels in wanted.items():
        with torch.device("meta"):
            parts = list(models.make(name, (3, 32, 32), 10).modules())
        norms = [part for part in parts if isinstance(part, nn.GroupNorm)]
        assert norms
        assert all(part.num_channels == channels * part.num_groups for part in norms)


def test_dropout_of_vgg9_is_where_the_table_has_it() -> None:
    with torch.device("meta"):
        body = models.make("vgg9", (3, 32, 32), 10).body
    kinds = [(type(part), getattr(part, "p", None)) for part in body]
    assert [p for kind, p in kinds if kind in (nn.Dropout, nn.Dropout2d)] == [0.05, 0.1, 0.1]
    assert kinds.index((nn.Dropout2d, 0.05)) == 10, "behind the second pool"
    assert kinds[-1] == (nn.Dropout, 0.1), "the classifier reads what is left"


# DistilBERT


def reference(params: dict[str, torch.Tensor]) -> nn.Module:
    """Transformers' own small DistilBERT with these weights."""
    from transformers import DistilBertConfig, DistilBertModel

    config = {**distilbert.COMMON, **distilbert.TINY, "attn_implementation": "eager"}
    module = DistilBertModel(DistilBertConfig(**config)).double().eval()
    prefix = "body.encoder."
    own = {
        name.removeprefix(prefix): value
        for name, value in params.items()
        if name.startswith(prefix)
    }
    module.load_state_dict(own)
    return module


def padded(count: int = 5) -> torch.Tensor:
    """Texts of 4, 6, 8, ... tokens, filled up with the padding token."""
    ids = inputs("distilbert_tiny", count)
    for row in range(count):
        ids[row, 4 + 2 * row :] = 0
    return ids


def test_distilbert_is_that_of_transformers() -> None:
    net, params = network("distilbert_tiny", "fp64")
    ids = padded()
    hidden = reference(params)(ids, attention_mask=(ids != 0).long()).last_hidden_state[:, 0]
    expected = torch.relu(hidden @ params["body.dense.weight"].T + params["body.dense.bias"])
    torch.testing.assert_close(net.eval(params, ids).features, expected, rtol=0, atol=1e-12)


@pytest.fixture
def small_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """`distilbert` is as small as `distilbert_tiny`; the folder where its weights are looked for."""
    monkeypatch.setattr(distilbert, "BASE", distilbert.TINY)
    monkeypatch.setattr(weights, "_chosen", None)
    monkeypatch.setenv("FEDKD_DATA", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "distilbert-base-uncased"


def write_weights(folder: Path) -> dict[str, torch.Tensor]:
    """A checkpoint as the hub has it: an encoder under `distilbert.`, and the head for masked words."""
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    distilbert.tiny(12, False)  # makes the attention known to transformers
    with torch.random.fork_rng():
        model = DistilBertForMaskedLM(DistilBertConfig(**{**distilbert.COMMON, **distilbert.TINY}))
    model.save_pretrained(folder)
    return copy.deepcopy(model.distilbert.state_dict())


def test_pretrained_weights_come_from_the_folder(small_base: Path) -> None:
    wanted = write_weights(small_base)
    first, second = (make_module(lambda: distilbert.pretrained(12, False), seed) for seed in (0, 1))
    for module in (first, second):
        found = module.encoder.state_dict()
        assert set(found) == set(wanted)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not torch.equal(first.dense.weight, second.dense.weight), (
        "what is not pretrained is the seed's"
    )


def test_weights_are_looked_for_where_the_command_says(small_base: Path, tmp_path: Path) -> None:
    """`--data-dir` and `--offline` reach them."""
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(EnvironmentProblem, match="distilbert_scratch"):
        weights.provide("distilbert+head", elsewhere, offline=True)
    weights.provide("distilbert_tiny", elsewhere, offline=True)
    wanted = write_weights(elsewhere / "distilbert-base-uncased")
    weights.provide("distilbert+head", elsewhere, offline=True)
    found = make_module(lambda: distilbert.pretrained(12, False), 0).encoder.state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_weights_are_fetched_into_the_folder(
    small_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(repository: str, name: str, local_dir: Path) -> str:
        asked.append(repository)
        local_dir.mkdir()
        (local_dir / name).write_bytes(b"weights")
        return str(local_dir / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert data_command(["prepare", "distilbert"]) == 0
    assert (small_base / "model.safetensors").read_bytes() == b"weights"
    assert data_command(["prepare", "distilbert"]) == 0
    assert asked == ["distilbert/distilbert-base-uncased"]


def test_weights_of_another_model_are_refused(
    small_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_weights(small_base)
    monkeypatch.setattr(distilbert, "BASE", {**distilbert.TINY, "n_layers": 3})
    with pytest.raises(EnvironmentProblem, match="prepare distilbert"):
        distilbert.pretrained(12, False)
    (small_base / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(EnvironmentProblem, match=r"model\.safetensors"):
        distilbert.pretrained(12, False)


def test_a_rows_versions_name_the_weights(small_base: Path) -> None:
    write_weights(small_base)
    first = weights.versions("distilbert+head")
    assert set(first) == {"distilbert-base-uncased"}
    assert len(first["distilbert-base-uncased"]) == 16
    assert weights.versions("distilbert_tiny") == {}


@pytest.mark.parametrize("sides", [(2, 2), (4, 6), (5, 4), (7, 7)])
def test_pooling_without_gradients_gives_the_same_maxima(sides: tuple[int, int]) -> None:
    images = torch.randn(3, 2, *sides)
    images[1] = images[1].round()  # equal values in one square
    images[2, 0, 0, 0] = torch.nan
    images[2, 1] = -torch.inf
    for given in (images, images.to(memory_format=torch.channels_last), images[0]):
        expected = nn.MaxPool2d(2)(given)
        with torch.no_grad():
            without = MaxPool2()(given)
        torch.testing.assert_close(MaxPool2()(given), expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(without, expected, rtol=0, atol=0, equal_nan=True)


class Operations(TorchDispatchMode):
    """The names of the operations that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_pooling_without_gradients_seeks_no_places() -> None:
    """On a CPU. Only gradients need the places of the maxima."""
    images = torch.randn(3, 2, 4, 6)
    with Operations() as plain:
        MaxPool2()(images)
    with torch.no_grad(), Operations() as quick:
        MaxPool2()(images)
    assert "indices" in " ".join(plain.names)
    assert "indices" not in " ".join(quick.names)


def test_resnet50_for_imagenet_is_torchvisions() -> None:
    """With BatchNorm, and torchvision's weights in the same order."""
    from torchvision.models import resnet50

    theirs = resnet50(num_classes=10).eval()
    ours = models.make("resnet50_imagenet+bn", (3, 64, 64), 10).eval()
    with torch.no_grad():
        for own, parameter in zip(ours.parameters(), theirs.parameters(), strict=True):
            own.copy_(parameter)
        images = torch.randn(2, 3, 64, 64)
        torch.testing.assert_close(ours(images).logits, theirs(images))
