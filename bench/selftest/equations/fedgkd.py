"""FedGKD, FedGKD+, FedGKD with the squared difference of logits, and FedGKD-VOTE.

B batch, C classes, M buffer. Teachers run in evaluation mode and are constants; the student runs in
training mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Data, Params
from bench.selftest.equations.checks import ROUNDING, Check, Limit, loss_check, mean_check
from bench.selftest.equations.formulas import cross_entropy, kl, plain, softmax, sum_of
from bench.selftest.equations.lab import CLASSES, FIVE, ONE, THREE, TWO, forward, server_samples
from bench.selftest.equations.lab_run import FedAvgRecord, ce, fedavg_loss

EQ_4 = "FedGKD, Eq. 4"
EQ_5 = "FedGKD, Eq. 5"
TABLE_9 = "FedGKD, Table 9"
ALGORITHM_1 = "FedGKD, Eqs. 3-5 and Algorithm 1"


def student(w: Params, samples: Batch) -> Tensor:
    """Return logits (B, C) in training mode."""
    return forward(w, samples.x).logits


def teacher(w: Params, samples: Batch | Data) -> Tensor:
    """Return logits (B, C) in evaluation mode."""
    return forward(w, samples.x, training=False).logits


def buffered(history: FedAvgRecord, buffer: int, buffer_start: str) -> list[Params]:
    """Return the last M global models; w_0 is one of them if the buffer starts with it."""
    models = history.globals if buffer_start == "w0" else history.globals[1:]
    return models[-buffer:]


def buffer_mean(history: FedAvgRecord, buffer: int, buffer_start: str) -> Params:
    """Return wbar_t, the mean of the buffer's models."""
    return plain(dict(enumerate(buffered(history, buffer, buffer_start))))


def fedgkd_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    gamma: float,
    buffer: int,
    buffer_start: str = "empty",
) -> Tensor:
    """Return Eq. 4: CE + gamma/2 KL( p(wbar_t) || p(w) )."""
    wbar = buffer_mean(history, buffer, buffer_start)
    return ce(w, samples) + gamma / 2 * kl(teacher(wbar, samples), student(w, samples))


def fedgkd_mse_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    gamma: float,
    buffer: int,
    buffer_start: str = "empty",
) -> Tensor:
    """Return Eq. 4 with squares in place of KL: CE + gamma/2 (1/C) sum_c (z_c - z^T_c)^2."""
    wbar = buffer_mean(history, buffer, buffer_start)
    difference = student(w, samples) - teacher(wbar, samples)
    return ce(w, samples) + gamma / 2 * (difference**2).sum(1) / CLASSES


def fedgkd_checks(form: Callable[..., Tensor], source: str) -> tuple[Check, ...]:
    """Make checks of the server, of both buffer starts, and of growing and full buffers."""
    w0: dict[str, Any] = {"gamma": 0.8, "buffer_start": "w0"}
    return (
        loss_check("round 1 is without distillation", source, fedavg_loss, gamma=0.8, buffer=5),
        loss_check("loss and gradient, round 2, gamma=0.2", source, form, ONE, gamma=0.2, buffer=5),
        loss_check(
            "the mean of two models, without w_0, round 3, M=5",
            source,
            form,
            TWO,
            gamma=0.8,
            buffer=5,
        ),
        loss_check(
            "the mean of the last two models, round 6, M=2", source, form, FIVE, gamma=0.8, buffer=2
        ),
        loss_check(
            "the received model alone, round 4, M=1", source, form, THREE, gamma=0.2, buffer=1
        ),
        loss_check("buffer_start=w0: round 1 distils from w_0", ALGORITHM_1, form, buffer=5, **w0),
        loss_check(
            "buffer_start=w0: the mean of w_1 and w_0, round 2, M=5",
            ALGORITHM_1,
            form,
            ONE,
            buffer=5,
            **w0,
        ),
        loss_check(
            "buffer_start=w0: w_0 has left the buffer, round 3, M=2",
            ALGORITHM_1,
            form,
            TWO,
            buffer=2,
            **w0,
        ),
        mean_check(gamma=0.2, buffer=2),
    )


def vote_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    distillation_weight: float,
    buffer: int,
    beta: float | None = None,
    buffer_start: str = "empty",
) -> Tensor:
    """Return Eq. 5: CE + sum_m gamma_m/2 KL(p(w_m)||p(w)).

    gamma_m/2 = lambda exp(-L_m/beta) / sum_j exp(-L_j/beta).
    """
    data = server_samples("validation")
    voters = buffered(history, buffer, buffer_start)
    risks = [cross_entropy(teacher(voter, data), data.y).mean() for voter in voters]
    shares = softmax(-torch.stack(risks), 1 / buffer if beta is None else beta)
    terms = [kl(teacher(voter, samples), student(w, samples)) for voter in voters]
    vote = sum_of(share * term for share, term in zip(shares, terms, strict=True))
    return ce(w, samples) + distillation_weight * vote


def vote_checks() -> tuple[Check, ...]:
    """Make checks of warm-up, one voter, two, a full buffer, and another beta."""
    weight: dict[str, Any] = {"distillation_weight": 0.4}
    w0: dict[str, Any] = {**weight, "buffer_start": "w0"}
    return (
        loss_check("round 1 is without distillation", EQ_5, fedavg_loss, **weight),
        loss_check(
            "loss and gradient, two voters of M=3, round 3",
            EQ_5,
            vote_loss,
            TWO,
            buffer=3,
            **weight,
        ),
        loss_check(
            "the last three models vote, round 6, M=3", EQ_5, vote_loss, FIVE, buffer=3, **weight
        ),
        loss_check(
            "the last two models vote, beta=0.2",
            EQ_5,
            vote_loss,
            FIVE,
            buffer=2,
            beta=0.2,
            **weight,
        ),
        loss_check(
            "buffer_start=w0: w_0 votes alone in round 1", ALGORITHM_1, vote_loss, buffer=3, **w0
        ),
        loss_check(
            "buffer_start=w0: w_0 and w_1 vote in round 2, M=3",
            ALGORITHM_1,
            vote_loss,
            ONE,
            buffer=3,
            **w0,
        ),
        loss_check(
            "buffer_start=w0: w_0 votes no more, round 3, M=2",
            ALGORITHM_1,
            vote_loss,
            TWO,
            buffer=2,
            **w0,
        ),
        mean_check(buffer=2),
    )


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedgkd": fedgkd_checks(fedgkd_loss, EQ_4),
    "fedgkd_plus": fedgkd_checks(fedgkd_loss, EQ_4),
    "fedgkd_mse": fedgkd_checks(fedgkd_mse_loss, TABLE_9),
    "fedgkd_vote": vote_checks(),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedgkd": (Limit({"gamma": 0.0}),),
    "fedgkd_vote": (
        Limit({"distillation_weight": 0.0}),
        Limit({"buffer": 1}, "fedgkd", {"gamma": 0.2, "buffer": 1}, tolerance=ROUNDING),
    ),
    "fedgkd_plus": (Limit({"gamma": 0.0}), Limit({}, "fedgkd")),
    "fedgkd_mse": (Limit({"gamma": 0.0}),),
}
