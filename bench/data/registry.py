"""The registry of data sets: facts of each that need no reading.

Imports neither torch nor ray, nor numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench.errors import UsageError

Normalization = tuple[tuple[float, ...], tuple[float, ...]]

SIDE = 32  # rows and columns after `pad32` and `resize32`
GROUPS = ("", "source", "writer")  # origins of a sample that a data set may record
TOKENS = 128  # of each text, as FedGKD (Yao et al. 2021) reads it


@dataclass(frozen=True)
class DatasetInfo:
    """Facts of a data set that need no reading.

    Args:
        name: in commands and rows.
        title: in print.
        num_classes: classes C; labels are 0 to C - 1.
        input_shape: channels, rows, columns of images; tokens of the longest text; numbers of a
            vector.
        train_size: samples of the training part; an estimate for FEMNIST's letters and digits.
        test_size: samples of the test part, likewise.
        scale: largest pixel value; pixel / scale lies in [0, 1].
        normalizations: by rule of `Setting.normalization`, mean and standard deviation of each
            channel, in units of pixel / scale; texts and vectors have none.
        loader: where its `Loader` is, as "module:name".
        flip: whether a mirrored image still shows the same class.
        groups: what a training sample comes from, one of `GROUPS`; empty if that is not known.
        download: bytes to fetch if nothing is here yet; 0 for none, None if only the host knows.
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
        """Return mean and standard deviation of each channel under `rule`, in pixel / scale.

        Raises UsageError for an unknown rule.
        """
        if rule in self.normalizations:
            return self.normalizations[rule]
        rules = ", ".join(self.normalizations)
        raise UsageError(f"normalization must be one of {rules} for {self.name}, got {rule!r}")

    def sized(self, image_size: str) -> DatasetInfo:
        """Return the entry with images of the size that `Setting.image_size` names.

        It is the entry itself if its images have that size.

        Raises UsageError if the images are too large to be padded.
        """
        if image_size == "own" or self.kind != "images" or self.input_shape[1:] == (SIDE, SIDE):
            return self
        channels, rows, columns = self.input_shape
        if image_size == "pad32" and max(rows, columns) > SIDE:
            raise UsageError(
                f"image_size=pad32 pads images to {SIDE}x{SIDE}, those of {self.name} have "
                f"{rows}x{columns}: use own or resize32"
            )
        return replace(self, input_shape=(channels, SIDE, SIDE))


def _images(
    name: str,
    title: str,
    num_classes: int,
    input_shape: tuple[int, int, int],
    sizes: tuple[int, int],
    loader: str,
    rules: Mapping[str, Normalization],
    download: int | None = None,
    *,
    scale: int = 255,
    flip: bool = False,
    groups: str = "",
) -> DatasetInfo:
    """Make the entry of an image data set.

    `sizes` are those of both parts, `loader` is in this package, and `rules` has the normalisations
    besides `none`.
    """
    channels = input_shape[0]
    normalizations = {**rules, "none": ((0.0,) * channels, (1.0,) * channels)}
    loader = f"bench.data.{loader}"
    return DatasetInfo(
        name,
        title,
        num_classes,
        input_shape,
        *sizes,
        scale,
        normalizations,
        loader,
        flip,
        groups,
        download,
    )


def _texts(
    name: str,
    title: str,
    num_classes: int,
    sizes: tuple[int, int],
    loader: str,
    download: int | None = None,
) -> DatasetInfo:
    """Make the entry of a data set of texts; arguments as in `_images`."""
    loader = f"bench.data.{loader}"
    return DatasetInfo(
        name,
        title,
        num_classes,
        (TOKENS,),
        *sizes,
        1,
        _PLAIN,
        loader,
        False,
        "",
        download,
        kind="texts",
    )


def _standard(mean: tuple[float, ...], deviation: tuple[float, ...]) -> dict[str, Normalization]:
    return {"standard": (mean, deviation)}


