"""Prototypes: mean features of a class, which clients of unlike models can exchange.

C classes, D features. A client uploads its `prototypes` (C, D), and the `counts` (C,) of the
samples that each is the mean of. The server sends `prototypes`, and `known` (C,), 1 for a class
that has one. All networks have the same D.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms.base import Data, Fed, Net, Params, Upload
from algorithms.forward import outputs_of
from algorithms.label_tables import Table, means_of
from algorithms.losses import one_hot

Prototypes = dict[str, Any]


def no_prototypes(fed: Fed, params: Params) -> Prototypes:
    """Return the server's prototypes before any is uploaded, of the type of `params`."""
    like = next(iter(params.values()))
    classes = fed.net.num_classes
    return {
        "prototypes": like.new_zeros(classes, fed.net.feature_dim),
        "known": like.new_zeros(classes),
    }


def uploaded(table: Table) -> Upload:
    """Return what a client uploads of the sums (C, D) and counts (C,) of its features."""
    return {"prototypes": means_of(table), "counts": table["counts"]}


def table_of_all(net: Net, params: Params, data: Data) -> Table:
    """Return sums and counts of a model's features on a whole set, in evaluation mode."""
    features = outputs_of(net, params, data.x).features
    members = one_hot(data.y, net.num_classes).to(features.dtype)
    return {"sums": members.T @ features, "counts": members.sum(0)}


def mean_over_clients(uploads: Upload) -> tuple[Tensor, Tensor]:
    """Return the plain mean (C, D) over the clients that have a class, and whether any has (C,)."""
    have = (uploads["counts"] > 0).to(uploads["counts"])
    shares = have / have.sum(0).clamp(min=1)
    return (shares[..., None] * uploads["prototypes"]).sum(0), have.sum(0) > 0


def as_samples(uploads: Upload) -> tuple[dict[str, Tensor], Tensor]:
    """Return the uploaded `prototypes` (m C, D) with their `labels` (m C,).

    Returns:
        These, and the places (n,) of the prototypes that stand for samples.
    """
    have = uploads["counts"] > 0
    labels = torch.arange(have.shape[1], device=have.device).repeat(len(have))
    samples = {"prototypes": uploads["prototypes"].flatten(0, 1), "labels": labels}
    return samples, have.flatten().nonzero()[:, 0]


def epochs_of(
    places: Tensor, generator: torch.Generator, size: int, epochs: int
) -> dict[str, Tensor]:
    """Draw the batches of a server's passes over prototypes, each pass in an order of its own.

    Args:
        places: (n,) of the prototypes among all that were uploaded.
        generator: of the orders.
        size: prototypes in a batch, B.
        epochs: number of passes.

    Returns:
        `places` (steps, B), and `weight` (steps, B): 0 for what fills a pass's last batch, else 1.
    """
    filling = -len(places) % size
    orders = [torch.randperm(len(places), generator=generator) for _ in range(epochs)]
    positions = F.pad(torch.stack(orders), (0, filling))
    weight = F.pad(torch.ones(epochs, len(places)), (0, filling))
    return {
        "places": places[positions.to(places.device)].view(-1, size),
        "weight": weight.view(-1, size),
    }


def with_new(old: Prototypes, new: Tensor, present: Tensor) -> Prototypes:
    """Replace the prototypes (C, D) of the classes that are present, (C,)."""
    known = torch.maximum(old["known"], present.to(old["known"]))
    return {
        "prototypes": torch.where(present[:, None], new, old["prototypes"]),
        "known": known,
    }


def squared_error(features: Tensor, labels: Tensor, given: Mapping[str, Any]) -> Tensor:
    """Return the mean over D of (h - P_y)^2 for features (B, D), (B,); 0 where P_y is not known."""
    targets: Tensor = given["prototypes"][labels]
    known: Tensor = given["known"][labels]
    return known * (features - targets).square().mean(-1)


def nearness(features: Tensor, given: Mapping[str, Any]) -> Tensor:
    """Return minus the distances of features (B, D) to the prototypes, (B, C).

    A class without a prototype is farther than all others.
    """
    distances = torch.cdist(features, given["prototypes"])
    farther = distances.amax(1, keepdim=True) + 1
    return -torch.where(given["known"] > 0, distances, farther)
