"""Methods that leave each client a model of its own: Ditto, FD, FedRep, FML.

B batch, C classes, K clients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.averaging import part
from bench.selftest.equations.checks import ROUNDING, Check, Limit
from bench.selftest.equations.distillation import class_means, teaching
from bench.selftest.equations.formulas import kl, log_softmax, softmax, squared_distance, weighted
from bench.selftest.equations.lab import (
    CLASSES,
    HEAD,
    ONE,
    SIZES,
    TWO,
    LossAndGrad,
    loss_and_grad_of,
)
from bench.selftest.equations.lab_run import (
    Gaps,
    LabRun,
    Loss,
    ce,
    holds,
    mean_of,
    student,
)
from bench.selftest.equations.optimizers import Sgd, stepped
from bench.selftest.toy import gap

FD = "Jeong et al. 2018, Algorithm 1"
FD_CODE = "HtFLlib's mean over all clients"
FEDREP = "Collins et al. 2021, Algorithm 1"
FEDREP_STEPS = 4  # local steps of a client in a round
FML = "Shen et al. 2020, local losses"
DITTO = "Li et al. 2021 (Ditto), Algorithm 1"


def personal_rows(run: LabRun) -> float:
    """Return 0 if the clients' own models are evaluated and none of the server's, or inf."""
    return holds(run.evaluated == {"": {}})


def both_gaps(
    run: LabRun,
    shared_loss: Callable[[Params], Loss],
    own_loss: Callable[[Params], Loss],
    row: str | None = None,
) -> Gaps:
    """Compare two rounds of the shared model, each client's own one, its loss and its gradient.

    Args:
        run: the run, before its first round.
        shared_loss: makes of a client's own model the loss of the shared model beside it.
        own_loss: makes of the shared model the loss of a client's own model.
        row: under which the shared model is evaluated; None if it is not.
    """
    received = run.initial
    for clients in TWO:
        ended = {}
        for k in clients:
            sgd = Sgd(run.lr, run.momentum)
            ended[k] = received
            for own, samples in run.passes(k):
                objective = partial(mean_of, shared_loss(own), samples)
                ended[k] = stepped(sgd, ended[k], objective, samples.x)
        run.round(clients)
        received = weighted(ended)
        yield gap(run.message()["params"], received)
        yield gap(run.evaluated, {"": {}} if row is None else {"": {}, row: received})
        yield run.every_local_gap(own_loss(received))


def ditto_gaps(run: LabRun, mu: float) -> Gaps:
    """Compare FedAvg's steps on w, and CE(v) + lambda/2 ||v - w_t||^2 of each client's v_k."""

    def loss(v: Params, samples: Batch, received: Params) -> Tensor:
        return ce(v, samples) + mu / 2 * squared_distance(v, received)

    return both_gaps(run, lambda own: ce, lambda received: partial(loss, received=received))


def fml_gaps(run: LabRun, ce_weight: float, meme_ce_weight: float) -> Gaps:
    """Compare the meme, and each private model: a CE(w) + (1 - a) KL(p_teacher || p_w)."""

    def loss(w: Params, samples: Batch, teacher: Params, a: float) -> Tensor:
        term = kl(student(teacher, samples), student(w, samples))
        return a * ce(w, samples) + (1 - a) * term

    def meme_loss(private: Params) -> Loss:
        return partial(loss, teacher=private, a=meme_ce_weight)

    def private_loss(meme: Params) -> Loss:
        return partial(loss, teacher=meme, a=ce_weight)

    return both_gaps(run, meme_loss, private_loss, "_meme")


def fd_gaps(run: LabRun, distillation_weight: float, fd_exclude_self: bool = True) -> Gaps:
    """Compare each client's start, loss and gradient before and after two rounds.

    The objective is CE(y, p) + gamma CE(t_y, p). t_y is the mean of the rows of label y over the
    tables that have it; a sample whose label no table has is without that term.
    """
    tables = dict.fromkeys(SIZES, torch.full((CLASSES, CLASSES), torch.nan, dtype=torch.float64))

    def loss(w: Params, samples: Batch, client: int) -> Tensor:
        t, _ = teaching(tables, client, fd_exclude_self, samples.y)
        term = -(t * log_softmax(student(w, samples))).sum(1)
        return ce(w, samples) + distillation_weight * term

    for clients in (*TWO, *ONE):
        yield personal_rows(run)
        for k in SIZES:
            yield run.local_gap(k, run.last[k], partial(loss, client=k))
        tables |= {k: class_means(run.passes(k), lambda out: softmax(out.logits)) for k in clients}
        run.round(clients)


def by_part(w: Params, samples: Batch, trained: tuple[str, ...]) -> LossAndGrad:
    """Return the mean cross entropy, and its gradient, which is 0 outside of the trained part."""
    loss, grad = loss_and_grad_of(partial(mean_of, ce, samples), w)
    zeros = {name: torch.zeros_like(g) for name, g in grad.items() if name not in trained}
    return LossAndGrad(loss, grad | zeros)


def rep_gaps(run: LabRun, head_share: float) -> Gaps:
    """Compare each step's loss and gradient, the averaged body and the heads in two rounds."""
    heads = dict.fromkeys(SIZES, part(run.initial, HEAD))
    head_steps = round(head_share * FEDREP_STEPS)
    body = tuple(name for name in run.net.names if name not in HEAD)
    for clients in TWO:
        visits = {}
        for k in clients:
            visits[k] = run.visit(k, FEDREP_STEPS)
            for step, (w, samples) in enumerate(run.passes(k, FEDREP_STEPS)):
                if step <= head_steps:  # the model before the first step of the body, too
                    heads[k] = part(w, HEAD)
                trained = HEAD if step < head_steps else body
                yield gap(visits[k].step_loss(w, samples), by_part(w | heads[k], samples, trained))
        ended = run.close(visits)
        if head_steps == FEDREP_STEPS:
            heads |= {k: part(ended[k], HEAD) for k in clients}
        sent = part(weighted(ended), body)
        yield run.model_gap(sent)
        for k in SIZES:
            yield gap(run.visit(k).local["params"], sent | heads[k])


