"""DS-FL: distillation-based semi-supervised federated learning.

Itahara, Nishio, Koda, Morikura, Yamamoto, IEEE TMC 2021. https://arxiv.org/abs/2008.06180
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
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
    Outputs,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.losses import cross_entropy_to
from algorithms.students import (
    drawn_places,
    lesson,
    no_exchange,
    student_gradient,
    with_answers,
)


@dataclass(frozen=True)
class DSFL(Algorithm):
    """Clients and a server model learn the clients' sharpened mean probabilities on public samples.

    In a round a client first minimises the cross entropy with the last round's targets, on that
    round's public samples. It trains on its own samples, as in `local`, and uploads its
    probabilities on the round's public samples. Targets are softmax(mean / T) of their plain mean
    over clients. The server's model learns them too, in the round. No weights travel. The row
    `dsfl` evaluates each client's own model, after its own samples, `dsfl_server` the server's.
    Server state: its model, `targets` (n, C) for the public samples at `places` (n,), whether there
    are any (`ready`), and the places `asked` (n,) of the round.

    Args:
        aggregation: `era` sharpens the mean probabilities, entropy reduction aggregation; `sa`
            takes them as they are, simple aggregation.
        era_temperature: T of `era`.
        public_samples: n, public samples of a round, drawn anew; at most all.
        digest_epochs: passes over them, of clients and server.
        digest_lr: learning rate of these steps of SGD.
        digest_batch_size: public samples in a step; at most n.

    Differences from the paper:
        1. Clients learn the targets at the beginning of the next round in which they are drawn, as
           in SCARLET's code. The paper's do so at the end of the round. It is the same if all take
           part, but a client's model is evaluated before it, after its own samples.
        2. The server's model learns from where its last round ended.
        3. Learning targets is in training mode without dropout and momentum, and leaves an epoch's
           short last batch out.
    """

    about = About(
        name="dsfl",
        paper="Itahara et al. 2021",
        equations="entropy reduction aggregation",
        summary="clients and server learn sharpened mean outputs on public samples",
        defaults_follow="the paper for `aggregation` and `era_temperature`; sizes are our own",
        down="S C + 2 S + 1",
        up="S C",
        keeps="its model, P",
    )
    needs = frozenset({"public"})
    rows = ("", "_server")
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True

    aggregation: str = hyper("era", choices=("era", "sa"), packable=False)
    era_temperature: float = hyper(0.1, 0, open_low=True, packable=False)
    public_samples: int = hyper(1000, 1, packable=False)
    digest_epochs: int = hyper(5, 1, packable=False)
    digest_lr: float = hyper(0.1, 0, open_low=True, packable=False)
    digest_batch_size: int = hyper(100, 2, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return w_0 as the server's model, which asks for outputs on its first samples."""
        asked = drawn_places(fed, "dsfl", 0, self.public_samples)
        return Server(params, extra=no_exchange(fed, params, asked))

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the targets, their places, and the places that clients are asked for."""
        return dict(server.extra)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor for the clients' models, and the server's model."""
        return {"": {}, "_server": server.params}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the initial model w_0."""
        return {"params": params}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's model after it has learnt the targets."""
        params = memory["params"]
        if not message["ready"]:
            return {"params": params}
        sizes = (self.digest_batch_size, self.digest_epochs)
        positions, given = lesson(fed, message, generator, *sizes)
        return {"params": fed.repeat(self._learn, params, positions, given, fed.net)}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return probabilities on the samples that the server asks for; keep the model."""
        params = local["params"]
        assert plan.public is not None
        x = plan.public.x[message["asked"]]
        return {"outputs": logits_of(net, params, x).softmax(-1)}, {"params": params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the next targets, and the server's model after it has learnt them."""
        targets = uploads["outputs"].mean(0)
        if self.aggregation == "era":
            targets = (targets / self.era_temperature).softmax(-1)
        extra = with_answers(fed, server.extra, "dsfl", server.round + 1, targets)
        generator = fed.stream("dsfl", "server", server.round)
        positions, given = lesson(fed, extra, generator, self.digest_batch_size, self.digest_epochs)
        return server.next(fed.repeat(self._learn, server.params, positions, given), **extra)

    def _learn(self, net: Net, params: Params, positions: Tensor, given: Any) -> Params:
        """Take one step of SGD towards the targets at `positions` (B,)."""
        targets: Tensor = given["targets"][positions]

        def losses(outputs: Outputs) -> Tensor:
            return cross_entropy_to(targets, outputs.logits)

        student, trained, grads = student_gradient(net, params, given["x"][positions], losses)
        stepped = {name: trained[name] - self.digest_lr * grad for name, grad in grads.items()}
        return student | stepped
