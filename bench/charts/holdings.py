"""Who holds how many samples of which class: a bubble, or a shaded field, for each client and class."""

from __future__ import annotations

from collections.abc import Sequence

from bench.charts.panels import PALE, SIDE, panel
from bench.charts.theme import LIGHT, Spec

# Pixels: of a field's side.
_LARGEST, _SMALLEST = 28, 4
_NUMBERS = 20  # between two numbers of an axis


def holdings(
    counts: Sequence[Sequence[int]], *, most: int, title: str = "", shaded: bool = False, side: int = SIDE
) -> Spec:
    """Draw one panel of (K, C) samples, clients from left to right and classes upwards.

    `most`: samples of the largest bubble, or the darkest field, of all panels of the picture. `shaded`: fields whose
    colour tells the samples, instead of bubbles whose area does. `side`: of the panel as far as its fields allow, in
    pixels.
    """
    clients, classes = len(counts), len(counts[0])
    rows = [
        {"client": client, "class": label, "samples": samples}
        for client, row in enumerate(counts)
        for label, samples in enumerate(row)
        if samples
    ]
    across, up = (max(_SMALLEST, min(_LARGEST, side // count)) for count in (clients, classes))
    x, y = _axis("client", clients, across, not shaded), _axis("class", classes, up, not shaded)
    y["scale"]["domain"].reverse()
    largest = max(size for size in _steps() if size <= max(most, 1))
    round_numbers = sorted({max(1, largest // 5), max(1, largest // 2), largest})
    legend = {"title": "samples", "values": round_numbers, "format": ",d"}
    samples = {"field": "samples", "type": "quantitative"}
    if shaded:
        scale = {"domain": [0, most], "range": [PALE, LIGHT[0]]}
        channel = {"color": {**samples, "scale": scale, "legend": {**legend, "gradientLength": 160}}}
        layer = {"mark": "rect", "encoding": channel}
    else:
        scale = {"domain": [0, most], "range": [0, 0.95 * min(across, up) ** 2]}
        channel = {"size": {**samples, "scale": scale, "legend": {**legend, "symbolFillColor": LIGHT[0]}}}
        layer = {"mark": {"type": "circle", "opacity": 1, "color": LIGHT[0]}, "encoding": channel}
    return panel(rows, title, across * clients, up * classes, encoding={"x": x, "y": y}, layer=[layer])


def _axis(name: str, count: int, step: int, grid: bool) -> Spec:
    """Return a band for each of `count`, with as many numbers as there is room for."""
    every = next(size for size in _steps() if size * step >= _NUMBERS or size >= count)
    look = {"grid": grid, "bandPosition": 0.5, "ticks": False, "domain": False, "labelAngle": 0}
    scale = {"type": "band", "domain": list(range(count)), "padding": 0}
    axis = {"values": list(range(0, count, every)), **look}
    return {"field": name, "type": "ordinal", "title": name, "axis": axis, "scale": scale}


def _steps() -> Sequence[int]:
    """Return 1, 2, 5, 10, ..."""
    return [size * 10**power for power in range(7) for size in (1, 2, 5)]
