"""FedGen: clients' last layer learns from a generator of features.

The generator is trained through the round's heads. B batch of a client, b of the server, C classes,
D features, K clients. The algorithm itself draws the labels of generated features, so they are
inferred: of all C^B labellings, the one for which the printed formula is nearest to the computed
loss; of all C^b, the one for which Adam's step on the printed loss is nearest to the generator's
new values. Features are recorded when they pass through `head`, and the server's noise when it is
drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.checks import Check, Limit, loss_check, mean_check
from bench.selftest.equations.formulas import cross_entropy, kl, shares, sum_of
from bench.selftest.equations.lab import (
    BATCH_SIZE,
    CLASSES,
    CLIENT,
    FEATURES,
    ONE,
    TWO,
    Cohorts,
    LabNet,
    batch,
    head,
    loss_and_grad_of,
    model,
)
from bench.selftest.equations.lab_run import (
    Gaps,
    LabRun,
    Visit,
    ce,
    fedavg_loss,
    holds,
    run_rounds,
    student,
)
from bench.selftest.equations.observe import Draws, Observation, observe, shapes_gap, unwrapped
from bench.selftest.equations.optimizers import Adam
from bench.selftest.toy import gap

SOURCE = "Zhu et al. 2021, Eqs. 3-5 and Algorithm 1"
CODE = "Zhu et al. 2021, code"
EQ_4 = "Zhu et al. 2021, Eq. 4"
NOISE = 7  # unlike any other width here, so that the noise is recognised by its shape
SMALL: Mapping[str, Any] = {"noise_dim": NOISE, "hidden_dim": 8, "generator_steps": 1}
LABELLINGS = torch.tensor(list(itertools.product(range(CLASSES), repeat=BATCH_SIZE)))  # (C^B, B)
BATCH = 3  # of the server
Weights = tuple[float, float]  # of the printed term, and of the code's
SERVER_LABELLINGS = torch.tensor(list(itertools.product(range(CLASSES), repeat=BATCH)))  # (C^b, b)


@contextmanager
def recorded_features(net: LabNet) -> Iterator[list[Tensor]]:
    """Record the inputs of `head` inside the context in blocks of B rows.

    In a client's step they are the features of its two terms.
    """
    blocks: list[Tensor] = []

    def note(features: Tensor) -> None:
        blocks.extend(torch.split(unwrapped(features), BATCH_SIZE))

    with patch.object(net, "on_head", note):
        yield blocks


def fit_step(visit: Visit, weights: Weights, number: int) -> tuple[Tensor, float]:
    """Take a client's step; infer the labels (B,) y~ of the generated features that fit it best.

    Returns them, and the gap of the step's loss and gradient with them. There are two terms:

    - as printed, on the block `hard` of features: mean CE(head(g(y~)), y~)
    - only in the code, on the block `soft`, generated for the batch's own labels y:
      mean KL( softmax(head(g(y))) || p(x) )
    """
    net = visit.run.net
    params = model(net, "compared")
    samples = visit.step(params, batch("compared", number, padded=False))
    with recorded_features(net) as blocks:
        computed = visit.loss(params, samples)
    hard, soft = blocks

    def objective(labels: Tensor, w: Params) -> Tensor:
        generated = cross_entropy(head(w, hard), labels).mean(-1)
        term = kl(head(w, soft), student(w, samples))
        return (ce(w, samples) + weights[1] * term).mean() + weights[0] * generated

    distances = (objective(LABELLINGS, params) - computed.loss).abs()
    labels = LABELLINGS[distances.argmin()]
    return labels, gap(computed, loss_and_grad_of(partial(objective, labels), params))


def client_gaps(run: LabRun, cohorts: Cohorts, weights: Weights, **options: Any) -> Gaps:
    """Compare a client's loss and gradient in the round after `cohorts`."""
    run_rounds(run, cohorts)
    visit = run.visit(CLIENT)
    for number in range(3):
        _, difference = fit_step(visit, weights, number)
        yield difference


