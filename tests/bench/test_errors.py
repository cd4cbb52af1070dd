"""Errors in words: what they say, where they come from, and what to do."""

from __future__ import annotations

import errno
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from algorithms import losses
from bench import errors
from bench.errors import Unfit, chain, describe, of_hook, own_line, result_or_error

NO_LOCKS = "; this disk has no file locks: name a folder on another one with --out, and a copy here"


def test_exit_statuses_are_the_documented_ones() -> None:
    failed = (errors.EXIT_FAILED, errors.EXIT_USAGE, errors.EXIT_ENVIRONMENT)
    assert (errors.EXIT_OK, *failed, errors.EXIT_INTERRUPTED) == (0, 1, 2, 3, 130)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (FileNotFoundError(2, "gone"), "; if the working folder was deleted, change to another"),
        (FileNotFoundError(2, "gone", "file"), ""),
        (PermissionError(13, "no"), "; ask for the right to it, or name another place"),
        (OSError(errno.ENOLCK, "no"), NO_LOCKS),
        (OSError(errno.EOPNOTSUPP, "no"), NO_LOCKS),
        (OSError(errno.EIO, "no"), ""),
    ],
)
def test_some_errors_of_the_system_have_advice(error: OSError, advice: str) -> None:
    given = errors.advice_on(error)
    assert given.startswith(advice)
    assert bool(given) == bool(advice)


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        ({"a": "x"}, "a needs x: leave it out with --algo c,d"),
        ({"a": "x", "b": "x"}, "a and b need x: leave them out with --algo c,d"),
        ({"a": "x", "b": "y"}, "a needs x; b needs y: leave them out with --algo c,d"),
    ],
)
def test_unfit_algorithms_are_named_with_needs(needs: dict[str, str], text: str) -> None:
    error = Unfit(needs, ["c", "d"])
    assert str(error) == text
    assert error.needs == needs


def test_a_long_text_is_cut_in_its_line() -> None:
    assert errors.in_a_line(ValueError("a\n  b")) == "a b"
    assert errors.in_a_line(ValueError("x" * 600)) == "x" * 600
    assert errors.in_a_line(ValueError("x" * 601)) == "x" * 600 + " …"
    assert errors.with_its_kind(KeyError("a")) == "KeyError: 'a'"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            KeyError("logits"),
            "'logits' is missing (the message has 'params', 'c'; the client's memory nothing; "
            "local what `start` returns; batch.teacher what `teachers` returns)",
        ),
        (KeyError("a sentence"), "a sentence"),
        (ValueError("word"), "word"),
        (ValueError("No. Please file an issue at https://x.y/z."), "No."),
        (RuntimeError("GET: unable to find an engine"), "GET: unable to find an engine (cuDNN has"),
        (RuntimeError("Unable to find a valid cuDNN algorithm to run"), "Unable to find a valid"),
    ],
)
def test_errors_of_hooks_are_told(error: Exception, text: str) -> None:
    told = of_hook(error, ["params", "c"], [])
    assert told.startswith(text)
    assert ("--backend loop" in told) == ("ind a" in str(error))
    assert told == text or "cuDNN" in told
    assert "memory 'm';" in of_hook(KeyError("a"), [], ["m"])


class Held:
    """Something that a call holds."""


def test_a_kept_error_holds_nothing() -> None:
    """Neither the arguments of the call, nor the variables of an error before it."""
    kept: list[weakref.ref[Held]] = []

    def fail(given: Held) -> None:
        try:
            own = Held()
            kept.append(weakref.ref(own))
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904

    given = Held()
    kept.append(weakref.ref(given))
    error = result_or_error(fail, given)
    del given
    gc.collect()
    assert isinstance(error, ValueError)
    assert [reference() for reference in kept] == [None, None]
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code is fail.__code__
    assert result_or_error(max, 2, 3) == 3


def raised(action: Any) -> Exception:
    """The error of an action."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        action()
    return caught.value


def test_causes_come_in_order_once() -> None:
    first, second, context = ValueError("1"), ValueError("2"), ValueError("3")
    first.__cause__ = second
    second.__cause__ = first
    second.__context__ = context
    assert chain(first) == [first, second]
    assert chain(first, contexts=True) == [first, second, context]


def module(folder: Path, name: str, source: str) -> Any:
    """The names of a module with this source."""
    file = folder / f"{name}.py"
    file.write_text(source)
    names: dict[str, Any] = {"losses": losses}
    exec(compile(source, str(file), "exec"), names)
    return names


def test_the_line_is_an_algorithms_own(tmp_path: Path) -> None:
    """Not the helper's that it called, nor the library's below."""
    mine = module(tmp_path, "mine", "def fail():\n    return losses.cross_entropy(None, None)\n")
    error = raised(mine["fail"])
    line = own_line(error)
    assert line is not None
    assert (Path(line.filename).name, line.lineno) == ("mine.py", 2)
    assert describe(error).endswith(" (mine.py:2)")
    helper = own_line(raised(lambda: losses.cross_entropy(None, None)))
    assert helper is not None


def test_libraries_and_this_suite_have_no_lines(tmp_path: Path) -> None:
    for name, own in (("torch", False), ("somebodys", True)):
        place = tmp_path / "site-packages" / name
        place.mkdir(parents=True)
        made = module(place, "file", "def fail():\n    raise ValueError('no')\n")
        error = raised(made["fail"])
        assert errors._may_be_algorithm(place / "file.py") == own
        assert (own_line(error) is not None) == own or __file__ in str(own_line(error))
    assert not errors._may_be_algorithm(Path(errors.__file__))
    assert not errors._may_be_algorithm(Path(weakref.__file__))
    assert not errors._may_be_algorithm(tmp_path / "none.py")
    assert errors._may_be_algorithm(Path(losses.__file__))
    assert errors._may_be_algorithm(Path(__file__))


def test_an_error_without_a_place(tmp_path: Path) -> None:
    assert describe(ValueError("never raised")) == "ValueError: never raised"
    cause = KeyError("inner")
    error = RuntimeError("outer")
    error.__cause__ = cause
    assert describe(error) == "KeyError: outer"
    assert sys.exc_info() == (None, None, None)


def test_a_text_with_its_place_gets_no_other() -> None:
    error = raised(lambda: losses.cross_entropy(None, None))
    error.args = ("upload must return two dicts (mine.py:7)",)
    assert describe(error) == f"{type(error).__name__}: upload must return two dicts (mine.py:7)"
