"""The papers' picture of a partition: a bubble for each client and class, its area the number of samples.

Drawn as circles, lines and words first, then written as SVG, for which nothing is needed, or as PNG by Pillow, which
torchvision brings along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.ImageDraw import ImageDraw

ENDINGS = (".svg", ".png")
MOST_CLIENTS = 1000
# Pixels.
LARGEST_CELL, SMALLEST_CELL, LARGEST_SIDE = 28, 5, 1120
LEFT, TOP, RIGHT, BOTTOM = 52, 74, 24, 52
TITLE_SIZE, TEXT_SIZE = 15, 11
CHARACTER = 0.58  # width of one, on the average, in units of the size of its type
BETWEEN_TICKS = 26
PNG_SCALE, PNG_SAMPLES = 2, 3
INK, GRID, BUBBLE = "#222222", "#e4e7ea", "#2a6f97"


@dataclass(frozen=True)
class Circle:
    """A filled circle."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Line:
    """A thin straight line."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Words:
    """A line of text on its base line; `anchor` says which part of it stands at x: `start`, `middle` or `end`."""

    x: float
    y: float
    text: str
    size: int
    anchor: str


@dataclass(frozen=True)
class Figure:
    """What is drawn, in the order in which it is, in pixels from the upper left."""

    title: str
    width: int
    height: int
    lines: tuple[Line, ...]
    circles: tuple[Circle, ...]
    words: tuple[Words, ...]


def check_file(name: str) -> Path:
    """The path of a picture.

    Raises:
        UsageError: its name has no ending that can be written.
    """
    if Path(name).suffix.lower() not in ENDINGS:
        raise UsageError(f"--plot FILE must end in {' or '.join(ENDINGS)}, got {name!r}; try {Path(name).stem}.svg")
    return Path(name)


def bubbles(counts: NDArray[np.int64], title: str, note: str) -> Figure:
    """The figure of (K, C) samples of each class that each client holds.

    Args:
        counts: the numbers.
        title: first line.
        note: second line, to which the size of the largest bubble is added.

    Raises:
        UsageError: more clients than can be told apart.
    """
    clients, classes = counts.shape
    if clients > MOST_CLIENTS:
        raise UsageError(f"--plot draws at most {MOST_CLIENTS:,} clients, got {clients:,}; --json has them all")
    cell = max(SMALLEST_CELL, min(LARGEST_CELL, LARGEST_SIDE // max(clients, classes)))
    floor, most = TOP + cell * classes, int(counts.max())
    note = f"{note}; largest bubble: {most:,} samples"
    written = max(len(title) * TITLE_SIZE, len(note) * TEXT_SIZE) * CHARACTER
    width = max(LEFT + cell * clients + RIGHT, round(LEFT + written + RIGHT))
    xs = [LEFT + cell * (client + 0.5) for client in range(clients)]
    ys = [floor - cell * (label + 0.5) for label in range(classes)]
    circles = [
        Circle(xs[client], ys[label], cell * 0.48 * (counts[client, label] / most) ** 0.5)
        for client, label in zip(*counts.nonzero(), strict=True)
    ]
    lines = [Line(x, TOP, x, floor) for x in xs] + [Line(LEFT, y, LEFT + cell * clients, y) for y in ys]
    words = [
        Words(LEFT, 26, title, TITLE_SIZE, "start"),
        Words(LEFT, 46, note, TEXT_SIZE, "start"),
        Words(LEFT - 8, TOP - 6, "class", TEXT_SIZE, "end"),
        Words(LEFT + cell * clients / 2, floor + 38, "client", TEXT_SIZE, "middle"),
        *(Words(xs[tick], floor + 18, str(tick), TEXT_SIZE, "middle") for tick in _ticks(clients, cell)),
        *(Words(LEFT - 8, ys[tick] + 4, str(tick), TEXT_SIZE, "end") for tick in _ticks(classes, cell)),
    ]
    return Figure(title, width, floor + BOTTOM, tuple(lines), tuple(circles), tuple(words))


def write(figure: Figure, path: Path) -> None:
    """Write a figure in the form that the path's ending names.

    Raises:
        EnvironmentProblem: the file cannot be written, or Pillow is missing.
    """
    try:
        if path.suffix.lower() == ".png":
            _write_png(figure, path)
        else:
            path.write_text(svg(figure), encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"--plot {path} cannot be written: {error.strerror or error}; name another") from None


def svg(figure: Figure) -> str:
    """The figure as an SVG document."""
    return "\n".join(_svg_lines(figure)) + "\n"


def _ticks(count: int, cell: int) -> range:
    """Every so many-th of `count` cells that numbers do not meet, in steps of 1, 2, 5, 10, ..."""
    steps = (size * 10**power for power in range(4) for size in (1, 2, 5))
    return range(0, count, next(step for step in steps if step * cell >= BETWEEN_TICKS or step >= count))


def _svg_lines(figure: Figure) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{figure.width}" height="{figure.height}" '
        f'viewBox="0 0 {figure.width} {figure.height}" role="img" font-family="sans-serif">'
    )
    yield f"<title>{escape(figure.title)}</title>"
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield f'<g stroke="{GRID}">'
    for line in figure.lines:
        yield f'<line x1="{line.x1:g}" y1="{line.y1:g}" x2="{line.x2:g}" y2="{line.y2:g}"/>'
    yield f'</g>\n<g fill="{BUBBLE}">'
    for circle in figure.circles:
        yield f'<circle cx="{circle.x:g}" cy="{circle.y:g}" r="{circle.radius:.3g}"/>'
    yield f'</g>\n<g fill="{INK}">'
    for words in figure.words:
        place = f'x="{words.x:g}" y="{words.y:g}" font-size="{words.size}" text-anchor="{words.anchor}"'
        yield f"<text {place}>{escape(words.text)}</text>"
    yield "</g>\n</svg>"


def _write_png(figure: Figure, path: Path) -> None:
    """Draw larger than asked for and shrink, which smooths the edges; then the words, at their own size."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise EnvironmentProblem(f"--plot {path} needs Pillow: pip install pillow, or write an .svg") from None
    size = (figure.width * PNG_SCALE, figure.height * PNG_SCALE)
    fine = Image.new("RGB", (size[0] * PNG_SAMPLES, size[1] * PNG_SAMPLES), "white")
    _paint_shapes(figure, ImageDraw.Draw(fine), PNG_SCALE * PNG_SAMPLES)
    picture = fine.resize(size, Image.Resampling.BOX)
    _paint_words(figure, ImageDraw.Draw(picture))
    picture.save(path)


def _paint_shapes(figure: Figure, draw: ImageDraw, scale: int) -> None:
    for line in figure.lines:
        ends = [line.x1 * scale, line.y1 * scale, line.x2 * scale, line.y2 * scale]
        draw.line(ends, fill=GRID, width=scale)
    for circle in figure.circles:
        x, y, radius = circle.x * scale, circle.y * scale, circle.radius * scale
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=BUBBLE)


def _paint_words(figure: Figure, draw: ImageDraw) -> None:
    from PIL import ImageFont

    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for words in figure.words:
        font = ImageFont.load_default(words.size * PNG_SCALE)
        place = (words.x * PNG_SCALE, words.y * PNG_SCALE)
        draw.text(place, words.text, fill=INK, font=font, anchor=anchors[words.anchor])
