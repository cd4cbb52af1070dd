"""Tensors that say that they lie on a CUDA device, and whose operations run on the CPU.

All above the kernels is torch's own: the functions it chooses for a GPU, vmap, autograd and its
streams, autocast. What a GPU would refuse is refused: operands on two devices, and waiting for the
host where nothing may wait.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pretended.graphs import Graph
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

TOTAL = 8 * 2**30


class Memory:
    """Counts each storage once, from its first tensor to the end of its last.

    Attributes:
        held: bytes now.
        peak: most since it was last forgotten.
        allowed: bytes; what would take more is out of memory.
    """

    def __init__(self) -> None:
        self.held, self.peak, self.allowed = 0, 0, TOTAL
        self._tensors: dict[int, int] = {}  # by address of their storage

    def hold(self, tensor: Tensor) -> None:
        """Count a tensor's storage for as long as the tensor lives.

        Raises:
            torch.OutOfMemoryError: there is no room for it.
        """
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size:
            return
        if address not in self._tensors:
            if self.held + size > self.allowed:
                raise torch.OutOfMemoryError(
                    f"{size} bytes beside {self.held} held are more than {self.allowed}"
                )
            self.held += size
            self.peak = max(self.peak, self.held)
        self._tensors[address] = self._tensors.get(address, 0) + 1
        weakref.finalize(tensor, self._release, address, size).atexit = False

    def _release(self, address: int, size: int) -> None:
        self._tensors[address] -= 1
        if not self._tensors[address]:
            del self._tensors[address]
            self.held -= size

    def forget_peak(self, device: object = None) -> None:
        """Begin a new peak."""
        self.peak = self.held

    def allow(self, share: float, device: object = None) -> None:
        """Allow a share of the total."""
        self.allowed = int(share * TOTAL)


aten = torch.ops.aten
DEVICE = torch.device("cuda", 0)
MEMORY = Memory()
ANSWERS = {  # the host waits for what they say
    *(aten._local_scalar_dense, aten.allclose, aten.equal, aten.is_nonzero, aten.item),
    *(aten.bincount, aten.masked_select, aten.nonzero, aten.repeat_interleave),
    *(aten._unique2, aten.unique_consecutive, aten.unique_dim),
}
FILLING = {aten.fill, aten.fill_, aten.masked_fill, aten.masked_fill_}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


class OnDevice(Tensor):
    """A tensor on the pretended device.

    Attributes:
        held: the CPU tensor that has its values.
    """

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> OnDevice:
        """A tensor of the same shape and strides, which owns nothing itself."""
        layout = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        return Tensor._make_wrapper_subclass(cls, held.shape, **layout, device=DEVICE)

    def __init__(self, held: Tensor) -> None:
        MEMORY.hold(held)
        self.held = held

    def __repr__(self) -> str:
        return f"on the pretended device: {self.held!r}"

    def __deepcopy__(self, memo: Any) -> OnDevice:
        return OnDevice(self.held.clone())

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any operation on one."""
        return run(func, args, kwargs or {})

    def tolist(self) -> Any:
        """Torch has none for subclasses."""
        return self.cpu().tolist()

    def untyped_storage(self) -> Any:
        """Of the CPU tensor: the same for views of one another."""
        return self.held.untyped_storage()


class Everywhere(TorchDispatchMode):
    """Reaches operations that have no tensor yet, such as `torch.zeros(..., device="cuda")`, or one of the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any operation at all."""
        return run(func, args, kwargs or {})


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation, on the device or not.

    Raises:
        RuntimeError: a GPU would refuse it.
        torch.OutOfMemoryError: its result does not fit.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = _result_is_there(func, args, kwargs, tensors)
    _check(func, args, kwargs, tensors, there)
    given = tree_map(lambda leaf: leaf.held if isinstance(leaf, OnDevice) else leaf, (args, kwargs))
    if given[1].get("device") is not None:
        given[1]["device"] = torch.device("cpu")
    stand_in = STAND_INS.get(func, func)
    recording = Graph.recording if there else None
    out = recording.record(stand_in, *given) if recording else stand_in(*given[0], **given[1])
    return _wrapped(func, args, kwargs, tensors, out) if there else out


