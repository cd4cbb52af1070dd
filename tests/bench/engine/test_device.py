"""What the tests for a GPU rely on: true of a CUDA device, and of the pretended one (`tests/pretended`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from bench.engine.stacked.step_executors import cuda_graphs, warm_up

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def there(*values: float) -> Tensor:
    return torch.tensor(values, device="cuda", dtype=torch.float32)


def test_operands_lie_on_one_device() -> None:
    for act in (
        lambda x, y: x + y,
        lambda x, y: torch.stack([x[0], y[0]]),
        lambda x, y: y[0].add_(x[0]),
    ):
        with pytest.raises(RuntimeError, match="on the same device"):
            act(there(1, 2), torch.ones(2))
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(2, generator=torch.Generator(), device="cuda")


WAITING: dict[str, Callable[[Tensor], object]] = {
    "an answer": lambda x: float(x.sum()),
    "a copy to the host": lambda x: x.cpu(),
    "a copy from the host": lambda x: torch.ones(2).to(x.device),
    "as many as a mask has": lambda x: x[x > 0],
    "positions from the host": lambda x: x[torch.tensor([0])],
    "a comparison": lambda x: torch.allclose(x, x),
}


@pytest.mark.parametrize("act", WAITING.values(), ids=WAITING)
def test_a_step_that_waits_is_refused(act: Callable[[Tensor], object]) -> None:
    x = there(1, 2)

    def step() -> None:
        act(x)

    warm_up(step, may_wait=True)
    with pytest.raises(RuntimeError, match="synchronizing"):
        warm_up(step, may_wait=False)


def test_a_capture_changes_nothing_and_a_replay_goes_on_from_what_is_there() -> None:
    x, slope = there(1, 2), there(0, 0)

    def step() -> None:
        leaf = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(vmap(lambda value: value**3)(leaf).sum(), leaf)
        slope.copy_(found)
        x.add_(1)

    warm_up(step, may_wait=False)
    replay = cuda_graphs()(step)
    assert x.tolist() == [2, 3]
    replay()
    replay()
    assert (x.tolist(), slope.tolist()) == ([4, 5], [27, 48])
    x.zero_()
    replay()
    assert (x.tolist(), slope.tolist()) == ([1, 1], [0, 0])
