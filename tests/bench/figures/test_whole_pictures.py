"""Whole specifications of pictures of a board, and what the command lists of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board import assert_approved, plain, ran, varied
from rows import write

from bench import artifacts
from bench.charts.panels import print_config
from bench.figures import planes
from bench.figures.catalogue import FIGURES
from bench.figures.command import main
from bench.figures.stored_runs import read

FEW: list[Any] = ["fedavg", "fedgkd", "scaffold", "moon", "mine:Own", "ditto"]
ONE_CELL: dict[str, list[Any]] = {"algorithm": FEW, "alpha": [0.1], "participation": [0.5]}
DRAWN: dict[str, dict[str, list[Any]]] = {
    "board-differences": {},
    "board-costs": {"alpha": [0.1, 1.0], "participation": [0.5]},
    "fedgkd-3": {"algorithm": FEW},
    "fedgkd-4": {"algorithm": FEW, "participation": [0.5, 1.0]},
    "feddkd-2": {"algorithm": ["fedavg", "scaffold", "mine:Own", "local"], "alpha": [0.1]},
    "feddkd-7": ONE_CELL,
    "fedcad-1": ONE_CELL,
    "fedcad-3": {"algorithm": FEW},
    "fedcad-4": ONE_CELL,
    "fedkf-2": {"algorithm": FEW},
    "fedkf-3": {"dataset": ["cifar10"]},
}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return varied(tmp_path_factory.mktemp("varied"))


def pictures(out: Path, figure: str, **where: list[Any]) -> str:
    """The specifications of a figure's pictures."""
    found = FIGURES[figure].find(read([out], where))
    return plain({name: drawing() for name, drawing in found.items()})


@pytest.mark.parametrize("figure", DRAWN)
def test_a_figure_is_drawn(figure: str, board: Path) -> None:
    text = pictures(board, figure, **DRAWN[figure])
    assert_approved(f"figures/{figure}.txt", text, board)


def test_what_is_listed(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(board)]) == 0
    listed = capsys.readouterr().out
    assert main(["--all", "--dry-run", "--to", "to", "--out", str(board)]) == 0
    assert_approved("figures/listed.txt", listed + capsys.readouterr().out, board)


def test_how_pictures_look(tmp_path: Path) -> None:
    assert_approved("figures/look.txt", plain(print_config()), tmp_path)


def test_features_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Placed by their first two numbers; one algorithm has no global model."""
    monkeypatch.setattr(planes, "embedded", lambda features: features[:, :2])
    pairs = [ran(name, (0.1, 0.5), 0) for name in ("fedavg", "fedgkd", "moon", "fedbn")]
    write(tmp_path, pairs)
    features = np.arange(12.0).reshape(3, 4) / 7
    for at, (row, _) in enumerate(pairs):
        kept = {"features/labels": np.array([0, 2, 1]), "features/client": np.array(1)}
        kept["features/local"] = features + at
        if at < 3:
            kept["features/global"] = features - at
        if at < 2:
            kept["local/clients"] = np.array([[0, 1], [2, 1]])
            kept["local/accuracy"] = np.array([[0.1, 0.2], [0.3, 0.4 + at / 10]])
        artifacts.write_arrays(tmp_path, row["run_key"], kept)
    assert_approved("figures/fedgkd-2.txt", pictures(tmp_path, "fedgkd-2"), tmp_path)


def keep_classes(out: Path, row: dict[str, Any], **more: Any) -> None:
    """Accuracies by class of a global model, and of the local models of two clients."""
    arrays = {"rounds": [1], "global": [[0.5, 0.25]], "counts": [[3, 1], [0, 4], [2, 2]]}
    arrays |= {"clients": [2, 0], "local": [[0.125, 1.0], [0.75, 0.0]]}
    named = {f"classes/{name}": np.array(value) for name, value in arrays.items()}
    artifacts.write_arrays(out, row["run_key"], named | more)


@pytest.mark.parametrize(("rounds", "kept"), [(1, True), (1, False), (2, True)])
def test_local_models_of_one_start(rounds: int, kept: bool, tmp_path: Path) -> None:
    start, curve = ran("fedavg", (0.1, 0.5), 0)
    fields = {"rounds": rounds, "start_from": start["run_key"]}
    pairs = [ran(name, (0.1, 0.5), 0, fields=fields) for name in ("fedavg", "fedgkd")]
    write(tmp_path, [(start, curve), *pairs])
    for row, _ in pairs:
        keep_classes(tmp_path, row)
    if kept:
        keep_classes(tmp_path, start, **{"run/algorithm": np.array("fedavg")})
    name = f"figures/start_{rounds}_{kept}.txt"
    assert_approved(name, pictures(tmp_path, "fedcad-1"), tmp_path)
