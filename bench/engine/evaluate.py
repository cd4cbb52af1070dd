"""Accuracy of models on the global test set, on the validation samples, and on clients' own test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from algorithms.base import Params
from bench.engine.federation import Federation
from bench.engine.network import Network

Complete = Callable[[Params, int], Params]
Scores = dict[tuple[int, int], dict[str, float]]


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

    def measure(self, row: Params) -> dict[str, float]:
        """`accuracy`, `loss`; `val_accuracy` where samples are held out; `amp`, `fm`, `wlp` with local test sets.

        Returns:
            Fractions in [0, 1], losses in nats; `fm` is the population variance of clients' accuracies (FedKF).
        """
        parts = self.federation.test_parts
        clients = range(len(self.federation.clients))
        if set(row) == set(self.net.names):
            scores = [self._global(row, part) for part in parts]
        else:
            own = len(parts) == len(clients)
            cases = [(c, p) for c in clients for p in range(len(parts)) if not own or c == p]
            scores = [self._personal(row, *case) for case in cases]
        measures = {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]}
        return measures | self._local(row)

    def _personal(self, row: Params, client: int, part: int) -> dict[str, float]:
        if (client, part) not in self.known:
            self.known[client, part] = self._global(self.complete(row, client), self.federation.test_parts[part])
        return self.known[client, part]

    def _global(self, params: Params, part: Tensor | None) -> dict[str, float]:
        federation = self.federation
        correct, loss = self._score(params, federation.chunks(federation.test, part))
        measures = {"accuracy": correct, "loss": loss}
        if len(federation.validation):
            measures["val_accuracy"], _ = self._score(
                params, federation.chunks(federation.train, federation.validation)
            )
        return measures

    def _local(self, row: Params) -> dict[str, float]:
        tests = [(client, index) for client, index in enumerate(self.federation.local_tests) if len(index)]
        if not tests:
            return {}
        scores = []
        for client, index in tests:
            model = row if set(row) == set(self.net.names) else self.complete(row, client)
            accuracy, _ = self._score(model, self.federation.chunks(self.federation.train, index))
            scores.append(accuracy)
        values = torch.tensor(scores, dtype=torch.float64)
        sizes = torch.tensor([len(index) for _, index in tests], dtype=torch.float64)
        return {
            "amp": float((values * sizes).sum() / sizes.sum()),
            "fm": float(values.var(correction=0)),
            "wlp": float(values.min()),
        }

    @torch.no_grad()
    def _score(self, params: Params, chunks: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """Share of samples classified right, and mean cross entropy."""
        correct, loss, total = 0, 0.0, 0
        for x, y in chunks:
            logits = self.net.eval(params, x).logits
            correct += int((logits.argmax(1) == y).sum())
            loss += float(torch.nn.functional.cross_entropy(logits, y, reduction="sum"))
            total += len(y)
        return correct / total, loss / total
