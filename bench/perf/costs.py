"""What a local step costs: floating-point operations, counted, and bytes moved, estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.client_round import leaves_of
from bench.engine.simulation import Simulation


@dataclass(frozen=True)
class Costs:
    """Of one training sample.

    Args:
        flops: of products and convolutions, forward and backward, counted.
        bytes: an estimate: what every operator of an uncompiled step reads and writes, as if nothing stayed in a
            cache. A fused program may need less.
    """

    flops: float
    bytes: float


def costs_of(run: Simulation) -> Costs:
    """FedAvg's costs in a run's problem: a batch's forward and backward pass and the optimiser's step, a sample."""
    step = _step(run)
    size = min(run.setting.batch_size, run.federation.sizes[0])
    with FlopCounterMode(display=False) as counter:
        step()
    with Traffic() as traffic:
        step()
    return Costs(counter.get_total_flops() / size, traffic.bytes / size)


def _step(run: Simulation) -> Callable[[], None]:
    """One local step of the engine's network and optimiser, its inputs ready."""
    index = run.federation.clients[0][: run.setting.batch_size]
    x, y = run.federation.train.batch(index), run.federation.train.labels[index]
    params = leaves_of(run.net, run.server.params)
    leaves = [params[name] for name in run.net.trainable]
    state = run.problem.optimizer.init(leaves)

    def step() -> None:
        loss = F.cross_entropy(run.net(params, x).logits, y)
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        run.problem.optimizer.step(leaves, grads, state, run.setting.lr, 1, stacked=False)

    return step


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes that operators read and write; one that only makes a view moves none.

    Attributes:
        bytes: so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operator and count."""
        out = func(*args, **(kwargs or {}))
        read = _tensors((args, kwargs))
        self.bytes += _bytes(read) + _bytes(written) if (written := _written(func, args, read, out)) else 0
        return out


def _written(func: Any, args: tuple[Any, ...], read: Sequence[Tensor], out: Any) -> list[Tensor]:
    """What an operator writes: what it changes in place, else its result, unless that is a view of what it read."""
    schema = func._schema
    if schema.is_mutable:
        changed = [arg.alias_info is not None and arg.alias_info.is_write for arg in schema.arguments]
        return _tensors([value for value, changes in zip(args, changed, strict=False) if changes])
    known = {tensor.untyped_storage().data_ptr() for tensor in read}
    return [tensor for tensor in _tensors(out) if tensor.untyped_storage().data_ptr() not in known]


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
