"""FedGen's clients: the last layer learns from a generator of features.

B batch, C classes, D features. What the generator is asked for is the algorithm's own draw. Labels are therefore
inferred: those of all C^B with which the printed formula comes nearest to the loss that was computed; the gradient
must then fit as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.builders import ONE, TWO, Cohorts, Options, ce, drive, fedavg_loss, loss_check, mean_check
from bench.selftest.equations.checks import Check, Limit, Make
from bench.selftest.equations.formulas import cross_entropy, kl, log_softmax
from bench.selftest.equations.lab import BATCH_SIZE, CLASSES, LabNet, batch, forward, model
from bench.selftest.equations.run import Run, Slope, slope_gap, slope_of
from bench.selftest.equations.watch import bare

SOURCE, CODE = "Zhu et al. 2021, Eqs. 3-5 and Algorithm 1", "Zhu et al. 2021, code"
CLIENT = 2
NOISE = 7  # unlike any other width here, so that the noise is known by its shape
SMALL: Mapping[str, Any] = {"noise_dim": NOISE, "hidden_dim": 8, "generator_steps": 1}
LABELLINGS = torch.tensor(list(itertools.product(range(CLASSES), repeat=BATCH_SIZE)))  # (C^B, B)


def head(w: Params, features: Tensor) -> Tensor:
    """Logits (B, C) of features (B, D)."""
    return features @ w["head.weight"].T + w["head.bias"]


@contextmanager
def listening(net: LabNet) -> Iterator[list[Tensor]]:
    """The distinct inputs of `head` inside the context, in blocks of B rows."""
    blocks: list[Tensor] = []

    def note(features: Tensor) -> None:
        for block in torch.split(bare(features), BATCH_SIZE):
            if not any(torch.equal(block, known) for known in blocks):
                blocks.append(block)

    net.heard = note
    try:
        yield blocks
    finally:
        net.heard = None


@dataclass(frozen=True)
class Terms:
    """The weights of a client's two terms in one round.

    Args:
        hard: of mean CE(head(g(y~)), y~), the printed term.
        soft: of mean KL( softmax(head(g(y))) || p(x) ), g(y) made for the batch's own labels; in the code alone.
    """

    hard: float
    soft: float = 0.0


@dataclass(frozen=True)
class Asked:
    """A client's step on generated features, understood.

    Args:
        labels: (B,) y~.
        gap: of loss and gradient, with these labels.
    """

    labels: Tensor
    gap: float


@dataclass(frozen=True)
class Seen:
    """A client's step as it was seen.

    Args:
        net: the network.
        params: where the loss was taken.
        given: the batch.
        slope: what the algorithm returned.
        blocks: what passed through `head`.
    """

    net: LabNet
    params: Params
    given: Batch
    slope: Slope
    blocks: list[Tensor]

    def understand(self, terms: Terms) -> Asked:
        """The best reading of which features serve which term, and of the labels."""
        readings: Iterable[tuple[Tensor, ...]] = itertools.permutations(self.blocks, 2)
        if len(self.blocks) == 1:
            readings = [(self.blocks[0], self.blocks[0])]
        return min((self._fit(terms, *reading) for reading in readings), key=lambda asked: asked.gap)

    def _fit(self, terms: Terms, hard: Tensor, soft: Tensor) -> Asked:
        def rest(w: Params) -> Tensor:
            term = kl(head(w, soft), forward(w, self.given.x).logits)
            return ce(w, self.given).mean() + terms.soft * term.mean()

        losses = -log_softmax(head(self.params, hard))[torch.arange(BATCH_SIZE), LABELLINGS].mean(1)
        labels = LABELLINGS[(rest(self.params) + terms.hard * losses - self.slope.loss).abs().argmin()]
        whole = slope_of(
            self.net, lambda w: rest(w) + terms.hard * cross_entropy(head(w, hard), labels).mean(), self.params
        )
        return Asked(labels, slope_gap(self.slope, whole))


def ask(run: Run, terms: Terms, steps: int) -> list[Asked]:
    """A client's steps in the coming round, each with its own noise."""
    visit, params, asked = run.visit(CLIENT), model(run.net, "look"), []
    for i in range(steps):
        given = visit.step(params, batch("look", i, padded=False))
        with listening(run.net) as blocks:
            slope = visit.loss(params, given)
        if not blocks:
            raise ValueError("no generated features passed through net.head")
        asked.append(Seen(run.net, params, given, slope, blocks).understand(terms))
    return asked


