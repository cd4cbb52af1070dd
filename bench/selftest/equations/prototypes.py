"""Methods that exchange class means of features: FedGH, FedProto, FedTGP.

B batch, C classes, D features, K clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import ceil, inf

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.averaging import OWN_WEIGHTS
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.formulas import log_softmax, sum_of
from bench.selftest.equations.lab import (
    BATCH_SIZE,
    CLASSES,
    FEATURES,
    HEAD,
    SIZES,
    TWO,
    forward,
    model,
    samples,
)
from bench.selftest.equations.lab_run import (
    LabRun,
    Pass,
    ce,
    every_local_gap,
    holds,
    loss_and_grad_of,
)
from bench.selftest.toy import gap

STEPS = 3  # local steps of a client in a round
PRINTED = "Tan et al. 2022 (FedProto), Eqs. 3, 6, 7"
CODE = "Tan et al. 2022 (FedProto), code"
TGP = "Zhang et al. 2024 (FedTGP), contrastive loss with a margin"
TGP_OPTIONS = {
    "proto_weight": 0.7,
    "server_epochs": 3,
    "server_lr": 0.05,
    "server_batch_size": 64,
    "margin_threshold": 100.0,
}
HTFLLIB = "HtFLlib, clientproto.py"
FEDGH = "Yi et al. 2023, the server's training of the head"


@dataclass(frozen=True)
class ClientMeans:
    """A client's mean features by class: `mean` (D,) of `count` samples, for classes it has."""

    mean: Mapping[int, Tensor]
    count: Mapping[int, int]


def means_of(seen: Sequence[tuple[Params, Tensor, Tensor]]) -> ClientMeans:
    """Return the mean features by class, of samples x with labels y, each seen by a model w."""
    features: dict[int, list[Tensor]] = {}
    for w, x, y in seen:
        for label, row in zip(y.tolist(), forward(w, x, training=False).features, strict=True):
            features.setdefault(label, []).append(row)
    mean = {label: torch.stack(rows).mean(0) for label, rows in features.items()}
    return ClientMeans(mean, {label: len(rows) for label, rows in features.items()})


def global_means(clients: list[ClientMeans], printed: bool) -> dict[int, Tensor]:
    """Return the prototype of each class that a client has: the plain mean, or Eq. 6."""
    prototypes = {}
    for label in range(CLASSES):
        owners = [client for client in clients if label in client.mean]
        if not owners:
            continue
        total = sum(client.count[label] for client in owners)
        terms = []
        for client in owners:
            share = client.count[label] / total if printed else 1.0
            terms.append(share * client.mean[label])
        prototypes[label] = sum_of(terms) / len(owners)
    return prototypes


def sample_term(prototypes: Mapping[int, Tensor], samples: Batch, h: Tensor) -> Tensor:
    """Return each sample's mean squared error to the prototype of its class, (B,)."""
    terms = []
    for label, row in zip(samples.y.tolist(), h, strict=True):
        if label in prototypes:
            terms.append(((row - prototypes[label]) ** 2).mean())
        else:
            terms.append(0.0 * row.sum())
    return torch.stack(terms)


def class_term(prototypes: Mapping[int, Tensor], samples: Batch, h: Tensor) -> Tensor:
    """Return sum_c || mean h of class c - P_c ||: a scalar."""
    terms = [0.0 * h.sum()]
    for label, prototype in prototypes.items():
        members = h[(samples.y == label) & (samples.weight > 0)]
        if len(members):
            terms.append(((members.mean(0) - prototype) ** 2).sum().sqrt())
    return sum_of(terms)


def proto_loss(
    w: Params, samples: Batch, prototypes: Mapping[int, Tensor], weight: float, distance: str
) -> Tensor:
    """Return CE + lambda R."""
    term = sample_term if distance == "squared_error" else class_term
    return ce(w, samples) + weight * term(prototypes, samples, forward(w, samples.x).features)


def means_from(run: LabRun, client: int, passes: list[Pass], proto_from: str) -> ClientMeans:
    """Return a client's means over its last epoch, over all passes, or after training."""
    if proto_from == "after":
        return ended_means(run, client)
    if proto_from == "last_epoch":
        passes = passes[-ceil(SIZES[client] / BATCH_SIZE) :]
    seen = []
    for w, given in passes:
        is_sample = given.weight > 0
        seen.append((w, given.x[is_sample], given.y[is_sample]))
    return means_of(seen)


def ended_means(run: LabRun, client: int) -> ClientMeans:
    """Return the means of a client's samples under the model that it ended its last round with."""
    data = run.clients[client]
    return means_of([(run.last[client], data.x, data.y)])


