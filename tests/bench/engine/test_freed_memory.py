"""What is done with is gone at once, not when Python's garbage collector comes to it: it may hold a GPU's memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from conftest import simulate, trained

from bench.engine.together import advance_together


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("name", ["fedgen", "moon", "feddkd", "fedavg_t1", "local"])
@pytest.mark.usefixtures("no_collector")
def test_a_run_that_is_done_with_is_gone(name: str, backend: str) -> None:
    run = trained(name, backend, 1)
    held = [weakref.ref(run), weakref.ref(run.trainer), weakref.ref(run.net)]
    del run
    assert [found() for found in held] == [None] * 3


@pytest.mark.usefixtures("no_collector")
def test_a_pack_that_is_done_with_is_gone() -> None:
    pack = [simulate("fedgen", "stacked", seed=seed) for seed in (0, 1)]
    assert not advance_together(pack, 1)
    held = [
        weakref.ref(pack[0].trainer),
        *(weakref.ref(member) for member in pack),
    ]
    del pack
    assert [found() for found in held] == [None] * 3
