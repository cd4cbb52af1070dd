"""A cache of every client's latest model, with the mean over it, which FedKF calls the OCA.

It is part of the server's state, and has the names of the algorithm that keeps it, OWNER:
`OWNER_models`, each tensor (K, ...) for K clients; `OWNER_counted` (K,), 1 for a client that the
mean counts; `OWNER_overall`, the mean. The models are on the CPU, because they grow with K, not
with the clients that take part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Cohort, Params


def first_models(owner: str, params: Params, num_clients: int, unvisited: str) -> dict[str, Any]:
    """Return the cache before any client has trained, with `params` for each and as the mean.

    Models count from the start if `unvisited` is `w0`, otherwise once updated.
    """
    models = {}
    for name, value in params.items():
        models[name] = value.cpu().expand(num_clients, *value.shape)
    counted = torch.full((num_clients,), float(unvisited == "w0"), dtype=torch.float32)
    return _named(owner, models, counted, params)


def with_models(
    owner: str, extra: Mapping[str, Any], params: Params, cohort: Cohort
) -> dict[str, Any]:
    """Return the cache with `params` (m, ...) as the models of the cohort's clients.

    The mean is sum_k n_k w_k / sum_k n_k over the clients that count, on the device of `params`.
    """
    places = cohort.ids.cpu()  # a loaded state may put the cache on another device
    models = {}
    for name, old in extra[f"{owner}_models"].items():
        models[name] = old.cpu().index_copy(0, places, params[name].cpu())
    counted = extra[f"{owner}_counted"].cpu().index_fill(0, places, 1.0)
    mean = cohort.everyone().mean(models, among=counted)
    overall = {name: value.to(params[name].device) for name, value in mean.items()}
    return _named(owner, models, counted, overall)


def _named(owner: str, models: Params, counted: Tensor, overall: Params) -> dict[str, Any]:
    return {f"{owner}_models": models, f"{owner}_counted": counted, f"{owner}_overall": overall}
