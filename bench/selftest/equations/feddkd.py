"""FedDKD, alone and around FedMAX and FedBN: the server's gradient requests after the mean.

B batch, C classes, J requests a round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.averaging import fedbn_check, fedmax_losses, shared
from bench.selftest.equations.checks import MEAN_SOURCE, Check, Limit, loss_check
from bench.selftest.equations.formulas import log_softmax, plain, softmax, weighted
from bench.selftest.equations.lab import SIZES, THREE, TWO, Cohorts, forward, model, requested
from bench.selftest.equations.lab_run import LabRun, fedavg_loss, holds, loss_and_grad_of


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

    def distil(self, run: LabRun, round: int, start: Params, ended: Mapping[int, Params]) -> Params:
        """Move wbar_{t,0} to wbar_{t,J} by plain gradients of the soft cross entropy.

        They are summed by q_k over clients.
        """
        w = start
        for j, answering in enumerate(run.cohort.answering):
            if not answering:
                continue
            lr = self.lr * self.lr_decay ** (round - 1) * self.step_decay**j
            batches = {
                k: requested(run.clients[k], round, j, self.batch_size, self.dkd_augmented)
                for k in answering
            }
            gradients = {k: self._gradient(w, ended[k], batches[k]) for k in answering}
            mean = (
                weighted(gradients, SIZES) if self.dkd_weights == "examples" else plain(gradients)
            )
            w = w | {n: w[n] - lr * mean[n] for n in mean}
        return w

    def complete(self, run: LabRun, round: int, ended: Mapping[int, Params]) -> bool:
        """Return whether the round had its J requests, answered as `dkd_dropout` says.

        The share of answers may be 4 standard errors off. The algorithm draws the clients that
        answer. The draw must be neither the same in all requests of a round nor the same for all
        clients of a request.
        """
        answering = run.cohort.answering
        p = self.dkd_dropout
        steps = self.steps if round > self.warmup_rounds else 0
        total = steps * len(ended)
        missing = total - sum(map(len, answering))
        varied = not p or len(set(map(tuple, answering))) > 2
        return (
            len(answering) == steps
            and varied
            and abs(missing - total * p) <= 4 * math.sqrt(total * p * (1 - p))
        )

    def _gradient(self, w: Params, local: Params, batch: Batch) -> Params:
        """Differentiate (1/B) sum_x -sum_c softmax(Phi(x; w_k))_c log softmax(Phi(x; w))_c by w.

        Entries that w lacks are those of w_k.
        """
        training = self.dkd_student_mode == "train"
        teacher = softmax(forward(local, batch.x, training=False).logits)

        def objective(leaves: Params) -> Tensor:
            student = forward({**local, **leaves}, batch.x, training).logits
            return -(teacher * log_softmax(student)).sum() / len(batch.y)

        return loss_and_grad_of(objective, w, [n for n in w if "running" not in n]).grad


def sent(params: Params, personal: bool) -> Params:
    """Return a client's upload of its model, without its BatchNorm layers if it keeps them."""
    return shared(params) if personal else params


def distilled(
    run: LabRun, cohorts: Cohorts, requests: Requests, personal: bool, **options: Any
) -> Iterator[float]:
    """Compare the model after each round's requests."""
    for round, clients in enumerate(cohorts, start=1):
        ended = run.round(clients)
        mean = weighted({k: sent(w, personal) for k, w in ended.items()}, SIZES)
        yield holds(requests.complete(run, round, ended))
        yield run.model_gap(requests.distil(run, round, mean, ended))


def equals(run: LabRun, personal: bool, **options: Any) -> Iterator[float]:
    """Check equal local models: their mean is the same model, every request's gradient zero."""
    same = model(run.net, "same")
    clients = TWO[0]
    run.close({k: run.visit(k) for k in clients}, dict.fromkeys(clients, same))
    yield run.model_gap(sent(same, personal))


def dkd_checks(personal: bool = False, **base: float) -> tuple[Check, ...]:
    """Make checks of all options: decays, warm-up, mode, sizes, weights, answers, and limits.

    Args:
        personal: whether clients keep their BatchNorm layers.
        **base: hyper-parameters of the algorithm around which FedDKD is built.
    """

    def check(title: str, cohorts: Cohorts = TWO, **others: Any) -> Check:
        source = "FedDKD, Algorithm 5" if personal else "FedDKD, Algorithms 1-2"
        requests = Requests(**others)
        gaps = partial(distilled, cohorts=cohorts, requests=requests, personal=personal)
        return Check(title, source, gaps, {**vars(requests), **base})

    same = {"steps": 3, "lr": 5.0, **base}
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
            partial(equals, personal=personal),
            same,
        ),
    )


CHECKS: dict[str, tuple[Check, ...]] = {
    "feddkd": (loss_check("loss and gradient, round 1", MEAN_SOURCE, fedavg_loss), *dkd_checks()),
    "feddkd_max": (*fedmax_losses(steps=0), *dkd_checks(beta=3.0)),
    "feddkd_bn": (fedbn_check(steps=0), *dkd_checks(personal=True)),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
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
