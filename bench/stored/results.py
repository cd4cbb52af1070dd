"""What folders hold, as page and figures take it: runs and curves of one or several, and their leaderboard."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
        records: the rows of the leaderboard, each with `runs`, those of its configuration, and `seeds`, the finished
            ones of them that it counts, by seed.
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
    members: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        members.setdefault(_configuration(run), []).append(run)
    counting = set(current(frame)["run_key"])
    board = [_with_runs(record, members[_configuration(record)], counting) for record in records(leaderboard(frame))]
    return Results(folders, tuple(runs), tuple(board))


def _with_runs(record: dict[str, Any], runs: Sequence[Run], counting: Collection[str]) -> Record:
    # As in the leaderboard: of two finished runs of one seed the later.
    seeds = {run["seed"]: run for run in runs if run["status"] == "finished" and run["run_key"] in counting}
    return record | {"runs": tuple(sorted(runs, key=lambda run: run["seed"])), "seeds": seeds}


def _configuration(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["algorithm"], row["hp_json"], row["setting_json"]
