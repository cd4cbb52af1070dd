"""Joules, from the counters of the device itself: NVML's of a GPU, RAPL's of a processor where it may be read."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.perf.measure import Spent, figure, timed

POWERCAP = Path("/sys/class/powercap")
LEAST_SECONDS = {"cpu": 0.0, "cuda": 1.0}  # a GPU's counter moves some tens of times in a second
MOST_WATTS = 1_000.0  # of a processor package, generously: how soon its counter may be full
_NVML = "libnvidia-ml.so.1"


class NoCounter(Exception):
    """The device reports no energy; the message says why."""


class Energy:
    """The energy that a device takes while work runs.

    Args:
        device: `cpu` or `cuda`.
    """

    def __init__(self, device: str) -> None:
        self.reason, self._least = "", LEAST_SECONDS[device]
        self._spent: Callable[[], float] | None = None
        self._now = self._before = 0.0
        try:
            self._spent = _gpu() if device == "cuda" else _packages(POWERCAP)
            self._now = self._before = self._spent()
        except NoCounter as reason:
            self._give_up(reason)
        self._began = time.perf_counter()

    def timed(self, action: Callable[[], object], synchronise: Callable[[], object]) -> Spent:
        """As `measure.timed`; the counter is read afterwards, for one that is full begins again."""
        spent = timed(action, synchronise)
        self._read()
        return spent

    def of(self, samples: int) -> dict[str, Any]:
        """Since this object was made: joules, and joules a sample; or `left_out` with the reason.

        Args:
            samples: trained since then.
        """
        self._read()
        if self._spent is None:
            return {"left_out": self.reason}
        joules, seconds = self._now - self._before, time.perf_counter() - self._began
        if seconds < self._least:
            reason = f"{seconds:.2g} s are too short for its counter, which needs {self._least:g}: take more --rounds"
            return {"left_out": f"not reported: {reason}"}
        return {"joules": figure([joules], "J"), "per_sample": figure([joules / samples], "J")}

    def _read(self) -> None:
        if self._spent is None:
            return
        try:
            self._now = self._spent()
        except NoCounter as reason:
            self._give_up(reason)

    def _give_up(self, reason: NoCounter) -> None:
        self.reason, self._spent = f"not reported: {reason}", None


def _gpu() -> Callable[[], float]:
    """Joules since the driver was loaded, of the GPU that torch uses.

    Raises:
        NoCounter: NVML is not here, or this GPU does not count.
    """
    import torch

    try:
        nvml: Any = ctypes.CDLL(_NVML)
    except OSError:
        raise NoCounter(f"{_NVML} is not here") from None
    handle = ctypes.c_void_p()
    name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
        raise NoCounter("NVML does not know this GPU")

    def spent() -> float:
        millijoules = ctypes.c_ulonglong()
        if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)):
            raise NoCounter("this GPU counts no energy")
        return millijoules.value / 1e3

    return spent


def _packages(root: Path) -> Callable[[], float]:
    """Joules of all processor packages since now.

    Raises:
        NoCounter: there are no counters, or they may not be read.
    """
    # Zones within a package, and those of the whole platform, would count its joules again.
    named = [file for file in sorted(root.glob("intel-rapl:*/name")) if file.read_text().startswith("package")]
    if not named:
        raise NoCounter(f"no RAPL counters in {root}")
    counters = [_Counter(file.parent) for file in named]
    return lambda: sum(counter.joules() for counter in counters)


class _Counter:
    """One package's counter, which begins again at 0 when it is full."""

    def __init__(self, zone: Path) -> None:
        self._file = zone / "energy_uj"
        self._size = self._number(zone / "max_energy_range_uj")
        self._last, self._read = self._number(self._file), time.perf_counter()
        self._total = 0

    def joules(self) -> float:
        """Since this object was made.

        Raises:
            NoCounter: it cannot be read, or so long after the last reading that it may have begun again unseen.
        """
        now, read = self._number(self._file), time.perf_counter()
        if (read - self._read) * MOST_WATTS >= self._size / 1e6:
            raise NoCounter(f"{self._file} may have been full more than once in a round of {read - self._read:.0f} s")
        self._total += (now - self._last) % self._size
        self._last, self._read = now, read
        return self._total / 1e6

    def _number(self, file: Path) -> int:
        try:
            return int(file.read_text())
        except (OSError, ValueError) as error:
            raise NoCounter(f"{file} cannot be read ({getattr(error, 'strerror', None) or error})") from None
