"""Methods that exchange class means of features: FedGH, FedProto, FedTGP.

B batch, C classes, D features, K clients. Tables of prototypes are (C, D); the row of a class that
nobody has is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.averaging import OWN_WEIGHTS, part
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.distillation import class_means
from bench.selftest.equations.formulas import cross_entropy, sum_of
from bench.selftest.equations.lab import (
    BATCH_SIZE,
    CLASSES,
    FEATURES,
    HEAD,
    ONE,
    SIZES,
    TWO,
    Cohorts,
    forward,
    head,
    model,
    samples,
)
from bench.selftest.equations.lab_run import (
    Gaps,
    LabRun,
    Pass,
    ce,
    constant,
    holds,
)
from bench.selftest.equations.optimizers import Sgd, descended, step_orders
from bench.selftest.toy import gap

PRINTED = "Tan et al. 2022 (FedProto), Eqs. 3, 6, 7"
CODE = "Tan et al. 2022 (FedProto), code"
TGP = "Zhang et al. 2024 (FedTGP), contrastive loss with a margin"
HTFLLIB = "HtFLlib, clientproto.py"
FEDGH = "Yi et al. 2023, the server's training of the head"


def sample_term(prototypes: Tensor, samples: Batch, h: Tensor) -> Tensor:
    """Return each sample's mean squared error to the prototype of its class, (B,)."""
    expected = prototypes[samples.y]
    return ((h - torch.where(expected.isnan(), h, expected)) ** 2).mean(1)


def class_term(prototypes: Tensor, samples: Batch, h: Tensor) -> Tensor:
    """Return sum_c || mean h of class c - P_c ||: a scalar."""
    terms = [0.0 * h.sum()]
    for label, prototype in enumerate(prototypes):
        members = h[(samples.y == label) & (samples.weight > 0)]
        if len(members) and not prototype.isnan().any():
            terms.append(((members.mean(0) - prototype) ** 2).sum().sqrt())
    return sum_of(terms)


def proto_loss(
    w: Params, samples: Batch, prototypes: Tensor, weight: float, distance: str = "squared_error"
) -> Tensor:
    """Return CE + lambda R."""
    term = sample_term if distance == "squared_error" else class_term
    return ce(w, samples) + weight * term(prototypes, samples, forward(w, samples.x).features)


def means_of(passes: Iterable[Pass]) -> Tensor:
    """Return a client's mean features by class, as its models of these passes see its samples."""
    return class_means(passes, lambda out: out.features)


def whole_pass(run: LabRun, client: int, w: Params) -> Pass:
    """Return a pass of a model over all samples of a client."""
    data = run.clients[client]
    return w, Batch(data.x, data.y, torch.ones(len(data.y)))


def ended_means(run: LabRun, clients: Iterable[int]) -> Tensor:
    """Return the means (m, C, D) of clients' samples under the models of their last round's end."""
    return torch.stack([means_of([whole_pass(run, k, run.last[k])]) for k in clients])


def nearest_gap(run: LabRun, prototypes: Tensor) -> float:
    """Compare the predicted classes of 40 samples with those of the nearest prototypes."""
    x, _ = samples(40, "predicted")
    w = model(run.net, "predicting")
    predicted = run.algorithm.predict(run.net, w, x, run.server).argmax(1)
    differences = constant(w, x).features[:, None] - prototypes  # (40, C, D)
    distances = (differences**2).sum(2).nan_to_num(torch.inf)
    return holds(torch.equal(predicted, distances.argmin(1)))


def fedproto_gaps(
    run: LabRun,
    proto_weight: float,
    proto_distance: str = "squared_error",
    proto_mean: str = "plain",
    proto_from: str = "last_epoch",
) -> Gaps:
    """Compare each client's start, loss and gradient before and after two rounds.

    The prototype of a class is the plain mean of the clients' means, or Eq. 6.
    """
    prototypes = torch.full((CLASSES, FEATURES), torch.nan, dtype=torch.float64)
    loss = partial(proto_loss, weight=proto_weight, distance=proto_distance)
    for clients in (*TWO, *ONE):
        yield run.every_local_gap(partial(loss, prototypes=prototypes))
        means = []
        counts = []
        for k in clients:
            passes = {
                "after": [whole_pass(run, k, run.local(k))],
                "last_epoch": run.passes(k)[-ceil(SIZES[k] / BATCH_SIZE) :],
                "all_epochs": run.passes(k),
            }[proto_from]
            means.append(means_of(passes))
            labels = torch.cat([given.y[given.weight > 0] for _, given in passes])
            counts.append(labels.bincount(minlength=CLASSES)[:, None])
        table = torch.stack(means)  # (m, C, D)
        new = table.nanmean(0)
        if proto_mean == "printed":
            n = torch.stack(counts)
            owners = (n > 0).sum(0)
            new = (n * table.nan_to_num()).sum(0) / n.sum(0) / owners
        prototypes = torch.where(new.isnan(), prototypes, new)
        run.round(clients)
        yield nearest_gap(run, prototypes)


def margin_of(means: Tensor) -> float:
    """Return the largest over classes of the distance to the nearest other class."""
    given = means[~means.isnan().any(1)]
    distances = ((given[:, None] - given) ** 2).sum(2).sqrt()
    return float(distances.fill_diagonal_(torch.inf).min(1).values.max())


def network_output(tgp: Params) -> Tensor:
    """Return W2 relu(W1 e + b1) + b2 for each class's embedding e, (C, D)."""
    hidden = tgp["embedding"] @ tgp["hidden.weight"].T + tgp["hidden.bias"]
    return hidden.clamp(min=0) @ tgp["out.weight"].T + tgp["out.bias"]


