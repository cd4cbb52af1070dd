"""Methods that leave each client a model of its own: Ditto, FD, LG-FedAvg, FML.

B batch, C classes, K clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import ONE_CLIENT, ROUNDING, Check, Limit
from bench.selftest.equations.distillation import LABELS, PASSES
from bench.selftest.equations.formulas import kl, log_softmax, masked, softmax, sum_of, weighted
from bench.selftest.equations.lab import (
    CLASSES,
    SIZES,
    TWO,
    batch,
    forward,
    model,
    moved_statistics,
)
from bench.selftest.equations.lab_run import (
    FedAvgRecord,
    LabRun,
    Loss,
    Objective,
    ce,
    fedavg_loss,
    local_gap,
)
from bench.selftest.toy import gap

FD = "Jeong et al. 2018, Algorithm 1"
FD_CODE = "HtFLlib's mean over all clients"
LG_FEDAVG = "Liang et al. 2020, Algorithm 1"
HEAD = ("head.weight", "head.bias")
FML = "Shen et al. 2020, local losses"
DITTO = "Li et al. 2021 (Ditto), Algorithm 1"


class Sgd:
    """A model trained by SGD with momentum m: b <- m b + g, w <- w - lr b, b = 0 at first.

    Args:
        run: whose momentum and learning rate of the coming round are taken.
        params: the model to begin with.
    """

    def __init__(self, run: LabRun, params: Params) -> None:
        self.run = run
        self.params = params
        self.momenta = {name: torch.zeros_like(params[name]) for name in run.net.trainable}

    def step(self, objective: Objective, x: Tensor) -> None:
        """Take one step on the objective; `x` are the inputs that move BatchNorm's statistics."""
        names = self.run.net.trainable
        leaves = {}
        for name, value in self.params.items():
            leaves[name] = value.clone().requires_grad_(name in names)
        grads = torch.autograd.grad(objective(leaves), [leaves[name] for name in names])
        after = {name: value.detach() for name, value in leaves.items()}
        if self.run.net.batchnorm:
            after |= moved_statistics(self.params, x)
        for name, grad in zip(names, grads, strict=True):
            self.momenta[name] = self.run.momentum * self.momenta[name] + grad
            after[name] = self.params[name] - self.run.lr * self.momenta[name]
        self.params = after


def mean_of(loss: Callable[..., Tensor], samples: Batch, w: Params) -> Tensor:
    """Return the mean of a model's losses over a batch."""
    return masked(loss(w, samples), samples.weight)


def personal_rows(run: LabRun) -> float:
    """Return 0 if the clients' own models are evaluated and none of the server's, or inf."""
    return 0.0 if run.algorithm.evaluated(run.server) == {"": {}} else math.inf


def ditto_loss(received: Params, names: tuple[str, ...], mu: float) -> Loss:
    """Return CE(v) + lambda/2 ||v - w_t||^2."""

    def loss(v: Params, samples: Batch, history: FedAvgRecord) -> Tensor:
        squares = [((v[name] - received[name]) ** 2).sum() for name in names]
        return ce(v, samples) + mu / 2 * sum_of(squares)

    return loss


def ditto_gaps(run: LabRun, mu: float) -> Iterator[float]:
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
                fedavg.step(partial(mean_of, ce, samples), samples.x)
            ended[k] = fedavg.params
        personal |= run.close(visits, {k: run.local(k) for k in clients})
        received = weighted(ended, SIZES)
        yield gap(dict(run.message()["params"]), received)
        yield personal_rows(run)
        for k in SIZES:
            loss = ditto_loss(received, run.net.trainable, mu)
            yield local_gap(run, FedAvgRecord([personal[k]]), k, loss)


def fd_loss(tables: Mapping[int, Tensor], gamma: float) -> Loss:
    """Return CE(y, p) + gamma CE(t_y, p).

    t_y is the mean of the rows of label y over the tables that have it; a table's row is NaN if its
    client lacks the label. A sample whose label no table has is without that term.
    """

    def loss(w: Params, samples: Batch, history: FedAvgRecord) -> Tensor:
        log_p = log_softmax(forward(w, samples.x).logits)
        terms = []
        for label, row in zip(samples.y.tolist(), log_p, strict=True):
            of_label = [table[label] for table in tables.values()]
            rows = [target for target in of_label if not target.isnan().any()]
            mean = sum_of(rows) / len(rows) if rows else torch.zeros_like(row)
            terms.append(-(mean * row).sum())
        return ce(w, samples) + gamma * torch.stack(terms)

    return loss


def mean_outputs(passes: list[tuple[Params, Batch]]) -> Tensor:
    """Return (C, C) mean softmax outputs of each label over a round's passes; NaN for no sample."""
    outputs = []
    labels = []
    for w, samples in passes:
        counted = samples.weight > 0
        outputs.append(softmax(forward(w, samples.x, training=False).logits)[counted])
        labels.append(samples.y[counted])
    p = torch.cat(outputs)
    y = torch.cat(labels)
    return torch.stack([p[y == label].mean(0) for label in range(CLASSES)])