def _result_is_there(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: list[Tensor]
) -> bool:
    if func.overloadpacket is aten.copy_:
        return isinstance(args[0], OnDevice)
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"]).type == "cuda"
    answers = func.overloadpacket in ANSWERS and not func._schema.returns[0].type.isSubtypeOf(
        torch._C.TensorType.get()
    )
    return not answers and any(isinstance(tensor, OnDevice) for tensor in tensors)


def _check(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: list[Tensor], there: bool
) -> None:
    """Refuse what a GPU would."""
    name, on = func.overloadpacket, [isinstance(tensor, OnDevice) for tensor in tensors]
    if name in {aten.copy_, aten._to_copy}:
        if on and there != on[-1]:  # a number, without a tensor, is the CPU's
            _wait(func)
    elif name in INDEXING:
        _check_index(func, *args)
    elif any(on) and not all(on) and not _takes_numbers(func, tensors):
        raise RuntimeError(
            f"expected all tensors to be on the same device, but {func} was given some on the CPU"
        )
    elif name in ANSWERS and any(on):
        _wait(func)
    elif there and getattr(kwargs.get("generator"), "device", DEVICE).type != "cuda":
        raise RuntimeError(
            f"expected a 'cuda' device type for generator, but {func} was given one of the CPU"
        )


def _takes_numbers(func: Any, tensors: list[Tensor]) -> bool:
    """Whether the operands on the CPU are numbers, tensors without axes, which it takes from anywhere."""
    elementwise = torch.Tag.pointwise in func.tags or func.overloadpacket in FILLING
    changed = func._schema.is_mutable and not isinstance(tensors[0], OnDevice)
    return (
        elementwise
        and not changed
        and all(isinstance(one, OnDevice) or not one.dim() for one in tensors)
    )


def _check_index(func: Any, of: Tensor, indices: Any, *rest: Any) -> None:
    known = [index for index in indices if index is not None]
    if not isinstance(of, OnDevice):
        if any(isinstance(index, OnDevice) for index in known):
            raise RuntimeError(f"{func}: indices should be on the CPU, as the indexed tensor is")
        return
    # A mask is first made into positions, of which nobody knows how many there are.
    if any(index.dtype is torch.bool or not isinstance(index, OnDevice) for index in known):
        _wait(func)


def _wait(func: Any) -> None:
    """What the host would have to wait for."""
    if Graph.recording or torch.cuda.get_sync_debug_mode() == 2:
        raise RuntimeError(f"called a synchronizing CUDA operation: {func}")


def _wrapped(func: Any, args: Any, kwargs: Any, tensors: list[Tensor], out: Any) -> Any:
    """The results as tensors on the device; what was changed in place is the tensor that it was."""
    own = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, OnDevice)}

    def wrap(made: Any) -> Any:
        if not isinstance(made, Tensor):
            return made
        if id(made) not in own:
            return OnDevice(made)
        known = own[id(made)]
        if (
            known.shape != made.shape
        ):  # its shape was changed in place, which is torch's to remember
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)
        return known

    return tree_map(wrap, out)


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any
) -> tuple[Tensor, ...]:
    """`cudnn_batch_norm`, which takes weights of float32 beside inputs of bfloat16."""
    weight, bias = (None if value is None else value.to(x.dtype) for value in (weight, bias))
    made = aten.native_batch_norm.default(x, weight, bias, mean, variance, *rest)
    return (*made, torch.zeros(0, dtype=torch.uint8))


def _batch_norm_backward(x: Tensor, slope: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *statistics, epsilon, _ = rest
    made: tuple[Tensor, ...] = aten.native_batch_norm_backward.default(
        slope, x, *statistics, True, epsilon, [True, True, True]
    )
    return made


class _StandIn:
    """A CPU function in the place of an operator that only a GPU has."""

    def __init__(self, operator: Any, function: Callable[..., Any]) -> None:
        self._schema, self._function = operator._schema, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


STAND_INS = {
    operator: _StandIn(operator, function)
    for operator, function in (
        (aten.cudnn_batch_norm.default, _batch_norm),
        (aten.cudnn_batch_norm_backward.default, _batch_norm_backward),
    )
}
