"""The server's knowledge of the federation, as hooks see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from algorithms.base import Data, ServerStep
from bench.engine.network import Network
from bench.engine.server_steps import ServerSteps
from bench.engine.streams import stream


@dataclass(frozen=True)
class FedView:
    """Implements `algorithms.base.Fed`: what the server knows."""

    net: Network
    num_clients: int
    batch_size: int
    seed: int
    auxiliary: Data
    validation: Data
    steps: ServerSteps

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

    def stream(self, *keys: str | int) -> torch.Generator:
        """The server's generator for these keys."""
        return stream(self.seed, "server", *keys)

    def repeat(self, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
        """The state after one step for each of `inputs`; on a GPU captured once and replayed."""
        return self.steps.repeat(step, state, inputs, given)
