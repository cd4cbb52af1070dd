"""FedGen: clients' last layer learns from a generator of features.

The generator is trained through the round's heads. B batch, C classes, D features, K clients, Z
length of the noise. Uniform numbers u in [0, 1) draw labels. A client's step draws (B, 1 + 2 Z) of
them: u, eps of the drawn label, and eps of the batch's own one; a step of the server draws eps
(B, Z), then u (B,).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch, Params
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
    batch,
    forward,
    head,
    loss_and_grad_of,
    model,
    trained,
)
from bench.selftest.equations.lab_run import (
    Gaps,
    LabRun,
    ce,
    fedavg_loss,
    holds,
    mean_of,
    student,
)
from bench.selftest.equations.optimizers import Adam, stepped
from bench.selftest.toy import gap

SOURCE = "Zhu et al. 2021, Eqs. 3-5 and Algorithm 1"
CODE = "Zhu et al. 2021, code"
EQ_4 = "Zhu et al. 2021, Eq. 4"
NOISE = 7
SMALL: Mapping[str, Any] = {"noise_dim": NOISE, "hidden_dim": 8, "generator_steps": 1}
Weights = tuple[float, float]  # of the printed term, and of the code's
# The generator has the layers of the laboratory's network, under other names.
LAYERS = {
    "hidden.weight": "body.weight",
    "hidden.bias": "body.bias",
    "norm.mean": "norm.running_mean",
    "norm.var": "norm.running_var",
    "out.weight": "head.weight",
    "out.bias": "head.bias",
}


def generator_of(run: LabRun) -> Params:
    """Return the generator that clients receive, with the names of the laboratory's network."""
    return {LAYERS.get(name, name): value for name, value in run.message()["theta"].items()}


def inputs(theta: Params, eps: Tensor, y: Tensor) -> Tensor:
    """Return what the generator gets: noise, and labels one-hot or embedded."""
    embedding = theta.get("embedding", torch.eye(CLASSES, dtype=torch.float64))
    return torch.cat([eps, embedding[y]], 1)


def generated(theta: Params, eps: Tensor, y: Tensor, training: bool = False) -> Tensor:
    """Return features G(y, eps) (B, D): Linear -> BatchNorm -> ReLU -> Linear."""
    return forward(theta, inputs(theta, eps, y), training).logits


def prior_of(run: LabRun, clients: Iterable[int], rule: str) -> Tensor:
    """Return the probability (C,) of each label.

    `counts`: as often as the clients hold it; `seen`: all that they hold, equally; `uniform`: all.
    """
    counts = sum_of(run.fed_of(k).client.label_counts for k in clients)
    if rule == "seen":
        counts = (counts > 0).double()
    if rule == "uniform":
        counts = torch.ones_like(counts)
    return counts / counts.sum()


def drawn(prior: Tensor, u: Tensor) -> Tensor:
    """Return the labels (B,) at which the prior's distribution function passes u (B,)."""
    return (u[:, None] >= prior.cumsum(0)).sum(1)


def client_loss(
    w: Params, samples: Batch, theta: Params, prior: Tensor, weights: Weights
) -> Tensor:
    """Return CE + a CE(head(G(y~, eps)), y~) + b KL( softmax(head(G(y, eps'))) || p(x) ).

    The means of the first term's generated samples and of the last are over the batch. The last one
    is only in the code.
    """
    u, eps, own_eps = torch.split(samples.noise.double(), [1, NOISE, NOISE], 1)
    y = drawn(prior, u[:, 0])
    hard = cross_entropy(head(w, generated(theta, eps, y)), y).mean()
    soft = kl(head(w, generated(theta, own_eps, samples.y)), student(w, samples))
    return ce(w, samples) + weights[0] * hard + weights[1] * soft


def step_gaps(run: LabRun, prior: Tensor, weights: Weights, steps: int = 3) -> Gaps:
    """Compare a client's loss and gradient in some steps of the coming round."""
    visit = run.visit(CLIENT)
    w = model(run.net, "compared")
    loss = partial(client_loss, theta=generator_of(run), prior=prior, weights=weights)
    for number in range(steps):
        samples = visit.step(w, batch("compared", number))
        printed = loss_and_grad_of(partial(mean_of, loss, samples), w)
        yield gap(visit.loss(w, samples), printed)


def client_gaps(run: LabRun, cohorts: Cohorts, weights: Weights, **options: Any) -> Gaps:
    """Compare a client's loss and gradient in the round after `cohorts`."""
    prior = torch.full((CLASSES,), 1 / CLASSES)
    for clients in cohorts:
        run.round(clients)
        prior = prior_of(run, clients, "counts")
    return step_gaps(run, prior, weights)


def labels_of_the_last_round(
    run: LabRun, hard_weight: float, label_prior: str, **options: Any
) -> Gaps:
    """Check that if a round's clients hold one class, labels of the next round are that class."""
    for clients, label in (((0, 1), 1), ((2, 3), 3)):
        for client in clients:
            run.clients[client].y.fill_(label)
        run.round(clients)
        only = torch.eye(CLASSES)[label]
        yield from step_gaps(run, only, (hard_weight, 0.0))


def proportions(
    run: LabRun, expected: Tensor, hard_weight: float, label_prior: str, **options: Any
) -> Gaps:
    """Check 200 generated labels, and that they occur as often as expected.

    The bound is five standard deviations. The last round's only client has 6, 3, 3 and 0 samples of
    the classes.
    """
    run.clients[3].y.copy_(torch.arange(CLASSES).repeat_interleave(torch.tensor([6, 3, 3, 0])))
    run.round((3,))
    yield gap(prior_of(run, (3,), label_prior), expected)
    steps = 40
    yield from step_gaps(run, expected, (hard_weight, 0.0), steps)
    visit = run.visit(CLIENT)
    w = model(run.net, "compared")
    u = torch.cat([visit.step(w, batch("compared")).noise[:, 0] for _ in range(steps)])
    frequencies = drawn(expected, u).bincount(minlength=CLASSES) / len(u)
    deviation = (expected * (1 - expected) / len(u)).sqrt()
    yield holds(bool(((frequencies - expected).abs() <= 5 * deviation).all()))


