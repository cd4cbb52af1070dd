"""FedMD: Heterogenous Federated Learning via Model Distillation.

Li, Wang 2019, Algorithm 1. https://arxiv.org/abs/1910.03581
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algorithms.adam import adam_init, adam_step
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
    Outputs,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.students import (
    drawn_places,
    lesson,
    no_exchange,
    student_gradient,
    with_answers,
)


@dataclass(frozen=True)
class FedMD(Algorithm):
    """Clients learn the mean logits of all on public samples, and then train on their own.

    In a round a client digests: it minimises the mean absolute difference of its logits from the
    last round's mean logits, on that round's public samples, with Adam. It revisits: it trains on
    its own samples, as in `local`. It uploads its logits on the round's public samples, whose plain
    mean over clients is the next targets. No weights travel. Each client has a model of its own,
    which is evaluated after its revisit. Server state: `targets` (n, C) for the public samples at
    `places` (n,), whether there are any (`ready`), and the places `asked` (n,) of the round.

    Args:
        public_samples: n, public samples of a round, drawn anew; at most all.
        digest_epochs: passes over them; 0 is training alone.
        digest_lr: learning rate of Adam.
        digest_batch_size: public samples in a step; at most n.

    Differences from the paper:
        1. Clients begin with w_0. The paper first trains each on labelled public samples, and then
           on its own samples to convergence; so does its code, without the public ones. Here the
           first round is a revisit alone, and no public label is read.
        2. Clients upload at the end of a round what the paper's communicate at the beginning of the
           next. It is the same if all take part; others learn the last round's targets when they
           are drawn next.
        3. The text leaves the distance open; the authors' code has the absolute difference.
        4. Digesting is in training mode without dropout, without weight decay, and leaves an
           epoch's short last batch out.
    """

    about = About(
        name="fedmd",
        paper="Li and Wang 2019",
        equations="Algorithm 1",
        summary="clients learn their mean logits on public samples; no weights travel",
        defaults_follow="the authors' code for CIFAR",
        down="S C + 2 S + 1",
        up="S C",
        keeps="its model, P",
    )
    needs = frozenset({"public"})
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True

    public_samples: int = hyper(5000, 1, packable=False)
    digest_epochs: int = hyper(1, 0, packable=False)
    digest_lr: float = hyper(1e-3, 0, open_low=True, packable=False)
    digest_batch_size: int = hyper(256, 2, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return a server without a model, that asks for logits on its first samples."""
        asked = drawn_places(fed, "fedmd", 0, self.public_samples)
        return Server({}, extra=no_exchange(fed, params, asked))

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the targets, their places, and the places that clients are asked for."""
        return dict(server.extra)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor: each client's model is evaluated."""
        return {"": {}}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the initial model w_0."""
        return {"params": params}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's model after it has digested the targets."""
        params = memory["params"]
        if not self.digest_epochs or not message["ready"]:
            return {"params": params}
        sizes = (self.digest_batch_size, self.digest_epochs)
        positions, given = lesson(fed, message, generator, *sizes)
        adam = adam_init({name: params[name] for name in fed.net.trainable})
        state = {"params": params, "adam": adam}
        after = fed.repeat(self._digest, state, positions, given, fed.net)
        return {"params": after["params"]}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return logits on the samples that the server asks for; the client keeps its model."""
        params = local["params"]
        assert plan.public is not None
        x = plan.public.x[message["asked"]]
        return {"logits": logits_of(net, params, x)}, {"params": params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the mean logits as the next targets."""
        targets = uploads["logits"].mean(0)
        extra = with_answers(fed, server.extra, "fedmd", server.round + 1, targets)
        return server.next({}, **extra)

    def _digest(self, net: Net, state: Any, positions: Tensor, given: Any) -> dict[str, Any]:
        """Take one Adam step towards the targets at `positions` (B,)."""
        targets: Tensor = given["targets"][positions]

        def losses(outputs: Outputs) -> Tensor:
            return (outputs.logits - targets).abs().mean(-1)

        x = given["x"][positions]
        student, trained, grads = student_gradient(net, state["params"], x, losses)
        params, adam = adam_step(trained, grads, state["adam"], self.digest_lr)
        return {"params": student | params, "adam": adam}
