"""The standard terms of the printed formulas, in plain tensor arithmetic.

B batch, C classes, K clients. Nothing here comes from the suite's own losses, so that an error
there shows as a difference, instead of being on both sides of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.lab import SIZES, trained


def log_softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute z_c / T - log( sum_j exp(z_j / T) ) over the last axis."""
    scaled = z / temperature
    return scaled - scaled.exp().sum(-1, keepdim=True).log()


def softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute exp(z_c / T) / sum_j exp(z_j / T) over the last axis."""
    e = (z / temperature).exp()
    return e / e.sum(-1, keepdim=True)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """Compute -log p_y for each sample, (B,) nats, from logits (B, C).

    Labels (L, B), which are L alternatives, give (L, B).
    """
    return -log_softmax(z)[torch.arange(len(z)), y]


def kl(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute sum_c p^T_c log(p^T_c / p^S_c) per sample, (B,) nats, from logits (B, C).

    The teacher is constant.
    """
    p = softmax(teacher.detach(), temperature)
    return (p * (p.log() - log_softmax(student, temperature))).sum(-1)


def masked(values: Tensor, weight: Tensor) -> Tensor:
    """Average the values (B,) over the samples whose weight is 1."""
    return (values * weight).sum() / weight.sum()


def shares(clients: Iterable[int]) -> dict[int, float]:
    """Return p_k = n_k / sum_k n_k of each of these clients."""
    sizes = {k: SIZES[k] for k in clients}
    total = sum(sizes.values())
    return {k: size / total for k, size in sizes.items()}


def weighted(models: Mapping[int, Params]) -> Params:
    """Average the clients' models, name by name: sum_k p_k w_k."""
    p = shares(models)
    averaged = {}
    for name in next(iter(models.values())):
        averaged[name] = sum_of(p[k] * w[name] for k, w in models.items())
    return averaged


def plain(models: Sequence[Params]) -> Params:
    """Average m models, name by name: (1/m) sum_k w_k."""
    averaged = {}
    for name in models[0]:
        averaged[name] = mean(w[name] for w in models)
    return averaged


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """Sum one or more tensors of one shape."""
    return torch.stack(list(terms)).sum(0)


def mean(terms: Iterable[Tensor]) -> Tensor:
    """Average one or more tensors of one shape."""
    return torch.stack(list(terms)).mean(0)


def joined(tensors: Iterable[Tensor]) -> Tensor:
    """Join tensors to one vector."""
    return torch.cat([value.flatten() for value in tensors])


def vector(w: Params) -> Tensor:
    """Return a model's trained entries as one vector."""
    return joined(w[name] for name in trained(w))


def with_vector(w: Params, values: Tensor) -> Params:
    """Return a model with other trained entries, which its `vector` is then."""
    names = trained(w)
    parts = torch.split(values, [w[name].numel() for name in names])
    return w | {name: part.view_as(w[name]) for name, part in zip(names, parts, strict=True)}


def squared_distance(w: Params, other: Params) -> Tensor:
    """Compute ||w - w'||^2 over the trained entries."""
    return ((vector(w) - vector(other)) ** 2).sum()
