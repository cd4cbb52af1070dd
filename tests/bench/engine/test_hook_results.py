"""Results of hooks are of their types, or the error names the hook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from algorithms.base import Algorithm, Plugin, Server
from bench.engine.hook_results import TYPES, typed
from bench.errors import of_hook
from bench.selftest.candidate import candidate

BACKENDS = ("loop", "stacked")
WEIGHT = "body.1.weight"


@dataclass(frozen=True)
class Returning(Plugin):
    """FedAvg, of which one hook returns something else."""

    hook: str = ""
    change: Any = field(default=None, compare=False)

    def __getattribute__(self, name: str) -> Any:
        """Replace the hook."""
        own = object.__getattribute__(self, name)
        if name != object.__getattribute__(self, "hook"):
            return own
        change = object.__getattribute__(self, "change")
        return lambda *arguments: change(own(*arguments))


def run(hook: str, change: Any, backend: str) -> None:
    """Run two rounds."""
    simulation = candidate("fedavg").simulate(
        backend, wrap=lambda algorithm: Returning(algorithm, hook, change)
    )
    simulation.advance(2)


def error_of(hook: str, change: Any, backend: str = "loop") -> str:
    """Run two rounds; return the error's text."""
    with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
        run(hook, change, backend)
    return str(raised.value)


@pytest.mark.parametrize("hook", sorted(set(TYPES) - {"predict", "before_step"}))
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_no_result(hook: str, backend: str) -> None:
    text = error_of(hook, lambda result: None, backend)
    assert f"{hook} must return {TYPES[hook][1]}, got NoneType" in text


WRONG = {
    "a model alone": ("server_step", lambda server: server.params, "got dict"),
    "no dict of tensors": ("start", lambda local: local["params"], "params is no dict"),
    "a server of one tensor": (
        "init_server",
        lambda server: Server(torch.zeros(3)),  # type: ignore[arg-type]
        "params is no dict",
    ),
    "an upload alone": ("upload", lambda pair: pair[0], "got dict"),
    "no memory": ("upload", lambda pair: (pair[0], None), "got (dict, NoneType)"),
    "a later round": ("init_server", lambda server: server.next(server.params), "round 0, got 1"),
    "a text": ("local_loss", lambda loss: "0.5", "got str"),
    "a detached loss": (
        "local_loss",
        lambda loss: loss.detach(),
        "must depend on local['params']",
    ),
    "part of a model": (
        "start",
        lambda local: {"params": {WEIGHT: local["params"][WEIGHT]}},
        "got none",
    ),
    "other shapes": (
        "start",
        lambda local: {"params": {n: w[None] for n, w in local["params"].items()}},
        "start must return a tensor of each parameter's shape and type",
    ),
    "other types": (
        "start",
        lambda local: {"params": {n: w.half() for n, w in local["params"].items()}},
        "float16",
    ),
    "a server's model of other shapes": (
        "init_server",
        lambda server: Server({WEIGHT: server.params[WEIGHT][:1]}),
        f"{WEIGHT} of the returned model must be (64, 64) float64, got (1, 64) float64",
    ),
    "models that were not averaged": (
        "server_step",
        lambda server: Server({n: w[None] for n, w in server.params.items()}, 1),
        "got (1, 64, 64) float64",
    ),
    "a model that lost a tensor": (
        "server_step",
        lambda server: Server({n: w for n, w in server.params.items() if n != WEIGHT}, 1),
        f"the model of client 0 lacks {WEIGHT!r}",
    ),
    "arrays of numpy": (
        "server_step",
        lambda server: Server({n: w.numpy() for n, w in server.params.items()}, 1),
        "got a ndarray",
    ),
    "an evaluated model of other shapes": (
        "evaluated",
        lambda models: {"": {WEIGHT: models[""][WEIGHT].half()}},
        "got (64, 64) float16",
    ),
    "a message with an array": (
        "broadcast",
        lambda message: {**message, "w": [torch.ones(1), np.ones(3)]},
        "result['w'][1] is of type ndarray",
    ),
    "a size that is a text": (
        "broadcast",
        lambda message: {**message, "floats": "12"},
        "result['floats'] is of type str",
    ),
    "an upload with an array": (
        "upload",
        lambda pair: ({"w": np.float32(1)}, {}),
        "result[0]['w'] is of type float32",
    ),
    "a server's own array": (
        "server_step",
        lambda server: server.next(server.params, old=[np.ones(2)]),
        "extra['old'][0] is of type ndarray",
    ),
    "a memory with a text": (
        "init_client",
        lambda memory: {"s": "a"},
        "result['s'] is of type str",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_names_the_hook(name: str) -> None:
    hook, change, words = WRONG[name]
    text = error_of(hook, change)
    assert hook in text
    assert words in text


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_hook_misses_is_named(backend: str) -> None:
    words = "round 1, client 1: 'params' is missing (the message has 'model'; "
    assert words in error_of("broadcast", lambda message: {"model": message["params"]}, backend)
    text = error_of("upload", lambda pair: ({"model": pair[0]["params"]}, {}), backend)
    assert "round 1, server_step: 'params' is missing (uploads have 'model')" in text


@pytest.mark.parametrize("backend", BACKENDS)
def test_uploads_of_unlike_shapes_are_named(backend: str) -> None:
    sizes = iter(range(1, 9))
    text = error_of("upload", lambda pair: ({"z": torch.ones(next(sizes))}, {}), backend)
    assert "upload: 'z' of client" in text
    assert "((2,), torch.float32)" in text


def test_stacked_states_of_unlike_shapes_are_named() -> None:
    sizes = iter(range(1, 9))
    text = error_of("start", lambda local: {**local, "z": torch.ones(next(sizes))}, "stacked")
    assert "shapes differ: (1,) and (2,)" in text
    assert "--backend loop" in text


@pytest.mark.parametrize("hook", ["predict", "before_step", "noise"])
def test_other_hooks_have_types_too(hook: str) -> None:
    if hook == "noise":
        assert typed(hook, None) is None
        return
    with pytest.raises(TypeError, match=f"{hook} must return {TYPES[hook][1][:6]}"):
        typed(hook, None)


def test_each_hook_but_noise_has_one() -> None:
    hooks = {name for name in vars(Algorithm) if not name.startswith("_")}
    assert set(TYPES) == {name for name in hooks if callable(getattr(Algorithm, name))} - {"noise"}


def test_only_a_missing_name_is_missing() -> None:
    message = {"params": {}}
    assert "is missing (the message has 'params'" in of_hook(KeyError("model"), message, {})
    sentence = "the network has no parameter 'u'"
    assert of_hook(KeyError(sentence), message, {}) == sentence
