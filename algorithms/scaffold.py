"""SCAFFOLD: Stochastic Controlled Averaging for Federated Learning.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020, Algorithm 1.
https://arxiv.org/abs/1910.06378
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
from algorithms.params import difference, inner_product, norm, zeros_like


@dataclass(frozen=True)
class SCAFFOLD(Algorithm):
    """Local steps y <- y - lr (g(y) - c_k + c).

    c and c_k are control variates of the server and of the client. After training
    c_k' = c_k - c + (w_t - y_k) / (tau_k lr) (option II). The server moves by the plain mean over
    its clients, w_{t+1} = w_t + eta_g mean(y_k - w_t), and c <- c + |S_t| / K mean(c_k' - c_k).
    Server state: `scaffold_control`, c. With all c at zero, round 1 is the plain mean of local
    models.

    Args:
        server_lr: eta_g, the server's learning rate.

    Differences from the paper:
        1. The rule is for parameters; buffers are averaged by examples.
        2. The correction enters the loss as <c - c_k, w>, whose gradient it is.
        3. The server takes plain means, as printed; public codes, such as FedNTD's, average models
           by examples.
    """

    about = About(
        name="scaffold",
        paper="Karimireddy et al. 2020",
        equations="Algorithm 1, option II",
        summary="corrects each local step by the difference of server and client control variates",
        down="2P",
        up="2P",
        keeps="its control variate, P",
    )
    needs = frozenset({"plain_sgd"})

    server_lr: float = hyper(1.0, 0, open_low=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with control variate c = 0."""
        return Server(params, extra={"scaffold_control": zeros_like(params, fed.net.trainable)})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the model w_t and c."""
        return {"params": server.params, "control": server.extra["scaffold_control"]}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the client's initial c_k = 0."""
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
        """Return the cross entropy plus the correction."""
        correction = difference(message["control"], memory, net.trainable)
        term = inner_product(correction, local["params"], net.trainable)
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) + term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model, c_k' - c_k and the norm of c - c_k in this round.

        The client keeps c_k'.
        """
        moves = difference(message["params"], local["params"], net.trainable)
        control = {
            name: memory[name] - message["control"][name] + moves[name] / (plan.num_steps * plan.lr)
            for name in moves
        }
        correction = norm(difference(message["control"], memory, memory))
        upload = {"params": local["params"], "change": difference(control, memory, control)}
        return {**upload, "metrics": {"correction_norm": correction}}, control

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the server's new model and control variate."""
        share = len(cohort.ids) / fed.num_clients
        params = cohort.mean(uploads["params"])
        for name in fed.net.trainable:
            old = server.params[name]
            params[name] = old + self.server_lr * (uploads["params"][name].mean(0) - old)
        old_control = server.extra["scaffold_control"]
        control = {
            name: old_control[name] + share * uploads["change"][name].mean(0)
            for name in old_control
        }
        return server.next(params, scaffold_control=control)
