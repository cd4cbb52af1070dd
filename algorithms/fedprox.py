"""FedProx: Federated Optimization in Heterogeneous Networks.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020, Algorithm 2.
https://arxiv.org/abs/1812.06127
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from algorithms.base import Algorithm, Batch, Local, LocalPlan, Memory, Message, Net, hyper
from algorithms.entry import About
from algorithms.losses import cross_entropy
from algorithms.params import mean_squared_distance, squared_distance


@dataclass(frozen=True)
class FedProx(Algorithm):
    """Local objective F_k(w) + mu/2 ||w - w_t||^2, w_t the received model.

    Args:
        mu: weight of the proximal term; 0 is FedAvg.
        prox_reduction: reduction of the term: `sum` is the printed squared norm; `mean_per_tensor`
            takes each tensor's mean squared difference instead, as FedMAX's code does (needed for
            FedDKD's FEMNIST runs, whose mu is 10).

    Differences from the paper:
        1. Every client runs all its local epochs: stragglers that stop early (the paper's
           gamma-inexactness) are not simulated.
        2. Clients are averaged by examples, as in FedAvg, and drawn uniformly; the paper draws by
           examples and takes the plain mean.
        3. FedBN's authors, who compare with it, leave the term out in round 1; here it acts in all
           rounds.
    """

    about = About(
        name="fedprox",
        paper="Li et al. 2020",
        equations="Algorithm 2",
        summary="keeps local models near the received one by an L2 term",
    )

    mu: float = hyper(0.01, 0)
    prox_reduction: str = hyper("sum", choices=("sum", "mean_per_tensor"), packable=False)

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy plus the proximal term, which leaves buffers out."""
        w = local["params"]
        distance = squared_distance if self.prox_reduction == "sum" else mean_squared_distance
        term = distance(w, message["params"], net.trainable)
        return cross_entropy(net(w, batch.x).logits, batch.y) + self.mu / 2 * term
