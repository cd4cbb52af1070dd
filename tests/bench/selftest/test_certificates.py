"""`python -m bench.selftest --all`, algorithm by algorithm: whatever the command checks, `make test-slow` checks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import published_widths

from bench.selftest.candidate import candidate
from bench.selftest.command import main


@pytest.fixture(autouse=True, scope="module")
def _runs_of_their_own() -> Iterator[None]:
    """Runs with FedKF's own generator, which no other test shares."""
    candidate.cache_clear()
    with published_widths():
        yield
    candidate.cache_clear()


def test_its_certificate_is_whole(name: str) -> None:
    assert main([name]) == 0


# The sums of a processor without AVX, in another order than those of one with it.
WITHOUT_AVX = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}
SCRIPT = """
import sys, torch
from bench.selftest.command import main

assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"
sys.exit(main(sys.argv[1:]))
"""


def test_certificates_do_not_depend_on_the_instruction_set() -> None:
    """The servers of these take steps of Adam, which enlarge the rounding of small gradients."""
    command = [sys.executable, "-c", SCRIPT, "feddf", "fedgen"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | WITHOUT_AVX, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
