"""FedNTD: Preservation of the Global Knowledge by Not-True Distillation in Federated Learning.

Lee, Jeong, Shin, Bae, Yun, NeurIPS 2022, section 4. https://arxiv.org/abs/2106.03097
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from algorithms.base import Algorithm, Batch, Local, LocalPlan, Memory, Message, Net, Params, hyper
from algorithms.entry import About
from algorithms.losses import cross_entropy, not_true_kl


@dataclass(frozen=True)
class FedNTD(Algorithm):
    """Local objective CE + beta tau^2 KL( p~^g(x; tau) || p~(x; tau) ).

    p~ is over the classes other than the true one.

    Args:
        beta: weight of the distillation term; 0 is FedAvg.
        temperature: tau of both softmax functions; the term carries tau^2.

    Differences from the paper:
        1. The term carries tau^2, as in the authors' code; at the published tau = 1 it makes no
           difference.
    """

    about = About(
        name="fedntd",
        paper="Lee et al. 2022",
        equations="Section 4",
        summary="distils the classes other than the true one from the received global model",
    )

    beta: float = hyper(1.0, 0)
    temperature: float = hyper(1.0, 0, open_low=True)

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return the received model, which costs no further traffic."""
        return {"global": message["params"]}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the objective in the docstring of the class."""
        student = net(local["params"], batch.x).logits
        teacher = batch.teacher["global"].logits
        term = self.temperature**2 * not_true_kl(teacher, student, batch.y, self.temperature)
        return cross_entropy(student, batch.y) + self.beta * term
