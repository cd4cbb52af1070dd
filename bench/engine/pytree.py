"""Functions on trees of tensors (dict, tuple, list), such as messages, memories and uploads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree

T = TypeVar("T")


def tree_map(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """Replace every tensor of `tree` by `function` of it; other leaves stay."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [tree_map(function, value) for value in tree])
    return tree


def _rebuilt(like: Any, parts: list[Any]) -> Any:
    """Make a list, tuple or named tuple of these parts, of the type of `like`."""
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def shapes(tree: Any) -> Any:
    """Replace each tensor by its shape and type: trees of one structure have equal results."""
    return tree_map(lambda tensor: (tuple(tensor.shape), tensor.dtype), tree)


def leaves(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor of `tree`, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping | list | tuple):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(value)


def pairs(first: Any, second: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the tensors of two trees of one structure side by side, whatever order keys have."""
    if isinstance(first, Tensor):
        yield first, second
    elif isinstance(first, Mapping):
        for key in first:
            yield from pairs(first[key], second[key])
    elif isinstance(first, list | tuple):
        for value, other in zip(first, second, strict=True):
            yield from pairs(value, other)


def equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Return whether two mappings of tensors have the same names, and equal values under each."""
    if first.keys() != second.keys():
        return False
    others = ((value, second[name]) for name, value in first.items())
    return all(value is other or torch.equal(value, other) for value, other in others)


def moves(places: Any, values: Any) -> list[tuple[Tensor, Tensor]]:
    """List the copies (target, source) that write `values` to `places`, an equal structure.

    Tensors that are already in place are left out; sources that share memory with a target are
    copied beforehand.
    """

    def place(tensor: Tensor) -> tuple[object, ...]:
        return (
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )

    targets = []
    sources = []
    for target, source in pairs(places, values):
        if place(target) != place(source):
            targets.append(target)
            sources.append(source)
    return list(zip(targets, apart_from(targets, sources), strict=True))


def apart_from(changing: Sequence[Tensor], tree: Any) -> Any:
    """Return `tree` with copies of those tensors that share memory with tensors about to change."""
    memory = {tensor.untyped_storage().data_ptr() for tensor in changing}
    return tree_map(
        lambda tensor: tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor,
        tree,
    )


def tensors(tree: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Move `tree` to `device`, with plain numbers as tensors.

    Floats and booleans are then in `dtype`, integers in int64.
    """
    if isinstance(tree, Tensor):
        # It may be drawn on the CPU; one that is already there stays the same object.
        return tree.to(device)
    if isinstance(tree, Mapping):
        return {key: tensors(value, device, dtype) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [tensors(value, device, dtype) for value in tree])
    if isinstance(tree, bool | float):
        return torch.tensor(float(tree), device=device, dtype=dtype)
    return torch.tensor(tree, device=device) if isinstance(tree, int) else tree


def stack(trees: Sequence[Any]) -> Any:
    """Stack trees of one structure into one, each tensor with a leading axis over the trees.

    Raises:
        ValueError: the trees differ in names, lengths, shapes, or in values that are not tensors.
    """
    first = trees[0]
    if isinstance(first, Tensor):
        return _stacked_tensors(trees)
    if isinstance(first, Mapping):
        for tree in trees:
            if tree.keys() != first.keys():
                raise _unlike("names", sorted(first), sorted(tree))
        stacked = {}
        for key in first:
            stacked[key] = stack([tree[key] for tree in trees])
        return stacked
    if isinstance(first, list | tuple):
        return _stacked_lists(trees)
    for tree in trees:
        if type(tree) is not type(first) or tree != first:
            raise _unlike("values that are no tensors", first, tree)
    return first


def _stacked_lists(trees: Sequence[Any]) -> Any:
    first = trees[0]
    for tree in trees:
        if len(tree) != len(first):
            raise _unlike("lengths", len(first), len(tree))
    return _rebuilt(first, [stack(part) for part in zip(*trees, strict=True)])


def _stacked_tensors(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0].shape
    for tensor in tensors:
        if tensor.shape != first:
            raise _unlike("shapes", tuple(first), tuple(tensor.shape))
    return torch.stack(list(tensors))


def _unlike(what: str, first: Any, other: Any) -> ValueError:
    return ValueError(
        f"stacked trees must have the same structure, but {what} differ: {first!r} and {other!r}; "
        "use tensors or numbers and the same names from the first round on, or train client by "
        "client (--backend loop)"
    )


def unstack(tree: Any) -> list[Any]:
    """Undo `stack`: return the trees, whose tensors are views."""
    rows = {id(tensor): tensor.unbind() for tensor in leaves(tree)}
    count = len(next(iter(rows.values())))

    def at(row: int) -> Any:
        return tree_map(lambda tensor: rows[id(tensor)][row], tree)

    return [at(row) for row in range(count)]


def axes(tree: Any) -> Any:
    """Return the `in_dims` with which `vmap` maps every tensor's leading axis, and nothing else."""
    return _pytree.tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, tree)


def each(function: Callable[..., Any], parts: dict[str, Any], dims: Any = None) -> Any:
    """Map `function(**parts)` over the leading axis. `dims`: `axes(parts)`, if already known."""
    in_dims = (dims or axes(parts),)
    mapped = vmap(lambda part: function(**part), in_dims=in_dims, randomness="error")
    return mapped(parts)


def along_first_axis(factors: Tensor, like: Tensor) -> Tensor:
    """View factors (n,) so that each is multiplied with one entry of `like` (n, ...)."""
    other_axes = [1] * (like.dim() - 1)
    return factors.view(-1, *other_axes)


def without(tree: Mapping[str, T], *names: str) -> dict[str, T]:
    """Return the entries of a mapping, but those of these names."""
    return {name: part for name, part in tree.items() if name not in names}


def gradients_of(value: Tensor, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Differentiate a scalar by each of `params`, which are leaves; zero for unused ones."""
    grads = torch.autograd.grad(
        value, list(params.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(params, grads, strict=True))


def detached_copy(tree: Any) -> Any:
    """Detach and copy every tensor of `tree`.

    A view would keep, and save, the whole tensor it is cut from.
    """
    return tree_map(lambda tensor: tensor.detach().clone(), tree)


def to(tree: Any, device: torch.device | str) -> Any:
    """Move `tree` to `device`."""
    return tree_map(lambda tensor: tensor.to(device), tree)


def total(tree: Any) -> Tensor:
    """Sum all floating-point entries to a scalar.

    It is not finite if an entry is not, or if a sum overflows.
    """
    sums = [leaf.sum() for leaf in leaves(tree) if leaf.is_floating_point()]
    if not sums:
        return torch.zeros(())
    return torch.stack([value.to(sums[0]) for value in sums]).sum()


def has_nan(tree: Any) -> Tensor:
    """Return a scalar that is NaN if any entry is NaN, and 0 if none is."""
    flags = [leaf.isnan().any() for leaf in leaves(tree)]
    if not flags:
        return torch.zeros(())
    flag = torch.stack([value.to(flags[0].device) for value in flags]).any()
    return torch.zeros((), device=flag.device).masked_fill(flag, float("nan"))


def num_bytes(tree: Any) -> int:
    """Count the bytes of the distinct tensors of `tree`: a tensor under two names travels once."""
    distinct = {id(tensor): tensor for tensor in leaves(tree)}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())
