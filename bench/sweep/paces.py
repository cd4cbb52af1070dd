"""How fast this machine runs what no stored row tells of: measured once, and kept in the cache folder.

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
from bench.data.paths import cache_dir
from bench.errors import UsageError
from bench.planning.packs import program_of
from bench.planning.unit import Unit
from bench.planning.work import Pace
from bench.terminal.console import say
from bench.terminal.words import counted
from bench.whole import whole_file

LIMIT = "FEDKD_MEASURE_SECONDS"
LIMIT_SECONDS = 20.0


def measured_paces(units: Iterable[Unit], threads: int) -> dict[Hashable, Pace]:
    """The pace of each unit's program on this machine's CPU; what was not measured before is measured now, and kept.

    Args:
        units: what will run.
        threads: of each trial.

    Returns:
        `program_of(unit)` -> its pace; those lack that failed, or for which there was no time.

    Raises:
        UsageError: `$FEDKD_MEASURE_SECONDS` is no number of seconds.
    """
    limit = _limit()
    distinct = {program_of(unit): unit for unit in units}
    known = {program: _read(_file(unit, threads)) for program, unit in distinct.items()}
    missing = [unit for program, unit in distinct.items() if known[program] is None]
    if missing and limit:
        say(f"measuring this machine for {counted(len(missing), 'kind')} of runs, once, in at most {limit:g} s")
        for unit, pace in zip(missing, _measured(missing, threads, limit), strict=False):
            known[program_of(unit)] = pace
            if pace is not None:
                _write(_file(unit, threads), pace)
    return {program: pace for program, pace in known.items() if pace is not None}


def _limit() -> float:
    given = os.environ.get(LIMIT) or str(LIMIT_SECONDS)
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise UsageError(f"{LIMIT} must be seconds, at least 0 (0 measures nothing), got {given!r}")
    return limit


def _measured(units: Sequence[Unit], threads: int, limit: float) -> list[Pace | None]:
    """The paces of as many units as the time allowed, None for what failed."""
    asked = [[unit.algorithm, dict(unit.hyperparameters), unit.setting.as_dict()] for unit in units]
    found = [path or str(Path.cwd()) for path in sys.path]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bench.engine.pace", str(threads)],
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(found)},
            check=False,
        )
        out, why = done.stdout, f"because the measuring process ended with status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        out, why = late.stdout or b"", f"within {limit:g} s; the same command goes on with them, {LIMIT} gives more"
    lines = [json.loads(line) for line in out.split(b"\n")[:-1]]  # what follows the last newline was cut off
    for unit, line in zip(units, lines, strict=False):
        if "error" in line:
            say(f"{unit.algorithm} on {unit.setting.model} was not measured: {line['error']}")
    if len(lines) < len(units):
        say(f"{counted(len(units) - len(lines), 'kind')} of runs not measured {why}")
    return [None if "error" in line else Pace(**line) for line in lines]


def _file(unit: Unit, threads: int) -> Path:
    """Where a pace is kept: by processor, torch, threads and program, and versions of algorithm and model."""
    process = provenance.of_process("cpu")
    made_by = [process["cpu"], process["versions"].get("torch"), threads]
    versions = [entry(unit.algorithm).version, models.version(unit.setting.model)]
    key = sha256(json.dumps([*made_by, *versions, program_of(unit)]).encode()).hexdigest()[:16]
    return cache_dir() / "paces" / f"{key}.json"


def _read(file: Path) -> Pace | None:
    """A pace that was kept; None where there is none, or a damaged one."""
    try:
        pace = Pace(**json.loads(file.read_bytes()))
        return pace if all(0 <= value < math.inf for value in asdict(pace).values()) else None
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, pace: Pace) -> None:
    """Keep a pace; where the folder cannot be written it is measured again."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as opened:
            opened.write(json.dumps(asdict(pace)).encode())
