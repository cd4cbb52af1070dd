"""Types of what an algorithm's hooks return, so that a wrong one is an error in the hook's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from algorithms.base import Server

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


def typed(hook: str, result: Any) -> Any:
    """Return what a hook returned, if it is of the hook's type; `noise` may return anything.

    Raises:
        TypeError: it is of another type, or its `params` is no dict; the message names the hook.
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
    return result
