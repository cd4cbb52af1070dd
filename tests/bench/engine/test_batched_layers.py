"""A stack's norms and other layers: every client's own, in the precision that autocast gives a single client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import largest_gap, trained
from torch import Tensor
from torch.func import grad, jvp, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from bench.engine.stacked.layers import BatchedLayers
from bench.selftest.toy import EQUAL_SIZES

CLIENTS = 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def check(
    function: Callable[..., Tensor],
    *given: Tensor,
    shared: tuple[int, ...] = (),
    tolerance: float = 1e-10,
) -> None:
    """Values and gradients of the stack are those of each client alone; clients share the operands at `shared`."""

    def found(stacked: bool) -> list[Tensor]:
        leaves = [
            (part[0] if at in shared else part).clone().requires_grad_()
            for at, part in enumerate(given)
        ]
        if stacked:
            with BatchedLayers():
                values = vmap(
                    function, in_dims=tuple(None if at in shared else 0 for at in range(len(given)))
                )(*leaves)
        else:
            each = zip(
                *([leaf] * CLIENTS if at in shared else leaf for at, leaf in enumerate(leaves)),
                strict=True,
            )
            values = torch.stack([function(*own) for own in each])
        return [values, *torch.autograd.grad(values.square().sum(), leaves)]

    for stacked, alone in zip(found(True), found(False), strict=True):
        torch.testing.assert_close(stacked, alone, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "shape", [(2, 4, 5, 6), (3, 4), (2, 4, 7)], ids=["images", "vectors", "sequences"]
)
@pytest.mark.parametrize("shared", [(), (0,), (1, 2)])
def test_every_client_has_its_own_group_norm(
    shape: tuple[int, ...], shared: tuple[int, ...]
) -> None:
    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.relu(F.group_norm(x, 2, weight, bias, 1e-3), inplace=True)

    check(normed, drawn(CLIENTS, *shape), drawn(CLIENTS, 4), drawn(CLIENTS, 4) + 1, shared=shared)


def test_norms_without_weights_and_by_name() -> None:
    check(lambda x: F.group_norm(x, 2), drawn(CLIENTS, 2, 4, 3))
    named = {"num_groups": 2, "eps": 0.1}
    check(
        lambda x, w: F.group_norm(input=x, weight=w, bias=w, **named),
        drawn(CLIENTS, 2, 4, 3),
        drawn(CLIENTS, 4),
    )


@pytest.mark.parametrize("given", [(2,), (3, 1, 1), (2, 2, 0, 1, True)])
@pytest.mark.parametrize("shape", [(2, 4, 5, 6), (4, 5, 6)], ids=["images", "one image"])
def test_every_client_has_its_own_pooling(shape: tuple[int, ...], given: tuple[Any, ...]) -> None:
    check(
        lambda x, factor: F.max_pool2d(x * factor, *given), drawn(CLIENTS, *shape), drawn(CLIENTS)
    )


def test_pooling_with_indices_is_torchs() -> None:
    x = drawn(CLIENTS, 2, 4, 6, 6)

    def pooled(x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = F.max_pool2d(x, 2, return_indices=True)
        return values, places

    with BatchedLayers():
        stacked = vmap(pooled)(x)
    for got, expected in zip(
        stacked, map(torch.stack, zip(*map(pooled, x), strict=True)), strict=True
    ):
        assert torch.equal(got, expected)


def normed(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    """A convolution, a norm of two groups and a ReLU in its place, as models have them."""
    return F.relu(F.group_norm(F.conv2d(x, weight, bias), 2, scale, scale), inplace=True)


def by_grad(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    slopes: Tensor = grad(lambda given: torch.tanh(function(given)).square().sum())(x)
    return slopes


def by_vjp(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    values, pull = vjp(function, x)
    slopes: Tensor = pull(torch.tanh(values))[0]
    return slopes


def by_jvp(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    change: Tensor = jvp(function, (x,), (torch.sin(x),))[1]
    return change


def by_both(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The product of a second derivative and a direction."""
    change: Tensor = jvp(partial(by_grad, function), (x,), (torch.sin(x),))[1]
    return change


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # in torch's own jvp
@pytest.mark.parametrize("differentiated", [by_grad, by_vjp, by_jvp, by_both])
def test_a_hook_may_differentiate_within_a_stack(differentiated: Callable[..., Tensor]) -> None:
    """As FedKF trains generators in its `before_step`."""

    def slopes(x: Tensor, *params: Tensor) -> Tensor:
        return differentiated(lambda given: F.max_pool2d(normed(given, *params), 2), x)

    params = [drawn(CLIENTS, 4, 3, 3, 3), drawn(CLIENTS, 4), drawn(CLIENTS, 4) + 1]
    check(slopes, drawn(CLIENTS, 2, 3, 6, 6), *params, tolerance=1e-8)


