"""The table of models: the factory, inputs, number of parameters and forms of each.

`MODELS` has this suite's own. Another package has a `ModelInfo`, named by an entry point in
`fedkd_bench.models` or as `module:name`. Imports neither torch nor ray; the module of such an entry
may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from algorithms.entry_points import Kind, fingerprint
from bench.errors import UsageError
from bench.terminal.words import unknown

KIND = Kind("model", "fedkd_bench.models", UsageError)
TOKENS = 512  # DistilBERT's positions
WORDS = 30522  # and its vocabulary


@dataclass(frozen=True)
class ModelInfo:
    """A model: its factory and its properties.

    Args:
        factory: `module:function` of (channels, batchnorm), giving the body; for texts of (tokens,
            batchnorm), for vectors of (numbers, batchnorm).
        summary: one line.
        features: D, the body's output; 0 to have it counted.
        body_parameters: trainable numbers of the body, by input channels, tokens or numbers; None
            to have them counted, which makes the body and so imports torch. A test compares the
            figures below with the modules.
        size: height and width that the model needs, or None for any.
        tokens: the longest text, in tokens; None for a model of other inputs.
        vectors: whether the model takes vectors, of any length.
        batchnorm_form: whether a `+bn` form exists.
        batchnorm_parameters: trainable numbers that the `+bn` form adds.
        always_batchnorm: whether the model has BatchNorm without a `+bn` form. Layers that stay in
            evaluation mode and have frozen weights do not count.
        hidden: units of a dense layer between features and classifier, which belongs to the head; 0
            for none.
        dropout: share of the features that is dropped before the head reads them, in training.
        lora_parameters: trainable numbers of the body in its `+lora` form, by rank; None if it has
            no such form. A body that has one has a method `add_factors(rank)`, which freezes
            weights and adds what is trained.
    """

    factory: str
    summary: str
    features: int = 0
    body_parameters: Callable[[int], int] | None = None
    size: int | None = None
    tokens: int | None = None
    vectors: bool = False
    batchnorm_form: bool = False
    batchnorm_parameters: int = 0
    always_batchnorm: bool = False
    hidden: int = 0
    dropout: float = 0.0
    lora_parameters: Callable[[int], int] | None = None

    @property
    def kind(self) -> str:
        """The kind of inputs, named as in `DatasetInfo.kind`."""
        if self.tokens:
            return "texts"
        return "vectors" if self.vectors else "images"

    @property
    def inputs(self) -> str:
        """The accepted inputs, in words."""
        if self.tokens:
            return f"texts of at most {self.tokens} tokens"
        if self.vectors:
            return "vectors of any length"
        return f"{self.size}x{self.size} inputs" if self.size else "images of any size"

    def fits(self, input_shape: tuple[int, ...], kind: str | None = None) -> bool:
        """Return whether the model takes this kind and shape.

        A shape is (tokens,), (numbers,) or (channels, height, width).
        """
        if kind not in (None, self.kind):
            return False
        if self.tokens or self.vectors:
            return len(input_shape) == 1 and (self.vectors or input_shape[0] <= (self.tokens or 0))
        has_size = not self.size or input_shape[1:] == (self.size, self.size)
        return len(input_shape) == 3 and has_size


def _distilbert(factory: str, summary: str, width: int, layers: int, total: int) -> ModelInfo:
    """Make the entry of a DistilBERT of so many layers.

    Its body has `total` trainable numbers.
    """
    dense = (width + 1) * width

    def lora_parameters(rank: int) -> int:
        factors_of_a_layer = 2 * 2 * rank * width  # two factors of the query, two of the value
        return layers * factors_of_a_layer + dense

    return ModelInfo(
        f"bench.models.distilbert:{factory}",
        summary,
        width,
        lambda tokens: total,
        tokens=TOKENS,
        lora_parameters=lora_parameters,
    )


def _fedproto(factory: str, second: int) -> ModelInfo:
    """Make the entry of FedProto's CNN with so many channels in its second convolution."""
    return ModelInfo(
        f"bench.models.modules:{factory}",
        f"FedProto: 5x5 convolutions of 10 and {second} channels, a dense layer of 50, dropout",
        50,
        lambda channels: 250 * channels + 1_051 * second + 60,
        size=28,
        dropout=0.5,
    )


