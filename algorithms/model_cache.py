"""A cache of every client's latest model, and the mean over it, which FedKF calls the OCA.

K is the number of clients. The cache is on the CPU, because it grows with K, not with the clients
that take part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Cohort, Params


@dataclass(frozen=True)
class ModelCache:
    """The latest model of each client, each tensor (K, ...).

    `counted` (K,) is 1 for a client that the mean counts.
    """

    models: Params
    counted: Tensor

    @staticmethod
    def of(params: Params, num_clients: int, unvisited: str) -> ModelCache:
        """Fill a cache with `params`.

        Models count from the start if `unvisited` is `w0`, otherwise once updated.
        """
        models = {
            name: value.cpu().expand(num_clients, *value.shape) for name, value in params.items()
        }
        counted = torch.full((num_clients,), float(unvisited == "w0"), dtype=torch.float32)
        return ModelCache(models, counted)

    def updated(self, params: Params, ids: Tensor) -> ModelCache:
        """Return the cache with `params` (m, ...) as the models of the clients `ids` (m,)."""
        positions = ids.cpu()  # a loaded state may put the cache on another device
        models = {
            name: old.cpu().index_copy(0, positions, params[name].cpu())
            for name, old in self.models.items()
        }
        return ModelCache(models, self.counted.cpu().index_fill(0, positions, 1.0))

    def mean(self, cohort: Cohort, like: Params) -> Params:
        """Return sum_k n_k w_k / sum_k n_k over the clients that count, on the device of `like`."""
        mean: Params = cohort.everyone().mean(self.models, among=self.counted)
        return {name: value.to(like[name].device) for name, value in mean.items()}
