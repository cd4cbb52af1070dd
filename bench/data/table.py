"""The data sets as data: what is known of each without reading it. Imports neither torch nor ray, nor numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench.errors import UsageError

Normalization = tuple[tuple[float, ...], tuple[float, ...]]

SIDE = 32  # rows and columns after `pad32` and `resize32`
GROUPS = ("", "source", "writer")  # what it may be known of a sample that it comes from
TOKENS = 128  # what FedGKD (Yao et al. 2021) reads of a text


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without reading it.

    Args:
        name: name in `DATASETS`.
        title: name in print.
        num_classes: classes C; labels are 0 to C - 1.
        input_shape: channels, rows, columns of images; tokens of the longest text; numbers of a vector.
        train_size: training samples; an estimate for FEMNIST's letters and digits.
        test_size: test samples; likewise.
        scale: largest pixel value; pixel / scale lies in [0, 1].
        normalizations: by rule of `Setting.normalization`, mean and standard deviation of each channel, in units of
            pixel / scale; what is no image has none.
        loader: where its `Source` is, as "module:name".
        flip: whether a mirrored image still shows the same class.
        groups: what a training sample comes from, one of `GROUPS`; empty where that is not known.
        download: bytes to fetch where nothing is here yet; 0 for none, None if the host alone knows.
        kind: what a sample is: `images`, `texts` (token ids) or `vectors`.
    """

    name: str
    title: str
    num_classes: int
    input_shape: tuple[int, ...]
    train_size: int
    test_size: int
    scale: int
    normalizations: Mapping[str, Normalization] = field(hash=False)
    loader: str
    flip: bool
    groups: str = ""
    download: int | None = None
    kind: str = "images"

    def normalization(self, rule: str) -> Normalization:
        """Mean and standard deviation of each channel under `rule`, in units of pixel / scale.

        Raises:
            UsageError: the data set has no such rule.
        """
        if rule in self.normalizations:
            return self.normalizations[rule]
        known = ", ".join(self.normalizations)
        raise UsageError(f"normalization must be one of {known} for {self.name}, got {rule!r}")

    def sized(self, image_size: str) -> DatasetInfo:
        """The same data set with images of the size that `Setting.image_size` asks for; itself if they have it.

        Raises:
            UsageError: the images are too large to be padded.
        """
        if image_size == "own" or self.kind != "images" or self.input_shape[1:] == (SIDE, SIDE):
            return self
        channels, rows, columns = self.input_shape
        if image_size == "pad32" and max(rows, columns) > SIDE:
            raise UsageError(
                f"image_size=pad32 pads images to {SIDE}x{SIDE}, those of {self.name} have {rows}x{columns}: "
                f"use own or resize32"
            )
        return replace(self, input_shape=(channels, SIDE, SIDE))


def _none(channels: int) -> Normalization:
    return (0.0,) * channels, (1.0,) * channels


def _half(channels: int) -> Normalization:
    """Pixels from -1 to 1."""
    return (0.5,) * channels, (0.5,) * channels


_PLAIN: dict[str, Normalization] = {"none": ((), ())}
_CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
_CIFAR10_STD_OF_BATCHES = (0.2023, 0.1994, 0.2010)
_FEMNIST = DatasetInfo(
    name="femnist",
    title="FEMNIST",
    num_classes=62,
    input_shape=(1, 28, 28),
    train_size=732_850,
    test_size=81_427,
    scale=255,
    normalizations={"standard": _half(1), "none": _none(1)},
    loader="bench.data.femnist:FEMNIST",
    flip=False,
    groups="writer",
)

