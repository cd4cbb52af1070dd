"""The device, cores and memory that a trial takes."""

from __future__ import annotations

import ctypes
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bench import machine
from bench.errors import UsageError
from bench.machine import cpu_count, largest_resident, packs_train_together, resolve_device

NO_GPU = "no CUDA GPU is visible here; leave it out to run on the CPU"


@pytest.mark.parametrize(
    ("device", "share", "remote", "gpus", "resolved"),
    [
        ("auto", None, False, 0, "cpu"),
        ("auto", None, False, 1, "cuda"),
        ("auto", None, True, 1, "cpu"),
        ("auto", 0.5, True, 0, "cuda"),
        ("auto", 0.5, False, 1, "cuda"),
        ("auto", 0.0, False, 1, "cpu"),
        ("cpu", None, False, 1, "cpu"),
        ("cpu", 0.0, False, 1, "cpu"),
        ("cuda", None, False, 1, "cuda"),
        ("cuda", None, True, 0, "cuda"),
        ("cuda", 1.0, False, 2, "cuda"),
    ],
)
def test_a_device_follows_from_what_is_asked(
    device: str,
    share: float | None,
    remote: bool,
    gpus: int,
    resolved: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "count_gpus", lambda: gpus)
    assert resolve_device(device, share, remote) == resolved


@pytest.mark.parametrize(
    ("device", "share", "gpus", "problem"),
    [
        ("cuda", None, 0, f"--device cuda: {NO_GPU}"),
        ("auto", 0.25, 0, f"--gpus-per-trial 0.25: {NO_GPU}"),
        ("cpu", 0.5, 1, "--device cpu and --gpus-per-trial 0.5 exclude each other: give one"),
        ("cuda", 0.0, 1, "--device cuda needs --gpus-per-trial above 0, got 0"),
    ],
)
def test_a_device_that_cannot_be_is_refused(
    device: str, share: float | None, gpus: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "count_gpus", lambda: gpus)
    with pytest.raises(UsageError) as refused:
        resolve_device(device, share)
    assert str(refused.value) == problem


class Driver:
    """A driver that counts three GPUs, if it can be initialised."""

    def __init__(self, status: int) -> None:
        self.status = status

    def cuInit(self, flags: int) -> int:
        """Take no flags."""
        assert flags == 0
        return self.status

    def cuDeviceGetCount(self, count: Any) -> None:
        """Write the count."""
        count._obj.value = 3


@pytest.mark.parametrize(("status", "count"), [(0, 3), (100, 0)])
def test_the_driver_counts_gpus(status: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(status))
    assert machine.count_gpus() == count


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", lacking)
    assert machine.count_gpus() == 0


@pytest.mark.parametrize(
    ("device", "backend", "together"),
    [
        ("cpu", "stacked", True),
        ("cuda", "stacked", True),
        ("cuda", "auto", True),
        ("cpu", "auto", False),
        ("cuda", "loop", False),
    ],
)
def test_stacks_train_packs_together(device: str, backend: str, together: bool) -> None:
    assert packs_train_together(device, backend) is together


@pytest.mark.parametrize(("system", "size"), [("darwin", 7), ("linux", 7 * 1024)])
def test_memory_is_counted_in_bytes(
    system: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    used: Any = SimpleNamespace(ru_maxrss=7)
    assert largest_resident(used) == size


def test_cores_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0: {1, 2, 5}}[process])
    assert cpu_count() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    for counted, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda counted=counted: counted)
        assert cpu_count() == cores
