"""Random numbers that a model from outside draws by itself, found by running it beforehand.

Layers such as `nn.Dropout` take their masks from a key (`bench.engine.dropout`). Others draw from
torch's, numpy's or Python's global generator: `F.dropout`, the dropout inside
`nn.MultiheadAttention`, torchvision's `StochasticDepth`. Runs of such a model train client by
client, with the generators seeded for each client and round (`RunContext.own_draws`), so that they
can be repeated and resumed. Neither vmap nor a captured step can repeat them.
"""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import Tensor, nn

from bench import models
from bench.engine.dropout import replace_dropout
from bench.engine.network import make_module
from bench.engine.rng import global_states, seeded
from bench.errors import UsageError
from bench.models.table import KIND

SAMPLES = 4  # of the passes; a layer may drop whole samples
CLASSES = 2  # the head draws nothing, however many classes it has
TOKENS = 100  # ids below it are in any vocabulary


@cache
def drawing_layer(model: str, input_shape: tuple[int, ...]) -> str:
    """Return the innermost layer by which a model draws in training; empty for none.

    It is written as `body.drop (DropPath)`. This suite's own models are known to draw nothing, and
    are not run.

    Raises:
        UsageError: the model draws in evaluation mode, too, or keeps random numbers or other state
            of its own, so that no run of it could be repeated.
    """
    if not is_from_outside(model):
        return ""
    module = make_module(lambda: models.make(model, input_shape, CLASSES), seed=0)
    x = _inputs(input_shape, is_text=models.parse(model).entry.kind == "texts")
    evaluated = copy.deepcopy(module).eval()
    if layer := _drawing_in(evaluated, x):
        raise KIND.error(
            model,
            f"{layer} draws random numbers in evaluation mode, too: let it draw only if "
            "self.training, as F.dropout(x, p, self.training) does",
        )
    training = copy.deepcopy(module).train()
    replace_dropout(training)
    layer = _drawing_in(training, x)
    _check_repeats(model, training, x)
    return layer


def is_from_outside(model: str) -> bool:
    """Return whether a model is none of this suite's."""
    return models.parse(model).base not in models.MODELS


def refuse(model: str, layer: str, where: str) -> UsageError:
    """Return the error about a model that draws by itself, and cannot train `where`: on a GPU."""
    return KIND.error(  # type: ignore[return-value]
        model,
        f"{layer} draws from a global random generator, and can therefore not be trained {where}: "
        "give --device cpu --backend loop --pack 1, or drop by nn.Dropout layers, whose masks are "
        "repeatable everywhere",
    )


def _inputs(shape: tuple[int, ...], is_text: bool) -> Tensor:
    """Make inputs that are not zero, because a draw may be multiplied by them."""
    generator = torch.Generator().manual_seed(0)
    if is_text:
        return torch.randint(1, TOKENS, (SAMPLES, *shape), generator=generator)
    return torch.randn(SAMPLES, *shape, generator=generator, dtype=torch.float32)


@torch.no_grad()
def _drawing_in(module: nn.Module, x: Tensor) -> str:
    """Run a module; return the innermost layer that moved a global generator, or an empty text."""
    names = {part: name for name, part in module.named_modules()}
    drawing: list[str] = []
    before: dict[nn.Module, tuple[object, ...]] = {}

    def enter(part: nn.Module, inputs: object) -> None:
        before[part] = global_states()

    def leave(part: nn.Module, inputs: object, output: object) -> None:
        if not drawing and global_states() != before[part]:
            drawing.append(f"{names[part] or 'the model'} ({type(part).__name__})")

    handles = [part.register_forward_pre_hook(enter) for part in names]
    handles += [part.register_forward_hook(leave) for part in names]
    with seeded(torch.Generator().manual_seed(0)):
        module(x)
    for handle in handles:
        handle.remove()
    return drawing[0] if drawing else ""


@torch.no_grad()
def _check_repeats(model: str, training: nn.Module, x: Tensor) -> None:
    """Raise UsageError if two passes from the same weights and generators differ.

    Weights and floating-point buffers are restored between the passes, as they are part of a run's
    state; what differs then is a generator, a counter or a cache that the module keeps for itself.
    """
    weights = {name: value.clone() for name, value in training.state_dict().items()}
    outputs = []
    for _ in range(2):
        for name, value in training.state_dict().items():
            if value.is_floating_point():
                value.copy_(weights[name])
        with seeded(torch.Generator().manual_seed(0)):
            outputs.append(training(x).features)
    if not torch.allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-6, equal_nan=True):
        raise KIND.error(
            model,
            "two training passes from the same weights and random generators differ: it keeps a "
            "generator, a counter or other state of its own, which a resumed run would lack; use "
            "nn.Dropout layers or torch's own generator",
        )