def fd_gaps(
    run: LabRun, distillation_weight: float, fd_exclude_self: bool = True
) -> Iterator[float]:
    """Compare each client's start, loss and gradient before and after two rounds."""
    personal = dict.fromkeys(SIZES, run.initial)
    tables: dict[int, Tensor] = {}
    for clients in ((), *TWO):
        passes = {k: passes_of(run, k) for k in clients}
        visits = {k: run.visit(k) for k in clients}
        for k, visit in visits.items():
            for w, samples in passes[k]:
                visit.step_loss(w, samples)
        if visits:
            personal |= run.close(visits, {k: run.local(k) for k in clients})
        tables |= {k: mean_outputs(passes[k]) for k in clients}
        yield personal_rows(run)
        for k in SIZES:
            teachers = dict(tables)
            if fd_exclude_self:
                teachers.pop(k, None)
            loss = fd_loss(teachers, distillation_weight)
            yield local_gap(run, FedAvgRecord([personal[k]]), k, loss)


def fml_gaps(run: LabRun, ce_weight: float, meme_ce_weight: float) -> Iterator[float]:
    """Compare two rounds of the meme's steps, each private model, its loss and its gradient."""
    received = run.initial
    personal = dict.fromkeys(SIZES, run.initial)
    for clients in TWO:
        number = run.number
        visits = {k: run.visit(k) for k in clients}
        ended = {}
        for k, visit in visits.items():
            meme = Sgd(run, received)
            for i in range(PASSES):
                samples = batch("fml", number, k, i)
                private = model(run.net, "pass", number, k, i)
                visit.step_loss(private, samples)
                objective = mutual(private, meme_ce_weight)
                meme.step(partial(mean_of, objective, samples), samples.x)
            ended[k] = meme.params
        personal |= run.close(visits, {k: run.local(k) for k in clients})
        received = weighted(ended, SIZES)
        yield gap(run.algorithm.evaluated(run.server), {"": {}, "_meme": received})
        yield gap(dict(run.message()["params"]), received)
        for k in SIZES:
            loss = mutual(received, ce_weight)
            yield local_gap(run, FedAvgRecord([personal[k]]), k, loss)


def mutual(teacher: Params, own: float) -> Loss:
    """Return own CE(w) + (1 - own) KL(p_teacher || p_w)."""

    def loss(w: Params, samples: Batch, history: FedAvgRecord | None = None) -> Tensor:
        term = kl(forward(teacher, samples.x).logits, forward(w, samples.x).logits)
        return own * ce(w, samples) + (1 - own) * term

    return loss


def lg_gaps(run: LabRun) -> Iterator[float]:
    """Compare the averaged head, each client's start, loss and gradient in two rounds."""
    personal = dict.fromkeys(SIZES, run.initial)
    for clients in TWO:
        ended = run.round(clients)
        personal |= ended
        averaged = weighted(ended, SIZES)
        head = {name: averaged[name] for name in HEAD}
        yield run.model_gap(head)
        for k in SIZES:
            yield local_gap(run, FedAvgRecord([personal[k] | head]), k, fedavg_loss())


def passes_of(run: LabRun, client: int, steps: int = PASSES) -> list[tuple[Params, Batch]]:
    """Return the models and the batches of a client's coming round; it holds some labels only."""
    owned = torch.tensor(LABELS[client])
    passes = []
    for i in range(steps):
        samples = batch("pass", run.number, client, i)
        samples = replace(samples, y=owned[samples.y % len(owned)])
        passes.append((model(run.net, "pass", run.number, client, i), samples))
    return passes


CHECKS: dict[str, tuple[Check, ...]] = {
    "ditto": (
        Check(
            "both models, loss and gradient, 2 rounds, lambda=0.7", DITTO, ditto_gaps, {"mu": 0.7}
        ),
        Check(
            "with momentum, without BatchNorm", DITTO, ditto_gaps, {"mu": 2.0}, False, momentum=0.9
        ),
    ),
    "fd": (
        Check("loss and gradient, 3 rounds, gamma=0.7", FD, fd_gaps, {"distillation_weight": 0.7}),
        Check(
            "own table included, gamma=2",
            FD_CODE,
            fd_gaps,
            {"distillation_weight": 2.0, "fd_exclude_self": False},
        ),
    ),
    "lg_fedavg": (Check("heads averaged, loss and gradient, 2 rounds", LG_FEDAVG, lg_gaps),),
    "fml": (
        Check(
            "both models, loss and gradient, 2 rounds",
            FML,
            fml_gaps,
            {"ce_weight": 0.7, "meme_ce_weight": 0.2},
        ),
        Check(
            "with momentum, without BatchNorm",
            FML,
            fml_gaps,
            {"ce_weight": 0.0, "meme_ce_weight": 0.6},
            norm=False,
            momentum=0.9,
        ),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "ditto": (Limit({"mu": 0.0}, "local"),),
    "fd": (Limit({"distillation_weight": 0.0}, "local"),),
    "fml": (
        Limit({"ce_weight": 1.0}, "local"),
        Limit({"meme_ce_weight": 1.0}, rows=("_meme", ""), tolerance=ROUNDING),
    ),
    "lg_fedavg": (Limit({}, sizes=ONE_CLIENT, other_sizes=ONE_CLIENT),),
}
