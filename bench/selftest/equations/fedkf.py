"""FedKF: distillation on images of a generator that each client trains through the teacher.

B batch, C classes, D features, K clients. The network has no BatchNorm here: the paper does not say
how generated images should pass through it.
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
from bench.selftest.equations.lab_run import (
    LabRun,
    LossAndGrad,
    ce,
    fedavg_loss,
    holds,
    loss_and_grad_of,
    run_rounds,
)
from bench.selftest.equations.observe import Observation, observe, shapes_gap, unwrapped
from bench.selftest.equations.optimizers import Adam
from bench.selftest.toy import gap

SOURCE = "FedKF, Eqs. 1-7 and Algorithm 1"
CODE = "FedKF, the authors' code"
# Std of the first images' pixels: 0.25 to 0.43 over 40 seeds, 0.01 with torch's default weights.
LEAST_CONTRAST = 0.15


@dataclass(frozen=True)
class Losses:
    """The printed losses, or those of the authors' code. The fields are the hyper-parameters."""

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
        """Compute Eqs. 1-4: L_G = L_IE + lambda_1 L_CE + lambda_2 L_A.

        The code's term is added if `adversarial`.
        """
        out = forward(teacher, x, training=False)
        p = softmax(out.logits)
        f = out.features.abs()
        entropy = (p.mean(0) * p.mean(0).log()).sum()
        activation = -f.sum(1).mean()
        if self.variant == "code":
            entropy = 1 + entropy / math.log(CLASSES)
            activation = -f.mean()
        loss = (
            entropy
            + self.lambda_1 * cross_entropy(out.logits, p.argmax(1)).mean()
            + self.lambda_2 * activation
        )
        if self.adversarial:
            loss = loss - self.gamma * self._divergence(teacher, student, x)
        return loss

    def student(self, teacher: Params, images: Tensor, samples: Batch, w: Params) -> Tensor:
        """Compute Eq. 7: L_S = L_CE + gamma L_KL."""
        return ce(w, samples).mean() + self.gamma * self._divergence(teacher, w, images)

    def _divergence(self, teacher: Params, student: Params, x: Tensor) -> Tensor:
        """Compute Eq. 5: the mean of KL( p^T(x) || p^S(x) ), with the teacher's side constant."""
        constant = forward(teacher, x, training=False).logits
        return kl(constant, forward(student, x).logits).mean()


@dataclass
class GeneratedImages:
    """The images that passed through `normalise`, and observations of the generator in training."""

    images: list[Tensor] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)


