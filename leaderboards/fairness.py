"""Accuracy client by client: FedKF, sections 3 and 5.4.

A run whose clients keep samples to test on has in its curve, at its last round, the accuracy of the evaluated model on
each client's own ones, as the metrics `client_accuracy/0`, `client_accuracy/1`, ...; its row and every evaluated round
have three statistics of them, `amp`, `fm` and `wlp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

CLIENT_ACCURACY = "client_accuracy/"


def client_accuracies(curves: pd.DataFrame) -> pd.DataFrame:
    """Give the accuracy of each run's evaluated model on each client's local test split, after the last round.

    Args:
        curves: as `Store.curves` gives them.

    Returns:
        Fractions in [0, 1]: a row for each run key, a column for each client, numbered from 0; NaN for a client of
        other runs, or without test samples. Runs without local test splits, or stopped early, are left out.
    """
    found = curves[curves["metric"].str.startswith(CLIENT_ACCURACY)]
    client = found["metric"].str.removeprefix(CLIENT_ACCURACY).astype("int64").rename("client")
    return found.assign(client=client).pivot(index="run_key", columns="client", values="value")


def worst_mixture(accuracies: ArrayLike, mixtures: ArrayLike) -> float:
    """Compute a model's worst accuracy over target domains that are mixtures of the clients (FedKF, section 5.4).

    The accuracy on a domain is `sum_k p_k a_k` (Eq. 10). It is never below the accuracy of the worst client, whatever
    the mixtures (Theorem 5.1); the worst of all mixtures is the worst client alone. AMP is the accuracy on the one
    domain that weighs each client by its test samples.

    Args:
        accuracies: (K,) fractions, of one model on each client's test split.
        mixtures: (Q, K) weights, or (K,) of one domain; those of a domain are >= 0 and sum to 1.

    Returns:
        The least of the Q accuracies.

    Raises:
        ValueError: the shapes do not fit, an accuracy is no fraction, or weights are no mixture.
    """
    import numpy as np

    values, weights = np.asarray(accuracies, dtype=float), np.atleast_2d(np.asarray(mixtures, dtype=float))
    if values.ndim != 1 or weights.ndim != 2 or not weights.size or weights.shape[1] != len(values):
        raise ValueError(f"shapes must be (K,) and (Q, K), got {values.shape} and {weights.shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"accuracies must be fractions, got {values.tolist()}: leave out clients without test samples")
    if not (weights >= 0).all() or not np.allclose(weights.sum(1), 1):
        raise ValueError(f"weights must be >= 0 and sum to 1, got {weights.tolist()}")
    return float((weights @ values).min())