def test_a_norm_of_single_values_is_refused_as_by_torch() -> None:
    x = drawn(CLIENTS, 1, 4, 1, 1)
    with BatchedLayers(), pytest.raises(ValueError, match="more than 1 value per channel"):
        vmap(lambda x: F.group_norm(x, 4))(x)


class Copies(TorchDispatchMode):
    """Mode that counts copies of activations."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.count += func is torch.ops.aten.clone.default
        return func(*args, **(kwargs or {}))


def test_norms_and_poolings_keep_the_layout_of_convolutions() -> None:
    """`vmap` by itself copies the activations before each norm and pooling, and again after it."""

    def layers(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        hidden = F.relu(F.group_norm(F.conv2d(x, weight), 2, scale, scale))
        return F.max_pool2d(F.conv2d(hidden, weight), 2)

    x, weight = drawn(2, CLIENTS, 4, 12, 12), drawn(CLIENTS, 4, 4, 3, 3).requires_grad_()
    counts = []
    for mode in (BatchedLayers(), nullcontext()):
        with Copies() as copies, mode:
            values = vmap(layers, in_dims=(1, 0, 0))(x, weight, drawn(CLIENTS, 4))
            torch.autograd.grad(values.square().sum(), weight)
        counts.append(copies.count)
    assert counts[0] == 0 < counts[1]


# In bfloat16.


def test_bfloat16_reaches_convolutions_and_norms() -> None:
    """`vmap` by itself computes convolutions in float32, and multiplies norms by float32."""
    leaves = [drawn(CLIENTS, 4, 3, 3, 3), drawn(CLIENTS, 4), drawn(CLIENTS, 4)]
    leaves = [leaf.float().requires_grad_() for leaf in leaves]
    x = drawn(CLIENTS, 2, 3, 5, 5).float()
    with torch.autocast("cpu", torch.bfloat16), BatchedLayers():
        result = vmap(normed)(x, *leaves)
    assert result.dtype == torch.bfloat16
    exact = torch.stack(list(map(normed, x, *leaves)))
    assert 0 < float((result - exact).detach().abs().max()) < 0.1
    assert all(slope.dtype == torch.float32 for slope in torch.autograd.grad(result.sum(), leaves))


def _attend(x: Tensor, queries: Tensor) -> Tensor:
    mask = torch.ones(3, 6, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(queries, x, x, attn_mask=mask)


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop"
)  # of vmap, which has no attention of its own on a CPU
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(F.prelu, (4,)), (Tensor.prelu, (4,)), (F.linear, (5, 8)), (_attend, (2, 4, 3, 8))],
    ids=["prelu", "prelu as a method", "linear", "attention"],
)
def test_bfloat16_reaches_other_layers(layer: Any, shape: tuple[int, ...]) -> None:
    """They are given an input in bfloat16, and weights in float32."""
    x, weight = drawn(CLIENTS, 2, 4, 6, 8).bfloat16(), drawn(CLIENTS, *shape).float()
    with torch.autocast("cpu", torch.bfloat16):
        alone = torch.stack([layer(*each) for each in zip(x, weight, strict=True)])
        with BatchedLayers():
            stacked = vmap(layer)(x, weight)
    assert stacked.dtype == torch.bfloat16
    torch.testing.assert_close(stacked, alone)


@pytest.mark.parametrize("model", ["cnn_digits+bn", "mlp+bn", "cnn_digits", "resnet8"])
def test_a_stack_in_bfloat16_is_as_near_to_the_loop_as_to_float32(model: str) -> None:
    options = {"rounds": 1, "model": model, "local_epochs": 1, "sizes": EQUAL_SIZES}
    alone, stacked = (
        trained("fedavg", backend, precision="bf16", **options) for backend in ("loop", "stacked")
    )
    exact = trained("fedavg", precision="fp32", **options)
    assert 0 < largest_gap(alone, stacked) <= 3 * largest_gap(alone, exact)


@pytest.mark.parametrize(("algorithm", "model"), [("fedgkd", "resnet8"), ("fedkf", "cnn_digits")])
def test_a_stacked_run_is_the_loops(algorithm: str, model: str) -> None:
    options = {"model": model, "local_epochs": 1, "participation": 1.0, "sizes": EQUAL_SIZES}
    assert (
        largest_gap(trained(algorithm, "loop", **options), trained(algorithm, "stacked", **options))
        < 1e-11
    )
