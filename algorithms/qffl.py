"""q-FFL, solved by q-FedAvg: Fair Resource Allocation in Federated Learning.

Li, Sanjabi, Beirami, Smith, ICLR 2020, Algorithm 2. https://arxiv.org/abs/1905.10497
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.base import (
    Algorithm,
    Cohort,
    Data,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.losses import cross_entropy


@dataclass(frozen=True)
class QFFL(Algorithm):
    """Averaging that gives clients with a high loss more weight.

    w_{t+1} = w_t - sum_k Delta_k / sum_k h_k. F_k is the loss of w_t on client k's whole training
    set, L = 1 / lr, dw_k = L (w_t - w_k), Delta_k = F_k^q dw_k and
    h_k = q F_k^(q-1) ||dw_k||^2 + L F_k^q.

    Args:
        q: exponent of the loss; 0 is the plain mean of the clients' models, which weighs clients
            alike.

    Differences from the paper:
        1. Clients are drawn uniformly, as FedKF's comparison does; the authors' code draws them by
           examples.
        2. 1e-10 is added to F_k inside powers, as in the authors' code.
        3. The rule moves parameters; buffers are averaged by examples.
    """

    about = About(
        name="qffl",
        paper="Li et al. 2020, q-FFL",
        equations="Algorithm 2 (q-FedAvg)",
        summary="weights clients by a power of their loss, for fairness",
        up="P + 1",
    )
    needs = frozenset({"plain_sgd"})

    q: float = hyper(1e-4, 0)

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model and F_k(w_t)."""
        losses = cross_entropy(logits_of(net, message["params"], data.x), data.y)
        return {"params": local["params"], "risk": losses.mean()}, memory

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Carry out the server's line of Algorithm 2.

        L = 1 / lr is taken out of numerator and denominator.
        """
        risk = uploads["risk"] + 1e-10
        names = fed.net.trainable
        # dw_k / L
        updates = {name: server.params[name] - uploads["params"][name] for name in names}
        squares = [value.flatten(1).square().sum(1) for value in updates.values()]
        squared = torch.stack(squares).sum(0)
        weights = risk**self.q
        # sum_k h_k / L
        total = (self.q * risk ** (self.q - 1) * squared / cohort.lr + weights).sum()
        params = cohort.mean(uploads["params"])
        params |= {
            name: server.params[name] - torch.tensordot(weights, updates[name], 1) / total
            for name in names
        }
        return server.next(params)