# "standard" are the data set's own figures as commonly printed, or 0.5 where none are. The other rules have the figures
# of the code of FedGKD (Yao et al. 2021), FedMA (Wang et al. 2020), FedMAX (Chen et al. 2020), FedGen (Zhu et al. 2021)
# and FedKF (Zhou et al. 2022); on CIFAR-100 those of FedMA and FedKF are CIFAR-10's.
_INFOS = (
    DatasetInfo(
        name="digits",
        title="scikit-learn digits (8x8)",
        num_classes=10,
        input_shape=(1, 8, 8),
        train_size=1438,
        test_size=359,
        scale=16,
        normalizations={"standard": ((0.3058,), (0.3766,)), "none": _none(1)},
        loader="bench.data.embedded:DIGITS",
        flip=False,
        download=0,
    ),
    DatasetInfo(
        name="mnist",
        title="MNIST",
        num_classes=10,
        input_shape=(1, 28, 28),
        train_size=60_000,
        test_size=10_000,
        scale=255,
        normalizations={"standard": ((0.1307,), (0.3081,)), "none": _none(1)},
        loader="bench.data.vision:MNIST",
        flip=False,
        download=11_594_722,
    ),
    DatasetInfo(
        name="usps",
        title="USPS",
        num_classes=10,
        input_shape=(1, 16, 16),
        train_size=7_291,
        test_size=2_007,
        scale=255,
        normalizations={"standard": ((0.2539,), (0.3842,)), "none": _none(1)},
        loader="bench.data.vision:USPS",
        flip=False,
        download=8_411_109,
    ),
    DatasetInfo(
        name="svhn",
        title="SVHN",
        num_classes=10,
        input_shape=(3, 32, 32),
        train_size=73_257,
        test_size=26_032,
        scale=255,
        normalizations={
            "standard": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
            "none": _none(3),
        },
        loader="bench.data.vision:SVHN",
        flip=False,
        download=246_316_178,
    ),
    DatasetInfo(
        name="synthdigits",
        title="SynthDigits",
        num_classes=10,
        input_shape=(3, 32, 32),
        train_size=479_400,
        test_size=9_553,
        scale=255,
        normalizations={"standard": _half(3), "none": _none(3)},
        loader="bench.data.digits5:SYNTHDIGITS",
        flip=False,
    ),
    DatasetInfo(
        name="mnist_m",
        title="MNIST-M",
        num_classes=10,
        input_shape=(3, 28, 28),
        train_size=60_000,
        test_size=10_000,
        scale=255,
        normalizations={"standard": _half(3), "none": _none(3)},
        loader="bench.data.digits5:MNIST_M",
        flip=False,
    ),
    DatasetInfo(
        name="digits5",
        title="Digits-5 (MNIST, SVHN, USPS, SynthDigits, MNIST-M)",
        num_classes=10,
        input_shape=(3, 28, 28),
        train_size=5 * 743,
        test_size=14_000 + 19_858 + 1_860 + 97_791 + 14_000,
        scale=255,
        normalizations={"standard": _half(3), "none": _none(3)},
        loader="bench.data.digits5:DIGITS5",
        flip=False,
        groups="source",
    ),
    DatasetInfo(
        name="mnist_usps",
        title="MNIST and USPS, two sources of Digits-5",
        num_classes=10,
        input_shape=(3, 28, 28),
        train_size=2 * 743,
        test_size=14_000 + 1_860,
        scale=255,
        normalizations={"standard": _half(3), "none": _none(3)},
        loader="bench.data.digits5:MNIST_USPS",
        flip=False,
        groups="source",
        download=20_005_831,
    ),
    DatasetInfo(
        name="emnist_letters",
        title="EMNIST letters",
        num_classes=26,
        input_shape=(1, 28, 28),
        train_size=124_800,
        test_size=20_800,
        scale=255,
        normalizations={
            "standard": ((0.1722,), (0.3309,)),
            "fedmax": ((0.1307,), (0.3081,)),
            "fedgen": _half(1),
            "fedkf": ((0.1739,), (0.3170,)),
            "none": _none(1),
        },
        loader="bench.data.vision:EMNIST_LETTERS",
        flip=False,
        download=561_753_746,
    ),
    _FEMNIST,
    # NIST's Special Database 19, which FEMNIST is made from, has 411,302 letters and 402,953 digits. FEMNIST has 22
    # images more, whose classes are not published, and its test part is a tenth of all classes together.
    replace(
        _FEMNIST,
        name="femnist_letters",
        title="FEMNIST, letters without their case",
        num_classes=26,
        train_size=411_302 - 41_130,
        test_size=41_130,
        loader="bench.data.femnist:LETTERS",
    ),
    replace(
        _FEMNIST,
        name="femnist_digits",
        title="FEMNIST, digits",
        num_classes=10,
        train_size=402_953 - 40_295,
        test_size=40_295,
        loader="bench.data.femnist:DIGITS",
    ),
    DatasetInfo(
        name="cifar10",
        title="CIFAR-10",
        num_classes=10,
        input_shape=(3, 32, 32),
        train_size=50_000,
        test_size=10_000,
        scale=255,
        normalizations={
            "standard": (_CIFAR10_MEAN, (0.2470, 0.2435, 0.2616)),
            "fedgkd": (_CIFAR10_MEAN, _CIFAR10_STD_OF_BATCHES),
            "none": _none(3),
        },
        loader="bench.data.vision:CIFAR10",
        flip=True,
        download=170_498_071,
    ),
    DatasetInfo(
        name="cifar100",
        title="CIFAR-100",
        num_classes=100,
        input_shape=(3, 32, 32),
        train_size=50_000,
        test_size=10_000,
        scale=255,
        normalizations={
            "standard": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
            "fedgkd": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
            "fedma": ((0.4914, 0.4824, 0.4467), (0.2471, 0.2435, 0.2616)),
            "fedkf": (_CIFAR10_MEAN, _CIFAR10_STD_OF_BATCHES),
            "none": _none(3),
        },
        loader="bench.data.vision:CIFAR100",
        flip=True,
        download=169_001_437,
    ),
    DatasetInfo(
        name="tiny_imagenet",
        title="Tiny-ImageNet",
        num_classes=200,
        input_shape=(3, 64, 64),
        train_size=100_000,
        test_size=10_000,
        scale=255,
        normalizations={
            "standard": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
            "fedgkd": _half(3),
            "none": _none(3),
        },
        loader="bench.data.tiny_imagenet:TINY_IMAGENET",
        flip=True,
        download=248_100_043,
    ),
    DatasetInfo(
        name="ag_news",
        title="AG News",
        num_classes=4,
        input_shape=(TOKENS,),
        train_size=120_000,
        test_size=7_600,
        scale=1,
        normalizations=_PLAIN,
        loader="bench.data.text:AG_NEWS",
        flip=False,
        download=31_550_506,
        kind="texts",
    ),
    DatasetInfo(
        name="sst5",
        title="SST-5",
        num_classes=5,
        input_shape=(TOKENS,),
        train_size=8_544 + 1_101,
        test_size=2_210,
        scale=1,
        normalizations=_PLAIN,
        loader="bench.data.text:SST5",
        flip=False,
        kind="texts",
    ),
    DatasetInfo(
        name="toy2d",
        title="four classes in the plane",
        num_classes=4,
        input_shape=(2,),
        train_size=1_000,
        test_size=1_000,
        scale=1,
        normalizations=_PLAIN,
        loader="bench.data.embedded:TOY2D",
        flip=False,
        download=0,
        kind="vectors",
    ),
)
DATASETS: dict[str, DatasetInfo] = {entry.name: entry for entry in _INFOS}
