"""The tests for a GPU, on a machine without one: `python tests/pretended [options of pytest]`.

Paths among the options are the repository's.

A small library tells torch that there is an idle CUDA device; tensors on it (`tensors.py`) compute
on the CPU. So the code that runs is a GPU's, down to the kernels: devices, waits, captures and
replays, memory. It says nothing of kernels or of speed. It needs a C compiler, Linux, and a torch
built for CUDA.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def main(options: list[str]) -> int:
    """Run pytest where the library stands before CUDA's own; its exit status."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        sys.exit(
            f"the pretended device needs a C compiler, and there is no {compiler[0]!r}: name one in $CC"
        )
    if sys.platform != "linux" or not torch.backends.cuda.is_built():
        sys.exit(
            f"the pretended device needs Linux and a torch built for CUDA; here is torch {torch.__version__}"
        )
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        making = [*compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, HERE / "idle_gpu.c"]
        if subprocess.run(making).returncode:
            sys.exit(f"{shlex.join(map(str, making))} failed: name a C compiler in $CC")
        paths = {"PYTHONPATH": HERE.parent, "LD_LIBRARY_PATH": folder}
        found = {name: os.pathsep.join([str(path), *_known(name)]) for name, path in paths.items()}
        environment = {**os.environ, **found, "LD_PRELOAD": str(library)}
        command = [sys.executable, "-m", "pytest", "-p", "pretended.plugin", "-m", "gpu", *options]
        return subprocess.run(command, cwd=HERE.parent.parent, env=environment).returncode


def _known(name: str) -> list[str]:
    return [os.environ[name]] if os.environ.get(name) else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
