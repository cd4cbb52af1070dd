"""The textbook pieces of the printed formulas, written out in plain tensor arithmetic.

B batch, C classes, K clients. Nothing here comes from the suite's own losses: a slip there must show as a difference,
and not stand on both sides of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from algorithms.base import Params


def log_softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Of the last axis: z_c / T - log( sum_j exp(z_j / T) )."""
    scaled = z / temperature
    return scaled - scaled.exp().sum(-1, keepdim=True).log()


def softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Of the last axis: exp(z_c / T) / sum_j exp(z_j / T)."""
    e = (z / temperature).exp()
    return e / e.sum(-1, keepdim=True)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """Of each sample, (B,) nats: -log p_y, from logits (B, C)."""
    return -log_softmax(z)[torch.arange(len(y)), y]


def kl(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """Of each sample, (B,) nats: sum_c p^T_c log(p^T_c / p^S_c), from logits (B, C); the teacher's are constants."""
    p = softmax(teacher.detach(), temperature)
    return (p * (p.log() - log_softmax(student, temperature))).sum(-1)


def masked(values: Tensor, weight: Tensor) -> Tensor:
    """The mean of (B,) over the samples whose weight is 1."""
    return (values * weight).sum() / weight.sum()


def weighted(models: Mapping[int, Params], sizes: Mapping[int, float]) -> Params:
    """Over the clients of `models`: sum_k n_k w_k / sum_k n_k, name by name."""
    total = sum(sizes[k] for k in models)
    names = next(iter(models.values())).keys()
    return {name: sum_of(sizes[k] / total * models[k][name] for k in models) for name in names}


def plain(models: Mapping[int, Params]) -> Params:
    """Over the m clients of `models`: (1/m) sum_k w_k, name by name."""
    return weighted(models, dict.fromkeys(models, 1.0))


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """The sum of one or more tensors of one shape."""
    return torch.stack(list(terms)).sum(0)
