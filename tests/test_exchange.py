"""Limits and symmetries of methods that leave each client a model of its own."""

from __future__ import annotations

from algorithms import build
from bench.selftest.toy import gap, simulate

ROUNDING = 1e-12  # float64


def test_dittos_w_is_fedavgs() -> None:
    ditto = simulate(build("ditto", mu=0.7), momentum=0.9)
    fedavg = simulate("fedavg", momentum=0.9)
    ditto.advance(3)
    fedavg.advance(3)
    assert gap(ditto.server.params, fedavg.server.params) <= ROUNDING
