"""What folders hold, as page and figures take it: runs and curves of one or several, and their leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.stored.under_way import no_results
from leaderboards.frames import by_run, records
from leaderboards.schema import hyperparameter_columns

if TYPE_CHECKING:
    from leaderboards.folders import Folders

Run = Mapping[str, Any]  # a row of `runs`; empty values are None
Record = Mapping[str, Any]  # a row of the leaderboard; likewise


@dataclass(frozen=True)
class Results:
    """The content of some folders, as read.

    Args:
        folders: where from.
        runs: one per run key, in the order of their end.
        records: the rows of the leaderboard, each with `runs`, those of its configuration that it counts in whatever
            status, by seed, and `run_of_seed`, the finished ones of them.
    """

    folders: Folders
    runs: tuple[Run, ...]
    records: tuple[Record, ...]

    @cached_property
    def curves(self) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
        """Run key -> metric -> round -> value."""
        return by_run(self.folders.curves())


def read(outs: Sequence[Path]) -> Results:
    """Read result folders.

    Raises:
        UsageError: there is no run in any of them.
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
    """
    from leaderboards.boards import current, leaderboard
    from leaderboards.folders import Folders

    folders = Folders(outs)
    frame = folders.runs()
    frame = frame.drop(columns=hyperparameter_columns(frame.columns))  # `hp_json` has them
    if frame.empty:
        raise no_results(outs)
    runs = sorted(records(frame), key=lambda run: (run["finished"], run["run_key"]))
    counting = set(current(frame)["run_key"])
    members: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        if run["run_key"] in counting:
            members.setdefault(_configuration(run), []).append(run)
    board = [_with_runs(record, members[_configuration(record)]) for record in records(leaderboard(frame))]
    return Results(folders, tuple(runs), tuple(board))


def _with_runs(record: dict[str, Any], runs: Sequence[Run]) -> Record:
    finished = {run["seed"]: run for run in runs if run["status"] == "finished"}
    return record | {"runs": tuple(sorted(runs, key=lambda run: run["seed"])), "run_of_seed": finished}


def _configuration(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["algorithm"], row["hp_json"], row["setting_json"]
