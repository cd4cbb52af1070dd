"""Draws and state of a model from outside, found by trial passes before its first run.

Layers such as `nn.Dropout` take their masks from a key (`bench.engine.dropout`). Others draw from
torch's, numpy's or Python's global generator: `F.dropout`, the dropout inside
`nn.MultiheadAttention`, torchvision's `StochasticDepth`. Runs of such a model train client by
client, with the generators seeded for each client and round (`RunContext.own_draws`), so that they
can be repeated and resumed. Neither vmap nor a captured step can repeat them.
"""

from __future__ import annotations

import copy
from functools import cache

from torch import Tensor, nn

from bench import models
from bench.engine.dropout import replace_dropout
from bench.engine.rng import global_states, seeded
from bench.engine.trial_passes.functions import (
    check_function,
    check_registered,
    check_repeats,
    unchanged_buffers,
)
from bench.engine.trial_passes.other_samples import depends_on_others
from bench.engine.trial_passes.passes import network_of, one_pass, same_draws, trial, values_of
from bench.errors import UsageError, with_its_kind
from bench.models.registry import KIND


@cache
def drawing_layer(model: str, input_shape: tuple[int, ...]) -> str:
    """Return the innermost layer by which a model draws in training; empty for none.

    It is written as `body.drop (DropPath)`. This suite's own models are known to draw nothing, and
    are not run.

    Raises:
        UsageError: the model draws in evaluation mode, too, or is no function of its tensors and
            samples (`check_function`), so that no run of it could be repeated.
    """
    if not models.is_from_outside(model):
        return ""
    module, x = trial(model, input_shape)
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
    check_repeats(model, module, x)
    check_registered(model, module, x)
    check_function(model, input_shape, module, x)
    return layer


@cache
def mixes_samples(model: str, input_shape: tuple[int, ...]) -> bool:
    """Return whether what a model from outside does in training depends on the batch's other rows.

    So does torch's BatchNorm, which the network finds by itself. A model that draws is not judged.
    """
    if not models.is_from_outside(model) or drawing_layer(model, input_shape):
        return False
    module, x = trial(model, input_shape)
    if network_of(module).batch_statistics:
        return True
    return depends_on_others(model, module, x, values_of(module), training=True)


@cache
def still_buffers(model: str, input_shape: tuple[int, ...]) -> frozenset[str]:
    """Return the floating-point buffers of a model from outside that training does not change."""
    if not models.is_from_outside(model):
        return frozenset()
    drawing_layer(model, input_shape)  # refuses what has no such buffers, or fails
    return unchanged_buffers(model, *trial(model, input_shape))


def refuse(model: str, layer: str, where: str) -> UsageError:
    """Return the error about a model that draws by itself, and cannot train `where`: on a GPU."""
    return KIND.error(  # type: ignore[return-value]
        model,
        f"{layer} draws from a global random generator, and can therefore not be trained {where}: "
        "give --device cpu --backend loop --pack 1, or drop by nn.Dropout layers, whose masks are "
        "repeatable everywhere",
    )


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
        with seeded(same_draws()):
            states = global_states()
            one_pass(module, x)
            if not drawing and global_states() != states:
                drawing.append("the model's backward pass")
    except Exception as error:
        mode = "training" if module.training else "evaluation"
        reason = f"fails in {mode} on inputs {tuple(x.shape)}: {with_its_kind(error)}"
        raise KIND.error(model, reason) from error
    for handle in handles:
        handle.remove()
    return drawing[0] if drawing else ""
