"""Whole specifications of panels: many classes, long lines, many names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from board import assert_approved, plain

from bench.charts.class_panels import holdings, label_width, points, strips
from bench.charts.forest import forest
from bench.charts.lines import Axis, Keys, fronts, lines, live_lines, own_colours
from bench.charts.panels import drawn, panel, picture
from bench.charts.theme import ROUND, config, dash, shape, whole_numbers

ACCURACY = Axis("accuracy", "accuracy, %", 100)
COST = Axis("cost", "cost, MB", 0.5, log=True)


def row(name: str, at: float, mean: float, spread: float | None = None) -> dict[str, Any]:
    """A point of a line; one seed has no spread."""
    ends = {"low": None, "high": None} if spread is None else {}
    ends = ends or {"low": mean - spread, "high": mean + spread}
    return {"algorithm": name, "x": at, "cost": at, "mean": mean, **ends, "n": 2}


def class_points(classes: int, regions: bool) -> dict[str, Any]:
    rows = [{"x": 0.5, "y": 1.5, "class": classes - 1}]
    fields = [{"x": 0, "x2": 1, "y": 0, "y2": 2, "class": 0}] if regions else []
    return points(rows, classes, title="points", regions=fields)


def class_strips(classes: int, **options: Any) -> dict[str, Any]:
    rows = [{"name": "a", "class": 0, "value": 5.0, "print": "5"}]
    return strips(rows, ["a", "b"], classes, "samples", 10.0, **options)


def front() -> dict[str, Any]:
    """Two are on the front; one has an equal mean at more cost, and one is the costliest."""
    values = [("a", 3.0, 0.5), ("b", 1.0, 0.4), ("c", 4.0, 0.5), ("d", 3.0, 0.3), ("e", 5.0, 0.2)]
    rows = [row(name, at, mean, 0.01) for name, at, mean in values]
    return fronts(rows, Keys("abcde", set("abcde")), COST, ACCURACY, title="front")


NAMES = [f"method {at}" for at in range(12)]
LINE = [row("a", at, at / 100, 0.01) for at in (1, 2, 5)]
KEYS = Keys(["a", "b"], {"a"})
PANELS: dict[str, Any] = {
    "points": lambda: [class_points(10, False), class_points(11, False)],
    "regions": lambda: [class_points(3, True), class_points(11, True)],
    "strips": lambda: [class_strips(29), class_strips(30, numbered=False), class_strips(400)],
    "holdings": lambda: [
        holdings([[1, 0, 2], [0, 3, 0]], most=7, title="a", side=100),
        holdings([[1]] * 60, most=1, shaded=True, side=100),
        holdings([[2000, 0]] * 11, most=2000),
    ],
    "front": lambda: [front()],
    "lines": lambda: [
        lines(LINE, KEYS, Axis("x", "round"), ACCURACY, title="few"),
        lines(LINE, Keys(NAMES, {"a"}, signs=False, columns=2), COST, ACCURACY),
        lines(LINE, Keys(NAMES, set(NAMES[:9])), Axis("x", "x", ticks=(1, 5)), ACCURACY),
        lines([row("a", 1, 0.5)], KEYS, Axis("x", "x"), ACCURACY, width=99),
    ],
    "live": lambda: [
        live_lines(LINE, KEYS, COST, ACCURACY),
        live_lines(LINE, Keys(NAMES, {"a"}, signs=False), Axis("x", "x"), ACCURACY),
    ],
    "forest": lambda: [
        *forest(
            [
                {"algorithm": "a", "difference": 1.0, "low": 0.5, "high": 2.0, "told": True},
                {"algorithm": "long", "difference": 2.0, "low": None, "high": None, "told": False},
            ],
            "points",
            ["time"],
        ),
        *forest([{"algorithm": "a", "difference": 1.0, "low": None, "high": None}], "points", []),
    ],
    "looks": lambda: [
        config(),
        config(dark=True),
        dash(NAMES[:6]),
        dash(NAMES[:2], [7, 3]),
        shape(NAMES[:8]),
        shape(NAMES[:2], [6, 13], field="x"),
    ],
}


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_is_drawn(name: str, tmp_path: Path) -> None:
    assert_approved(f"charts/{name}.txt", plain(PANELS[name]()), tmp_path)


@pytest.mark.parametrize(
    ("ends", "log", "domain", "format_"),
    [
        ((1.0, 2.0), True, None, ",d"),
        ((1.0, 1.99), True, [1.0 / (2 / 1.99) ** 0.5, 1.99 * (2 / 1.99) ** 0.5], ".6~g"),
        ((1.0, 1.5), False, None, ".6~g"),
        ((0, 9_999), False, None, ",d"),
        ((0, 10_000), False, None, "~s"),
        ((0.5, 10_000), False, None, "~s"),
    ],
)
def test_axes_have_room_and_short_numbers(
    ends: tuple[float, float], log: bool, domain: list[float] | None, format_: str
) -> None:
    rows = [row("a", at, 0.5) for at in ends]
    across = lines(rows, KEYS, Axis("x", "x", log=log), ACCURACY)["encoding"]["x"]
    expected = None if domain is None else pytest.approx(domain)
    assert across["scale"].get("domain") == expected
    assert across["axis"]["format"] == format_


@pytest.mark.parametrize(
    ("first", "last", "numbers"),
    [
        (1, 5, [1, 2, 3, 4, 5]),
        (1, 6, [1, 2, 3, 4, 5, 6]),
        (1, 7, [2, 4, 6]),
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (7, 7, [7]),
        (3, 26, [5, 10, 15, 20, 25]),
    ],
)
def test_ticks_are_round_numbers(first: int, last: int, numbers: list[int]) -> None:
    assert whole_numbers(first, last) == numbers


def test_ticks_of_endless_ranges() -> None:
    assert ROUND[:6] == (1, 2, 5, 10, 20, 50)
    assert ROUND[-1] == 5 * 10**8
    assert whole_numbers(0, 10**10) == [at * 2 * 10**9 for at in range(6)]


def test_colours_stay_and_blanks_fill_the_others() -> None:
    keys = own_colours(NAMES, {NAMES[1], NAMES[9], NAMES[3]})
    assert keys.algorithms == [
        *(NAMES[9], NAMES[1], "   ", NAMES[3], "     ", "      ", "       ", "        ")
    ]
    assert keys.places == [9, 1, 0, 3, 0, 0, 0, 0]
    assert own_colours(NAMES, set(NAMES[:8])).algorithms == NAMES[:8]
    assert own_colours(NAMES, set(NAMES[:9])) == Keys(NAMES, set(NAMES[:9]))


def test_titles_and_notes_are_wrapped() -> None:
    narrow = panel([{"a": 1}], "title", 100, 50, layer=[{"mark": "rect"}])
    assert [layer["mark"] for layer in narrow["layer"]][:1] == ["rect"]
    assert len(narrow["layer"]) == 2
    assert len(panel([], "", 100, 50, layer=[])["layer"]) == 0
    title = "data set · " + "words of one part · " * 6 + "end"
    drawn = picture(title, ["a note " * 30], [[narrow], [narrow] * 6], beside=10, resolve={})
    assert drawn["vconcat"] == [{"hconcat": [narrow]}, {"hconcat": [narrow] * 6}]
    assert drawn["resolve"] == {}
    assert drawn["description"].startswith("data set · words of one part")
    longest = {part: max(map(len, drawn["title"][part])) for part in ("text", "subtitle")}
    assert longest["text"] <= round(660 / 7.8) < longest["text"] + 25
    assert longest["subtitle"] <= round(660 / 6.5) < longest["subtitle"] + 7
    assert all(line.endswith("·") for line in drawn["title"]["text"][:-1])
    assert (
        max(map(len, picture("a", ["a note " * 30], [[narrow]])["title"]["subtitle"])) <= 500 / 6.5
    )


def test_files_are_whole_pictures() -> None:
    """With one title for readers of the screen; pixels are twice as many as in the other form."""
    pytest.importorskip("vl_convert")
    spec = picture("a & b", ["note"], [[lines(LINE, KEYS, Axis("x", "x"), ACCURACY)]])
    svg = drawn(spec, "svg").decode()
    assert svg.count("<title>") == 1
    assert svg.count("<title>a &amp; b. note</title>") == 1
    sides = [
        float(svg.partition(f' {side}="')[2].partition('"')[0]) for side in ("width", "height")
    ]
    image = drawn(spec, "png")
    pixels = [int.from_bytes(image[at : at + 4], "big") for at in (16, 20)]
    assert pixels == pytest.approx([2 * side for side in sides], abs=2)


def test_labels_take_as_much_as_the_longest() -> None:
    assert label_width(["a", "abc"]) == pytest.approx(3 * 6.4)
