"""FedDKD, alone and around FedMAX and FedBN: the server's gradient requests after the mean.

B batch, C classes, J requests a round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.averaging import fedbn_check, fedmax_losses, part
from bench.selftest.equations.checks import MEAN_SOURCE, Check, Limit, loss_check
from bench.selftest.equations.formulas import log_softmax, plain, softmax, weighted
from bench.selftest.equations.lab import (
    NAMES,
    SHAPES,
    THREE,
    TWO,
    Cohorts,
    forward,
    loss_and_grad_of,
    model,
    requested,
)
from bench.selftest.equations.lab_run import Gaps, LabRun, constant, fedavg_loss, holds


@dataclass(frozen=True)
class Requests:
    """FedDKD's Algorithm 1, lines 7-11. The fields are the hyper-parameters."""

    steps: int = 2
    lr: float = 0.4
    lr_decay: float = 0.9
    step_decay: float = 1.0
    batch_size: int = 5
    warmup_rounds: int = 0
    dkd_student_mode: str = "eval"
    dkd_weights: str = "mean"
    dkd_dropout: float = 0.0
    dkd_augmented: bool = False

    def distil(self, run: LabRun, start: Params, ended: Mapping[int, Params]) -> Params:
        """Move wbar_{t,0} to wbar_{t,J} by plain gradients of the soft cross entropy.

        They are summed by q_k over clients.
        """
        round = run.cohort.round
        w = start
        for j, answering in enumerate(run.cohort.answering):
            if not answering:
                continue
            lr = self.lr * self.lr_decay ** (round - 1) * self.step_decay**j
            gradients = {k: self._gradient(run, w, ended[k], k, j) for k in answering}
            mean = plain([*gradients.values()])
            if self.dkd_weights == "examples":
                mean = weighted(gradients)
            w = w | {n: w[n] - lr * mean[n] for n in mean}
        return w

    def complete(self, run: LabRun) -> bool:
        """Return whether the round had its J requests, answered as `dkd_dropout` says.

        The share of answers may be 4 standard errors off. The algorithm draws the clients that
        answer. The draw must be neither the same in all requests of a round nor the same for all
        clients of a request.
        """
        answering = run.cohort.answering
        p = self.dkd_dropout
        steps = self.steps if run.cohort.round > self.warmup_rounds else 0
        total = steps * len(run.cohort.models)
        missing = total - sum(map(len, answering))
        varied = not p or len(set(map(tuple, answering))) > 2
        close = (missing - total * p) ** 2 <= 16 * total * p * (1 - p)
        return len(answering) == steps and varied and close

    def _gradient(self, run: LabRun, w: Params, local: Params, client: int, call: int) -> Params:
        """Differentiate (1/B) sum_x -sum_c softmax(Phi(x; w_k))_c log softmax(Phi(x; w))_c by w.

        Entries that w lacks are those of w_k.
        """
        data = run.clients[client]
        round = run.cohort.round
        x = requested(data, round, call, self.batch_size, self.dkd_augmented).x
        teacher = softmax(constant(local, x).logits)

        def objective(leaves: Params) -> Tensor:
            z = forward(local | leaves, x, self.dkd_student_mode == "train").logits
            return -(teacher * log_softmax(z)).sum(1).mean()

        return loss_and_grad_of(objective, w).grad


def distilled(
    run: LabRun, names: Collection[str], cohorts: Cohorts, requests: Requests, **options: Any
) -> Gaps:
    """Compare the model after each round's requests."""
    for clients in cohorts:
        ended = run.round(clients)
        yield holds(requests.complete(run))
        yield run.model_gap(requests.distil(run, part(weighted(ended), names), ended))


def equals(run: LabRun, names: Collection[str], **options: Any) -> Gaps:
    """Check equal local models: their mean is the same model, every request's gradient zero."""
    same = model(run.net, "same")
    visits = {k: run.visit(k) for k in TWO[0]}
    run.close(visits, dict.fromkeys(visits, same))
    yield run.model_gap(part(same, names))


def dkd_checks(
    names: Collection[str] = NAMES, source: str = "FedDKD, Algorithms 1-2", **base: float
) -> tuple[Check, ...]:
    """Make checks of all options: decays, warm-up, mode, sizes, weights, answers, and limits.

    Args:
        names: of the entries that clients do not keep.
        source: of the algorithm around which FedDKD is built.
        **base: its hyper-parameters.
    """

    def check(title: str, cohorts: Cohorts = TWO, **others: Any) -> Check:
        requests = Requests(**others)
        gaps = partial(distilled, names=names, cohorts=cohorts, requests=requests)
        return Check(title, source, gaps, {**vars(requests), **base})

    return (
        check("server step, J=2, lr_decay=0.9, 2 rounds"),
        check("server step, J=3, step_decay=0.7, 2 rounds", steps=3, step_decay=0.7),
        check("requests of 64 samples, more than a client has", batch_size=64),
        check("the student in training mode", dkd_student_mode="train"),
        check("2 of 3 rounds without requests", THREE, warmup_rounds=2),
        check("gradients weighted by examples", dkd_weights="examples"),
        check("7 of 10 answers are missing", steps=20, dkd_dropout=0.7),
        check("the same, weighted by examples", steps=20, dkd_dropout=0.7, dkd_weights="examples"),
        check("augmented requests", dkd_augmented=True),
        check("J=0 is the mean", steps=0),
        Check(
            "equal local models: requests move nothing",
            "FedDKD, Eq. 8",
            partial(equals, names=names),
            {"steps": 3, "lr": 5.0, **base},
        ),
    )


CHECKS = {
    "feddkd": (loss_check("loss and gradient, round 1", MEAN_SOURCE, fedavg_loss), *dkd_checks()),
    "feddkd_max": (*fedmax_losses(steps=0), *dkd_checks(beta=3.0)),
    "feddkd_bn": (fedbn_check(steps=0), *dkd_checks(SHAPES, "FedDKD, Algorithm 5")),
}

LIMITS = {
    "feddkd": (Limit({"steps": 0}), Limit({"lr": 0.0})),
    "feddkd_max": (
        Limit({"steps": 0}, "fedmax"),
        Limit({"lr": 0.0}, "fedmax"),
        Limit({"beta": 0.0}, "feddkd"),
    ),
    "feddkd_bn": (
        Limit({"steps": 0}, "fedbn"),
        Limit({"lr": 0.0}, "fedbn"),
        Limit({}, "feddkd", without_batchnorm=True),
    ),
}
