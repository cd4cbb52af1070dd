"""What tells a body from outside from another: its shape, what it loads, what it keeps."""

from __future__ import annotations

import itertools
import random
import zlib
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bench.models import module_state, outside
from bench.models.module_state import checksum, of_tensor, state_of, tensors_of


def test_a_checksum_is_of_names_and_bytes_in_order() -> None:
    first = torch.tensor([1.0, 2.0])
    second = torch.arange(6, dtype=torch.float64).view(2, 3).T
    joined = b"a" + first.numpy().tobytes() + b"b" + second.contiguous().numpy().tobytes()
    assert outside._checksum({"b": second, "a": first}, {}) == zlib.crc32(joined)
    kept = repr([("x", 1)]).encode()
    assert outside._checksum({"a": first}, {"x": 1}) == zlib.crc32(
        kept, zlib.crc32(b"a" + first.numpy().tobytes())
    )
    assert checksum({"b": 2, "a": 1}) == zlib.crc32(repr([("a", 1), ("b", 2)]).encode())


@pytest.mark.parametrize(
    ("equal", "alike"),
    [
        (list(range(1, 201)), "whole"),
        ([1, 2, 3], "part"),
        ([1, 2], None),  # a hundredth, perhaps by chance
        ([7, 7, 7], None),  # one value, as ones or zeros
        ([], None),
    ],
)
def test_drawn_numbers_are_alike_by_chance_alone(equal: list[int], alike: str | None) -> None:
    first = torch.full((200,), -1.0)
    second = torch.full((200,), -2.0)
    first[: len(equal)] = second[: len(equal)] = torch.tensor(equal, dtype=torch.float32)
    found = outside._alike({"x": first}, {"x": second})
    expected = {None: {}, "whole": {"x": first}, "part": {"x": first * (first == second)}}[alike]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_learnt_ones_and_statistics_tell_nothing() -> None:
    body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    body[2].requires_grad_(False)
    body[2].bias.data.zero_()
    body.register_buffer("table", torch.zeros(2))
    telling = outside._telling(body)
    assert set(telling) == {"0.weight", "0.bias", "2.weight", "2.bias", "table"}
    assert outside._num_trainable(body) == 12 + 6


@pytest.mark.parametrize(
    ("tensor", "strides"),
    [
        (torch.zeros(2, 3), [3, 1]),
        (torch.zeros(1, 3), [1]),
        (torch.zeros(1).expand(4), [0]),
        (torch.zeros(()), []),
    ],
)
def test_strides_are_those_of_several_entries(tensor: Tensor, strides: list[int]) -> None:
    assert outside._strides_of_several(tensor) == strides


def test_batchnorm_counts_while_it_learns_or_measures() -> None:
    body = nn.Sequential(nn.BatchNorm1d(2)).eval()
    assert outside._has_batchnorm(body)
    assert not body.training
    assert not outside._has_batchnorm(nn.Sequential(nn.LayerNorm(2)))


# Beside parameters


class Keeping(nn.Module):
    """A layer that keeps things of all kinds."""

    text_of_class = "t"

    def __init__(self, **kept: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        vars(self).update(kept)


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (3, {"x": 3}),
        ("a", {"x": "a"}),
        (None, {"x": None}),
        (np.float32(2), {"x": 2.0}),
        ([1, "b"], {"x": 2, "x[0]": 1, "x[1]": "b"}),
        ((), {"x": 0}),
        (deque([5]), {"x": 1, "x[0]": 5}),
        ({"k": [7]}, {"x['k']": 1, "x['k'][0]": 7}),
        ({2, 1}, {"x": ["1", "2"]}),
        (SimpleNamespace(y=1), {"x.y": 1}),
        (itertools.count(4), {"x": "count(4)"}),
        (torch.zeros(2), {"x": ((2,), zlib.crc32(bytes(8)))}),
        (np.zeros((1, 2), np.uint8), {"x": ((1, 2), zlib.crc32(bytes(2)))}),
        (nn.ReLU, {}),
    ],
)
def test_what_a_layer_keeps_is_found(value: Any, state: dict[str, Any]) -> None:
    assert state_of(Keeping(x=value)) == {**state, "Keeping.text_of_class": "t"}


def test_generators_are_told_by_their_states() -> None:
    for kind in (torch.Generator, lambda: np.random.default_rng(0), lambda: random.Random(0)):
        first = kind()
        second = kind()
        assert state_of(Keeping(x=first)) == state_of(Keeping(x=second))
        if isinstance(first, torch.Generator):
            first.manual_seed(1)
        else:
            first.random()
        assert state_of(Keeping(x=first)) != state_of(Keeping(x=second))


def test_circles_and_inner_layers_have_names() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    inner = Keeping(x=2)
    inner.register_buffer("order", torch.tensor([1, 0]))
    whole = nn.Sequential(inner, Keeping(x=circle))
    assert state_of(whole) == {
        "0.x": 2,
        "0.order": [1, 0],
        "1.x": 2,
        "1.x[0]": 1,
        "Keeping.text_of_class": "t",
    }
    assert list(tensors_of(whole)) == ["0.weight", "1.weight", "0.order"]


def test_only_dense_tensors_are_described() -> None:
    assert of_tensor(torch.eye(2).to_sparse()) is None
    assert of_tensor(torch.ones(1)) == ((1,), zlib.crc32(torch.ones(1).numpy().tobytes()))
    assert module_state.of_tensor(torch.ones(2, 1).T) == of_tensor(torch.ones(1, 2))
