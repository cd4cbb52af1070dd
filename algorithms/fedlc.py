"""FedLC: Federated Learning with Label Distribution Skew via Logits Calibration.

Zhang, Li, Li, Xu, Wu, Ding, Wu, ICML 2022, section 4. https://arxiv.org/abs/2209.00189
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Algorithm, Batch, Fed, Local, LocalPlan, Memory, Message, Net, hyper
from algorithms.entry import About
from algorithms.losses import cross_entropy

FEWEST = 1e-8  # n_c of a class that a client lacks: its logit is lowered by 100 tau


@dataclass(frozen=True)
class FedLC(Algorithm):
    """Local cross entropy of the logits z_c - tau n_c^(-1/4), n_c the client's samples of class c.

    Classes that a client rarely sees get a larger margin, so that local training does not push them
    down.

    Args:
        tau: scale of the margins; 0 is FedAvg.

    Differences from the paper:
        1. The printed softmax leaves the true class out of its denominator. Here, as in public
           implementations, it is an ordinary softmax over all classes, so that tau = 0 is the cross
           entropy.
        2. n_c^(-1/4) is infinite for a class that a client lacks: n_c is taken as 1e-8 there.
    """

    about = About(
        name="fedlc",
        paper="Zhang et al. 2022",
        equations="Section 4",
        summary=(
            "lowers each logit by a margin that grows "
            "as the client's samples of the class get fewer"
        ),
    )

    tau: float = hyper(1.0, 0)

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the received model and the client's label counts."""
        return {"params": message["params"], "label_counts": fed.client.label_counts}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the calibrated cross entropy."""
        margins = self.tau * local["label_counts"].clamp(min=FEWEST) ** -0.25
        return cross_entropy(net(local["params"], batch.x).logits - margins, batch.y)
