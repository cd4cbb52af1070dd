"""The saved states below OUT/state: runs that are at work, and states that can be taken up.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithms.entry_points import names_of_rows
from bench.errors import UsageError
from bench.execution import STATE_VERSION, default_out
from bench.identity import setting_of
from bench.planning.request import find_algorithm
from bench.planning.run_spec import RunSpec
from bench.stored.names import named_runs
from bench.terminal.words import counted
from leaderboards.shell_text import shell_command

OTHER_VERSION = "other version"

_DAMAGED: dict[str, Any] = {}  # nothing that a state has to say


@dataclass(frozen=True)
class Standing:
    """How a run stands.

    Args:
        status: of its row; or `running`, `saved`, `damaged`, `missing`, and `other version`, of a state that only that
            version of the suite or the algorithm can go on from.
        saved_round: of a state that can be taken up.
        before: status of its row, where it runs again.
    """

    status: str
    saved_round: int | None = None
    before: str | None = None


@dataclass(frozen=True)
class UnderWay:
    """The states of a result folder, by run key.

    Args:
        manifests: what each state says of itself; nothing where that cannot be read.
        running: keys of runs that some sweep on this machine is at.
    """

    manifests: Mapping[str, Any]
    running: frozenset[str]

    def standing(self, key: str, status: str) -> Standing:
        """Tell how a run stands whose row says `status`; `missing` where it has none."""
        manifest = self.manifests.get(key)
        if status == "finished" or (manifest is None and key not in self.running):
            return Standing(status)
        at = None if manifest is None else _round(manifest)
        if key in self.running:
            return Standing("running", at, None if status == "missing" else status)
        if at is None:
            return Standing("damaged")
        if not _ours(key, manifest):
            return Standing(OTHER_VERSION if status == "missing" else status)
        return Standing("saved" if status == "missing" else status, at)


def under_way(out: Path) -> UnderWay:
    """List the saved and the claimed runs of a result folder."""
    claims = sorted((out / "state").glob("*.lock"))
    running = frozenset(file.stem for file in claims if len(file.stem) == 64 and _held(file))
    return UnderWay(_manifests(out), running)


def count_saved(out: Path, keys: Collection[str] | None) -> int:
    """Count the runs of these keys, or all if None, whose state has a finished round."""
    return sum(bool(_round(found)) for key, found in _manifests(out).items() if keys is None or key in keys)


def no_results(folders: Sequence[Path]) -> UsageError:
    """Make the error of folders, or files of rows, none of which holds a run."""
    names = ", ".join(map(str, folders))
    saved = {folder: count for folder in folders if (count := count_saved(folder, None))}
    if saved:
        lists = " and ".join(f"`{shell_command('bench.status', '--out', folder)}`" for folder in saved)
        return UsageError(
            f"no results in {names}: {counted(sum(saved.values()), 'run')} saved, none ended; the command that began "
            f"goes on with them, {lists} says more"
        )
    folder = next((folder for folder in folders if not folder.is_file() and not folder.suffix), default_out())
    makes = shell_command("bench.sweep", "--algo", "fedavg,fedprox", "--dataset", "digits", "--out", folder)
    return UsageError(f"no results in {names}: run `{makes}` first, or name another folder with --out")


def _manifests(out: Path) -> dict[str, Any]:
    """Run key -> what its state says of itself; `_DAMAGED` where that cannot be read."""
    manifests: dict[str, Any] = {}
    for file in sorted((out / "state").glob("*/manifest.json")):
        try:
            manifests[file.parent.name] = json.loads(file.read_text()) or _DAMAGED
        except FileNotFoundError:  # finished meanwhile
            continue
        except (OSError, ValueError, RecursionError):
            manifests[file.parent.name] = _DAMAGED
    return manifests


def whose(manifest: Any) -> Mapping[str, Any] | None:
    """The columns that name a saved run (`RunSpec.named_by`); None where its state does not say, or is damaged."""
    try:
        told = manifest["run"]
        run = {name: told[name] for name in ("algorithm", "setting_json", "hp_json")} | {"seed": int(told["seed"])}
        list(named_runs([run]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return run


def _round(manifest: Any) -> int | None:
    """The round that was saved; None of what is damaged."""
    try:
        return int(manifest["round"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _held(file: Path) -> bool:
    """Tell whether a sweep has claimed the run: its process holds the lock while it lives, the file may stay behind."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a folder that is only to be read
        return False


def _ours(key: str, manifest: Any) -> bool:
    """Tell whether the version that is installed here makes this run under this key, and reads its state.

    Of an algorithm or a data set that is not installed here nothing is known: it may be elsewhere.
    """
    run = whose(manifest)
    if manifest.get("version") != STATE_VERSION:
        return False
    if run is None:
        return True
    try:
        with names_of_rows():
            find_algorithm(run["algorithm"])
            unit = RunSpec(run["algorithm"], json.loads(run["hp_json"]), setting_of(run["setting_json"]), run["seed"])
            return unit.key == key
    except UsageError:
        return True
    except (ValueError, KeyError, TypeError):  # values that it does not take, or others that it asks for
        return False
