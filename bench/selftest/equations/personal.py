"""Methods that leave each client a model of its own: Ditto.

B batch, K clients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.formulas import masked, sum_of, weighted
from bench.selftest.equations.lab import SIZES, TWO, batch, model, moved_statistics
from bench.selftest.equations.run import History, Loss, Objective, Run, ce, local_gap
from bench.selftest.toy import gap

PASSES = 2  # local steps of a client in a round
DITTO = "Li et al. 2021 (Ditto), Algorithm 1"


class Sgd:
    """A model trained by SGD with momentum m: b <- m b + g, w <- w - lr b, b = 0 at first.

    Args:
        run: whose momentum and learning rate of the coming round are taken.
        params: the model to begin with.
    """

    def __init__(self, run: Run, params: Params) -> None:
        self.run = run
        self.params = params
        self.momenta = {name: torch.zeros_like(params[name]) for name in run.net.trainable}

    def step(self, objective: Objective, x: Tensor) -> None:
        """Take one step on the objective; `x` are the inputs that move BatchNorm's statistics."""
        names = self.run.net.trainable
        leaves = {n: value.clone().requires_grad_(n in names) for n, value in self.params.items()}
        grads = torch.autograd.grad(objective(leaves), [leaves[name] for name in names])
        after = {name: value.detach() for name, value in leaves.items()}
        if self.run.net.batchnorm:
            after |= moved_statistics(self.params, x)
        for name, grad in zip(names, grads, strict=True):
            self.momenta[name] = self.run.momentum * self.momenta[name] + grad
            after[name] = self.params[name] - self.run.lr * self.momenta[name]
        self.params = after


def mean_ce(samples: Batch) -> Objective:
    """Return the mean cross entropy over a batch, as a function of the model."""
    return lambda w: masked(ce(w, samples), samples.weight)


def personal_rows(run: Run) -> float:
    """Return 0 if the clients' own models are evaluated, and nothing of the server's; else inf."""
    return 0.0 if run.algorithm.evaluated(run.server) == {"": {}} else math.inf


def ditto_loss(received: Params, names: tuple[str, ...], mu: float) -> Loss:
    """Return CE(v) + lambda/2 ||v - w_t||^2."""

    def loss(v: Params, samples: Batch, history: History) -> Tensor:
        squares = [((v[name] - received[name]) ** 2).sum() for name in names]
        return ce(v, samples) + mu / 2 * sum_of(squares)

    return loss


def ditto_gaps(run: Run, mu: float) -> Iterator[float]:
    """Compare two rounds of FedAvg's steps on w, each client's v_k, its loss and its gradient."""
    received = run.initial
    personal = dict.fromkeys(SIZES, run.initial)
    for clients in TWO:
        number = run.number
        visits = {k: run.visit(k) for k in clients}
        ended = {}
        for k, visit in visits.items():
            fedavg = Sgd(run, received)
            for i in range(PASSES):
                samples = batch("ditto", number, k, i)
                visit.step_loss(model(run.net, "pass", number, k, i), samples)
                fedavg.step(mean_ce(samples), samples.x)
            ended[k] = fedavg.params
        personal |= run.close(visits, {k: run.local(k) for k in clients})
        received = weighted(ended, SIZES)
        yield gap(dict(run.message()["params"]), received)
        yield personal_rows(run)
        for k in SIZES:
            loss = ditto_loss(received, run.net.trainable, mu)
            yield local_gap(run, History([personal[k]]), k, loss)


CHECKS: dict[str, tuple[Check, ...]] = {
    "ditto": (
        Check(
            "both models, loss and gradient, 2 rounds, lambda=0.7", DITTO, ditto_gaps, {"mu": 0.7}
        ),
        Check(
            "with momentum, without BatchNorm", DITTO, ditto_gaps, {"mu": 2.0}, False, momentum=0.9
        ),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "ditto": (Limit({"mu": 0.0}, "local"),),
}
