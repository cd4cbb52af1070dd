"""From specifications to files: SVG with its words as text, PNG at twice the size."""

from __future__ import annotations

from html import escape
from pathlib import Path

from bench.charts.panels import print_config
from bench.charts.theme import Spec
from bench.errors import EnvironmentProblem
from bench.whole import whole_file

FORMATS = ("svg", "png")
_SCALE = 2.0  # pixels of a PNG for one of the specification's


def check_renderer() -> None:
    """Find the package that draws, before work is done.

    Raises:
        EnvironmentProblem: it is not installed.
    """
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise EnvironmentProblem(
            'figures need the package vl-convert-python: pip install "fedkd-bench[report]", then the same command again'
        ) from None


def drawn(spec: Spec, form: str) -> bytes:
    """A specification as the content of a file. `form`: one of `FORMATS`."""
    import vl_convert

    if form == "svg":
        text: str = vl_convert.vegalite_to_svg(spec, config=print_config())
        return text.replace(">", f"><title>{escape(spec['description'])}</title>", 1).encode()
    image: bytes = vl_convert.vegalite_to_png(spec, config=print_config(), scale=_SCALE)
    return image


def write(path: Path, content: bytes) -> None:
    """The whole file or none: what is there stays until the new one is complete.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    with whole_file(path) as file:
        file.write(content)
