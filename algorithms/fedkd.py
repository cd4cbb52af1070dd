"""FedKD: Communication-efficient federated learning via knowledge distillation.

Wu, Wu, Lyu, Huang, Xie, Nature Communications 2022.
https://www.nature.com/articles/s41467-022-29763-x
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
    Outputs,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.losses import cross_entropy, kl, masked_mean
from algorithms.low_rank import truncated
from algorithms.params import difference
from algorithms.second_model import second_model, second_step

LEAST_TASK_LOSS = 1e-8  # nats


@dataclass(frozen=True)
class FedKD(Algorithm):
    """Mutual learning of a private mentor and a shared mentee, whose updates travel at low rank.

    With task losses CE_m of the mentor and CE_s of the mentee, means over the batch, the mentor's
    objective is CE_m + (KL(p_s || p_m) + H) / (CE_m + CE_s), and the mentee's is
    CE_s + (KL(p_m || p_s) + H) / (CE_m + CE_s), where H is the mean square of h_m - W h_s, of
    features h. The mentee's step also trains W. Both models take one step on each batch, from the
    outputs of both before it. A client uploads the mentee's change in the round, and the server
    adds the clients' mean change. Both are truncated: of each matrix the fewest singular values
    travel that hold a share T of its energy, the sum of their squares. T grows linearly over the
    rounds. The row `fedkd` evaluates the mentors, which never leave their clients, `fedkd_mentee`
    the mentee, whose network is that of the setting's `model`.

    Args:
        energy_start: T before round 1.
        energy_end: T in the last round.

    Differences from the paper and its code:
        1. Features before the head are compared, by one W for each client that starts as the
           identity. The authors compare hidden states and attention of several layers, and their
           code has no W in use.
        2. In a loss the other model's outputs are constants, the own task loss in the denominator
           is not. In the authors' code and in HtFLlib both losses move both models. Their KL is
           PyTorch's mean over all entries, which divides by B C.
        3. The denominator is at least 1e-8. HtFLlib clips gradients at norm 10.
        4. The mentee's change is truncated, as in the authors' code; HtFLlib truncates its weights.
           A convolution is a matrix with its output channels as rows. Both codes set a matrix to
           zero that needs all of its singular values, and the authors' code multiplies by the
           vector of singular values where a diagonal matrix is meant. Here a matrix travels whole
           if that takes fewer floats.
        5. Clients are averaged by examples. The code takes the plain mean.
        6. A client that was absent needs more than the last change. If not all clients take part in
           each round, the whole mentee is counted down.
        7. The mentee and W are trained by SGD with the setting's momentum, without its weight decay
           and clipping, and without dropout. The mentor has dropout in its own loss, and none as a
           teacher.
    """

    about = About(
        name="fedkd",
        paper="Wu et al. 2022",
        equations="adaptive mutual distillation, dynamic gradient approximation",
        defaults_follow="the authors' code",
        summary="private mentors and an averaged mentee teach each other; it travels at low rank",
        down="at most P",
        up="at most P",
        keeps="its mentor and W, P + D^2",
    )
    needs = frozenset({"sgd"})
    rows = ("", "_mentee")
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True
    terms = ("distillation", "hidden")

    energy_start: float = hyper(0.95, 0, 1, open_low=True)
    energy_end: float = hyper(0.98, 0, 1, open_low=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with w_0 as the mentee, which travels whole in round 1."""
        return Server(params, extra={"floats": _count(params)})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the mentee, and the coming round's T."""
        floats = server.extra["floats"]
        return {"params": server.params, "energy": self._energy(fed, server), "floats": floats}

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor for the mentors, and the mentee."""
        return {"": {}, "_mentee": server.params}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return w_0 as the mentor, and the identity as W."""
        like = next(iter(params.values()))
        w = torch.eye(fed.net.feature_dim, fed.net.common.feature_dim)
        return {"params": params, "W": w.to(like)}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the mentor, and the received mentee and W to train beside it."""
        params = memory["params"]
        like = next(iter(params.values()))
        mentee_net = fed.net.common
        return {
            "params": params,
            "mentee": second_model(mentee_net, message["params"], W=memory["W"]),
            "logits": like.new_zeros(fed.batch_size, mentee_net.num_classes),
            "features": like.new_zeros(fed.batch_size, fed.net.feature_dim),
        }

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Take the step of the mentee and of W; keep its logits and W h_s from before the step."""
        mentor = local["params"]
        still = {name: mentor[name].clone() for name in net.batchnorm}
        with torch.no_grad():
            teacher = net({**mentor, **still}, batch.x)

        def losses(outputs: Outputs, weights: Params) -> Tensor:
            seen = Outputs(outputs.logits, outputs.features @ weights["W"].T)
            own, distillation, hidden = _terms(seen, teacher, batch)
            return own + distillation + hidden

        w = local["mentee"]["params"]["W"]
        mentee, outputs = second_step(net.common, local["mentee"], batch, plan, losses)
        features = outputs.features @ w.T
        return {**local, "mentee": mentee, "logits": outputs.logits, "features": features}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the mentor's objective."""
        teacher = Outputs(local["logits"], local["features"])
        own, distillation, hidden = _terms(net(local["params"], batch.x), teacher, batch)
        batch.report(distillation=distillation, hidden=hidden)
        return own + distillation + hidden

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the truncated change of the mentee; the client keeps its mentor and W."""
        mentee = local["mentee"]["params"]
        received = message["params"]
        change, floats = truncated(difference(mentee, received, received), message["energy"])
        kept = {"params": local["params"], "W": mentee["W"]}
        return {"change": change, "floats": floats}, kept

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Add the clients' mean change, truncated anew."""
        change, floats = truncated(cohort.mean(uploads["change"]), self._energy(fed, server))
        params = {name: value + change[name] for name, value in server.params.items()}
        all_took_part = len(cohort.ids) == fed.num_clients
        return server.next(params, floats=floats if all_took_part else _count(params))

    def _energy(self, fed: Fed, server: Server) -> float:
        """Return the coming round's T."""
        share = (server.round + 1) / fed.rounds
        return self.energy_start + share * (self.energy_end - self.energy_start)


def _terms(own: Outputs, teacher: Outputs, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return a model's CE, and KL and H divided by both models' mean CE, each (B,).

    `own` has gradients, `teacher` is constant.
    """
    task = cross_entropy(own.logits, batch.y)
    total = task + cross_entropy(teacher.logits, batch.y)
    mean = masked_mean(total, batch.weight)
    divisor = mean.clamp(min=LEAST_TASK_LOSS)
    hidden = (own.features - teacher.features).square().mean(-1)
    return task, kl(teacher.logits, own.logits) / divisor, hidden / divisor


def _count(model: Params) -> int:
    """Return the number of a model's floats."""
    return sum(value.numel() for value in model.values())
