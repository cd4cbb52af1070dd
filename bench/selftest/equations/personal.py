"""Methods that leave each client a model of its own: Ditto, FD, FedRep, LG-FedAvg, FML.

B batch, C classes, K clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import ONE_CLIENT, ROUNDING, Check, Limit
from bench.selftest.equations.distillation import label_means, mean_row, teaching
from bench.selftest.equations.formulas import kl, log_softmax, softmax, sum_of, weighted
from bench.selftest.equations.lab import HEAD, SIZES, TWO, forward
from bench.selftest.equations.lab_run import (
    LabRun,
    Loss,
    LossAndGrad,
    ce,
    every_local_gap,
    holds,
    local_gap,
    loss_and_grad_of,
    mean_of,
)
from bench.selftest.equations.optimizers import Sgd, stepped
from bench.selftest.toy import gap

FD = "Jeong et al. 2018, Algorithm 1"
FD_CODE = "HtFLlib's mean over all clients"
LG_FEDAVG = "Liang et al. 2020, Algorithm 1"
FEDREP = "Collins et al. 2021, Algorithm 1"
FEDREP_STEPS = 4  # local steps of a client in a round
FML = "Shen et al. 2020, local losses"
DITTO = "Li et al. 2021 (Ditto), Algorithm 1"


def personal_rows(run: LabRun) -> float:
    """Return 0 if the clients' own models are evaluated and none of the server's, or inf."""
    return holds(run.algorithm.evaluated(run.server) == {"": {}})


def fitted(run: LabRun, w: Params, steps: Iterable[tuple[Loss, Batch]]) -> Params:
    """Return a model after these steps of SGD in the coming round, each on its loss and samples."""
    sgd = Sgd(run.lr, run.momentum)
    for loss, samples in steps:
        w = stepped(run.net, sgd, w, partial(mean_of, loss, samples), samples.x)
    return w


def ditto_loss(
    w: Params, samples: Batch, received: Params, names: tuple[str, ...], mu: float
) -> Tensor:
    """Return CE(v) + lambda/2 ||v - w_t||^2, in which v is the model `w`."""
    squares = [((w[name] - received[name]) ** 2).sum() for name in names]
    return ce(w, samples) + mu / 2 * sum_of(squares)


def ditto_gaps(run: LabRun, mu: float) -> Iterator[float]:
    """Compare two rounds of FedAvg's steps on w, each client's v_k, its loss and its gradient."""
    received = run.initial
    for clients in TWO:
        passes = {k: run.passes(k) for k in clients}
        ended = {}
        for k in clients:
            ended[k] = fitted(run, received, [(ce, samples) for _, samples in passes[k]])
        run.round(clients, passes)
        received = weighted(ended, SIZES)
        yield gap(run.message()["params"], received)
        yield personal_rows(run)
        loss = partial(ditto_loss, received=received, names=run.net.trainable, mu=mu)
        yield every_local_gap(run, loss)


def fd_loss(w: Params, samples: Batch, tables: Mapping[int, Tensor], gamma: float) -> Tensor:
    """Return CE(y, p) + gamma CE(t_y, p).

    t_y is the mean of the rows of label y over the tables that have it. A sample whose label no
    table has is without that term.
    """
    log_p = log_softmax(forward(w, samples.x).logits)
    terms = []
    for label, row in zip(samples.y.tolist(), log_p, strict=True):
        mean = mean_row(tables, label)
        terms.append(0.0 * row.sum() if mean is None else -(mean * row).sum())
    return ce(w, samples) + gamma * torch.stack(terms)


def fd_gaps(
    run: LabRun, distillation_weight: float, fd_exclude_self: bool = True
) -> Iterator[float]:
    """Compare each client's start, loss and gradient before and after two rounds."""
    tables: dict[int, Tensor] = {}
    for clients in ((), *TWO):
        if clients:
            passes = {k: run.passes(k) for k in clients}
            run.round(clients, passes)
            tables |= {k: label_means(passes[k], softmax) for k in clients}
        yield personal_rows(run)
        for k in SIZES:
            teachers = teaching(tables, k, fd_exclude_self)
            loss = partial(fd_loss, tables=teachers, gamma=distillation_weight)
            yield local_gap(run, k, run.last[k], loss)


