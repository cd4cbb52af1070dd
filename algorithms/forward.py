"""A frozen model's answers on a whole data set, and whether an error says that memory did not suffice."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from algorithms.base import Net, Outputs, Params

CHUNK = {"cpu": 100, "cuda": 1000}  # a larger pass of ResNet-8 leaves a CPU's caches and takes twice the time
_SIGNS = (
    *("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED"),
    # Each of cuDNN's kernels has been tried, and none found room to work in; it says so, too, where it has none.
    *("unable to find an engine", "Unable to find a valid cuDNN algorithm"),
)


def chunk_size(device: torch.device) -> int:
    """Samples of one forward pass over a whole data set, which bounds memory."""
    return CHUNK.get(device.type, CHUNK["cpu"])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice: those of CUDA's libraries have no class for it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


class Answers:
    """A network's answers in one pass over many samples, a chunk at a time.

    If a chunk does not fit into memory, this pass goes on with half as many samples at once; the next one begins anew,
    so that no result depends on what ran before.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._most: int | None = None  # samples at once; None for whole chunks

    @torch.no_grad()
    def on(self, params: Params, x: Tensor) -> Outputs:
        """Outputs on a chunk of samples (N, ...), in evaluation mode.

        Raises:
            RuntimeError: not even one sample fits; mostly a `torch.OutOfMemoryError`.
        """
        answers: list[Outputs] = []
        while len(x) or not answers:
            part = x[: self._most]
            if (answer := self._tried(params, part)) is not None:
                answers.append(answer)
                x = x[len(part) :]
        return answers[0] if len(answers) == 1 else Outputs(*map(torch.cat, zip(*answers, strict=True)))

    def _tried(self, params: Params, x: Tensor) -> Outputs | None:
        """None if memory did not suffice."""
        try:
            return self._net.eval(params, x)
        except Exception as error:
            if len(x) < 2 or not is_out_of_memory(error):
                raise
        # Outside the handler, whose traceback would keep what the attempt took.
        self._most = (len(x) + 1) // 2
        warnings.warn(
            f"out of memory with {len(x)} samples in one forward pass: going on with {self._most} at a time",
            stacklevel=4,  # past `on` and what makes it free of gradients
        )
        return None


def logits_of(net: Net, params: Params, x: Tensor) -> Tensor:
    """(N, C) logits of samples (N, ...), in evaluation mode, without gradients, a chunk at a time."""
    answers = Answers(net)
    return torch.cat([answers.on(params, part).logits for part in torch.split(x, chunk_size(x.device))])
