"""Counters and curves of a run so far."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from bench.engine.cohort import Traffic
from leaderboards.rows.checks import check_curve

MeasuredPoint = tuple[int, str, float]  # of a curve: round, metric, value
YEAR_9999 = 253_370_764_800.0  # seconds from 1970 to the last year that Python knows


@dataclass
class Progress:
    """The counters and results of a run so far.

    Args:
        curves: by row suffix, (round, metric, value) of every evaluated round.
        traffic: of all rounds.
        samples: training examples processed, each epoch counted.
        seconds: of computation, over all sessions of the run.
        diverged: whether a loss or a model stopped being finite, which ends the run.
        complaint: the round, client and name of that value.
        public_read: whether a client's hook has read the public samples.
        public_holders: the clients that have been sent these.
        started: seconds since 1970 (UTC).
    """

    curves: dict[str, list[MeasuredPoint]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    samples: int = 0
    seconds: float = 0.0
    diverged: bool = False
    complaint: str = ""
    public_read: bool = False
    public_holders: list[int] = field(default_factory=list)
    started: float = field(default_factory=time.time)


def progress_of(saved: Mapping[str, Any], rows: Collection[str], rounds: int) -> Progress:
    """Rebuild the progress in a saved state of a run that has made `rounds`.

    `rows` are the suffixes of the run's rows.

    Raises:
        TypeError: it lacks a counter, or has another one.
        ValueError: a counter or a curve has a value that no run gives it.
    """
    traffic = Traffic(**saved["traffic"])
    progress = Progress(**{**saved, "traffic": traffic})
    counters = {**asdict(traffic), "samples": progress.samples, "seconds": progress.seconds}
    for name, value in {**counters, "started": progress.started}.items():
        if type(value) not in (int, float) or not 0 <= value < inf:
            raise ValueError(f"its {name} is {value!r}")
    if progress.started >= YEAR_9999:
        raise ValueError(f"it began {progress.started!r} s after 1970")
    if type(progress.diverged) is not bool or type(progress.complaint) is not str:
        raise ValueError(f"it says of its divergence {progress.diverged!r}: {progress.complaint!r}")
    holders = progress.public_holders
    if type(progress.public_read) is not bool or not all(type(client) is int for client in holders):
        raise ValueError(f"it says of public samples {progress.public_read!r}: {holders!r}")
    for suffix, curve in progress.curves.items():
        if suffix not in rows:
            raise ValueError(f"it has a curve of the row {suffix!r}")
        check_curve(curve)
        if max((point[0] for point in curve), default=0) > rounds:
            raise ValueError(f"its curve has later rounds than its {rounds}")
    return progress
