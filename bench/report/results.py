"""What the page is made of: the runs and curves of one or several folders, and their leaderboard."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UsageError
from leaderboards import Store

if TYPE_CHECKING:
    import pandas as pd

Run = Mapping[str, Any]  # a row of `runs`; empty values are None
Record = Mapping[str, Any]  # a row of the leaderboard; likewise


class Folders(Store):
    """Several result folders, read as if they were one.

    Args:
        outs: the folders; of two rows of one key the first finished counts, as within one folder.
    """

    def __init__(self, outs: Sequence[Path]) -> None:
        super().__init__(outs[0])
        self._stores = [Store(out) for out in outs]

    def runs(self, replicates: bool = False) -> pd.DataFrame:
        """As `Store.runs`, read once, without the `hp_*` columns (`hp_json` has them)."""
        return self._runs if not replicates else self._read(True)

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """As `Store.curves`, each run's from the folder that its row is from, read once."""
        curves = self._curves
        return curves if keys is None else curves[curves["run_key"].isin(list(keys))]

    @cached_property
    def _runs(self) -> pd.DataFrame:
        runs = self._read(False)
        time = runs["finished"].astype("int64")
        done = runs["status"] == "finished"
        order = runs.assign(late=~done, when=time.where(done, -time)).sort_values(["late", "when"], kind="stable")
        return runs.loc[order.drop_duplicates("run_key").index.sort_values()].reset_index(drop=True)

    @cached_property
    def _curves(self) -> pd.DataFrame:
        import pandas as pd

        runs, found = self._runs, []
        for store in self._stores:
            keys = runs.loc[runs["out"] == str(store.out), "run_key"].tolist()
            found.append(store.curves(set(keys)))
        return pd.concat(found, ignore_index=True)

    def _read(self, replicates: bool) -> pd.DataFrame:
        import pandas as pd

        from leaderboards.schema import hyperparameter_columns

        frames = [store.runs(replicates).assign(out=str(store.out)) for store in self._stores]
        frames = [frame.drop(columns=hyperparameter_columns(frame.columns)) for frame in frames]
        filled = [frame for frame in frames if len(frame)] or frames[:1]
        return pd.concat(filled, ignore_index=True)


@dataclass(frozen=True)
class Results:
    """Everything that the page shows, as read.

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
        found: dict[str, dict[str, dict[int, float]]] = {}
        frame = self.folders.curves().dropna(subset=["value"])
        columns = (frame[name].tolist() for name in ("run_key", "metric", "round", "value"))
        for key, metric, at, value in zip(*columns, strict=True):
            found.setdefault(key, {}).setdefault(metric, {})[at] = value
        return found


def read(outs: Sequence[Path]) -> Results:
    """Read result folders.

    Raises:
        UsageError: there is no run in any of them.
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
    """
    from leaderboards.boards import leaderboard

    folders = Folders(outs)
    frame = folders.runs()
    if frame.empty:
        names = ", ".join(str(out) for out in outs)
        raise UsageError(
            f"no results in {names}: run `python -m bench.sweep --algo fedavg,fedprox --dataset digits "
            f"--out {outs[0]}` first, or name another folder with --out"
        )
    runs = sorted(_rows(frame), key=lambda run: (run["finished"], run["run_key"]))
    members: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        members.setdefault(_configuration(run), []).append(run)
    records = [_with_runs(record, members[_configuration(record)]) for record in _rows(leaderboard(frame))]
    return Results(folders, tuple(runs), tuple(records))


def _with_runs(record: dict[str, Any], runs: Sequence[Run]) -> Record:
    # Of two finished runs of one seed, from two versions of the algorithm, the later counts, as in the leaderboard.
    seeds = {run["seed"]: run for run in runs if run["status"] == "finished"}
    return record | {"runs": tuple(sorted(runs, key=lambda run: run["seed"])), "seeds": seeds}


def _configuration(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["algorithm"], row["hp_json"], row["setting_json"]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    filled = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in filled.to_dict("records")]
