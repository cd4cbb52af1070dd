"""What a training process settles for itself: threads, and memory that it keeps while it trains, then gives back."""

from __future__ import annotations

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


@glibc
def test_steps_ask_for_no_pages_again_and_the_heap_is_given_back() -> None:
    answer = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    kept, pages, given_back = answer.stdout.split()
    assert kept == "True"
    assert int(pages) < 5 * 8192, "pages of five steps at most, for 50"
    assert float(given_back) > 700


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    process.keep_freed_memory.cache_clear()
    monkeypatch.setattr(process, "_glibc", lambda: None)
    assert not process.keep_freed_memory()
    process.give_back_memory()
    process.keep_freed_memory.cache_clear()