def nearest_gap(run: LabRun, prototypes: Mapping[int, Tensor]) -> float:
    """Compare the predicted classes of 40 samples with those of the nearest prototypes."""
    x, _ = samples(40, "predicted")
    w = model(run.net, "predicting")
    predicted = run.algorithm.predict(run.net, w, x, run.server).argmax(1)
    features = forward(w, x, training=False).features
    for row, label in zip(features, predicted.tolist(), strict=True):
        distances = {c: float(((row - p) ** 2).sum()) for c, p in prototypes.items()}
        if label != min(distances, key=lambda c: distances[c]):
            return inf
    return 0.0


def fedproto_gaps(
    run: LabRun,
    proto_weight: float,
    proto_distance: str = "squared_error",
    proto_mean: str = "plain",
    proto_from: str = "last_epoch",
) -> Iterator[float]:
    """Compare each client's start, loss and gradient before and after two rounds."""
    prototypes: dict[int, Tensor] = {}
    for clients in ((), *TWO):
        if clients:
            passes = {k: run.passes(k, STEPS) for k in clients}
            run.round(clients, passes)
            means = [means_from(run, k, passes[k], proto_from) for k in clients]
            prototypes |= global_means(means, proto_mean == "printed")
            yield nearest_gap(run, prototypes)
        loss = partial(
            proto_loss, prototypes=prototypes, weight=proto_weight, distance=proto_distance
        )
        yield every_local_gap(run, loss)


def as_samples(clients: list[ClientMeans]) -> tuple[list[Tensor], list[int]]:
    """Return all client prototypes, and their classes."""
    h: list[Tensor] = []
    y: list[int] = []
    for client in clients:
        h += client.mean.values()
        y += client.mean
    return h, y


def trained(
    tgp: Params, clients: list[ClientMeans], steps: Sequence[Sequence[int]], lr: float, tau: float
) -> Params:
    """Return the prototypes' network after steps on the contrastive loss.

    `steps` has, of each, the places of its client prototypes among all; `tau` is the threshold.
    """
    means = global_means(clients, printed=False)
    delta = min(tau, margin_of(means))
    h, y = as_samples(clients)

    def objective(places: Sequence[int], w: Params) -> Tensor:
        prototypes = network_output(w)
        losses = []
        for place in places:
            d = ((h[place] - prototypes) ** 2).sum(1).sqrt()
            d = torch.stack([d[c] + delta if c == y[place] else d[c] for c in range(CLASSES)])
            losses.append(-log_softmax(-d)[y[place]])
        return sum_of(losses) / len(losses)

    for places in steps:
        grad = loss_and_grad_of(partial(objective, places), tgp, list(tgp)).grad
        tgp = {name: tgp[name] - lr * grad[name] for name in tgp}
    return tgp


def margin_of(means: Mapping[int, Tensor]) -> float:
    """Return the largest over classes of the distance to the nearest other class."""
    smallest = []
    for label, mean in means.items():
        others = [other for c, other in means.items() if c != label]
        distances = [float(((mean - other) ** 2).sum().sqrt()) for other in others]
        smallest.append(min(distances))
    return max(smallest)


def network_output(tgp: Params) -> Tensor:
    """Return W2 relu(W1 e + b1) + b2 for each class's embedding e, (C, D)."""
    hidden = tgp["embedding"] @ tgp["hidden.weight"].T + tgp["hidden.bias"]
    return hidden.clamp(min=0) @ tgp["out.weight"].T + tgp["out.bias"]


def fedtgp_gaps(
    run: LabRun,
    proto_weight: float,
    server_epochs: int,
    server_lr: float,
    server_batch_size: int,
    margin_threshold: float,
) -> Iterator[float]:
    """Compare the prototypes, each client's start, loss and gradient in two rounds."""
    tgp: Params = dict(run.server.extra["tgp"])
    bound = FEATURES**-0.5
    layers = [value for name, value in tgp.items() if name != "embedding"]
    yield holds(all(float(value.abs().max()) <= bound for value in layers))
    for clients in TWO:
        run.round(clients)
        means = [ended_means(run, k) for k in clients]
        everything = range(sum(len(client.mean) for client in means))
        tgp = trained(tgp, means, [everything] * server_epochs, server_lr, margin_threshold)
        output = network_output(tgp)
        yield gap(run.message()["prototypes"], output)
        prototypes = dict(enumerate(output))
        yield nearest_gap(run, prototypes)
        loss = partial(
            proto_loss, prototypes=prototypes, weight=proto_weight, distance="squared_error"
        )
        yield every_local_gap(run, loss)


