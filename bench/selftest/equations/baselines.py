"""Methods with a server of their own: SCAFFOLD, FedNova, FedDyn, FedAvgM, FedAdam, q-FFL.

Each check keeps its own account of the server's and the clients' state, written from the paper's update rules, over
rounds of different clients, step counts and learning rates. Running statistics are averaged by examples throughout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.base import Data, Params
from bench.selftest.equations.averaging import TRAINED
from bench.selftest.equations.builders import THREE, TWO, ce, fedavg_loss, loss_check
from bench.selftest.equations.checks import ROUNDING, Check, Limit, Make, gap
from bench.selftest.equations.formulas import cross_entropy, masked, plain, sum_of, weighted
from bench.selftest.equations.lab import SIZES, batch, forward, model
from bench.selftest.equations.run import Run, slope_gap, slope_of

STEPS = {0: 3.0, 1: 4.0, 2: 7.0, 3: 2.0, 4: 5.0}  # tau_k
RATES = (0.1, 0.04, 0.07)  # eta of rounds 1, 2, 3


def trained(params: Params) -> Params:
    """The entries that the local optimiser trains."""
    return {name: params[name] for name in TRAINED}


def minus(left: Params, right: Params) -> Params:
    """The difference of the trained entries."""
    return {name: left[name] - right[name] for name in TRAINED}


def zero(params: Params) -> Params:
    """Zeros in the shape of the trained entries."""
    return {name: torch.zeros_like(params[name]) for name in TRAINED}


def inner(left: Params, right: Params) -> Tensor:
    """The inner product over the trained entries."""
    return sum_of((left[name] * right[name]).sum() for name in TRAINED)


def scaffold(server_lr: float) -> Check:
    """SCAFFOLD: y <- y - eta_l (g(y) - c_k + c), option II for c_k, and the server's two updates."""

    def check(make: Make) -> float:
        run = Run(make, {"server_lr": server_lr}, lrs=RATES)
        w, c, gaps = run.initial, zero(run.initial), []
        own = {k: zero(w) for k in SIZES}
        for clients in THREE:
            gaps += [_corrected_gap(run, k, minus(c, own[k])) for k in SIZES]
            lr, ended = run.lr, run.round(clients, STEPS)
            new = {
                k: {n: own[k][n] - c[n] + (w[n] - y[n]) / (STEPS[k] * lr) for n in TRAINED} for k, y in ended.items()
            }
            move, turn = (
                plain({k: minus(y, w) for k, y in ended.items()}),
                plain({k: minus(new[k], own[k]) for k in new}),
            )
            w = weighted(ended, SIZES) | {n: w[n] + server_lr * move[n] for n in TRAINED}
            c = {n: c[n] + len(ended) / len(SIZES) * turn[n] for n in TRAINED}
            own |= new
            gaps.append(run.model_gap(w))
        return max(gaps)

    title = f"corrected gradient of every client, server step, 3 rounds, server_lr={server_lr}"
    return Check(title, "Karimireddy et al. 2020, Algorithm 1, option II", check)


def _corrected_gap(run: Run, client: int, correction: Params) -> float:
    """The gap of the gradient alone: the paper prints a step, and no objective that it would be the gradient of."""
    given, params = batch("look"), model(run.net, "look")
    got = run.visit(client, STEPS[client]).slope(params, given).grad
    g = slope_of(run.net, lambda w: masked(ce(w, given), given.weight), params).grad
    return gap(got, {name: g[name] + correction[name] for name in TRAINED})


def fednova(momentum: float) -> Check:
    """FedNova: w - tau_eff sum p_k d_k, with d_k = (w - w_k) / a_k and tau_eff = sum p_k a_k."""

    def length(steps: float) -> float:
        if momentum == 0:
            return steps
        return (steps - momentum * (1 - float(momentum**steps)) / (1 - momentum)) / (1 - momentum)

    def check(make: Make) -> float:
        run = Run(make, {}, momentum=momentum)
        w, gaps = run.initial, []
        for clients in TWO:
            ended = run.round(clients, STEPS)
            share = {k: SIZES[k] / sum(SIZES[j] for j in ended) for k in ended}
            effective = sum(share[k] * length(STEPS[k]) for k in ended)
            moves = {k: {n: d / length(STEPS[k]) for n, d in minus(w, y).items()} for k, y in ended.items()}
            move = weighted(moves, SIZES)
            w = weighted(ended, SIZES) | {n: w[n] - effective * move[n] for n in TRAINED}
            gaps.append(run.model_gap(w))
        return max(gaps)

    title = f"server step, unequal step counts, momentum={momentum}, 2 rounds"
    return Check(title, "Wang et al. 2020 (FedNova), section 4", check)


def feddyn(alpha: float) -> Check:
    """FedDyn: F_k(w) - <h_k, w> + alpha/2 ||w - w_t||^2; h_k and the server's h follow the local models."""

    def check(make: Make) -> float:
        run = Run(make, {"alpha_dyn": alpha})
        w, h, gaps = run.initial, zero(run.initial), []
        own = {k: zero(w) for k in SIZES}
        for clients in THREE:
            gaps += [_dynamic_gap(run, k, own[k], w, alpha) for k in SIZES]
            ended = run.round(clients)
            moves = {k: minus(y, w) for k, y in ended.items()}
            own |= {k: {n: own[k][n] - alpha * move[n] for n in TRAINED} for k, move in moves.items()}
            h = {n: h[n] - alpha / len(SIZES) * sum_of(move[n] for move in moves.values()) for n in TRAINED}
            mean = plain({k: trained(y) for k, y in ended.items()})
            w = weighted(ended, SIZES) | {n: mean[n] - h[n] / alpha for n in TRAINED}
            gaps.append(run.model_gap(w))
        return max(gaps)

    title = f"loss and gradient of every client, server step, 3 rounds, alpha_dyn={alpha}"
    return Check(title, "Acar et al. 2021, Algorithm 1", check)


