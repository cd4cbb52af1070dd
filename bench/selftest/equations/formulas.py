"""The standard terms of the printed formulas, in plain tensor arithmetic.

B batch, C classes, K clients. Nothing here comes from the suite's own losses, so that an error
there shows as a difference, instead of being on both sides of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from algorithms.base import Params


def log_softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute z_c / T - log( sum_j exp(z_j / T) ) over the last axis."""
    scaled = z / temperature
    return scaled - scaled.exp().sum(-1, keepdim=True).log()


def softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute exp(z_c / T) / sum_j exp(z_j / T) over the last axis."""
    e = (z / temperature).exp()
    return e / e.sum(-1, keepdim=True)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """Compute -log p_y for each sample, (B,) nats, from logits (B, C)."""
    return -log_softmax(z)[torch.arange(len(y)), y]


def kl(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute sum_c p^T_c log(p^T_c / p^S_c) per sample, (B,) nats, from logits (B, C).

    The teacher is constant.
    """
    p = softmax(teacher.detach(), temperature)
    return (p * (p.log() - log_softmax(student, temperature))).sum(-1)


def masked(values: Tensor, weight: Tensor) -> Tensor:
    """Average the values (B,) over the samples whose weight is 1."""
    return (values * weight).sum() / weight.sum()


def weighted(models: Mapping[int, Params], sizes: Mapping[int, float]) -> Params:
    """Average the clients' models, name by name: sum_k n_k w_k / sum_k n_k."""
    total = sum(sizes[k] for k in models)
    names = next(iter(models.values())).keys()
    mean = {}
    for name in names:
        mean[name] = sum_of(sizes[k] / total * models[k][name] for k in models)
    return mean


def plain(models: Mapping[int, Params]) -> Params:
    """Average the m clients' models, name by name: (1/m) sum_k w_k."""
    return weighted(models, dict.fromkeys(models, 1.0))


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """Sum one or more tensors of one shape."""
    return torch.stack(list(terms)).sum(0)