CHECKS = {
    "ditto": (
        Check(
            "both models, loss and gradient, 2 rounds, lambda=0.7", DITTO, ditto_gaps, {"mu": 0.7}
        ),
        Check(
            "with momentum, without BatchNorm", DITTO, ditto_gaps, {"mu": 2.0}, False, momentum=0.9
        ),
    ),
    "fd": (
        Check("loss and gradient, 3 rounds, gamma=0.7", FD, fd_gaps, {"distillation_weight": 0.7}),
        Check(
            "own table included, gamma=2",
            FD_CODE,
            fd_gaps,
            {"distillation_weight": 2.0, "fd_exclude_self": False},
        ),
    ),
    "fedrep": (
        Check("loss and gradient by part, 2 rounds", FEDREP, rep_gaps, {"head_share": 0.6}),
        Check("the head alone", FEDREP, rep_gaps, {"head_share": 1.0}),
        Check("the body alone, without BatchNorm", FEDREP, rep_gaps, {"head_share": 0.0}, False),
    ),
    "fml": (
        Check(
            "both models, loss and gradient, 2 rounds",
            FML,
            fml_gaps,
            {"ce_weight": 0.7, "meme_ce_weight": 0.2},
        ),
        Check(
            "with momentum, without BatchNorm",
            FML,
            fml_gaps,
            {"ce_weight": 0.0, "meme_ce_weight": 0.6},
            norm=False,
            momentum=0.9,
        ),
    ),
}

LIMITS = {
    "ditto": (Limit({"mu": 0.0}, "local"),),
    "fd": (Limit({"distillation_weight": 0.0}, "local"),),
    "fml": (
        Limit({"ce_weight": 1.0}, "local"),
        Limit({"meme_ce_weight": 1.0}, rows=("_meme", ""), tolerance=ROUNDING),
    ),
}
