"""The execution of runs: devices, threads, folders, and the origin of rows.

Provenance, never identity.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import __version__, state_files
from bench.errors import UsageError
from leaderboards.selection import DEFAULT_RULE

if TYPE_CHECKING:
    from resource import struct_rusage  # not on every system

PACKAGES = ("torch", "torchvision", "ray", "optuna", "numpy", "transformers", "scikit-learn")
SOURCES = ("algorithms", "bench", "leaderboards", "search_spaces", "pyproject.toml")
STATE_VERSION = 2  # of saved states that this suite can go on from
BACKENDS = ("auto", "loop", "stacked")
# Runs of a trial on a GPU; if memory does not hold all their clients, they train in parts.
AUTO_PACK = 32
UNPACKED_SHARE = 0.25  # share of a GPU for a trial that does not fill it
# Data that a run can keep besides its row and curve of the evaluated models; `bench.artifacts` has
# the files.
TRACKS = {
    "local": "accuracy of the clients' own models, every evaluated round",
    "classes": (
        "accuracy by class: of the evaluated model every evaluated round, "
        "of the clients' own at the end"
    ),
    "features": "penultimate features of 1,000 test samples at the end",
    "models": "the final model",
    "drift": (
        "gradients of the clients' losses and distances of their models, every evaluated round"
    ),
    "message": (
        "small tensors that the server sends (FedCAD's class weights), every evaluated round"
    ),
}
# Tools for `--log`; `bench.executors.logs` has one class for each.
LOGS = {
    "tensorboard": "event files in OUT/logs/tensorboard",
    "wandb": "Weights & Biases; offline in OUT/logs/wandb",
    "mlflow": "$MLFLOW_TRACKING_URI, else OUT/logs/mlflow/mlflow.db",
}


@dataclass(frozen=True)
class Execution:
    """Everything a worker needs besides the runs themselves, in plain values that can be pickled.

    Args:
        out: results folder, absolute.
        data_dir: folder of the data sets, or None for the usual places.
        offline: never touch the network.
        device: `cpu` or `cuda`.
        backend: `auto`, `loop` or `stacked`.
        threads: of each trial.
        chosen_by: rule of `leaderboards.selection.RULES` by which configurations are compared.
        select_on: of `leaderboards.selection.PROTOCOLS`, on whose samples; None is each setting's.
        force: repeat runs that are finished.
        keep_stopped: do not go on with runs that a scheduler stopped before.
        rounds_per_report: reports come after multiples of it; 0 reports about every second.
        report_curves: reports carry the new points of the curves, which `--log` writes.
        save_seconds: least time between two saves of the state, unless the run is interrupted.
        track: names of `TRACKS`.
        stop_file: when this file exists, trials end their round, save and return; an evaluation
            that takes long is given up with its round.
        notice_file: workers append the suite's own warnings to it; None for stderr.
        data_hashes: data set -> hash of the data at hand; rows of other data are not stored ones.
        certified: whether the algorithms from outside passed the self-test's quick part.
        provenance: columns that are the same for all rows, such as command and commit.
    """

    out: str
    data_dir: str | None = None
    offline: bool = False
    device: str = "cpu"
    backend: str = "auto"
    threads: int = 1
    chosen_by: str = DEFAULT_RULE
    select_on: str | None = None
    force: bool = False
    keep_stopped: bool = False
    rounds_per_report: int = 0
    report_curves: bool = False
    save_seconds: float = 15.0
    track: tuple[str, ...] = ()
    stop_file: str | None = None
    notice_file: str | None = None
    data_hashes: Mapping[str, str] = field(default_factory=dict)
    certified: bool = False
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def stopping(self) -> bool:
        """Return whether trials have to end."""
        return self.stop_file is not None and Path(self.stop_file).exists()


def default_out() -> Path:
    """Return `$FEDKD_OUT`, else `leaderboards` under the working folder."""
    return Path(os.environ.get("FEDKD_OUT") or "leaderboards")


def saved_runs(out: Path) -> dict[str, Any]:
    """Return run key -> manifest of its saved state; an unreadable manifest is empty."""
    manifests: dict[str, Any] = {}
    for folder in state_files.folders(out):
        try:
            manifest = state_files.manifest_of(folder)
        except (OSError, ValueError, RecursionError):
            manifest = {}
        if manifest is not None:
            manifests[folder.name] = manifest
    return manifests


def count_gpus() -> int:
    """Count the CUDA devices that this process may use.

    Asks the driver: torch is not needed for it.
    """
    count = ctypes.c_int(0)
    with suppress(OSError):  # no driver
        cuda = ctypes.CDLL("libcuda.so.1")
        if cuda.cuInit(0) == 0:
            cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def resolve_pack(pack: int | str, device: str, backend: str, runs: int) -> int:
    """Return the most runs of a trial, as given or by `auto`.

    With several GPUs, `auto` divides the `runs` among them, so that no GPU waits for the others.
    """
    if isinstance(pack, int):
        return pack
    if device != "cuda" or not packs_train_together(device, backend):
        return 1
    gpus = count_gpus()
    if gpus < 2:
        return AUTO_PACK
    share = math.ceil(runs / gpus)
    return max(1, min(AUTO_PACK, share))


def packs_train_together(device: str, backend: str) -> bool:
    """Return whether the runs of a trial share a program, not only a process."""
    return backend == "stacked" or (backend == "auto" and device == "cuda")


def resolve_device(
    device: str, gpus_per_trial: float | None, remote: bool
) -> tuple[str, float | None]:
    """Return the device, and each trial's share of a GPU.

    The share is 0.0 on the CPU, and None on a GPU unless it was given. The GPUs of a `remote`
    cluster cannot be counted here.

    Raises:
        UsageError: a GPU is requested and there is none, or a share of a GPU is requested for the
            CPU.
    """
    needs_gpu = device == "cuda" or bool(gpus_per_trial)
    has_gpu = remote or count_gpus() > 0
    if needs_gpu and not has_gpu:
        option = "--device cuda" if device == "cuda" else f"--gpus-per-trial {gpus_per_trial:g}"
        raise UsageError(f"{option}: no CUDA GPU is visible here; leave it out to run on the CPU")
    if device == "cpu" and gpus_per_trial:
        raise UsageError(
            f"--device cpu and --gpus-per-trial {gpus_per_trial:g} exclude each other: give one"
        )
    if device == "cuda" and gpus_per_trial == 0:
        raise UsageError("--device cuda needs --gpus-per-trial above 0, got 0")
    if needs_gpu or (device == "auto" and has_gpu and not remote and gpus_per_trial is None):
        return "cuda", gpus_per_trial
    return "cpu", 0.0


def largest_resident(used: struct_rusage) -> int:
    """Return a process's largest resident size in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024  # operating systems count it differently
    return unit * used.ru_maxrss