MODELS: dict[str, ModelInfo] = {
    "mlp": ModelInfo(
        "bench.models.modules:MLP8",
        "two hidden layers of 64 units, for 8x8 inputs",
        64,
        lambda channels: 4_096 * channels + 4_224,
        size=8,
        batchnorm_form=True,
        batchnorm_parameters=256,
    ),
    "mlp_vectors": ModelInfo(
        "bench.models.modules:MLP",
        "two hidden layers of 64 units, for vectors: "
        "with the last, the 3-layer MLP of FedGKD's toy task",
        64,
        lambda numbers: 64 * numbers + 4_224,
        vectors=True,
        batchnorm_form=True,
        batchnorm_parameters=256,
    ),
    "cnn_digits": ModelInfo(
        "bench.models.modules:DigitsCNN",
        "two 3x3 convolutions of 16 and 32 channels, for 8x8 inputs",
        128,
        lambda channels: 144 * channels + 4_656,
        size=8,
        batchnorm_form=True,
        batchnorm_parameters=96,
    ),
    "cnn_cifar": ModelInfo(
        "bench.models.modules:CifarCNN",
        "FedCAD: 5x5 convolutions of 6 and 16 channels, dense layers of 120 and 84",
        84,
        lambda channels: 150 * channels + 60_706,
        size=32,
    ),
    "lenet5": ModelInfo(
        "bench.models.modules:LeNet5",
        "LeNet-5: 5x5 convolutions of 6, 16 and 120 channels, "
        "a dense layer of 84, which are its features",
        84,
        lambda channels: 150 * channels + 60_706,
        size=32,
    ),
    "lenet5_120": ModelInfo(
        "bench.models.modules:LeNet5Convolutions",
        "FedKF: the same network, whose features are the 120 channels, as in FedKF's code",
        120,
        lambda channels: 150 * channels + 50_542,
        size=32,
        hidden=84,
    ),
    "vgg9": ModelInfo(
        "bench.models.modules:VGG9",
        "FedDKD: VGG-9, six 3x3 convolutions of 32 to 256 channels, "
        "two dense layers of 512, dropout",
        512,
        lambda channels: 288 * channels + 3_485_536,
        size=32,
    ),
    "cnn_femnist": ModelInfo(
        "bench.models.modules:FemnistCNN",
        "FedDKD: 3x3 convolutions of 32, 64 and 64 channels, a dense layer of 512",
        512,
        lambda channels: 288 * channels + 187_040,
        size=32,
    ),
    "cnn_fedgen": ModelInfo(
        "bench.models.modules:FedGenCNN",
        "FedGen: 3x3 convolutions of 6 and 16 channels with BatchNorm, a dense layer of 32",
        32,
        lambda channels: 54 * channels + 26_050,
        size=28,
        always_batchnorm=True,
    ),
    "cnn_fedproto": _fedproto("FedProtoCNN", 20),
    "cnn_fedproto_18": _fedproto("FedProtoCNN18", 18),
    "cnn_fedproto_22": _fedproto("FedProtoCNN22", 22),
    "cnn_digits5": ModelInfo(
        "bench.models.modules:Digits5CNN",
        "FedBN: 5x5 convolutions of 64, 64 and 128 channels, "
        "dense layers of 2048 and 512, BatchNorm",
        512,
        lambda channels: 1_600 * channels + 14_209_280,
        size=28,
        always_batchnorm=True,
    ),
    "resnet8": ModelInfo(
        "bench.models.resnet:resnet8",
        "FedGKD: ResNet-8 of 16/32/64 channels, GroupNorm of 16 channels a group",
        64,
        lambda channels: 144 * channels + 76_960,
        batchnorm_form=True,
    ),
    "resnet8_wide": ModelInfo(
        "bench.models.resnet:resnet8_wide",
        "FedKF: ResNet-8 of 64/128/256 channels, GroupNorm of 1 channel a group",
        256,
        lambda channels: 576 * channels + 1_223_296,
        batchnorm_form=True,
    ),
    "resnet50": ModelInfo(
        "bench.models.resnet:resnet50",
        "FedGKD, FedCAD: ResNet-50 with a 3x3 stem for small images, "
        "GroupNorm of 16 channels a group",
        2048,
        lambda channels: 576 * channels + 23_498_624,
        batchnorm_form=True,
    ),
    "resnet50_imagenet": ModelInfo(
        "bench.models.resnet:resnet50_imagenet",
        "ResNet-50 with the stem for ImageNet, GroupNorm of 16 channels a group",
        2048,
        lambda channels: 3_136 * channels + 23_498_624,
        batchnorm_form=True,
    ),
    "distilbert": _distilbert(
        "pretrained", "FedGKD: DistilBERT, pretrained, and a dense layer of 768", 768, 6, 66_953_472
    ),
    "distilbert_scratch": _distilbert(
        "scratch", "DistilBERT without pretrained weights", 768, 6, 66_953_472
    ),
    "distilbert_tiny": _distilbert(
        "tiny", "DistilBERT's form with 2 layers of 32, for trials", 32, 2, 1_011_296
    ),
}


