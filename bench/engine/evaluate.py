"""Accuracy of models on the global test set, on validation samples and on clients' own test sets; and divergence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from algorithms.base import Message, Params
from bench.engine.client_round import ClientResult
from bench.engine.federation import Federation
from bench.engine.network import Network
from bench.engine.pytree import equal, has_nan, total
from bench.errors import Interrupted
from leaderboards.numbers import CLIENT_ACCURACY

Complete = Callable[[Params, int], Params]
Predict = Callable[[Network, Params, Tensor], Tensor]

GRACE_SECONDS = 5.0  # of evaluation once the sweep is stopping, in which most rounds end
ASK_SECONDS = 0.5  # at least, between two looks at the stop file


class StopCheck:
    """A check, called between the chunks of an evaluation, whether the sweep is stopping."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._asked = -math.inf
        self._noticed: float | None = None

    def __call__(self) -> None:
        """Raise Interrupted if the sweep has been stopping for `GRACE_SECONDS` of evaluation."""
        now = time.monotonic()
        if now < self._asked + ASK_SECONDS:
            return
        self._asked = now
        if not self._stopping():
            return
        if self._noticed is None:
            self._noticed = now
        if now >= self._noticed + GRACE_SECONDS:
            raise Interrupted("the sweep is stopping, and this round's evaluation takes long")


@dataclass(frozen=True)
class Score:
    """A model's score on samples.

    Args:
        right: (C,) int64 on the CPU, number of correctly classified samples of each class.
        samples: number of samples.
        loss: mean cross entropy, nats.
        part: index of the part of the test set.
        val_accuracy: share of validation samples classified correctly; None if none are held out,
            or not measured.
    """

    right: Tensor
    samples: int
    loss: float
    part: int = 0
    val_accuracy: float | None = None

    @property
    def accuracy(self) -> float:
        """Share of the samples classified correctly."""
        return int(self.right.sum()) / self.samples

    @property
    def measures(self) -> dict[str, float]:
        """The measures, by their names in the curve."""
        measures = {"accuracy": self.accuracy, "loss": self.loss}
        return (
            measures
            if self.val_accuracy is None
            else {**measures, "val_accuracy": self.val_accuracy}
        )


Scores = dict[tuple[int, int], Score]  # by client and test part


def by_logits(net: Network, params: Params, x: Tensor) -> Tensor:
    """Return a model's logits (B, C)."""
    return net.eval(params, x).logits


@torch.no_grad()
def score(
    net: Network,
    params: Params,
    chunks: Iterable[tuple[Tensor, Tensor]],
    part: int = 0,
    predict: Predict = by_logits,
) -> Score:
    """Score a whole model on all (inputs, labels) of `chunks`; `predict` gives (B, C) scores."""
    device = next(iter(params.values())).device
    right, samples = torch.zeros(net.num_classes, dtype=torch.int64, device=device), 0
    loss = torch.zeros(
        (), dtype=torch.float64, device=device
    )  # read once: reading it would hold up the next chunk
    for x, y in chunks:
        logits = predict(net, params, x)
        right.index_add_(0, y, (logits.argmax(1) == y).long())
        loss += torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        samples += len(y)
    return Score(right.cpu(), samples, float(loss) / samples, part)


def on_part(
    net: Network,
    federation: Federation,
    params: Params,
    part: int,
    predict: Predict = by_logits,
) -> Score:
    """Score a whole model on one part of the test set."""
    chunks = federation.chunks(federation.test, federation.test_parts[part])
    return score(net, params, chunks, part, predict)


def on_test(net: Network, federation: Federation, params: Params) -> list[Score]:
    """Score a whole model on each part of the test set; `mean_measures` averages these scores."""
    return [on_part(net, federation, params, part) for part in range(len(federation.test_parts))]


def mean_measures(scores: list[Score]) -> dict[str, float]:
    """Compute the unweighted mean of each measure, over the scores that have it."""
    measures: dict[str, list[float]] = {}
    for each in scores:
        for name, value in each.measures.items():
            measures.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in measures.items()}


