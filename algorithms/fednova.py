"""FedNova: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization.

Wang, Liu, Liang, Joshi, Poor, NeurIPS 2020, section 4. https://arxiv.org/abs/2007.07481
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
)
from algorithms.entry import About


@dataclass(frozen=True)
class FedNova(Algorithm):
    """Normalised averaging: w_{t+1} = w_t - tau_eff sum_k p_k d_k.

    Here d_k = (w_t - w_k) / a_k and tau_eff = sum_k p_k a_k. p_k weights by examples. a_k is the
    sum of the weights that the local optimiser gives its gradients: tau_k for plain SGD,
    (tau_k - rho (1 - rho^tau_k) / (1 - rho)) / (1 - rho) with momentum rho. With equal tau_k it is
    FedAvg.

    Differences from the paper:
        1. The rule is for parameters; buffers are averaged by examples.
        2. There is no momentum on the server.
    """

    about = About(
        name="fednova",
        paper="Wang et al. 2020",
        equations="Section 4",
        summary="averages updates normalised by each client's number of steps",
        up="P + 1",
    )
    needs = frozenset({"sgd"})

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model and a_k."""
        normaliser = gradient_weight(plan.num_steps, plan.momentum)
        return {"params": local["params"], "normaliser": normaliser}, memory

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the normalised mean."""
        a = uploads["normaliser"]
        effective = cohort.mean(a)
        params = cohort.mean(uploads["params"])
        for name in fed.net.trainable:
            old = server.params[name]
            update = old - uploads["params"][name]
            a_by_client = a.view(len(a), *(1,) * old.dim())
            params[name] = old - effective * cohort.mean(update / a_by_client)
        return server.next(params)


def gradient_weight(steps: Tensor, momentum: float) -> Tensor:
    """Return a_k after `steps` local steps of SGD.

    It is the factor of a constant gradient, in units of lr.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
