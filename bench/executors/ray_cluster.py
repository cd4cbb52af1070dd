"""The Ray cluster of a sweep: started on this machine or joined, and watched while trials run."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from bench.errors import EXIT_ENVIRONMENT, EnvironmentProblem
from bench.execution import Execution
from bench.machine import cpu_count
from bench.planning.packing import fitting
from bench.terminal.console import say

CONNECT_SECONDS = 5.0
OBJECT_STORE_BYTES = 128 * 2**20  # trials exchange reports, never data
PROGRAMS = f"{Path(ray.__file__).parent}/".encode()
ASK_SECONDS = 1.0
LEAVE_SECONDS = 15.0
SILENT_SECONDS = 20.0  # Ray kills a driver whose head has been silent for 60 s
ROOMLESS_SECONDS = 30.0
SCALING_SECONDS = 300.0  # for a cluster that was joined: an autoscaler may be replacing nodes


class ClusterLost(RuntimeError):
    """The error that no trial can go on; the message says why."""


def start(execution: Execution) -> bool:
    """Join the requested cluster, or start Ray on this machine.

    Clusters that run here already do not matter. The processes of a Ray started here block SIGTERM,
    which batch systems send to all processes of a job: the sweep's stop file makes trials save and
    end instead.

    Returns:
        Whether the sweep has to leave it at the end; False for a Ray that this process had already.

    Raises:
        EnvironmentProblem: the cluster cannot be reached, or Ray cannot start.
    """
    if ray.is_initialized() and not execution.address:
        return False
    check_address(execution.address)
    options: dict[str, Any] = {"address": execution.address}
    if not execution.address:
        options = _local_options()
        protect_token()
    handler = signal.getsignal(signal.SIGTERM)
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        ray.init(
            log_to_driver=False,
            logging_level=logging.ERROR if execution.verbose else logging.CRITICAL,
            **options,
        )
    except Exception as error:  # Ray has no class of its own for a start that fails
        failed = "Ray cannot start"
        if execution.address:
            failed = (
                f"the cluster at {execution.address} cannot be reached "
                "(RAY_AUTH_MODE=token where it asks for one)"
            )
        raise EnvironmentProblem(
            f"{failed}: {str(error).rstrip('.')}; --executor inline runs without Ray"
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # Ray replaced it, and would handle a signal that came meanwhile.
            signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    return True


def _local_options() -> dict[str, Any]:
    """Return the options of a Ray that is started here."""
    return {
        "address": "local",
        "num_cpus": cpu_count(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "_temp_dir": str(private_folder() / "ray"),
    }


def private_folder() -> Path:
    """Make a folder for Ray's sessions that only this user may enter; return its path.

    Ray makes its own folders writable for everyone. Raises EnvironmentProblem if it cannot be made.
    """
    parent = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    own = Path(parent) / f"fedkd-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        is_own_folder = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if not is_own_folder:  # another user's, or a link
            own = Path(tempfile.mkdtemp(prefix="fedkd-", dir=parent))
        own.chmod(0o700)
    except OSError as error:
        advice = "name another folder with RAY_TMPDIR; --executor inline runs without Ray"
        raise EnvironmentProblem(
            f"Ray cannot start: {error.strerror} ({error.filename}): {advice}"
        ) from error
    return own


def protect_token() -> None:
    """Make the token of Ray's processes here readable by this user alone.

    Whoever has it can run code in them, and Ray would make `~/.ray/auth_token` readable by
    everyone. Where that cannot be written, the token is in the environment of this process and of
    those that it starts.
    """
    named = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    if named or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    path = Path("~/.ray/auth_token").expanduser()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _write_token(path)
        path.chmod(0o600)
    except OSError as error:
        if not path.exists():
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
            say(
                f"{path} cannot be written ({error.strerror}): "
                "Ray's token is in RAY_AUTH_TOKEN, for this sweep alone"
            )


def _write_token(path: Path) -> None:
    """Write a token that appears whole, unless another process has made one meanwhile."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # readable by this user alone
        file.write(secrets.token_hex(32))
        file.flush()
        with suppress(FileExistsError):
            os.link(file.name, path)


def leave() -> bool:
    """Leave the cluster, and end it if it was started here; return whether that was done in time.

    Its processes block SIGTERM, and Ray would wait a second for each: they are killed once Ray has
    disconnected.
    """
    started = _started_by("self")
    deadline = time.monotonic() + LEAVE_SECONDS
    shutdown = threading.Thread(target=ray.shutdown, name="shutdown", daemon=True)
    shutdown.start()
    while shutdown.is_alive() and ray.is_initialized() and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in started:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
    shutdown.join(max(1.0, deadline - time.monotonic()))
    return not shutdown.is_alive()


