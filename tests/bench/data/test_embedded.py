"""Made-up samples, which have the form of real ones, and the federation that they are dealt to."""

from __future__ import annotations

import numpy as np
import pytest

from bench import data
from bench.data.dataset import drawn_test_part
from bench.data.embedded import made_up, made_up_samples


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10"])
def test_images_of_a_class_share_a_pattern(name: str) -> None:
    info = data.info(name)
    x, labels = made_up_samples(3 * info.num_classes, info)
    assert (x.shape, x.dtype) == ((len(labels), *info.input_shape), np.uint8)
    assert labels.tolist() == [*range(info.num_classes)] * 3
    half = info.scale // 2
    assert half < x.max() <= 2 * half <= info.scale
    spread = [np.ptp(x[labels == label].astype(int), axis=0).max() for label in range(3)]
    assert max(spread) <= half, "noise alone"
    assert x[0].tolist() != x[info.num_classes].tolist()
    whole = made_up_samples(2_000, data.info("digits"))[0]
    assert whole.max() == 16


def test_texts_and_vectors_are_of_full_length() -> None:
    texts, labels = made_up_samples(50, data.info("ag_news"))
    assert (texts.shape, texts.dtype) == ((50, 128), np.int32)
    assert 1 <= texts.min() < texts.max() <= 999
    assert labels[:6].tolist() == [0, 1, 2, 3, 0, 1]


def test_samples_are_dealt_in_order() -> None:
    dataset, split = made_up(data.info("digits"), 2, 3, 4, 5, 7)
    assert [part.tolist() for part in split.clients] == [[0, 1, 2], [3, 4, 5]]
    assert split.auxiliary.tolist() == [6, 7, 8, 9]
    assert split.validation.tolist() == [10, 11, 12, 13, 14]
    assert [len(part) for part in (*split.local_tests, *split.local_validations)] == [0] * 4
    assert (len(dataset.train_y), len(dataset.test_y), dataset.name) == (15, 7, "digits")


def test_a_fifth_of_each_class_is_drawn_to_test() -> None:
    labels = np.repeat([0, 1, 2, 5], [2, 3, 12, 13])
    test = drawn_test_part(labels)
    assert test.dtype == np.bool_
    assert [int(test[labels == label].sum()) for label in (0, 1, 2, 5)] == [0, 1, 2, 3]
    assert np.array_equal(test, drawn_test_part(labels))
