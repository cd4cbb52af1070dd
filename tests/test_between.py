"""What stands between a stack's convolutions: every client's own norms and ReLUs, for which nothing is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import largest_gap, simulate
from torch import Tensor
from torch.func import grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.captures import traced
from bench.engine.stacked.choices import Always
from bench.engine.stacked.convolutions import WAYS, computed
from bench.engine.stacked.probe import Preparer
from bench.engine.stacked.programs import Captured
from bench.models.rectify import rectify
from bench.selftest.toy import EQUAL_SIZES

CLIENTS = 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


KERNEL = drawn(4, 3, 3, 3)


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Of one client: a convolution, a norm of two groups and a ReLU in its place, as models have them."""
    return rectify(F.group_norm(F.conv2d(x, KERNEL.to(x.dtype), padding=1), 2, weight, bias))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(2, 4, 5, 6), (3, 4), (2, 4, 7)], ids=["images", "vectors", "sequences"])
@pytest.mark.parametrize("dims", [(0, 0, 0), (None, 0, 0), (0, None, None), (1, 0, 0)])
def test_each_way_is_every_clients_own_group_norm(way: str, shape: tuple[int, ...], dims: Any) -> None:
    def value(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.relu(F.group_norm(x, 2, weight, bias, 1e-3), inplace=True).square().sum()

    def found(stacked: bool) -> list[Tensor]:
        parts = [drawn(CLIENTS, *shape), drawn(CLIENTS, 4), drawn(CLIENTS, 4) + 1]
        own = [part if axis is not None else part[0] for part, axis in zip(parts, dims, strict=True)]
        leaves = [part.requires_grad_() for part in own]
        if stacked:
            with computed(way):
                laid = [part if axis != 1 else part.movedim(0, 1) for part, axis in zip(leaves, dims, strict=True)]
                values = vmap(value, in_dims=dims)(*laid)
        else:
            each = [part if axis is not None else [part] * CLIENTS for part, axis in zip(leaves, dims, strict=True)]
            values = torch.stack([value(*one) for one in zip(*each, strict=True)])
        return [values, *torch.autograd.grad(values.sum(), leaves)]

    for stacked, alone in zip(found(True), found(False), strict=True):
        assert torch.allclose(stacked, alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_norms_without_weights_and_by_name(way: str) -> None:
    x, weight = drawn(CLIENTS, 2, 4, 3, 3), drawn(CLIENTS, 4)
    calls: list[Callable[..., Tensor]] = [
        lambda x, w: F.group_norm(x, 2),
        lambda x, w: F.group_norm(x, 2, w),
        lambda x, w: F.group_norm(input=x, num_groups=2, weight=w, bias=w, eps=0.1),
        lambda x, w: F.relu(input=x, inplace=False),
    ]
    for call in calls:
        with computed(way):
            made = vmap(call)(x, weight)
        assert torch.allclose(made, torch.stack(list(map(call, x, weight))), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own use, for forward derivatives
@pytest.mark.parametrize("way", WAYS)
def test_a_hook_may_differentiate_a_norm_within_a_stack(way: str) -> None:
    """And its own gradient is differentiated once more; forward, too, over models of its own."""
    x, weight, bias = drawn(CLIENTS, 2, 3, 5, 5), drawn(CLIENTS, 4), drawn(CLIENTS, 4) + 1

    def slope(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        inner = grad(lambda given, scale: normed(given, scale, bias).square().sum(), argnums=(0, 1))(x, weight)
        return sum((part.square().sum() for part in inner), torch.zeros(()))

    def ahead(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        scales = torch.stack([weight, 2 * weight])
        made, tangent = jvp(
            lambda *given: vmap(lambda s: normed(given[0], s, bias))(given[1]), (x, scales), (x, scales)
        )
        return (made + tangent).square().sum()

    for function in (slope, ahead):
        leaves = [part.clone().requires_grad_() for part in (weight, bias)]
        alone = torch.stack([function(*each) for each in zip(x, *leaves, strict=True)])
        with computed(way):
            made = vmap(function)(x, *leaves)
        slopes = [torch.autograd.grad(values.sum(), leaves) for values in (made, alone)]
        assert torch.allclose(made, alone, rtol=0, atol=1e-9)
        for own, other in zip(*slopes, strict=True):
            assert torch.allclose(own, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_a_norm_keeps_bfloat16(way: str) -> None:
    """`vmap` by itself multiplies by float32, which what follows then is."""
    x = drawn(CLIENTS, 2, 3, 5, 5).float()
    weight, bias = (drawn(CLIENTS, 4).float().requires_grad_() for _ in range(2))

    def made(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return normed(x, weight, bias)

    with computed(way):
        result = vmap(made)(x, weight, bias)
    assert result.dtype == torch.bfloat16
    exact = torch.stack(list(map(normed, x.double(), weight.double(), bias.double())))
    assert 0 < float((result - exact).detach().abs().max()) < 0.05
    assert all(slope.dtype == torch.float32 for slope in torch.autograd.grad(result.sum(), [weight, bias]))


@pytest.mark.parametrize("way", WAYS)
def test_a_resnet_in_each_way_is_the_loops(way: str) -> None:
    options = {"model": "resnet8", "local_epochs": 1, "participation": 1.0, "sizes": EQUAL_SIZES}
    alone, stacked = (simulate("fedgkd", backend, **options) for backend in ("loop", "stacked"))
    stacked.trainer = Stacked(lambda: Captured(Preparer(traced, compiler=None, warm_up=1, choices=Always(way))))
    for run in (alone, stacked):
        run.advance(1)
    assert largest_gap(alone, stacked) < 1e-12


IN_ITS_PLACE: dict[str, Callable[[Tensor], Any]] = {
    "a function": lambda x: F.relu(x, inplace=True),
    "a layer": torch.nn.ReLU(inplace=True),
    "by its name": F.relu_,
    "a method": lambda x: x.relu_(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rectified", IN_ITS_PLACE.values(), ids=IN_ITS_PLACE)
def test_what_a_relu_was_made_of_may_be_read_again(way: str, rectified: Callable[[Tensor], Any]) -> None:
    """As by a shortcut past an activation: in its place means that there is nothing else any more."""

    def value(x: Tensor, weight: Tensor) -> Tensor:
        h = F.group_norm(F.conv2d(x, KERNEL, padding=1), 2, weight, weight)
        rectified(h)
        return (h + F.conv2d(h, KERNEL[:, [0, 1, 2, 0]], padding=1)).sum()

    x, weight = drawn(CLIENTS, 2, 3, 5, 5), drawn(CLIENTS, 4).requires_grad_()
    alone = torch.stack([value(*each) for each in zip(x, weight, strict=True)])
    with computed(way):
        made = vmap(value)(x, weight)
    assert torch.allclose(made, alone, rtol=0, atol=1e-12)
    own, other = (torch.autograd.grad(values.sum(), weight)[0] for values in (made, alone))
    assert torch.allclose(own, other, rtol=0, atol=1e-12)


def copies_of(way: str) -> int:
    """Of activations, in a forward and backward pass of convolution, norm and ReLU."""
    x, weight = drawn(CLIENTS, 2, 4, 5, 5), drawn(CLIENTS, 4).requires_grad_()

    def twice(x: Tensor, weight: Tensor) -> Tensor:
        kernel = weight[:, None, None, None].expand(4, 4, 3, 3)
        for _ in range(2):
            x = rectify(F.group_norm(F.conv2d(x, kernel, padding=1), 2, weight, weight))
        return x.sum()

    with Copies() as seen, computed(way):
        torch.autograd.grad(vmap(twice)(x, weight).sum(), weight)
    return seen.count


class Copies(TorchDispatchMode):
    """Counts what is copied whole."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket in (torch.ops.aten.clone, torch.ops.aten.copy_) and args[0].dim() > 3
        return func(*args, **(kwargs or {}))


def test_grouped_convolutions_norms_and_relus_copy_nothing_for_each_other() -> None:
    """But for the images, which come client by client."""
    assert copies_of("grouped") == 1
