"""Data work: preparing CIFAR-10 and loading what was prepared, and sharing samples out by every partition there is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.data import MissingData, cache
from bench.data.partition import PARTITIONS, Partition, Wanted
from bench.data.vision import CIFAR10
from bench.errors import EnvironmentProblem, UsageError
from bench.perf.measure import Spent, figure, timed
from leaderboards.commands import shell_command

PREPARE_SECONDS, LOAD_SECONDS = 3.0, 0.5  # targets
CLASSES = 10  # of equal size, as those of CIFAR-10
ALPHA = 10.0  # every rule accepts its first draw then, so a time is that of one draw on every machine
WRITERS = 20  # of each client: the smaller size has as many as by_writer_2000 draws


@dataclass(frozen=True)
class Size:
    """How much a partition shares out.

    Args:
        samples: N.
        clients: K.
        seconds: target.
    """

    samples: int
    clients: int
    seconds: float


SIZES = {"small": Size(50_000, 100, 0.2), "large": Size(1_000_000, 10_000, 3.0)}
# FedGen wants ten samples of each class for a client, which at the large size are all there are; and 2,000 writers are
# of 2,000 clients at most.
FEWER = {("fedgen", "large"): 5_000, ("by_writer_2000", "large"): 2_000}


def measure_data(folder: Path, repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """CIFAR-10, where its files are here, and every partition at each of `SIZES`.

    Args:
        folder: of data sets.
        repetitions: of everything; a partition has one more, not counted.
        say: told what is being done.

    Returns:
        `cifar10`: figures, or `left_out` with the reason; `partitions`: by size and name, with what was asked for.
    """
    say(f"data: preparing {CIFAR10.title}, {repetitions} repetitions")
    found: dict[str, Any] = {CIFAR10.name: _preparation(folder, repetitions), "partitions": {}}
    for title, size in SIZES.items():
        say(f"data: partitions of {size.samples:,} samples over {size.clients:,} clients, {repetitions} repetitions")
        found["partitions"][title] = {name: _partition(name, title, repetitions) for name in PARTITIONS}
    return found


def _preparation(folder: Path, repetitions: int) -> dict[str, Any]:
    try:
        turns = [_prepare_and_load(folder) for _ in range(repetitions)]
    except MissingData as reason:
        brings = shell_command("bench.data", "prepare", CIFAR10.name, "--data-dir", folder)
        return {"left_out": f"not here: {reason}; {brings} brings it"}
    prepared, loaded = zip(*turns, strict=True)
    return {"prepare": _figures(prepared, PREPARE_SECONDS), "load": _figures(loaded, LOAD_SECONDS)}


def _prepare_and_load(folder: Path) -> tuple[Spent, Spent]:
    """Read the original files and keep a copy, then read the copy.

    Raises:
        MissingData: a file is not in `folder`.
        EnvironmentProblem: a file is not the published one, or the copy cannot be kept.
    """
    with _other_cache() as place:
        prepared = timed(lambda: CIFAR10.read(folder))
        if not (CIFAR10.place() / cache.META).is_file():
            raise EnvironmentProblem(f"{place} cannot keep the prepared copy; set TMPDIR to a folder with 200 MB free")
        return prepared, timed(lambda: CIFAR10.read(folder))


@contextmanager
def _other_cache() -> Iterator[str]:
    """An empty folder of prepared copies instead of the user's, thrown away afterwards."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = place
        try:
            yield place
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def _partition(name: str, title: str, repetitions: int) -> dict[str, Any]:
    """One partition's times, and what was asked for."""
    entry, size = PARTITIONS[name], SIZES[title]
    wanted = _wanted(entry, size.samples, FEWER.get((name, title), size.clients))
    asked = {name: getattr(wanted, name) for name in ("num_clients", "alpha", "max_tries")} | {"samples": size.samples}
    try:
        turns = [timed(lambda: entry.function(wanted, np.random.RandomState(0))) for _ in range(repetitions + 1)]
    except UsageError as reason:
        return {**asked, "left_out": str(reason)}
    return {**asked, **_figures(turns[1:], size.seconds)}


def _wanted(entry: Partition, samples: int, clients: int) -> Wanted:
    """What is asked for: a single draw, which must do, so that times on two machines are of the same work."""
    labels = np.random.RandomState(0).permutation(np.arange(samples) % CLASSES)
    groups = {"source": clients, "writer": WRITERS * clients}.get(entry.groups)
    return Wanted(
        labels,
        clients,
        alpha=ALPHA if entry.needs_alpha else None,
        groups=np.arange(samples) % groups if groups else None,
        max_tries=1,
    )


def _figures(turns: Sequence[Spent], limit: float) -> dict[str, Any]:
    return {
        "seconds": figure([spent.seconds for spent in turns], "s", limit),
        "cpu_seconds": figure([spent.cpu_seconds for spent in turns], "s"),
    }
