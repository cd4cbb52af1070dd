"""Methods with a server of their own: SCAFFOLD, FedNova, FedDyn, FedAvgM, FedAdam, q-FFL.

Each check keeps its own record of the server's and the clients' state, written from the paper's
update rules, over rounds of different clients, step counts and learning rates. Models, gradients
and states are vectors of the trained entries. Running statistics are averaged by examples
throughout.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import ROUNDING, Check, Limit, loss_check
from bench.selftest.equations.formulas import (
    cross_entropy,
    mean,
    shares,
    sum_of,
    vector,
    weighted,
    with_vector,
)
from bench.selftest.equations.lab import SIZES, THREE, TWO, batch, loss_and_grad_of, model
from bench.selftest.equations.lab_run import (
    Gaps,
    LabRun,
    ce,
    constant,
    fedavg_loss,
    mean_of,
)
from bench.selftest.toy import gap

STEPS = {0: 3.0, 1: 4.0, 2: 7.0, 3: 2.0, 4: 5.0}  # tau_k
RATES = (0.1, 0.04, 0.07)  # eta of rounds 1, 2, 3


def vectors(models: dict[int, Params]) -> dict[int, Tensor]:
    """Return each client's model as a vector."""
    return {k: vector(w) for k, w in models.items()}


def scaffold(run: LabRun, server_lr: float) -> Gaps:
    """Check y <- y - eta_l (g(y) - c_k + c), option II for c_k, and the server's two updates.

    Only the gradient is compared, because the paper prints a step without an objective.
    """
    x = vector(run.initial)
    c = torch.zeros_like(x)
    c_k = dict.fromkeys(SIZES, c)
    samples = batch("compared")
    params = model(run.net, "compared")
    g = vector(loss_and_grad_of(partial(mean_of, ce, samples), params).grad)
    for clients in THREE:
        for k in SIZES:
            grad = run.visit(k, STEPS[k]).step_loss(params, samples).grad
            yield gap(vector(grad), g - c_k[k] + c)
        lr = run.lr
        ended = run.round(clients, STEPS)
        y = vectors(ended)
        new = {k: c_k[k] - c + (x - y[k]) / (STEPS[k] * lr) for k in clients}
        x = x + server_lr * mean(y[k] - x for k in clients)
        c = c + len(clients) / len(SIZES) * mean(new[k] - c_k[k] for k in clients)
        c_k |= new
        yield run.model_gap(with_vector(weighted(ended), x))


def fednova(run: LabRun) -> Gaps:
    """Check w - tau_eff sum p_k d_k, with d_k = (w - w_k) / a_k and tau_eff = sum p_k a_k."""
    rho = run.momentum

    def length(steps: float) -> float:
        if rho == 0:
            return steps
        return (steps - rho * (1 - float(rho**steps)) / (1 - rho)) / (1 - rho)

    a = {k: length(steps) for k, steps in STEPS.items()}
    w = vector(run.initial)
    for clients in TWO:
        ended = run.round(clients, STEPS)
        p = shares(clients)
        tau_eff = sum(p[k] * a[k] for k in clients)
        w = w - tau_eff * sum_of(p[k] * (w - vector(ended[k])) / a[k] for k in clients)
        yield run.model_gap(with_vector(weighted(ended), w))


def dyn_loss(w: Params, samples: Batch, received: Tensor, h: Tensor, alpha: float) -> Tensor:
    """Return F_k(w) - <h_k, w> + alpha/2 ||w - w_t||^2."""
    v = vector(w)
    return ce(w, samples) - h @ v + alpha / 2 * ((v - received) ** 2).sum()


def feddyn(run: LabRun, alpha_dyn: float) -> Gaps:
    """Check each client's loss and the server's step; h_k and h follow the local models."""
    received = run.initial
    h = torch.zeros_like(vector(received))
    h_k = dict.fromkeys(SIZES, h)
    for clients in THREE:
        w = vector(received)
        for k in SIZES:
            loss = partial(dyn_loss, received=w, h=h_k[k], alpha=alpha_dyn)
            yield run.local_gap(k, received, loss)
        ended = run.round(clients)
        y = vectors(ended)
        h_k |= {k: h_k[k] - alpha_dyn * (y[k] - w) for k in clients}
        h = h - alpha_dyn / len(SIZES) * sum_of(y[k] - w for k in clients)
        received = with_vector(weighted(ended), mean(y.values()) - h / alpha_dyn)
        yield run.model_gap(received)


