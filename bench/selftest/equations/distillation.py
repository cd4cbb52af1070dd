"""Distillation from the server or the other clients, and contrast.

FedLSD, FedCAD, FedNTD, FedDistill+, MOON. B batch, C classes, K clients. Teachers run in evaluation
mode and are constants; the student runs in training mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import Check, Limit, loss_check, mean_check
from bench.selftest.equations.fedgkd import student, teacher
from bench.selftest.equations.formulas import kl, softmax, sum_of, weighted
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
    LabRun,
    Pass,
    ce,
    fedavg_loss,
    holds,
    local_gap,
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
    term = kl(teacher(history.received, samples), student(w, samples), temperature)
    return (1 - a) * ce(w, samples) + a * (temperature**2 if kd_t_squared else 1.0) * term


def printed_weights(received: Params, beta: float, gamma: float, temperature: float) -> Tensor:
    """Compute Eq. 6 as printed, (C,).

    phi = p_y - sum_{k != y} p_k is averaged over each class's auxiliary samples.
    """
    auxiliary = server_samples("auxiliary")
    p = softmax(forward(received, auxiliary.x, training=False).logits, temperature)
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
    others = is_other.nonzero()[:, 1].view(-1, CLASSES - 1)
    term = kl(
        teacher(history.received, samples).gather(1, others),
        student(w, samples).gather(1, others),
        temperature,
    )
    return ce(w, samples) + beta * temperature**2 * term


def label_means(passes: list[Pass], of_logits: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a client's table (C, C): by label, the mean over its passes of a function of logits.

    Local models run in evaluation mode, and padding is left out. A row is NaN if no sample has the
    label.
    """
    outputs = []
    labels = []
    for w, samples in passes:
        is_sample = samples.weight > 0
        outputs.append(of_logits(teacher(w, samples))[is_sample])
        labels.append(samples.y[is_sample])
    values = torch.cat(outputs)
    y = torch.cat(labels)
    return torch.stack([values[y == label].mean(0) for label in range(CLASSES)])


def teaching(tables: Mapping[int, Tensor], client: int, exclude_self: bool) -> dict[int, Tensor]:
    """Return the tables that a client learns from: all, or those of the other clients."""
    return {k: table for k, table in tables.items() if k != client or not exclude_self}


def mean_row(tables: Mapping[int, Tensor], label: int) -> Tensor | None:
    """Return the mean of a label's rows over the tables that have one; None if none has."""
    rows = [table[label] for table in tables.values() if not table[label].isnan().any()]
    return sum_of(rows) / len(rows) if rows else None


def table_loss(
    w: Params, samples: Batch, tables: Mapping[int, Tensor], weight: float, temperature: float
) -> Tensor:
    """Return CE + lambda T^2 KL( softmax(Zbar_y / T) || softmax(z / T) ).

    The mean logits Zbar of the clients of `tables` are the teacher; a label that none of them has
    gets no such term.
    """
    terms = []
    for label, z in zip(samples.y.tolist(), student(w, samples), strict=True):
        mean = mean_row(tables, label)
        terms.append(0.0 * z.sum() if mean is None else kl(mean, z, temperature))
    return ce(w, samples) + weight * temperature**2 * torch.stack(terms)


def table_gaps(
    run: LabRun,
    distillation_weight: float,
    temperature: float,
    fd_exclude_self: bool = True,
    fd_cumulative: bool = False,
) -> Iterator[float]:
    """Compare each client's loss and gradient after two rounds.

    The formula uses an independent record of clients' latest tables.
    """
    counted: dict[int, list[Pass]] = {}
    for clients in TWO:
        passes = {k: run.passes(k) for k in clients}
        for k in clients:
            earlier = counted.get(k, []) if fd_cumulative else []
            counted[k] = earlier + passes[k]
        received = weighted(run.round(clients, passes), SIZES)
    tables = {k: label_means(passes, lambda z: z) for k, passes in counted.items()}
    for client in SIZES:
        teachers = teaching(tables, client, fd_exclude_self)
        loss = partial(
            table_loss, tables=teachers, weight=distillation_weight, temperature=temperature
        )
        yield local_gap(run, client, received, loss)


def table_check(title: str, weight: float, temperature: float, **others: bool) -> Check:
    """Make a check of every client's loss and gradient in round 3."""
    options = {"distillation_weight": weight, "temperature": temperature, **others}
    return Check(
        f"loss and gradient of every client, round 3, {title}", FEDDISTILL, table_gaps, options
    )


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
        constant = forward(v, samples.x, training=False).features.detach()
        return (_cosine(z, constant) / temperature).exp()

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


