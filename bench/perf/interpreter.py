"""Commands as whole processes of this interpreter. Imports neither torch nor ray."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import bench
from bench.errors import EnvironmentProblem
from bench.execution import largest_resident


@dataclass(frozen=True)
class Ran:
    """What a process took.

    Args:
        seconds: from its start to its end.
        cpu_seconds: what it would take on a machine of its own.
        memory: bytes, its largest resident size.
        errors: what it wrote on stderr.
    """

    seconds: float
    cpu_seconds: float
    memory: int
    errors: str


def run(arguments: Sequence[str], **environment: str) -> Ran:
    """Run the interpreter to its end, this source tree importable from anywhere; what it prints is thrown away.

    Args:
        arguments: of the interpreter.
        **environment: goes over the user's.

    Raises:
        EnvironmentProblem: it failed.
    """
    path = os.pathsep.join(part for part in (str(bench.ROOT), os.environ.get("PYTHONPATH")) if part)
    names = {**os.environ, "PYTHONPATH": path, **environment}
    with tempfile.TemporaryFile("w+") as errors:
        before = time.perf_counter()
        process = subprocess.Popen([sys.executable, *arguments], env=names, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read()
    if process.returncode:
        last = said.strip().splitlines()[-1:] or ["no message"]
        raise EnvironmentProblem(f"`python {' '.join(arguments)}` ended with status {process.returncode}: {last[0]}")
    return Ran(seconds, used.ru_utime + used.ru_stime, largest_resident(used), said)