# "standard" are the data set's own figures as commonly printed, or 0.5 if none are, which gives
# pixels from -1 to 1. The other rules have the figures of the code of FedGKD (Yao et al. 2021),
# FedMA (Wang et al. 2020), FedMAX (Chen et al. 2020), FedGen (Zhu et al. 2021) and FedKF (Zhou et
# al. 2022); on CIFAR-100 FedMA's and FedKF's are CIFAR-10's.
_GREY = _standard((0.5,), (0.5,))
_RGB = _standard((0.5,) * 3, (0.5,) * 3)
_CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
_CIFAR10_STD_OF_BATCHES = (0.2023, 0.1994, 0.2010)
_LETTERS = {
    "standard": ((0.1722,), (0.3309,)),
    "fedmax": ((0.1307,), (0.3081,)),
    "fedgen": ((0.5,), (0.5,)),
    "fedkf": ((0.1739,), (0.3170,)),
}
_CIFAR10 = {
    "standard": (_CIFAR10_MEAN, (0.2470, 0.2435, 0.2616)),
    "fedgkd": (_CIFAR10_MEAN, _CIFAR10_STD_OF_BATCHES),
}
_CIFAR100 = {
    "standard": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "fedgkd": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "fedma": ((0.4914, 0.4824, 0.4467), (0.2471, 0.2435, 0.2616)),
    "fedkf": (_CIFAR10_MEAN, _CIFAR10_STD_OF_BATCHES),
}
_DIGITS = _standard((0.3058,), (0.3766,))
_MNIST = _standard((0.1307,), (0.3081,))
_FASHION = _standard((0.2860,), (0.3530,))
_KMNIST = _standard((0.1918,), (0.3483,))
_USPS = _standard((0.2539,), (0.3842,))
_SVHN = _standard((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
_TINY = {
    "standard": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
    "fedgkd": ((0.5,) * 3, (0.5,) * 3),
}
_PLAIN: dict[str, Normalization] = {"none": ((), ())}

# NIST's Special Database 19, which FEMNIST is made from, has 411,302 letters and 402,953 digits.
# FEMNIST has 22 images more, whose classes are not published, and its test part is a tenth of all
# classes together.
_INFOS = (
    _images(
        "digits",
        "scikit-learn digits (8x8)",
        10,
        (1, 8, 8),
        (1438, 359),
        "embedded:DIGITS",
        _DIGITS,
        0,
        scale=16,
    ),
    _images(
        "mnist", "MNIST", 10, (1, 28, 28), (60_000, 10_000), "vision:MNIST", _MNIST, 11_594_722
    ),
    _images(
        "fashion_mnist",
        "Fashion-MNIST",
        10,
        (1, 28, 28),
        (60_000, 10_000),
        "vision:FASHION_MNIST",
        _FASHION,
        30_878_645,
        flip=True,
    ),
    _images(
        "kmnist", "KMNIST", 10, (1, 28, 28), (60_000, 10_000), "vision:KMNIST", _KMNIST, 21_240_888
    ),
    _images("usps", "USPS", 10, (1, 16, 16), (7_291, 2_007), "vision:USPS", _USPS, 8_411_109),
    _images("svhn", "SVHN", 10, (3, 32, 32), (73_257, 26_032), "vision:SVHN", _SVHN, 246_316_178),
    _images(
        "synthdigits", "SynthDigits", 10, (3, 32, 32), (479_400, 9_553), "digits5:SYNTHDIGITS", _RGB
    ),
    _images("mnist_m", "MNIST-M", 10, (3, 28, 28), (60_000, 10_000), "digits5:MNIST_M", _RGB),
    _images(
        "digits5",
        "Digits-5 (MNIST, SVHN, USPS, SynthDigits, MNIST-M)",
        10,
        (3, 28, 28),
        (5 * 743, 14_000 + 19_858 + 1_860 + 97_791 + 14_000),
        "digits5:DIGITS5",
        _RGB,
        groups="source",
    ),
    _images(
        "mnist_usps",
        "MNIST and USPS, two sources of Digits-5",
        10,
        (3, 28, 28),
        (2 * 743, 14_000 + 1_860),
        "digits5:MNIST_USPS",
        _RGB,
        20_005_831,
        groups="source",
    ),
    _images(
        "emnist_letters",
        "EMNIST letters",
        26,
        (1, 28, 28),
        (124_800, 20_800),
        "vision:EMNIST_LETTERS",
        _LETTERS,
        561_753_746,
    ),
    _images(
        "femnist",
        "FEMNIST",
        62,
        (1, 28, 28),
        (732_850, 81_427),
        "femnist:FEMNIST",
        _GREY,
        groups="writer",
    ),
    _images(
        "femnist_letters",
        "FEMNIST, letters without their case",
        26,
        (1, 28, 28),
        (411_302 - 41_130, 41_130),
        "femnist:LETTERS",
        _GREY,
        groups="writer",
    ),
    _images(
        "femnist_digits",
        "FEMNIST, digits",
        10,
        (1, 28, 28),
        (402_953 - 40_295, 40_295),
        "femnist:DIGITS",
        _GREY,
        groups="writer",
    ),
    _images(
        "cifar10",
        "CIFAR-10",
        10,
        (3, 32, 32),
        (50_000, 10_000),
        "vision:CIFAR10",
        _CIFAR10,
        170_498_071,
        flip=True,
    ),
    _images(
        "cifar100",
        "CIFAR-100",
        100,
        (3, 32, 32),
        (50_000, 10_000),
        "vision:CIFAR100",
        _CIFAR100,
        169_001_437,
        flip=True,
    ),
    _images(
        "tiny_imagenet",
        "Tiny-ImageNet",
        200,
        (3, 64, 64),
        (100_000, 10_000),
        "vision:TINY_IMAGENET",
        _TINY,
        248_100_043,
        flip=True,
    ),
    _texts("ag_news", "AG News", 4, (120_000, 7_600), "text:AG_NEWS", 31_550_506),
    _texts("sst5", "SST-5", 5, (8_544 + 1_101, 2_210), "text:SST5"),
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
