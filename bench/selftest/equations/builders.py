"""The two checks that most algorithms need: of a local loss after some rounds, and of the server's mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import Check, Make, gap
from bench.selftest.equations.formulas import cross_entropy, masked, weighted
from bench.selftest.equations.lab import SIZES, batch, forward, model
from bench.selftest.equations.run import Run, slope_gap, slope_of

Options = Mapping[str, Any]
Cohorts = tuple[tuple[int, ...], ...]

ONE: Cohorts = ((0, 2, 3),)
TWO: Cohorts = ((0, 2, 3), (1, 2, 4))
THREE: Cohorts = ((0, 2, 3), (1, 4), (1, 2, 3))
FIVE: Cohorts = (*THREE, (0, 4), (2, 3))
CLIENT = 2  # takes part in every one of them

MEAN_SOURCE = "McMahan et al. 2017, Algorithm 1"


@dataclass(frozen=True)
class Scene:
    """What happens before a look at a client.

    Args:
        cohorts: the clients of each round before.
        client: the one that is looked at.
        norm: whether the network has BatchNorm.
    """

    cohorts: Cohorts = ()
    client: int = CLIENT
    norm: bool = True


ROUND_1, ROUND_2, ROUND_3, ROUND_4, ROUND_6 = Scene(), Scene(ONE), Scene(TWO), Scene(THREE), Scene(FIVE)


@dataclass(frozen=True)
class Past:
    """What has happened, by our own account of FedAvg's server.

    Args:
        globals: w_0, w_1, ..., the last being what the coming round starts from.
        locals: of each finished round, the model that each client ended at.
    """

    globals: list[Params]
    locals: list[dict[int, Params]]

    @property
    def received(self) -> Params:
        """The model w_t that the coming round starts from."""
        return self.globals[-1]


Loss = Callable[[Params, Batch, Past], Tensor]


def ce(w: Params, given: Batch) -> Tensor:
    """The cross entropy of each sample, (B,) nats, by the network in training mode."""
    return cross_entropy(forward(w, given.x).logits, given.y)


def fedavg_loss(**options: Any) -> Loss:
    """FedAvg's F_k, the cross entropy, whatever the hyper-parameters."""
    return lambda w, given, past: ce(w, given)


def drive(run: Run, cohorts: Cohorts) -> Past:
    """Run these cohorts' rounds."""
    past = Past([run.initial], [])
    for clients in cohorts:
        past.locals.append(run.round(clients))
        past.globals.append(weighted(past.locals[-1], SIZES))
    return past


def look(run: Run, past: Past, client: int, loss: Loss) -> float:
    """The gap of one client's start, loss and gradient in the coming round."""
    visit, given, params = run.visit(client), batch("look"), model(run.net, "look")
    started = gap(dict(visit.local["params"]), past.received)

    def objective(w: Params) -> Tensor:
        value = loss(w, given, past)
        return value if value.dim() == 0 else masked(value, given.weight)

    return max(started, slope_gap(visit.slope(params, given), slope_of(run.net, objective, params)))


def loss_check(title: str, source: str, loss: Callable[..., Loss], scene: Scene = ROUND_1, **options: Any) -> Check:
    """A client's start, loss and gradient.

    Args:
        title: what is compared.
        source: of the formula.
        loss: the printed objective, (B,) per sample or a scalar, as a function of the hyper-parameters.
        scene: what happens before.
        **options: hyper-parameters.
    """

    def check(make: Make) -> float:
        run = Run(make, options, scene.norm)
        return look(run, drive(run, scene.cohorts), scene.client, loss(**options))

    return Check(title, source, check)


def mean_check(**options: Any) -> Check:
    """Two rounds of different clients: what is sent next and what is evaluated is their mean, weighted by examples."""

    def check(make: Make) -> float:
        run = Run(make, options)
        return max(run.model_gap(weighted(run.round(clients), SIZES)) for clients in TWO)

    return Check("the server's mean, weighted by examples, 2 rounds", MEAN_SOURCE, check)
