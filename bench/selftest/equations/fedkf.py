"""FedKF: distillation on images of a generator that each client trains through the teacher.

B batch, C classes, D features, K clients. The network has no BatchNorm here: the paper does not say
how generated images should pass through it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import EVERYONE, Check, Limit, loss_check
from bench.selftest.equations.formulas import cross_entropy, kl, softmax, weighted
from bench.selftest.equations.lab import (
    CLASSES,
    CLIENT,
    ONE,
    PIXEL_MEAN,
    PIXEL_STD,
    SIDE,
    SIZES,
    TWO,
    Cohorts,
    LossAndGrad,
    batch,
    forward,
    loss_and_grad_of,
    model,
)
from bench.selftest.equations.lab_run import Gaps, LabRun, ce, fedavg_loss, holds
from bench.selftest.equations.optimizers import Adam, descended
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
        return kl(forward(teacher, x, training=False).logits, forward(student, x).logits).mean()


def generated(theta: Params, z: Tensor) -> Tensor:
    """Return the normalised images (B, 1, side, side) of noise (B, Z).

    Linear -> BatchNorm -> 2 x (upsample, convolution, BatchNorm, LeakyReLU) -> convolution ->
    sigmoid. BatchNorm takes the batch's statistics.
    """

    def norm(name: str, x: Tensor, eps: float) -> Tensor:
        var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        weight = theta[f"{name}.weight"][:, None, None]
        return (x - mean) / (var + eps).sqrt() * weight + theta[f"{name}.bias"][:, None, None]

    def convolution(name: str, x: Tensor) -> Tensor:
        return F.conv2d(x, theta[f"{name}.weight"], theta[f"{name}.bias"], padding=1)

    x = z @ theta["in.weight"].T + theta["in.bias"]
    x = norm("norm0", x.view(len(z), -1, SIDE // 4, SIDE // 4), 1e-5)
    for number in (1, 2):
        x = convolution(f"conv{number}", F.interpolate(x, scale_factor=2))
        x = F.leaky_relu(norm(f"norm{number}", x, 0.8), 0.2)
    return (convolution("conv3", x).sigmoid() - PIXEL_MEAN) / PIXEL_STD


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
        self.aca = weighted(ended)
        self.oca = weighted(self.slots)
        sent_gap = gap(self.run.message()["params"], self.aca)
        return max(sent_gap, gap(self.run.evaluated, {"": self.oca}))

    def taught(self, adam: Adam, theta: Params, student: Params, z: Tensor) -> Params:
        """Return the generator after a step of Adam on L_G of its images."""

        def objective(leaves: Params) -> Tensor:
            return self.losses.generator(self.teacher, student, generated(leaves, z))

        return descended(adam, theta, objective)

    def student_loss(self, w: Params, samples: Batch, images: Tensor) -> LossAndGrad:
        """Return the student's printed loss, and its gradient."""
        return loss_and_grad_of(partial(self.losses.student, self.teacher, images, samples), w)

    def steps(self) -> Gaps:
        """Compare steps c4-c6 twice: the generator's Adam step, then the student on new images.

        The noise is the same.
        """
        visit = self.run.visit(CLIENT)
        adam = Adam(self.losses.generator_lr)
        theta = visit.local["theta"]
        for s in range(2):
            w = model(self.run.net, "compared", s)
            samples = visit.step(w, batch("compared", s, padded=False))
            z = noise_of(samples)
            theta = self.taught(adam, theta, w, z)
            yield gap(visit.local["theta"], theta)
            yield gap(visit.loss(w, samples), self.student_loss(w, samples, generated(theta, z)))


def noise_of(samples: Batch) -> Tensor:
    """Return the noise (B, Z) that the algorithm drew for a step."""
    z: Tensor = samples.noise["z"]
    return z.double()


def as_printed(run: LabRun, cohorts: Cohorts, **options: Any) -> Gaps:
    """Compare a client's steps before and after these rounds, and the server's models."""
    recorded = RecordedRun(run, **options)
    yield from recorded.steps()
    for clients in cohorts:
        yield recorded.add(run.round(clients))
        yield from recorded.steps()


