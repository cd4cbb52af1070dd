"""Methods with a server of their own: SCAFFOLD, FedNova, FedDyn, FedAvgM, FedAdam, q-FFL.

Each check keeps its own record of the server's and the clients' state, written from the paper's
update rules, over rounds of different clients, step counts and learning rates. Running statistics
are averaged by examples throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.averaging import TRAINED
from bench.selftest.equations.checks import ROUNDING, Check, Limit, loss_check
from bench.selftest.equations.formulas import cross_entropy, plain, sum_of, weighted
from bench.selftest.equations.lab import SIZES, THREE, TWO, batch, forward, model
from bench.selftest.equations.lab_run import (
    LabRun,
    ce,
    fedavg_loss,
    local_gap,
    loss_and_grad_of,
    mean_of,
)
from bench.selftest.toy import gap

STEPS = {0: 3.0, 1: 4.0, 2: 7.0, 3: 2.0, 4: 5.0}  # tau_k
RATES = (0.1, 0.04, 0.07)  # eta of rounds 1, 2, 3


def minus(left: Params, right: Params) -> Params:
    """Subtract the trained entries."""
    return {name: left[name] - right[name] for name in TRAINED}


def scaled(factor: float, params: Params) -> Params:
    """Multiply each entry by a number."""
    return {name: factor * value for name, value in params.items()}


def zero(params: Params) -> Params:
    """Return zeros in the shape of the trained entries."""
    return {name: torch.zeros_like(params[name]) for name in TRAINED}


def inner(left: Params, right: Params) -> Tensor:
    """Return the inner product over the trained entries."""
    return sum_of((left[name] * right[name]).sum() for name in TRAINED)


def scaffold(run: LabRun, server_lr: float) -> Iterator[float]:
    """Check y <- y - eta_l (g(y) - c_k + c), option II for c_k, and the server's two updates.

    Only the gradient is compared, because the paper prints a step without an objective.
    """
    w = run.initial
    c = zero(run.initial)
    c_k = {k: zero(w) for k in SIZES}
    samples = batch("compared")
    params = model(run.net, "compared")
    g = loss_and_grad_of(partial(mean_of, ce, samples), params, run.net.trainable).grad
    for clients in THREE:
        for k in SIZES:
            grad = run.visit(k, STEPS[k]).step_loss(params, samples).grad
            yield gap(grad, {name: g[name] + c[name] - c_k[k][name] for name in TRAINED})
        lr = run.lr
        ended = run.round(clients, steps=STEPS)
        new_c_k = {}
        for k, y in ended.items():
            scale = 1 / (STEPS[k] * lr)
            new_c_k[k] = {n: c_k[k][n] - c[n] + scale * (w[n] - y[n]) for n in TRAINED}
        w_delta = plain({k: minus(y, w) for k, y in ended.items()})
        c_delta = plain({k: minus(new_c_k[k], c_k[k]) for k in new_c_k})
        w = weighted(ended, SIZES) | {n: w[n] + server_lr * w_delta[n] for n in TRAINED}
        c = {n: c[n] + len(ended) / len(SIZES) * c_delta[n] for n in TRAINED}
        c_k |= new_c_k
        yield run.model_gap(w)


def fednova(run: LabRun) -> Iterator[float]:
    """Check w - tau_eff sum p_k d_k, with d_k = (w - w_k) / a_k and tau_eff = sum p_k a_k."""
    momentum = run.momentum

    def length(steps: float) -> float:
        if momentum == 0:
            return steps
        decayed = momentum * (1 - float(momentum**steps)) / (1 - momentum)
        return (steps - decayed) / (1 - momentum)

    w = run.initial
    for clients in TWO:
        ended = run.round(clients, steps=STEPS)
        total = sum(SIZES[k] for k in ended)
        effective = sum(SIZES[k] / total * length(STEPS[k]) for k in ended)
        d = {k: scaled(1 / length(STEPS[k]), minus(w, y)) for k, y in ended.items()}
        move = weighted(d, SIZES)
        w = weighted(ended, SIZES) | {n: w[n] - effective * move[n] for n in TRAINED}
        yield run.model_gap(w)


def dyn_loss(w: Params, samples: Batch, received: Params, h: Params, alpha: float) -> Tensor:
    """Return F_k(w) - <h_k, w> + alpha/2 ||w - w_t||^2."""
    risk = mean_of(ce, samples, w)
    moved = minus(w, received)
    return risk - inner(h, w) + alpha / 2 * inner(moved, moved)


def feddyn(run: LabRun, alpha_dyn: float) -> Iterator[float]:
    """Check each client's loss and the server's step; h_k and h follow the local models."""
    w = run.initial
    h = zero(run.initial)
    h_k = {k: zero(w) for k in SIZES}

    for clients in THREE:
        for k in SIZES:
            yield local_gap(run, k, w, partial(dyn_loss, received=w, h=h_k[k], alpha=alpha_dyn))
        ended = run.round(clients)
        for k, y in ended.items():
            move = scaled(alpha_dyn, minus(y, w))
            h_k[k] = minus(h_k[k], move)
            h = minus(h, scaled(1 / len(SIZES), move))
        mean = plain(ended)
        w = weighted(ended, SIZES) | {n: mean[n] - h[n] / alpha_dyn for n in TRAINED}
        yield run.model_gap(w)


def fedavgm(run: LabRun, server_lr: float, server_momentum: float) -> Iterator[float]:
    """Check v <- beta v + sum p_k (w_t - w_k); w <- w - eta v."""
    w = run.initial
    v = zero(run.initial)
    for clients in THREE:
        mean = weighted(run.round(clients), SIZES)
        v = {n: server_momentum * v[n] + w[n] - mean[n] for n in TRAINED}
        w = mean | {n: w[n] - server_lr * v[n] for n in TRAINED}
        yield run.model_gap(w)


def fedadam(
    run: LabRun, server_lr: float, beta1: float, beta2: float, tau: float
) -> Iterator[float]:
    """Check w <- w + eta m / (sqrt(v) + tau).

    m and v are uncorrected moments of Delta = sum p_k (w_k - w_t); v begins at tau^2.
    """
    w = run.initial
    m = zero(run.initial)
    v = {n: torch.full_like(w[n], tau**2) for n in TRAINED}
    for clients in THREE:
        mean = weighted(run.round(clients), SIZES)
        delta = minus(mean, w)
        m = {n: beta1 * m[n] + (1 - beta1) * delta[n] for n in TRAINED}
        v = {n: beta2 * v[n] + (1 - beta2) * delta[n] ** 2 for n in TRAINED}
        w = mean | {n: w[n] + server_lr * m[n] / (v[n].sqrt() + tau) for n in TRAINED}
        yield run.model_gap(w)


def qffl(run: LabRun, q: float) -> Iterator[float]:
    """Check w - sum_k F_k^q d_k / sum_k (q F_k^(q-1) ||d_k||^2 + L F_k^q).

    Here d_k = L (w - w_k) and L = 1 / lr. The local risk F_k is the mean cross entropy on all of a
    client's samples, in evaluation mode.
    """
    w = run.initial
    for clients in TWO:
        lipschitz = 1 / run.lr
        ended = run.round(clients)
        risk = {}
        for k in ended:
            data = run.clients[k]
            losses = cross_entropy(forward(w, data.x, training=False).logits, data.y)
            risk[k] = losses.mean() + 1e-10
        d = {k: scaled(lipschitz, minus(w, y)) for k, y in ended.items()}
        h = sum_of(
            q * risk[k] ** (q - 1) * inner(d[k], d[k]) + lipschitz * risk[k] ** q for k in ended
        )
        step = zero(w)
        for k in ended:
            step = {n: step[n] + risk[k] ** q * d[k][n] / h for n in TRAINED}
        w = weighted(ended, SIZES) | minus(w, step)
        yield run.model_gap(w)


CLIENTS_AND_SERVER = "every client, server step, 3 rounds"
KARIMIREDDY = "Karimireddy et al. 2020, Algorithm 1, option II"
ACAR = "Acar et al. 2021, Algorithm 1"
WANG = "Wang et al. 2020 (FedNova), section 4"
HSU = "Hsu et al. 2019, section 4.3"
REDDI = "Reddi et al. 2021, Algorithm 2"
QFFL = "Li et al. 2020 (q-FFL), "
NOVA = "server step, unequal step counts, momentum"
FEDAVG_LOSS = loss_check("loss and gradient, round 1", "the cross entropy", fedavg_loss)


CHECKS: dict[str, tuple[Check, ...]] = {
    "scaffold": (
        Check(
            f"corrected gradient of {CLIENTS_AND_SERVER}",
            KARIMIREDDY,
            scaffold,
            {"server_lr": 0.7},
            lrs=RATES,
        ),
    ),
    "fednova": (
        Check(f"{NOVA}=0.0, 2 rounds", WANG, fednova),
        Check(f"{NOVA}=0.9, 2 rounds", WANG, fednova, momentum=0.9),
        FEDAVG_LOSS,
    ),
    "feddyn": (
        Check(
            f"loss and gradient of {CLIENTS_AND_SERVER}, alpha_dyn=0.3",
            ACAR,
            feddyn,
            {"alpha_dyn": 0.3},
        ),
    ),
    "fedavgm": (
        Check("server step, 3 rounds", HSU, fedavgm, {"server_lr": 0.7, "server_momentum": 0.9}),
        Check(
            "server step without momentum", HSU, fedavgm, {"server_lr": 1.0, "server_momentum": 0.0}
        ),
        FEDAVG_LOSS,
    ),
    "fedadam": (
        Check(
            "server step, 3 rounds",
            REDDI,
            fedadam,
            {"server_lr": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
        ),
        Check(
            "with a large tau",
            REDDI,
            fedadam,
            {"server_lr": 0.3, "beta1": 0.5, "beta2": 0.8, "tau": 0.1},
        ),
        FEDAVG_LOSS,
    ),
    "qffl": (
        Check("server step, 2 rounds, q=1.0", f"{QFFL}Algorithm 2", qffl, {"q": 1.0}, lrs=RATES),
        Check("server step, 2 rounds, q=0.3", f"{QFFL}Algorithm 2", qffl, {"q": 0.3}, lrs=RATES),
        Check(
            "q=0 is the plain mean of the local models",
            f"{QFFL}section 3",
            qffl,
            {"q": 0.0},
            lrs=RATES,
        ),
        loss_check("loss and gradient, round 1", "the cross entropy", fedavg_loss, q=1.0),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "scaffold": (Limit.of_equal_clients(rounds=1),),
    "fednova": (Limit.of_equal_clients(),),
    "fedavgm": (Limit({"server_momentum": 0.0}, tolerance=ROUNDING),),
    "qffl": (Limit.of_equal_clients(q=0.0),),
}