def _cosine(left: Tensor, right: Tensor) -> Tensor:
    squared_lengths = (left**2).sum(1) * (right**2).sum(1)
    return (left * right).sum(1) / squared_lengths.sqrt()


def random_previous(run: LabRun, mu: float, **options: Any) -> Iterator[float]:
    """Check two clients in round 1: their previous models differ, and neither is w_0."""
    drawn = []
    for client in (0, CLIENT):
        run.visit(client)
        previous = run.fed.drawn_models[-1]
        drawn.append(previous)
        loss = partial(contrast, received=run.initial, previous=previous, mu=mu)
        yield local_gap(run, client, run.initial, loss)
    first, second = drawn
    yield holds(gap(first, second) > 0)
    yield holds(gap(first, run.initial) > 0)


def fedlsd_check(title: str, **options: Any) -> Check:
    """Make a check of Eq. 4 in round 2."""
    return loss_check(title, FEDLSD, fedlsd_loss, ONE, **options)


def fedcad_check(
    title: str, beta: float, gamma: float, cohorts: Cohorts = ONE, **others: Any
) -> Check:
    """Make a check of the printed Eq. 6 against the form that the algorithm runs."""
    return loss_check(title, FEDCAD, fedcad_loss, cohorts, beta=beta, gamma=gamma, **others)


def moon_check(title: str, cohorts: Cohorts, last: int, **options: Any) -> Check:
    """Make a check of a client whose previous model is that of round `last`."""
    return loss_check(title, MOON, partial(moon_loss, last=last), cohorts, **options)


RANDOM: Any = {"mu": 2.0, "first_previous": "random"}
WAITING: Any = {"mu": 2.0, "first_previous": "none"}

CHECKS: dict[str, tuple[Check, ...]] = {
    "fedlsd": (
        fedlsd_check("loss and gradient, a=0.3, T=2", distillation_weight=0.3, temperature=2.0),
        fedlsd_check("loss and gradient, a=0.5, T=3", distillation_weight=0.5, temperature=3.0),
        # T=3, because at T=2 a wrong factor 2 T would equal T^2
        fedlsd_check(
            "times T^2, a=0.3, T=3", distillation_weight=0.3, temperature=3.0, kd_t_squared=True
        ),
        mean_check(distillation_weight=0.3),
    ),
    "fedcad": (
        fedcad_check("loss and gradient, round 1, weights by w_0", 0.3, 0.7, (), temperature=2.0),
        fedcad_check("loss and gradient, beta=0.3, gamma=0.7, T=2", 0.3, 0.7, temperature=2.0),
        fedcad_check("loss and gradient, beta=0, gamma=0.3, T=3", 0.0, 0.3, temperature=3.0),
        fedcad_check(
            "phi at its own temperature 1, T=2", 0.3, 0.7, temperature=2.0, phi_temperature=1.0
        ),
        fedcad_check("times T^2, T=3", 0.3, 0.7, temperature=3.0, kd_t_squared=True),
        mean_check(beta=0.3, gamma=0.7),
    ),
    "fedntd": (
        loss_check(
            "loss and gradient, beta=1, tau=1", FEDNTD, fedntd_loss, ONE, beta=1.0, temperature=1.0
        ),
        loss_check(
            "loss and gradient, beta=0.7, tau=3",
            FEDNTD,
            fedntd_loss,
            TWO,
            beta=0.7,
            temperature=3.0,
        ),
        mean_check(beta=1.0),
    ),
    "feddistill": (
        loss_check(
            "round 1 is without distillation", FEDDISTILL, fedavg_loss, distillation_weight=0.5
        ),
        table_check("lambda=0.1, T=1", 0.1, 1.0),
        table_check("lambda=0.7, T=3", 0.7, 3.0),
        table_check("own table included", 0.7, 2.0, fd_exclude_self=False),
        table_check("sums over all rounds", 0.7, 2.0, fd_cumulative=True),
        mean_check(distillation_weight=0.5),
    ),
    "moon": (
        loss_check("round 1 is without the term", MOON, fedavg_loss, **WAITING),
        loss_check(
            "a client's first round is without the term, round 3",
            MOON,
            fedavg_loss,
            ((0, 2), (0, 3)),
            client=1,
            **WAITING,
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
        mean_check(mu=2.0),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
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
