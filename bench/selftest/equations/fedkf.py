"""FedKF: a generator of images that each client trains through the teacher, and distillation on what it makes.

B batch, C classes, D features, K clients. The network has no BatchNorm here: the paper does not say how generated
images should pass through it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import EVERYONE, Check, Limit, loss_check
from bench.selftest.equations.formulas import cross_entropy, kl, softmax, weighted
from bench.selftest.equations.lab import (
    CLASSES,
    CLIENT,
    ONE,
    PIXEL_STD,
    SIDE,
    SIZES,
    TWO,
    Cohorts,
    batch,
    forward,
    model,
)
from bench.selftest.equations.run import Run, Slope, ce, drive, fedavg_loss, slope_of
from bench.selftest.equations.watch import Adam, Sight, bare, shapes_gap, sight
from bench.selftest.toy import gap

SOURCE, CODE = "FedKF, Eqs. 1-7 and Algorithm 1", "FedKF, the authors' code"
LEAST_CONTRAST = 0.15  # std of the first images' pixels: 0.25 to 0.43 over 40 seeds, 0.01 with torch's default weights


@dataclass(frozen=True)
class Losses:
    """The printed losses, or those of the authors' code. Fields are the hyper-parameters."""

    gamma: float = 0.7
    lambda_1: float = 0.4
    lambda_2: float = 0.3
    variant: str = "paper"
    generator_lr: float = 5e-4
    noise_dim: int = 7
    adversarial: bool = False
    teacher: str = "oca"
    t1_unvisited: str = "skip"

    def generator(self, teacher: Params, student: Params, x: Tensor) -> Tensor:
        """Eqs. 1-4: L_G = L_IE + lambda_1 L_CE + lambda_2 L_A, and the code's adversarial term where asked for."""
        out = forward(teacher, x, training=False)
        p, f = softmax(out.logits), out.features.abs()
        entropy, activation = (p.mean(0) * p.mean(0).log()).sum(), -f.sum(1).mean()
        if self.variant == "code":
            entropy, activation = 1 + entropy / math.log(CLASSES), -f.mean()
        loss = entropy + self.lambda_1 * cross_entropy(out.logits, p.argmax(1)).mean() + self.lambda_2 * activation
        return loss - self.gamma * self._divergence(teacher, student, x) if self.adversarial else loss

    def student(self, teacher: Params, images: Tensor, given: Batch, w: Params) -> Tensor:
        """Eq. 7: L_S = L_CE + gamma L_KL."""
        return ce(w, given).mean() + self.gamma * self._divergence(teacher, w, images)

    def _divergence(self, teacher: Params, student: Params, x: Tensor) -> Tensor:
        """Eq. 5: the mean of KL( p^T(x) || p^S(x) ), the teacher's side a constant."""
        return kl(forward(teacher, x, training=False).logits, forward(student, x).logits).mean()


@dataclass
class Eye:
    """What passed through `normalise`: all images, and those of a generator in training as sights."""

    images: list[Tensor] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)


