"""What tests share: the toy federation of `bench.selftest`, and its checks, each run once for each algorithm."""

from __future__ import annotations

import pytest
import torch

from algorithms import ALGORITHMS
from bench.selftest.candidate import candidate
from bench.selftest.certify import run_check
from bench.selftest.outcome import NOT_APPLICABLE, PASSED
from bench.selftest.toy import INFO, TINY, identical, largest_gap, simulate, toy_dataset, toy_split

__all__ = ["INFO", "TINY", "holds", "identical", "largest_gap", "simulate", "toy_dataset", "toy_split"]


def holds(name: str, check: str) -> None:
    """One check of the conformance suite passes; it is skipped where it does not apply."""
    outcome = run_check(candidate(name), check)
    if outcome.status == NOT_APPLICABLE:
        pytest.skip(outcome.measured)
    assert outcome.status == PASSED, "\n".join(outcome.problems)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread: bit-equality holds at equal threads. No width of a terminal: what starts the tests may set one."""
    torch.set_num_threads(1)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FEDKD_MIRROR", raising=False)


@pytest.fixture(params=list(ALGORITHMS))
def name(request: pytest.FixtureRequest) -> str:
    """Every registered algorithm: being registered is being tested."""
    return str(request.param)
