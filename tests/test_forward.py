"""A frozen model on many samples, where a device has room for few."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from algorithms.base import Outputs
from algorithms.forward import answers, logits_of


class Narrow:
    """A network that has room for so many samples at once."""

    def __init__(self, room: int) -> None:
        self.room, self.tried = room, list[int]()

    def eval(self, params: dict[str, Tensor], x: Tensor) -> Outputs:
        self.tried.append(len(x))
        assert not torch.is_grad_enabled()
        if len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Outputs(x * params["w"], x + 1)


PARAMS = {"w": torch.tensor(3.0, requires_grad=True)}


def test_what_does_not_fit_is_answered_in_halves_in_order() -> None:
    net, x = Narrow(3), torch.randn(10, 2)
    with pytest.warns(UserWarning, match="out of memory with (10|5) samples in one forward pass") as said:
        found = answers(net, PARAMS, x)  # type: ignore[arg-type]
    assert net.tried == [10, 5, 3, 2, 5, 3, 2]
    assert len(said) == 3
    assert torch.equal(found.logits, 3 * x)
    assert torch.equal(found.features, x + 1)


def test_what_fits_is_answered_at_once() -> None:
    net = Narrow(10)
    with warnings.catch_warnings(action="error"):
        answers(net, PARAMS, torch.randn(10, 2))  # type: ignore[arg-type]
        assert answers(net, PARAMS, torch.randn(0, 2)).logits.shape == (0, 2)  # type: ignore[arg-type]
    assert net.tried == [10, 0]


def test_a_sample_that_does_not_fit_ends_it() -> None:
    net = Narrow(0)
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(UserWarning, match="2 samples"):
        logits_of(net, PARAMS, torch.randn(2, 3))  # type: ignore[arg-type]
    assert net.tried == [2, 1]
