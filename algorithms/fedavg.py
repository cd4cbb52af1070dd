"""FedAvg: Communication-Efficient Learning of Deep Networks from Decentralized Data.

McMahan, Moore, Ramage, Hampson, y Arcas, AISTATS 2017, Algorithm 1.
https://arxiv.org/abs/1602.05629
"""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.base import Algorithm
from algorithms.entry import About


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """Clients minimise the cross entropy; the server averages their models, weighted by examples.

    w_{t+1} = sum_{k in S_t} n_k / n w_k, with n = sum_{k in S_t} n_k. Every hook is the contract's
    default.

    Differences from the paper:
        1. The weights are normalised over the round's clients (the authors' revised version does
           the same), so that partial participation keeps the model's scale.
    """

    about = About(
        name="fedavg",
        paper="McMahan et al. 2017",
        equations="Algorithm 1",
        summary="local cross entropy, models averaged by examples",
    )
