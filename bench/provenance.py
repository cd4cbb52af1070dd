"""The provenance of rows: versions, commit, command, processor.

Never part of a run's identity. Imports neither torch nor ray.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import __version__

PACKAGES = ("torch", "torchvision", "ray", "optuna", "numpy", "transformers", "scikit-learn")
SOURCES = ("algorithms", "bench", "leaderboards", "search_spaces", "pyproject.toml")


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