def client_check(title: str, source: str, cohorts: Cohorts, terms: Terms, options: Options) -> Check:
    """A client's loss and gradient in the round after `cohorts`, where the terms have these weights."""

    def check(make: Make) -> float:
        run = Run(make, {**SMALL, **options})
        drive(run, cohorts)
        return max(asked.gap for asked in ask(run, terms, steps=3))

    return Check(title, source, check)


def _labels_of_the_last_round(make: Make) -> float:
    """The clients of a round hold one class, so every label asked for in the next round is that class."""
    run, gaps = Run(make, {**SMALL, "hard_weight": 0.8, "label_prior": "counts"}), []
    for clients, label in (((0, 1), 1), ((2, 3), 3)):
        for client in clients:
            run.clients[client].y.fill_(label)
        drive(run, (clients,))
        for asked in ask(run, Terms(0.8), steps=4):
            gaps.append(asked.gap if bool((asked.labels == label).all()) else math.inf)
    return max(gaps)


def proportion_check(prior: str, source: str, expected: tuple[float, ...]) -> Check:
    """Labels of 200 generated samples occur as often as expected, within five standard deviations.

    The last round's only client has 6, 3, 3 and 0 samples of the classes.
    """
    counts, shares = torch.tensor([6, 3, 3, 0]), torch.tensor(expected)

    def check(make: Make) -> float:
        run = Run(make, {**SMALL, "hard_weight": 0.8, "label_prior": prior})
        held = torch.arange(CLASSES).repeat_interleave(counts)
        run.clients[3].y[: len(held)] = held  # the rows behind them are padding
        drive(run, ((3,),))
        labels = torch.cat([asked.labels for asked in ask(run, Terms(0.8), steps=40)])
        found = labels.bincount(minlength=CLASSES) / len(labels)
        deviation = (shares * (1 - shares) / len(labels)).sqrt()
        return 0.0 if bool(((found - shares).abs() <= 5 * deviation + 1e-6).all()) else math.inf

    return Check(f"200 generated labels, label_prior={prior}", source, check)


def _soft_features_follow_the_batch(make: Make) -> float:
    """Other labels for samples 3 to 5 of the batch change the soft term's features of these, and no others."""
    run, heard = Run(make, {**SMALL, "hard_weight": 0.8, "soft_weight": 0.6}), []
    drive(run, ONE)
    visit, params = run.visit(CLIENT), model(run.net, "look")
    given = visit.step(params, batch("look", padded=False))
    for shift in (torch.tensor([0, 0, 0, 0, 0]), torch.tensor([0, 0, 1, 1, 1])):
        with listening(run.net) as blocks:
            visit.loss(params, replace(given, y=(given.y + shift) % CLASSES))
        heard.append(blocks)
    moved = sorted([not torch.equal(*rows) for rows in zip(*pair, strict=True)] for pair in zip(*heard, strict=True))
    return 0.0 if moved == [[False] * 5, [False, False, True, True, True]] else math.inf


BOTH: Options = {"hard_weight": 0.8, "soft_weight": 0.6}
PRINTED = {"hard_weight": 0.8, "objective": "printed"}
FADING = {"hard_weight": 1e-3, "soft_weight": 2e-3, "annealing": 0.1}

CHECKS: dict[str, tuple[Check, ...]] = {
    "fedgen": (
        loss_check("round 1 is without generated features", SOURCE, fedavg_loss, **SMALL, **BOTH),
        client_check("loss and gradient, round 2, hard_weight=0.8", SOURCE, ONE, Terms(0.8), {"hard_weight": 0.8}),
        client_check("both terms, round 2", CODE, ONE, Terms(0.8, 0.6), BOTH),
        client_check("both terms, round 3, annealing=0.5", CODE, TWO, Terms(0.2, 0.15), {**BOTH, "annealing": 0.5}),
        client_check("the weights' floor of 1e-4, round 3", CODE, TWO, Terms(1e-4, 1e-4), FADING),
        Check("labels come from what the last round's clients hold", SOURCE, _labels_of_the_last_round),
        client_check("objective=printed: generated features in round 1", SOURCE, (), Terms(0.8), PRINTED),
        proportion_check("counts", SOURCE, (1 / 2, 1 / 4, 1 / 4, 0)),
        proportion_check("seen", SOURCE, (1 / 3, 1 / 3, 1 / 3, 0)),
        proportion_check("uniform", CODE, (1 / 4, 1 / 4, 1 / 4, 1 / 4)),
        Check("the soft term's features have the batch's labels", CODE, _soft_features_follow_the_batch),
        mean_check(generator_steps=1),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedgen": (Limit({"hard_weight": 0.0, "soft_weight": 0.0}),),
}
