"""Distillation from the server or the other clients, and contrast.

FedLSD, FedCAD, FedNTD, FedDistill+, MOON. B batch, C classes, K clients. Teachers run in evaluation
mode and are constants; the student runs in training mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Outputs, Params
from bench.selftest.equations.checks import Check, Limit, loss_check, mean_check
from bench.selftest.equations.formulas import kl, softmax, weighted
from bench.selftest.equations.lab import (
    CLASSES,
    CLIENT,
    ONE,
    SIZES,
    TWO,
    Cohorts,
    forward,
    server_samples,
)
from bench.selftest.equations.lab_run import (
    FedAvgRecord,
    Gaps,
    LabRun,
    Pass,
    ce,
    constant,
    fedavg_loss,
    holds,
    student,
)
from bench.selftest.toy import gap

FEDLSD = "FedCAD, Eq. 4"
FEDCAD = "FedCAD, Eqs. 5-6"
FEDNTD = "Lee et al. 2022, Eqs. 4-6"
MOON = "Li et al. 2021 (MOON), Eq. 3"
FEDDISTILL = "FedGKD, section 5.1; Zhu et al. 2021, code"
MOON_CODE = "Li et al. 2021 (MOON), code"


def fedlsd_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    distillation_weight: Tensor | float,
    temperature: float,
    kd_t_squared: bool = False,
) -> Tensor:
    """Return Eq. 4: (1 - a) CE + a KL( p^g || p ) at temperature T.

    With `kd_t_squared` the last term is multiplied by T^2. The weight a is a number, or (C,) by
    class.
    """
    a = distillation_weight
    a = a[samples.y] if isinstance(a, Tensor) else a
    term = kl(constant(history.received, samples.x).logits, student(w, samples), temperature)
    return (1 - a) * ce(w, samples) + a * (temperature**2 if kd_t_squared else 1.0) * term


def printed_weights(received: Params, beta: float, gamma: float, temperature: float) -> Tensor:
    """Compute Eq. 6 as printed, (C,).

    phi = p_y - sum_{k != y} p_k is averaged over each class's auxiliary samples.
    """
    auxiliary = server_samples("auxiliary")
    p = softmax(constant(received, auxiliary.x).logits, temperature)
    weights = []
    for label in range(CLASSES):
        members = p[auxiliary.y == label]
        others = [k for k in range(CLASSES) if k != label]
        phi = members[:, label] - members[:, others].sum(1)
        weights.append((gamma - beta) / 2 * phi.mean() + (gamma + beta) / 2)
    return torch.stack(weights)


def fedcad_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    beta: float,
    gamma: float,
    temperature: float,
    phi_temperature: float | None = None,
    kd_t_squared: bool = False,
) -> Tensor:
    """Return Eq. 5: FedLSD's objective with the weights of Eq. 6 of the received model."""
    weights = printed_weights(history.received, beta, gamma, phi_temperature or temperature)
    return fedlsd_loss(w, samples, history, weights, temperature, kd_t_squared)


def fedntd_loss(
    w: Params, samples: Batch, history: FedAvgRecord, beta: float, temperature: float
) -> Tensor:
    """Return CE + beta tau^2 KL( p^g || p ).

    p^g and p are over the C - 1 classes other than the true one.
    """
    is_other = torch.arange(CLASSES) != samples.y[:, None]
    teacher = constant(history.received, samples.x).logits[is_other].view(-1, CLASSES - 1)
    z = student(w, samples)[is_other].view(-1, CLASSES - 1)
    return ce(w, samples) + beta * temperature**2 * kl(teacher, z, temperature)


def class_means(passes: Iterable[Pass], values_of: Callable[[Outputs], Tensor]) -> Tensor:
    """Return a client's table (C, ...): by class, the mean of values over its passes.

    They are those of its models' outputs in evaluation mode, and padding is left out. A row is NaN
    if no sample has the label.
    """
    values = []
    labels = []
    for w, samples in passes:
        is_sample = samples.weight > 0
        values.append(values_of(constant(w, samples.x))[is_sample])
        labels.append(samples.y[is_sample])
    y = torch.cat(labels)
    return torch.stack([torch.cat(values)[y == label].mean(0) for label in range(CLASSES)])


