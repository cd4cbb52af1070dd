"""FedGen's server: the generator learns to please the ensemble of the round's heads.

b batch of the server, C classes, D features, K clients. Each generator step is seen through the features that pass
through `head`; labels are inferred as those of all C^b with which Adam's step on the printed loss comes nearest to
what the generator became, and the noise is noted as it is drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.builders import TWO, Options
from bench.selftest.equations.checks import Check, Make, gap
from bench.selftest.equations.fedgen_client import CODE, NOISE, SOURCE, head
from bench.selftest.equations.formulas import log_softmax, sum_of
from bench.selftest.equations.lab import CLASSES, FEATURES, SIZES
from bench.selftest.equations.run import Run
from bench.selftest.equations.watch import Adam, Draws, Sight, bare, shapes_gap, sight

EQ_4 = "Zhu et al. 2021, Eq. 4"
BATCH = 3
LABELLINGS = tuple(itertools.product(range(CLASSES), repeat=BATCH))


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of the generator's training; a learning rate this small keeps rounding below the tolerance."""

    generator_lr: float = 0.005
    generator_lr_decay: float = 0.5
    generator_weight_decay: float = 0.1
    diversity_weight: float = 0.0
    generator_steps: int = 3


@dataclass(frozen=True)
class Step:
    """One generator step as it was seen.

    Args:
        found: the features, what the generator was, and its gradient by each entry of the features.
        noise: (b, noise_dim) eps.
        lr: of the generator.
        heads: the round's local models by client.
        shares: (C,) by client: a_{k,y}, its share of the round's samples of each class.
        objective: which of the three losses the generator has.
    """

    found: Sight
    noise: Tensor
    lr: float
    heads: Mapping[int, Params]
    shares: Mapping[int, Tensor]
    objective: str

    def gradients(self, labellings: Sequence[tuple[int, ...]], diversity: float) -> list[list[Tensor]]:
        """The loss's gradient by the generator's entries, for each labelling of the b samples."""
        g = self.found.output.clone().requires_grad_()
        spread = torch.autograd.grad(diversity * self._diversity(g), g)[0]
        losses = (self._ensemble(g, torch.tensor(labels)) for labels in labellings)
        return [self._pull(torch.autograd.grad(loss, g, retain_graph=True)[0] + spread) for loss in losses]

    def _ensemble(self, g: Tensor, labels: Tensor) -> Tensor:
        """The ensemble's term for labels y_b of the b samples.

        printed: mean_b NLL( sum_k n_k/n head_k(g_b), y_b ); intended: sum_k mean_b a_{k,y_b} NLL(head_k(g_b), y_b);
        broadcast: sum_k mean_{b,b'} a_{k,y_b} NLL(head_k(g_b'), y_b').
        """
        rows, logits = torch.arange(BATCH), {k: head(w, g) for k, w in self.heads.items()}
        if self.objective == "printed":
            total = sum(SIZES[k] for k in logits)
            mean = sum_of(SIZES[k] / total * z for k, z in logits.items())
            return -log_softmax(mean)[rows, labels].mean()
        risks = {k: -log_softmax(z)[rows, labels] for k, z in logits.items()}
        if self.objective == "broadcast":
            return sum_of((self.shares[k][labels][:, None] * risk[None]).mean() for k, risk in risks.items())
        return sum_of((self.shares[k][labels] * risk).mean() for k, risk in risks.items())

    def _diversity(self, g: Tensor) -> Tensor:
        """The diversity term: exp( mean_{i,j} -( mean_d (eps_i - eps_j)^2 )( mean_d |g_i - g_j| ) )."""
        noises = ((self.noise[:, None] - self.noise[None]) ** 2).mean(2)
        return (-noises * (g[:, None] - g[None]).abs().mean(2)).mean().exp()

    def _pull(self, direction: Tensor) -> list[Tensor]:
        """By the generator's entries, of a loss whose gradient by the features (b, D) is `direction`."""
        return [torch.tensordot(direction.flatten(), torch.stack(p), 1) for p in zip(*self.found.pulls, strict=True)]


def two_rounds(run: Run, training: Training, objective: str) -> list[Step]:
    """Two rounds of different clients, every generator step seen."""
    run.fed.batch_size, steps = BATCH, []
    for clients in TWO:
        heads, counts = {k: run.local(k) for k in clients}, {k: _counts(run, k) for k in clients}
        total = sum_of(counts.values()).clamp(min=1)  # a class that nobody has is shared by nobody
        shares = {k: count / total for k, count in counts.items()}
        lr = training.generator_lr * training.generator_lr_decay**run.server.round
        sights, noises = _one_round(run, heads, training.generator_steps)
        pairs = zip(sights, noises, strict=True)
        steps += [Step(found, noise, lr, heads, shares, objective) for found, noise in pairs]
    return steps


