"""Scores of models on samples that clients keep of their own, and their summary over clients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from leaderboards.numbers import CLIENT_ACCURACY


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
    val_right: int = 0
    val_samples: int = 0

    @property
    def accuracy(self) -> float:
        """Share of its own tests classified correctly."""
        return self.right / self.samples


def client_measures(own: Mapping[int, OwnScore], training: int, last: bool) -> dict[str, float]:
    """Summarise the scores on clients' own samples; empty if no client keeps any.

    Args:
        own: by client.
        training: number of clients that ever train, the first ones; the others are new.
        last: whether the round is the run's last, which has each client's accuracy as well.

    Returns:
        Metrics of `leaderboards.numbers`, fractions in [0, 1]: those of `fairness`, and `amp`'s
        company, the plain mean, the standard deviation and the worst tenth (`spread`); the same of
        new clients; `client_val_accuracy`, weighted by samples, if any has validation samples.
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
