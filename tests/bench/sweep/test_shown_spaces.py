"""`--list` and `--show`: every fact of an algorithm and of its spaces, in print and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from board import assert_approved

from algorithms import ALGORITHMS, entry
from bench.errors import UsageError
from bench.sweep import show
from bench.sweep.command import main
from bench.sweep.show import print_registry, tried
from bench.terminal.console import console
from search_spaces import SPACES, Grid

FEDCAD = "fedcad (cifar10, cifar100, femnist, femnist_letters, femnist_digits)"


def table(text: str) -> list[list[str]]:
    """The rows of printed tables, their cells by lines, and other lines as such."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        cells = [cell.rstrip() for cell in line.replace("┃", "│").split("│")]
        if len(cells) > 1:
            rows.append([cell.removeprefix(" ") for cell in cells[1:-1]])
        elif not line.startswith(("┏", "┡", "└", "├")):
            rows.append([line])
    return rows


def test_an_algorithm_is_listed_with_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    print_registry(["fedcad"], as_json=False)
    title = "hyper-parameters = default, values tried"
    assert table(capsys.readouterr().out) == [
        ["algorithm", "paper", title, "down", "up", "client keeps"],
        ["fedcad", "He et al. 2022", "beta = 0.3", "P + C", "P", "nothing"],
        ["", "Eqs. 3-6", f"  {{0, 0.3, 0.5, 0.7}}: {FEDCAD}", "", "", ""],
        ["", "", "  {0, 0.3, 0.5}: fedkd (digits)", "", "", ""],
        ["", "", "gamma = 0.7", "", "", ""],
        ["", "", f"  {{0, 0.3, 0.5, 0.7}}: {FEDCAD}", "", "", ""],
        ["", "", "  {0.3, 0.5, 0.7}: fedkd (digits)", "", "", ""],
        ["", "", "temperature = 2", "", "", ""],
        ["", "", "phi_temperature = none", "", "", ""],
        ["", "", "kd_t_squared = false", "", "", ""],
        [
            "Floats per active client and round: P the model's size, C classes, G a generator's "
            "size, M the buffer, J the steps."
        ],
        ["--json has summaries, ranges and meanings too; --algo NAME --list shows one."],
    ]


def test_without_hyperparameters_there_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_registry(["fedavg", "local"], as_json=False)
    rows = table(capsys.readouterr().out)
    assert rows[1] == ["fedavg", "McMahan et al. 2017", "–", "P", "P", "nothing"]
    assert [row[0] for row in rows if row[0].strip()][:3] == ["algorithm", "fedavg", "local"]


def test_narrow_lists_have_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "console", lambda: console(119))
    print_registry(["fedlc"], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "fedlc: Zhang et al. 2022, " + ALGORITHMS["fedlc"].equations,
        "  tau = 1",
        "    {0.3, 1}: fedkd (digits)",
        f"  down {entry('fedlc').down}; up {entry('fedlc').up}; client keeps nothing",
        "",
    ]


def test_the_registry_is_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_registry([], as_json=True)
    every = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in every] == list(ALGORITHMS)
    print_registry(["fedavg", "all"], as_json=True)
    assert json.loads(capsys.readouterr().out) == every
    (fedcad,) = [one for one in every if one["name"] == "fedcad"]
    own = entry("fedcad")
    assert fedcad["hyperparameters"][0] == {
        "name": "beta",
        "type": "float",
        "default": 0.3,
        "range": "in [0, 1)",
        "meaning": own.fields[0].meaning,
    }
    assert fedcad["grids"][-1] == {
        "paper": "fedkd",
        "dataset": "digits",
        "grid": "beta {0, 0.3, 0.5}, gamma {0.3, 0.5, 0.7}",
    }
    assert len(fedcad["grids"]) == 6
    assert (fedcad["needs"], fedcad["version"]) == (["auxiliary"], own.version)
    assert (fedcad["summary"], fedcad["keeps"]) == (own.summary, "nothing")