def give_up() -> None:
    """Leave a lost cluster, and hide the errors that Tune's objects raise without Ray.

    They raise them when they are collected. A head that lives but does not answer keeps Ray from
    ending: then this process exits without waiting for it.
    """
    previous_hook = sys.unraisablehook

    def hook(raised: Any) -> None:
        if not getattr(raised.object, "__module__", "").startswith("ray."):
            previous_hook(raised)

    sys.unraisablehook = hook
    if not leave():
        atexit.register(_end_at_once)  # called before Ray's own handler, which would wait for ever


def _end_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_ENVIRONMENT)


def _started_by(parent: int | str) -> list[int]:
    """List the Ray processes that a process started, and all their descendants.

    There are none without /proc.
    """
    processes = []
    for file in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # the process ended meanwhile
            for child in map(int, file.read_text().split()):
                if parent != "self" or PROGRAMS in Path(f"/proc/{child}/cmdline").read_bytes():
                    processes += [child, *_started_by(child)]
    return processes


def check_address(address: str | None) -> None:
    """Raise EnvironmentProblem if nothing listens at the address.

    Ray itself would try for many minutes.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"the cluster at {address} cannot be reached: {error}; is `ray start` running there?"
        ) from None


def concurrent(execution: Execution) -> int:
    """Count the trials that fit at once.

    Raises EnvironmentProblem if none does, because Tune would wait for ever.
    """
    nodes = _live(_nodes())
    fits = _count_places(nodes, execution)
    if fits < 1:
        cores = sum(node["Resources"].get("CPU", 0) for node in nodes)
        devices = sum(node["Resources"].get("GPU", 0) for node in nodes)
        raise EnvironmentProblem(
            f"no trial of {execution.threads} CPU and {execution.gpus:g} GPU fits a node: "
            f"the cluster has {cores:g} CPU and {devices:g} GPU on {len(nodes)} nodes; "
            "lower --cpus-per-trial or --gpus-per-trial"
        )
    return min(fits, execution.concurrent or fits)


class Watch:
    """A thread that asks the cluster every second whether it is alive and has room for a trial.

    Tune does not ask: without a live node it waits for ever, and without the cluster's head Ray
    kills the driver.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._node = ray.get_runtime_context().get_node_id()
        self._answered = self._fitted = self._judged = time.monotonic()
        # The node of this machine, through which Ray reaches the others, is dead.
        self._alone = False
        self._over = threading.Event()
        threading.Thread(target=self._keep_asking, name="watch", daemon=True).start()

    def lost_reason(self, stopping: bool) -> str:
        """Say why no trial can go on; empty if one can.

        A `stopping` sweep waits only seconds for room.
        """
        now = time.monotonic()
        execution = self._execution
        paused = now - self._judged
        self._judged = now
        if paused > 5 * ASK_SECONDS:  # this process was suspended, and could not ask meanwhile
            self._answered += paused
            self._fitted += paused
        patience = SCALING_SECONDS if execution.address else ROOMLESS_SECONDS
        if stopping:
            patience = 5 * ASK_SECONDS
        if self._alone:
            return "Ray's node on this machine died"
        if now - self._answered > SILENT_SECONDS:
            return f"the head of the Ray cluster has not answered for {now - self._answered:.0f} s"
        if now - self._fitted > patience:
            return (
                "no live node of the Ray cluster has had room for a trial of "
                f"{execution.threads} CPU and {execution.gpus:g} GPU for {now - self._fitted:.0f} s"
            )
        return ""

    def close(self) -> None:
        """Stop asking."""
        self._over.set()

    def _keep_asking(self) -> None:
        while not self._over.wait(ASK_SECONDS):
            with suppress(Exception):  # `lost_reason` notices the silence
                self.ask()

    def ask(self) -> None:
        """Ask the cluster once, and remember when it answered; waits for a silent head."""
        nodes = _nodes()
        self._answered = time.monotonic()
        live = _live(nodes)
        if _count_places(live, self._execution):
            self._fitted = self._answered
        dead = {node["NodeID"] for node in nodes} - {node["NodeID"] for node in live}
        self._alone = self._node in dead


def _nodes() -> list[dict[str, Any]]:
    return list(ray.nodes())  # type: ignore[no-untyped-call]


def _live(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in nodes if node["Alive"]]


def _count_places(nodes: list[dict[str, Any]], execution: Execution) -> int:
    """Count the trials that nodes hold at once, by their total resources, not the free ones."""
    places = 0
    for node in nodes:
        cores = node["Resources"].get("CPU", 0)
        devices = node["Resources"].get("GPU", 0)
        places += fitting(cores, devices, execution.threads, execution.gpus)
    return places
