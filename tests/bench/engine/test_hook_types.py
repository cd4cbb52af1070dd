"""Results of hooks of another type, and what a client's hook may read of the server's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from algorithms.base import Data, Server
from bench.engine.hook_results import typed
from bench.engine.server_context import ApartInPacks, PublicData, PublicOfSeveralRuns, ServersOwn
from bench.engine.tracking import Tracker

MODEL = {"params": {}}


@pytest.mark.parametrize(
    ("hook", "result"),
    [
        ("noise", 3),
        ("init_server", Server({})),
        ("server_step", Server({})),
        ("broadcast", {}),
        ("evaluated", {}),
        ("predict", torch.zeros(1)),
        ("init_client", {}),
        ("start", MODEL),
        ("teachers", {}),
        ("before_step", MODEL),
        ("local_loss", torch.zeros(1)),
        ("upload", ({}, {})),
    ],
)
def test_results_of_their_type_are_passed_on(hook: str, result: Any) -> None:
    assert typed(hook, result) is result


@pytest.mark.parametrize(
    ("hook", "result", "message"),
    [
        ("init_server", {}, r"a Server, such as Server\(params\), got dict$"),
        ("server_step", Server([]), r"Server, such as .*: params is no dict of tensors$"),
        ("broadcast", None, "a dict, such as .*, got NoneType$"),
        ("evaluated", [], "a dict of models, such as .*, got list$"),
        ("predict", [1], r"a tensor of scores \(B, C\), got list$"),
        ("init_client", (), "a dict, {} if clients keep nothing, got tuple$"),
        ("start", {}, "a dict, such as .*: params is no dict of tensors$"),
        ("start", {"params": torch.zeros(1)}, "params is no dict of tensors$"),
        ("teachers", 0, "a dict of models by name, got int$"),
        ("before_step", {"params": None}, "the local state: params is no dict of tensors$"),
        ("local_loss", 0.5, r"a tensor of losses \(B,\), got float$"),
        ("upload", {}, "two dicts, the upload and the new memory, got dict$"),
        ("upload", ({},), r"the new memory, got \(dict\)$"),
        ("upload", ({}, None), r"the new memory, got \(dict, NoneType\)$"),
        ("upload", ({}, {}, {}), r"the new memory, got \(dict, dict, dict\)$"),
        ("upload", ({}, {}, 1), r"the new memory, got \(dict, dict, int\)$"),
    ],
)
def test_other_results_are_refused_by_name(hook: str, result: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^{hook} must return .*{message}"):
        typed(hook, result)


def samples() -> Data:
    return Data(lambda: torch.ones(3, 2), torch.arange(3))


def test_whether_public_samples_were_read_is_known() -> None:
    public = PublicData(samples(), labelled=False)
    with pytest.raises(AttributeError, match=r"needs = frozenset.{.public., .public_labels.}"):
        _ = public.y
    assert [len(part) for part in public.sent] == [3]
    assert public.read is False
    assert public.x.shape == (3, 2)
    assert public.read is True
    labelled = PublicData(samples(), labelled=True)
    assert [part.dim() for part in labelled.sent] == [2, 1]
    assert labelled.read is False
    assert labelled.y.tolist() == [0, 1, 2]
    assert labelled.read is True


def test_what_is_the_servers_is_not_read_by_clients() -> None:
    with pytest.raises(AttributeError, match=r"reads fed\.auxiliary\.x, which the server has"):
        _ = ServersOwn("auxiliary").x
    with pytest.raises(
        PublicOfSeveralRuns, match=r"plan\.public\.y is read in a program of several"
    ):
        _ = ApartInPacks().y


def test_a_run_may_begin_to_be_tracked() -> None:
    unused: Any = None
    tracker = Tracker(("drift",), unused, unused, unused, unused)
    assert tracker.state() == {"what": ["drift"], "seconds": 0.0, "shared": {}, "rows": {}}
    tracker.load({})
    assert tracker.state() == {"what": ["drift"], "seconds": 0.0, "shared": {}, "rows": {}}
    saved = {"what": ["local"], "seconds": 2.5, "shared": {"a": 1}, "rows": {"": {"b": 2}}}
    tracker.load(saved)
    assert tracker.state() == {**saved, "what": ["drift", "local"]}
    assert tracker.arrays("") == {"a": 1, "b": 2}
    assert tracker.arrays("_x") == {"a": 1}
