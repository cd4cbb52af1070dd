"""Students: models that learn the outputs of others on public samples, on the server or a client.

B batch, N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Fed, Net, Outputs, Params

Losses = Callable[[Outputs], Tensor]


def student_gradient(
    net: Net, params: Params, x: Tensor, losses: Losses
) -> tuple[Params, Params, Params]:
    """Differentiate the mean of `losses(outputs)`, (B,), of a model in training mode on inputs x.

    Returns:
        The model with BatchNorm's statistics after the pass; its trainable tensors; their gradient.
    """
    leaves = {name: params[name].detach().requires_grad_() for name in net.trainable}
    student = params | leaves
    loss = losses(net(student, x)).mean()
    grads = torch.autograd.grad(
        loss, list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    trained = {name: value.detach() for name, value in leaves.items()}
    return student, trained, dict(zip(leaves, grads, strict=True))


def endless_batches(generator: torch.Generator, count: int, size: int) -> Iterator[Tensor]:
    """Draw the positions (B,) of each step's samples among `count`; B is at most `size`.

    Each epoch is a fresh order without its short last batch, unless that is the only one.
    """
    size = min(size, count)
    while True:
        order = torch.randperm(count, generator=generator)
        yield from torch.split(order[: count - count % size], size)


# An exchange: the samples that clients are asked for, and what the server made of the answers.


def no_exchange(fed: Fed, params: Params, asked: Tensor) -> dict[str, Any]:
    """Return the server's state before any answer: `targets` (n, C) for the samples at `places`.

    `ready` is false until there are targets, `asked` (n,) are the places of the round's samples
    among the public ones.
    """
    like = next(iter(params.values()))
    return {
        "targets": like.new_zeros(len(asked), fed.net.num_classes),
        "places": torch.zeros_like(asked),
        "ready": False,
        "asked": asked,
    }


def drawn_places(fed: Fed, name: str, round: int, wanted: int) -> Tensor:
    """Draw the places of a round's samples among the public samples, at most all, in order."""
    x = fed.public.x
    order = torch.randperm(len(x), generator=fed.stream(name, "asked", round))
    return order[:wanted].sort().values.to(x.device)


def with_answers(fed: Fed, extra: Any, name: str, round: int, targets: Tensor) -> dict[str, Any]:
    """Return the server's state with targets for what it asked, and what it asks next."""
    asked = extra["asked"]
    following = drawn_places(fed, name, round, len(asked))
    return {"targets": targets, "places": asked, "ready": True, "asked": following}


def lesson(
    fed: Fed, sent: Mapping[str, Any], generator: torch.Generator, size: int, epochs: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the positions (steps, B) of a student's steps, and `x` (n, ...) with `targets`.

    `sent` are `targets` and `places`; `size` samples make a step, in `epochs` passes.
    """
    given = {"x": fed.public.x[sent["places"]], "targets": sent["targets"]}
    count = len(given["targets"])
    steps = epochs * (count // min(size, count))
    batches = endless_batches(generator, count, size)
    return torch.stack(list(islice(batches, steps))), given
