"""The default hyper-parameters that tables leave out."""

from __future__ import annotations

from algorithms import ALGORITHMS
from bench.terminal.render import defaults


def test_rows_have_the_defaults_of_the_algorithm_whose_run_yields_them() -> None:
    known = defaults()
    assert known["fedproto_proto"] == ALGORITHMS["fedproto"].defaults()
    assert known["fedprox"] == ALGORITHMS["fedprox"].defaults()
    assert known["fedprox_ft"] == known["fedprox"]
