"""FedKF: Handling Data Heterogeneity in Federated Learning via Knowledge Fusion.

Zhou, Lei, Yang, Shi, Zhang, Shi 2022, section 4, Eqs. 1-7 and Algorithm 1.
https://arxiv.org/abs/2207.11447
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algorithms.adam import adam_init, adam_step
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
from algorithms.generators import generated_images, image_generator
from algorithms.losses import cross_entropy, kl
from algorithms.model_cache import first_models, with_models


@dataclass(frozen=True)
class FedKF(Algorithm):
    """Clients distil from the mean of all clients' latest models, on images that they generate.

    Server: w^T (OCA), the mean over all clients' latest models, is the teacher and the model that
    is evaluated; w^S (ACA), the mean over the round's clients, is the students' starting point.
    Client, for each mini-batch: z ~ N(0, I); an Adam step of the generator on
    L_IE + lambda_1 L_CE + lambda_2 L_A through the teacher (Eqs. 1-4); a step of the student on
    CE + gamma KL( p^T(x_G) || p^S(x_G) ) (Eqs. 5-7). L_IE = sum_c pbar_c log pbar_c with pbar the
    batch's mean prediction, L_CE the cross entropy with the teacher's own decision,
    L_A = -mean ||f_T(x_G)||_1 of its features. Server state: `fedkf_models`, `fedkf_counted` (the
    cache) and `fedkf_overall`, the OCA.

    Args:
        gamma: weight of the distillation on generated images; 0 trains as FedAvg does. 0.001 for
            CIFAR-10 at alpha = 1.
        lambda_1: weight of the generator's confidence term L_CE; tried at 0.001, 0.01 and 0.1.
        lambda_2: weight of the generator's activation term L_A.
        variant: the printed method, or the authors' code. `paper`: the generator made anew in every
            client update, a generator step before each student step. `code` (the authors', of the
            later version): one common initial generator, which each client keeps with its Adam
            state; the student's step first; L_IE = 1 + sum_c pbar_c log pbar_c / log C; L_A a mean
            over features too; round 1 without generator and distillation.
        generator_lr: learning rate of the generator's Adam.
        noise_dim: length of z, the generator's noise; the code has 1000 on CIFAR and 100 on EMNIST.
        adversarial: the generator also maximises gamma KL(p^T || p^S), as the code does on CIFAR.
        teacher: mean of all clients' models, `oca`, or `aca` for the ablation FedKF-, whose teacher
            is the round's mean.
        t1_unvisited: clients not yet drawn: left out of the OCA (`skip`, the code) or counted with
            w_0 (`w0`, Algorithm 1). With few clients a round, `w0` keeps the teacher near w_0 for
            long.

    Differences from the paper:
        1. The generator's network and first weights are the authors' code's; the text says DCGAN
           with a sigmoid.
        2. Its images are normalised as the data are, which the text leaves out and the teacher
           needs.
        3. On generated images the student is in evaluation mode, so that they do not move
           BatchNorm's statistics.
        4. The code lets every client take the same number of steps: a matter of the setting
           (`step_rule=equal`).
        5. The paper does not say which layer f_T is. Here it is the features that the model's head
           reads: of LeNet-5 the 84 units (`lenet5`), or the 120 that the code reads (`lenet5_120`).
    """

    about = About(
        name="fedkf",
        paper="fedkf",
        equations="Eqs. 1-7, Algorithm 1",
        summary=(
            "clients train a generator through the mean of all clients' models and distil from it"
        ),
        defaults_follow=(
            "the paper; the generator's network and first weights, and `t1_unvisited`, "
            "its authors' code"
        ),
        down="P in round 1, then 2P",
        keeps="nothing; with variant=code its generator and Adam state",
    )
    needs = frozenset({"images"})
    terms = ("distillation", "generator_loss")
    version = 2

    gamma: float = hyper(1.0, 0)
    lambda_1: float = hyper(0.1, 0)
    lambda_2: float = hyper(0.1, 0)
    variant: str = hyper("paper", choices=("paper", "code"), packable=False)
    generator_lr: float = hyper(1e-3, 0, open_low=True)
    noise_dim: int = hyper(100, 1, packable=False)
    adversarial: bool = hyper(False, packable=False)
    teacher: str = hyper("oca", choices=("oca", "aca"), packable=False)
    t1_unvisited: str = hyper("skip", choices=("skip", "w0"), packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with every client's model, ACA and OCA at w_0."""
        cache = first_models("fedkf", params, fed.num_clients, self.t1_unvisited)
        return Server(params, extra=cache)

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return ACA and teacher (Algorithm 1, s4)."""
        teacher = server.extra["fedkf_overall"] if self.teacher == "oca" else server.params
        return {"params": server.params, "teacher": teacher}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return ACA and OCA (Algorithm 1, s5-s7)."""
        models = uploads["params"]
        cache = with_models("fedkf", server.extra, models, cohort)
        return server.next(cohort.mean(models), **cache)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return the OCA."""
        return {"": server.extra["fedkf_overall"]}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return, in `code`, the common initial generator and its Adam state."""
        if self.variant == "paper":
            return {}
        return self._new_generator(fed, fed.stream("fedkf_theta"), next(iter(params.values())))

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the ACA and the generator (Algorithm 1, c1-c2), with no generator step pending."""
        w = message["params"]
        like = next(iter(w.values()))
        trained = self._new_generator(fed, generator, like) if self.variant == "paper" else memory
        z = like.new_zeros(fed.batch_size, self.noise_dim)
        return {"params": w, **trained, "z": z, "waits": 0.0, "generator_loss": 0.0}

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Draw one z per sample, (B, noise_dim)."""
        z = torch.randn(batch_size, self.noise_dim, generator=generator, dtype=torch.float32)
        return {"z": z}

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Take the generator's step on this step's noise.

        In `code` it is on the noise of the student's last step.
        """
        z = batch.noise["z"].to(local["theta"]["in.bias"].dtype)
        if self.variant == "paper":
            return self._train_generator(net, {**local, "z": z}, message)
        return {
            **self._late_step(net, local, message, plan),
            "z": z,
            "waits": torch.ones_like(local["waits"]),
        }

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return Eq. 7, with this step's `theta` and `z` in `local`."""
        w = local["params"]
        loss = cross_entropy(net(w, batch.x).logits, batch.y)
        # The code starts using the generator in round 2. The round may be a tensor, which rules out
        # an `if`.
        gamma = self.gamma * (plan.round > 1) if self.variant == "code" else self.gamma
        with torch.no_grad():
            fakes = net.normalise(generated_images(local["theta"], local["z"], net.input_shape))
            teacher = net.eval(message["teacher"], fakes).logits
        distillation = kl(teacher, net.eval(w, fakes).logits).mean()
        batch.report(distillation=distillation, generator_loss=local["generator_loss"])
        return loss + gamma * distillation

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the student; in `code` the generator takes its last step and is kept."""
        upload = {"params": local["params"]}
        if self.variant == "paper":
            return upload, memory
        local = self._late_step(net, local, message, plan)
        return upload, {"theta": local["theta"], "adam": local["adam"]}

    def _new_generator(self, fed: Fed, generator: torch.Generator, like: Tensor) -> dict[str, Any]:
        theta = image_generator(
            generator, like, input_shape=fed.net.input_shape, noise=self.noise_dim
        )
        return {"theta": theta, "adam": adam_init(theta)}

    def _late_step(self, net: Net, local: Local, message: Message, plan: LocalPlan) -> Local:
        """Take the generator step that belongs to the previous student step.

        There is none in round 1, or before the first.
        """
        trained = self._train_generator(net, local, message)
        pending = local["waits"] * (plan.round > 1) > 0
        changed = ("theta", "adam", "generator_loss")
        return {**local, **{key: _choose(pending, trained[key], local[key]) for key in changed}}

    def _train_generator(self, net: Net, local: Local, message: Message) -> Local:
        """Take one Adam step of the generator on `local`'s noise.

        Its loss before the step (Eq. 4) is kept.
        """

        def objective(theta: Params) -> Tensor:
            fakes = net.normalise(generated_images(theta, local["z"], net.input_shape))
            out = net.eval(message["teacher"], fakes)
            value = self._objective(out.logits, out.features)
            if self.adversarial:
                student = net.eval(local["params"], fakes).logits
                value = value - self.gamma * kl(out.logits.detach(), student).mean()
            return value

        grads, loss = torch.func.grad_and_value(objective)(local["theta"])
        theta, adam = adam_step(local["theta"], grads, local["adam"], self.generator_lr)
        return {**local, "theta": theta, "adam": adam, "generator_loss": loss.detach()}

    def _objective(self, logits: Tensor, features: Tensor) -> Tensor:
        """Return L_IE + lambda_1 L_CE + lambda_2 L_A of the teacher's outputs (Eqs. 1-4)."""
        # Finite even if a class's share is 0.
        log_mean = logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
        information = (log_mean.exp() * log_mean).sum()
        activation = -features.abs().sum(-1).mean()
        if self.variant == "code":
            information = 1 + information / math.log(logits.shape[-1])
            activation = activation / features.shape[-1]
        confidence = cross_entropy(logits, logits.argmax(-1)).mean()
        return information + self.lambda_1 * confidence + self.lambda_2 * activation


def _choose(condition: Tensor, new: Any, old: Any) -> Any:
    """Return `new` where the condition holds, elsewhere `old`, for each tensor in a tree."""
    if isinstance(new, dict):
        return {key: _choose(condition, new[key], old[key]) for key in new}
    return torch.where(condition, new, old)
