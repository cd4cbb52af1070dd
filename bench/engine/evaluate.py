"""Accuracy of models on the global test set, on the validation samples, and on clients' own test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Params
from bench.engine.federation import Federation
from bench.engine.network import Network

Complete = Callable[[Params, int], Params]


@dataclass(frozen=True)
class Evaluator:
    """Measures one row's model.

    A row that lacks names (FedBN, `local`) is a personal model: it is completed for each client and the measures are
    the unweighted means over clients.

    Args:
        net: the network.
        federation: its test, validation and local test samples.
        complete: (row, client) to that client's whole model.
    """

    net: Network
    federation: Federation
    complete: Complete

    def measure(self, row: Params) -> dict[str, float]:
        """`accuracy`, `loss`; `val_accuracy` where samples are held out; `amp`, `fm`, `wlp` with local test sets.

        Returns:
            Fractions in [0, 1], losses in nats; `fm` is the population variance of clients' accuracies (FedKF).
        """
        federation = self.federation
        if set(row) == set(self.net.names):
            scores = [self._global(row)]
        else:
            scores = [self._global(self.complete(row, client)) for client in range(len(federation.clients))]
        measures = {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]}
        return measures | self._local(row)

    def _global(self, params: Params) -> dict[str, float]:
        federation = self.federation
        correct, loss = self._score(params, federation.chunks(federation.test))
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
