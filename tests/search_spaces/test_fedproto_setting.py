"""FedProto's MNIST experiment as a preset: its network, own weights of clients, its table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import published_formats as formats
import pytest
import torch
import torch.nn.functional as F
from published_formats import folder, surroundings
from test_published_files import put_all
from torch import Tensor, nn

from algorithms import build
from algorithms.base import Params
from bench import models
from bench.compare import command as compare
from bench.data import vision
from bench.engine.dropout import step_keys
from bench.engine.network import Network, initial_params, make_module
from bench.engine.simulation import Simulation
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.tables import counterparts_of, places_of
from bench.selftest.toy import gap, simulate
from bench.sweep import command as sweep
from leaderboards import Store

__all__ = ["folder", "surroundings"]
UNLIKE = "cnn_fedproto_18/cnn_fedproto/cnn_fedproto_22"


# The network


def as_in_the_code(params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return features and logits of the authors' CNN without dropout."""
    first = F.conv2d(x, params["body.0.weight"], params["body.0.bias"])
    hidden = F.relu(F.max_pool2d(first, 2))
    second = F.conv2d(hidden, params["body.3.weight"], params["body.3.bias"])
    flat = F.relu(F.max_pool2d(second, 2)).flatten(1)
    features = F.relu(flat @ params["body.8.weight"].T + params["body.8.bias"])
    return features, features @ params["head.weight"].T + params["head.bias"]


@pytest.mark.parametrize(
    ("name", "channels"), [("cnn_fedproto_18", 18), ("cnn_fedproto", 20), ("cnn_fedproto_22", 22)]
)
def test_the_network_is_the_authors(name: str, channels: int) -> None:
    module = make_module(lambda: models.make(name, (1, 28, 28), 10), seed=0)
    net = Network(module, (1, 28, 28), 10, "fp64")
    params = initial_params(module, torch.float64, torch.device("cpu"))
    assert params["body.3.weight"].shape == (channels, 10, 5, 5)
    x = torch.randn(3, 1, 28, 28, dtype=torch.float64)
    features, logits = as_in_the_code(params, x)
    out = net.eval(params, x)
    torch.testing.assert_close(out.features, features)
    torch.testing.assert_close(out.logits, logits)


def test_channels_and_features_are_dropped_in_training() -> None:
    module = make_module(lambda: models.make("cnn_fedproto", (1, 28, 28), 10), seed=0)
    net = Network(module, (1, 28, 28), 10)
    params = initial_params(module, torch.float32, torch.device("cpu"))
    x = torch.randn(64, 1, 28, 28)
    (key,) = step_keys(torch.Generator().manual_seed(0), 1)
    with net.dropout(key):
        out = net(params, x)
    assert not torch.allclose(out.features, net.eval(params, x).features)
    # The head reads features of which half are dropped, and the others doubled.
    assert not torch.allclose(out.logits, net.head(params, out.features))
    layers = [
        type(layer)
        for layer in module.modules()
        if isinstance(layer, nn.modules.dropout._DropoutNd)
    ]
    assert layers == [nn.Dropout2d, nn.Dropout]


# Own weights


def first_models(simulation: Simulation) -> list[Params]:
    """The clients' models before the first round."""
    return [simulation.local_model({}, client) for client in range(simulation.setting.num_clients)]


@pytest.mark.parametrize("name", ["local", "fedproto"])
def test_clients_start_from_weights_of_their_own(name: str) -> None:
    shared = first_models(simulate(build(name)))
    assert gap(shared, shared[:1] * len(shared)) == 0
    own = first_models(simulate(build(name, own_weights=True)))
    distances = [gap(own[0], other) for other in own[1:]]
    assert min(distances) > 0.01
    assert gap(own, first_models(simulate(build(name, own_weights=True)))) == 0


def test_fedproto_without_its_term_is_local_from_own_weights() -> None:
    runs = [
        simulate(build("local", own_weights=True)),
        simulate(build("fedproto", own_weights=True, proto_weight=0.0)),
    ]
    ends = []
    for run in runs:
        run.advance(3)
        ends.append(first_models(run))
    assert gap(*ends) == 0


def test_own_weights_are_no_part_of_an_older_key() -> None:
    plan = make_plan(SweepOptions(("local",), values={"own_weights": ("false", "true")}))
    given, other = [json.loads(spec.named_by["hp_json"]) for spec in plan.run_specs]
    assert given == {}
    assert other == {"own_weights": True}


# The preset and its table


def test_a_cell_has_both_predictions() -> None:
    cells = places_of("fedproto", "1")
    for cell in cells:
        rows = [counterpart.algorithm for counterpart in counterparts_of(cell)]
        name = cell.printed.algorithm
        assert rows == ([name, f"{name}_proto"] if name == "fedproto" else [name])
    models_of = {cell.printed.printed: cell.setting.client_models for cell in cells}
    assert {name for name, given in models_of.items() if given == UNLIKE} == {"FedProto-mh"}
    assert {cell.setting.classes_per_client for cell in cells} == {3, 4, 5}


def test_n_narrows_the_table() -> None:
    values = {"classes_per_client": ("4",)}
    plan = make_plan(
        SweepOptions((), dataset="", paper="fedproto", table="1", seeds=3, values=values)
    )
    assert {spec.setting.classes_per_client for spec in plan.run_specs} == {4}
    assert len(plan.run_specs) == 5 * 3
    assert len(plan.places) == 10


@pytest.mark.slow
def test_the_table_runs_on_files_in_mnists_format(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FEDKD_DATA", str(folder))
    train = formats.draw(20_000, (28, 28), 10, 1)
    test = formats.draw(50, (28, 28), 10, 2)
    blobs = [formats.idx(array) for array in (*train, *test)]
    source = formats.small(vision.MNIST, 20_000, 50, files=put_all(vision.MNIST, folder, blobs))
    monkeypatch.setattr(vision, "MNIST", source)
    out = tmp_path / "out"
    table = ["--paper", "fedproto", "--table", "1"]
    quick = ["--algo", "fedproto", "--rounds", "1", "--executor", "inline", "-q"]
    values = ["--set", "classes_per_client=3", "batch_size=128"]
    assert sweep.main([*table, *quick, *values, "--out", str(out)]) == 0
    runs = Store(out).runs()
    assert sorted(runs.algorithm) == ["fedproto"] * 2 + ["fedproto_proto"] * 2
    assert np.isfinite(runs.client_mean).all()
    capsys.readouterr()
    assert compare.main([*table, "--format", "json", "--out", str(out)]) == 0
    (document,) = json.loads(capsys.readouterr().out)["tables"]
    cells = [cell for cell in document["cells"] if cell["printed_as"].startswith("FedProto")]
    assert len(cells) == 2 * 2 * 2 * 3, "two rows of print, predictions, quantities, three n"
