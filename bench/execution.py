"""`Execution`: how and where runs are trained, which is never part of their identity."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leaderboards.selection import DEFAULT_RULE

BACKENDS = ("auto", "loop", "stacked")
# Data that a run can keep besides its row and curve of the evaluated models; `bench.artifacts` has
# the files.
TRACKS = {
    "local": "accuracy of the clients' own models, every evaluated round",
    "classes": (
        "accuracy by class: of the evaluated model every evaluated round, "
        "of the clients' own at the end"
    ),
    "features": "penultimate features of 1,000 test samples at the end",
    "models": "the final model",
    "drift": (
        "gradients of the clients' losses and distances of their models, every evaluated round"
    ),
    "message": (
        "small tensors that the server sends (FedCAD's class weights), every evaluated round"
    ),
}
# Tools for `--log`; `bench.executors.logs` has one class for each.
LOGS = {
    "tensorboard": "event files in OUT/logs/tensorboard",
    "wandb": "Weights & Biases; offline in OUT/logs/wandb",
    "mlflow": "$MLFLOW_TRACKING_URI, else OUT/logs/mlflow/mlflow.db",
}


@dataclass(frozen=True)
class Execution:
    """The place and means of runs, and what is kept of them.

    It has plain values, because workers get it pickled.

    Args:
        out: results folder, absolute.
        data_dir: folder of the data sets, or None for the usual places.
        offline: never touch the network.
        device: `cpu` or `cuda`.
        backend: `auto`, `loop` or `stacked`.
        threads: of each trial, which has as many cores.
        chosen_by: rule of `leaderboards.selection.RULES` by which configurations are compared.
        select_on: of `leaderboards.selection.PROTOCOLS`, on whose samples; None is each setting's.
        force: repeat runs that are finished.
        keep_stopped: do not go on with runs that a scheduler stopped before.
        rounds_per_report: reports come after multiples of it; 0 reports about every second.
        report_curves: reports carry the new points of the curves, which `--log` writes.
        save_seconds: least time between two saves of the state, unless the run is interrupted.
        track: names of `TRACKS`.
        stop_file: when this file exists, trials end their round, save and return; an evaluation
            that takes long is given up with its round.
        notice_file: workers append the suite's own warnings to it; None for stderr.
        data_hashes: data set -> hash of the data at hand; rows of other data are not stored ones.
        certified: the algorithms from outside that passed the self-test's quick part.
        provenance: columns that are the same for all rows, such as command and commit.
        executor: `ray` or `inline`.
        concurrent: trials at once; None for as many as fit.
        gpus: share of a GPU of each trial.
        pack: most runs of a trial.
        address: of an existing Ray cluster; None starts Ray here.
        time_budget: seconds after which the sweep stops as if interrupted; None for no limit.
        verbose: show Ray's own messages on stderr.
    """

    out: str
    data_dir: str | None = None
    offline: bool = False
    device: str = "cpu"
    backend: str = "auto"
    threads: int = 1
    chosen_by: str = DEFAULT_RULE
    select_on: str | None = None
    force: bool = False
    keep_stopped: bool = False
    rounds_per_report: int = 0
    report_curves: bool = False
    save_seconds: float = 15.0
    track: tuple[str, ...] = ()
    stop_file: str | None = None
    notice_file: str | None = None
    data_hashes: Mapping[str, str] = field(default_factory=dict)
    certified: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    executor: str = "ray"
    concurrent: int | None = None
    gpus: float = 0.0
    pack: int = 1
    address: str | None = None
    time_budget: float | None = None
    verbose: bool = False

    @property
    def stopping(self) -> bool:
        """Return whether trials have to end."""
        return self.stop_file is not None and Path(self.stop_file).exists()


def default_out() -> Path:
    """Return `$FEDKD_OUT`, else `leaderboards` under the working folder."""
    return Path(os.environ.get("FEDKD_OUT") or "leaderboards")


def are_enough(statuses: Iterable[str | None], stopped: bool) -> bool:
    """Tell whether a run whose rows have these statuses need not be run; None is no row.

    `stopped`: runs that a scheduler stopped count as well.
    """
    enough = {"finished", "stopped"} if stopped else {"finished"}
    return enough.issuperset(statuses)
