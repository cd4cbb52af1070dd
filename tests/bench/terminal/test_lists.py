"""Lists on command lines: spaces, commas and both are one thing, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare.filters import filters
from bench.errors import UsageError
from bench.terminal.console import Parser
from bench.terminal.words import folded, folders_of, split_list


def test_lists_take_spaces_and_commas() -> None:
    assert (
        split_list(["0.1", "0.5"])
        == split_list(["0.1,0.5"])
        == split_list(["0.1, 0.5 ,"])
        == ("0.1", "0.5")
    )
    assert split_list(None) == split_list([","]) == ()


def test_folders_are_named_once_each_and_the_usual_one_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "x, y"):
        Path(name).mkdir()
    assert folders_of(["a, b", "a/"]) == [Path("a"), Path("b")]
    assert folders_of(["x, y"]) == [Path("x, y")], "one that is there has its whole name"
    assert folders_of(["c"]) == [Path("c")]
    with pytest.raises(UsageError, match="no such folder: c, d"):
        folders_of(["a,c", "d"])
    monkeypatch.setenv("FEDKD_OUT", "usual")
    assert folders_of(None) == folders_of([","]) == [Path("usual")]


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


def test_hyperparameters_are_folded_between_values() -> None:
    short = "beta=0.3 gamma=0.7"
    assert folded(short) == [short]
    assert folded(f"{short} temperature=2") == [short, "temperature=2"]
    by_column = "distillation_weight=0.1|0.3|0.5|0.7"
    assert folded(by_column) == ["distillation_weight=0.1|0.3|", "0.5|0.7"]
    uncut = "a_hyperparameter_with_a_long_name=0.25"
    assert folded(f"beta=1 {uncut} mu=2") == ["beta=1", uncut, "mu=2"]
