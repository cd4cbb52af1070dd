"""Values of command lines: lists, numbers, seeds, names."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import CURVE, sound_row, write

from bench.boards import main as boards
from bench.compare.command import main as compare
from bench.compare.filters import filters
from bench.data.command import main as data
from bench.errors import UsageError
from bench.figures.command import main as figures
from bench.report.command import main as report
from bench.terminal.console import Parser
from bench.terminal.values import (
    number,
    number_of_seeds,
    pack_size,
    seeds_to_confirm,
    some_of,
    split_list,
    whole_number,
)

NOT_UTF8 = b"\xff\xe9".decode(errors="surrogateescape")


@pytest.mark.parametrize(
    "command",
    [lambda: report(["--title", NOT_UTF8]), lambda: compare(["diff", NOT_UTF8, "3fa1"])],
)
def test_text_that_is_not_utf8_is_refused(
    command: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 2
    assert "is not UTF-8" in capsys.readouterr().err


EMPTY = [
    lambda: boards(["merge", "board", "--out", ""]),
    lambda: boards(["merge", "", "--out", "all"]),
    lambda: boards(["validate", ""]),
    lambda: boards(["push", "", "board"]),
    lambda: compare(["--out", ""]),
    lambda: compare(["--out", "board", "--reference", ""]),
    lambda: figures(["--out", "board", "--all", "--to", ""]),
    lambda: report(["--out", "board", "--to", ""]),
    lambda: data(["prepare", ""]),
]


@pytest.mark.parametrize("command", EMPTY)
def test_an_empty_word_is_refused(
    command: Callable[[], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "here" / "board", [(sound_row(CURVE), CURVE)])
    monkeypatch.chdir(tmp_path / "here")
    try:
        status = command()
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert "empty" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["board"]


def test_names_keep_the_allowed_order() -> None:
    assert some_of(["b,a", "b"], ("a", "b", "c"), "thing") == ("a", "b")
    with pytest.raises(UsageError, match="no thing 'd'"):
        some_of(["a", "d"], ("a", "b"), "thing")


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (whole_number, "-7", -7),
        (number, "1e3", 1000.0),
        (pack_size, "auto", "auto"),
        (pack_size, "8", 8),
    ],
)
def test_numbers_are_parsed(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (whole_number, "give a whole number, got '1.5x'"),
        (number_of_seeds, "give how many seeds, such as 3 for seeds 0 to 2, got '1.5x'"),
        (number, "give a number, got '1.5x'"),
        (pack_size, "give auto, or a whole number, got '1.5x'"),
        (seeds_to_confirm, "give a number of seeds, or seeds such as 101-150,200; got '1.5x'"),
    ],
)
def test_texts_that_are_no_numbers(parse: Callable[[str], object], message: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        parse("1.5x")
    assert str(refused.value) == message


ORDER = "seeds are from 1 on, in ascending order, at most 100,000, because configurations are "


@pytest.mark.parametrize("given", ["0", "3-2", "1-100001", "5,0"])
def test_seeds_that_do_not_confirm(given: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        seeds_to_confirm(given)
    assert str(refused.value) == f"{ORDER}chosen on seed 0; got {given!r}"


def test_many_seeds_confirm() -> None:
    assert len(seeds_to_confirm("1-100000")) == len(seeds_to_confirm("100000")) == 100_000
    assert seeds_to_confirm(" 5 , 7 - 8 ") == (5, 7, 8)
    assert seeds_to_confirm("1,5") == (1, 5)


def test_lists_take_spaces_and_commas() -> None:
    assert (
        split_list(["0.1", "0.5"])
        == split_list(["0.1,0.5"])
        == split_list(["0.1, 0.5 ,"])
        == ("0.1", "0.5")
    )
    assert split_list(None) == split_list([","]) == ()


def test_filters_take_blanks_after_commas() -> None:
    parser = Parser()
    for name in ("--dataset", "--algo", "--alpha", "--participation", "--where"):
        parser.add_argument(name, nargs="+")
    given = parser.parse_args(
        [
            "--algo",
            "fedavg, moon",
            "--alpha",
            "none, 0.5",
            "--where",
            "nesterov=true, false",
            "decay_exempt=none",
        ]
    )
    assert filters(given) == {
        "algorithm": ["fedavg", "moon"],
        "alpha": [None, 0.5],
        "nesterov": [True, False],
        "decay_exempt": ["none"],
    }
