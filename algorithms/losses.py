"""Per-example losses in nats, shape (B,). B batch, C classes, D features.

Every distillation loss puts the teacher first: KL(teacher || student), the forward direction of all
the papers here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log softmax(logits)_y, at temperature 1: (B,), nats.

    Logits are (B, C), labels (B,) int64 in [0, C).
    """
    return F.cross_entropy(logits, labels, reduction="none")


def kl(teacher: Tensor, student: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Return KL( softmax(teacher / T) || softmax(student / T) ), without the factor T^2.

    Args:
        teacher: (..., B, C) logits; gradients flow unless the caller detached them.
        student: (B, C) logits.
        temperature: T > 0; 1 compares the plain softmax outputs.

    Returns:
        (..., B), nats, >= 0.
    """
    log_p = F.log_softmax(teacher / temperature, dim=-1)
    log_q = F.log_softmax(student / temperature, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def soft_cross_entropy(teacher: Tensor, student: Tensor) -> Tensor:
    """Return -sum_c softmax(teacher)_c log softmax(student)_c.

    It is KL(teacher || student) plus the teacher's entropy. Both are (B, C) logits; gradients flow
    through the teacher unless the caller detached it. Returns (B,), nats.
    """
    return cross_entropy_to(teacher.softmax(-1), student)


def cross_entropy_to(target: Tensor, student: Tensor) -> Tensor:
    """Return -sum_c t_c log softmax(student)_c of target probabilities t and logits, both (B, C).

    Returns (B,), nats.
    """
    return -(target * student.log_softmax(-1)).sum(-1)


def contrastive(
    anchor: Tensor, positive: Tensor, negative: Tensor, temperature: float | Tensor
) -> Tensor:
    """Return -log( e^(s_p / T) / (e^(s_p / T) + e^(s_n / T)) ).

    s is the cosine similarity with the anchor. All three are (B, D) features, and T > 0. Returns
    (B,), nats.
    """
    near = F.cosine_similarity(anchor, positive, dim=-1)
    far = F.cosine_similarity(anchor, negative, dim=-1)
    return F.softplus((far - near) / temperature)


def not_true_kl(
    teacher: Tensor, student: Tensor, labels: Tensor, temperature: float | Tensor
) -> Tensor:
    """Return KL between the softmax functions over the C - 1 classes other than the true one.

    It is without the factor T^2. Teacher and student are (B, C) logits, labels (B,) int64 in [0,
    C), and T > 0; gradients flow through the teacher unless the caller detached it. Returns (B,),
    nats, >= 0, whatever the logits of the true class are.
    """
    true = one_hot(labels, student.shape[-1]).bool()
    log_p = _log_softmax_without(teacher / temperature, true)
    log_q = _log_softmax_without(student / temperature, true)
    return (log_p.exp() * (log_p - log_q)).masked_fill(true, 0.0).sum(-1)


def _log_softmax_without(logits: Tensor, left_out: Tensor) -> Tensor:
    """Return the log softmax over the entries that are not left out.

    Left-out entries hold 0, which stays finite in products.
    """
    others = logits.masked_fill(left_out, -float("inf"))
    return (logits - others.logsumexp(-1, keepdim=True)).masked_fill(left_out, 0.0)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Return (B, C) int64 with 1 in each label's column.

    Convert it before a product with floats.
    """
    # torch's own function checks that all labels are in range, which a captured step cannot.
    return (labels[..., None] == torch.arange(num_classes, device=labels.device)).long()


def masked_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of values (B,) over the samples whose weight (B,) is 1, not padding."""
    mean: Tensor = (values * weight).sum() / weight.sum().clamp(min=1)
    return mean