def one_by_one(
    run: LabRun, server_epochs: int, server_lr: float, server_batch_size: int
) -> Iterator[float]:
    """Compare the prototypes after a step on each of a client's prototypes, in some order."""
    tgp: Params = dict(run.server.extra["tgp"])
    means = [means_after_round(run)]
    gaps = []
    for order in permutations(range(len(means[0].mean))):
        after = trained(tgp, means, [[place] for place in order], server_lr, 100.0)
        gaps.append(gap(run.message()["prototypes"], network_output(after)))
    yield min(gaps)


def means_after_round(run: LabRun, client: int = 1) -> ClientMeans:
    """Run a round of one client, and return the means of its trained model."""
    run.round((client,))
    return ended_means(run, client)


def head_after(
    head: Params, clients: list[ClientMeans], steps: Sequence[Sequence[int]], lr: float
) -> Params:
    """Return a head after steps of SGD on the cross entropy of client prototypes.

    `steps` has, of each, the places of its client prototypes among all.
    """
    h, y = as_samples(clients)

    def objective(places: Sequence[int], w: Params) -> Tensor:
        losses = []
        for place in places:
            z = w["head.weight"] @ h[place] + w["head.bias"]
            losses.append(-log_softmax(z)[y[place]])
        return sum_of(losses) / len(losses)

    for places in steps:
        grad = loss_and_grad_of(partial(objective, places), head, list(head)).grad
        head = {name: head[name] - lr * grad[name] for name in head}
    return head


def fedgh_gaps(
    run: LabRun, server_epochs: int, server_lr: float, server_batch_size: int
) -> Iterator[float]:
    """Compare the server's head, each client's start, loss and gradient in two rounds."""
    head = {name: run.initial[name] for name in HEAD}
    yield gap(run.message()["params"], head)
    for clients in TWO:
        run.round(clients)
        means = [ended_means(run, k) for k in clients]
        everything = range(sum(len(client.mean) for client in means))
        head = head_after(head, means, [everything] * server_epochs, server_lr)
        yield gap(run.algorithm.evaluated(run.server), {"": {}, "_head": head})
        yield gap(run.message()["params"], head)
        yield every_local_gap(run, ce, head)


def head_one_by_one(
    run: LabRun, server_epochs: int, server_lr: float, server_batch_size: int
) -> Iterator[float]:
    """Compare the server's head after a step on each of a client's prototypes, in some order."""
    means = [means_after_round(run)]
    gaps = []
    for order in permutations(range(len(means[0].mean))):
        steps = [[place] for place in order]
        head = {name: run.initial[name] for name in HEAD}
        gaps.append(gap(run.message()["params"], head_after(head, means, steps, server_lr)))
    yield min(gaps)


def _check(title: str, source: str, weight: float, **forms: str) -> Check:
    return Check(title, source, fedproto_gaps, {"proto_weight": weight, **forms})


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedgh": (
        Check(
            "head, loss and gradient, 2 rounds",
            FEDGH,
            fedgh_gaps,
            {"server_epochs": 3, "server_lr": 0.05, "server_batch_size": 64},
        ),
        Check(
            "steps on single prototypes",
            FEDGH,
            head_one_by_one,
            {"server_epochs": 1, "server_lr": 0.05, "server_batch_size": 1},
        ),
    ),
    "fedproto": (
        _check("loss and gradient, 3 rounds, lambda=0.7", CODE, 0.7),
        _check("distances of class means", PRINTED, 2.0, proto_distance="class_means"),
        _check("the mean of Eq. 6", PRINTED, 2.0, proto_mean="printed"),
        _check("features of all epochs", HTFLLIB, 1.0, proto_from="all_epochs"),
        _check("features after training", PRINTED, 1.0, proto_from="after"),
        OWN_WEIGHTS,
    ),
    "fedtgp": (
        Check("prototypes, loss and gradient, 2 rounds", TGP, fedtgp_gaps, TGP_OPTIONS),
        Check(
            "steps on single prototypes",
            TGP,
            one_by_one,
            {"server_epochs": 1, "server_lr": 0.05, "server_batch_size": 1},
        ),
        Check(
            "a threshold below the margin",
            TGP,
            fedtgp_gaps,
            {**TGP_OPTIONS, "proto_weight": 2.0, "margin_threshold": 0.1},
        ),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedtgp": (Limit({"proto_weight": 0.0, "server_epochs": 2}, "local"),),
    "fedproto": (
        Limit({"proto_weight": 0.0}, "local"),
        Limit({"proto_weight": 0.0, "proto_distance": "class_means"}, "local"),
    ),
}