@dataclass(frozen=True)
class Evaluator:
    """Evaluation of one row's model.

    A row that lacks names (FedBN, `local`) is a personal model: it is completed for each client and
    the measures are the unweighted means over clients. If each client holds one source of the data,
    they are the unweighted means over the sources' test samples, and a personal model is measured
    on those of its own source only, as FedBN reports; the validation samples likewise.

    `complete` returns a client's whole model for a row and that client. `known` are scores of
    personal models that have not changed; new ones are added to it. `untrained` are clients that
    have not trained yet: those whose models are equal, which are usually all of one architecture,
    are scored once. `net_of` returns a client's network; None for `net`, which is that of whole
    models. `predict` gives the scores that the classes are chosen by.
    """

    net: Network
    federation: Federation
    complete: Complete
    known: Scores = field(default_factory=dict)
    untrained: Collection[int] = ()
    net_of: Callable[[int], Network] | None = None
    predict: Predict = by_logits

    def scores(self, row: Params) -> list[Score]:
        """Return a score for each part of the test set; for a personal model, for each client and its parts."""
        parts, clients = range(len(self.federation.test_parts)), range(len(self.federation.clients))
        if self._is_whole(row):
            return [self._score_whole(self.net, row, part) for part in parts]
        pairs = [(c, p) for c in clients for p in parts if len(parts) != len(clients) or c == p]
        first: dict[Network, Params] = {}  # the model of the first untrained client, by network
        shared: dict[tuple[Network, int], Score] = {}  # its score, by part
        for client, part in pairs:
            if (client, part) in self.known:
                continue
            net = self._net_of(client)
            model = self.complete(row, client)
            if client in self.untrained and equal(model, first.setdefault(net, model)):
                if (net, part) not in shared:
                    shared[net, part] = self._score_whole(net, model, part)
                self.known[client, part] = shared[net, part]
                continue
            self.known[client, part] = self._score_whole(net, model, part)
        return [self.known[pair] for pair in pairs]

    def measures(self, row: Params, scores: list[Score], last: bool = False) -> dict[str, float]:
        """Return `accuracy`, `loss`; `val_accuracy` if samples are held out; those of `fairness` with local test sets.

        With local test sets, the last round has each client's accuracy as well. Fractions in [0,
        1], losses in nats.
        """
        federation, measures = self.federation, mean_measures(scores)
        tests = {client: index for client, index in enumerate(federation.local_tests) if len(index)}
        if not tests:
            return measures
        accuracies = {}
        for client, index in tests.items():
            whole = self._is_whole(row)
            net = self.net if whole else self._net_of(client)
            model = row if whole else self.complete(row, client)
            chunks = federation.chunks(federation.train, index)
            accuracies[client] = score(net, model, chunks, predict=self.predict).accuracy
        measures |= fairness(list(accuracies.values()), [len(index) for index in tests.values()])
        return measures | {
            f"{CLIENT_ACCURACY}{client}": value for client, value in accuracies.items() if last
        }

    def _is_whole(self, row: Params) -> bool:
        return set(row) == set(self.net.names)

    def _net_of(self, client: int) -> Network:
        return self.net_of(client) if self.net_of else self.net

    def _score_whole(self, net: Network, params: Params, part: int) -> Score:
        federation = self.federation
        test_score, held_out = (
            on_part(net, federation, params, part, self.predict),
            federation.validation_parts[part],
        )
        if not len(held_out):
            return test_score
        chunks = federation.chunks(federation.train, held_out)
        val_score = score(net, params, chunks, predict=self.predict)
        return replace(test_score, val_accuracy=val_score.accuracy)


def fairness(accuracies: Sequence[float], sizes: Sequence[int]) -> dict[str, float]:
    """Summarise a model's accuracies on the clients' local test sets of these sizes (FedKF, Definitions 1-3).

    Returns:
        `amp`, the accuracy on all samples pooled; `fm`, the population variance between clients,
        each counting once; `wlp`, the lowest.
    """
    values = torch.tensor(accuracies, dtype=torch.float64)
    weights = torch.tensor(sizes, dtype=torch.float64)
    return {
        "amp": float((values * weights).sum() / weights.sum()),
        "fm": float(values.var(correction=0)),
        "wlp": float(values.min()),
    }


def nonfinite_reason(
    round: int, results: list[ClientResult], models: list[Params], message: Message
) -> str | None:
    """Describe, for the row's `error`, the first value of a round that is not finite; None if all are.

    Losses and models have to be finite; other trees that clients train or the server sends may hold
    infinities on purpose (a mask of -inf), but no NaN. `models` are the server's new model and
    those that are evaluated, `message` is the next round's.
    """
    parts = {
        f"client {result.client}: {name!r}, trained beside its model,": value
        for result in results
        for name, value in result.nan_in.items()
    }
    parts |= {f"client {result.client}: the training loss": result.loss for result in results}
    parts |= {
        f"the server's model {number}": total(model) for number, model in enumerate(models, 1)
    }
    parts |= {
        f"the server's {name}": has_nan(tree) for name, tree in message.items() if name != "params"
    }
    values = torch.stack([value.to(results[0].loss.device) for value in parts.values()]).tolist()
    nonfinite = [
        part for part, value in zip(parts, values, strict=True) if not math.isfinite(value)
    ]
    return f"round {round}, {nonfinite[0]} is not finite" if nonfinite else None
