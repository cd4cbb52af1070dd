"""Part of the backends check: numeric hyper-parameters may be tensors, as in a program that configurations share.

Such a program maps the pure hooks over configurations, so a hook must not ask a number for its value: `if`, `max`,
`float` and `range` on a field fail here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from algorithms.base import Algorithm, Batch, Data, Local, Memory, Message, Net, Plan, Plugin, Upload
from algorithms.statements import layers
from bench.engine.trees import tensors, tree_map
from bench.selftest.candidate import Candidate


@dataclass(frozen=True)
class AsTensors(Plugin):
    """Runs the pure hooks of `base` mapped over one configuration, whose `fields` are then tensors.

    Args:
        base: the algorithm.
        fields: names of the hyper-parameters that become tensors.
    """

    fields: tuple[str, ...] = field(default=())

    def before_step(self, net: Net, local: Local, batch: Batch, message: Message, plan: Plan) -> Local:
        """The base's, mapped."""
        made: Local = self._mapped(lambda base: base.before_step(net, local, batch, message, plan))
        return made

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """The base's, mapped."""
        loss: Tensor = self._mapped(lambda base: base.local_loss(net, local, batch, message, memory, plan))
        return loss

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: Plan
    ) -> tuple[Upload, Memory]:
        """The base's, mapped."""
        sent: tuple[Upload, Memory] = self._mapped(lambda base: base.upload(net, local, data, message, memory, plan))
        return sent

    def _mapped(self, hook: Callable[[Algorithm], Any]) -> Any:
        numbers = [[getattr(layer, name, None) for name in self.fields] for layer in layers(self.base)]
        flat = [value for row in numbers for value in row if value is not None]

        def with_values(values: Tensor) -> Any:
            answer = hook(_with(self.base, self.fields, list(values)))
            return tensors(answer, torch.device("cpu"), torch.float64)

        made = vmap(with_values)(torch.tensor([flat], dtype=torch.float64))
        return tree_map(lambda tensor: tensor[0], made)


def _with(made: Algorithm, fields: tuple[str, ...], values: list[Tensor]) -> Algorithm:
    """A copy whose fields are these tensors, taken from the front; its checks do not run, for a tensor is no number."""
    made = copy.copy(made)
    for name in fields:
        if getattr(made, name, None) is not None:
            object.__setattr__(made, name, values.pop(0))
    if isinstance(made, Plugin):
        object.__setattr__(made, "base", _with(made.base, fields, values))
    return made


def as_tensors(candidate: Candidate) -> Callable[[Algorithm], AsTensors]:
    """What makes an algorithm's packable numbers tensors."""
    return lambda made: AsTensors(made, packable(candidate))


def packable(candidate: Candidate) -> tuple[str, ...]:
    """The numeric hyper-parameters that may differ within one program."""
    return tuple(item.name for item in candidate.entry.fields if item.packable and item.kind == "float")