def tgp_risk(h: Tensor, y: Tensor, tgp: Params, delta: float) -> Tensor:
    """Return the contrastive loss with margin delta of client prototypes h (N, D), (N,)."""
    d = ((h[:, None] - network_output(tgp)) ** 2).sum(2).sqrt()
    is_own = torch.arange(CLASSES) == y[:, None]
    return cross_entropy(-torch.where(is_own, d + delta, d), y)


def head_risk(h: Tensor, y: Tensor, w: Params) -> Tensor:
    """Return the cross entropy of a head on client prototypes h (N, D), (N,)."""
    return cross_entropy(head(w, h), y)


def taught(
    w: Params,
    means: Tensor,
    risk: Callable[..., Tensor],
    gap_of: Callable[[Params], float],
    server_epochs: int,
    server_lr: float,
    server_batch_size: int,
) -> Params:
    """Return what the server has after SGD on a loss of the clients' means (m, C, D).

    Of all orders of the steps, it is the one with the smallest gap.
    """
    y = torch.arange(CLASSES).repeat(len(means))
    h = means.flatten(0, 1)
    given = (~h.isnan().any(1)).nonzero().flatten()

    def objective(rows: Tensor, leaves: Params) -> Tensor:
        return risk(h[rows], y[rows], leaves).mean()

    results = []
    for steps in step_orders(len(given), server_batch_size, server_epochs):
        after = w
        for places in steps:
            after = descended(Sgd(server_lr), after, partial(objective, given[places]))
        results.append(after)
    return min(results, key=gap_of)


def fedtgp_gaps(
    run: LabRun,
    proto_weight: float,
    margin_threshold: float,
    cohorts: Cohorts = TWO,
    **training: Any,
) -> Gaps:
    """Compare the prototypes, each client's start, loss and gradient in every round."""
    tgp: Params = dict(run.server.extra["tgp"])
    layers = [value for name, value in tgp.items() if name != "embedding"]
    yield holds(all(float(value.abs().max()) <= FEATURES**-0.5 for value in layers))

    def sent_gap(w: Params) -> float:
        return gap(run.message()["prototypes"], network_output(w))

    for clients in cohorts:
        run.round(clients)
        means = ended_means(run, clients)
        risk = partial(tgp_risk, delta=min(margin_threshold, margin_of(means.nanmean(0))))
        tgp = taught(tgp, means, risk, sent_gap, **training)
        yield sent_gap(tgp)
        prototypes = network_output(tgp)
        yield nearest_gap(run, prototypes)
        yield run.every_local_gap(partial(proto_loss, prototypes=prototypes, weight=proto_weight))


def fedgh_gaps(run: LabRun, cohorts: Cohorts = TWO, **training: Any) -> Gaps:
    """Compare the server's head, each client's start, loss and gradient in every round."""
    w = part(run.initial, HEAD)

    def sent_gap(w: Params) -> float:
        return gap(run.message()["params"], w)

    yield sent_gap(w)
    for clients in cohorts:
        run.round(clients)
        w = taught(w, ended_means(run, clients), head_risk, sent_gap, **training)
        yield sent_gap(w)
        yield gap(run.evaluated, {"": {}, "_head": w})
        yield run.every_local_gap(ce, w)


WHOLE = {"server_epochs": 3, "server_lr": 0.05, "server_batch_size": 64}
SINGLE = {"server_epochs": 1, "server_lr": 0.05, "server_batch_size": 1}
# A round of one client, which has so few prototypes that their steps have few orders.
FEW: Cohorts = ((1,),)


def proto_check(title: str, source: str, weight: float, **forms: str) -> Check:
    """Make a check of three rounds of FedProto."""
    return Check(title, source, fedproto_gaps, {"proto_weight": weight, **forms})


CHECKS = {
    "fedgh": (
        Check("head, loss and gradient, 2 rounds", FEDGH, fedgh_gaps, WHOLE),
        Check("steps on single prototypes", FEDGH, partial(fedgh_gaps, cohorts=FEW), SINGLE),
    ),
    "fedproto": (
        proto_check("loss and gradient, 3 rounds, lambda=0.7", CODE, 0.7),
        proto_check("distances of class means", PRINTED, 2.0, proto_distance="class_means"),
        proto_check("the mean of Eq. 6", PRINTED, 2.0, proto_mean="printed"),
        proto_check("features of all epochs", HTFLLIB, 1.0, proto_from="all_epochs"),
        proto_check("features after training", PRINTED, 1.0, proto_from="after"),
        OWN_WEIGHTS,
    ),
    "fedtgp": (
        Check(
            "prototypes, loss and gradient, 2 rounds",
            TGP,
            fedtgp_gaps,
            {"proto_weight": 0.7, "margin_threshold": 100.0, **WHOLE},
        ),
        Check(
            "steps on single prototypes",
            TGP,
            partial(fedtgp_gaps, cohorts=FEW),
            {"proto_weight": 0.7, "margin_threshold": 100.0, **SINGLE},
        ),
        Check(
            "a threshold below the margin",
            TGP,
            fedtgp_gaps,
            {"proto_weight": 2.0, "margin_threshold": 0.1, **WHOLE},
        ),
    ),
}

LIMITS = {
    "fedtgp": (Limit({"proto_weight": 0.0, "server_epochs": 2}, "local"),),
    "fedproto": (
        Limit({"proto_weight": 0.0}, "local"),
        Limit({"proto_weight": 0.0, "proto_distance": "class_means"}, "local"),
    ),
}
