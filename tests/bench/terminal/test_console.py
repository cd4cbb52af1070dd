"""Options, problems, streams and statuses of every command, without a terminal."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.errors import EnvironmentProblem, UsageError
from bench.terminal import console
from bench.terminal.console import (
    NO_MEMORY,
    Parser,
    UnreadError,
    exit_status,
    guarded,
    print_json,
    report_problem,
    say,
)
from bench.terminal.toml import toml_values
from leaderboards import StoreError


def parser(*options: str) -> Parser:
    made = Parser(prog="prog")
    for option in options:
        made.add_argument(option, nargs="*")
    return made


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("--ruonds", "--rounds"),
        ("--round", "--rounds"),
        ("--rou", "--rounds"),
        ("--xyz", ""),
        ("--partition", "--set partition=VALUE"),
        ("--local-epochs", "--set local_epochs=VALUE"),
        ("--label", "--set label=VALUE"),
        ("--mu", "--set mu=VALUE"),
        ("fedavg", "--algo fedavg"),
        ("fedav", ""),
    ],
)
def test_the_nearest_option_is_suggested(word: str, near: str) -> None:
    assert parser("--rounds", "--algo", "--set").nearest(word) == near


def test_fields_are_of_where_or_set() -> None:
    assert parser("--where").nearest("--partition") == "--where partition=VALUE"
    assert parser("--where", "--set").nearest("--lr") == "--set lr=VALUE"
    assert parser("--parts").nearest("--partition") == ""
    assert parser("--rounds").nearest("fedavg") == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ruonds=3", "x"], "unrecognized arguments: --ruonds=3 x (did you mean --rounds?)"),
        (["fedavg"], "unrecognized arguments: fedavg (did you mean --algo fedavg?)"),
        (["x"], "unrecognized arguments: x"),
    ],
)
def test_unknown_words_end_with_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = parser("--rounds", "--algo")
    made.place = " (from f)"
    start, _, end = message.partition(" (did")
    expected = f"error: {start} (from f){' (did' if end else ''}{end}"
    with pytest.raises(SystemExit) as ended:
        made.parse_args(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"{expected}; `prog --help` shows the options\n"


def test_options_are_not_abbreviated() -> None:
    with pytest.raises(SystemExit):
        parser("--rounds").parse_args(["--round", "3"])
    for value in ("-1", "-.5", "-inf", "-nan", "-1e-3"):
        assert parser("--rounds").parse_args(["--rounds", value]).rounds == [value]
    with pytest.raises(SystemExit):
        parser("--rounds").parse_args(["--rounds", "-infinite"])


# Statuses


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UsageError("wrong"), 2, "error: wrong\n"),
        (EnvironmentProblem("no data"), 3, "error: no data\n"),
        (StoreError(Path("x"), "damaged"), 3, "error: damaged\n"),
        (MemoryError("x"), 3, f"error: {NO_MEMORY}\n"),
        (
            PermissionError(13, "Denied", "f"),
            3,
            "error: [Errno 13] Denied: 'f'; ask for the right to it, or name another place\n",
        ),
        (
            ModuleNotFoundError("no", name="pandas"),
            3,
            f"error: {sys.executable} has no package pandas: activate the environment of the suite "
            "(`. .venv/bin/activate`), or install it there (`pip install -e .`)\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (UnreadError(), 0, ""),
    ],
)
def test_an_error_has_its_status(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert exit_status(fail) == status
    assert capsys.readouterr().err == said
    assert exit_status(fail, verbose=True) == status
    shown = capsys.readouterr().err
    assert shown.endswith(said)
    assert ("Traceback" in shown) == bool(said)


def test_the_actions_own_status_is_returned() -> None:
    assert [exit_status(lambda own=own: own) for own in (None, 0, 1, 130)] == [0, 0, 1, 130]
    with pytest.raises(ZeroDivisionError):
        exit_status(lambda: 1 // 0)


def test_a_problem_is_reported_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_problem(ValueError("a\x1b[2J"), 7) == 7
    assert capsys.readouterr().err == "error: a\ufffd[2J\n"
    say("one", "two\x07")
    assert capsys.readouterr().err == "note: one\nnote: two\ufffd\n"
    print_json({"a": ["é"]})
    out = capsys.readouterr().out
    assert out == json.dumps({"a": ["é"]}, indent=2) + "\n"


# Streams


class Full(io.StringIO):
    """A stream that fails, as a file that nobody can write any more."""

    def __init__(self, error: OSError, at: str, file: Path) -> None:
        super().__init__()
        self.error = error
        self.at = at
        self.opened = file.open("w")

    def write(self, text: str) -> int:
        """Fail, or write."""
        if self.at == "write":
            raise self.error
        return super().write(text)

    def flush(self) -> None:
        """Fail, or flush."""
        if self.at == "flush":
            raise self.error

    def fileno(self) -> int:
        """Its number, which is given to nothing once it has failed."""
        return self.opened.fileno()


NO_SPACE = OSError(28, "No space left on device")


def next_descriptor() -> int:
    """The number of the next file that is opened."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


