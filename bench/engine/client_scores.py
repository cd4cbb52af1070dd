"""Scores of models on samples that clients keep of their own, and their summary over clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Params
from bench.engine.federation import Federation
from bench.engine.model_stacks import filled, logits_together, samples_of_pass
from bench.engine.network import Network
from bench.engine.pytree import stack
from leaderboards.numbers import CLIENT_ACCURACY

Predict = Callable[[Network, Params, Tensor], Tensor]  # the scores (B, C) of samples


def by_logits(net: Network, params: Params, x: Tensor) -> Tensor:
    """Return a model's logits (B, C)."""
    return net.eval(params, x).logits


@dataclass(frozen=True)
class OwnScore:
    """A model's score on the samples that one client keeps for it.

    Args:
        right: number of its own tests that are classified correctly.
        samples: number of its own tests, at least 1.
        val_right: the same of its own validation samples.
        val_samples: number of these; may be 0.
    """

    right: int
    samples: int
    val_right: int
    val_samples: int

    @property
    def accuracy(self) -> float:
        """Share of its own tests classified correctly."""
        return self.right / self.samples


@dataclass(frozen=True)
class OwnSamples:
    """The samples that clients keep, and the measuring of models on them.

    `predict` gives the scores by which a model's classes are chosen.
    """

    net: Network
    federation: Federation
    predict: Predict = by_logits

    def tests_of(self, client: int) -> int:
        """Return the number of a client's own tests."""
        tests = self.federation.local_tests
        return len(tests[client]) if client < len(tests) else 0

    def of_one_model(self, model: Params) -> dict[int, OwnScore]:
        """Measure one model on the samples of every client that keeps some, in one pass."""
        clients = self._keeping
        if not clients:
            return {}
        samples = [self._samples_of(client) for client in clients]
        right = self._right(model, torch.cat(samples))
        parts = torch.split(right, [len(index) for index in samples])
        return self._scores(clients, parts)

    def one_by_one(self, models: Mapping[int, Params]) -> dict[int, OwnScore]:
        """Measure clients' own models on their samples."""
        parts = []
        for client, model in models.items():
            parts.append(self._right(model, self._samples_of(client)))
        return self._scores(list(models), parts)

    @torch.no_grad()
    def side_by_side(self, models: Mapping[int, Params], width: int) -> dict[int, OwnScore]:
        """Measure clients' own models on their samples, as one program of `width` models.

        All samples are padded to the largest number of any client.
        """
        if not models:
            return {}
        train = self.federation.train
        stacked = stack(filled(list(models.values()), width))
        longest = max(self._count(client) for client in self._keeping)
        padded = [_padded(self._samples_of(client), longest) for client in models]
        index = torch.stack(filled(padded, width))
        parts = []
        for places in torch.split(index, samples_of_pass(self.federation.device, width), dim=1):
            self.federation.before_chunk()
            x = train.at(places.flatten())
            x = x.view(*places.shape, *x.shape[1:])
            logits = logits_together(self.net, stacked, x, own_inputs=True)
            parts.append(logits.argmax(2) == train.labels[places])
        right = torch.cat(parts, 1).cpu()
        own = [right[row, : self._count(client)] for row, client in enumerate(models)]
        return self._scores(list(models), own)

    @property
    def _keeping(self) -> list[int]:
        """The clients that keep tests of their own."""
        return [
            client for client in range(len(self.federation.local_tests)) if self.tests_of(client)
        ]

    def _count(self, client: int) -> int:
        """Return the number of a client's own tests and validation samples."""
        return self.tests_of(client) + len(self.federation.local_validations[client])

    def _samples_of(self, client: int) -> Tensor:
        """Return the indices of a client's own tests, and of its validation samples after them."""
        tests = self.federation.local_tests[client]
        return torch.cat([tests, self.federation.local_validations[client]])

    @torch.no_grad()
    def _right(self, model: Params, index: Tensor) -> Tensor:
        """Return which of these training samples (n,) a model classifies correctly, on the CPU."""
        train = self.federation.train
        ordered = train.by_cost(index)  # as chunks have them
        parts = []
        for x, y in self.federation.chunks(train, ordered):
            labels = self.predict(self.net, model, x).argmax(1)
            parts.append(labels == y)
        of_sample = torch.zeros_like(train.labels, dtype=torch.bool)
        of_sample[ordered] = torch.cat(parts)
        return of_sample[index].cpu()

    def _scores(self, clients: Sequence[int], parts: Sequence[Tensor]) -> dict[int, OwnScore]:
        """Make scores of what is right (n,) of each client's own samples."""
        scores = {}
        for client, right in zip(clients, parts, strict=True):
            tests = self.tests_of(client)
            test_right = int(right[:tests].sum())
            val_right = int(right[tests:].sum())
            scores[client] = OwnScore(test_right, tests, val_right, len(right) - tests)
        return scores


def _padded(index: Tensor, length: int) -> Tensor:
    """Repeat the last entry of an index until it has this length."""
    missing = length - len(index)
    return torch.cat([index, index[-1:].expand(missing)])


def client_measures(own: Mapping[int, OwnScore], training: int, last: bool) -> dict[str, float]:
    """Summarise the scores on clients' own samples; empty if no client keeps any.

    Args:
        own: by client.
        training: number of clients that ever train, the first ones; the others are new.
        last: whether the round is the run's last, which has each client's accuracy as well.

    Returns:
        Metrics of `leaderboards.numbers`, fractions in [0, 1]: `fairness` and `spread` of clients
        that train; accuracy and `spread` of new clients; `client_val_accuracy`, weighted by
        samples, if any has validation samples.
    """
    training_own = [score for client, score in own.items() if client < training]
    new_own = [score for client, score in own.items() if client >= training]
    measures: dict[str, float] = {}
    if training_own:
        accuracies = [score.accuracy for score in training_own]
        measures |= fairness(accuracies, [score.samples for score in training_own])
        measures |= {f"client_{name}": value for name, value in spread(accuracies).items()}
    val_samples = sum(score.val_samples for score in training_own)
    if val_samples:
        val_right = sum(score.val_right for score in training_own)
        measures["client_val_accuracy"] = val_right / val_samples
    if new_own:
        accuracies = [score.accuracy for score in new_own]
        right = sum(score.right for score in new_own)
        measures["new_client_accuracy"] = right / sum(score.samples for score in new_own)
        measures |= {f"new_client_{name}": value for name, value in spread(accuracies).items()}
    if last:
        for client, score in own.items():
            measures[f"{CLIENT_ACCURACY}{client}"] = score.accuracy
    return measures


def fairness(accuracies: Sequence[float], sizes: Sequence[int]) -> dict[str, float]:
    """Summarise accuracies on clients' own tests of these sizes (FedKF, Definitions 1-3).

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


def spread(accuracies: Sequence[float]) -> dict[str, float]:
    """Summarise accuracies of clients, each counting once.

    Returns:
        `mean`; `std`, the population's; `worst10`, the mean of the worst tenth, rounded up to whole
        clients.
    """
    values = torch.tensor(sorted(accuracies), dtype=torch.float64)
    worst = values[: math.ceil(len(values) / 10)]
    return {
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
        "worst10": float(worst.mean()),
    }
