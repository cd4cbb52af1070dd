"""The origin of a row: versions, machine, commit, command."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import __version__
from leaderboards.shell_text import shell_command

PACKAGES = ("torch", "torchvision", "ray", "optuna", "numpy", "transformers", "scikit-learn")
SOURCES = ("algorithms", "bench", "leaderboards", "search_spaces", "pyproject.toml")


def of_command(argv: Sequence[str]) -> dict[str, Any]:
    """The columns that all rows of a command share. `argv`: its arguments, without the program."""
    commit, dirty = _commit()
    return {
        "package_version": __version__,
        "git_commit": commit,
        "git_dirty": dirty,
        "command": shell_command("bench.sweep", *argv),
    }


def of_process(device: str, here: bool = True) -> dict[str, Any]:
    """The columns that describe this process: versions, processor or GPU, host.

    Args:
        device: `cpu` or `cuda`.
        here: whether it computed here. If not, a GPU is only called `cuda`, because this process may have none.
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
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@lru_cache
def _commit() -> tuple[str | None, bool | None]:
    """The commit of the source tree, and whether source files differ from it; None if this is no checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *SOURCES)
    if commit is None or changes is None:
        return None, None
    return commit, any(line[3:].strip('"').endswith((".py", ".toml", "/")) for line in changes.splitlines())


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip("\n")