@pytest.mark.parametrize("at", ["write", "flush"])
def test_a_full_standard_output_ends_with_3(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Full(NO_SPACE, at, tmp_path / "file")
    monkeypatch.setattr(sys, "stdout", stream)
    free = next_descriptor()
    assert exit_status(lambda: print("a")) == 3  # noqa: T201
    assert next_descriptor() == free
    assert sys.stdout is stream
    assert capsys.readouterr().err == (
        "error: standard output cannot be written: No space left on device; send it to a file with "
        "room\n"
    )
    os.write(stream.fileno(), b"lost")
    stream.opened.close()
    assert (tmp_path / "file").read_bytes() == b"", "it leads to nothing from then on"


@pytest.mark.parametrize("at", ["write", "flush"])
def test_output_that_nobody_reads_is_no_failure(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Full(BrokenPipeError(32, "Broken pipe"), at, tmp_path / "f"))
    assert exit_status(lambda: print("a")) == 0  # noqa: T201


def test_standard_error_never_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, error in enumerate((NO_SPACE, BrokenPipeError(32, "Broken pipe"))):
        stream = Full(error, "write", tmp_path / str(number))
        monkeypatch.setattr(sys, "stderr", stream)
        with guarded():
            assert sys.stderr.write("abc") == 3
            assert sys.stderr.getvalue() == ""  # of the stream itself
        assert sys.stderr is stream


def test_a_process_without_console_has_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with guarded():
        assert sys.stdout.write("a") == 1
        assert sys.stderr.write("b") == 1
    assert sys.stdout.write("still") == 5
    assert sys.stderr.write("still") == 5


def test_letters_that_a_locale_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding="ascii"))
    assert exit_status(lambda: print("α")) == 0  # noqa: T201
    assert content.getvalue() == b"?\n"


@pytest.mark.parametrize(
    ("given", "terminal", "width"), [(None, False, 160), (70, False, 70), (70, True, 70)]
)
def test_text_elsewhere_is_never_cut(
    given: int | None, terminal: bool, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert console.console(given).width == width


def test_a_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert console.console().width == 77


# Files of options


NAME = ".".join(["a"] * 20)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"a = {2**63 - 1}", 2**63 - 1),
        (f"a = {-(2**63)}", -(2**63)),
        ("a = [1, {b = 1.5}]", [1, {"b": 1.5}]),
        ("a = true", True),
    ],
)
def test_values_of_options_are_read(text: str, value: Any) -> None:
    assert toml_values(text.encode()) == {"a": value}


def test_names_have_at_most_twenty_parts() -> None:
    assert list(toml_values(f"{NAME} = 1".encode())) == ["a"]
    with pytest.raises(ValueError, match="a name has more than 20 parts"):
        toml_values(f"{NAME}.a = 1".encode())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"#" * (2**16 + 1), "it has more than 65,536 bytes"),
        (f"a = {2**63}".encode(), "a number has 64 bits, and at most 64 are allowed"),
        (f"a = [{{b = {-(2**63) - 1}}}]".encode(), "a number has 64 bits, and at most 64 are"),
        (b'a = "\\u0000"', "a text has a zero byte"),
        (b"a = 2020-01-02", "no option takes a date or a time, got 2020-01-02: quote a text"),
        (b"a = 07:32:00", "no option takes a date or a time, got 07:32:00: quote a text"),
    ],
)
def test_values_that_no_option_has(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^[ian]") as refused:
        toml_values(content)
    assert str(refused.value).startswith(problem)
    assert toml_values(b"#" * 2**16) == {}
