"""`image_size` changes the images before anything else sees them; where it changes nothing it is no part of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import INFO, TINY, toy_dataset, toy_split

from algorithms import build, entry
from bench import data
from bench.data.dataset import padded
from bench.engine.simulation import Simulation
from bench.errors import UsageError
from bench.planning.settings import canonical, supply
from search_spaces import SETTINGS

FEMNIST = SETTINGS["feddkd", "emnist_letters"]


def test_padding_puts_the_image_in_the_middle():
    pixels = np.random.RandomState(0).randint(1, 256, (3, 1, 28, 28)).astype(np.uint8)
    found = padded(pixels, 32)
    np.testing.assert_array_equal(found[:, :, 2:-2, 2:-2], pixels)
    assert found.sum() == pixels.sum()
    assert padded(pixels[:, :, :27], 32).shape == (3, 1, 32, 32)


@pytest.mark.parametrize("image_size", ["pad32", "resize32"])
def test_a_sized_data_set_is_cached(image_size):
    toy = toy_dataset()
    found = toy.sized(image_size)
    assert found.train_x.shape == (66, 1, 32, 32)
    assert found.test_x.shape == (30, 1, 32, 32)
    assert not found.train_x.flags.writeable
    np.testing.assert_array_equal(found.train_y, toy.train_y)
    assert found is toy.sized(image_size)
    assert len({toy.hash, toy.sized("pad32").hash, toy.sized("resize32").hash}) == 3
    assert toy.sized("own") is toy
    assert found.sized(image_size) is found
    info = INFO.sized(image_size)
    assert info.input_shape == (1, 32, 32)
    assert info.sized(image_size) is info


def test_large_images_cannot_be_padded():
    info = data.info("tiny_imagenet")
    assert info.sized("resize32").input_shape == (3, 32, 32)
    with pytest.raises(UsageError, match="tiny_imagenet"):
        info.sized("pad32")


def test_an_idle_size_enters_no_key():
    assert canonical(replace(SETTINGS["fedkf", "cifar10"], image_size="pad32")).image_size == "own"
    assert canonical(replace(FEMNIST, partition="lda", alpha=0.5)).image_size == "pad32"
    with pytest.raises(UsageError, match="pad32"):
        canonical(
            replace(
                FEMNIST,
                dataset="tiny_imagenet",
                partition="lda",
                normalization="standard",
                alpha=0.5,
            )
        )


def test_models_are_checked_against_the_size():
    assert supply(entry("fedavg"), FEMNIST).model == "cnn_femnist"
    with pytest.raises(UsageError, match="cnn_femnist"):
        supply(entry("fedavg"), replace(FEMNIST, image_size="own"))
    assert supply(entry("fedavg"), SETTINGS["feddkd_emnist", "emnist_letters"]).image_size == "own"
    assert supply(entry("fedavg"), SETTINGS["fedkf", "emnist_letters"]).image_size == "resize32"


@pytest.mark.parametrize("image_size", ["pad32", "resize32"])
def test_a_run_trains_on_the_resulting_images(image_size):
    setting = replace(TINY, model="lenet5", image_size=image_size, rounds=1, precision="fp32")
    toy = toy_dataset()
    run = Simulation(build("fedavg"), setting, 0, toy, INFO, toy_split())
    assert run.net.input_shape == (1, 32, 32)
    inputs = run.federation.train.batch(run.federation.clients[0])
    pixels = toy.sized(image_size).train_x[toy_split().clients[0]]
    np.testing.assert_allclose(inputs.numpy(), (pixels / 255 - 0.5) / 0.25, atol=1e-5)
    run.advance()


# Samples for training and testing, and classes, as the sources of each set state them.
PUBLISHED = {
    "mnist": (60_000, 10_000, 10),
    "fashion_mnist": (60_000, 10_000, 10),
    "kmnist": (60_000, 10_000, 10),
    "usps": (7_291, 2_007, 10),
    "svhn": (73_257, 26_032, 10),
    "emnist_letters": (124_800, 20_800, 26),
    "cifar10": (50_000, 10_000, 10),
    "cifar100": (50_000, 10_000, 100),
    "tiny_imagenet": (100_000, 10_000, 200),
    "ag_news": (120_000, 7_600, 4),
    "sst5": (8_544 + 1_101, 2_210, 5),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_as_published(name):
    found = data.info(name)
    assert (found.train_size, found.test_size, found.num_classes) == PUBLISHED[name]
