"""FedAvg, and what changes a term of the local loss or the names that are averaged: FedProx, FedMAX, FedBN, references.

B batch, D features.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.builders import (
    MEAN_SOURCE,
    ROUND_2,
    ROUND_3,
    TWO,
    Loss,
    Past,
    ce,
    fedavg_loss,
    loss_check,
    mean_check,
)
from bench.selftest.equations.checks import NO_BATCHNORM, ONE_CLIENT, Check, Limit, Make, gap
from bench.selftest.equations.formulas import log_softmax, masked, softmax, sum_of, weighted
from bench.selftest.equations.lab import FEATURES, NORM, SHAPES, SIZES, batch, forward, model
from bench.selftest.equations.run import Run, slope_gap, slope_of

TRAINED = (*SHAPES, *NORM)  # of the network with BatchNorm
FEDBN_SOURCE = "Li et al. 2021 (FedBN), Algorithm 1"


def fedprox_loss(mu: float, prox_reduction: str = "sum") -> Loss:
    """FedProx: CE + mu/2 ||w - w_t||^2, or with each tensor's mean square in place of its sum."""

    def loss(w: Params, given: Batch, past: Past) -> Tensor:
        per_tensor = prox_reduction == "mean_per_tensor"
        squares = [(w[name] - past.received[name]) ** 2 for name in TRAINED]
        return ce(w, given) + mu / 2 * sum_of(square.mean() if per_tensor else square.sum() for square in squares)

    return loss


def fedprox_checks() -> tuple[Check, ...]:
    """The printed sum, and the mean of each tensor."""
    source, code, per_tensor = "Li et al. 2020 (FedProx), Algorithm 2", "Chen et al. 2020, code", "mean_per_tensor"
    return (
        loss_check("loss and gradient, round 1, mu=0.5", source, fedprox_loss, mu=0.5),
        loss_check("loss and gradient, round 2, mu=0.01", source, fedprox_loss, ROUND_2, mu=0.01),
        loss_check("mean_per_tensor, mu=10", code, fedprox_loss, ROUND_2, mu=10.0, prox_reduction=per_tensor),
        mean_check(mu=0.5),
    )


def fedmax_loss(beta: float, fedmax_direction: str, fedmax_reduction: str, **others: Any) -> Loss:
    """FedMAX: CE + beta KL between the softmax a of the last layer's input and the uniform U over its D entries."""

    def loss(w: Params, given: Batch, past: Past) -> Tensor:
        a, log_u = forward(w, given.x).features, -math.log(FEATURES)
        if fedmax_direction == "a_u":
            terms = softmax(a) * (log_softmax(a) - log_u)
        else:
            terms = math.exp(log_u) * (log_u - log_softmax(a))
        return ce(w, given) + beta * (terms.sum(1) if fedmax_reduction == "batchmean" else terms.mean(1))

    return loss


def fedmax_losses(**others: Any) -> tuple[Check, ...]:
    """Both directions and both reductions; `others` are further hyper-parameters."""
    sources = {"a_u": "FedDKD, section III-B", "u_a": "Chen et al. 2020, code"}
    checks = []
    for direction, reduction in itertools.product(sources, ("batchmean", "elementmean")):
        title = f"loss and gradient, {direction}, {reduction}, beta=3"
        options = {"beta": 3.0, "fedmax_direction": direction, "fedmax_reduction": reduction, **others}
        checks.append(loss_check(title, sources[direction], fedmax_loss, ROUND_2, **options))
    return tuple(checks)


def shared(params: Params) -> Params:
    """The entries outside BatchNorm."""
    return {name: params[name] for name in SHAPES}


def personal_gap(run: Run, client: int, expected: Params) -> float:
    """The gap of a client's start from `expected`, and of its loss and gradient from the cross entropy's."""
    visit, given, params = run.visit(client), batch("look"), model(run.net, "look")
    slope = slope_of(run.net, lambda w: masked(ce(w, given), given.weight), params)
    return max(gap(dict(visit.local["params"]), expected), slope_gap(visit.slope(params, given), slope))


def fedbn_check(**options: Any) -> Check:
    """What is sent, evaluated and started from, before the first round and after each."""

    def check(make: Make) -> float:
        run = Run(make, options)
        own, gaps = dict.fromkeys(SIZES, run.initial), [run.model_gap(shared(run.initial))]
        for clients in TWO:
            ended = run.round(clients)
            own |= ended
            mean = weighted({k: shared(w) for k, w in ended.items()}, SIZES)
            gaps += [run.model_gap(mean), *(personal_gap(run, k, own[k] | mean) for k in SIZES)]
        return max(gaps)

    title = "other entries averaged, BatchNorm kept by each client, loss and gradient, 2 rounds"
    return Check(title, FEDBN_SOURCE, check)


def _alone(make: Make) -> float:
    """The gap of each client's start from where it stopped; inf if anything is sent or evaluated by the server."""
    run, gaps = Run(make, {}), []
    own = dict.fromkeys(SIZES, run.initial)
    for clients in TWO:
        own |= run.round(clients)
        silent = "params" not in run.message() and run.algorithm.evaluated(run.server) == {"": {}}
        gaps += [0.0 if silent else math.inf, *(personal_gap(run, k, own[k]) for k in SIZES)]
    return max(gaps)


ALONE = Check("each client goes on from its own model, loss and gradient, 2 rounds", "no communication", _alone)

CHECKS: dict[str, tuple[Check, ...]] = {
    "fedavg": (
        loss_check("loss and gradient, round 1", MEAN_SOURCE, fedavg_loss),
        loss_check("loss and gradient, round 3", MEAN_SOURCE, fedavg_loss, ROUND_3),
        mean_check(),
    ),
    "fedprox": fedprox_checks(),
    "fedmax": (*fedmax_losses(), mean_check(beta=3.0)),
    "fedbn": (fedbn_check(),),
    "centralized": (ALONE,),
    "local": (ALONE,),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedprox": (Limit({"mu": 0.0}), Limit({"mu": 0.0, "prox_reduction": "mean_per_tensor"})),
    "fedmax": (Limit({"beta": 0.0}), Limit({"beta": 0.0, "fedmax_direction": "u_a"})),
    "fedbn": (Limit({}, models=NO_BATCHNORM, exact_models=True),),
    "centralized": (Limit({}, other_sizes=ONE_CLIENT),),
    "local": (Limit({}, sizes=ONE_CLIENT, other_sizes=ONE_CLIENT),),
}
