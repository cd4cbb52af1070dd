"""Memory that a training process keeps while it trains."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.engine import process
from bench.engine.process import keep_freed_memory

# Pages that the system had to give to 50 steps of 8 MB, after 2 that made the heap. In a process of
# its own: the heap is one.
STEPS = """
import resource, torch
from bench.engine.process import keep_freed_memory
keep_freed_memory()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step(): return [torch.ones(2**21) for _ in range(4)]
step(), step()
before = faults()
for _ in range(50): step()
print(faults() - before)
"""


class Library:
    """A C library that maps what it is told, glibc or another one."""

    def __init__(self, is_glibc: bool) -> None:
        if is_glibc:
            self.gnu_get_libc_version = str

    def mallopt(self, option: int, value: int) -> int:
        return 1


@pytest.mark.parametrize("is_glibc", [True, False])
def test_only_glibc_is_told_to_keep_memory(is_glibc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.sys, "platform", "linux")
    monkeypatch.setattr(process.ctypes, "CDLL", lambda name: Library(is_glibc))
    assert keep_freed_memory.__wrapped__() is is_glibc


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
@pytest.mark.slow
def test_steps_ask_for_no_pages_again() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", STEPS], capture_output=True, text=True, check=True
    )
    assert int(answer.stdout) < 5 * 8192, "pages of five steps at most, for 50"
