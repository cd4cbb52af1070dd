"""FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data.

Li, Zhan, KDD 2021, section 4. https://doi.org/10.1145/3447548.3467254
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import Algorithm, Batch, Fed, Local, LocalPlan, Memory, Message, Net, hyper
from algorithms.entry import About
from algorithms.losses import cross_entropy


@dataclass(frozen=True)
class FedRS(Algorithm):
    """Local cross entropy of the logits s_c z_c.

    s_c is 1 for classes that the client holds, and alpha for the others. The restricted softmax
    slows the updates of classifier rows whose class a client never sees.

    Args:
        missing_scale: the paper's alpha, factor on the logits of classes that the client lacks; 1
            is FedAvg.
        scaling: `binary`, the s_c of the paper, or `graded`, that of the authors' code (FedRepo):
            s_c = alpha + (1 - alpha) n_c / max_c n_c, with the client's samples n_c of class c.

    Differences from the paper:
        1. The paper scales w_c^T h, a classifier without bias; here the bias, which is part of z_c,
           is scaled too.
        2. The authors' code grades the scale by a client's samples of each class; that is
           `scaling=graded`.
    """

    about = About(
        name="fedrs",
        paper="Li and Zhan 2021",
        equations="Section 4",
        summary="scales down the logits of classes that the client lacks",
    )

    missing_scale: float = hyper(0.5, 0, 1)
    scaling: str = hyper("binary", choices=("binary", "graded"), packable=False, optional=True)

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the received model, and how far the client holds each class: (C,) in [0, 1]."""
        counts = fed.client.label_counts
        held = (counts > 0).to(counts.dtype) if self.scaling == "binary" else counts / counts.max()
        return {"params": message["params"], "held": held}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy of the restricted softmax."""
        scale = self.missing_scale + (1 - self.missing_scale) * local["held"]
        return cross_entropy(scale * net(local["params"], batch.x).logits, batch.y)
