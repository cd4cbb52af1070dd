"""Bodies of other packages: made, run on two inputs, and checked against their entries."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from bench.models.module_state import checksum, state_of, tensors_of
from bench.models.registry import KIND, parse

_BY_CHANCE = 0.01  # at most this share of drawn numbers is equal in two draws
BATCH = 2  # more than one, to detect a body that flattens too much


@dataclass(frozen=True)
class BodyFacts:
    """The properties of a body that are found by making it.

    Args:
        features: D, the numbers that it returns for an example.
        trainable: numbers of its parameters that are trained.
        loaded: checksum of the parameters, buffers, and other tensors and arrays that every
            construction gives alike, such as pretrained weights; None if there are none. What is
            drawn follows the run's seed. Of the parameters that are trained and the statistics of
            normalisation, tensors of one number, such as ones, do not count: the source says them.
    """

    features: int
    trainable: int
    loaded: int | None


@cache
def examined(name: str, input_shape: tuple[int, ...]) -> BodyFacts:
    """Make a model's body for inputs (C, H, W) or (L,), and describe it.

    No global generator is advanced.

    Raises:
        UsageError: the body cannot be made, or contradicts its entry.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = body_of(name, input_shape)
        torch.manual_seed(1)
        another = body_of(name, input_shape)
    loaded = _alike(_telling(body), tensors_of(another))
    others = _kept_alike(body, another)
    version = _checksum(loaded, others) if loaded or others else None
    return BodyFacts(_feature_dim(name, body, input_shape), _num_trainable(body), version)


def body_of(name: str, input_shape: tuple[int, ...]) -> nn.Module:
    """Build a model's body, initialised from torch's current generator.

    Raises:
        UsageError: it cannot be made, or contradicts its entry.
    """
    form = parse(name)
    entry = form.entry
    factory = KIND.load(name, entry.factory)
    try:
        body = factory(input_shape[0], form.batchnorm)
    except Exception as error:
        call = f"{entry.factory}(channels={input_shape[0]}, batchnorm={form.batchnorm})"
        raise KIND.error(name, f"{call} raises {type(error).__name__}: {error}") from error
    if not isinstance(body, nn.Module):
        raise KIND.error(
            name, f"{entry.factory} gives {type(body).__name__}, not a torch.nn.Module"
        )
    if isinstance(body, torch.jit.ScriptModule):
        raise KIND.error(
            name,
            "is a module of torch.jit, which cannot be called with other weights: give the module "
            "as it was before",
        )
    if form.lora:
        body.add_factors(form.lora)  # type: ignore[operator]
    _check_types(name, body)
    _check_hooks(name, body)
    _check_embeddings(name, body)
    _check_recurrent(name, body)
    _check_batchnorm(name, body)
    features = _feature_dim(name, body, input_shape)
    if entry.features and entry.features != features:
        raise KIND.error(
            name, f"features is {entry.features}, the body returns {features}; 0 counts them"
        )
    if entry.body_parameters and not form.lora:
        total = entry.body_parameters(input_shape[0])
        if form.batchnorm:
            total += entry.batchnorm_parameters
        counted = _num_trainable(body)
        if total != counted:
            raise KIND.error(
                name,
                f"body_parameters is {total:,}, the body has {counted:,}; None counts them",
            )
    return body


def _check_types(name: str, body: nn.Module) -> None:
    """Raise UsageError for tensors of a kind that no backend trains."""
    for tensor_name, value in (*body.named_parameters(), *body.named_buffers()):
        if value.is_complex():
            raise KIND.error(
                name,
                f"{tensor_name} is {value.dtype}: make it two real tensors, and combine them by "
                "torch.complex in `forward`",
            )
        if value.layout != torch.strided:
            raise KIND.error(name, f"{tensor_name} is sparse: make it dense")
        if is_lazy(value):
            continue
        if value.is_inference():
            raise KIND.error(
                name,
                f"{tensor_name} was made under torch.inference_mode, and cannot be trained or "
                "copied into: make it under torch.no_grad",
            )
        if value.numel() == 0:
            raise KIND.error(name, f"{tensor_name} has no numbers: leave it out")
        if 0 in _strides_of_several(value):
            raise KIND.error(
                name,
                f"{tensor_name} is expanded, and its numbers share memory: make it with .clone()",
            )


def _strides_of_several(value: Tensor) -> list[int]:
    """List the strides of the axes with more than one entry."""
    return [stride for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1]


def _check_hooks(name: str, body: nn.Module) -> None:
    """Raise UsageError for hooks of gradients, which the engine's own tensors would lack."""
    for tensor_name, value in body.named_parameters():
        if value._backward_hooks or value._post_accumulate_grad_hooks:
            raise KIND.error(
                name,
                f"{tensor_name} has a hook that changes its gradient, and clients train copies "
                "without it: freeze whole parameters by requires_grad_(False), and multiply parts "
                "by a mask in `forward`",
            )


def _check_embeddings(name: str, body: nn.Module) -> None:
    """Raise UsageError for embeddings that change their weights in evaluation, too."""
    for layer_name, layer in body.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.max_norm is not None:
            raise KIND.error(
                name,
                f"{layer_name or 'the body'} has max_norm={layer.max_norm}, by which torch "
                "rescales weights even in evaluation: leave it out, and scale in `forward`",
            )


def _check_recurrent(name: str, body: nn.Module) -> None:
    """Raise UsageError for parametrized recurrent layers, which go on with their first weights."""
    for layer_name, layer in body.named_modules():
        if isinstance(layer, nn.RNNBase) and is_parametrized(layer):
            raise KIND.error(
                name,
                f"{layer_name or 'the body'} is parametrized, which torch's recurrent layers do "
                "not follow: give it torch.nn.utils.weight_norm, or cells",
            )


