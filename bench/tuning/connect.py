"""Ray itself: started here, or a cluster joined, and how many trials fit."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import chdir
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import ray

import bench
from bench import ROOT
from bench.errors import EnvironmentProblem
from bench.execution import cpu_count
from bench.planning.shares import fitting
from bench.tuning.runner import Resources

CONNECT_SECONDS = 5.0
FOLDER = "FEDKD_WORKING_FOLDER"  # tells workers that were started elsewhere where the command was given
OBJECT_STORE_BYTES = 128 * 2**20  # trials exchange reports, never data


def check_address(address: str | None) -> None:
    """Raise EnvironmentProblem where nobody listens: Ray itself would try for many minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon:
        return
    if not port.isdecimal():
        raise EnvironmentProblem(f"the cluster at {address} cannot be reached: its port must be a number, got {port!r}")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"the cluster at {address} cannot be reached: {error}; is `ray start` running there?"
        ) from None


def start(resources: Resources) -> None:
    """Join the cluster that is asked for, or start Ray here.

    Raises:
        EnvironmentProblem: it cannot be reached, or cannot start.
    """
    check_address(resources.address)
    here = Path.cwd()
    hidden = _hidden_in(here)
    if hidden and resources.address:
        raise EnvironmentProblem(
            f"{here} has a package `bench` of its own, which the workers of a cluster would import instead of "
            "fedkd-bench: give the command in another folder"
        )
    ours = (str(ROOT), os.environ.pop(FOLDER, None))  # of an earlier command of this process, too
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(ROOT), *(path for path in before if path not in ours)]
    if hidden:  # where Ray is to start elsewhere, what an algorithm of the user's imports and reads is still here
        os.environ[FOLDER] = str(here)
        paths.append(str(here))
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    local: dict[str, Any] = (
        {}
        if resources.address
        else {
            "num_cpus": cpu_count(),
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    )
    try:
        # Its workers import from the folder that it was started in first of all.
        with chdir(ROOT if hidden else here):
            ray.init(address=resources.address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray has no class of its own for a start that fails
        where, known = "Ray cannot start", os.environ.get("RAY_ADDRESS")
        if resources.address:
            where = f"the cluster at {resources.address} cannot be reached (RAY_AUTH_MODE=token where it asks for one)"
        elif known:
            where += f" (RAY_ADDRESS={known} is set: unset it, or name a cluster by --address)"
        raise EnvironmentProblem(f"{where}: {str(error).rstrip('.')}; --executor inline runs without Ray") from error


def _hidden_in(folder: Path) -> bool:
    """Whether a package in a folder, imported from there, would stand for this one."""
    found = PathFinder.find_spec(bench.__name__, [str(folder)])
    return found is not None and found.origin is not None and Path(found.origin).resolve().parent != ROOT / "bench"


def concurrent(resources: Resources) -> int:
    """How many trials fit; checked now, for Tune would wait for ever.

    Raises:
        EnvironmentProblem: not even one fits.
    """
    have = ray.cluster_resources()  # type: ignore[no-untyped-call]
    fits = fitting(have.get("CPU", 0), have.get("GPU", 0), resources.cpus, resources.gpus)
    if fits < 1:
        raise EnvironmentProblem(
            f"no trial of {resources.cpus} CPU and {resources.gpus:g} GPU fits: the cluster has "
            f"{have.get('CPU', 0):g} CPU and {have.get('GPU', 0):g} GPU; lower --cpus-per-trial or --gpus-per-trial"
        )
    return min(fits, resources.concurrent or fits)