class RecordedRun:
    """A run and an independent record of its server.

    The record has the slots, and the means of the round (ACA) and of all slots (OCA).
    """

    def __init__(self, run: LabRun, **options: Any) -> None:
        self.run = run
        self.losses = Losses(**options)
        self.aca = run.initial
        self.oca = run.initial
        self.slots: dict[int, Params] = {}
        if self.losses.t1_unvisited == "w0":
            self.slots = dict.fromkeys(SIZES, run.initial)

    @property
    def teacher(self) -> Params:
        """The teacher w^T of the coming round."""
        return self.oca if self.losses.teacher == "oca" else self.aca

    def add(self, ended: dict[int, Params]) -> float:
        """Record a round's local models (steps s5-s6).

        Returns the gap of the next message and the evaluated model.
        """
        self.slots |= ended
        self.aca = weighted(ended, SIZES)
        self.oca = weighted(self.slots, SIZES)
        sent_gap = gap(self.run.message()["params"], self.aca)
        evaluated = self.run.algorithm.evaluated(self.run.server)
        return max(sent_gap, gap(evaluated, {"": self.oca}))

    @contextmanager
    def observing(self, student: Params) -> Iterator[GeneratedImages]:
        """Observe generated images.

        An observation's vjp is the gradient of L_G by the generator's trained tensors.
        """
        generated = GeneratedImages()
        teacher = self.teacher

        def note(images: Tensor) -> None:
            generated.images.append(unwrapped(images))
            gradient = torch.func.grad(lambda x: self.losses.generator(teacher, student, x))
            observed = observe(images, lambda values: [gradient(values)])
            if observed:
                generated.observations.append(observed)

        with patch.object(self.run.net, "on_normalise", note):
            yield generated

    def student_loss(self, params: Params, samples: Batch, images: Tensor) -> LossAndGrad:
        """Return the student's printed loss at `params`, and its gradient."""
        objective = partial(self.losses.student, self.teacher, images, samples)
        return loss_and_grad_of(objective, params, self.run.net.trainable)

    def steps_gap(self, steps: int) -> float:
        """Compare steps c4-c6: the generator's Adam step, then the student on new images.

        The noise is the same.
        """
        visit = self.run.visit(CLIENT)
        adam = Adam(self.losses.generator_lr)
        gaps = []
        for s in range(steps):
            params = model(self.run.net, "compared", s)
            samples = batch("compared", s, padded=False)
            with self.observing(params) as generated:
                samples = visit.step(params, samples)
                got = visit.loss(params, samples)
            with self.observing(params) as later:
                # Makes images of the same noise again; the step itself is discarded.
                visit.before_step(samples)
            before = generated.observations[0]
            after = later.observations[0]
            images = generated.images[-1]
            gaps.append(gap(after.leaves, adam.step(before.leaves, before.vjps[0])))
            gaps.append(gap(images, after.output))
            gaps.append(gap(got, self.student_loss(params, samples, images)))
        return max(gaps)

    def first_generator(self, client: int) -> tuple[Tensor, ...]:
        """Return a client's generator before its first step of the coming round."""
        visit = self.run.visit(client)
        with self.observing(self.run.initial) as generated:
            for s in range(2):  # `variant=code` shows the generator one step later
                visit.step(self.run.initial, batch("compared", s, padded=False))
        return generated.observations[0].leaves


def as_printed(run: LabRun, cohorts: Cohorts, **options: Any) -> Iterator[float]:
    """Compare a client's steps before and after these rounds, and the server's models."""
    recorded = RecordedRun(run, **options)
    yield recorded.steps_gap(2)
    for clients in cohorts:
        yield recorded.add(run.round(clients))
        yield recorded.steps_gap(2)


def as_in_the_code(run: LabRun, **options: Any) -> Iterator[float]:
    """Compare rounds 2 and 3 of a client that trained in round 1.

    First the student, then the generator through it. The generator and Adam's state persist over
    rounds; `leaves` is the generator after its last step.
    """
    recorded = RecordedRun(run, **options)
    adam = Adam(recorded.losses.generator_lr)
    leaves = None
    yield recorded.add(run.round(ONE[0]))
    for _ in range(2):
        visit = run.visit(CLIENT)
        ended = run.local(CLIENT)
        images = None
        for s in range(3):
            last = s == 2
            params = ended if last else model(run.net, "compared", s)
            samples = batch("compared", s, padded=False)
            with recorded.observing(params) as generated:
                if last:
                    run.close({CLIENT: visit}, {CLIENT: ended})
                else:
                    samples = visit.step(params, samples)
            # The generator's step, on the images that the student has just had.
            if images is not None:
                observed = generated.observations[0]
                yield gap(observed.output, images)
                yield gap(observed.leaves, leaves or observed.leaves)
                leaves = adam.step(observed.leaves, observed.vjps[0])
            if not last:
                with recorded.observing(params) as generated:
                    got = visit.loss(params, samples)
                images = generated.images[-1]
                yield gap(got, recorded.student_loss(params, samples, images))
        yield recorded.add({CLIENT: ended})


def initialised_every_round(run: LabRun, **options: Any) -> Iterator[float]:
    """Check steps c1-c2: a client's earlier rounds leave no trace in its generator.

    Clients draw different generators.
    """
    trained = RecordedRun(run, **options)
    untrained = RecordedRun(replace(run), **options)
    run_rounds(trained.run, ONE)
    run_rounds(untrained.run, ((0, 3),))
    generator = trained.first_generator(CLIENT)
    other = trained.first_generator(0)
    yield gap(generator, untrained.first_generator(CLIENT))
    yield holds(gap(generator, other) > 0)


