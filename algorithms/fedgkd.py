"""FedGKD: Local-Global Knowledge Distillation in Heterogeneous Federated Learning with Non-IID Data.

Yao, Pan, Dai, Wan, Ding, Yu, Jin, Xu, Sun 2021, section 4. https://arxiv.org/abs/2107.00051
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Cohort,
    Fed,
    Local,
    Memory,
    Message,
    Net,
    Params,
    Plan,
    Server,
    Upload,
    hyper,
)
from algorithms.losses import cross_entropy, kl
from algorithms.params import mean_of


@dataclass(frozen=True)
class FedGKD(Algorithm):
    """Clients distil from the mean of the last M global models.

    Loss: CE + gamma/2 KL( p(wbar_t; x) || p(w; x) ), wbar_t = mean(w_t, ..., w_{t-M+1}), temperature 1 (Eq. 4).
    Server state: `fedgkd_history`, the last M aggregated models, oldest first.

    Args:
        gamma: distillation weight, >= 0; 0 is FedAvg. The authors' `distillation_coefficient` is gamma / 2.
        buffer: M >= 1, global models in the teacher; 1 distils from the received model, which costs no traffic.

    Differences from the paper:
        1. No distillation in round 1, and w_0 never enters the buffer, as in the authors' code; the text is silent.
        2. While fewer than M models exist, the mean of those available is the teacher.
    """

    gamma: float = hyper(0.2, 0)
    buffer: int = hyper(5, 1, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """An empty buffer."""
        return Server(params, extra={"fedgkd_history": ()})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """The model and its teacher: the same tensors until a second model is in the buffer."""
        history = server.extra["fedgkd_history"]
        return {"params": server.params, "teacher": mean_of(history or (server.params,))}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """FedAvg's mean, kept in the buffer."""
        params = cohort.mean(uploads["params"])
        return server.next(params, fedgkd_history=(*server.extra["fedgkd_history"], params)[-self.buffer :])

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """The buffer's mean."""
        return {"global": message["teacher"]}

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """Eq. 4, from round 2 on."""
        student = net(local["params"], batch.x).logits
        weight = (plan.round > 1) * self.gamma / 2
        return cross_entropy(student, batch.y) + weight * kl(batch.teacher["global"].logits, student)
