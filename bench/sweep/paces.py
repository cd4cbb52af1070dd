"""The pace of this machine, for runs like which none is stored: measured once, and kept in the cache folder.

Imports neither torch nor ray: the measurement is a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from algorithms import entry
from bench import models, provenance
from bench.data import info
from bench.data.download import cache_dir
from bench.errors import UsageError
from bench.planning.cost_model import Pace
from bench.planning.packing import program_of
from bench.planning.run_spec import RunSpec
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards.rows.files import atomic_file

LIMIT = "FEDKD_MEASURE_SECONDS"
LIMIT_SECONDS = 20.0
_TOO_SHORT = "seconds_too_short"  # in the file of a program that was not measured in time


def measured_paces(units: Iterable[RunSpec], threads: int) -> dict[Hashable, Pace]:
    """`program_of(unit)` -> its pace on this machine's CPU; missing ones are measured now, and kept.

    A program that was not measured in time is tried again once it gets twice the time: from a larger limit, or because
    fewer programs share it. Programs that failed, or that the limit left no time for, are left out. Raises UsageError
    if `$FEDKD_MEASURE_SECONDS` is no number of seconds.
    """
    limit = _limit()
    distinct = {program_of(unit): unit for unit in units}
    kept = {program: _read(_file(unit, threads)) for program, unit in distinct.items()}
    missing = {program: unit for program, unit in distinct.items() if not isinstance(kept[program], Pace)}
    share = limit / max(1, len(missing))
    tried = {program for program in missing if isinstance(before := kept[program], float) and 2 * before > share}
    if tried and limit:
        count = counted(len(tried), "kind")
        say(f"{count} of runs could not be measured within {limit:g} s; {LIMIT} gives more")
    asked = sorted((unit for program, unit in missing.items() if program not in tried), key=_size)
    if asked and limit:
        say(f"measuring this machine for {counted(len(asked), 'kind')} of runs, once, in at most {limit:g} s")
        for unit, result in zip(asked, _measured(asked, threads, limit), strict=True):
            kept[program_of(unit)] = result
            if result is not None:
                _write(_file(unit, threads), asdict(result) if isinstance(result, Pace) else {_TOO_SHORT: result})
    return {program: pace for program, pace in kept.items() if isinstance(pace, Pace)}


def _size(unit: RunSpec) -> int:
    """Parameters of a unit's model times its batch size: what tells slow programs from fast ones, roughly."""
    data = info(unit.setting.dataset).sized(unit.setting.image_size)
    parameters = models.num_parameters(unit.setting.model, data.input_shape, data.num_classes)
    return parameters * unit.setting.batch_size


def _limit() -> float:
    given = os.environ.get(LIMIT) or str(LIMIT_SECONDS)
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise UsageError(f"{LIMIT} must be seconds, at least 0 (0 measures nothing), got {given!r}")
    return limit


def _measured(units: Sequence[RunSpec], threads: int, limit: float) -> list[Pace | float | None]:
    """Measure units in a process of its own: the pace of each, its share of a limit that passed, None if it failed."""
    asked = [[unit.algorithm, dict(unit.hyperparameters), unit.setting.as_dict()] for unit in units]
    folders = [path or str(Path.cwd()) for path in sys.path]
    left = None
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bench.engine.pace", str(threads)],
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            check=False,
        )
        out, why = done.stdout, f"because the measuring process ended with status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        out, why, left = error.stdout or b"", f"within {limit:g} s; {LIMIT} gives more", limit / len(units)
    lines = [json.loads(line) for line in out.split(b"\n")[:-1]]  # the rest after the last newline was cut off
    for unit, line in zip(units, lines, strict=False):
        if "error" in line:
            say(f"{unit.algorithm} on {unit.setting.model} was not measured: {line['error']}")
    if len(lines) < len(units):
        say(f"{counted(len(units) - len(lines), 'kind')} of runs not measured {why}")
    return [None if "error" in line else Pace(**line) for line in lines] + [left] * (len(units) - len(lines))


def _file(unit: RunSpec, threads: int) -> Path:
    """The file of a pace: by processor, torch, threads and program, and versions of algorithm and model."""
    process = provenance.of_process("cpu")
    made_by = [process["cpu"], process["versions"].get("torch"), threads]
    versions = [entry(unit.algorithm).version, models.version(unit.setting.model)]
    key = sha256(json.dumps([*made_by, *versions, program_of(unit)]).encode()).hexdigest()[:16]
    return cache_dir() / "paces" / f"{key}.json"


def _read(file: Path) -> Pace | float | None:
    """Read a kept pace, or the seconds in which it could not be measured; None if there is neither."""
    try:
        kept = json.loads(file.read_bytes())
        if _TOO_SHORT in kept:
            return float(kept[_TOO_SHORT])
        pace = Pace(**kept)
        return pace if all(0 <= value < math.inf for value in asdict(pace).values()) else None
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, kept: dict[str, float]) -> None:
    """Keep a pace; if the folder cannot be written it is measured again."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as opened:
            opened.write(json.dumps(kept).encode())