class Story:
    """A run, and our own account of its server: the slots, and the means of the round's (ACA) and of all (OCA)."""

    def __init__(self, run: Run, **options: Any) -> None:
        self.run, self.losses = run, Losses(**options)
        self.aca = self.oca = run.initial
        self.slots = dict.fromkeys(SIZES, run.initial) if self.losses.t1_unvisited == "w0" else {}

    @property
    def teacher(self) -> Params:
        """The teacher w^T of the coming round."""
        return self.oca if self.losses.teacher == "oca" else self.aca

    def add(self, ended: dict[int, Params]) -> float:
        """Enter a round's local models (steps s5-s6); the gap of what is sent next and of what is evaluated."""
        self.slots |= ended
        self.aca, self.oca = weighted(ended, SIZES), weighted(self.slots, SIZES)
        sent = gap(dict(self.run.message()["params"]), self.aca)
        return max(sent, gap(self.run.algorithm.evaluated(self.run.server), {"": self.oca}))

    @contextmanager
    def watched(self, student: Params) -> Iterator[Eye]:
        """Look at generated images; a sight's pull is the gradient of L_G by what the generator is trained by."""
        eye, teacher = Eye(), self.teacher

        def note(images: Tensor) -> None:
            eye.images.append(bare(images))
            slope = torch.func.grad(lambda x: self.losses.generator(teacher, student, x))
            seen = sight(images, lambda values: [slope(values)])
            eye.sights.extend([seen] if seen else [])

        with patch.object(self.run.net, "shown", note):
            yield eye

    def student_slope(self, params: Params, given: Batch, images: Tensor) -> Slope:
        """The student's printed loss at `params`, and its gradient."""
        return slope_of(self.run.net, lambda w: self.losses.student(self.teacher, images, given, w), params)

    def follow(self, steps: int) -> float:
        """Steps c4-c6: the generator's Adam step, then the student on the new generator's images of the same noise."""
        visit, adam, gaps = self.run.visit(CLIENT), Adam(self.losses.generator_lr), []
        for s in range(steps):
            params, given = model(self.run.net, "look", s), batch("look", s, padded=False)
            with self.watched(params) as eye:
                given = visit.step(params, given)
                got = visit.loss(params, given)
            with self.watched(params) as later:
                visit.act(given)  # makes images of the same noise again, before a step that is thrown away
            expected = adam.step(eye.sights[0].leaves, eye.sights[0].pulls[0])
            gaps += [gap(later.sights[0].leaves, expected), gap(eye.images[-1], later.sights[0].output)]
            gaps.append(gap(got, self.student_slope(params, given, eye.images[-1])))
        return max(gaps)

    def first_generator(self, client: int) -> tuple[Tensor, ...]:
        """What a client's generator is before its first step of the coming round."""
        visit = self.run.visit(client)
        with self.watched(self.run.initial) as eye:
            for s in range(2):  # one step later under `variant=code`
                visit.step(self.run.initial, batch("look", s, padded=False))
        return eye.sights[0].leaves


def as_printed(run: Run, cohorts: Cohorts, **options: Any) -> Iterator[float]:
    """A client's steps before and after these rounds, and the server's models."""
    story = Story(run, **options)
    yield story.follow(2)
    for clients in cohorts:
        yield story.add(run.round(clients))
        yield story.follow(2)


def as_in_the_code(run: Run, **options: Any) -> Iterator[float]:
    """Rounds 2 and 3 of a client that trained in round 1: the student, then the generator by that student.

    The generator and Adam's state go on over rounds; `leaves` is what the generator was after its last step.
    """
    story = Story(run, **options)
    adam, leaves = Adam(story.losses.generator_lr), None
    yield story.add(run.round(ONE[0]))
    for _ in range(2):
        visit, ended, images = run.visit(CLIENT), run.local(CLIENT), None
        for s in range(3):
            last = s == 2
            params, given = ended if last else model(run.net, "look", s), batch("look", s, padded=False)
            with story.watched(params) as eye:
                if last:
                    run.close({CLIENT: visit}, {CLIENT: ended})
                else:
                    given = visit.step(params, given)
            if images is not None:  # the generator's step, on the images that the student has just had
                yield gap(eye.sights[0].output, images)
                yield gap(eye.sights[0].leaves, leaves or eye.sights[0].leaves)
                leaves = adam.step(eye.sights[0].leaves, eye.sights[0].pulls[0])
            if not last:
                with story.watched(params) as eye:
                    got = visit.loss(params, given)
                images = eye.images[-1]
                yield gap(got, story.student_slope(params, given, images))
        yield story.add({CLIENT: ended})


def initialised_every_round(run: Run, **options: Any) -> Iterator[float]:
    """Steps c1-c2: what a client did before leaves no trace in its generator, and clients draw their own."""
    before, never = Story(run, **options), Story(replace(run), **options)
    drive(before.run, ONE)
    drive(never.run, ((0, 3),))
    mine, other = before.first_generator(CLIENT), before.first_generator(0)
    yield gap(mine, never.first_generator(CLIENT))
    yield 0.0 if gap(mine, other) > 0 else math.inf