def teaching(
    tables: Mapping[int, Tensor], client: int, exclude_self: bool, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Return each label's mean row over the clients' tables that have it, and 1; or 0 and 0.

    The client's own table is left out if `exclude_self`.
    """
    others = [table for k, table in tables.items() if k != client or not exclude_self]
    rows = torch.stack(others).nanmean(0)[y]
    return rows.nan_to_num(), (~rows.isnan().any(1)).double()


def table_gaps(
    run: LabRun,
    distillation_weight: float,
    temperature: float,
    fd_exclude_self: bool = True,
    fd_cumulative: bool = False,
) -> Gaps:
    """Compare each client's loss and gradient after two rounds.

    The objective is CE + lambda T^2 KL( softmax(Zbar_y / T) || softmax(z / T) ). The mean logits
    Zbar of the latest tables are the teacher; a label that none of them has gets no such term.
    """
    counted: dict[int, list[Pass]] = {}
    for clients in TWO:
        for k in clients:
            earlier = counted.get(k, []) if fd_cumulative else []
            counted[k] = earlier + run.passes(k)
        received = weighted(run.round(clients))
    tables = {k: class_means(passes, lambda out: out.logits) for k, passes in counted.items()}

    def loss(w: Params, samples: Batch, client: int) -> Tensor:
        mean, has = teaching(tables, client, fd_exclude_self, samples.y)
        term = temperature**2 * kl(mean, student(w, samples), temperature)
        return ce(w, samples) + distillation_weight * has * term

    for client in SIZES:
        yield run.local_gap(client, received, partial(loss, client=client))


def contrast(
    w: Params,
    samples: Batch,
    received: Params,
    previous: Params,
    mu: float,
    temperature: float = 0.5,
) -> Tensor:
    """Return Eq. 3: CE - mu log(e^(s(z,z_g)/tau) / (e^(s(z,z_g)/tau) + e^(s(z,z_prev)/tau))).

    s is the cosine of features.
    """
    z = forward(w, samples.x).features

    def similarity(v: Params) -> Tensor:
        other = constant(v, samples.x).features
        cosine = (z * other).sum(1) / ((z**2).sum(1) * (other**2).sum(1)).sqrt()
        return (cosine / temperature).exp()

    near = similarity(received)
    far = similarity(previous)
    return ce(w, samples) - mu * (near / (near + far)).log()


def moon_loss(
    w: Params,
    samples: Batch,
    history: FedAvgRecord,
    last: int,
    mu: float,
    temperature: float = 0.5,
    **others: Any,
) -> Tensor:
    """Return Eq. 3 of a client whose previous model is that of round `last`."""
    previous = history.locals[last - 1][CLIENT]
    return contrast(w, samples, history.received, previous, mu, temperature)


def random_previous(run: LabRun, mu: float, **options: Any) -> Gaps:
    """Check two clients in round 1: their previous models are drawn, and differ."""
    drawn = run.fed.drawn_models
    for client in (0, CLIENT):
        run.visit(client)
        loss = partial(contrast, received=run.initial, previous=drawn[-1], mu=mu)
        yield run.local_gap(client, run.initial, loss)
    yield holds(gap(drawn[0], drawn[-1]) > 0)


RANDOM: Any = {"mu": 2.0, "first_previous": "random"}
LSD_CHECK = partial(loss_check, source=FEDLSD, loss=fedlsd_loss, cohorts=ONE)
CAD_CHECK = partial(loss_check, source=FEDCAD, loss=fedcad_loss, cohorts=ONE)
NTD_CHECK = partial(loss_check, source=FEDNTD, loss=fedntd_loss)


def moon_check(title: str, cohorts: Cohorts, last: int, **options: Any) -> Check:
    """Make a check of a client whose previous model is that of round `last`."""
    return loss_check(title, MOON, partial(moon_loss, last=last), cohorts, **options)


def table_check(title: str, weight: float, temperature: float, **others: bool) -> Check:
    """Make a check of every client's loss and gradient in round 3."""
    options = {"distillation_weight": weight, "temperature": temperature, **others}
    return Check(
        f"loss and gradient of every client, round 3, {title}", FEDDISTILL, table_gaps, options
    )


CHECKS = {
    "fedlsd": (
        LSD_CHECK("loss and gradient, a=0.3, T=2", distillation_weight=0.3, temperature=2.0),
        LSD_CHECK("loss and gradient, a=0.5, T=3", distillation_weight=0.5, temperature=3.0),
        # T=3, because at T=2 a wrong factor 2 T would equal T^2
        LSD_CHECK(
            "times T^2, a=0.3, T=3", distillation_weight=0.3, temperature=3.0, kd_t_squared=True
        ),
        mean_check(),
    ),
    "fedcad": (
        CAD_CHECK(
            "loss and gradient, round 1, weights by w_0",
            cohorts=(),
            beta=0.3,
            gamma=0.7,
            temperature=2.0,
        ),
        CAD_CHECK(
            "loss and gradient, beta=0.3, gamma=0.7, T=2", beta=0.3, gamma=0.7, temperature=2.0
        ),
        CAD_CHECK(
            "loss and gradient, beta=0, gamma=0.3, T=3", beta=0.0, gamma=0.3, temperature=3.0
        ),
        CAD_CHECK(
            "phi at its own temperature 1, T=2",
            beta=0.3,
            gamma=0.7,
            temperature=2.0,
            phi_temperature=1.0,
        ),
        CAD_CHECK("times T^2, T=3", beta=0.3, gamma=0.7, temperature=3.0, kd_t_squared=True),
        mean_check(),
    ),
    "fedntd": (
        NTD_CHECK("loss and gradient, beta=1, tau=1", cohorts=ONE, beta=1.0, temperature=1.0),
        NTD_CHECK("loss and gradient, beta=0.7, tau=3", cohorts=TWO, beta=0.7, temperature=3.0),
        mean_check(),
    ),
    "feddistill": (
        loss_check("round 1 is without distillation", FEDDISTILL, fedavg_loss),
        table_check("lambda=0.1, T=1", 0.1, 1.0),
        table_check("lambda=0.7, T=3", 0.7, 3.0),
        table_check("own table included", 0.7, 2.0, fd_exclude_self=False),
        table_check("sums over all rounds", 0.7, 2.0, fd_cumulative=True),
        mean_check(),
    ),
    "moon": (
        loss_check("round 1 is without the term", MOON, fedavg_loss),
        loss_check(
            "a client's first round is without the term, round 3",
            MOON,
            fedavg_loss,
            ((0, 2), (0, 3)),
            client=1,
        ),
        moon_check("loss and gradient, round 2, mu=5, tau=0.5", ONE, 1, mu=5.0),
        moon_check("round 3, mu=0.7, tau=0.9", TWO, 2, mu=0.7, temperature=0.9),
        moon_check("two rounds sat out", ((0, 2), (1, 3), (0, 4)), 1, mu=2.0),
        Check(
            "a random network first, of each client its own, round 1",
            MOON_CODE,
            random_previous,
            RANDOM,
        ),
        moon_check("a random network first, round 3", TWO, 2, **RANDOM),
        mean_check(),
    ),
}

LIMITS = {
    "fedlsd": (Limit({"distillation_weight": 0.0}),),
    "fedcad": (
        Limit({"beta": 0.0, "gamma": 0.0}),
        Limit({"beta": 0.3, "gamma": 0.3}, "fedlsd", {"distillation_weight": 0.3}),
        Limit({"beta": 0.5, "gamma": 0.5}, "fedlsd", {"distillation_weight": 0.5}),
    ),
    "fedntd": (Limit({"beta": 0.0}),),
    "feddistill": (Limit({"distillation_weight": 0.0}),),
    "moon": (Limit({"mu": 0.0}), Limit({"mu": 0.0, "first_previous": "random"})),
}
