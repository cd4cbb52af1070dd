"""Plans: what a command runs, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithms import entry
from bench.plan import _with_own_model, make_plan
from bench.request import Request
from bench.sweep import main
from search_spaces import SETTINGS, SPACES


def test_a_model_has_one_name_whatever_the_order_of_its_forms() -> None:
    plans = [make_plan(Request(("fedavg",), values={"model": (name,)})) for name in ("mlp+bn+head", "mlp+head+bn")]
    assert plans[0].units[0].key == plans[1].units[0].key
    assert plans[0].units[0].setting.model == "mlp+head+bn"


def test_a_paper_may_give_an_algorithm_a_model_of_its_own() -> None:
    space = SPACES["fedgkd", "tiny_imagenet", "moon"]
    assert space.setting.model == "resnet50+bn"
    assert _with_own_model(entry("moon"), SETTINGS["fedgkd", "tiny_imagenet"], "fedgkd").model == "resnet50+bn"
    assert _with_own_model(entry("fedavg"), SETTINGS["fedgkd", "tiny_imagenet"], "fedgkd").model == "resnet50"


def test_rows_that_another_run_yields_as_well_are_made_once() -> None:
    alone = make_plan(Request(("fedavg",)))
    plan = make_plan(Request(("fedavg", "fedavg_t1")))
    assert [unit.algorithm for unit in plan.units] == ["fedavg_t1"]
    assert plan.units[0].rows == {"": alone.units[0].key, "_t1": plan.units[0].key}
    assert plan.notes == ("fedavg: its runs are part of fedavg_t1's and are not repeated",)
    several = make_plan(Request(("fedprox", "fedprox_t1"), values={"mu": ("0.1", "1")}))
    assert [unit.algorithm for unit in several.units] == ["fedprox_t1"] * 2
    wider = make_plan(
        Request(("fedprox", "fedprox_t1"), values={"fedprox.mu": ("0.1", "1"), "fedprox_t1.mu": ("0.1",)})
    )
    assert [unit.algorithm for unit in wider.units] == ["fedprox", "fedprox_t1"]
    assert wider.notes == ("fedprox: some of its runs are part of fedprox_t1's and are not repeated",)


def test_a_dry_run_names_every_hyper_parameter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["--algo", "fedgkd", "--set", "gamma=0.7", "buffer=1,5", "--dry-run", "--out", str(tmp_path)]
    assert main(given) == 0
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│ fedgkd ")]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert ["fedgkd", "gamma", "0.7", "0.2"] in cells
    assert ["fedgkd", "buffer", "1, 5", "5"] in cells
