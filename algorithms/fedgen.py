"""FedGen: Data-Free Knowledge Distillation for Heterogeneous Federated Learning.

Zhu, Hong, Zhou, ICML 2021, Eqs. 4-5 and Algorithm 1. https://arxiv.org/abs/2105.10056
"""

from __future__ import annotations

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
from algorithms.generators import (
    FEATURE_STATISTICS,
    feature_generator,
    generated_features,
    train_features,
)
from algorithms.losses import cross_entropy, kl, one_hot
from algorithms.params import head_names

FLOOR = 1e-4  # lowest value of the annealed weights, in the authors' code


@dataclass(frozen=True)
class FedGen(Algorithm):
    """The server learns a generator of features G(y, eps) that the clients' heads recognise.

    From round 2 on clients learn from it by the loss
    CE + a_t CE(head(G(y~, eps)), y~) + b_t KL( softmax(head(G(y, eps))) || p(x) ), labels y~ drawn
    from the label prior, G frozen; the last term is in the authors' code alone. The server takes
    Adam steps on an objective of the generator (below), plus a diversity term
    exp( mean_{ij}( -mean_d (eps_i - eps_j)^2 mean_d |g_i - g_j| ) ). Server state: `fedgen_theta`,
    `fedgen_adam`, `fedgen_prior` (C,), the clients' label prior.

    Args:
        objective: the generator's loss, with a_{k,c} client k's share of the round's samples of
            class c, NLL_k the negative log-likelihood under client k's head, and means over the B
            generated samples b with labels y_b. `intended`: sum_k mean_b( a_{k,y_b} NLL_k(b) ),
            which the authors' code is meant to compute. `broadcast`: sum_k mean_b( a_{k,y_b} )
            mean_b( NLL_k(b) ), which it does compute, because it multiplies shapes (B,) and (B, 1):
            weights no longer follow their samples. `printed` (Eq. 4): the cross entropy of the
            softmax of the heads' mean logits, weighted by examples; clients take generated samples
            from round 1 on.
        hard_weight: a_1, weight of the generated samples' cross entropy. The authors' code has 10,
            FedGKD tunes it in {0.1, 1, 10}.
        soft_weight: b_1, weight of the distillation from generated samples; 0 as printed, 1 in the
            code for EMNIST, 10 for MNIST. Both 0: FedAvg.
        annealing: factor on both weights after each round, down to 1e-4; the code has 0.98.
        label_prior: how clients draw labels. `counts`: as often as the last round's clients hold
            them; `seen`: all classes that they hold, equally; `uniform` (both codes): all classes
            of the data set, equally. The server draws the labels of its steps by `counts` or, with
            the other two, by `seen`.
        diversity_weight: weight of the generator's diversity term.
        generator_steps: generator steps of the server in a round.
        generator_lr: learning rate of the generator's Adam; the code has 3e-4 for MNIST.
        generator_lr_decay: factor on generator_lr after each round.
        generator_weight_decay: L2 coefficient of the generator's Adam.
        hidden_dim: width of the generator's hidden layer; FedGKD's code has 512 on CIFAR.
        noise_dim: length of eps, the generator's noise; FedGKD's code has 64 on CIFAR.
        label_embedding: whether labels enter the generator embedded instead of one-hot.

    Differences from the paper:
        1. Noise is uniform in [0, 1), as in the authors' code, and a client draws as many generated
           as real samples.
        2. Label counts are the true ones: the code that FedGKD published sends them without ever
           counting.
        3. Details of the generator's training that the paper does not print are those of the
           authors' code.
        4. Models and, with `printed`, the heads' logits are averaged by examples, as the authors'
           code averages models; Algorithm 1 and Eq. 4 have plain means.
    """

    about = About(
        name="fedgen",
        paper="Zhu et al. 2021",
        equations="Eqs. 4-5, Algorithm 1",
        summary=(
            "the server learns a generator of features; "
            "clients train their last layer on its samples"
        ),
        defaults_follow=(
            "the paper; `objective` what its authors' code intends, "
            "the generator's training that code"
        ),
        down="P + G + C + 2",
        up="P + C",
    )
    server_steps = "generator_steps"
    version = 2

    objective: str = hyper("intended", choices=("intended", "broadcast", "printed"), packable=False)
    hard_weight: float = hyper(1.0, 0)
    soft_weight: float = hyper(0.0, 0)
    annealing: float = hyper(1.0, 0, 1, open_low=True)
    label_prior: str = hyper("counts", choices=("counts", "seen", "uniform"), packable=False)
    diversity_weight: float = hyper(1.0, 0)
    generator_steps: int = hyper(50, 1, packable=False)
    generator_lr: float = hyper(1e-4, 0, open_low=True)
    generator_lr_decay: float = hyper(0.98, 0, 1, open_low=True)
    generator_weight_decay: float = hyper(0.01, 0)
    hidden_dim: int = hyper(256, 1, packable=False)
    noise_dim: int = hyper(32, 1, packable=False)
    label_embedding: bool = hyper(False, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with a newly drawn generator and a uniform label prior."""
        like = next(iter(params.values()))
        theta = feature_generator(
            fed.stream("fedgen_theta"),
            like,
            num_classes=fed.net.num_classes,
            feature_dim=fed.net.feature_dim,
            hidden=self.hidden_dim,
            noise=self.noise_dim,
            embedding=self.label_embedding,
        )
        prior = like.new_full((fed.net.num_classes,), 1 / fed.net.num_classes)
        adam = adam_init(_trainable(theta))
        return Server(
            params, extra={"fedgen_theta": theta, "fedgen_adam": adam, "fedgen_prior": prior}
        )

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the model, the generator, the label prior and the round's weights.

        The weights are 0 before the generator is used.
        """
        hard = 0.0
        soft = 0.0
        if server.round > 0 or self.objective == "printed":
            hard = _annealed(self.hard_weight, self.annealing, server.round)
            soft = _annealed(self.soft_weight, self.annealing, server.round)
        return {
            "params": server.params,
            "theta": server.extra["fedgen_theta"],
            "prior": server.extra["fedgen_prior"],
            "hard": hard,
            "soft": soft,
        }

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Draw (B, 1 + 2 Z) in [0, 1).

        The first number draws a label; then come eps for it, and eps for the sample's own label.
        """
        size = (batch_size, 1 + 2 * self.noise_dim)
        return torch.rand(size, generator=generator, dtype=torch.float32)

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the client's objective in the docstring of the class."""
        w = local["params"]
        prior = message["prior"]
        student = net(w, batch.x).logits
        uniform, hard, soft = batch.noise.to(prior.dtype).split(
            [1, self.noise_dim, self.noise_dim], 1
        )
        drawn = _draw_labels(prior, uniform[:, 0])
        size = len(uniform)
        labels = torch.cat([drawn, batch.y])
        noise = torch.cat([hard, soft[: len(batch.y)]])
        logits = net.head(w, generated_features(message["theta"], noise, labels, net.num_classes))
        generated: Tensor = message["hard"] * cross_entropy(logits[:size], drawn).mean()
        generated = generated + message["soft"] * kl(logits[size:].detach(), student)
        return cross_entropy(student, batch.y) + generated

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model and the client's number of samples of each class (C,)."""
        counts = one_hot(data.y, net.num_classes).sum(0).to(message["prior"].dtype)
        return {"params": local["params"], "label_counts": counts}, memory

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return FedAvg's mean, and the generator after training on the uploaded heads."""
        counts = uploads["label_counts"]
        total = counts.sum(0)
        server_prior = total if self.label_prior == "counts" else (total > 0).to(total.dtype)
        server_prior = server_prior / server_prior.sum()
        prior = server_prior
        if self.label_prior == "uniform":
            prior = torch.full_like(server_prior, 1 / len(server_prior))
        shares = counts / total.clamp(min=1)
        sizes = cohort.num_examples.to(total) / cohort.num_examples.sum()
        lr = self.generator_lr * self.generator_lr_decay**server.round
        heads = {name: uploads["params"][name] for name in head_names(fed.net)}
        state = {"theta": server.extra["fedgen_theta"], "adam": server.extra["fedgen_adam"]}
        generator = fed.stream("fedgen", server.round)
        inputs = self._draw_inputs(generator, fed.batch_size, like=server_prior)
        given = {"heads": heads, "shares": shares, "sizes": sizes, "asked": server_prior, "lr": lr}
        trained = fed.repeat(self._generator_step, state, inputs, given)
        params = cohort.mean(uploads["params"])
        return server.next(
            params, fedgen_theta=trained["theta"], fedgen_adam=trained["adam"], fedgen_prior=prior
        )

    def _draw_inputs(
        self, generator: torch.Generator, batch_size: int, like: Tensor
    ) -> dict[str, Tensor]:
        """Draw each step's eps and the uniform numbers for its labels, one step after another."""
        sizes = [(batch_size, self.noise_dim), (batch_size,)] * self.generator_steps
        draws = [torch.rand(size, generator=generator, dtype=torch.float32) for size in sizes]
        return {
            "noise": torch.stack(draws[::2]).to(like),
            "uniform": torch.stack(draws[1::2]).to(like),
        }

    def _generator_step(self, net: Net, state: Any, inputs: Any, shared: Any) -> dict[str, Any]:
        """Take one Adam step of the generator; `shared` is the same for all steps of the round."""
        theta = state["theta"]
        noise = inputs["noise"]
        labels = _draw_labels(shared["asked"], inputs["uniform"])
        grads, running = self._gradients(net, theta, shared, noise, labels)
        params, adam = adam_step(
            _trainable(theta), grads, state["adam"], shared["lr"], self.generator_weight_decay
        )
        return {"theta": {**params, **running}, "adam": adam}

    def _gradients(
        self, net: Net, theta: Params, shared: Any, noise: Tensor, labels: Tensor
    ) -> tuple[Params, Params]:
        """Return the gradient of the generator's objective, and the new running statistics."""
        leaves = {
            name: value.detach().requires_grad_() for name, value in _trainable(theta).items()
        }
        fakes, running = train_features({**theta, **leaves}, noise, labels, net.num_classes)
        logits = torch.func.vmap(net.head, in_dims=(0, None))(shared["heads"], fakes)  # (m, B, C)
        risk = self._risk(logits, labels, shared["shares"], shared["sizes"])
        grads = torch.autograd.grad(
            risk + self.diversity_weight * _diversity(noise, fakes), list(leaves.values())
        )
        return dict(zip(leaves, grads, strict=True)), running

    def _risk(self, logits: Tensor, labels: Tensor, shares: Tensor, sizes: Tensor) -> Tensor:
        """Return the generator's objective, a scalar in nats.

        `logits` (m, B, C) are the heads', `labels` (B,). `shares` (m, C) are a_{k,c}, `sizes` (m,)
        the clients' shares of the round's examples.
        """
        if self.objective == "printed":
            return cross_entropy(torch.tensordot(sizes, logits, 1), labels).mean()
        labels_of_heads = labels.expand(len(logits), -1)[..., None]
        nll = -logits.log_softmax(-1).gather(-1, labels_of_heads).squeeze(-1)
        weights = shares[:, labels]
        if self.objective == "broadcast":
            weights = weights.mean(1, keepdim=True)
        return (weights * nll).mean(1).sum()


def _trainable(theta: Params) -> Params:
    return {name: value for name, value in theta.items() if name not in FEATURE_STATISTICS}


def _annealed(weight: float, factor: float, rounds: int) -> float:
    """Return the weight after some rounds.

    It does not fall below `FLOOR` unless it started below.
    """
    return max(weight * factor**rounds, min(weight, FLOOR))


def _draw_labels(prior: Tensor, uniform: Tensor) -> Tensor:
    """Draw (B,) labels by inverting the prior's distribution function at `uniform` (B,).

    `uniform` is in [0, 1).
    """
    passed = (uniform[:, None] >= prior.cumsum(0)[None]).sum(1)
    return passed.clamp(max=len(prior) - 1)


def _diversity(noise: Tensor, fakes: Tensor) -> Tensor:
    """Return exp( mean_{ij}( -mean_d (eps_i - eps_j)^2 mean_d |g_i - g_j| ) ).

    It is in (0, 1], and small if samples differ.
    """
    noise_distances = (noise[:, None] - noise[None]).square().mean(-1)
    feature_distances = (fakes[:, None] - fakes[None]).abs().mean(-1)
    return (-noise_distances * feature_distances).mean().exp()
