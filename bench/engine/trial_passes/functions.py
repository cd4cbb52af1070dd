"""Checks that a model is a function of its parameters, floating-point buffers and samples.

The engine takes it to be one: what else it keeps would be lost between clients, between training
and evaluation, and by a resumed run.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from algorithms.base import Outputs, Params
from bench.data.dataset import PAD
from bench.engine.dropout import replace_dropout
from bench.engine.rng import seeded
from bench.engine.trial_passes.other_samples import depends_on_others, of_samples
from bench.engine.trial_passes.passes import (
    close,
    differing_name,
    network_of,
    one_pass,
    same,
    same_draws,
    seeded_features,
    trial,
    values_of,
)
from bench.errors import UsageError, with_its_kind
from bench.models.module_state import state_of, tensors_of
from bench.models.registry import KIND


def check_registered(model: str, module: nn.Module, x: Tensor) -> None:
    """Raise UsageError if outputs have gradients at a tensor that is no parameter of the module.

    Such is a weight of a layer in a plain list: it would be neither trained nor sent.
    """
    single = copy.deepcopy(module).float().train()
    replace_dropout(single)
    with seeded(same_draws()):
        outputs: Outputs = single(x)
    registered = {id(value) for value in single.parameters()}
    waiting = [outputs.features.grad_fn, outputs.logits.grad_fn]
    visited = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in registered:
            raise KIND.error(
                model,
                f"uses a tensor of shape {(*leaf.shape,)} that requires gradients and is none of "
                "its parameters, so that it would not be trained: keep layers in nn.ModuleList, "
                "weights in nn.Parameter, and use other models under torch.no_grad()",
            )
        waiting += [following for following, _ in node.next_functions]


@torch.no_grad()
def check_repeats(model: str, module: nn.Module, x: Tensor) -> None:
    """Raise UsageError unless a pass can be repeated to the bit, and leaves no state behind.

    A number that counts passes is state, though it may change results only after many of them. A
    cache that the next pass with the same samples fills alike is none. Neither is a tensor that is
    made in the first pass.
    """
    values = _floats_of(copy.deepcopy(module).float())
    frozen = {name for name, value in module.named_parameters() if not value.requires_grad}
    for training in (True, False):
        mode = "training" if training else "evaluation"
        single = copy.deepcopy(module).float().train(training)
        try:
            seen = _three_passes(model, single, values, x)
        except UsageError:
            raise
        except Exception as error:
            raise KIND.error(
                model,
                f"fails in {mode} with its tensors in float32, as all weights are here: "
                f"{with_its_kind(error)}",
            ) from error
        (first, _), (second, state), (third, later) = seen
        for name, number in state.items():
            if name in later and repr(later[name]) != repr(number):  # a NaN is unlike itself
                raise _no_function(model, f"its {name}, which a pass in {mode} changes,")
        for name, value in first.items():
            if not all(name in one and same(value, one[name]) for one in (second, third)):
                raise _no_function(model, f"its {name} in {mode}")
            is_fixed = not training or name in frozen
            if is_fixed and name in values and not same(value, values[name]):
                raise _no_function(model, f"its {name} after {mode}")


def _three_passes(
    model: str, module: nn.Module, values: Params, x: Tensor
) -> list[tuple[Params, dict[str, object]]]:
    """Return the tensors and output, and what else is kept, after passes with equal values.

    Raises UsageError if a pass changes its inputs.
    """
    replace_dropout(module)
    inputs = x.clone()
    seen = []
    for _ in range(3):
        for name, value in tensors_of(module).items():
            if name in values and value.shape == values[name].shape:
                value.copy_(values[name])
        with seeded(same_draws()):
            output = one_pass(module, x)
        if not torch.equal(x, inputs):
            raise KIND.error(model, "changes its inputs in place: begin `forward` by x = x.clone()")
        tensors = {**_floats_of(module), "output": output}
        seen.append((tensors, state_of(module)))
    return seen


def _floats_of(module: nn.Module) -> Params:
    floats: Params = {}
    for name, value in tensors_of(module).items():
        if value.is_floating_point():
            floats[name] = value.detach().clone()
    return floats


@torch.no_grad()
def check_function(model: str, input_shape: tuple[int, ...], module: nn.Module, x: Tensor) -> None:
    """Raise UsageError unless a module is a function of its tensors, and in evaluation of a sample.

    A network that was called with other values before is compared with a new module that was not,
    and holds the values itself, as a module does in plain PyTorch. (Copies of a module lose which
    of its tensors share memory.)
    """
    holder, _ = trial(model, input_shape)
    _check_equal(model, module, holder)
    net = network_of(module)
    first = values_of(module)
    for call in (net, net.eval):
        seeded_features(call, first, x)
    values = values_of(module)
    still = unchanged_buffers(model, module, x)
    for number, name in enumerate(values):
        if name not in still:
            # Each in a way of its own, so that two names of one memory differ.
            values[name] = values[name] * (1.25 + number % 7 / 20) + 0.03
    holder.float()
    replace_dropout(holder)
    own = tensors_of(holder)
    for name, value in values.items():
        own[name].copy_(value)

    def of_holder(params: Params, x: Tensor) -> Outputs:
        outputs: Outputs = holder(x)
        return outputs

    for mode in ("evaluation", "training", "evaluation after training"):
        holder.train(mode == "training")
        call = net if mode == "training" else net.eval
        got = seeded_features(call, values, x)
        if not close(got, seeded_features(of_holder, values, x)):
            raise _no_function(model, f"its output in {mode}")
        differing = differing_name(values, tensors_of(holder))
        if differing:
            raise _no_function(model, f"its tensor {differing} after {mode}")
    if depends_on_others(model, module, x, first, training=False):
        raise KIND.error(
            model,
            "in evaluation, its output for a sample depends on the samples beside it, so that "
            "accuracies would depend on how samples are cut into batches: use running statistics, "
            f"and mask the token {PAD}, with which texts are filled up",
        )


def _check_equal(model: str, first: nn.Module, second: nn.Module) -> None:
    """Raise UsageError if two constructions from one seed have unlike tensors."""
    others = tensors_of(second)
    for name, value in tensors_of(first).items():
        if not same(value, others[name]):
            raise KIND.error(
                model,
                f"two constructions with one seed differ in {name}: draw it from the global "
                "generator of torch, numpy or Python, or with a generator that has a fixed seed",
            )


def _no_function(model: str, what: str) -> UsageError:
    """Return the error about a model that keeps state beside its tensors."""
    return KIND.error(  # type: ignore[return-value]
        model,
        f"{what} does not follow from its parameters and floating-point buffers alone: it keeps a "
        "tensor, a counter, a cache or a generator of its own, which a resumed run would lack. "
        "Register what it keeps as a floating-point buffer, change buffers in place "
        "(self.mean.copy_(...)), let layers share a Parameter rather than its data, and draw from "
        "torch's own generator",
    )


def unchanged_buffers(model: str, module: nn.Module, x: Tensor) -> frozenset[str]:
    """Return the floating-point buffers that passes in training leave as they are."""
    net = network_of(module)
    buffers = set(net.names) - set(net.trainable)
    if not buffers:
        return frozenset()
    before = values_of(module)
    after = values_of(module)
    inputs = [x, x.flip(0)]
    if x.is_floating_point():
        inputs.append(100 * x)  # for buffers that keep the largest value
    for samples in inputs:
        of_samples(model, net, after, samples, slice(None))
    return frozenset(name for name in buffers if same(before[name], after[name]))
