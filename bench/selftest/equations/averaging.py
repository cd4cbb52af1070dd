"""FedAvg, and methods that change a term of its loss, the averaged names, or the evaluated model.

FedProx, FedMAX, FedLC, FedRS, FedBN, LG-FedAvg, T1 and the references. B batch, C classes, D
features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import (
    EVERYONE,
    MEAN_SOURCE,
    ONE_CLIENT,
    Check,
    Limit,
    loss_check,
    mean_check,
)
from bench.selftest.equations.fedgkd import EQ_4, fedgkd_checks, fedgkd_loss
from bench.selftest.equations.formulas import (
    cross_entropy,
    log_softmax,
    softmax,
    squared_distance,
    sum_of,
    weighted,
)
from bench.selftest.equations.lab import (
    CLASSES,
    FEATURES,
    HEAD,
    ONE,
    SHAPES,
    SIZES,
    TWO,
    forward,
    trained,
)
from bench.selftest.equations.lab_run import (
    FedAvgRecord,
    Gaps,
    LabRun,
    ce,
    fedavg_loss,
    holds,
    student,
)
from bench.selftest.toy import gap

FEDPROX = "Li et al. 2020 (FedProx), Algorithm 2"
FEDPROX_CODE = "Chen et al. 2020, code"
FEDMAX = {"a_u": "FedDKD, section III-B", "u_a": "Chen et al. 2020, code"}  # by direction
FEDLC = "Zhang et al. 2022, section 4"
FEDRS = "Li and Zhan 2021, section 4"
FEDREPO = "Li and Zhan 2021, code (FedRepo)"
FEDBN = "Li et al. 2021 (FedBN), Algorithm 1"
LG_FEDAVG = "Liang et al. 2020, Algorithm 1"
T1 = "FedKF, section 4.1"
LACKING = 3  # a client that has half of the classes, although its batches contain all


def fedprox_loss(w: Params, samples: Batch, history: FedAvgRecord, mu: float) -> Tensor:
    """Return CE + mu/2 ||w - w_t||^2."""
    return ce(w, samples) + mu / 2 * squared_distance(w, history.received)


def fedprox_means_loss(
    w: Params, samples: Batch, history: FedAvgRecord, mu: float, **others: Any
) -> Tensor:
    """Return FedProx's objective with each tensor's mean square in place of its sum."""
    received = history.received
    means = [((w[name] - received[name]) ** 2).mean() for name in trained(w)]
    return ce(w, samples) + mu / 2 * sum_of(means)


FEDPROX_CHECKS = (
    loss_check("loss and gradient, round 1, mu=0.5", FEDPROX, fedprox_loss, mu=0.5),
    loss_check("loss and gradient, round 2, mu=0.01", FEDPROX, fedprox_loss, ONE, mu=0.01),
    loss_check(
        "mean_per_tensor, mu=10",
        FEDPROX_CODE,
        fedprox_means_loss,
        ONE,
        mu=10.0,
        prox_reduction="mean_per_tensor",
    ),
    mean_check(),
)


def fedmax_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    beta: float,
    fedmax_direction: str,
    fedmax_reduction: str,
    **others: Any,
) -> Tensor:
    """Return CE + beta KL between a and U.

    a is the softmax of the last layer's input, U is uniform over its D entries.
    """
    a = forward(w, samples.x).features
    log_u = -math.log(FEATURES)
    if fedmax_direction == "a_u":
        terms = softmax(a) * (log_softmax(a) - log_u)
    else:
        terms = math.exp(log_u) * (log_u - log_softmax(a))
    term = terms.sum(1) if fedmax_reduction == "batchmean" else terms.mean(1)
    return ce(w, samples) + beta * term


def fedmax_losses(**others: Any) -> tuple[Check, ...]:
    """Make checks of both directions and both reductions; `others` are further hyper-parameters."""
    checks = []
    for direction, source in FEDMAX.items():
        for reduction in ("batchmean", "elementmean"):
            title = f"loss and gradient, {direction}, {reduction}, beta=3"
            options = {"fedmax_direction": direction, "fedmax_reduction": reduction, **others}
            checks.append(loss_check(title, source, fedmax_loss, ONE, beta=3.0, **options))
    return tuple(checks)


def fedlc_logits(z: Tensor, counts: Tensor, tau: float) -> Tensor:
    """Return z_c - tau n_c^(-1/4), in which a class without samples counts 1e-8."""
    return z - tau / counts.clamp(min=1e-8) ** 0.25


def fedrs_logits(z: Tensor, counts: Tensor, missing_scale: float) -> Tensor:
    """Return z_c for a class that the client holds, alpha z_c for another."""
    return torch.where(counts > 0, z, missing_scale * z)


def graded_logits(z: Tensor, counts: Tensor, missing_scale: float, scaling: str) -> Tensor:
    """Return (alpha + (1 - alpha) n_c / max n) z_c, as FedRepo's update_local scales."""
    return (missing_scale + (1 - missing_scale) * counts / counts.max()) * z


