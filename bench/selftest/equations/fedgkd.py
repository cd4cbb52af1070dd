"""FedGKD, FedGKD+, FedGKD with the squared difference of logits, and FedGKD-VOTE.

B batch, C classes, M buffer. Teachers run in evaluation mode and are constants; the student runs in
training mode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import ROUNDING, Check, Limit, loss_check, mean_check
from bench.selftest.equations.formulas import cross_entropy, kl, plain, softmax
from bench.selftest.equations.lab import CLASSES, FIVE, ONE, THREE, TWO, server_samples
from bench.selftest.equations.lab_run import FedAvgRecord, ce, constant, fedavg_loss, student

EQ_4 = "FedGKD, Eq. 4"
EQ_5 = "FedGKD, Eq. 5"
TABLE_9 = "FedGKD, Table 9"
ALGORITHM_1 = "FedGKD, Eqs. 3-5 and Algorithm 1"


def buffered(history: FedAvgRecord, buffer: int, buffer_start: str) -> list[Params]:
    """Return the last M global models; w_0 is one of them if the buffer starts with it."""
    models = history.globals if buffer_start == "w0" else history.globals[1:]
    return models[-buffer:]


def fedgkd_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    gamma: float,
    buffer: int,
    buffer_start: str = "empty",
    squares: bool = False,
) -> Tensor:
    """Return Eq. 4: CE + gamma/2 KL( p(wbar_t) || p(w) ), with wbar_t the mean of the buffer.

    With `squares` it has (1/C) sum_c (z_c - z^T_c)^2 in place of KL.
    """
    z = student(w, samples)
    teacher = constant(plain(buffered(history, buffer, buffer_start)), samples.x).logits
    term = ((z - teacher) ** 2).sum(1) / CLASSES if squares else kl(teacher, z)
    return ce(w, samples) + gamma / 2 * term


def fedgkd_checks(form: Callable[..., Tensor], source: str) -> tuple[Check, ...]:
    """Make checks of the server, of both buffer starts, and of growing and full buffers."""
    check = partial(loss_check, source=source, loss=form)
    w0 = partial(check, source=ALGORITHM_1, gamma=0.8, buffer_start="w0")
    return (
        loss_check("round 1 is without distillation", source, fedavg_loss),
        check("loss and gradient, round 2, gamma=0.2", cohorts=ONE, gamma=0.2, buffer=5),
        check(
            "the mean of two models, without w_0, round 3, M=5", cohorts=TWO, gamma=0.8, buffer=5
        ),
        check("the mean of the last two models, round 6, M=2", cohorts=FIVE, gamma=0.8, buffer=2),
        check("the received model alone, round 4, M=1", cohorts=THREE, gamma=0.2, buffer=1),
        w0("buffer_start=w0: round 1 distils from w_0", buffer=5),
        w0("buffer_start=w0: the mean of w_1 and w_0, round 2, M=5", cohorts=ONE, buffer=5),
        w0("buffer_start=w0: w_0 has left the buffer, round 3, M=2", cohorts=TWO, buffer=2),
        mean_check(),
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
    z = student(w, samples)
    risks = []
    terms = []
    for voter in buffered(history, buffer, buffer_start):
        risks.append(cross_entropy(constant(voter, data.x).logits, data.y).mean())
        terms.append(kl(constant(voter, samples.x).logits, z))
    shares = softmax(-torch.stack(risks), 1 / buffer if beta is None else beta)
    return ce(w, samples) + distillation_weight * (shares @ torch.stack(terms))


def vote_checks() -> tuple[Check, ...]:
    """Make checks of warm-up, one voter, two, a full buffer, and another beta."""
    check = partial(loss_check, source=EQ_5, loss=vote_loss, distillation_weight=0.4)
    w0 = partial(check, source=ALGORITHM_1, buffer_start="w0")
    return (
        loss_check("round 1 is without distillation", EQ_5, fedavg_loss),
        check("loss and gradient, two voters of M=3, round 3", cohorts=TWO, buffer=3),
        check("the last three models vote, round 6, M=3", cohorts=FIVE, buffer=3),
        check("the last two models vote, beta=0.2", cohorts=FIVE, buffer=2, beta=0.2),
        w0("buffer_start=w0: w_0 votes alone in round 1", buffer=3),
        w0("buffer_start=w0: w_0 and w_1 vote in round 2, M=3", cohorts=ONE, buffer=3),
        w0("buffer_start=w0: w_0 votes no more, round 3, M=2", cohorts=TWO, buffer=2),
        mean_check(),
    )


CHECKS = {
    "fedgkd": fedgkd_checks(fedgkd_loss, EQ_4),
    "fedgkd_plus": fedgkd_checks(fedgkd_loss, EQ_4),
    "fedgkd_mse": fedgkd_checks(partial(fedgkd_loss, squares=True), TABLE_9),
    "fedgkd_vote": vote_checks(),
}

LIMITS = {
    "fedgkd": (Limit({"gamma": 0.0}),),
    "fedgkd_vote": (
        Limit({"distillation_weight": 0.0}),
        Limit({"buffer": 1}, "fedgkd", {"gamma": 0.2, "buffer": 1}, tolerance=ROUNDING),
    ),
    "fedgkd_plus": (Limit({"gamma": 0.0}), Limit({}, "fedgkd")),
    "fedgkd_mse": (Limit({"gamma": 0.0}),),
}
