"""Arithmetic on models as {name: tensor}."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from algorithms.base import Fed, Net, Params


def first_weights(fed: Fed, params: Params, own_weights: bool) -> Params:
    """Return the model that a client starts from: w_0, or with `own_weights` one of its own."""
    return fed.initialised("own_weights", fed.client.number) if own_weights else params


def head_names(net: Net) -> tuple[str, ...]:
    """Return the names of the head's tensors; the others are the body's."""
    return tuple(name for name in net.names if name.startswith("head."))


def body_names(net: Net) -> tuple[str, ...]:
    """Return the names of the body's tensors, BatchNorm's statistics among them."""
    return tuple(name for name in net.names if not name.startswith("head."))


def mean_of(models: Sequence[Params]) -> Params:
    """Return the plain mean of models, name by name.

    The mean of one model is the model itself, so that sending it twice costs nothing.
    """
    if len(models) == 1:
        return models[0]
    mean = {}
    for name in models[0]:
        mean[name] = torch.stack([model[name] for model in models]).mean(0)
    return mean


def flat(model: Params, names: Collection[str]) -> Tensor:
    """Return the entries of `names` as one vector: cheaper than an operation per tensor."""
    return torch.cat([model[name].flatten() for name in names])


def descended(leaves: Params, loss: Tensor, lr: float | Tensor) -> Params:
    """Return leaf tensors after a step of SGD without momentum on a loss, a scalar of them."""
    grads = torch.autograd.grad(loss, list(leaves.values()))
    after = {}
    for (name, value), grad in zip(leaves.items(), grads, strict=True):
        after[name] = value.detach() - lr * grad
    return after


def difference(left: Params, right: Params, names: Collection[str]) -> Params:
    """Return left - right, name by name; leading axes that one of them lacks are broadcast."""
    return {name: left[name] - right[name] for name in names}


def zeros_like(model: Params, names: Collection[str]) -> Params:
    """Return zeros with the shapes of the entries of `names`."""
    return {name: torch.zeros_like(model[name]) for name in names}


def inner_product(left: Params, right: Params, names: Collection[str]) -> Tensor:
    """Return <left, right> summed over the entries of `names`: a scalar."""
    return (flat(left, names) * flat(right, names)).sum()


def norm(model: Params) -> Tensor:
    """Return the Euclidean norm over all entries of a model: a scalar."""
    length: Tensor = torch.linalg.vector_norm(flat(model, model))
    return length


def squared_distance(left: Params, right: Params, names: Collection[str]) -> Tensor:
    """Return ||left - right||^2 summed over the entries of `names`: a scalar."""
    return (flat(left, names) - flat(right, names)).square().sum()


def mean_squared_distance(left: Params, right: Params, names: Collection[str]) -> Tensor:
    """Return the mean squared difference of each tensor, summed over `names`: a scalar."""
    distances = [(left[name] - right[name]).square().mean() for name in names]
    return torch.stack(distances).sum()
