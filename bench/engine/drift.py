"""Client drift in one round: the quantities that FedGKD's convergence analysis (section 4.1) assumes to be bounded.

Yao et al. 2021 (`algorithms.fedgkd`). In symbols: w_t is the model that the clients of a round receive, w_{t+1}^k what
client k makes of it, F_k(w) the mean cross entropy of w on k's n_k training samples, in evaluation mode, and
p_k = n_k / sum_j n_j over the round's clients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.base import Params
from algorithms.losses import cross_entropy
from bench.engine.client_round import ClientResult, RoundWork, leaves_of
from bench.engine.federation import Federation
from bench.engine.network import Network


def drift(net: Network, federation: Federation, job: RoundWork, trained: list[ClientResult]) -> dict[str, Any]:
    """Measure how unlike the clients of a round are, and how far they move.

    Returns:
        For m clients, norms being Euclidean, over trainable parameters, in double precision. If clients begin with
        models of their own (FedBN, `local`), client k's stands for w_t wherever k does.

        rounds: the round's number.
        clients: (m,) who took part.
        shares: (m,) p_k.
        gradients: (m,) ||grad F_k(w_t)||, the bound on a local solution's error in Assumption 2 (Eq. 6).
        mean_gradient: ||sum_k p_k grad F_k(w_t)||, which stands for ||grad f(w_t)||.
        dissimilarity: sum_k p_k ||grad F_k(w_t)||^2 / mean_gradient^2, at least 1: the smallest B^2 with which
            Assumption 1.2 holds at w_t among these clients.
        distances: (m,) ||w_{t+1}^k - w_t||, the norm of Eq. 6's second term without its factor.
        distance: sum_k p_k ||w_{t+1}^k - w_t||.
    """
    sizes = torch.tensor([len(federation.clients[work.client]) for work in job.clients], dtype=torch.float64)
    shares = sizes / sizes.sum()
    mean, norms, moved = torch.zeros((), dtype=torch.float64, device=federation.device), [], []
    for work, result, share in zip(job.clients, trained, shares.tolist(), strict=True):
        received = work.local["params"]
        gradient = _gradient(net, federation, received, work.client, job.problem.setting.batch_size)
        mean = mean + share * gradient
        norms.append(gradient.norm())
        moved.append((_flat(net, result.params) - _flat(net, received)).norm())
    gradients, distances, mean_gradient = torch.stack(norms).cpu(), torch.stack(moved).cpu(), mean.norm().cpu()
    return {
        "rounds": job.round,
        "clients": [work.client for work in job.clients],
        "shares": shares.tolist(),
        "gradients": gradients.tolist(),
        "mean_gradient": mean_gradient.item(),
        "dissimilarity": ((shares * gradients**2).sum() / mean_gradient**2).item(),
        "distances": distances.tolist(),
        "distance": (shares * distances).sum().item(),
    }


def _gradient(net: Network, federation: Federation, params: Params, client: int, batch_size: int) -> Tensor:
    """(d,) float64: grad F_k, in batches of local training's size, whose gradients fit into memory."""
    params, index = leaves_of(net, params), federation.clients[client]
    leaves = [params[name] for name in net.trainable]
    total = torch.zeros((), dtype=torch.float64, device=federation.device)
    for x, y in federation.chunks(federation.train, index, batch_size):
        loss = cross_entropy(net.eval(params, x).logits, y).sum() / len(index)
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        total = total + _flat(net, dict(zip(net.trainable, grads, strict=True)))
    return total


def _flat(net: Network, params: Params) -> Tensor:
    """(d,) float64: all trainable entries."""
    return torch.cat([params[name].detach().double().reshape(-1) for name in net.trainable])
