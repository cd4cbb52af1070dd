"""Inputs of training and evaluation, beside slow and obvious computations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INFO, simulate, toy_dataset

from algorithms.base import Outputs
from algorithms.forward import outputs_of
from bench import data
from bench.data.dataset import Dataset
from bench.engine import arithmetic, samples
from bench.engine.client_round import leaves_of
from bench.engine.model_stacks import samples_of_pass
from bench.engine.samples import ImageSamples, TextSamples, VectorSamples, are_equal, make_samples

CPU = torch.device("cpu")


def images() -> ImageSamples:
    """The toy data's training part, normalised by the rule of CIFAR-10's kind."""
    made = make_samples(toy_dataset(), "train", INFO, "standard", "none", CPU, torch.float64)
    assert isinstance(made, ImageSamples)
    return made


@pytest.mark.parametrize("room", [-1, 0])
def test_pixels_are_normalised(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once while there is room for all of them, else batch by batch."""
    pixels = toy_dataset().train_x
    monkeypatch.setattr(samples, "READY_BYTES", pixels.size * 8 + room)
    made = images()
    assert (made._ready is None) is (room < 0)
    (mean,), (deviation,) = INFO.normalization("standard")
    expected = torch.from_numpy((pixels / INFO.scale - mean) / deviation)
    index = torch.tensor([3, 0, 7])
    for given in (made.at(index), made.batch(index)):
        torch.testing.assert_close(given, expected[index], rtol=1e-12, atol=1e-12)
        assert given.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made.labels, torch.from_numpy(np.array(toy_dataset().train_y)))
    assert made.widths(index[None]) is None
    assert made.by_cost(index) is index


@pytest.mark.parametrize(("count", "is_ready"), [(2_048, True), (2_049, False)])
def test_sixteen_mebibytes_are_made_at_once(count: int, is_ready: bool) -> None:
    x = np.zeros((count, 1, 32, 32), np.uint8)
    info = data.info("mnist")
    wide = replace(info, input_shape=(1, 32, 32))
    samples_of_images = ImageSamples(x, torch.zeros(count), wide, "none", "none", torch.float64)
    assert (samples_of_images._ready is not None) is is_ready


def test_colours_have_their_own_figures() -> None:
    info = data.info("cifar10")
    rng = np.random.RandomState(0)
    x = rng.randint(0, 256, (2, 3, 32, 32)).astype(np.uint8)
    labels = np.arange(2)
    dataset = Dataset.of("cifar10", (x, labels), (x, labels))
    made = make_samples(dataset, "test", info, "fedgkd", "none", CPU, torch.float64)
    mean, deviation = (np.array(part)[:, None, None] for part in info.normalization("fedgkd"))
    expected = torch.from_numpy((x / 255 - mean) / deviation)
    torch.testing.assert_close(made.at(slice(None)), expected, rtol=1e-12, atol=1e-12)


def test_texts_are_as_long_as_the_longest() -> None:
    ids = np.zeros((5, 20), np.int32)
    for row, length in enumerate((20, 9, 8, 1, 0)):
        ids[row, :length] = row + 1
    ids[1, 3] = 0  # within a text
    made = TextSamples(ids, torch.arange(5))
    rows = torch.tensor([[3, 4], [2, 3], [1, 2], [0, 4]])
    assert made.widths(rows) == [8, 8, 16, 20]
    assert made.at(torch.tensor([4])).tolist() == [[0] * 8]
    batch = made.batch(torch.tensor([1, 2]))
    assert (batch.shape, batch.dtype) == ((2, 16), torch.int64)
    assert batch.tolist() == ids[[1, 2], :16].tolist()
    narrow = made.batch(torch.tensor([2, 3]), width=8)
    assert narrow.tolist() == ids[[2, 3], :8].tolist()
    order = made.by_cost(None)
    assert order.tolist() == [4, 3, 2, 1, 0]
    assert made.by_cost(torch.tensor([0, 3, 2])).tolist() == [3, 2, 0]