def _counts(run: Run, client: int) -> Tensor:
    """(C,) samples of each class, padding left out."""
    data = run.clients[client]
    return data.y[data.weight > 0].bincount(minlength=CLASSES).double()


def _one_round(run: Run, heads: dict[int, Params], steps: int) -> tuple[list[Sight], list[Tensor]]:
    """The generator's outputs while the server takes its step, and the noise that was drawn for them."""
    sights: list[Sight] = []

    def note(features: Tensor) -> None:
        if sights and torch.equal(bare(features), sights[-1].output):
            return  # the same features, under the next client's head
        found = sight(features, lambda values: torch.eye(values.numel(), dtype=values.dtype).unbind())
        sights.extend([found] if found else [])

    visits = {k: run.visit(k) for k in heads}
    run.net.heard = note
    with Draws() as draws:
        run.close(visits, heads)
    run.net.heard = None
    noises = draws.batches(BATCH, NOISE)
    if (len(sights), len(noises)) != (steps, steps):
        seen = f"{len(sights)} and {len(noises)}"
        raise ValueError(f"{steps} generator steps show in net.head and draw noise ({BATCH}, {NOISE}); got {seen}")
    return sights, noises


def server_check(title: str, options: Options, label: int | None = None, source: str = SOURCE) -> Check:
    """Every generator step of two rounds.

    Args:
        title: what is compared.
        options: hyper-parameters.
        label: the class that all clients hold, so that no other can be asked for; None leaves them theirs.
        source: of the formula.
    """
    training = Training(**{name: value for name, value in options.items() if name in vars(Training())})
    labellings = LABELLINGS if label is None else ((label,) * BATCH,)

    def check(make: Make) -> float:
        run, gaps = Run(make, {**vars(training), **options, "noise_dim": NOISE, "hidden_dim": 8}), []
        if label is not None:
            for data in run.clients.values():
                data.y.fill_(label)
        adam = Adam(training.generator_lr, training.generator_weight_decay)
        steps = two_rounds(run, training, options.get("objective", "intended"))
        for step, after in itertools.pairwise(steps):
            adam.lr, leaves = step.lr, step.found.leaves
            gradients = step.gradients(labellings, training.diversity_weight)
            best = min(gradients, key=lambda grads: gap(after.found.leaves, adam.glimpse(leaves, grads)))
            gaps.append(gap(after.found.leaves, adam.step(leaves, best)))
        return max(gaps)

    return Check(f"generator's steps, 2 rounds, {title}", source, check)


def layers_check(embedded: bool) -> Check:
    """What the generator trains: eps and the label -> Linear -> BatchNorm -> ReLU -> Linear -> D features."""
    hidden, label = 8, NOISE if embedded else CLASSES
    shapes = [(hidden, NOISE + label), (hidden,), (hidden,), (hidden,), (FEATURES, hidden), (FEATURES,)]
    shapes += [(CLASSES, NOISE)] if embedded else []

    def check(make: Make) -> float:
        run = Run(make, {"noise_dim": NOISE, "hidden_dim": hidden, "label_embedding": embedded, "generator_steps": 1})
        run.fed.batch_size = BATCH
        sights, _ = _one_round(run, {k: run.local(k) for k in TWO[0]}, steps=1)
        return shapes_gap(sights[0].leaves, shapes)

    return Check(f"the generator's layers, {'embedded' if embedded else 'one-hot'} labels", CODE, check)


EMBEDDED = {"label_embedding": True, "label_prior": "uniform", "diversity_weight": 1.0}
UNDECAYED = {"generator_weight_decay": 0.0, "generator_lr": 1e-3}

CHECKS: dict[str, tuple[Check, ...]] = {
    "fedgen": (
        server_check("every client one class", {}, label=2),
        server_check("clients' shares of each class", {}),
        server_check("diversity_weight=2", {"diversity_weight": 2.0}),
        server_check("without weight decay", UNDECAYED),
        server_check("embedded labels, uniform prior", EMBEDDED),
        server_check("objective=printed", {"objective": "printed"}, source=EQ_4),
        server_check("objective=broadcast", {"objective": "broadcast"}, source=CODE),
        layers_check(embedded=False),
        layers_check(embedded=True),
    )
}
