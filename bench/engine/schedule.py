"""The samples of each local step of a client, and the number of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from search_spaces.setting import Setting


@dataclass(frozen=True)
class Schedule:
    """The samples that each local step takes.

    Args:
        positions: (steps, B) int64 into the client's own samples. A short last batch of an epoch is filled up with
            other samples of the client, because BatchNorm would see copies of one sample as a constant batch. Without
            BatchNorm the loop leaves what is filled up out.
        weight: (steps, B), 0 where filled up.
        sizes: samples of each step that count.
    """

    positions: Tensor
    weight: Tensor
    sizes: tuple[int, ...]

    def on(self, device: torch.device, dtype: torch.dtype) -> Schedule:
        """On a device, weights of that type."""
        return Schedule(self.positions.to(device), self.weight.to(device, dtype), self.sizes)

    @staticmethod
    def draw(
        generator: torch.Generator, num_examples: int, steps: int, batch_size: int, whole_batches: bool = False
    ) -> Schedule:
        """Each epoch a fresh order, cut into batches, for as many steps as wanted.

        With `whole_batches` an epoch's short last batch is left out, unless it is the only one.
        """
        per_epoch = _batches(num_examples, batch_size, whole_batches)
        places = torch.arange(per_epoch * batch_size)
        epochs = math.ceil(steps / per_epoch)
        orders = [torch.randperm(num_examples, generator=generator)[places % num_examples] for _ in range(epochs)]
        weight = (places < num_examples).double().view(per_epoch, batch_size).repeat(epochs, 1)[:steps]
        sizes = tuple(int(size) for size in weight.sum(1).tolist())
        return Schedule(torch.cat(orders).view(-1, batch_size)[:steps], weight, sizes)


def draw_schedule(generator: torch.Generator, setting: Setting, sizes: Sequence[int], client: int) -> Schedule:
    """A client's schedule under the setting's step rule; `sizes` are the samples of every client."""
    epochs, batch_size, whole = setting.local_epochs, setting.batch_size, setting.step_rule == "equal"
    steps = {
        "epochs": epochs * _batches(sizes[client], batch_size, False),
        "batches": epochs,
        "equal": epochs * max(1, sum(sizes) // (len(sizes) * batch_size)),
    }[setting.step_rule]
    return Schedule.draw(generator, sizes[client], steps, batch_size, whole)


def _batches(num_examples: int, batch_size: int, whole: bool) -> int:
    """Batches of an epoch."""
    return max(1, num_examples // batch_size) if whole else math.ceil(num_examples / batch_size)
