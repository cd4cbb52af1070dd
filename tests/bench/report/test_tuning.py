"""The page's charts of hyper-parameters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.report.tuning import _response_spec

GROUP: Any = SimpleNamespace(alphas=("0.1",), participations=("0.5",))


@pytest.mark.parametrize(
    ("values", "continuous", "axis", "marks"),
    [
        ((0.1, 1.0), False, {"type": "ordinal", "sort": [0.1, 1.0]}, ["line", "point"]),
        ((0.1, 0.4), True, {"type": "quantitative", "scale": {"zero": False}}, ["point"]),
        ((0.001, 1.0), True, {"type": "quantitative", "scale": {"type": "log"}}, ["point"]),
        ((1.0, 50.0), True, {"type": "quantitative", "scale": {"type": "log"}}, ["point"]),
        ((1.0, 49.9), True, {"type": "quantitative", "scale": {"zero": False}}, ["point"]),
        ((0.0, 50.0), True, {"type": "quantitative", "scale": {"zero": False}}, ["point"]),
    ],
)
def test_values_of_a_grid_are_joined_and_drawn_ones_are_not(
    values: tuple[float, ...], continuous: bool, axis: dict[str, Any], marks: list[str]
) -> None:
    rows = [{"value": value, "accuracy": value / 2} for value in values]
    spec = _response_spec("mu", rows, values, continuous, GROUP)
    assert axis.items() <= spec["encoding"]["x"].items()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == marks