def fedavgm(run: LabRun, server_lr: float, server_momentum: float) -> Gaps:
    """Check v <- beta v + sum p_k (w_t - w_k); w <- w - eta v."""
    w = vector(run.initial)
    v = torch.zeros_like(w)
    for clients in THREE:
        averaged = weighted(run.round(clients))
        v = server_momentum * v + w - vector(averaged)
        w = w - server_lr * v
        yield run.model_gap(with_vector(averaged, w))


def fedadam(run: LabRun, server_lr: float, beta1: float, beta2: float, tau: float) -> Gaps:
    """Check w <- w + eta m / (sqrt(v) + tau).

    m and v are uncorrected moments of Delta = sum p_k (w_k - w_t); v begins at tau^2.
    """
    w = vector(run.initial)
    m = torch.zeros_like(w)
    v = torch.full_like(w, tau**2)
    for clients in THREE:
        averaged = weighted(run.round(clients))
        delta = vector(averaged) - w
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        w = w + server_lr * m / (v.sqrt() + tau)
        yield run.model_gap(with_vector(averaged, w))


def qffl(run: LabRun, q: float) -> Gaps:
    """Check w - sum_k F_k^q d_k / sum_k (q F_k^(q-1) ||d_k||^2 + L F_k^q).

    Here d_k = L (w - w_k) and L = 1 / lr. The local risk F_k is the mean cross entropy on all of a
    client's samples, in evaluation mode.
    """
    received = run.initial
    for clients in TWO:
        w = vector(received)
        lipschitz = 1 / run.lr
        ended = run.round(clients)
        steps = []
        norms = []
        for k in clients:
            data = run.clients[k]
            logits = constant(received, data.x).logits
            risk = cross_entropy(logits, data.y).mean() + 1e-10
            d = lipschitz * (w - vector(ended[k]))
            steps.append(risk**q * d)
            norms.append(q * risk ** (q - 1) * d @ d + lipschitz * risk**q)
        received = with_vector(weighted(ended), w - sum_of(steps) / sum_of(norms))
        yield run.model_gap(received)


CLIENTS_AND_SERVER = "every client, server step, 3 rounds"
KARIMIREDDY = "Karimireddy et al. 2020, Algorithm 1, option II"
ACAR = "Acar et al. 2021, Algorithm 1"
WANG = "Wang et al. 2020 (FedNova), section 4"
HSU = "Hsu et al. 2019, section 4.3"
REDDI = "Reddi et al. 2021, Algorithm 2"
QFFL = "Li et al. 2020 (q-FFL), Algorithm 2"
QFFL_MEAN = "Li et al. 2020 (q-FFL), section 3"
NOVA = "server step, unequal step counts, momentum"
FEDAVG_LOSS = partial(loss_check, "loss and gradient, round 1", "the cross entropy", fedavg_loss)

CHECKS = {
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
        FEDAVG_LOSS(),
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
        FEDAVG_LOSS(),
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
        FEDAVG_LOSS(),
    ),
    "qffl": (
        Check("server step, 2 rounds, q=1.0", QFFL, qffl, {"q": 1.0}, lrs=RATES),
        Check("server step, 2 rounds, q=0.3", QFFL, qffl, {"q": 0.3}, lrs=RATES),
        Check("q=0 is the plain mean of the local models", QFFL_MEAN, qffl, {"q": 0.0}, lrs=RATES),
        FEDAVG_LOSS(q=1.0),
    ),
}

LIMITS = {
    "scaffold": (Limit.of_equal_clients(rounds=1),),
    "fednova": (Limit.of_equal_clients(),),
    "fedavgm": (Limit({"server_momentum": 0.0}, tolerance=ROUNDING),),
    "qffl": (Limit.of_equal_clients(q=0.0),),
}
