"""Trial passes that find what a model from outside draws, keeps, and cannot do in a stack.

Layers such as `nn.Dropout` take their masks from a key (`bench.engine.dropout`). Others draw from
torch's, numpy's or Python's global generator: `F.dropout`, the dropout inside
`nn.MultiheadAttention`, torchvision's `StochasticDepth`. Runs of such a model train client by
client, with the generators seeded for each client and round (`RunContext.own_draws`), so that they
can be repeated and resumed. Neither vmap nor a captured step can repeat them.

Further passes show whether a model is a function of its parameters, its floating-point buffers and
its samples, as the engine takes it to be: what else it keeps would be lost between clients, between
training and evaluation, and by a resumed run. The last ones compare a stack with single clients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils.checkpoint import CheckpointError

from algorithms.base import Outputs, Params
from bench import models
from bench.data.dataset import PAD
from bench.engine.dropout import replace_dropout, step_keys
from bench.engine.network import Network, initial_params, make_module
from bench.engine.pytree import gradients_of, stack, tree_map
from bench.engine.rng import global_states, seeded
from bench.errors import UsageError, in_a_line, with_its_kind
from bench.models.module_state import state_of, tensors_of
from bench.models.registry import KIND

SAMPLES = 4  # of the passes; a layer may drop whole samples, and BatchNorm needs two
CLASSES = 2  # the head draws nothing, however many classes it has
TOKENS = 4  # ids below it are in any vocabulary, also one of characters
LARGEST_STACKED = 30_000_000  # numbers of a model that is tried in a stack


@cache
def drawing_layer(model: str, input_shape: tuple[int, ...]) -> str:
    """Return the innermost layer by which a model draws in training; empty for none.

    It is written as `body.drop (DropPath)`. This suite's own models are known to draw nothing, and
    are not run.

    Raises:
        UsageError: the model draws in evaluation mode, too, or is no function of its tensors and
            samples (`_check_function`), so that no run of it could be repeated.
    """
    if not models.is_from_outside(model):
        return ""
    module, x = _trial(model, input_shape)
    evaluated = copy.deepcopy(module).eval()
    if layer := _drawing_in(model, evaluated, x):
        raise KIND.error(
            model,
            f"{layer} draws random numbers in evaluation mode, too: let it draw only if "
            "self.training, as F.dropout(x, p, self.training) does",
        )
    training = copy.deepcopy(module).train()
    replace_dropout(training)
    layer = _drawing_in(model, training, x)
    _check_repeats(model, module, x)
    _check_function(model, input_shape, module, x)
    return layer


@cache
def mixes_samples(model: str, input_shape: tuple[int, ...]) -> bool:
    """Return whether what a model from outside does in training depends on the batch's other rows.

    So does torch's BatchNorm, which the network finds by itself. A model that draws is not judged.
    """
    if not models.is_from_outside(model) or drawing_layer(model, input_shape):
        return False
    module, x = _trial(model, input_shape)
    if _network_of(module).batch_statistics:
        return True
    return _depends_on_others(model, module, x, _values(module), training=True)


def _depends_on_others(
    model: str, module: nn.Module, x: Tensor, values: Params, training: bool
) -> bool:
    """Return whether a sample's features depend on other samples.

    In training, gradients of its own loss and the tensors that the pass changes are compared, too.
    What float32 tells apart may be rounding that a steep function has enlarged. Float64 then
    decides, unless the module computes in float32 alone.
    """
    if not _depends_in(torch.float32, model, module, x, values, training):
        return False
    try:
        return _depends_in(torch.float64, model, module, x, values, training)
    except Exception:
        return True


@torch.no_grad()
def _depends_in(
    dtype: torch.dtype,
    model: str,
    module: nn.Module,
    x: Tensor,
    values: Params,
    training: bool,
) -> bool:
    """Compare a batch without each of its samples with the whole, as `_depends_on_others`."""
    net = _network_of(module, dtype)
    x = _as(dtype, x)
    values = {name: value.to(dtype) for name, value in values.items()}
    whole = None if training else _seeded_features(net.eval, values, x)
    for left_out in range(SAMPLES):
        part = [place for place in range(SAMPLES) if place != left_out]
        if whole is None:
            depends = _mixes_in_training(model, net, values, x, part)
        else:
            alone = _seeded_features(net.eval, values, _cut(x[part]))
            depends = not _close(whole[part], alone)
        if depends:
            return True
    return False


def _mixes_in_training(
    model: str, net: Network, values: Params, x: Tensor, part: list[int]
) -> bool:
    of_all = tree_map(torch.clone, values)
    of_some = tree_map(torch.clone, values)
    features, gradients = _of_samples(model, net, of_all, x, part)
    alone, gradients_alone = _of_samples(model, net, of_some, _cut(x[part]), slice(None))
    if not _close(features, alone) or _differing(of_all, of_some):
        return True
    largest = max(map(_largest, gradients.values()), default=0.0)
    for name, gradient in gradients.items():
        if not _close(gradient, gradients_alone[name], 1e-4 * largest):
            return True
    return False


def _cut(x: Tensor) -> Tensor:
    """Cut texts to the longest of them, as batches are; other samples stay as they are."""
    if x.is_floating_point():
        return x
    used = int((x != PAD).any(0).nonzero().max()) + 1
    return x[:, :used]


def _of_samples(
    model: str, net: Network, params: Params, x: Tensor, part: slice | list[int]
) -> tuple[Tensor, Params]:
    """Return features in training and gradients of a loss, both of some samples."""

    def loss(params: Params, x: Tensor) -> Tensor:
        with net.dropout(step_keys(_same_draws(), 1)[0]):
            outputs = net(params, x)
        features.append(outputs.features[part].detach())
        return outputs.logits[part].square()

    features: list[Tensor] = []
    with torch.enable_grad(), seeded(_same_draws()):
        gradients = _sure_gradients(model, net, loss, params, x)
    return features[0], gradients


@cache
def check_stacks(model: str, input_shape: tuple[int, ...]) -> None:
    """Check that a stack computes what a model from outside computes for each client alone.

    Models of more than `LARGEST_STACKED` numbers are not checked: for some layers vmap needs a
    copy of the weights for each position of a sample.

    Raises:
        UsageError: torch's `vmap` cannot map a layer, or gives other results or gradients.
    """
    if not models.is_from_outside(model):
        return
    module, x = _trial(model, input_shape)
    if sum(value.numel() for value in module.parameters()) > LARGEST_STACKED:
        return
    module.still_buffers = still_buffers(model, input_shape)  # type: ignore[assignment]
    differing = _differing_in_stack(model, module, x, torch.float32)
    if differing:  # in a deep network perhaps by rounding, of which float64 has less
        with suppress(UsageError):  # a model may compute in float32 alone
            differing = _differing_in_stack(model, module, x, torch.float64)
    if differing:
        raise _not_stacked(model, f"torch's vmap gives {differing} other values")


def _differing_in_stack(model: str, module: nn.Module, x: Tensor, dtype: torch.dtype) -> str | None:
    """Return a tensor that has another gradient or value after a step in a stack, or None."""
    from bench.engine.stacked.layers import layers_of

    net = _network_of(module, dtype)
    x = _as(dtype, x)
    inputs = torch.stack([x, x.flip(0)])
    alone = [_values(module, dtype), _values(module, dtype)]
    together: Params = stack(alone)

    def loss(params: Params, x: Tensor) -> Tensor:
        out = net(params, x)
        return out.features.square().mean() + out.logits.square().mean()

    expected = []
    for params, own_inputs in zip(alone, inputs, strict=True):
        expected.append(_sure_gradients(model, net, loss, params, own_inputs))
    try:
        with layers_of(net):
            got = _gradients(net, vmap(loss, randomness="error"), together, inputs)
    except Exception as error:
        raise _not_stacked(model, in_a_line(error)) from error
    pairs: list[tuple[Params, Params]] = [(stack(expected), got), (stack(alone), together)]
    for wanted, given in pairs:
        largest = max(map(_largest, wanted.values()), default=0.0)
        for name, value in wanted.items():
            # A gradient may be zero but for rounding, which the largest of them measures.
            if not _close(value, given[name], 1e-4 * largest):
                return name
    return None


def _sure_gradients(
    model: str, net: Network, loss: Callable[..., Tensor], params: Params, x: Tensor
) -> Params:
    """Return the gradients of a sum of losses; raises UsageError if the model has none."""
    try:
        return _gradients(net, loss, params, x)
    except CheckpointError as error:
        raise KIND.error(
            model,
            "has dropout layers inside torch.utils.checkpoint, which cannot be repeated: "
            f"checkpoint the parts between them ({with_its_kind(error)})",
        ) from error
    except Exception as error:
        raise KIND.error(model, f"has no gradients: {with_its_kind(error)}") from error


def _gradients(net: Network, loss: Callable[..., Tensor], params: Params, x: Tensor) -> Params:
    leaves = {name: params[name].requires_grad_() for name in net.trainable}
    return gradients_of(loss(params, x).sum(), leaves)


def _not_stacked(model: str, reason: str) -> UsageError:
    return KIND.error(  # type: ignore[return-value]
        model, f"cannot be trained in a stack ({reason}): give --backend loop --pack 1"
    )


def refuse(model: str, layer: str, where: str) -> UsageError:
    """Return the error about a model that draws by itself, and cannot train `where`: on a GPU."""
    return KIND.error(  # type: ignore[return-value]
        model,
        f"{layer} draws from a global random generator, and can therefore not be trained {where}: "
        "give --device cpu --backend loop --pack 1, or drop by nn.Dropout layers, whose masks are "
        "repeatable everywhere",
    )


def _same_draws() -> torch.Generator:
    """Make the generator of a pass, which gives every pass the same numbers."""
    return torch.Generator().manual_seed(0)


def _inputs(shape: tuple[int, ...], is_text: bool) -> Tensor:
    """Make inputs that are not zero, because a draw may be multiplied by them."""
    generator = _same_draws()
    if is_text:
        texts = torch.randint(1, TOKENS - 1, (SAMPLES, *shape), generator=generator)
        texts[-1, 0] = TOKENS - 1  # which no other sample has
        texts[:-1, shape[0] // 2 + 1 :] = PAD
        return texts
    return torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float32)


def _drawing_in(model: str, module: nn.Module, x: Tensor) -> str:
    """Run a module; return the innermost layer that moved a global generator, or an empty text.

    In training the backward pass is run, too. Raises UsageError if the module fails.
    """
    names = {part: name for name, part in module.named_modules()}
    drawing: list[str] = []
    before: dict[nn.Module, tuple[object, ...]] = {}

    def enter(part: nn.Module, inputs: object) -> None:
        before[part] = global_states()

    def leave(part: nn.Module, inputs: object, output: object) -> None:
        if not drawing and global_states() != before[part]:
            drawing.append(f"{names[part] or 'the model'} ({type(part).__name__})")

    handles = []
    try:
        for part in names:
            handles.append(part.register_forward_pre_hook(enter))
            handles.append(part.register_forward_hook(leave))
        with seeded(_same_draws()):
            states = global_states()
            _pass(module, x)
            if not drawing and global_states() != states:
                drawing.append("the model's backward pass")
    except Exception as error:
        mode = "training" if module.training else "evaluation"
        reason = f"fails in {mode} on inputs {tuple(x.shape)}: {with_its_kind(error)}"
        raise KIND.error(model, reason) from error
    for handle in handles:
        handle.remove()
    return drawing[0] if drawing else ""


def _pass(module: nn.Module, x: Tensor) -> Tensor:
    """Run a module, in training with its backward pass, and return its features."""
    with torch.set_grad_enabled(module.training):
        outputs: Outputs = module(x)
        loss = outputs.features.square().sum() + outputs.logits.square().sum()
    if loss.requires_grad:
        torch.autograd.backward([loss])
    module.zero_grad()
    return outputs.features.detach()


@cache
def still_buffers(model: str, input_shape: tuple[int, ...]) -> frozenset[str]:
    """Return the floating-point buffers of a model from outside that training does not change."""
    if not models.is_from_outside(model):
        return frozenset()
    drawing_layer(model, input_shape)  # refuses what has no such buffers, or fails
    return _still(model, *_trial(model, input_shape))


def _still(model: str, module: nn.Module, x: Tensor) -> frozenset[str]:
    net = _network_of(module)
    buffers = set(net.names) - set(net.trainable)
    if not buffers:
        return frozenset()
    before = _values(module)
    after = _values(module)
    inputs = [x, x.flip(0)]
    if x.is_floating_point():
        inputs.append(100 * x)  # for buffers that keep the largest value
    for samples in inputs:
        _of_samples(model, net, after, samples, slice(None))
    return frozenset(name for name in buffers if _same(before[name], after[name]))


@torch.no_grad()
def _check_repeats(model: str, module: nn.Module, x: Tensor) -> None:
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
            if not all(name in one and _same(value, one[name]) for one in (second, third)):
                raise _no_function(model, f"its {name} in {mode}")
            is_fixed = not training or name in frozen
            if is_fixed and name in values and not _same(value, values[name]):
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
        with seeded(_same_draws()):
            output = _pass(module, x)
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


def _same(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors are equal to the bit, but for the kind of a NaN."""
    return first.shape == second.shape and bool(
        torch.all((first == second) | (first.isnan() & second.isnan()))
    )