def as_in_the_code(run: LabRun, **options: Any) -> Gaps:
    """Compare rounds 2 and 3 of a client that trained in round 1.

    First the student, then the generator through it, on the images that the student has just had.
    The generator and Adam's state persist over rounds.
    """
    recorded = RecordedRun(run, **options)
    adam = Adam(recorded.losses.generator_lr)
    theta = run.visit(CLIENT).local["theta"]
    yield recorded.add(run.round(ONE[0]))
    for _ in range(2):
        visit = run.visit(CLIENT)
        yield gap(visit.local["theta"], theta)
        z = None  # of the student's last step
        for s in range(2):
            w = model(run.net, "compared", s)
            samples = visit.step(w, batch("compared", s, padded=False))
            if z is not None:
                theta = recorded.taught(adam, theta, w, z)
            yield gap(visit.local["theta"], theta)
            z = noise_of(samples)
            images = generated(theta, z)
            yield gap(visit.loss(w, samples), recorded.student_loss(w, samples, images))
        theta = recorded.taught(adam, theta, run.local(CLIENT), noise_of(samples))
        yield recorded.add(run.close({CLIENT: visit}))
        yield gap(run.memories[CLIENT]["theta"], theta)


def first_generator(run: LabRun, client: int) -> Params:
    """Return a client's generator before its first step of the coming round."""
    theta: Params = run.visit(client).local["theta"]
    return theta


def initialised_every_round(run: LabRun, **options: Any) -> Gaps:
    """Check steps c1-c2: a client's earlier rounds leave no trace in its generator.

    Clients draw different generators.
    """
    other = replace(run)
    run.round(ONE[0])
    other.round((0, 3))
    generator = first_generator(run, CLIENT)
    yield gap(generator, first_generator(other, CLIENT))
    yield holds(gap(generator, first_generator(run, 0)) > 0)


def layers(run: LabRun, noise_dim: int, **options: Any) -> Gaps:
    """Check the widths of the generator's layers."""
    wide = 128
    narrow = 64
    shapes = {
        "in.weight": (wide * (SIDE // 4) ** 2, noise_dim),
        "conv1.weight": (wide, wide, 3, 3),
        "conv2.weight": (narrow, wide, 3, 3),
        "conv3.weight": (1, narrow, 3, 3),
        "norm0.weight": (wide,),
        "norm1.weight": (wide,),
        "norm2.weight": (narrow,),
    }
    for name in list(shapes):
        shapes[name.replace("weight", "bias")] = shapes[name][:1]
    generator = first_generator(run, CLIENT)
    yield holds({name: tuple(value.shape) for name, value in generator.items()} == shapes)


def first_weights(run: LabRun, **options: Any) -> Gaps:
    """Check that initial convolutions are N(0, 2 / (k k outputs)), the rest torch's default.

    Images must have contrast. Standard deviations must lie within five standard errors; that of all
    pixels must rule out uniform grey images.
    """
    generator = first_generator(run, CLIENT)
    for values in generator.values():
        if values.dim() in (2, 4):
            is_convolution = values.dim() == 4
            variance = 2 / (9 * len(values)) if is_convolution else 1 / (3 * values.shape[1])
            error = math.sqrt(variance / (2 * values.numel()))
            deviation = abs(float(values.std()) - math.sqrt(variance))
            yield holds(deviation <= 5 * error)
    samples = run.visit(CLIENT).step(run.initial, batch("compared"))
    contrast = float(generated(generator, noise_of(samples)).std()) * PIXEL_STD
    yield holds(contrast > LEAST_CONTRAST)


def one_first_generator(run: LabRun, **options: Any) -> Gaps:
    """Check that round 1 trains no generators, and that all clients begin with the same one."""
    run.round(ONE[0])
    yield gap(first_generator(run, CLIENT), first_generator(run, 4))


def fedkf_check(title: str, source: str, gaps: Any, **others: Any) -> Check:
    """Make a check on a network without BatchNorm."""
    return Check(title, source, gaps, vars(Losses(**others)), norm=False)


def paper_check(title: str, cohorts: Cohorts = ONE, **others: Any) -> Check:
    """Make a check of the printed algorithm."""
    return fedkf_check(f"paper: {title}", SOURCE, partial(as_printed, cohorts=cohorts), **others)


def code_check(title: str, gaps: Any = as_in_the_code, **others: Any) -> Check:
    """Make a check of the algorithm in the authors' code."""
    return fedkf_check(f"code: {title}", CODE, gaps, variant="code", **others)


CHECKS = {
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

LIMITS = {"fedkf": (Limit({"gamma": 0.0}, fields=EVERYONE),)}
