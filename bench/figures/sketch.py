"""Between finding what can be drawn and drawing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.charts.theme import Spec


@dataclass(frozen=True)
class Sketch:
    """A picture that can be drawn.

    Args:
        name: of its file, without the ending.
        spec: makes the Vega-Lite specification; what takes time is done here.
    """

    name: str
    spec: Callable[[], Spec]


def untracked(what: str, names: str) -> str:
    """What runs lack that were not tracked. `names`: of `bench.execution.TRACKS`, as typed."""
    return f"no run here keeps {what}, as --track {names} does; --force runs again what is stored"


@dataclass(frozen=True)
class Found:
    """What of a figure can be drawn.

    Args:
        sketches: the pictures.
        lacking: where there are none, what the runs lack, in words that end a sentence: `no run here keeps features`.
    """

    sketches: tuple[Sketch, ...]
    lacking: str = ""