@dataclass(frozen=True)
class Form:
    """A model by its name: the entry, and the forms that the name adds to it.

    Args:
        base: name of the entry.
        entry: the model's entry.
        lora: rank of the factors that are trained in place of the body's weights; 0 trains the
            weights.
        width: features to which the body's output is pooled; 0 leaves it as it is.
        head: whether the model has MOON's projection head.
        batchnorm: whether it is the form with BatchNorm.
    """

    base: str
    entry: ModelInfo
    lora: int = 0
    width: int = 0
    head: bool = False
    batchnorm: bool = False

    @property
    def has_batchnorm(self) -> bool:
        """Whether the model has BatchNorm layers, in its `+bn` form or as it is."""
        return self.batchnorm or self.entry.always_batchnorm

    @property
    def name(self) -> str:
        """The canonical name: forms of the problem, `+lora8`, then of methods, `+fd64+head+bn`."""
        name = self.base
        if self.lora:
            name += f"+lora{self.lora}"
        if self.width:
            name += f"+fd{self.width}"
        if self.head:
            name += "+head"
        if self.batchnorm:
            name += "+bn"
        return name


@cache
def info(name: str) -> ModelInfo:
    """Return the entry of a model named without its form.

    A model from outside has an entry point's name, or `module:name`.

    Raises:
        UsageError: no such model, or a model from outside is invalid; the message says why.
    """
    if name in MODELS:
        return MODELS[name]
    path = KIND.path(name)
    if path is None:
        raise unknown("model", name, [*MODELS, *KIND.names()], importable=True)
    entry = KIND.load_entry(name, path, ModelInfo)
    if entry.batchnorm_form and entry.always_batchnorm:
        raise KIND.error(
            name,
            "batchnorm_form and always_batchnorm exclude each other: +bn is for models without it",
        )
    return entry


def parse(name: str) -> Form:
    """Return a model's entry and forms.

    Raises:
        UsageError: no such model, or no such form of it.
    """
    base, *forms = name.split("+")
    entry = info(base)
    ranks = [form.removeprefix("lora") for form in forms if form.startswith("lora")]
    widths = [form.removeprefix("fd") for form in forms if form.startswith("fd")]
    plain = [form for form in forms if not form.startswith(("lora", "fd"))]
    repeated = len(set(plain)) != len(plain) or len(ranks) > 1 or len(widths) > 1
    if set(plain) - {"head", "bn"} or repeated:
        raise UsageError(
            f"model {name!r}: a form is +head, +bn, +lora and a rank (+lora8) or +fd and a number "
            f"of features (+fd64), each once, got {'+'.join(forms)!r}"
        )
    rank = _lora_rank(base, entry, ranks[0]) if ranks else 0
    width = _width(base, widths[0]) if widths else 0
    if "bn" in plain:
        _check_batchnorm(base, entry)
    return Form(base, entry, rank, width, "head" in plain, "bn" in plain)


def is_from_outside(name: str) -> bool:
    """Return whether a model, in any of its forms, is none of this suite's."""
    return parse(name).base not in MODELS


def _lora_rank(base: str, entry: ModelInfo, rank: str) -> int:
    """Return the rank of a `+lora` form; raises UsageError if the model has no such form."""
    if entry.lora_parameters is None:
        having = ", ".join(key for key, value in MODELS.items() if value.lora_parameters)
        raise UsageError(f"model {base!r} has no +lora form; models that have one: {having}")
    number = _whole(rank)
    if not 1 <= number <= entry.features:
        raise UsageError(
            f"model {base!r}: the rank of +lora is a whole number from 1 to {entry.features}, "
            f"as in +lora8, got {'+lora' + rank!r}"
        )
    return number


def _width(base: str, width: str) -> int:
    """Return the features of a `+fd` form; raises UsageError for anything but a whole number."""
    number = _whole(width)
    if number < 1:
        raise UsageError(
            f"model {base!r}: the features of +fd are a whole number from 1 to 99999, as in +fd64, "
            f"got {'+fd' + width!r}"
        )
    return number


def _whole(text: str) -> int:
    """Return a whole number of at most five digits; 0 for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _check_batchnorm(base: str, entry: ModelInfo) -> None:
    """Raise UsageError unless the model has a `+bn` form."""
    if entry.always_batchnorm:
        raise UsageError(f"model {base!r} has BatchNorm as it is: leave out +bn")
    if not entry.batchnorm_form:
        having = ", ".join(key for key, value in MODELS.items() if value.batchnorm_form)
        always = ", ".join(key for key, value in MODELS.items() if value.always_batchnorm)
        raise UsageError(
            f"model {base!r} has no +bn form; models that have one: {having}; "
            f"with BatchNorm as they are: {always}"
        )


@cache
def source_version(name: str) -> int | None:
    """Return a number that changes with the source of a model from outside.

    It is None for this suite's own models.

    Raises:
        UsageError: a model from outside is invalid.
    """
    if name in MODELS:
        return None
    paths = (KIND.path(name) or "", info(name).factory)
    return fingerprint(dict.fromkeys(path.partition(":")[0] for path in paths))
