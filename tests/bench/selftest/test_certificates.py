"""`python -m bench.selftest --all`, algorithm by algorithm: whatever the command checks, `make test-slow` checks."""

from __future__ import annotations

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