def labels_of_the_last_round(run: LabRun, hard_weight: float, **options: Any) -> Gaps:
    """Check that if a round's clients hold one class, labels of the next round are that class."""
    for clients, label in (((0, 1), 1), ((2, 3), 3)):
        for client in clients:
            run.clients[client].y.fill_(label)
        run.round(clients)
        visit = run.visit(CLIENT)
        for number in range(4):
            labels, difference = fit_step(visit, (hard_weight, 0.0), number)
            yield difference
            yield holds(bool((labels == label).all()))


def proportions(run: LabRun, expected: Tensor, hard_weight: float, **options: Any) -> Gaps:
    """Check that labels of 200 generated samples occur as often as expected.

    The bound is five standard deviations. The last round's only client has 6, 3, 3 and 0 samples of
    the classes.
    """
    client_labels = torch.arange(CLASSES).repeat_interleave(torch.tensor([6, 3, 3, 0]))
    run.clients[3].y.copy_(client_labels)
    run.round((3,))
    visit = run.visit(CLIENT)
    steps = [fit_step(visit, (hard_weight, 0.0), number) for number in range(40)]
    labels = torch.cat([labels for labels, _ in steps])
    frequencies = labels.bincount(minlength=CLASSES) / len(labels)
    deviation = (expected * (1 - expected) / len(labels)).sqrt()
    close = (frequencies - expected).abs() <= 5 * deviation + 1e-6
    yield holds(bool(close.all()))


def soft_features_follow_the_batch(run: LabRun, **options: Any) -> Gaps:
    """Check that other labels for samples 3 to 5 change the soft term's features of these alone."""
    calls = []
    run_rounds(run, ONE)
    visit = run.visit(CLIENT)
    params = model(run.net, "compared")
    samples = visit.step(params, batch("compared", padded=False))
    for shift in (torch.tensor([0, 0, 0, 0, 0]), torch.tensor([0, 0, 1, 1, 1])):
        with recorded_features(run.net) as blocks:
            visit.loss(params, replace(samples, y=(samples.y + shift) % CLASSES))
        calls.append(torch.stack(blocks))
    before, after = calls
    moved = (before != after).any(2).tolist()  # of the hard and the soft term
    yield holds(moved == [[False] * 5, [False, False, True, True, True]])


@dataclass(frozen=True)
class Step:
    """One observed generator step."""

    # Features g (b, D), the generator's values, and each feature entry's gradient by these.
    observed: Observation
    noise: Tensor  # (b, noise_dim) eps
    lr: float
    risk: Callable[[Tensor, Tensor], Tensor]  # the ensemble's term by g and labels (L, b), (L,)

    def gradients(self, labellings: Tensor, diversity_weight: float) -> list[Tensor]:
        """Return the loss's gradient by the generator's values, for each of the labellings."""
        g = self.observed.output.clone().requires_grad_()
        losses = self.risk(g, labellings) + diversity_weight * self._diversity(g)
        by_g = [torch.autograd.grad(loss, g, retain_graph=True)[0] for loss in losses]
        return [direction.flatten() @ self.observed.vjps for direction in by_g]

    def _diversity(self, g: Tensor) -> Tensor:
        """Return exp( mean_{i,j} -( mean_d (eps_i - eps_j)^2 )( mean_d |g_i - g_j| ) )."""
        noises = ((self.noise[:, None] - self.noise) ** 2).mean(2)
        outputs = (g[:, None] - g).abs().mean(2)
        return (-noises * outputs).mean().exp()


def printed_risk(heads: Mapping[int, Params], g: Tensor, labels: Tensor) -> Tensor:
    """Return mean_b NLL( sum_k n_k/n head_k(g_b), y_b ) for each labelling."""
    p = shares(heads)
    return cross_entropy(sum_of(p[k] * head(w, g) for k, w in heads.items()), labels).mean(1)


