"""Per-example losses in nats, shape (B,). B batch, C classes, D features.

Every distillation loss puts the teacher first: KL(teacher || student), the forward direction of all the papers here.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(logits)_y, at temperature 1.

    Args:
        logits: (B, C).
        labels: (B,) int64 in [0, C).

    Returns:
        (B,), nats.
    """
    return F.cross_entropy(logits, labels, reduction="none")


def kl(teacher: Tensor, student: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """KL( softmax(teacher / T) || softmax(student / T) ), without the factor T^2.

    Args:
        teacher: (B, C) logits; gradients flow unless the caller detached them.
        student: (B, C) logits.
        temperature: T > 0; 1 compares the plain softmax outputs.

    Returns:
        (B,), nats, >= 0.
    """
    log_p = F.log_softmax(teacher / temperature, dim=-1)
    log_q = F.log_softmax(student / temperature, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(B, C) int64: 1 in each label's column. Convert before a product with floats."""
    return F.one_hot(labels, num_classes)
