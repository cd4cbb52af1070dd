"""The progress in a saved state has values that a run can have."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from bench.engine.counters import Progress, progress_of

SAVED = asdict(Progress(curves={"": [(2, "accuracy", 0.5)], "_t1": []}, started=5.0))


def test_a_new_run_has_counted_nothing() -> None:
    assert SAVED["traffic"] == {
        "communications": 0,
        "bytes_down": 0,
        "bytes_up": 0,
        "train_steps": 0.0,
    }
    assert {name: SAVED[name] for name in ("samples", "seconds", "diverged", "public_read")} == {
        "samples": 0,
        "seconds": 0.0,
        "diverged": False,
        "public_read": False,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"started": 0},
        {"started": 253_370_764_799.5},
        {"samples": 7, "seconds": 0.5},
        {"diverged": True, "complaint": "round 1"},
        {"public_read": True, "public_holders": [0, 3]},
        {"curves": {}},
        {"curves": {"": [(1, "accuracy", 0.5), (3, "accuracy", 0.5)]}},
    ],
)
def test_what_a_run_has_is_read(fields: dict[str, Any]) -> None:
    saved = {**SAVED, **fields}
    assert asdict(progress_of(saved, ["", "_t1"], rounds=3)) == saved


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"started": -1}, "its started is -1"),
        ({"started": 253_370_764_800.0}, "it began 253370764800.0 s after 1970"),
        ({"samples": True}, "its samples is True"),
        ({"seconds": float("inf")}, "its seconds is inf"),
        ({"traffic": {"bytes_up": -1}}, "its bytes_up is -1"),
        ({"traffic": {"communications": "1"}}, "its communications is '1'"),
        ({"diverged": 1}, "of its divergence 1: ''"),
        ({"complaint": None}, "of its divergence False: None"),
        ({"public_read": 0}, "of public samples 0"),
        ({"public_holders": [1, 2.0]}, r"of public samples False: \[1, 2.0\]"),
        ({"public_holders": [True]}, r"of public samples False: \[True\]"),
        ({"curves": {"_x": []}}, "a curve of the row '_x'"),
        ({"curves": {"": [(4, "accuracy", 0.5)]}}, "later rounds than its 3"),
        ({"curves": {"": [(1, "accuracy", "high")]}}, "high"),
    ],
)
def test_what_no_run_has_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        progress_of({**SAVED, **fields}, ["", "_t1"], rounds=3)
