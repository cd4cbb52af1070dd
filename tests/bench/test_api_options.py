"""`bench.api`: values of Python as words, and what statuses raise."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench import api, provenance
from bench.api import _assignments, _plain, _raise_unless_ended
from bench.errors import EnvironmentProblem, UsageError
from bench.planning.options import SweepOptions


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (pd.Series([1.5]), [1.5]),
        ((1, (2, 3)), [1, [2, 3]]),
        (range(2), [0, 1]),
        ({3}, [3]),
        (frozenset({3}), [3]),
        (Path("/a"), "/a"),
        ({"a": (1, Path("b"))}, {"a": [1, "b"]}),
        ("text", "text"),
        (None, None),
    ],
)
def test_values_become_those_of_toml(value: Any, plain: Any) -> None:
    found = _plain(value)
    assert found == plain
    assert type(found) is type(plain)


def test_mappings_become_assignments() -> None:
    assert _assignments({"a": 1, "b": (1, "x")}) == ["a=1", "b=1,x"]
    assert _assignments([1]) == [1]


def words_of(**options: Any) -> list[str]:
    """The words of a sweep's command."""
    words, _ = api._sweep_options(options, "here")
    return words


def test_options_become_words() -> None:
    given = {
        "algo": ["fedavg", "fedprox"],
        "set": {"mu": [0.1, 1], "fedprox": {"mu": 2}},
        "confirm": 2,
        "confirm_at": {"participation": (0.5, 1)},
        "replicates": {"fedavg": 2},
        "quiet": True,
        "force": False,
        "out": None,
        "data_dir": Path("/data"),
    }
    words = "--algo fedavg fedprox --set mu=0.1,1 fedprox.mu=2 --confirm 2"
    words += " --confirm-at participation=0.5,1 --replicates fedavg=2 --quiet --data-dir /data"
    assert words_of(**given) == words.split()


@pytest.mark.parametrize("name", ["list", "show", "dry_run", "json"])
def test_options_that_print_are_the_commands(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        api.sweep(algo="fedavg", **{name: True})
    flag = name.replace("_", "-")
    said = f"{name} only prints: use `python -m bench.sweep --{flag}`"
    assert str(refused.value) == said


def test_compare_takes_words_by_name() -> None:
    given = {
        "out": Path("here"),
        "metric": ["best", "final"],
        "alpha": 0.1,
        "where": {"local_epochs": 5, "lr": [0.1, 0.2]},
        "confirmed": True,
        "tuned": ("lr",),
        "over_cells": False,
        "reference": None,
    }
    arguments = api._compare_arguments(given)
    assert (arguments.out, arguments.metric) == (["here"], ["best", "final"])
    assert (arguments.alpha, arguments.where) == (["0.1"], ["local_epochs=5", "lr=0.1,0.2"])
    assert (arguments.confirmed, arguments.tuned, arguments.over_cells) == ([], ["lr"], False)
    assert arguments.reference is None


@pytest.mark.parametrize("budget", [None, 5.0])
def test_statuses_raise(budget: float | None) -> None:
    options = SweepOptions(time_budget=budget)
    for status in (0, 1):
        _raise_unless_ended(status, options)
    with pytest.raises(EnvironmentProblem, match="the same call takes them up again"):
        _raise_unless_ended(3, options)
    if budget is None:
        with pytest.raises(KeyboardInterrupt, match="the same call goes on from what is saved"):
            _raise_unless_ended(130, options)
    else:
        _raise_unless_ended(130, options)


def test_frames_are_told_by_their_lengths() -> None:
    frame = pd.DataFrame({"a": range(1200)})
    frames = api.Frames(frame, frame[:1], frame[:0])
    assert repr(frames) == "Frames(runs: 1,200 rows, curves: 1 rows, board: 0 rows)"


def test_run_leaves_defaults_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are those of the command."""
    parsed: list[Any] = []

    def ready(plan: Any) -> None:
        parsed.append(plan)
        raise UsageError("enough")

    monkeypatch.setattr("bench.sweep.command.ready", ready)
    for given in ({}, {"device": "cpu", "track": ["local"], "force": True, "offline": True}):
        with pytest.raises(UsageError, match="enough"):
            api.run("fedprox", mu=0.5, seed=4, out=tmp_path, **given)
    plain, full = (plan.options for plan in parsed)
    assert (plain.executor, plain.quiet, plain.out) == ("inline", True, str(tmp_path))
    assert (plain.device, plain.force, plain.offline, plain.track) == ("auto", False, False, ())
    assert (full.device, full.force, full.offline, full.track) == ("cpu", True, True, ("local",))
    (run,) = parsed[0].run_specs
    assert (run.seed, run.hyperparameters["mu"]) == (4, 0.5)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (["a"], "load takes one path or the name of a board, got ['a']"),
        ("a/b", "there is no folder or file a/b"),
        ("-x", "there is no folder or file -x"),
        ("nobodys", "no board 'nobodys'"),
    ],
)
def test_load_takes_a_path_or_a_board(source: Any, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        api.load(source)
    assert str(refused.value).startswith(problem)


# Provenance


class Git:
    """A checkout with these changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, commit: Any, changes: Any) -> None:
        answers = {"rev-parse": commit, "status": changes}
        monkeypatch.setattr(provenance, "_git", lambda root, action, *more: answers[action])

    def commit(self) -> tuple[str | None, bool | None]:
        """Its commit, and whether it has changes."""
        found: tuple[str | None, bool | None] = provenance._commit.__wrapped__()
        return found


@pytest.mark.parametrize(
    ("commit", "changes", "found"),
    [
        ("ab", "", ("ab", False)),
        ("ab", " M bench/a.py", ("ab", True)),
        ("ab", '?? "bench/é.py"', ("ab", True)),
        ("ab", "?? bench/new/", ("ab", True)),
        ("ab", " M pyproject.toml", ("ab", True)),
        ("ab", " M bench/notes.md", ("ab", False)),
        (None, "", (None, None)),
        ("ab", None, (None, None)),
    ],
)
def test_sources_may_differ_from_the_commit(
    commit: Any, changes: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Git(monkeypatch, commit, changes).commit() == found


def test_no_checkout_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "bench" / "provenance.py"))
    monkeypatch.setattr(provenance, "_git", lambda *_: pytest.fail("there is none to ask"))
    assert provenance._commit.__wrapped__() == (None, None)


def test_git_answers_or_not(tmp_path: Path) -> None:
    assert provenance._git(tmp_path, "rev-parse", "HEAD") is None
    version = provenance._git(tmp_path, "--version")
    assert version is not None
    assert version.startswith("git version ")
    assert not version.endswith("\n")


def test_a_command_is_text() -> None:
    columns = provenance.command_columns("a \udcff b")
    assert columns["command"] == "a ? b"
    assert set(columns) == {"package_version", "git_commit", "git_dirty", "command"}


def test_a_gpu_is_named_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_name=lambda: "A100"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert provenance.process_columns("cuda")["device"] == "A100"
    assert provenance.process_columns("cuda", here=False)["device"] == "cuda"
    assert provenance.process_columns("cpu")["device"] == "cpu"
    versions = provenance.process_columns("cpu")["versions"]
    assert versions["python"] == sys.version.split()[0]
    assert versions["numpy"] == np.__version__