def _dynamic_gap(run: Run, client: int, own: Params, received: Params, alpha: float) -> float:
    given, params = batch("look"), model(run.net, "look")

    def objective(w: Params) -> Tensor:
        moved = minus(w, received)
        return masked(ce(w, given), given.weight) - inner(own, w) + alpha / 2 * inner(moved, moved)

    return slope_gap(run.visit(client).slope(params, given), slope_of(run.net, objective, params))


def fedavgm(server_lr: float, beta: float) -> Check:
    """FedAvgM: v <- beta v + sum p_k (w_t - w_k); w <- w - eta v."""

    def check(make: Make) -> float:
        run = Run(make, {"server_lr": server_lr, "server_momentum": beta})
        w, v, gaps = run.initial, zero(run.initial), []
        for clients in THREE:
            mean = weighted(run.round(clients), SIZES)
            v = {n: beta * v[n] + w[n] - mean[n] for n in TRAINED}
            w = mean | {n: w[n] - server_lr * v[n] for n in TRAINED}
            gaps.append(run.model_gap(w))
        return max(gaps)

    title = f"server step, 3 rounds, server_lr={server_lr}, server_momentum={beta}"
    return Check(title, "Hsu et al. 2019, section 4.3", check)


def fedadam(server_lr: float, beta1: float, beta2: float, tau: float) -> Check:
    """FedAdam: w <- w + eta m / (sqrt(v) + tau), uncorrected moments of Delta = sum p_k (w_k - w_t), v from tau^2."""

    def check(make: Make) -> float:
        run = Run(make, {"server_lr": server_lr, "beta1": beta1, "beta2": beta2, "tau": tau})
        w, m, gaps = run.initial, zero(run.initial), []
        v = {n: torch.full_like(w[n], tau**2) for n in TRAINED}
        for clients in THREE:
            mean = weighted(run.round(clients), SIZES)
            delta = minus(mean, w)
            m = {n: beta1 * m[n] + (1 - beta1) * delta[n] for n in TRAINED}
            v = {n: beta2 * v[n] + (1 - beta2) * delta[n] ** 2 for n in TRAINED}
            w = mean | {n: w[n] + server_lr * m[n] / (v[n].sqrt() + tau) for n in TRAINED}
            gaps.append(run.model_gap(w))
        return max(gaps)

    title = f"server step, 3 rounds, server_lr={server_lr}, tau={tau}"
    return Check(title, "Reddi et al. 2021, Algorithm 2", check)


def qffl(q: float) -> Check:
    """Of q-FedAvg: w - sum_k F_k^q d_k / sum_k (q F_k^(q-1) ||d_k||^2 + L F_k^q), d_k = L (w - w_k), L = 1 / lr."""

    def check(make: Make) -> float:
        run = Run(make, {"q": q}, lrs=RATES)
        w, gaps = run.initial, []
        for clients in TWO:
            lipschitz, ended = 1 / run.lr, run.round(clients)
            risk = {k: _risk(w, run.clients[k]) + 1e-10 for k in ended}
            d = {k: {n: lipschitz * move for n, move in minus(w, y).items()} for k, y in ended.items()}
            h = sum_of(q * risk[k] ** (q - 1) * inner(d[k], d[k]) + lipschitz * risk[k] ** q for k in ended)
            step = {n: sum_of(risk[k] ** q * d[k][n] for k in ended) / h for n in TRAINED}
            w = weighted(ended, SIZES) | minus(w, step)
            gaps.append(run.model_gap(w))
        return max(gaps)

    return Check(f"server step, 2 rounds, q={q}", "Li et al. 2020 (q-FFL), Algorithm 2", check)


def _risk(w: Params, data: Data) -> Tensor:
    """The local risk F_k(w_t): the mean cross entropy on all of a client's samples, in evaluation mode."""
    return masked(cross_entropy(forward(w, data.x, training=False).logits, data.y), data.weight)


def _qffl_at_zero(make: Make) -> float:
    run = Run(make, {"q": 0.0}, lrs=RATES)
    ended = run.round(THREE[0])
    return run.model_gap(weighted(ended, SIZES) | plain({k: trained(w) for k, w in ended.items()}))


QFFL_AT_ZERO = Check("q=0 is the plain mean of the local models", "Li et al. 2020 (q-FFL), section 3", _qffl_at_zero)


def _unchanged(**options: Any) -> Check:
    """The local objective is FedAvg's."""
    return loss_check("loss and gradient, round 1", "the cross entropy", fedavg_loss, **options)


CHECKS: dict[str, tuple[Check, ...]] = {
    "scaffold": (scaffold(0.7),),
    "fednova": (fednova(0.0), fednova(0.9), _unchanged()),
    "feddyn": (feddyn(0.3),),
    "fedavgm": (fedavgm(0.7, 0.9), fedavgm(1.0, 0.0), _unchanged()),
    "fedadam": (fedadam(0.01, 0.9, 0.99, 1e-3), fedadam(0.3, 0.5, 0.8, 0.1), _unchanged()),
    "qffl": (qffl(1.0), qffl(0.3), QFFL_AT_ZERO, _unchanged(q=1.0)),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "scaffold": (Limit.of_equal_clients(rounds=1),),
    "fednova": (Limit.of_equal_clients(),),
    "fedavgm": (Limit({"server_momentum": 0.0}, tolerance=ROUNDING),),
    "qffl": (Limit.of_equal_clients(q=0.0),),
}
