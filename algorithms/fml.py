"""FML: Federated Mutual Learning.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu 2020. https://arxiv.org/abs/2006.16765
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Data,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Outputs,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.losses import cross_entropy, kl
from algorithms.second_model import second_model, second_step


@dataclass(frozen=True)
class FML(Algorithm):
    """Mutual learning of a client's private model and of a meme model that all clients share.

    The private model's objective is alpha CE + (1 - alpha) KL(p_meme || p_private), and the meme's
    beta CE + (1 - beta) KL(p_private || p_meme). Both take one step on each batch, from the outputs
    of both before it; teachers are constants. Memes are averaged by examples. Private models never
    leave their clients. The row `fml` evaluates these, `fml_meme` the averaged meme. The meme has
    the network of the setting's `model`.

    Args:
        ce_weight: alpha; 1 is training alone.
        meme_ce_weight: beta; 1 is FedAvg on the meme.

    Differences from the paper and from HtFLlib:
        1. HtFLlib's KL is PyTorch's mean over all entries, which divides by B C; here it is the
           mean over samples of the sum over classes.
        2. HtFLlib detaches neither teacher, so that each loss also moves the other model, and clips
           the gradients of both at norm 10. It averages the memes plainly. Its defaults alpha =
           beta = 1 are no distillation.
        3. The meme is trained by SGD with the setting's momentum, without its weight decay and
           clipping, and without dropout. The private model has dropout in its own loss, and none as
           a teacher.
    """

    about = About(
        name="fml",
        paper="Shen et al. 2020",
        equations="local losses of meme and private model",
        summary="private models and one that is averaged teach each other on each client",
        defaults_follow="our own choice, equal weights",
        keeps="its private model, P",
    )
    needs = frozenset({"sgd"})
    rows = ("", "_meme")
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True
    terms = ("distillation",)

    ce_weight: float = hyper(0.5, 0, 1)
    meme_ce_weight: float = hyper(0.5, 0, 1)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor for the private models, and the meme."""
        return {"": {}, "_meme": server.params}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return w_0 as the private model."""
        return {"params": params}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the private model, and the received meme to train beside it."""
        params = memory["params"]
        like = next(iter(params.values()))
        return {
            "params": params,
            "meme": second_model(fed.net.common, message["params"]),
            "meme_logits": like.new_zeros(fed.batch_size, fed.net.num_classes),
        }

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Take the meme's step; keep its logits from before the step."""
        private = local["params"]
        still = {name: private[name].clone() for name in net.batchnorm}
        with torch.no_grad():
            teacher = net({**private, **still}, batch.x).logits

        def losses(outputs: Outputs, weights: Params) -> Tensor:
            own = self.meme_ce_weight * cross_entropy(outputs.logits, batch.y)
            return own + (1 - self.meme_ce_weight) * kl(teacher, outputs.logits)

        meme, outputs = second_step(net.common, local["meme"], batch, plan, losses)
        return {**local, "meme": meme, "meme_logits": outputs.logits}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the private model's objective."""
        logits = net(local["params"], batch.x).logits
        term = kl(local["meme_logits"], logits)
        batch.report(distillation=term)
        return self.ce_weight * cross_entropy(logits, batch.y) + (1 - self.ce_weight) * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the meme; the client keeps its private model."""
        upload: dict[str, Any] = {"params": local["meme"]["params"]}
        return upload, {"params": local["params"]}
