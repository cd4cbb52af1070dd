"""Reference rows: the accuracy that clients reach alone, and that of all data in one place."""

from __future__ import annotations

from dataclasses import dataclass

import torch

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
    Params,
    Plugin,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.params import first_weights
from algorithms.variant import Variant


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Training without communication: each client trains its own model.

    A client trains in the rounds in which it is drawn. There is one model per client; accuracy is
    the unweighted mean over clients, with w_0 for those never drawn.

    Args:
        own_weights: each client starts from weights of its own, in place of w_0.
    """

    about = About(
        name="local",
        paper="reference",
        summary="each client alone, no communication; one personal model a client",
        down="0",
        up="0",
        keeps="its model, P",
        reference=True,
    )
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True

    own_weights: bool = hyper(False, packable=False, optional=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return a server without a model."""
        return Server({})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return an empty message."""
        return {}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the initial model."""
        return {"params": first_weights(fed, params, self.own_weights)}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's own model."""
        return {"params": memory["params"]}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Upload nothing; the client keeps its model."""
        return {}, {"params": local["params"]}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Only count the round."""
        return server.next({})


@dataclass(frozen=True)
class Pooled(Plugin):
    """Training on the union of all clients' samples.

    One client holds them, and takes part in every round. A round is E epochs over them, with an
    optimiser made anew each round, as for any client.
    """

    about = About(
        paper="reference",
        summary="all clients' data in one place",
        down="0",
        up="0",
        keeps="the model, P",
        reference=True,
    )
    personal = False  # one client has the model of all

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The needs of the base, and the pooled data."""
        return self.base.needs | {"pooled"}


centralized = Variant(Pooled, LocalOnly, fixed={"own_weights": False}, name="centralized")
