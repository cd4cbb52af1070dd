"""FedDKD: Federated Learning with Decentralized Knowledge Distillation.

Li, Chen, Lu 2022, Algorithms 1-5. https://arxiv.org/abs/2205.00706
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from algorithms.base import Batch, Cohort, Fed, Net, Params, Plugin, Server, Upload, hyper
from algorithms.entry import About
from algorithms.fedavg import FedAvg
from algorithms.fedbn import FedBN
from algorithms.fedmax import FedMAX
from algorithms.losses import soft_cross_entropy
from algorithms.params import norm
from algorithms.variant import Variant


@dataclass(frozen=True)
class DKD(Plugin):
    """After the base's averaging, the server distils the round's local models into the mean.

    It has no data of its own. For j = 1..J each client sends the gradient, at the server's model w,
    of the mean over a fresh mini-batch of -sum_c softmax(z_k)_c log softmax(z(w))_c, z_k being its
    own local model's logits; then w <- w - gamma_{t,j} mean_k(gradient_k), with gamma_{t,j} = lr
    lr_decay^(t-1) step_decay^(j-1). Labels are not used.

    Args:
        base: algorithm by which clients train and the server averages: FedAvg, FedMAX, FedBN, or
            any other.
        steps: J, gradient requests after each averaging; 0 is the base.
        lr: gamma_0, the server's learning rate in a request (eta_d in the paper's CIFAR section); 0
            is the base at J times the traffic.
        lr_decay: factor on lr after each round.
        step_decay: factor on lr after each request, restarted every round; 0.97 on the digits, else
            1.
        batch_size: samples with which a client answers a request.
        warmup_rounds: number of first rounds without requests; 30 on CIFAR-100.
        dkd_student_mode: mode of the student while clients take its gradient, `eval` or `train`;
            they differ with BatchNorm or dropout. Only gradients leave a client either way.
        dkd_weights: q_k of Eq. 8: `mean` is 1 / |S_t| as in Algorithm 1, `examples` n_k over their
            sum.
        dkd_dropout: probability that a client does not answer a request; 0 as in Algorithm 1.
        dkd_augmented: whether the mini-batches of requests are augmented as those of local training
            are.

    Differences from the paper:
        1. Line 10 of Algorithm 1 writes q_k outside the sum: the mean of gradients is meant.
        2. Modes of the two models and how a mini-batch is drawn are not printed: both models are in
           evaluation mode, batches are drawn uniformly without replacement, independently for each
           request; a client that has fewer samples answers with all of them.
        3. When requests begin after a warm-up, the decay counts all rounds.
        4. Over FedBN the student is the server's part with the client's own BatchNorm layers
           (Algorithms 4 and 5).
        5. Whether a request's mini-batch is augmented is not printed: it is not, unless
           `dkd_augmented` is true.
        6. In Algorithm 1, lines 8-10, all clients answer. With `dkd_dropout` each client answers
           each request independently, and q_k is taken over those that do, so that it sums to 1 as
           below Eq. 8. If nobody answers, the model stays as it is.

    Raises:
        ValueError: the base's clients send no model.
    """

    about = About(
        paper="feddkd",
        equations="Algorithms 1-2",
        summary=(
            "after averaging, the server distils all local models "
            "by gradients requested from the clients"
        ),
        down="(1 + J) P",
        up="(1 + J) P",
    )

    steps: int = hyper(3, 0, packable=False)
    lr: float = hyper(0.08, 0)
    lr_decay: float = hyper(0.99, 0, 1, open_low=True)
    step_decay: float = hyper(1.0, 0, 1, open_low=True)
    batch_size: int = hyper(64, 1, packable=False)
    warmup_rounds: int = hyper(0, 0, packable=False)
    dkd_student_mode: str = hyper("eval", choices=("eval", "train"), packable=False)
    dkd_weights: str = hyper("mean", choices=("mean", "examples"), packable=False)
    dkd_dropout: float = hyper(0.0, 0, 1, open_high=True)
    dkd_augmented: bool = hyper(False, packable=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.base.uploads_model:
            raise ValueError(
                f"DKD distils clients' models, and {type(self.base).__name__} sends none: "
                "take another base"
            )

    def distillation(self, net: Net, params: Params, local_params: Params, batch: Batch) -> Tensor:
        """Return the loss of Algorithm 2: (B,), nats."""
        teacher = net.eval(local_params, batch.x).logits.detach()
        student = local_params | params
        if self.dkd_student_mode == "eval":
            return soft_cross_entropy(teacher, net.eval(student, batch.x).logits)
        # Training mode writes running statistics: here into copies, because only gradients leave
        # the client.
        student = {
            name: value if name in net.trainable else value.clone()
            for name, value in student.items()
        }
        return soft_cross_entropy(teacher, net(student, batch.x).logits)

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Carry out lines 6-11 of Algorithm 1."""
        lr = self.lr * self.lr_decay**server.round
        steps = self.steps if server.round >= self.warmup_rounds else 0
        server = self.base.server_step(fed, server, uploads, cohort)
        norms = []
        for j in range(steps):
            among = self._answering(fed, server.round, j, cohort)
            grads = cohort.gradients(
                self.distillation,
                server.params,
                self.batch_size,
                augmented=self.dkd_augmented,
                among=among,
            )
            if among is not None and not among.any():
                continue
            scale = lr * self.step_decay**j
            mean = self._mean(grads, cohort, among)
            norms.append(norm(mean))
            params = {name: server.params[name] - scale * grad for name, grad in mean.items()}
            server = replace(server, params=server.params | params)
        if norms:
            reported = {"request_gradient_norm": torch.stack(norms).mean()}
            server = replace(server, metrics={**server.metrics, **reported})
        return server

    def _answering(self, fed: Fed, round: int, request: int, cohort: Cohort) -> Tensor | None:
        """Draw the clients that answer a request: (m,) bool, or None for all."""
        if not self.dkd_dropout:
            return None
        generator = fed.stream("dkd_dropout", round, request)
        drawn = torch.rand(len(cohort.ids), generator=generator, dtype=torch.float32)
        return drawn >= self.dkd_dropout

    def _mean(self, grads: Params, cohort: Cohort, among: Tensor | None) -> Params:
        """Return sum_k q_k gradient_k over the clients that answered."""
        if self.dkd_weights == "examples":
            mean: Params = cohort.mean(grads, among)
            return mean
        return {
            name: (grad if among is None else grad[among]).mean(0) for name, grad in grads.items()
        }


feddkd = Variant(DKD, FedAvg, name="feddkd")
feddkd_max = Variant(
    DKD,
    FedMAX,
    name="feddkd_max",
    equations="Algorithms 1-3",
    summary="FedDKD whose clients train FedMAX's objective",
)
feddkd_bn = Variant(
    DKD,
    FedBN,
    name="feddkd_bn",
    equations="Algorithms 4-5",
    summary="FedDKD whose clients keep their BatchNorm layers",
    down="(1 + J) P without BatchNorm",
    up="(1 + J) P without BatchNorm",
    keeps="its BatchNorm layers",
)
