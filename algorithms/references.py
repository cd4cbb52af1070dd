"""Reference rows: what clients reach alone, and what all their data reach in one place."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.base import (
    Algorithm,
    Cohort,
    Data,
    Fed,
    Local,
    Memory,
    Message,
    Net,
    Params,
    Plan,
    Plugin,
    Server,
    Upload,
)
from algorithms.entry import About
from algorithms.variant import Variant


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """No communication: each client goes on with its own model in the rounds in which it is drawn.

    There is one model per client; accuracy is the unweighted mean over clients, w_0 for those never drawn.
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

    def init_server(self, fed: Fed, params: Params) -> Server:
        """A server without a model."""
        return Server({})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Nothing."""
        return {}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """The initial model w_0."""
        return {"params": params}

    def start(self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator) -> Local:
        """The client's own model."""
        return {"params": memory["params"]}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: Plan
    ) -> tuple[Upload, Memory]:
        """Nothing goes, the model stays."""
        return {}, {"params": local["params"]}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Nothing but the count of rounds."""
        return server.next({})


@dataclass(frozen=True)
class Pooled(Plugin):
    """One client holds the union of all clients' training samples, and takes part in every round.

    A round is E epochs over them, with an optimiser made anew each round as a client's is.
    """

    about = About(
        paper="reference",
        summary="all clients' data in one place",
        down="0",
        up="0",
        keeps="the model, P",
        reference=True,
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The pooled data, and what the base needs."""
        return self.base.needs | {"pooled"}


centralized = Variant(Pooled, LocalOnly, name="centralized")