def ensemble_risk(
    heads: Mapping[int, Params], a: Mapping[int, Tensor], objective: str, g: Tensor, y: Tensor
) -> Tensor:
    """Return the ensemble's risk on features g (B, D) of labels y (B,).

    - printed: mean_b NLL( sum_k n_k/n head_k(g_b), y_b )
    - intended: sum_k mean_b a_{k,y_b} NLL(head_k(g_b), y_b)
    - broadcast: sum_k mean_{b,b'} a_{k,y_b} NLL(head_k(g_b'), y_b')

    a_{k,c} is client k's share of the round's samples of class c.
    """
    if objective == "printed":
        p = shares(heads)
        return cross_entropy(sum_of(p[k] * head(w, g) for k, w in heads.items()), y).mean()
    terms = []
    for k, w in heads.items():
        nll = cross_entropy(head(w, g), y)
        weights = a[k][y]
        if objective == "broadcast":
            weights = weights.mean()
        terms.append((weights * nll).mean())
    return sum_of(terms)


def generator_loss(
    heads: Mapping[int, Params],
    a: Mapping[int, Tensor],
    objective: str,
    diversity_weight: float,
    eps: Tensor,
    y: Tensor,
    theta: Params,
) -> Tensor:
    """Return the ensemble's risk and the weighted diversity term, in training mode.

    The latter is exp( mean_{i,j} -( mean_d (eps_i - eps_j)^2 )( mean_d |g_i - g_j| ) ).
    """
    g = generated(theta, eps, y, training=True)
    noises = ((eps[:, None] - eps) ** 2).mean(2)
    outputs = (g[:, None] - g).abs().mean(2)
    diversity = (-noises * outputs).mean().exp()
    return ensemble_risk(heads, a, objective, g, y) + diversity_weight * diversity


def server_gaps(
    run: LabRun,
    label: int | None,
    generator_lr: float,
    generator_lr_decay: float,
    generator_weight_decay: float,
    generator_steps: int,
    diversity_weight: float,
    objective: str = "intended",
    label_prior: str = "counts",
    **options: Any,
) -> Gaps:
    """Compare the generator after its steps of each of two rounds.

    If `label` is set, all clients hold that class alone.
    """
    if label is not None:
        for data in run.clients.values():
            data.y.fill_(label)
    theta = generator_of(run)
    adam = Adam(generator_lr, generator_weight_decay)
    for clients in TWO:
        adam.lr = generator_lr * generator_lr_decay**run.server.round
        counts = {k: run.fed_of(k).client.label_counts for k in clients}
        total = sum_of(counts.values()).clamp(min=1)  # all shares of a class without samples are 0
        a = {k: count / total for k, count in counts.items()}
        heads = {k: run.local(k) for k in clients}
        loss = partial(generator_loss, heads, a, objective, diversity_weight)
        prior = prior_of(run, clients, "counts" if label_prior == "counts" else "seen")
        draws = run.fed.stream("fedgen", run.server.round)
        for _ in range(generator_steps):
            eps = torch.rand(BATCH_SIZE, NOISE, generator=draws).double()
            y = drawn(prior, torch.rand(BATCH_SIZE, generator=draws).double())
            theta = stepped(adam, theta, partial(loss, eps, y), inputs(theta, eps, y))
        run.round(clients)
        yield gap(generator_of(run), theta)


def layers(run: LabRun, hidden_dim: int, label_embedding: bool, **options: Any) -> Gaps:
    """Check the generator's layers.

    eps and the label -> Linear -> BatchNorm -> ReLU -> Linear -> D features.
    """
    shapes = {
        "body.weight": (hidden_dim, NOISE + CLASSES),
        "body.bias": (hidden_dim,),
        "norm.weight": (hidden_dim,),
        "norm.bias": (hidden_dim,),
        "head.weight": (FEATURES, hidden_dim),
        "head.bias": (FEATURES,),
    }
    if label_embedding:
        shapes |= {"body.weight": (hidden_dim, 2 * NOISE), "embedding": (CLASSES, NOISE)}
    theta = generator_of(run)
    yield holds({name: tuple(theta[name].shape) for name in trained(theta)} == shapes)


def client_check(
    title: str, source: str, cohorts: Cohorts, weights: Weights, **options: Any
) -> Check:
    """Make a check in which a client's terms have these weights."""
    return Check(
        title, source, partial(client_gaps, cohorts=cohorts, weights=weights), {**SMALL, **options}
    )


def proportion_check(prior: str, source: str, *expected: float) -> Check:
    """Make a check of the expected shares of each class."""
    options = {**SMALL, "hard_weight": 0.8, "label_prior": prior}
    return Check(
        f"200 generated labels, label_prior={prior}",
        source,
        partial(proportions, expected=torch.tensor(expected, dtype=torch.float64)),
        options,
    )


def server_check(
    title: str, source: str = SOURCE, label: int | None = None, **options: Any
) -> Check:
    """Make a check of every generator step in two rounds."""
    title = f"generator's steps, 2 rounds, {title}"
    return Check(title, source, partial(server_gaps, label=label), {**TRAINING, **options})


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
        client_check(
            "the soft term's features have the batch's labels",
            CODE,
            ONE,
            (0.0, 0.6),
            hard_weight=0.0,
            soft_weight=0.6,
        ),
        mean_check(**SMALL),
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