@torch.no_grad()
def _check_function(model: str, input_shape: tuple[int, ...], module: nn.Module, x: Tensor) -> None:
    """Raise UsageError unless a module is a function of its tensors, and in evaluation of a sample.

    A network that was called with other values before is compared with a new module that was not,
    and holds the values itself, as a module does in plain PyTorch. (Copies of a module lose which
    of its tensors share memory.)
    """
    holder, _ = _trial(model, input_shape)
    _check_equal(model, module, holder)
    net = _network_of(module)
    first = _values(module)
    for call in (net, net.eval):
        _seeded_features(call, first, x)
    values = _values(module)
    still = _still(model, module, x)
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
        got = _seeded_features(call, values, x)
        if not _close(got, _seeded_features(of_holder, values, x)):
            raise _no_function(model, f"its output in {mode}")
        differing = _differing(values, tensors_of(holder))
        if differing:
            raise _no_function(model, f"its tensor {differing} after {mode}")
    if _depends_on_others(model, module, x, first, training=False):
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
        if not _same(value, others[name]):
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


def _trial(model: str, input_shape: tuple[int, ...]) -> tuple[nn.Module, Tensor]:
    """Make the module and the samples of the passes."""
    module = make_module(lambda: models.make(model, input_shape, CLASSES), seed=0)
    return module, _inputs(input_shape, is_text=models.parse(model).entry.kind == "texts")


