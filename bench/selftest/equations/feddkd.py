"""FedDKD, alone and around FedMAX and FedBN: the server's gradient requests after the mean.

B batch, C classes, J requests a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.base import Batch, Params
from bench.selftest.equations.averaging import fedbn_check, fedmax_losses, shared
from bench.selftest.equations.builders import MEAN_SOURCE, THREE, TWO, Cohorts, Options, fedavg_loss, loss_check
from bench.selftest.equations.checks import NO_BATCHNORM, Check, Limit, Make
from bench.selftest.equations.formulas import log_softmax, plain, softmax, weighted
from bench.selftest.equations.lab import SIZES, forward, model, requested
from bench.selftest.equations.run import Run


@dataclass(frozen=True)
class Requests:
    """FedDKD's Algorithm 1, lines 7-11. Fields are the hyper-parameters."""

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

    def distil(self, run: Run, round: int, start: Params, ended: Mapping[int, Params]) -> Params:
        """From wbar_{t,0} to wbar_{t,J}: plain gradient steps on the soft cross entropy, summed by q_k over clients."""
        w = start
        for j, answered in enumerate(run.cohort.answered):
            if not answered:
                continue
            lr = self.lr * self.lr_decay ** (round - 1) * self.step_decay**j
            given = {k: requested(run.clients[k], round, j, self.batch_size, self.dkd_augmented) for k in answered}
            slopes = {k: self._slope(w, ended[k], given[k]) for k in answered}
            mean = weighted(slopes, SIZES) if self.dkd_weights == "examples" else plain(slopes)
            w = w | {n: w[n] - lr * mean[n] for n in mean}
        return w

    def answered(self, run: Run, round: int, ended: Mapping[int, Params]) -> bool:
        """Whether the round had its J requests, answered as often as `dkd_dropout` says, within 4 standard errors.

        Who answers is the algorithm's own draw. It must be neither the same in all requests of a round nor the same for
        all clients of a request.
        """
        answered, p = run.cohort.answered, self.dkd_dropout
        steps = self.steps if round > self.warmup_rounds else 0
        asked = steps * len(ended)
        missing = asked - sum(map(len, answered))
        varied = not p or len(set(map(tuple, answered))) > 2
        return len(answered) == steps and varied and abs(missing - asked * p) <= 4 * math.sqrt(asked * p * (1 - p))

    def _slope(self, w: Params, own: Params, given: Batch) -> Params:
        """Of (1/B) sum_x -sum_c softmax(Phi(x; w_k))_c log softmax(Phi(x; w))_c, by w; what w lacks is the client's."""
        leaves = {n: v.clone().requires_grad_() for n, v in w.items() if "running" not in n}
        student = forward({**own, **w, **leaves}, given.x, self.dkd_student_mode == "train").logits
        teacher = softmax(forward(own, given.x, training=False).logits)
        loss = -(teacher * log_softmax(student)).sum() / len(given.y)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


@dataclass(frozen=True)
class Base:
    """What FedDKD is built around.

    Args:
        options: the base's hyper-parameters.
        personal: whether clients keep their BatchNorm layers.
    """

    options: Options
    personal: bool = False

    @property
    def source(self) -> str:
        """Where it is printed."""
        return "FedDKD, Algorithm 5" if self.personal else "FedDKD, Algorithms 1-2"

    def sent(self, params: Params) -> Params:
        """What a client uploads of its model."""
        return shared(params) if self.personal else params


def dkd_check(title: str, base: Base, cohorts: Cohorts = TWO, **fields: Any) -> Check:
    """The model after each round's requests; `fields` are those of `Requests`."""
    requests = Requests(**fields)

    def check(make: Make) -> float:
        run, gaps = Run(make, {**vars(requests), **base.options}), []
        for round, clients in enumerate(cohorts, start=1):
            ended = run.round(clients)
            mean = weighted({k: base.sent(w) for k, w in ended.items()}, SIZES)
            distilled = requests.distil(run, round, mean, ended)
            gaps.append(run.model_gap(distilled) if requests.answered(run, round, ended) else math.inf)
        return max(gaps)

    return Check(title, base.source, check)


def _equals_check(base: Base) -> Check:
    """All local models alike: the mean is theirs, and every request's gradient is zero."""

    def check(make: Make) -> float:
        run = Run(make, {"steps": 3, "lr": 5.0, **base.options})
        same = model(run.net, "same")
        run.close({k: run.visit(k) for k in TWO[0]}, dict.fromkeys(TWO[0], same))
        return run.model_gap(base.sent(same))

    return Check("equal local models: requests move nothing", "FedDKD, Eq. 8", check)


def dkd_checks(base: Base) -> tuple[Check, ...]:
    """Decays, warm-up, the student's mode, requests' sizes, weights, answers and augmentation, and the limits."""
    return (
        dkd_check("server step, J=2, lr_decay=0.9, 2 rounds", base),
        dkd_check("server step, J=3, step_decay=0.7, 2 rounds", base, steps=3, step_decay=0.7),
        dkd_check("requests of 64 samples, more than a client has", base, batch_size=64),
        dkd_check("the student in training mode", base, dkd_student_mode="train"),
        dkd_check("2 of 3 rounds without requests", base, THREE, warmup_rounds=2),
        dkd_check("gradients weighted by examples", base, dkd_weights="examples"),
        dkd_check("7 of 10 answers are missing", base, steps=20, dkd_dropout=0.7),
        dkd_check("the same, weighted by examples", base, steps=20, dkd_dropout=0.7, dkd_weights="examples"),
        dkd_check("augmented requests", base, dkd_augmented=True),
        dkd_check("J=0 is the mean", base, steps=0),
        _equals_check(base),
    )


PLAIN, MAX, PERSONAL = Base({}), Base({"beta": 3.0}), Base({}, personal=True)

CHECKS: dict[str, tuple[Check, ...]] = {
    "feddkd": (loss_check("loss and gradient, round 1", MEAN_SOURCE, fedavg_loss), *dkd_checks(PLAIN)),
    "feddkd_max": (*fedmax_losses(steps=0), *dkd_checks(MAX)),
    "feddkd_bn": (fedbn_check(steps=0), *dkd_checks(PERSONAL)),
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
        Limit({}, "feddkd", models=NO_BATCHNORM, exact_models=True),
    ),
}