def cpu_count() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def enough(stopped: bool) -> tuple[str, ...]:
    """Return the statuses of rows that make a run needless.

    `stopped`: runs that a scheduler stopped count as well.
    """
    return ("finished", "stopped") if stopped else ("finished",)


# The origin of a row: versions, machine, commit, command.


def command_columns(command: str) -> dict[str, Any]:
    """Return the columns that all rows of a command share.

    `command`: how a user writes it; a path in it may be no UTF-8.
    """
    commit, dirty = _commit()
    return {
        "package_version": __version__,
        "git_commit": commit,
        "git_dirty": dirty,
        "command": command.encode(errors="replace").decode(),
    }


def process_columns(device: str, here: bool = True) -> dict[str, Any]:
    """Return the columns that describe this process: versions, processor or GPU, host.

    Args:
        device: `cpu` or `cuda`.
        here: whether this process trained the run. If not, a GPU is only called `cuda`, as there
            may be none here.
    """
    name = device
    if device == "cuda" and here:
        import torch

        name = torch.cuda.get_device_name()
    return {"versions": _versions(), "device": name, "cpu": _cpu(), "host": platform.node()}


@lru_cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


@lru_cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


@lru_cache
def _commit() -> tuple[str | None, bool | None]:
    """Return the commit of the source tree, and whether source files differ from it.

    Both are None if this is no checkout.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *SOURCES)
    if commit is None or changes is None:
        return None, None
    changed_files = [line[3:].strip('"') for line in changes.splitlines()]
    return commit, any(file.endswith((".py", ".toml", "/")) for file in changed_files)


def _git(root: Path, *arguments: str) -> str | None:
    import subprocess

    try:
        result = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.rstrip("\n")