def rescaled_gaps(run: LabRun, logits: Callable[..., Tensor], **options: Any) -> Gaps:
    """Compare two clients' cross entropies of changed logits, in rounds 1 and 3.

    `logits` makes logits (B, C) that depend on their samples of each class.
    """

    def loss(w: Params, samples: Batch, counts: Tensor) -> Tensor:
        return cross_entropy(logits(student(w, samples), counts, **options), samples.y)

    for cohorts in ((), TWO):
        run = replace(run)
        run.clients[LACKING].y.remainder_(CLASSES // 2)
        history = run.rounds(cohorts)
        for client in (2, LACKING):
            counts = run.fed_of(client).client.label_counts
            yield run.local_gap(client, history.received, partial(loss, counts=counts))


def part(params: Params, names: Collection[str]) -> Params:
    """Return the entries of these names."""
    return {name: params[name] for name in names}


def part_gaps(run: LabRun, names: Collection[str], **options: Any) -> Gaps:
    """Compare a server that averages some names alone, and clients that keep all others.

    The broadcast and the evaluated model are compared before the first round and after each, the
    clients' starts after each.
    """
    yield run.model_gap(part(run.initial, names))
    for clients in TWO:
        averaged = part(weighted(run.round(clients)), names)
        yield run.model_gap(averaged)
        yield run.every_local_gap(ce, averaged)


def fedbn_check(**options: Any) -> Check:
    """Make a check of two rounds of FedBN."""
    title = "other entries averaged, BatchNorm kept by each client, loss and gradient, 2 rounds"
    return Check(title, FEDBN, partial(part_gaps, names=SHAPES), options)


def alone_gaps(run: LabRun) -> Gaps:
    """Compare each client's start with its last model.

    The gap is inf if the server sends or evaluates anything.
    """
    for clients in TWO:
        run.round(clients)
        yield holds("params" not in run.message())
        yield holds(run.evaluated == {"": {}})
        yield run.every_local_gap(ce)


ALONE = Check(
    "each client goes on from its own model, loss and gradient, 2 rounds",
    "no communication",
    alone_gaps,
)


def own_weights_gaps(run: LabRun, **options: Any) -> Gaps:
    """Compare each client's first start with a network that was drawn for it alone.

    The gap is inf if a client shares its network, or none was drawn.
    """
    drawn = run.fed.drawn_models
    for count, client in enumerate(SIZES, start=1):
        run.visit(client)
        if len(drawn) != count:
            yield math.inf
            return
        if count > 1:
            yield holds(gap(drawn[-1], drawn[-2]) > 0)
        yield run.local_gap(client, drawn[-1], ce)


OWN_WEIGHTS = Check(
    "each client starts from weights of its own, loss and gradient",
    "Tan et al. 2022 (FedProto), code",
    own_weights_gaps,
    {"own_weights": True},
)


def t1_gaps(run: LabRun, t1_unvisited: str, **options: Any) -> Gaps:
    """Compare T1's evaluated models after each round.

    These are the base's mean, and the mean of all clients' latest models.
    """
    slots = dict.fromkeys(SIZES, run.initial) if t1_unvisited == "w0" else {}
    for clients in TWO:
        ended = run.round(clients)
        slots |= ended
        yield gap(run.evaluated, {"": weighted(ended), "_t1": weighted(slots)})
        yield gap(run.message()["params"], weighted(ended))


def t1_checks(**options: Any) -> list[Check]:
    """Make checks of both rules for clients that were never drawn."""
    checks = []
    for rule in ("skip", "w0"):
        title = f"both evaluated models, 2 rounds, t1_unvisited={rule}"
        checks.append(Check(title, T1, t1_gaps, {**options, "t1_unvisited": rule}))
    return checks


def rescaled_check(title: str, source: str, logits: Any, **options: Any) -> Check:
    """Make a check of the cross entropy of changed logits."""
    title = f"loss and gradient, {title}"
    return Check(title, source, partial(rescaled_gaps, logits=logits), options)


FEDAVG_ROUND_3 = loss_check("loss and gradient, round 3", MEAN_SOURCE, fedavg_loss, TWO)

CHECKS = {
    "fedavg": (
        loss_check("loss and gradient, round 1", MEAN_SOURCE, fedavg_loss),
        FEDAVG_ROUND_3,
        mean_check(),
    ),
    "fedprox": FEDPROX_CHECKS,
    "fedmax": (*fedmax_losses(), mean_check()),
    "fedlc": (
        rescaled_check("tau=1", FEDLC, fedlc_logits, tau=1.0),
        rescaled_check("tau=0.3", FEDLC, fedlc_logits, tau=0.3),
        mean_check(),
    ),
    "fedrs": (
        rescaled_check("alpha=0.5", FEDRS, fedrs_logits, missing_scale=0.5),
        rescaled_check("alpha=0", FEDRS, fedrs_logits, missing_scale=0.0),
        rescaled_check(
            "alpha=0.3, graded", FEDREPO, graded_logits, missing_scale=0.3, scaling="graded"
        ),
        mean_check(),
    ),
    "fedbn": (fedbn_check(),),
    "lg_fedavg": (
        Check(
            "heads averaged, loss and gradient, 2 rounds",
            LG_FEDAVG,
            partial(part_gaps, names=HEAD),
        ),
    ),
    "centralized": (ALONE,),
    "local": (ALONE, OWN_WEIGHTS),
    "fedavg_t1": (FEDAVG_ROUND_3, *t1_checks()),
    "fedprox_t1": (*FEDPROX_CHECKS, *t1_checks(mu=0.5)),
    "fedgkd_t1": (*fedgkd_checks(fedgkd_loss, EQ_4), *t1_checks(gamma=0.2, buffer=2)),
}

LIMITS = {
    "fedprox": (Limit({"mu": 0.0}), Limit({"mu": 0.0, "prox_reduction": "mean_per_tensor"})),
    "fedmax": (Limit({"beta": 0.0}), Limit({"beta": 0.0, "fedmax_direction": "u_a"})),
    "fedlc": (Limit({"tau": 0.0}),),
    "fedrs": (Limit({"missing_scale": 1.0}), Limit({"missing_scale": 1.0, "scaling": "graded"})),
    "fedbn": (Limit({}, without_batchnorm=True),),
    "lg_fedavg": (Limit({}, sizes=ONE_CLIENT, other_sizes=ONE_CLIENT),),
    "centralized": (Limit({}, other_sizes=ONE_CLIENT),),
    "local": (Limit({}, sizes=ONE_CLIENT, other_sizes=ONE_CLIENT),),
    "fedavg_t1": (Limit({}), Limit({}, rows=("_t1", ""), fields=EVERYONE)),
    "fedprox_t1": (
        Limit({}, "fedprox"),
        Limit({"mu": 0.0}),
        Limit({}, "fedprox", rows=("_t1", ""), fields=EVERYONE),
    ),
    "fedgkd_t1": (
        Limit({}, "fedgkd"),
        Limit({"gamma": 0.0}),
        Limit({}, "fedgkd", rows=("_t1", ""), fields=EVERYONE),
    ),
}
