"""A second model that a client trains beside that of its `params`, as Ditto's global model is.

The engine's optimiser trains `params`. The second model takes its own steps in `before_step`, by
SGD with the setting's momentum and without weight decay. Its state in `local` is a dict of
`params`, and `velocity` by the name of what is trained. Further tensors may be trained with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, LocalPlan, Net, Outputs, Params
from algorithms.losses import masked_mean
from algorithms.params import zeros_like

Losses = Callable[[Outputs, Params], Tensor]


def second_model(net: Net, params: Params, **further: Tensor) -> dict[str, Any]:
    """Return the state of a second model before its first step of a round.

    `further` tensors, by names that the model does not have, are trained with it.
    """
    everything = {**params, **further}
    trained = (*net.trainable, *further)
    return {"params": everything, "velocity": zeros_like(everything, trained)}


def second_step(
    net: Net, second: dict[str, Any], batch: Batch, plan: LocalPlan, losses: Losses
) -> tuple[dict[str, Any], Outputs]:
    """Take one step of SGD on the mean of `losses(outputs, weights)`, (B,) nats, over the batch.

    `weights` has what is trained, by name.

    Returns:
        The state after the step, and the outputs in training mode before it.
    """
    weights = {name: second["params"][name] for name in second["velocity"]}
    buffers = {name: value for name, value in second["params"].items() if name not in weights}

    def objective(weights: Params) -> tuple[Tensor, tuple[Outputs, Params]]:
        # In training mode a network writes BatchNorm's statistics into the tensors it is given.
        moved = {name: value.clone() for name, value in buffers.items()}
        everything = {**weights, **moved}
        outputs = net({name: everything[name] for name in net.names}, batch.x)
        of_samples = losses(outputs, weights)
        mean = masked_mean(of_samples, batch.weight)
        return mean, (outputs, moved)

    grads, (outputs, moved) = torch.func.grad(objective, has_aux=True)(weights)
    velocity = {}
    for name, grad in grads.items():
        velocity[name] = plan.momentum * second["velocity"][name] + grad
        weights[name] = weights[name] - plan.lr * velocity[name]
    return {"params": {**weights, **moved}, "velocity": velocity}, outputs