def layers(run: LabRun, noise_dim: int, **options: Any) -> Iterator[float]:
    """Check the generator's layers.

    Linear -> BatchNorm -> 2 x (upsample, convolution, BatchNorm) -> convolution.
    """
    wide = 128
    narrow = 64
    grid = (SIDE // 4) ** 2
    shapes: list[tuple[int, ...]] = [
        (wide * grid, noise_dim),
        (wide * grid,),
        (wide, wide, 3, 3),
        (wide,),
    ]
    shapes += [
        (narrow, wide, 3, 3),
        (narrow,),
        (1, narrow, 3, 3),
        (1,),
        *[(wide,)] * 4,
        *[(narrow,)] * 2,
    ]
    yield shapes_gap(RecordedRun(run).first_generator(CLIENT), shapes)


def first_weights(run: LabRun, **options: Any) -> Iterator[float]:
    """Check that initial convolutions are N(0, 2 / (k k outputs)), the rest torch's default.

    Images must have contrast. Standard deviations must lie within five standard errors; that of all
    pixels must rule out uniform grey images.
    """
    recorded = RecordedRun(run, **options)
    for values in recorded.first_generator(CLIENT):
        if values.dim() in (2, 4):
            is_convolution = values.dim() == 4
            variance = 2 / (9 * len(values)) if is_convolution else 1 / (3 * values.shape[1])
            error = math.sqrt(variance / (2 * values.numel()))
            deviation = abs(float(values.std()) - math.sqrt(variance))
            yield holds(deviation <= 5 * error)
    with recorded.observing(run.initial) as generated:
        run.visit(CLIENT).step(run.initial, batch("compared", padded=False))
    contrast = float(generated.observations[0].output.std()) * PIXEL_STD
    yield holds(contrast > LEAST_CONTRAST)


def one_first_generator(run: LabRun, **options: Any) -> Iterator[float]:
    """Check that round 1 trains no generators, and that all clients begin with the same one."""
    recorded = RecordedRun(run, **options)
    run_rounds(run, ONE)
    yield gap(recorded.first_generator(CLIENT), recorded.first_generator(4))


def fedkf_check(title: str, source: str, gaps: Any, **others: Any) -> Check:
    """Make a check on a network without BatchNorm."""
    return Check(title, source, gaps, vars(Losses(**others)), norm=False)


def paper_check(title: str, cohorts: Cohorts = ONE, **others: Any) -> Check:
    """Make a check of the printed algorithm."""
    return fedkf_check(f"paper: {title}", SOURCE, partial(as_printed, cohorts=cohorts), **others)


def code_check(title: str, gaps: Any = as_in_the_code, **others: Any) -> Check:
    """Make a check of the algorithm in the authors' code."""
    return fedkf_check(f"code: {title}", CODE, gaps, variant="code", **others)


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedkf": (
        paper_check("generator's step, student's loss and gradient, both models, 3 rounds", TWO),
        paper_check("lambda_1=0, lambda_2=0.5", lambda_1=0.0, lambda_2=0.5),
        paper_check("adversarial", adversarial=True),
        paper_check("the round's mean teaches (FedKF-)", TWO, teacher="aca"),
        paper_check("clients not yet drawn count with w_0", t1_unvisited="w0"),
        fedkf_check(
            "paper: a generator of its own for every client and round",
            SOURCE,
            initialised_every_round,
        ),
        loss_check(
            "code: round 1 is without distillation", CODE, fedavg_loss, norm=False, variant="code"
        ),
        code_check("student's loss and gradient, generator's step, rounds 2 and 3"),
        code_check("adversarial", adversarial=True),
        code_check("the round's mean teaches (FedKF-)", teacher="aca"),
        fedkf_check("the generator's layers", CODE, layers),
        fedkf_check("the generator's first weights and images", CODE, first_weights),
        code_check(
            "one first generator for all clients, untrained in round 1", one_first_generator
        ),
    )
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedkf": (Limit({"gamma": 0.0}, fields=EVERYONE),),
}
