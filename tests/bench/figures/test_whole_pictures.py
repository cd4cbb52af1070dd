"""Whole specifications of pictures of a board, and what the command lists of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board import assert_approved, plain, ran, varied
from rows import write

from bench import artifacts, data
from bench.charts.panels import print_config
from bench.errors import EnvironmentProblem
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


def sides(out: Path, figure: str) -> list[int]:
    """How many panels stand beside each other, row by row, in a figure's only picture."""
    (drawing,) = FIGURES[figure].find(read([out], {})).values()
    return [len(row["hconcat"]) for row in drawing()["vconcat"]]


SEVEN = ("fedavg", "fedprox", "fedgkd", "fedlc", "fedntd", "fedmax", "fedrs")


def test_six_embeddings_stand_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planes, "embedded", lambda features: features)
    pairs = [ran(name, (0.1, 0.5), 0) for name in SEVEN]
    write(tmp_path, pairs)
    for row, _ in pairs:
        kept = {"labels": np.array([0, 1]), "client": np.array(1), "local": np.zeros((2, 2))}
        named = {f"features/{name}": array for name, array in kept.items()}
        artifacts.write_arrays(tmp_path, row["run_key"], named)
    assert sides(tmp_path, "fedgkd-2") == [6, 6, 1, 1]
    assert "placing the features of 7 algorithms by t-SNE" in capsys.readouterr().err


def test_four_planes_stand_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = []

    def classified(runs: Any, run: Any, xs: Any, ys: Any) -> Any:
        edges.append((xs, ys))
        return np.zeros((len(ys) - 1, len(xs) - 1), int)

    monkeypatch.setattr(planes, "classified", classified)
    fields = {"dataset": "toy2d", "model": "mlp_vectors"}
    pairs = [ran(name, (0.1, 0.5), 0, fields=fields) for name in SEVEN[:5]]
    pairs.append(ran("fednova", (0.1, 0.5), 0, fields=fields))
    write(tmp_path, pairs)
    for row, _ in pairs:
        layer = "0/weight" if row["algorithm"] == "fednova" else "weight"
        model = {layer: np.zeros(2, np.float32)}
        artifacts.write_tensors(tmp_path, row["run_key"], model, {})
    assert sides(tmp_path, "fedgkd-5") == [4, 1], "one has a model for each client"
    dataset = data.load("toy2d")
    samples = np.concatenate([dataset.train_x, dataset.test_x])
    for at, own in enumerate(edges[0]):
        assert len(own) == 161
        assert (own[0], own[-1]) == (samples[:, at].min(), samples[:, at].max())
        assert np.diff(own) == pytest.approx(np.diff(own)[0])
    (drawing,) = FIGURES["fedgkd-5"].find(read([tmp_path], {})).values()
    spec = drawing()
    (below, dots, *_) = spec["vconcat"][0]["hconcat"][0]["layer"]
    assert len(below["data"]["values"]) == 160, "a row of one class is one rectangle"
    assert dots["mark"]["type"] == "circle"
    shown = spec["vconcat"][0]["hconcat"][0]["data"]["values"]
    assert len(shown) == 400
    first = dataset.test_x[0].round(4).tolist()
    assert [shown[0]["x"], shown[0]["y"]] == first
    assert "Points: 400 test samples" in " ".join(spec["title"]["subtitle"])


@pytest.mark.parametrize(
    ("features", "perplexity", "init"),
    [
        (np.arange(20.0).reshape(10, 2), 3.0, "pca"),
        (np.arange(400.0).reshape(200, 2), 30.0, "pca"),
        (np.arange(10.0).reshape(10, 1), 3.0, "random"),
        (np.ones((10, 4)), 3.0, "random"),
    ],
)
def test_few_or_equal_features_are_embedded(
    features: Any, perplexity: float, init: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer neighbours than there are, and without components that do not exist."""
    manifold = pytest.importorskip("sklearn.manifold")
    asked: dict[str, Any] = {}

    class Recorded:
        def __init__(self, **options: Any) -> None:
            asked.update(options)

        def fit_transform(self, flat: Any) -> Any:
            return flat[:, :1].repeat(2, axis=1)

    monkeypatch.setattr(manifold, "TSNE", Recorded)
    assert planes.embedded(features).shape == (len(features), 2)
    assert (asked["perplexity"], asked["init"]) == (perplexity, init)
    assert (asked["n_components"], asked["random_state"]) == (2, 0)


def test_what_tracked_files_lack_is_named(tmp_path: Path) -> None:
    row, curve = ran("fedavg", (0.1, 0.5), 0)
    write(tmp_path, [(row, curve)])
    keep_classes(tmp_path, row)
    runs = read([tmp_path], {})
    assert set(runs.arrays(row, ["classes/local"])) >= {"classes/local", "classes/global"}
    with pytest.raises(EnvironmentProblem, match=r"npz lacks a, b, which a file of tracked data"):
        runs.arrays(row, ["a", "classes/local", "b"])


def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    fields = {"dataset": "toy2d", "model": "mlp_vectors"}
    row, curve = ran("fedavg", (0.1, 0.5), 0, fields=fields)
    write(tmp_path, [(row, curve)])
    artifacts.write_tensors(tmp_path, row["run_key"], {"weight": np.zeros(2, np.float32)}, {})
    edges = np.array([0.0, 1.0])
    runs = read([tmp_path], {})
    with pytest.raises(EnvironmentProblem, match="does not hold a mlp_vectors for toy2d: delete"):
        planes.classified(runs, row, edges, edges)


@pytest.mark.parametrize(
    ("dataset", "plane"), [("toy2d", True), ("digits", False), ("nowhere:Data", False)]
)
def test_which_data_lie_in_a_plane(dataset: str, plane: bool) -> None:
    assert planes._in_plane(dataset) is plane