def _check_batchnorm(name: str, body: nn.Module) -> None:
    """Raise UsageError if body and entry disagree about BatchNorm layers."""
    for layer_name, layer in body.named_modules():
        if isinstance(layer, nn.SyncBatchNorm):
            raise KIND.error(name, f"{layer_name or 'the body'} is SyncBatchNorm: use nn.BatchNorm")
        if isinstance(layer, _BatchNorm) and (
            layer.momentum is None or not layer.track_running_stats
        ):
            raise KIND.error(
                name,
                f"{layer_name or 'the body'} has momentum={layer.momentum}, track_running_stats="
                f"{layer.track_running_stats}: BatchNorm needs a number and True here, because a "
                "count of batches cannot be averaged, and evaluation must not depend on the batch",
            )
    has_batchnorm = _has_batchnorm(body)
    if has_batchnorm == parse(name).has_batchnorm:
        return
    layers = "has BatchNorm layers" if has_batchnorm else "has no BatchNorm layer"
    raise KIND.error(
        name,
        f"{layers}: always_batchnorm=True says that it has, batchnorm_form=True that its +bn form "
        "alone has; layers that stay in evaluation mode and have frozen weights do not count",
    )


def _has_batchnorm(body: nn.Module) -> bool:
    """Return whether a layer of BatchNorm is trained or takes the statistics of batches."""
    training = body.training
    body.train()
    layers = [part for part in body.modules() if isinstance(part, _BatchNorm)]
    is_active = any(part.training or _num_trainable(part) for part in layers)
    body.train(training)
    return is_active


@torch.no_grad()
def _feature_dim(name: str, body: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Return D, from the output for two examples of zeros; the body stays as it was."""
    tokens = parse(name).entry.tokens
    x = torch.zeros(BATCH, *input_shape, dtype=torch.long if tokens else torch.float32)
    training = body.training
    used = _copy_for_a_pass(body)
    try:
        used.eval()  # a `train` of its own may return nothing
        out = used(x)
    except Exception as error:
        raise KIND.error(
            name, f"fails on inputs {tuple(x.shape)}: {type(error).__name__}: {error}"
        ) from error
    finally:
        used.train(training)
    if used is body:  # a pass may have left what cannot be copied
        _check_copies(name, body)
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != BATCH:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        hint = ""
        if out is None:
            hint = "; a forward hook must be a method of the body, because bodies are copied"
        raise KIND.error(
            name, f"must turn inputs {tuple(x.shape)} into features (B, D), got {shape}{hint}"
        )
    if out.dtype != torch.float32:
        raise KIND.error(name, f"returns features of {out.dtype}: end `forward` by .float()")
    return out.shape[1]


def _copy_for_a_pass(body: nn.Module) -> nn.Module:
    """Copy a body, so that nothing of the pass stays in it.

    The body itself is returned if the pass makes lazy parameters, or tensors that can be copied in
    place of those that cannot, as `torch.nn.utils.weight_norm` does.
    """
    if any(map(is_lazy, body.parameters())):
        return body
    try:
        return copy.deepcopy(body)
    except (RuntimeError, TypeError):
        return body


def _check_copies(name: str, body: nn.Module) -> None:
    """Raise UsageError if torch cannot copy a body."""
    try:
        copy.deepcopy(body)
    except RuntimeError as error:
        reason = "keeps a tensor that was computed from its weights, which would not follow them"
        raise KIND.error(name, f"{reason}: compute it in `forward` ({error})") from error
    except TypeError as error:
        reason = "cannot be copied, as each network needs it"
        raise KIND.error(
            name, f"{reason}: keep no modules of Python, open files or locks in it ({error})"
        ) from error


def _num_trainable(body: nn.Module) -> int:
    return sum(value.numel() for value in body.parameters() if value.requires_grad)


def _telling(body: nn.Module) -> dict[str, Tensor]:
    """Select the parameters and buffers of which `BodyFacts.loaded` tells."""
    learnt = {id(value) for value in body.parameters() if value.requires_grad}
    for part in body.modules():
        if isinstance(part, _NormBase):
            learnt |= set(map(id, part.buffers(recurse=False)))
    telling: dict[str, Tensor] = {}
    for name, value in tensors_of(body).items():
        if id(value) not in learnt or bool((value != value.reshape(-1)[:1]).any()):
            telling[name] = value
    return telling


def _alike(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the tensors that are equal in both mappings, or in part.

    Of a tensor that is equal in part, as a vocabulary with some loaded rows, others are 0.
    """
    alike = {}
    for name, value in first.items():
        is_equal = value == second[name]
        part = value[is_equal]
        if bool(is_equal.all()):
            alike[name] = value
        elif len(part) > _BY_CHANCE * value.numel() and bool((part != part[0]).any()):
            alike[name] = value * is_equal
    return alike


def _kept_alike(body: nn.Module, another: nn.Module) -> dict[str, object]:
    """Describe the tensors and arrays beside parameters and buffers that both bodies keep alike."""
    kept = state_of(another)
    alike: dict[str, object] = {}
    for name, value in state_of(body).items():
        if isinstance(value, tuple) and kept.get(name) == value:
            alike[name] = value
    return alike


def _checksum(values: Mapping[str, Tensor], others: Mapping[str, object]) -> int:
    """Return the CRC-32 of tensors and their names, and of descriptions of others."""
    total = 0
    for name in sorted(values):
        numbers = values[name].detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        total = zlib.crc32(numbers.tobytes(), zlib.crc32(name.encode(), total))
    return checksum(others, total) if others else total
