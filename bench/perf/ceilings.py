"""What the machine can do at most, measured: products of matrices, by either library that torch has, and copies.

On a processor `torch.mm` may be far slower than the convolutions are: its library picks instructions by vendor. So
products are measured as 1x1 convolutions, too, and the faster of the two is the ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.engine.simulation import set_precision
from bench.errors import UsageError
from bench.perf.measure import Figure, figure, nothing, timed

SIZES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}  # of square matrices
IMAGES, SIDE = 32, 16  # a convolution's batch, and its rows and columns; of few images torch takes slower code
COPIED = {"cpu": 2**28, "cuda": 2**30}  # bytes, far beyond any cache
TURNS = 5  # of which the best counts: a ceiling is what was reached once
LEAST_SECONDS = 0.02  # of a turn, so that launches and clocks do not count


def synchroniser(device: str) -> Callable[[], object]:
    """What waits for the device, unless its work is being captured, which has no time."""
    return _wait if device == "cuda" else nothing


def _wait() -> None:
    if not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def check_precision(device: str, precision: str) -> None:
    """Raise UsageError where a device does not compute in it."""
    if not _computes(device, precision):
        raise UsageError("TF32 is a GPU's: a CPU has none")


def _computes(device: str, precision: str) -> bool:
    return device == "cuda" or precision != "tf32"


def measure_ceilings(device: str, precisions: Sequence[str]) -> dict[str, Any]:
    """The matrix peak of each precision, and the copy rate, with the threads that training has.

    Returns:
        `matrix`: FLOP/s by each precision that the device has; `copy`: bytes/s, those read and those written both
        counted. Each figure is the best turn's.
    """
    return {
        "matrix": {name: matrix_peak(device, name) for name in precisions if _computes(device, name)},
        "copy": copy_rate(device),
    }


def matrix_peak(device: str, precision: str) -> Figure:
    """The most FLOP/s of a product of square matrices, of the best of `SIZES`."""
    set_precision(precision, torch.device(device))
    rates = []
    for size in SIZES[device]:
        for work, flops in (_product(size, device, precision), _convolution(size, device, precision)):
            rates.append(flops / _best(work, device))
    return figure([max(rates)], "FLOP/s")


def _product(size: int, device: str, precision: str) -> tuple[Callable[[], object], float]:
    """A product of square matrices, and its operations."""
    a, b = (_drawn((size, size), device, precision) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out), 2.0 * size**3


def _convolution(size: int, device: str, precision: str) -> tuple[Callable[[], object], float]:
    """A 1x1 convolution of size / 4 channels, the product of a long and a square matrix, and its operations."""
    channels = max(1, size // 4)
    x = _drawn((IMAGES, channels, SIDE, SIDE), device, precision).contiguous(memory_format=torch.channels_last)
    weight = _drawn((channels, channels, 1, 1), device, precision)
    return lambda: F.conv2d(x, weight), 2.0 * x.numel() * channels


def copy_rate(device: str) -> Figure:
    """The most bytes/s of a copy within the device's memory, `COPIED` bytes of it."""
    source = torch.ones(COPIED[device] // 4, device=device)
    target = torch.empty_like(source)
    return figure([2 * source.nbytes / _best(lambda: target.copy_(source), device)], "B/s")


def _drawn(shape: tuple[int, ...], device: str, precision: str) -> Tensor:
    """Numbers like those of a network: of zeros a GPU's products take less power, and less time.

    They are drawn on the CPU. A GPU's own generator fails in some versions of torch after a capture that failed.
    """
    return torch.randn(shape).to(device, _dtype(precision))


def _dtype(precision: str) -> torch.dtype:
    return {"fp64": torch.float64, "bf16": torch.bfloat16}.get(precision, torch.float32)


def _best(action: Callable[[], object], device: str) -> float:
    """The least seconds of one call, from turns long enough to be timed."""
    wait = synchroniser(device)
    timed(action, wait)  # loads kernels
    once = max(timed(action, wait).seconds, 1e-7)
    calls = max(1, round(LEAST_SECONDS / once))

    def turn() -> None:
        for _ in range(calls):
            action()

    return min(timed(turn, wait).seconds for _ in range(TURNS)) / calls


def bound(ceilings: Mapping[str, Any], precision: str, flops: float, traffic: float) -> tuple[str, float]:
    """What limits the samples/s of work, and to how many.

    Args:
        ceilings: of `measure_ceilings`.
        precision: of the work.
        flops: of a sample.
        traffic: bytes of a sample.

    Returns:
        `arithmetic` or `bandwidth`, whichever allows less, and the samples/s that it allows.
    """
    limits = {
        "arithmetic": ceilings["matrix"][precision]["median"] / flops,
        "bandwidth": ceilings["copy"]["median"] / traffic,
    }
    tighter = min(limits, key=lambda name: limits[name])
    return tighter, limits[tighter]
