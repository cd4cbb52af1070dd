"""Methods that exchange class means of features: FedProto.

B batch, C classes, D features, K clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.formulas import sum_of
from bench.selftest.equations.lab import BATCH_SIZE, CLASSES, SIZES, TWO, forward, model, samples
from bench.selftest.equations.personal import passes_of
from bench.selftest.equations.run import History, Loss, Run, ce, local_gap

STEPS = 3  # local steps of a client in a round
PRINTED = "Tan et al. 2022 (FedProto), Eqs. 3, 6, 7"
CODE = "Tan et al. 2022 (FedProto), code"
HTFLLIB = "HtFLlib, clientproto.py"


@dataclass(frozen=True)
class ClientMeans:
    """A client's mean features by class: `mean` (D,) of `count` samples, for classes it has."""

    mean: Mapping[int, Tensor]
    count: Mapping[int, int]


def means_of_passes(passes: list[tuple[Params, Tensor, Tensor]]) -> ClientMeans:
    """Return the mean features by class, of samples x with labels y, each seen by a model w."""
    features: dict[int, list[Tensor]] = {}
    for w, x, y in passes:
        for label, row in zip(y.tolist(), forward(w, x, training=False).features, strict=True):
            features.setdefault(label, []).append(row)
    mean = {label: torch.stack(rows).mean(0) for label, rows in features.items()}
    return ClientMeans(mean, {label: len(rows) for label, rows in features.items()})


def counted(w: Params, samples: Batch) -> tuple[Params, Tensor, Tensor]:
    """Return the model, and inputs and labels of the samples that are no padding."""
    kept = samples.weight > 0
    return w, samples.x[kept], samples.y[kept]


def global_means(clients: list[ClientMeans], printed: bool) -> dict[int, Tensor]:
    """Return the prototype of each class that a client has: the plain mean, or Eq. 6."""
    prototypes = {}
    for label in range(CLASSES):
        having = [each for each in clients if label in each.mean]
        if not having:
            continue
        total = sum(each.count[label] for each in having)
        terms = []
        for each in having:
            share = each.count[label] / total if printed else 1.0
            terms.append(share * each.mean[label])
        prototypes[label] = sum_of(terms) / len(having)
    return prototypes


def sample_term(prototypes: Mapping[int, Tensor], samples: Batch, h: Tensor) -> Tensor:
    """Return each sample's mean squared error to the prototype of its class, (B,)."""
    terms = []
    for label, row in zip(samples.y.tolist(), h, strict=True):
        known = label in prototypes
        terms.append(((row - prototypes[label]) ** 2).mean() if known else 0.0 * row.sum())
    return torch.stack(terms)


def class_term(prototypes: Mapping[int, Tensor], samples: Batch, h: Tensor) -> Tensor:
    """Return sum_c || mean h of class c - P_c ||: a scalar."""
    terms = [0.0 * h.sum()]
    for label, prototype in prototypes.items():
        members = h[(samples.y == label) & (samples.weight > 0)]
        if len(members):
            terms.append(((members.mean(0) - prototype) ** 2).sum().sqrt())
    return sum_of(terms)


def proto_loss(prototypes: Mapping[int, Tensor], weight: float, distance: str) -> Loss:
    """Return CE + lambda R."""
    term = sample_term if distance == "squared_error" else class_term

    def loss(w: Params, samples: Batch, history: History) -> Tensor:
        h = forward(w, samples.x).features
        return ce(w, samples) + weight * term(prototypes, samples, h)

    return loss


def of_last_steps(run: Run, client: int, passes: list[tuple[Params, Batch]]) -> ClientMeans:
    """Return the means of the last epoch's passes."""
    steps = ceil(SIZES[client] / BATCH_SIZE)
    return means_of_passes([counted(*each) for each in passes[-steps:]])


def of_all_steps(run: Run, client: int, passes: list[tuple[Params, Batch]]) -> ClientMeans:
    """Return the means of all passes of the round."""
    return means_of_passes([counted(*each) for each in passes])


def of_final_model(run: Run, client: int, passes: list[tuple[Params, Batch]]) -> ClientMeans:
    """Return the means of the client's samples under the model that it ends with."""
    data = run.clients[client]
    kept = data.weight > 0
    return means_of_passes([(run.local(client), data.x[kept], data.y[kept])])


FROM = {"last_epoch": of_last_steps, "all_epochs": of_all_steps, "after": of_final_model}


def nearest_gap(run: Run, prototypes: Mapping[int, Tensor]) -> float:
    """Compare the predicted classes of 40 samples with those of the nearest prototypes."""
    x, _ = samples(40, "predicted")
    w = model(run.net, "predicting")
    got = run.algorithm.predict(run.net, w, x, run.server).argmax(1)
    for row, label in zip(forward(w, x, training=False).features, got.tolist(), strict=True):
        distances = {c: float(((row - p) ** 2).sum()) for c, p in prototypes.items()}
        if label != min(distances, key=lambda c: distances[c]):
            return inf
    return 0.0


def fedproto_gaps(
    run: Run,
    proto_weight: float,
    proto_distance: str = "squared_error",
    proto_mean: str = "plain",
    proto_from: str = "last_epoch",
) -> Iterator[float]:
    """Compare each client's start, loss and gradient before and after two rounds."""
    personal = dict.fromkeys(SIZES, run.initial)
    prototypes: dict[int, Tensor] = {}
    for clients in ((), *TWO):
        passes = {k: passes_of(run, k, STEPS) for k in clients}
        visits = {k: run.visit(k, STEPS) for k in clients}
        for k, visit in visits.items():
            for w, given in passes[k]:
                visit.step_loss(w, given)
        means = [FROM[proto_from](run, k, passes[k]) for k in clients]
        if visits:
            personal |= run.close(visits, {k: run.local(k) for k in clients})
        prototypes |= global_means(means, proto_mean == "printed")
        yield nearest_gap(run, prototypes) if prototypes else 0.0
        for k in SIZES:
            loss = proto_loss(prototypes, proto_weight, proto_distance)
            yield local_gap(run, History([personal[k]]), k, loss)


def _check(title: str, source: str, weight: float, **forms: str) -> Check:
    return Check(title, source, fedproto_gaps, {"proto_weight": weight, **forms})


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedproto": (
        _check("loss and gradient, 3 rounds, lambda=0.7", CODE, 0.7),
        _check("distances of class means", PRINTED, 2.0, proto_distance="class_means"),
        _check("the mean of Eq. 6", PRINTED, 2.0, proto_mean="printed"),
        _check("features of all epochs", HTFLLIB, 1.0, proto_from="all_epochs"),
        _check("features after training", PRINTED, 1.0, proto_from="after"),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedproto": (
        Limit({"proto_weight": 0.0}, "local"),
        Limit({"proto_weight": 0.0, "proto_distance": "class_means"}, "local"),
    ),
}