def layers(run: Run, noise_dim: int, **options: Any) -> Iterator[float]:
    """What the generator trains: Linear -> BatchNorm -> 2 x (upsample, convolution, BatchNorm) -> convolution."""
    wide, narrow, grid = 128, 64, (SIDE // 4) ** 2
    shapes: list[tuple[int, ...]] = [(wide * grid, noise_dim), (wide * grid,), (wide, wide, 3, 3), (wide,)]
    shapes += [(narrow, wide, 3, 3), (narrow,), (1, narrow, 3, 3), (1,), *[(wide,)] * 4, *[(narrow,)] * 2]
    yield shapes_gap(Story(run).first_generator(CLIENT), shapes)


def first_weights(run: Run, **options: Any) -> Iterator[float]:
    """Before training, convolutions are N(0, 2 / (k k outputs)), the rest is torch's default, and images have contrast.

    Standard deviations must lie within five standard errors; each pixel's over the batch must show that the images are
    not uniform grey.
    """
    story = Story(run, **options)
    for values in story.first_generator(CLIENT):
        if values.dim() in (2, 4):
            variance = 2 / (9 * len(values)) if values.dim() == 4 else 1 / (3 * values.shape[1])
            error = math.sqrt(variance / (2 * values.numel()))
            yield 0.0 if abs(float(values.std()) - math.sqrt(variance)) <= 5 * error else math.inf
    with story.watched(run.initial) as eye:
        run.visit(CLIENT).step(run.initial, batch("look", padded=False))
    yield 0.0 if float(eye.sights[0].output.std()) * PIXEL_STD > LEAST_CONTRAST else math.inf


def one_first_generator(run: Run, **options: Any) -> Iterator[float]:
    """Round 1 leaves the generators alone, and all clients begin with the same one."""
    story = Story(run, **options)
    drive(run, ONE)
    yield gap(story.first_generator(CLIENT), story.first_generator(4))


def fedkf_check(title: str, source: str, gaps: Any, **others: Any) -> Check:
    """On a network without BatchNorm."""
    return Check(title, source, gaps, vars(Losses(**others)), norm=False)


def paper_check(title: str, cohorts: Cohorts = ONE, **others: Any) -> Check:
    """The printed algorithm."""
    return fedkf_check(f"paper: {title}", SOURCE, partial(as_printed, cohorts=cohorts), **others)


def code_check(title: str, gaps: Any = as_in_the_code, **others: Any) -> Check:
    """The authors' form of it."""
    return fedkf_check(f"code: {title}", CODE, gaps, variant="code", **others)


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedkf": (
        paper_check("generator's step, student's loss and gradient, both models, 3 rounds", TWO),
        paper_check("lambda_1=0, lambda_2=2", lambda_1=0.0, lambda_2=2.0),
        paper_check("adversarial", adversarial=True),
        paper_check("the round's mean teaches (FedKF-)", TWO, teacher="aca"),
        paper_check("clients not yet drawn count with w_0", t1_unvisited="w0"),
        fedkf_check("paper: a generator of its own for every client and round", SOURCE, initialised_every_round),
        loss_check("code: round 1 is without distillation", CODE, fedavg_loss, norm=False, variant="code"),
        code_check("student's loss and gradient, generator's step, rounds 2 and 3"),
        code_check("adversarial", adversarial=True),
        code_check("the round's mean teaches (FedKF-)", teacher="aca"),
        fedkf_check("the generator's layers", CODE, layers),
        fedkf_check("the generator's first weights and images", CODE, first_weights),
        code_check("one first generator for all clients, untrained in round 1", one_first_generator),
    )
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedkf": (Limit({"gamma": 0.0}, fields=EVERYONE),),
}
