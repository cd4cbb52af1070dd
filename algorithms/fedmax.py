"""Mitigating Activation Divergence for Accurate and Communication-Efficient Federated Learning.

Chen, Bhardwaj, Marculescu, ECML PKDD 2020; FedDKD, Algorithm 3. https://arxiv.org/abs/2004.03657
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from algorithms.base import Algorithm, Batch, Local, LocalPlan, Memory, Message, Net, hyper
from algorithms.entry import About
from algorithms.losses import cross_entropy


def activation_divergence(features: Tensor, direction: str, reduction: str) -> Tensor:
    """Return the distance of softmax(features), (B, D), from the uniform distribution U.

    It is (B,), nats, >= 0.

    `a_u` is KL(softmax(features) || U), `u_a` KL(U || softmax(features)); `batchmean` sums over
    features, `elementmean` takes their mean.
    """
    dim = features.shape[-1]
    log_a = features.log_softmax(-1)
    log_u = -math.log(dim)
    terms = log_a.exp() * (log_a - log_u) if direction == "a_u" else (log_u - log_a) / dim
    return terms.sum(-1) if reduction == "batchmean" else terms.mean(-1)


@dataclass(frozen=True)
class FedMAX(Algorithm):
    """Local objective CE + beta KL( softmax(a) || U ).

    a is the input of the last linear layer, U uniform.

    Args:
        beta: weight of the activation term; 0 is FedAvg. FedDKD finds 10 best; FedMAX runs with
            1000, which must be passed to its code, because its parser's default is 0.
        fedmax_direction: KL(a || U) as printed, `a_u`, or KL(U || a) as the authors' code, `u_a`.
        fedmax_reduction: the sum over features as printed, `batchmean`, or their mean as the
            authors' code, `elementmean`.

    Differences from the paper:
        1. Clients are averaged by examples; the authors' code takes the plain mean.
        2. How activations become a distribution is not printed: by a softmax, as in the authors'
           code.
        3. On `lenet5_120`, whose head has a dense layer, a is that layer's input.
    """

    about = About(
        name="fedmax",
        paper="Chen et al. 2020",
        equations="FedDKD, Algorithm 3",
        summary="keeps the last layer's input near the uniform distribution",
        defaults_follow=(
            "FedDKD, which prints this objective and finds beta=10 best; FedMAX runs its code with "
            "beta=1000, `u_a` and `elementmean`"
        ),
    )

    beta: float = hyper(10.0, 0)
    fedmax_direction: str = hyper("a_u", choices=("a_u", "u_a"), packable=False)
    fedmax_reduction: str = hyper("batchmean", choices=("batchmean", "elementmean"), packable=False)

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy plus the activation term."""
        out = net(local["params"], batch.x)
        term = activation_divergence(out.features, self.fedmax_direction, self.fedmax_reduction)
        return cross_entropy(out.logits, batch.y) + self.beta * term
