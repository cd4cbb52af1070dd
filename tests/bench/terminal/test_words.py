"""Words of all commands: how long something takes."""

from __future__ import annotations

import pytest

from bench.terminal.words import duration, span

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        (0, "1 s"),
        (119, "119 s"),
        (2 * MINUTE, "2 min"),
        (2 * HOUR - 31, "119 min"),
        (2 * HOUR, "2.0 h"),
        (3.4 * HOUR, "3.4 h"),
        (2 * DAY - HOUR, "47.0 h"),
        (2 * DAY, "2.0 days"),
        (2.1 * DAY, "2.1 days"),
    ],
)
def test_a_duration_has_one_unit(seconds: float, printed: str) -> None:
    assert duration(seconds) == printed


@pytest.mark.parametrize(
    ("low", "high", "printed"),
    [
        (4 * MINUTE, 9 * MINUTE, "4 to 9 min"),
        (90, 3 * MINUTE, "90 s to 3 min"),
        (4 * MINUTE, 4 * MINUTE + 1, "4 min"),
    ],
)
def test_a_span_names_a_shared_unit_once(low: float, high: float, printed: str) -> None:
    assert span(low, high) == printed