def test_vectors_are_used_as_they_are() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    made = VectorSamples(x, torch.arange(3), torch.float64)
    assert made.at(slice(1, 3)).tolist() == [[2, 3], [4, 5]]
    assert made.batch(torch.tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    assert made.at(slice(None)).dtype == torch.float64
    x[:] = 0
    assert made.at(slice(1, 2)).tolist() == [[2, 3]], "a copy"


@pytest.mark.parametrize("place", [0, 2, 4])
def test_one_other_number_makes_unequal_parts(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "CHUNK", 2)
    x = np.zeros((5, 3), np.float32)
    one = VectorSamples(x, torch.arange(5), torch.float32)
    assert are_equal(one, one)
    assert are_equal(one, VectorSamples(x, torch.arange(5), torch.float32))
    x[place, 1] = 1
    assert not are_equal(one, VectorSamples(x, torch.arange(5), torch.float32))
    labels = torch.arange(5)
    labels[place] = 9
    assert not are_equal(one, VectorSamples(np.zeros_like(x), labels, torch.float32))


def test_two_data_sets_are_kept() -> None:
    dataset = toy_dataset()
    samples.shared_samples.cache_clear()

    def made(part: str, rule: str) -> object:
        return samples.shared_samples(dataset, part, INFO, rule, "none", CPU, torch.float64)

    requests = [("train", "standard"), ("test", "standard"), ("train", "none"), ("test", "none")]
    first = [made(*request) for request in requests]
    assert all(made(*request) is kept for request, kept in zip(requests, first, strict=True))
    samples.shared_samples(dataset, "test", INFO, "none", "none", CPU, torch.float32)
    assert made(*requests[3]) is first[3]
    assert made(*requests[0]) is not first[0]


def test_outputs_are_made_by_the_hundred() -> None:
    sizes: list[int] = []

    def outputs(params: object, x: torch.Tensor) -> Outputs:
        sizes.append(len(x))
        return Outputs(logits=x, features=2 * x)

    x = torch.arange(250.0)[:, None]
    net: Any = SimpleNamespace(eval=outputs)
    assert torch.equal(outputs_of(net, {}, x).features, 2 * x)
    assert sizes == [100, 100, 50]
    assert [samples_of_pass(CPU, width) for width in (1, 16, 1000)] == [400, 25, 1]
    assert samples_of_pass(torch.device("cuda"), 4) == 250


def test_clients_copy_kernels_with_channels_last() -> None:
    run = simulate("fedavg", model="cnn_digits+bn")
    copies = leaves_of(run.net, run.server.params)
    kernels = {name for name, value in copies.items() if value.dim() == 4}
    assert kernels
    for name, value in copies.items():
        assert torch.equal(value, run.server.params[name])
        assert value.data_ptr() != run.server.params[name].data_ptr()
        assert value.requires_grad is (name in run.net.trainable)
        is_last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
        assert is_last is (name in kernels)


# The arithmetic of a processor


def test_the_hash_is_of_a_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[bytes] = []

    class Digest:
        def update(self, part: bytes) -> None:
            parts.append(part)

        def hexdigest(self) -> str:
            return "0123456789abcdef"

    monkeypatch.setattr(arithmetic.hashlib, "sha256", Digest)
    assert arithmetic._hash() == "01234567"
    numbers = [np.frombuffer(part, np.float32) for part in parts]
    assert [len(part) for part in numbers] == [1, 6 * 3 * 25, 16 * 6 * 25, 10 * 400]
    assert numbers[0] == pytest.approx(np.log(10), abs=0.1), "the loss of small weights"
    assert all(np.isfinite(part).all() and part.any() for part in numbers)


def test_numbers_fill_their_range_evenly() -> None:
    numbers = arithmetic._numbers(2, 3)
    golden = (5**0.5 - 1) / 2
    expected = [(place * golden % 1 - 0.5) / 5 for place in range(1, 7)]
    assert numbers.dtype == torch.float32
    assert numbers.flatten().tolist() == pytest.approx(expected, abs=1e-7)


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    arithmetic.arithmetic.cache_clear()
    first = arithmetic.arithmetic(before + 1)
    assert torch.get_num_threads() == before
    assert set(first) == {"instructions", "arithmetic"}
    assert first["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert len(first["arithmetic"]) == 8