def fml_gaps(run: LabRun, ce_weight: float, meme_ce_weight: float) -> Iterator[float]:
    """Compare two rounds of the meme's steps, each private model, its loss and its gradient."""
    received = run.initial
    for clients in TWO:
        passes = {k: run.passes(k) for k in clients}
        ended = {}
        for k in clients:
            steps = []
            for private, samples in passes[k]:
                steps.append((partial(mutual, teacher=private, own=meme_ce_weight), samples))
            ended[k] = fitted(run, received, steps)
        run.round(clients, passes)
        received = weighted(ended, SIZES)
        yield gap(run.algorithm.evaluated(run.server), {"": {}, "_meme": received})
        yield gap(run.message()["params"], received)
        loss = partial(mutual, teacher=received, own=ce_weight)
        yield every_local_gap(run, loss)


def mutual(w: Params, samples: Batch, teacher: Params, own: float) -> Tensor:
    """Return own CE(w) + (1 - own) KL(p_teacher || p_w)."""
    term = kl(forward(teacher, samples.x).logits, forward(w, samples.x).logits)
    return own * ce(w, samples) + (1 - own) * term


def lg_gaps(run: LabRun) -> Iterator[float]:
    """Compare the averaged head, each client's start, loss and gradient in two rounds."""
    for clients in TWO:
        averaged = weighted(run.round(clients), SIZES)
        head = head_of(averaged)
        yield run.model_gap(head)
        yield every_local_gap(run, ce, head)


def head_of(w: Params) -> Params:
    """Return a model's head."""
    return {name: w[name] for name in HEAD}


def by_part(w: Params, samples: Batch, part: Collection[str], names: Sequence[str]) -> LossAndGrad:
    """Return the mean cross entropy, and its gradient, which is 0 outside of a part of `names`."""
    printed = loss_and_grad_of(partial(mean_of, ce, samples), w, list(part))
    zeros = {name: torch.zeros_like(w[name]) for name in names}
    return LossAndGrad(printed.loss, {**zeros, **printed.grad})


def rep_gaps(run: LabRun, head_share: float) -> Iterator[float]:
    """Compare each step's loss and gradient, the averaged body and the heads in two rounds."""
    heads = dict.fromkeys(SIZES, head_of(run.initial))
    head_steps = round(head_share * FEDREP_STEPS)
    names = run.net.trainable
    body = [name for name in names if name not in HEAD]
    for clients in TWO:
        visits = {}
        for k in clients:
            visits[k] = run.visit(k, FEDREP_STEPS)
            for step, (w, samples) in enumerate(run.passes(k, FEDREP_STEPS)):
                if step <= head_steps:  # the model before the first step of the body, too
                    heads[k] = head_of(w)
                part = HEAD if step < head_steps else body
                expected = by_part({**w, **heads[k]}, samples, part, names)
                yield gap(visits[k].step_loss(w, samples), expected)
        ended = run.close(visits)
        if head_steps == FEDREP_STEPS:
            heads |= {k: head_of(ended[k]) for k in clients}
        averaged = weighted(ended, SIZES)
        sent = {name: value for name, value in averaged.items() if name not in HEAD}
        yield run.model_gap(sent)
        for k in SIZES:
            yield gap(run.visit(k).local["params"], {**sent, **heads[k]})


CHECKS: dict[str, tuple[Check, ...]] = {
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
    "lg_fedavg": (Check("heads averaged, loss and gradient, 2 rounds", LG_FEDAVG, lg_gaps),),
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

LIMITS: dict[str, tuple[Limit, ...]] = {
    "ditto": (Limit({"mu": 0.0}, "local"),),
    "fd": (Limit({"distillation_weight": 0.0}, "local"),),
    "fml": (
        Limit({"ce_weight": 1.0}, "local"),
        Limit({"meme_ce_weight": 1.0}, rows=("_meme", ""), tolerance=ROUNDING),
    ),
    "lg_fedavg": (Limit({}, sizes=ONE_CLIENT, other_sizes=ONE_CLIENT),),
}
