"""What every algorithm and its registry entry must be."""

from __future__ import annotations

import pytest
from conftest import holds

from algorithms import ALGORITHMS
from leaderboards.board import REFERENCES


@pytest.mark.parametrize(
    "check", ["contract", "hyperparameters", "learns", "communication", "memory"]
)
def test_it_passes_the_check(name: str, check: str) -> None:
    holds(name, check)


def test_the_index_names_rows_that_there_are_and_says_what_each_value_means() -> None:
    for entry in ALGORITHMS.values():
        assert set(entry.rows.values()) <= set(ALGORITHMS)
        assert all(field.meaning != "–" for field in entry.fields)


def test_reference_rows_are_those_that_the_leaderboards_do_not_rank() -> None:
    assert {name for name, found in ALGORITHMS.items() if found.reference} == REFERENCES
