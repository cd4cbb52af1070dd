"""The samples and networks of trial passes, and what counts as equal results of two of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from algorithms.base import Outputs, Params
from bench import models
from bench.data.dataset import PAD
from bench.engine.network import Network, initial_params, make_module
from bench.engine.pytree import gradients_of
from bench.engine.rng import seeded
from bench.errors import with_its_kind
from bench.models.registry import KIND

SAMPLES = 4  # of the passes; a layer may drop whole samples, and BatchNorm needs two
CLASSES = 2  # the head draws nothing, however many classes it has
TOKENS = 4  # ids below it are in any vocabulary, also one of characters


def _inputs(shape: tuple[int, ...], is_text: bool) -> Tensor:
    """Make inputs that are not zero, because a draw may be multiplied by them."""
    generator = same_draws()
    if is_text:
        texts = torch.randint(1, TOKENS - 1, (SAMPLES, *shape), generator=generator)
        texts[-1, 0] = TOKENS - 1  # which no other sample has
        texts[:-1, shape[0] // 2 + 1 :] = PAD
        return texts
    return torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float32)


def same_draws() -> torch.Generator:
    """Make the generator of a pass, which gives every pass the same numbers."""
    return torch.Generator().manual_seed(0)


def trial(model: str, input_shape: tuple[int, ...]) -> tuple[nn.Module, Tensor]:
    """Make the module and the samples of the passes."""
    module = make_module(lambda: models.make(model, input_shape, CLASSES), seed=0)
    return module, _inputs(input_shape, is_text=models.parse(model).entry.kind == "texts")


def network_of(module: nn.Module, dtype: torch.dtype = torch.float32) -> Network:
    """Make the network of a module that computes in float32 or float64."""
    return Network(module, (), CLASSES, "fp64" if dtype == torch.float64 else "fp32")


def as_type(dtype: torch.dtype, x: Tensor) -> Tensor:
    """Return inputs in a type, but token ids as they are."""
    return x.to(dtype) if x.is_floating_point() else x


def values_of(module: nn.Module, dtype: torch.dtype = torch.float32) -> Params:
    """Copy the parameters and floating-point buffers of a module."""
    return initial_params(module, dtype, torch.device("cpu"))


def sure_gradients(
    model: str, net: Network, loss: Callable[..., Tensor], params: Params, x: Tensor
) -> Params:
    """Return the gradients of a sum of losses.

    Raises:
        UsageError: the model has none, or one is sparse.
    """
    try:
        gradients = gradients_of_sum(net, loss, params, x)
    except CheckpointError as error:
        raise KIND.error(
            model,
            "has dropout layers inside torch.utils.checkpoint, which cannot be repeated: "
            f"checkpoint the parts between them ({with_its_kind(error)})",
        ) from error
    except Exception as error:
        raise KIND.error(model, f"has no gradients: {with_its_kind(error)}") from error
    for name, gradient in gradients.items():
        if gradient.layout != torch.strided:
            raise KIND.error(model, f"{name} has sparse gradients: give the embedding sparse=False")
    return gradients


def gradients_of_sum(
    net: Network, loss: Callable[..., Tensor], params: Params, x: Tensor
) -> Params:
    """Return the gradients of a sum of losses at the trainable parameters."""
    leaves = {name: params[name].requires_grad_() for name in net.trainable}
    return gradients_of(loss(params, x).sum(), leaves)


def seeded_features(call: Callable[[Params, Tensor], Outputs], params: Params, x: Tensor) -> Tensor:
    """Return the features of a call in which the global generators are seeded."""
    with seeded(same_draws()):
        return call(params, x).features


def one_pass(module: nn.Module, x: Tensor) -> Tensor:
    """Run a module, in training with its backward pass, and return its features."""
    with torch.set_grad_enabled(module.training):
        outputs: Outputs = module(x)
        loss = outputs.features.square().sum() + outputs.logits.square().sum()
    if loss.requires_grad:
        torch.autograd.backward([loss])
    module.zero_grad()
    return outputs.features.detach()


def differing_name(expected: Params, got: Params) -> str | None:
    """Return the first name whose tensors differ, or None."""
    return next((name for name in expected if not close(expected[name], got[name])), None)


def same(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors are equal to the bit, but for the kind of a NaN."""
    return first.shape == second.shape and bool(
        torch.all((first == second) | (first.isnan() & second.isnan()))
    )


def largest_value(tensor: Tensor) -> float:
    """Return the largest absolute value of a tensor, of those that are finite."""
    finite = tensor.detach()[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def close(first: Tensor, second: Tensor, allowed: float | None = None) -> bool:
    """Return whether tensors are equal but for rounding in another order.

    `allowed`: the largest difference; by default 1e-4 of the largest value.
    """
    if first.shape != second.shape:
        return False
    if torch.equal(first, second):  # most are, and large
        return True
    if allowed is None:
        allowed = 1e-4 * largest_value(first)
    atol = max(allowed, 1e-6)
    return torch.allclose(first, second.to(first), rtol=0.0, atol=atol, equal_nan=True)
