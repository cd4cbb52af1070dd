"""Types of what an algorithm's hooks return, so that a wrong one is an error in the hook's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from algorithms.base import Params, Server

TYPES: dict[str, tuple[Any, str]] = {
    "init_server": (Server, "a Server, such as Server(params)"),
    "broadcast": (Mapping, "a dict, such as {'params': server.params}"),
    "server_step": (Server, "a Server, such as server.next(params)"),
    "evaluated": (Mapping, "a dict of models, such as {'': server.params}"),
    "predict": (Tensor, "a tensor of scores (B, C)"),
    "init_client": (Mapping, "a dict, {} if clients keep nothing"),
    "start": (Mapping, "a dict, such as {'params': message['params']}"),
    "teachers": (Mapping, "a dict of models by name"),
    "before_step": (Mapping, "a dict, the local state"),
    "local_loss": (Tensor, "a tensor of losses (B,)"),
    "upload": (tuple, "two dicts, the upload and the new memory"),
}
# Hooks whose result has a model under `params`, or in `params`.
WITH_MODEL = ("init_server", "server_step", "start", "before_step")
# Hooks of whose result every value is sent or kept.
OF_VALUES = ("init_server", "broadcast", "server_step", "init_client", "start", "upload")


def typed(hook: str, result: Any) -> Any:
    """Return what a hook returned, if it is of the hook's type; `noise` may return anything.

    Raises:
        TypeError: it is of another type, its `params` is no dict, or a value that is sent or kept
            is neither tensor nor number; the message names the hook.
    """
    if hook not in TYPES:
        return result
    kind, text = TYPES[hook]
    if not isinstance(result, kind):
        raise TypeError(f"{hook} must return {text}, got {type(result).__name__}")
    if hook == "upload":
        dicts = [part for part in result if isinstance(part, Mapping)]
        if len(dicts) != 2 or len(result) != 2:
            kinds = ", ".join(type(part).__name__ for part in result)
            raise TypeError(f"{hook} must return {text}, got ({kinds})")
    if hook in WITH_MODEL:
        model = result.params if isinstance(result, Server) else result.get("params")
        if not isinstance(model, Mapping):
            raise TypeError(f"{hook} must return {text}: params is no dict of tensors")
    if hook in OF_VALUES:
        for place, value in _sent_or_kept(result):
            if not isinstance(value, Tensor | int | float):
                raise TypeError(
                    f"{hook} must return tensors and numbers, alone or in dicts, lists and tuples: "
                    f"{place} is of type {type(value).__name__}"
                )
    return result


def _sent_or_kept(result: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(result, Server):
        return _values(result.extra, "extra")
    return _values(result)


def _values(tree: Any, place: str = "result") -> Iterator[tuple[str, Any]]:
    """Yield the values of dicts, lists and tuples, each after its place, `result['params']`."""
    parts: Any = ()
    if isinstance(tree, Mapping):
        parts = tree.items()
    elif isinstance(tree, list | tuple):
        parts = enumerate(tree)
    else:
        yield place, tree
    for key, value in parts:
        yield from _values(value, f"{place}[{key!r}]")


def check_forms(hook: str, params: Params, initial: Params) -> None:
    """Check that tensors of a model have the shapes and types of those of the initial one.

    Raises:
        ValueError: one has not; the message names the hook and the tensor.
    """
    for name in [name for name in initial if name in params]:
        due = form(initial[name])
        got = form(params[name])
        if got != due:
            raise ValueError(f"{hook}: {name} of the returned model must be {due}, got {got}")


def form(value: Any) -> str:
    """Describe the shape and type of a tensor, or the type of what is none; None is missing."""
    if value is None:
        return "none"
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
