"""Trees of tensors (dict, tuple, list) as messages, locals, memories and uploads are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree


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
    """A list, tuple or named tuple of these parts."""
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def shapes(tree: Any) -> Any:
    """Replace each tensor by its shape and type: two results are equal if the trees fit each other."""
    return tree_map(lambda tensor: (tuple(tensor.shape), tensor.dtype), tree)


def leaves(tree: Any) -> Iterator[Tensor]:
    """Every tensor of `tree`, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping | list | tuple):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(value)


def pairs(first: Any, second: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors of two trees of one structure, side by side; names may stand in another order."""
    if isinstance(first, Tensor):
        yield first, second
    elif isinstance(first, Mapping):
        for key in first:
            yield from pairs(first[key], second[key])
    elif isinstance(first, list | tuple):
        for value, other in zip(first, second, strict=True):
            yield from pairs(value, other)


def moves(places: Any, values: Any) -> list[tuple[Tensor, Tensor]]:
    """List (target, source) of the copies that make one tree another of its structure, all sources as they were before.

    A tensor in its place already is left out; a source in the place of another target is copied beforehand.
    """

    def place(tensor: Tensor) -> tuple[object, ...]:
        return tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride()

    targets, sources = [], []
    for target, source in pairs(places, values):
        if place(target) != place(source):
            targets.append(target)
            sources.append(source)
    return list(zip(targets, apart_from(targets, sources), strict=True))


def apart_from(changing: Sequence[Tensor], tree: Any) -> Any:
    """`tree` with copies of the tensors that share memory with tensors that are about to change."""
    changed = {tensor.untyped_storage().data_ptr() for tensor in changing}
    return tree_map(lambda tensor: tensor.clone() if tensor.untyped_storage().data_ptr() in changed else tensor, tree)


def tensors(tree: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """`tree` on `device`, plain numbers turned into tensors: floats and booleans in `dtype`, integers as int64."""
    if isinstance(tree, Tensor):
        return tree.to(device)  # drawn on the CPU, perhaps; one that is there already stays the same object
    if isinstance(tree, Mapping):
        return {key: tensors(value, device, dtype) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [tensors(value, device, dtype) for value in tree])
    if isinstance(tree, bool | float):
        return torch.tensor(float(tree), device=device, dtype=dtype)
    return torch.tensor(tree, device=device) if isinstance(tree, int) else tree


def stack(trees: Sequence[Any]) -> Any:
    """Stack equal trees to one, each tensor with a leading axis over the trees.

    Raises:
        ValueError: they differ in their names, or in what is no tensor.
    """
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(list(trees))
    if isinstance(first, Mapping):
        for tree in trees:
            if tree.keys() != first.keys():
                raise _unlike("names", sorted(first), sorted(tree))
        return {key: stack([tree[key] for tree in trees]) for key in first}
    if isinstance(first, list | tuple):
        return _rebuilt(first, [stack(part) for part in zip(*trees, strict=True)])
    for tree in trees:
        if type(tree) is not type(first) or tree != first:
            raise _unlike("values that are no tensors", first, tree)
    return first


def _unlike(what: str, first: Any, other: Any) -> ValueError:
    return ValueError(
        f"what is stacked has to have one structure, and {what} differ: {first!r} and {other!r}; use tensors or "
        "numbers and the same names from the first round on, or train client by client (--backend loop)"
    )


def unstack(tree: Any) -> list[Any]:
    """The trees that `stack` made one of; their tensors are views."""
    rows = {id(tensor): tensor.unbind() for tensor in leaves(tree)}
    count = len(next(iter(rows.values())))

    def at(row: int) -> Any:
        return tree_map(lambda tensor: rows[id(tensor)][row], tree)

    return [at(row) for row in range(count)]


def axes(tree: Any) -> Any:
    """`in_dims` with which `vmap` maps the leading axis of every tensor, and passes other leaves on."""
    return _pytree.tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, tree)


def each(function: Callable[..., Any], parts: dict[str, Any], dims: Any = None) -> Any:
    """Map `function(**parts)` over the leading axis. `dims`: `axes` of the parts, if they were made before."""
    return vmap(lambda part: function(**part), in_dims=(dims or axes(parts),), randomness="error")(parts)


def detached_copy(tree: Any) -> Any:
    """`tree` with every tensor detached and copied: a view would keep, and save, the whole it is cut from."""
    return tree_map(lambda tensor: tensor.detach().clone(), tree)


def to(tree: Any, device: torch.device | str) -> Any:
    """`tree` on `device`."""
    return tree_map(lambda tensor: tensor.to(device), tree)


def total(tree: Any) -> Tensor:
    """The sum of all floating-point entries, a scalar: finite only if they all are (or a sum overflows)."""
    sums = [leaf.sum() for leaf in leaves(tree) if leaf.is_floating_point()]
    return torch.stack([value.to(sums[0]) for value in sums]).sum() if sums else torch.zeros(())


def has_nan(tree: Any) -> Tensor:
    """A scalar that is NaN if any entry is NaN, and 0 if none is."""
    flags = [leaf.isnan().any() for leaf in leaves(tree) if leaf.is_floating_point()]
    if not flags:
        return torch.zeros(())
    flag = torch.stack([value.to(flags[0].device) for value in flags]).any()
    return torch.zeros((), device=flag.device).masked_fill(flag, float("nan"))


def num_bytes(tree: Any) -> int:
    """Bytes of the distinct tensors of `tree`: one sent twice under two names travels once."""
    distinct = {id(tensor): tensor for tensor in leaves(tree)}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())
