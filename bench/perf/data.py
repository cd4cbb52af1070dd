"""Benchmarks of data work: preparing and loading CIFAR-10, and drawing every partition."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from bench.data import MissingData, file_loaders
from bench.data.partition import PARTITIONS, Wanted
from bench.data.vision import CIFAR10
from bench.errors import EnvironmentProblem, UsageError
from bench.perf.measure import Record, Say, seconds_of, timed
from leaderboards.shell_text import shell_command

# Targets.
PREPARE_SECONDS = 3.0
LOAD_SECONDS = 0.5
CLASSES = 10  # of equal size, as those of CIFAR-10
# So large that every rule accepts its first draw, which alone is timed on every machine.
ALPHA = 10.0
WRITERS = 20  # of each client: the smaller size has as many as by_writer_2000 draws
# Samples, clients, target in seconds.
SIZES = {"small": (50_000, 100, 0.2), "large": (1_000_000, 10_000, 3.0)}
# FedGen requires ten samples per class and client, which would be all samples of the large size;
# 2,000 writers suffice for 2,000 clients at most; FedProto's clients have some 420 samples each.
FEWER = {
    ("fedgen", "large"): 5_000,
    ("by_writer_2000", "large"): 2_000,
    ("fedproto", "small"): 50,
    ("fedproto", "large"): 2_000,
}


def measure_data(record: Record, folder: Path, repetitions: int, say: Say) -> None:
    """Time CIFAR-10, if its files are here, and every partition at each of `SIZES`.

    The record gets `cifar10` and, by size and name, `partitions`: figures, or `left_out` with the
    reason.
    """
    say(f"data: preparing {CIFAR10.title}, {repetitions} repetitions")
    record[CIFAR10.name] = preparation(folder, repetitions)
    record["partitions"] = {}
    for size, (samples, clients, _) in SIZES.items():
        counts = f"{samples:,} samples over {clients:,} clients"
        say(f"data: partitions of {counts}, {repetitions} repetitions")
        figures = {name: partition(name, size, repetitions) for name in PARTITIONS}
        record["partitions"][size] = figures


def preparation(folder: Path, repetitions: int) -> Record:
    """Time reading CIFAR-10's original files into a prepared copy, and loading that copy.

    Raises EnvironmentProblem if a file is not the published one, or the copy cannot be kept.
    """
    prepared = []
    loaded = []
    try:
        for _ in range(repetitions):
            # An empty folder of prepared copies instead of the user's.
            with (
                tempfile.TemporaryDirectory() as place,
                mock.patch.dict(os.environ, XDG_CACHE_HOME=place),
            ):
                prepared.append(timed(lambda: CIFAR10.read(folder)))
                if not (CIFAR10.place() / file_loaders.META).is_file():
                    raise EnvironmentProblem(
                        f"{place} cannot keep the prepared copy; "
                        "set TMPDIR to a folder with 200 MB free"
                    )
                loaded.append(timed(lambda: CIFAR10.read(folder)))
    except MissingData as reason:
        command = shell_command("bench.data", "prepare", CIFAR10.name, "--data-dir", folder)
        return {"left_out": f"not here: {reason}; {command} brings it"}
    return {
        "prepare": seconds_of(prepared, PREPARE_SECONDS),
        "load": seconds_of(loaded, LOAD_SECONDS),
    }


def partition(name: str, size: str, repetitions: int) -> Record:
    """Time a single draw of one partition; the record includes the request."""
    samples, clients, limit = SIZES[size]
    clients = FEWER.get((name, size), clients)
    entry = PARTITIONS[name]
    groups = {"source": clients, "writer": WRITERS * clients}.get(entry.groups)
    wanted = Wanted(
        np.random.RandomState(0).permutation(np.arange(samples) % CLASSES),
        clients,
        alpha=ALPHA if entry.needs_alpha else None,
        groups=np.arange(samples) % groups if groups else None,
        max_tries=1,
    )
    request = {"samples": samples, "num_clients": clients, "alpha": wanted.alpha}

    def draw() -> None:
        entry.function(wanted, np.random.RandomState(0))

    try:
        times = [timed(draw) for _ in range(repetitions + 1)]
    except UsageError as reason:
        return {**request, "left_out": str(reason)}
    return {**request, **seconds_of(times[1:], limit)}
