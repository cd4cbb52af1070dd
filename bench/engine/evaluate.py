"""Accuracy of models on the global test set, on the validation samples, and on clients' own test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from algorithms.base import Params
from algorithms.forward import Answers
from bench.engine.federation import Federation
from bench.engine.network import Network
from leaderboards.fairness import CLIENT_ACCURACY

Complete = Callable[[Params, int], Params]


@dataclass(frozen=True)
class Score:
    """A model's answers to samples.

    Args:
        right: (C,) int64 on the CPU, how many of each class were classified right.
        samples: of all classes.
        loss: mean cross entropy, nats.
        part: which of the test parts these are.
        val_accuracy: share of the validation samples classified right; None where none are held out, or asked for.
    """

    right: Tensor
    samples: int
    loss: float
    part: int = 0
    val_accuracy: float | None = None

    @property
    def accuracy(self) -> float:
        """Share of the samples classified right."""
        return int(self.right.sum()) / self.samples

    @property
    def measures(self) -> dict[str, float]:
        """By the names of the curve."""
        known = {"accuracy": self.accuracy, "loss": self.loss}
        return known if self.val_accuracy is None else {**known, "val_accuracy": self.val_accuracy}


Scores = dict[tuple[int, int], Score]


@torch.no_grad()
def score(net: Network, params: Params, chunks: Iterable[tuple[Tensor, Tensor]]) -> Score:
    """A whole model's answers to all (inputs, labels) of `chunks`."""
    device = next(iter(params.values())).device
    right, total = torch.zeros(net.num_classes, dtype=torch.int64, device=device), 0
    loss = torch.zeros((), dtype=torch.float64, device=device)  # asked for once: an answer would hold up the next chunk
    answers = Answers(net)
    for x, y in chunks:
        logits = answers.on(params, x).logits
        right.index_add_(0, y, (logits.argmax(1) == y).long())
        loss += torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        total += len(y)
    return Score(right.cpu(), total, float(loss) / total)


def on_test(net: Network, federation: Federation, params: Params) -> list[Score]:
    """A whole model's answers to each part of the test set; `mean_measures` makes one accuracy of them."""
    return [_on_part(net, federation, params, part) for part in range(len(federation.test_parts))]


def mean_measures(scores: list[Score]) -> dict[str, float]:
    """The unweighted mean of each measure."""
    known = [score.measures for score in scores]
    return {name: sum(measures[name] for measures in known) / len(known) for name in known[0]}


def _on_part(net: Network, federation: Federation, params: Params, part: int) -> Score:
    found = score(net, params, federation.chunks(federation.test, federation.test_parts[part]))
    return replace(found, part=part)


@dataclass(frozen=True)
class Evaluator:
    """Measures one row's model.

    A row that lacks names (FedBN, `local`) is a personal model: it is completed for each client and the measures are
    the unweighted means over clients. Where each client holds one source of the data, they are the unweighted means
    over the sources' test samples, a personal model being measured on its own source's alone, as FedBN reports.

    Args:
        net: the network.
        federation: its test, validation and local test samples.
        complete: (row, client) to that client's whole model.
        known: measures of personal models that have not changed, by client and part of the test set; added to.
    """

    net: Network
    federation: Federation
    complete: Complete
    known: Scores = field(default_factory=dict)

    def scores(self, row: Params) -> list[Score]:
        """One for each part of the test set; of a row that is a personal model, for each client and part it has."""
        parts = range(len(self.federation.test_parts))
        clients = range(len(self.federation.clients))
        if self._whole(row):
            return [self._global(row, part) for part in parts]
        own = len(parts) == len(clients)
        return [self._personal(row, c, p) for c in clients for p in parts if not own or c == p]

    def measures(self, row: Params, scores: list[Score], last: bool = False) -> dict[str, float]:
        """`accuracy`, `loss`; `val_accuracy` where samples are held out; those of `fairness` with local test sets.

        Args:
            row: the model.
            scores: what `scores` gave of it.
            last: the run ends here: with local test sets, each client's accuracy as well, for `leaderboards.fairness`.

        Returns:
            Fractions in [0, 1], losses in nats.
        """
        return mean_measures(scores) | self._local(row, last)

    def _whole(self, row: Params) -> bool:
        return set(row) == set(self.net.names)

    def _personal(self, row: Params, client: int, part: int) -> Score:
        if (client, part) not in self.known:
            self.known[client, part] = self._global(self.complete(row, client), part)
        return self.known[client, part]

    def _global(self, params: Params, part: int) -> Score:
        federation = self.federation
        found = _on_part(self.net, federation, params, part)
        if not len(federation.validation):
            return found
        held_out = score(self.net, params, federation.chunks(federation.train, federation.validation))
        return replace(found, val_accuracy=held_out.accuracy)

    def _local(self, row: Params, last: bool) -> dict[str, float]:
        tests = {client: index for client, index in enumerate(self.federation.local_tests) if len(index)}
        if not tests:
            return {}
        accuracies = {}
        for client, index in tests.items():
            model = row if self._whole(row) else self.complete(row, client)
            accuracies[client] = score(self.net, model, self.federation.chunks(self.federation.train, index)).accuracy
        by_client = {f"{CLIENT_ACCURACY}{client}": accuracy for client, accuracy in accuracies.items() if last}
        return fairness(list(accuracies.values()), [len(index) for index in tests.values()]) | by_client


def fairness(accuracies: Sequence[float], sizes: Sequence[int]) -> dict[str, float]:
    """Summarise a model's accuracies on the clients' local test sets (FedKF, Definitions 1-3).

    Args:
        accuracies: of each client with test samples, fractions in [0, 1].
        sizes: of their test sets.

    Returns:
        `amp`, the accuracy on all samples pooled; `fm`, the population variance between clients, each counting once;
        `wlp`, the least.
    """
    values = torch.tensor(accuracies, dtype=torch.float64)
    weights = torch.tensor(sizes, dtype=torch.float64)
    return {
        "amp": float((values * weights).sum() / weights.sum()),
        "fm": float(values.var(correction=0)),
        "wlp": float(values.min()),
    }