def ensemble_risk(
    heads: Mapping[int, Params], a: Mapping[int, Tensor], mixed: bool, g: Tensor, labels: Tensor
) -> Tensor:
    """Return the ensemble's term for each labelling.

    - intended: sum_k mean_b a_{k,y_b} NLL(head_k(g_b), y_b)
    - broadcast, if `mixed`: sum_k mean_{b,b'} a_{k,y_b} NLL(head_k(g_b'), y_b')

    a_{k,c} is client k's share of the round's samples of class c.
    """
    terms = []
    for k, w in heads.items():
        nll = cross_entropy(head(w, g), labels)
        weights = a[k][labels]
        terms.append(weights.mean(1) * nll.mean(1) if mixed else (weights * nll).mean(1))
    return sum_of(terms)


def one_round(
    run: LabRun, clients: Sequence[int], steps: int
) -> tuple[list[Observation], list[Tensor]]:
    """Let the server take its step; return the generator's outputs, and the noise of them."""
    observations: list[Observation] = []

    def note(features: Tensor) -> None:
        observed = observe(features, torch.eye(features.numel(), dtype=torch.float64))
        if observed:
            observations.append(observed)

    visits = {k: run.visit(k) for k in clients}
    with patch.object(run.net, "on_head", note), Draws() as draws:
        run.close(visits)
    noises = draws.batches(BATCH, NOISE)
    if (len(observations), len(noises)) != (steps, steps):
        raise ValueError(
            f"{steps} generator steps, got {len(observations)} in net.head "
            f"and {len(noises)} draws of noise"
        )
    return observations, noises


def two_rounds(run: LabRun, training: Mapping[str, Any], objective: str) -> Iterator[Step]:
    """Run two rounds of different clients; yield every generator step."""
    run.fed.batch_size = BATCH
    for clients in TWO:
        counts = {k: run.fed_of(k).client.label_counts for k in clients}
        total = sum_of(counts.values()).clamp(min=1)  # all shares of a class without samples are 0
        a = {k: count / total for k, count in counts.items()}
        lr = training["generator_lr"] * training["generator_lr_decay"] ** run.server.round
        heads = {k: run.local(k) for k in clients}
        risk = partial(ensemble_risk, heads, a, objective == "broadcast")
        if objective == "printed":
            risk = partial(printed_risk, heads)
        pairs = zip(*one_round(run, clients, training["generator_steps"]), strict=True)
        yield from (Step(observed, noise, lr, risk) for observed, noise in pairs)


def server_gaps(
    run: LabRun, label: int | None, objective: str = "intended", **options: Any
) -> Gaps:
    """Compare every generator step of two rounds.

    If `label` is set, all clients hold that class alone.
    """
    labellings = SERVER_LABELLINGS
    if label is not None:
        labellings = torch.full((1, BATCH), label)
        for data in run.clients.values():
            data.y.fill_(label)
    adam = Adam(options["generator_lr"], options["generator_weight_decay"])
    for step, after in itertools.pairwise(two_rounds(run, options, objective)):
        adam.lr = step.lr
        w = step.observed.vector
        updated = after.observed.vector
        gradients = step.gradients(labellings, options["diversity_weight"])
        best = min(gradients, key=lambda grad: gap(updated, replace(adam).step(w, grad)))
        yield gap(updated, adam.step(w, best))


def layers(run: LabRun, hidden_dim: int, label_embedding: bool, **options: Any) -> Gaps:
    """Check the generator's layers.

    eps and the label -> Linear -> BatchNorm -> ReLU -> Linear -> D features.
    """
    run.fed.batch_size = BATCH
    label_dim = NOISE if label_embedding else CLASSES
    shapes = [
        (hidden_dim, NOISE + label_dim),
        *[(hidden_dim,)] * 3,
        (FEATURES, hidden_dim),
        (FEATURES,),
    ]
    shapes += [(CLASSES, NOISE)] if label_embedding else []
    observations, _ = one_round(run, TWO[0], steps=1)
    yield shapes_gap(observations[0].leaves, shapes)


