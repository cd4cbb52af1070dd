"""The server's knowledge of the federation, as hooks see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.base import Client, Data, Params, ServerStep
from bench.engine.network import Network
from bench.engine.rng import stream
from bench.engine.server_steps import ServerSteps


@dataclass(frozen=True)
class FedView:
    """Implements `algorithms.base.Fed`.

    `steps` executes the server's training steps, `initialise` gives a new network's parameters drawn from a generator,
    and `member` the client whose hook is called; it is None in the server's hooks.
    """

    net: Network
    num_clients: int
    batch_size: int
    seed: int
    auxiliary: Data
    validation: Data
    steps: ServerSteps
    initialise: Callable[[torch.Generator], Params]
    member: Callable[[], Client] | None = None

    @property
    def num_classes(self) -> int:
        """C."""
        return self.net.num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return self.net.input_shape

    @property
    def feature_dim(self) -> int:
        """D."""
        return self.net.feature_dim

    @property
    def client(self) -> Client:
        """The client whose hook is called."""
        if self.member is None:
            raise AttributeError(
                "fed.client is known in init_client and start alone: let clients upload what the server needs of them"
            )
        return self.member()

    def initialised(self, *keys: str | int) -> Params:
        """A new network's parameters and floating-point buffers."""
        return self.initialise(self.stream("initialised", *keys))

    def stream(self, *keys: str | int) -> torch.Generator:
        """The server's generator for these keys."""
        return stream(self.seed, "server", *keys)

    def repeat(self, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
        """Take one step for each of `inputs`, on a GPU captured once and replayed; gives the last state."""
        return self.steps.repeat(step, state, inputs, given)
