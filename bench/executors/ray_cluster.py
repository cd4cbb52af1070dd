"""Starting Ray or joining a cluster, and the number of trials that fit."""

from __future__ import annotations

import logging
import socket
from typing import Any

import ray

from bench.errors import EnvironmentProblem
from bench.execution import cpu_count
from bench.executors.runner import Resources
from bench.planning.packing import fitting

CONNECT_SECONDS = 5.0
OBJECT_STORE_BYTES = 128 * 2**20  # trials exchange reports, never data


def check_address(address: str | None) -> None:
    """Raise EnvironmentProblem if nobody listens: Ray itself would try for many minutes."""
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
    """Join the cluster that is asked for, or start Ray here, beside whatever clusters run already.

    Raises:
        EnvironmentProblem: it cannot be reached, or cannot start.
    """
    check_address(resources.address)
    here: dict[str, Any] = {
        "num_cpus": cpu_count(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    try:
        ray.init(
            address=resources.address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if resources.address else here),
        )
    except Exception as error:  # Ray has no class of its own for a start that fails
        failed = "Ray cannot start"
        if resources.address:
            failed = f"the cluster at {resources.address} cannot be reached (RAY_AUTH_MODE=token where it asks for one)"
        raise EnvironmentProblem(f"{failed}: {str(error).rstrip('.')}; --executor inline runs without Ray") from error


def concurrent(resources: Resources) -> int:
    """Count the trials that fit, because Tune would wait for ever for room.

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