def test_fixed_values_are_tried_if_stated() -> None:
    (key, space) = next((key, space) for key, space in SPACES.items() if space.fixed)
    field = next(iter(space.fixed))
    places = tried(key[2], field, stated=True)
    value = space.fixed[field]
    assert key[:2] in places["none" if value is None else str(value)]
    assert all(key[:2] not in own for own in tried(key[2], field).values())


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The status and the output of a command with `--show`."""
    status = main(["--show", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_space_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = shown(capsys, "--algo", "fedcad", "--dataset", "digits")
    assert (status, err) == (0, "")
    source = "our own choice for the embedded data"
    title = "fedkd-bench: the embedded setting"
    heads = ["algorithm", "paper", "data set", "tried", "fixed", "relations", "source"]
    assert table(out) == [
        heads,
        ["fedcad", title, "digits", "beta {0, 0.3, 0.5}", "–", "beta <= gamma", source],
        ["", "", "", "gamma {0.3, 0.5, 0.7}", "", "", ""],
    ]
    _, out, _ = shown(capsys, "--algo", "fedcad", "--dataset", "digits", "--json")
    (space,) = json.loads(out)
    setting = SPACES["fedkd", "digits", "fedcad"].setting.as_dict()
    assert space == {
        "algorithm": "fedcad",
        "paper": "fedkd",
        "setting": setting,
        "grid": {"beta": "{0, 0.3, 0.5}", "gamma": "{0.3, 0.5, 0.7}"},
        "tuned": {},
        "fixed": {},
        "where": ["beta <= gamma"],
        "source": source,
    }


def test_algorithms_that_nobody_tried_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--algo", "fedcad,fedrs,fedlc", "--dataset", "cifar10", "--json")
    status, out, err = shown(capsys, *words)
    assert [space["algorithm"] for space in json.loads(out)] == ["fedcad"]
    assert (status, err) == (0, "note: no paper here tried fedlc, fedrs on cifar10\n")
    status, out, err = shown(capsys, "--algo", "fedrs", "--json")
    assert (status, len(json.loads(out)), err) == (0, 1, "")
    status, out, err = shown(capsys, "--algo", "fedcad", "--dataset", "mnist")
    assert (status, out) == (2, "")
    start = "error: no paper here tried fedcad on mnist; there is: cifar10, cifar100, femnist"
    assert err.startswith(start)


def test_an_own_space_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an algorithm that no paper tried on the data set."""
    own = entry("fedrs")
    first = replace(own.fields[0], search=Grid(0.1, 0.5))
    monkeypatch.setitem(ALGORITHMS, "fedrs", replace(own, fields=(first, *own.fields[1:])))
    words = ("--algo", "fedcad,fedrs", "--dataset", "cifar10")
    status, out, err = shown(capsys, *words, "--json")
    assert (status, err) == (0, "")
    stated: dict[str, Any] = {first.name: "{0.1, 0.5}"}
    assert json.loads(out)[1:] == [
        {
            "algorithm": "fedrs",
            "paper": None,
            "setting": None,
            "grid": stated,
            "tuned": {},
            "fixed": {},
            "where": [],
            "source": own.factory,
        }
    ]
    _, out, _ = shown(capsys, *words)
    assert table(out)[-1] == [
        "fedrs",
        "–",
        "any",
        f"{first.name} {{0.1, 0.5}}",
        "–",
        "–",
        own.factory,
    ]
    print_registry(["fedrs"], as_json=False)
    assert f"  {{0.1, 0.5}}: {own.factory}" in [
        row[2] for row in table(capsys.readouterr().out)[:4]
    ]


def test_planned_algorithms_have_rows_or_searches() -> None:
    runs = [SimpleNamespace(row_names={"": "fedavg_t1", "_x": "fedavg"})]
    runs.append(SimpleNamespace(row_names={"": "fedavg", "_x": "no algorithm's"}))
    plan: Any = SimpleNamespace(run_specs=runs, searches=[SimpleNamespace(algorithm="moon")])
    assert show._planned_names(plan) == ["fedavg_t1", "fedavg", "moon"]


@pytest.mark.parametrize("width", [119, 120, 200])
def test_the_registry_is_printed_whole(
    width: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table if there is room, else lines."""
    monkeypatch.setattr(show, "console", lambda: console(width))
    long = ["fedgkd_vote", "feddkd_bn", "fedkf", "scaffold"]  # their facts take several lines
    print_registry(["fedcad", "fedlc", *long], as_json=False)
    assert main(["--show", "--algo", "fedcad,fedlc", "--dataset", "digits"]) == 0
    assert_approved(f"print/registry-{width}.txt", capsys.readouterr().out, tmp_path)


def test_installed_algorithms_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Algorithms that cannot be imported are left out with the reason."""
    own = replace(entry("fedavg"), name="mine")

    def find(name: str) -> Any:
        if name == "mine":
            return own
        raise UsageError(f"{name} has no module")

    monkeypatch.setattr(show, "find_algorithm", find)
    monkeypatch.setattr(show.plugins, "names", lambda: ("broken", "fedavg", "mine"))
    entries, broken = show._entries([])
    assert entries == [*ALGORITHMS.values(), own]
    assert broken == ["broken has no module"]
    print_registry([], as_json=False)
    assert capsys.readouterr().out.endswith("\nleft out: broken has no module\n")


def test_a_data_sets_spaces_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Values that nobody tried there are no news."""
    status, out, err = shown(capsys, "--algo", "all", "--dataset", "femnist", "--json")
    assert (status, err) == (0, "")
    settings = [space["setting"] for space in json.loads(out) if space["paper"]]
    assert {setting["dataset"] for setting in settings} == {"femnist"}
    status, _, err = shown(capsys, "--algo", "all", "--dataset", "svhn")
    assert status == 2
    assert err.startswith("error: no paper here tried any of them on svhn; there is: ")
