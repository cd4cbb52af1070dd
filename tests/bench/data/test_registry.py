"""The facts of data sets, as their publishers and the papers' code have them; sizes of images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import data
from bench.errors import UsageError

# Kind, classes, shape, samples to train and to test on, largest value, bytes to fetch; whether a
# mirrored image shows the same class, and what a sample comes from.
FACTS = """
digits images 10 1x8x8 1438 359 16 0 - -
mnist images 10 1x28x28 60000 10000 255 11594722 - -
fashion_mnist images 10 1x28x28 60000 10000 255 30878645 flip -
kmnist images 10 1x28x28 60000 10000 255 21240888 - -
usps images 10 1x16x16 7291 2007 255 8411109 - -
svhn images 10 3x32x32 73257 26032 255 246316178 - -
synthdigits images 10 3x32x32 479400 9553 255 - - -
mnist_m images 10 3x28x28 60000 10000 255 - - -
digits5 images 10 3x28x28 3715 147509 255 - - source
mnist_usps images 10 3x28x28 1486 15860 255 20005831 - source
emnist_letters images 26 1x28x28 124800 20800 255 561753746 - -
femnist images 62 1x28x28 732850 81427 255 - - writer
femnist_letters images 26 1x28x28 370172 41130 255 - - writer
femnist_digits images 10 1x28x28 362658 40295 255 - - writer
cifar10 images 10 3x32x32 50000 10000 255 170498071 flip -
cifar100 images 100 3x32x32 50000 10000 255 169001437 flip -
tiny_imagenet images 200 3x64x64 100000 10000 255 248100043 flip -
ag_news texts 4 128 120000 7600 1 31550506 - -
sst5 texts 5 128 9645 2210 1 - - -
toy2d vectors 4 2 1000 1000 1 0 - -
"""
# Mean and deviation of each channel, in ten-thousandths of white.
STANDARD = """
digits 3058 3766
mnist 1307 3081
fashion_mnist 2860 3530
kmnist 1918 3483
usps 2539 3842
svhn 4377 4438 4728 1980 2010 1970
synthdigits 5000 5000 5000 5000 5000 5000
mnist_m 5000 5000 5000 5000 5000 5000
digits5 5000 5000 5000 5000 5000 5000
mnist_usps 5000 5000 5000 5000 5000 5000
emnist_letters 1722 3309
femnist 5000 5000
femnist_letters 5000 5000
femnist_digits 5000 5000
cifar10 4914 4822 4465 2470 2435 2616
cifar100 5071 4865 4409 2673 2564 2762
tiny_imagenet 4802 4481 3975 2770 2691 2821
"""
OF_PAPERS = """
fedgkd cifar10 4914 4822 4465 2023 1994 2010
fedgkd cifar100 5071 4867 4408 2675 2565 2761
fedgkd tiny_imagenet 5000 5000 5000 5000 5000 5000
fedma cifar100 4914 4824 4467 2471 2435 2616
fedmax emnist_letters 1307 3081
fedgen emnist_letters 5000 5000
fedkf emnist_letters 1739 3170
fedkf cifar100 4914 4822 4465 2023 1994 2010
"""
RULES = [f"standard {line}" for line in STANDARD.strip().splitlines()]
RULES += OF_PAPERS.strip().splitlines()


def test_facts_are_the_published_ones() -> None:
    lines = []
    for name, info in data.DATASETS.items():
        shape = "x".join(map(str, info.input_shape))
        size = "-" if info.download is None else info.download
        flip = "flip" if info.flip else "-"
        parts = [name, info.kind, info.num_classes, shape, info.train_size, info.test_size]
        parts += [info.scale, size, flip, info.groups or "-"]
        lines.append(" ".join(map(str, parts)))
    assert lines == FACTS.strip().splitlines()


@pytest.mark.parametrize("line", RULES)
def test_normalisations_are_the_published_ones(line: str) -> None:
    rule, name, *figures = line.split()
    numbers = np.concatenate(data.info(name).normalization(rule))
    assert np.rint(10_000 * numbers).astype(int).tolist() == list(map(int, figures))
    assert np.allclose(numbers, np.round(numbers, 4), rtol=0, atol=1e-12)


def test_no_other_normalisation_is_there() -> None:
    rules = {tuple(line.split()[:2]) for line in RULES}
    for name, info in data.DATASETS.items():
        channels = info.input_shape[0] if info.kind == "images" else 0
        assert info.normalization("none") == ((0.0,) * channels, (1.0,) * channels)
        assert {(rule, name) for rule in info.normalizations} - {("none", name)} <= rules


@pytest.mark.parametrize("sides", [(32, 20), (20, 32), (8, 8)])
def test_images_up_to_the_size_are_padded(sides: tuple[int, int]) -> None:
    image = replace(data.info("mnist"), input_shape=(1, *sides))
    assert image.sized("pad32").input_shape == (1, 32, 32)
    text = data.info("ag_news")
    assert text.sized("pad32") is text


@pytest.mark.parametrize("sides", [(33, 20), (20, 33)])
def test_larger_images_are_not_padded(sides: tuple[int, int]) -> None:
    image = replace(data.info("mnist"), input_shape=(1, *sides))
    with pytest.raises(UsageError, match=f"have {sides[0]}x{sides[1]}: use own or resize32$"):
        image.sized("pad32")