def client_check(
    title: str, source: str, cohorts: Cohorts, weights: Weights, **options: Any
) -> Check:
    """Make a check in which a client's terms have these weights."""
    return Check(
        title, source, partial(client_gaps, cohorts=cohorts, weights=weights), {**SMALL, **options}
    )


def proportion_check(prior: str, source: str, *shares: float) -> Check:
    """Make a check of the expected shares of each class."""
    options = {**SMALL, "hard_weight": 0.8, "label_prior": prior}
    return Check(
        f"200 generated labels, label_prior={prior}",
        source,
        partial(proportions, expected=torch.tensor(shares)),
        options,
    )


def server_check(
    title: str, source: str = SOURCE, label: int | None = None, **options: Any
) -> Check:
    """Make a check of every generator step in two rounds."""
    options = {**TRAINING, **options}
    return Check(
        f"generator's steps, 2 rounds, {title}", source, partial(server_gaps, label=label), options
    )


# The learning rate is so small that rounding errors stay below the tolerance.
TRAINING: Any = {
    **SMALL,
    "generator_lr": 0.005,
    "generator_lr_decay": 0.5,
    "generator_weight_decay": 0.1,
    "diversity_weight": 0.0,
    "generator_steps": 3,
}
BOTH: Any = {"hard_weight": 0.8, "soft_weight": 0.6}
FADING: Any = {"hard_weight": 1e-3, "soft_weight": 2e-3, "annealing": 0.1}
LAST: Any = {**SMALL, "hard_weight": 0.8, "label_prior": "counts"}
EMBEDDED: Any = {"label_embedding": True, "label_prior": "uniform", "diversity_weight": 1.0}
UNDECAYED: Any = {"generator_weight_decay": 0.0, "generator_lr": 1e-3}

CHECKS = {
    "fedgen": (
        loss_check("round 1 is without generated features", SOURCE, fedavg_loss, **SMALL, **BOTH),
        client_check(
            "loss and gradient, round 2, hard_weight=0.8", SOURCE, ONE, (0.8, 0.0), hard_weight=0.8
        ),
        client_check("both terms, round 2", CODE, ONE, (0.8, 0.6), **BOTH),
        client_check(
            "both terms, round 3, annealing=0.5", CODE, TWO, (0.2, 0.15), **BOTH, annealing=0.5
        ),
        client_check("the weights' floor of 1e-4, round 3", CODE, TWO, (1e-4, 1e-4), **FADING),
        Check(
            "labels come from what the last round's clients hold",
            SOURCE,
            labels_of_the_last_round,
            LAST,
        ),
        client_check(
            "objective=printed: generated features in round 1",
            SOURCE,
            (),
            (0.8, 0.0),
            hard_weight=0.8,
            objective="printed",
        ),
        proportion_check("counts", SOURCE, 1 / 2, 1 / 4, 1 / 4, 0),
        proportion_check("seen", SOURCE, 1 / 3, 1 / 3, 1 / 3, 0),
        proportion_check("uniform", CODE, 1 / 4, 1 / 4, 1 / 4, 1 / 4),
        Check(
            "the soft term's features have the batch's labels",
            CODE,
            soft_features_follow_the_batch,
            {**SMALL, **BOTH},
        ),
        mean_check(generator_steps=1),
        server_check("every client one class", label=2),
        server_check("clients' shares of each class"),
        server_check("diversity_weight=2", diversity_weight=2.0),
        server_check("without weight decay", **UNDECAYED),
        server_check("embedded labels, uniform prior", **EMBEDDED),
        server_check("objective=printed", EQ_4, objective="printed"),
        server_check("objective=broadcast", CODE, objective="broadcast"),
        Check(
            "the generator's layers, one-hot labels",
            CODE,
            layers,
            {**SMALL, "label_embedding": False},
        ),
        Check(
            "the generator's layers, embedded labels",
            CODE,
            layers,
            {**SMALL, "label_embedding": True},
        ),
    ),
}

LIMITS = {"fedgen": (Limit({"hard_weight": 0.0, "soft_weight": 0.0}),)}
