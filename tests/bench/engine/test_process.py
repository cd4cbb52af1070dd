"""Memory that a training process keeps while it trains."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

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


class Asked(Library):
    """A glibc that grants some sizes, and notes what it is asked for."""

    def __init__(self, *granted: int) -> None:
        super().__init__(is_glibc=True)
        self.granted = granted
        self.asked: list[tuple[int, int]] = []

    def mallopt(self, option: int, value: int) -> int:
        self.asked.append((option, value))
        return int(value in self.granted)


MAPPED = (-3, 2**30)  # M_MMAP_THRESHOLD of <malloc.h>
TRIMMED = (-1, -1)  # M_TRIM_THRESHOLD


@pytest.mark.parametrize(
    ("granted", "asked", "keeps"),
    [
        ((2**30, -1), [MAPPED, TRIMMED], True),
        ((2**25, -1), [MAPPED, (-3, 2**25), TRIMMED], True),
        ((2**30,), [MAPPED, TRIMMED], False),
        ((), [MAPPED, (-3, 2**25)], False),
    ],
)
def test_memory_is_kept_as_far_as_it_is_granted(
    granted: tuple[int, ...],
    asked: list[tuple[int, int]],
    keeps: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = Asked(*granted)
    monkeypatch.setattr(process.sys, "platform", "linux")
    monkeypatch.setattr(process.ctypes, "CDLL", lambda name: library)
    assert keep_freed_memory.__wrapped__() is keeps
    assert library.asked == asked
    monkeypatch.setattr(process.sys, "platform", "darwin")
    assert keep_freed_memory.__wrapped__() is False


def test_a_process_has_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(process, "keep_freed_memory", lambda: kept.append(1))
    process.prepare_process(2)
    assert (torch.get_num_threads(), kept) == (2, [1])


@pytest.mark.parametrize(
    ("device", "precision", "matrices", "convolutions"),
    [
        ("cuda", "tf32", "high", True),
        ("cuda", "fp32", "highest", False),
        ("cpu", "tf32", "medium", None),
    ],
)
def test_a_precision_holds_within_its_block(
    device: str,
    precision: str,
    matrices: str,
    convolutions: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.get_float32_matmul_precision()
    allowed = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("medium")
    try:
        with process.float32_products(torch.device(device), precision):
            assert torch.get_float32_matmul_precision() == matrices
            expected = allowed if convolutions is None else convolutions
            assert torch.backends.cudnn.allow_tf32 is expected
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("any text"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDNN_STATUS_ALLOCATION_FAILED"), True),
        (RuntimeError("unable to find an engine"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_that_mean_out_of_memory(error: Exception, is_memory: bool) -> None:
    assert process.is_out_of_memory(error) is is_memory


@pytest.mark.parametrize("is_used", [True, False])
def test_memory_of_a_gpu_in_use_is_given_back(
    is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_used)
    monkeypatch.setattr(process.gc, "collect", lambda: done.append("collected"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: done.append("reset"))
    process.release_gpu()
    assert done == (["collected", "emptied", "reset"] if is_used else [])


@pytest.mark.slow
@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_steps_ask_for_no_pages_again() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", STEPS], capture_output=True, text=True, check=True
    )
    assert int(answer.stdout) < 5 * 8192, "pages of five steps at most, for 50"