def _network_of(module: nn.Module, dtype: torch.dtype = torch.float32) -> Network:
    return Network(module, (), CLASSES, "fp64" if dtype == torch.float64 else "fp32")


def _as(dtype: torch.dtype, x: Tensor) -> Tensor:
    """Return inputs in a type, but token ids as they are."""
    return x.to(dtype) if x.is_floating_point() else x


def _values(module: nn.Module, dtype: torch.dtype = torch.float32) -> Params:
    return initial_params(module, dtype, torch.device("cpu"))


def _seeded_features(
    call: Callable[[Params, Tensor], Outputs], params: Params, x: Tensor
) -> Tensor:
    with seeded(_same_draws()):
        return call(params, x).features


def _differing(expected: Params, got: Params) -> str | None:
    """Return the first name whose tensors differ, or None."""
    return next((name for name in expected if not _close(expected[name], got[name])), None)


def _largest(tensor: Tensor) -> float:
    """Return the largest absolute value of a tensor, of those that are finite."""
    finite = tensor.detach()[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _close(first: Tensor, second: Tensor, allowed: float | None = None) -> bool:
    """Return whether tensors are equal but for rounding in another order.

    `allowed`: the largest difference; by default 1e-4 of the largest value.
    """
    if first.shape != second.shape:
        return False
    if torch.equal(first, second):  # most are, and large
        return True
    if allowed is None:
        allowed = 1e-4 * _largest(first)
    atol = max(allowed, 1e-6)
    return torch.allclose(first, second.to(first), rtol=0.0, atol=atol, equal_nan=True)
