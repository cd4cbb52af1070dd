"""FedDyn: Federated Learning Based on Dynamic Regularization.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, ICLR 2021, Algorithm 1.
https://arxiv.org/abs/2111.04263
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Cohort,
    Data,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.losses import cross_entropy
from algorithms.params import inner_product, norm, squared_distance, zeros_like


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """Local objective F_k(w) - <h_k, w> + alpha/2 ||w - w_t||^2.

    After training h_k <- h_k - alpha (w_k - w_t). The server keeps
    h <- h - alpha / K sum_{S_t} (w_k - w_t) and sends w_{t+1} = mean_{S_t} w_k - h / alpha, a
    plain mean. Server state: `feddyn_h`.

    Args:
        alpha_dyn: weight of the regulariser, the paper's alpha, tried at 0.1, 0.01 and 0.001.

    Differences from the paper:
        1. The rule is for parameters; buffers are averaged by examples.
        2. The authors' code divides alpha by a client's number of examples relative to the mean;
           the paper's alpha, and the one here, is the same for all clients.
    """

    about = About(
        name="feddyn",
        paper="Acar et al. 2021",
        equations="Algorithm 1",
        summary="aligns local and global stationary points by a dynamic regulariser",
        keeps="its gradient state, P",
    )

    alpha_dyn: float = hyper(0.1, 0, open_low=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with h = 0."""
        return Server(params, extra={"feddyn_h": zeros_like(params, fed.net.trainable)})

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the client's initial h_k = 0."""
        return zeros_like(params, fed.net.trainable)

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy plus the dynamic regulariser."""
        w = local["params"]
        names = net.trainable
        distance = squared_distance(w, message["params"], names)
        term = self.alpha_dyn / 2 * distance - inner_product(memory, w, names)
        return cross_entropy(net(w, batch.x).logits, batch.y) + term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model, and the norm of h_k in this round; the client keeps its new h_k."""
        w = local["params"]
        received = message["params"]
        h = {name: memory[name] - self.alpha_dyn * (w[name] - received[name]) for name in memory}
        return {"params": w, "metrics": {"correction_norm": norm(memory)}}, h

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Carry out the server's lines of Algorithm 1."""
        params = cohort.mean(uploads["params"])
        h = {}
        for name, old in server.extra["feddyn_h"].items():
            local = uploads["params"][name]
            h[name] = old - self.alpha_dyn / fed.num_clients * (local - server.params[name]).sum(0)
            params[name] = local.mean(0) - h[name] / self.alpha_dyn
        return server.next(params, feddyn_h=h)
