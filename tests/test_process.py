"""What a training process settles for itself: threads, and memory that it keeps while it trains, then gives back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.engine import process

glibc = pytest.mark.skipif(process._glibc() is None, reason="the C library is not glibc")

# Pages that the system had to give to 50 steps of 8 MB, after 2 that made the heap; then the process's size in MB while
# it keeps 200 freed tensors of 4 MB, and after it gave them back. In a process of its own: the heap is one.
STEPS = """
import resource, torch
from bench.engine.process import give_back_memory, keep_freed_memory
kept = keep_freed_memory()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def size(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
def step(): return [torch.ones(2**21) for _ in range(4)]
step(), step()
before = faults()
for _ in range(50): step()
after = faults()
several = [torch.ones(2**20) for _ in range(200)]
del several
large = size()
give_back_memory()
print(kept, after - before, large - size())
"""


def steps(**environment: str) -> tuple[bool, int, float]:
    """Whether the heap is kept; pages, MB, of `STEPS`."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    answer = subprocess.run(
        [sys.executable, "-c", STEPS], env={**given, **environment}, capture_output=True, text=True, check=True
    )
    kept, pages, given_back = answer.stdout.split()
    return kept == "True", int(pages), float(given_back)


@glibc
def test_steps_ask_for_no_pages_again_and_the_heap_is_given_back() -> None:
    kept, pages, given_back = steps()
    assert kept
    assert pages < 5 * 8192, "pages of five steps at most, for 50"
    assert given_back > 700


@glibc
@pytest.mark.parametrize(
    "environment", [{"MALLOC_TOP_PAD_": "0"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}]
)
def test_settings_of_the_users_own_stay(environment: dict[str, str]) -> None:
    kept, pages, _ = steps(**environment)
    assert not kept
    assert pages > 20 * 8192


@glibc
@pytest.mark.parametrize("environment", [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}])
def test_settings_of_other_things_do_not_prevent_it(environment: dict[str, str]) -> None:
    assert steps(**environment)[0]


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    process.keep_freed_memory.cache_clear()
    monkeypatch.setattr(process, "_glibc", lambda: None)
    assert not process.keep_freed_memory()
    process.give_back_memory()
    process.keep_freed_memory.cache_clear()
