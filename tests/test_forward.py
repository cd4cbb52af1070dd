"""A frozen model on many samples, where a device has room for few."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from algorithms.base import Outputs
from algorithms.forward import Answers, logits_of


class Narrow:
    """A network that has room for so many samples at once, and how it says that they are too many."""

    def __init__(self, room: int, said: Exception | None = None) -> None:
        self.room, self.tried = room, list[int]()
        self.said = said or torch.OutOfMemoryError("CUDA out of memory")

    def eval(self, params: dict[str, Tensor], x: Tensor) -> Outputs:
        self.tried.append(len(x))
        assert not torch.is_grad_enabled()
        if len(x) > self.room:
            raise self.said
        return Outputs(x * params["w"], x + 1)


PARAMS = {"w": torch.tensor(3.0, requires_grad=True)}


SAID = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
]


@pytest.mark.parametrize("error", SAID, ids=["torch", "cudnn", "engine"])
def test_what_does_not_fit_is_answered_in_smaller_chunks_in_order(error: Exception) -> None:
    net, x = Narrow(3, error), torch.randn(10, 2)
    with pytest.warns(UserWarning, match="(10|5) samples") as said:
        found = Answers(net).on(PARAMS, x)  # type: ignore[arg-type]
    assert net.tried == [10, 5, 3, 3, 3, 1]
    assert len(said) == 2
    assert torch.equal(found.logits, 3 * x)
    assert torch.equal(found.features, x + 1)


def test_a_sample_that_does_not_fit_ends_it() -> None:
    net = Narrow(0)
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(UserWarning, match="2 samples"):
        logits_of(net, PARAMS, torch.randn(2, 3))  # type: ignore[arg-type]
    assert net.tried == [2, 1]
