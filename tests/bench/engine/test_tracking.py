"""`--track`: what is kept is what a plain pass over the test set gives, and keeping it changes nothing else."""

from __future__ import annotations

import errno
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import assert_equal_results, finish, run
from conftest import INFO, TINY, identical, make, simulate, toy_dataset, toy_split
from safetensors.numpy import load_file, save_file
from torch import Tensor

from algorithms import ALGORITHMS, entry
from algorithms.base import Algorithm, Params
from algorithms.feddkd import DKD
from bench import artifacts, data, models
from bench.engine import tracking
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.engine.tracking import fingerprint, load_model
from bench.errors import EnvironmentProblem
from bench.execution import TRACKS, Execution
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.selftest.toy import supplied
from bench.sweep import command as sweep
from bench.trial import results
from bench.trial.trial import Trial
from leaderboards import Store
from search_spaces import SETTINGS

ALL = tuple(TRACKS)
SETTING = replace(SETTINGS["fedkd", "digits"], rounds=3, local_epochs=1)
SHORT = ("--algo", "fedavg_t1,fedbn", "--rounds", "2", "--set", "local_epochs=1")


@dataclass(frozen=True)
class Keeper(Algorithm):
    """FedAvg whose clients keep their final local model, where a test finds it."""

    def init_client(self, fed, params):
        return {"own": params}

    def upload(self, net, local, data, message, memory, plan):
        return {"params": local["params"]}, {"own": local["params"]}


def toy(
    algorithm: str | Algorithm,
    track: tuple[str, ...] = ALL,
    backend: str = "loop",
    folder: StateFolder | None = None,
    dataset: data.Dataset | None = None,
    seed: int = 0,
    **fields: object,
) -> Simulation:
    """A run on the toy federation of `bench.selftest`, tracked."""
    made = make(algorithm) if isinstance(algorithm, str) else algorithm
    setting = replace(TINY, **fields)  # type: ignore[arg-type]
    if isinstance(algorithm, str):
        setting = replace(setting, model=supplied(setting.model, entry(algorithm).needs))
    dataset = dataset or toy_dataset()
    return Simulation(
        made, setting, seed, dataset, INFO, toy_split(), "cpu", backend, folder, track
    )


def plain_test_set() -> tuple[Tensor, Tensor]:
    """The toy's whole test set as a network takes it, made here."""
    found = toy_dataset()
    return (torch.tensor(found.test_x, dtype=torch.float64) / 255 - 0.5) / 0.25, torch.tensor(
        found.test_y
    )


def hits(run: Simulation, params: Params) -> Tensor:
    """Which test samples a whole model classifies right."""
    x, y = plain_test_set()
    with torch.no_grad():
        return (run.net.eval(params, x).logits.argmax(1) == y).double()


def by_class(run: Simulation, params: Params) -> list[float]:
    """Accuracy of each class, by a plain pass."""
    right, (_, y) = hits(run, params), plain_test_set()
    return [float(right[y == label].mean()) for label in range(3)]


def curve(run: Simulation, metric: str, suffix: str = "") -> dict[int, float]:
    return {at: value for at, name, value in run.progress.curves[suffix] if name == metric}


def assert_same_arrays(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert set(left) == set(right)
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_accuracies_of_local_models_and_of_classes_are_those_of_plain_passes(backend: str) -> None:
    run, local, classes, clients = toy(Keeper(), ("local", "classes"), backend), [], [], []
    for number in range(1, 5):
        run.advance(1)
        clients.append(run.participants(number))
        local.append(
            [float(hits(run, run.memories[client]["own"]).mean()) for client in clients[-1]]
        )
        classes.append(by_class(run, run.server.params))
    assert len({value for values in local for value in values}) > 2, (
        "the models differ, or nothing is tested"
    )
    assert curve(run, "local_accuracy") == pytest.approx(
        {at: sum(values) / 3 for at, values in enumerate(local, 1)}
    )
    kept = run.tracker.arrays("")
    assert kept["local/rounds"] == kept["classes/rounds"] == [1, 2, 3, 4]
    assert kept["local/clients"] == clients
    np.testing.assert_allclose(kept["local/accuracy"], local)
    np.testing.assert_allclose(kept["classes/global"], classes)
    np.testing.assert_allclose(
        np.mean(classes, 1), list(curve(run, "accuracy").values())
    )  # classes of one size
    assert kept["classes/clients"] == clients[-1]
    np.testing.assert_allclose(
        kept["classes/local"], [by_class(run, run.memories[c]["own"]) for c in clients[-1]]
    )
    labels = toy_dataset().train_y
    counts = [np.bincount(labels[index], minlength=3) for index in toy_split().clients]
    np.testing.assert_array_equal(kept["classes/counts"], counts)


def plain_gradient(run: Simulation, params: Params, client: int) -> np.ndarray[Any, Any]:
    """Of a client's mean cross entropy at a whole model, by torch alone: all samples at once, in evaluation mode."""
    module = models.make(run.setting.model, INFO.input_shape, 3).double()
    module.load_state_dict(params)
    module.eval()
    found, index = toy_dataset(), toy_split().clients[client]
    x = (torch.tensor(found.train_x[index], dtype=torch.float64) / 255 - 0.5) / 0.25
    torch.nn.CrossEntropyLoss()(
        module(x).logits, torch.tensor(found.train_y[index]).long()
    ).backward()
    return np.concatenate([value.grad.numpy().ravel() for value in module.parameters()])


def weights(run: Simulation, params: Params) -> np.ndarray[Any, Any]:
    """All parameters that are trained, in the module's order."""
    return np.concatenate([params[name].detach().numpy().ravel() for name in run.net.trainable])


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_drift_is_that_of_plain_autograd(backend: str) -> None:
    """FedGKD's Assumption 1.2, and the norms in its Eq. 6."""
    run = toy(Keeper(), ("drift",), backend, model="mlp+bn", evaluate_every=2)
    expected: dict[str, list[Any]] = {}
    for number in range(1, 5):
        before = dict(run.server.params)
        run.advance(1)
        if number % 2:
            continue
        clients = run.participants(number)
        n = np.array([len(toy_split().clients[client]) for client in clients])
        gradients = np.array([plain_gradient(run, before, client) for client in clients])
        mean = (n @ gradients) / n.sum()
        squares = (gradients**2).sum(1)
        moved = [
            weights(run, run.memories[client]["own"]) - weights(run, before) for client in clients
        ]
        distances = np.sqrt([own @ own for own in moved])
        values = {
            "rounds": number,
            "clients": clients,
            "shares": n / n.sum(),
            "gradients": np.sqrt(squares),
            "mean_gradient": np.sqrt(mean @ mean),
            "dissimilarity": (n @ squares) / n.sum() / (mean @ mean),
            "distances": distances,
            "distance": (n @ distances) / n.sum(),
        }
        for name, value in values.items():
            expected.setdefault(f"drift/{name}", []).append(value)
    kept = run.tracker.arrays("")
    assert set(kept) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(kept[name], values, rtol=1e-10, err_msg=name)
    assert len(set(n)) > 1, "clients of one size would not show their weights"


def test_the_class_weights_that_clients_receive_are_kept(tmp_path: Path) -> None:
    """FedCAD's Eq. 6 as printed, from the global model that a round begins with; here with a plug-in around it."""
    run, expected = toy(DKD(base=make("fedcad")), ("message",), auxiliary_per_class=2), []
    x, y = run.fed.auxiliary.x, run.fed.auxiliary.y
    for _ in range(4):
        with torch.no_grad():
            p = (run.net.eval(run.server.params, x).logits / 2.0).softmax(1)
        own = p.gather(1, y[:, None]).squeeze(1)
        phi = own - (p.sum(1) - own)
        expected.append(
            [float((0.7 - 0.3) / 2 * phi[y == c].mean() + (0.7 + 0.3) / 2) for c in range(3)]
        )
        run.advance(1)
    results.write_tracked(run, tmp_path, {"": KEYS[""]}, {"": "fedcad"})
    kept = artifacts.arrays(tmp_path, KEYS[""])
    np.testing.assert_allclose(kept["message/class_weights"], expected, rtol=1e-10)


def test_features_are_those_before_the_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "FEATURE_SAMPLES", 12)
    run, other = toy(Keeper(), ("features",)), toy("fedprox", ("features",), seed=1)
    for one in (run, other):
        one.advance(4)
    kept, client, (x, y) = run.tracker.arrays(""), run.participants(4)[0], plain_test_set()
    assert len(set(kept["features/samples"].tolist())) == 12
    np.testing.assert_array_equal(
        kept["features/samples"], other.tracker.arrays("")["features/samples"]
    )
    np.testing.assert_array_equal(kept["features/labels"], y[kept["features/samples"]])
    assert kept["features/client"] == client
    own = run.memories[client]["own"]
    for name, params in (("features/global", run.server.params), ("features/local", own)):
        expected = run.net.eval(params, x[kept["features/samples"]]).features
        assert kept[name].shape == (12, run.net.feature_dim)
        np.testing.assert_allclose(kept[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize(
    "name", ["fedavg_t1", "fedcad", "moon", "fedkf", "feddkd", "scaffold", "fedbn"]
)
def test_tracking_changes_nothing_else(name: str, backend: str) -> None:
    """Models, memories, counters and all other points of the curves, bit for bit."""
    plain, watched = toy(name, (), backend, rounds=2), toy(name, ALL, backend, rounds=2)
    for simulation in (plain, watched):
        simulation.advance(2)
    points = watched.progress.curves
    assert all(
        {at for at, metric, _ in curve if metric == "local_accuracy"} == {1, 2}
        for curve in points.values()
    )
    for suffix, curve in points.items():
        points[suffix] = [point for point in curve if point[1] != "local_accuracy"]
    assert identical(plain, watched)
    kept = watched.tracker.arrays("")
    assert np.shape(kept["classes/global"]) == (2, 3)
    assert kept["classes/personal"] is (name == "fedbn")
    assert np.shape(kept["classes/local"]) == (len(watched.participants(2)), 3)
    assert kept["features/local"].shape == (30, watched.net.feature_dim)
    assert np.isfinite(kept["drift/gradients"]).all()
    assert kept["message/rounds"] == [1, 2]


def test_the_features_of_a_single_client_are_everyones() -> None:
    single = simulate("local", sizes=(21,), participation=1.0)
    single.tracker.what = frozenset({"features"})
    single.advance(single.setting.rounds)
    kept = single.tracker.arrays("")
    assert np.array_equal(kept["features/global"], kept["features/local"])
    x = single.federation.test.at(torch.from_numpy(kept["features/samples"]))
    untrained = single.net.eval(single.fed.initial[single.setting.model], x).features
    assert not np.allclose(kept["features/global"], untrained.float().numpy())


def test_personal_rows_are_means_over_clients_and_have_no_global_features() -> None:
    run = toy("fedbn")
    run.advance(2)
    row = run.algorithm.evaluated(run.server)[""]
    own = [by_class(run, run.local_model(row, client)) for client in range(4)]
    kept = run.tracker.arrays("")
    np.testing.assert_allclose(kept["classes/global"][-1], np.mean(own, 0))
    assert kept["classes/personal"] is True
    assert "features/local" not in kept, "the run goes on"
    run.advance(2)
    assert {"features/local", "features/global"} & set(run.tracker.arrays("")) == {"features/local"}


KEYS = {"": "a" * 64, "_t1": "b" * 64}


@pytest.mark.parametrize("name", ["fedavg_t1", "fedbn", "centralized"])
def test_a_kept_model_is_the_evaluated_one(name: str, tmp_path: Path) -> None:
    """Loaded into the plain module, without the engine, it has the accuracy of the row."""
    run = toy(name, ("models",))
    run.advance(4)
    rows = {suffix: KEYS[suffix] for suffix in run.algorithm.rows}
    results.write_tracked(run, tmp_path, rows, dict.fromkeys(rows, name))
    x, y = plain_test_set()
    for suffix, key in rows.items():
        owners = range(4) if name == "fedbn" else [None]
        accuracy = []
        for client in owners:
            module = models.make(run.setting.model, INFO.input_shape, 3).double()
            module.load_state_dict(load_model(tmp_path, key, client))
            accuracy.append(float((module.eval()(x).logits.argmax(1) == y).double().mean()))
        assert np.mean(accuracy) == pytest.approx(curve(run, "accuracy", suffix)[4])


def test_a_personal_model_is_asked_for_by_client(tmp_path: Path) -> None:
    run = toy("fedbn", ("models",))
    run.advance(4)
    results.write_tracked(run, tmp_path, {"": KEYS[""]}, {"": "fedbn"})
    for client in (None, 4):
        with pytest.raises(ValueError, match="0 to 3"):
            load_model(tmp_path, KEYS[""], client)
    with pytest.raises(FileNotFoundError, match="--track models"):
        load_model(tmp_path, KEYS["_t1"])


def test_a_single_clients_model_needs_no_client(tmp_path: Path) -> None:
    file = artifacts.path_of(tmp_path, KEYS[""], "safetensors")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({"5/a": np.ones(2), "b": np.zeros(1)}, file)
    assert sorted(load_model(tmp_path, KEYS[""])) == ["a", "b"]
    assert load_model(tmp_path, KEYS[""], 5)["a"].tolist() == [1, 1]


def test_a_fingerprint_is_of_names_and_bytes() -> None:
    model = {"b": torch.tensor([1.0, -2.0]), "a": torch.zeros(())}
    content = b"a" + bytes(4) + b"b" + bytes.fromhex("0000803f000000c0")
    assert fingerprint(model) == hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("name", ["fedavg_t1", "feddkd"])
def test_two_and_two_tracked_rounds_are_four(name: str, backend: str, tmp_path: Path) -> None:
    whole, first = toy(name, ALL, backend), toy(name, ALL, backend, StateFolder(tmp_path))
    whole.advance(4)
    first.advance(2)
    first.save()
    second = toy(name, ALL, "auto", StateFolder(tmp_path))
    assert second.load()
    second.advance(2)
    assert identical(whole, second)
    for suffix in whole.algorithm.rows:
        assert_same_arrays(whole.tracker.arrays(suffix), second.tracker.arrays(suffix))
    assert second.tracker.seconds > first.tracker.seconds


def run_spec(algorithm: str = "fedavg", seed: int = 0) -> RunSpec:
    return RunSpec(algorithm, ALGORITHMS[algorithm].defaults(), SETTING, seed)


def trial(out: Path, track: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """One run to its end; its last report."""
    execution = Execution(
        str(out), rounds_per_report=1, track=track, provenance=command_columns("test"), **options
    )
    return finish(Trial([run_spec()], execution))


def test_a_full_disk_leaves_no_finished_row_without_its_tracked_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(artifacts, "_new_file", full)
        assert trial(tmp_path, ALL)["status"] == "environment"
    assert not Store(tmp_path).status()
    assert trial(tmp_path, ALL)["status"] == "finished"
    assert artifacts.Tracked(tmp_path, [run_spec().key]).names(run_spec().key) == set(ALL)


def test_a_damaged_file_is_named_with_the_way_out(tmp_path: Path) -> None:
    trial(tmp_path, ("classes",))
    path = artifacts.path_of(tmp_path, run_spec().key)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(EnvironmentProblem, match=str(path)):
        artifacts.arrays(tmp_path, run_spec().key)
    with pytest.raises(EnvironmentProblem, match=str(path)):
        artifacts.Tracked(tmp_path, [run_spec().key]).names(run_spec().key)
    with pytest.raises(FileNotFoundError, match="--track"):
        artifacts.arrays(tmp_path, "0" * 64)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything tracked, inline."""
    out = tmp_path_factory.mktemp("tracked")
    assert run(out, *SHORT, "--track", *ALL) == 0
    return out


def test_a_tracked_run_is_the_run_without(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the same key, with the accuracy of local models beside its results; what is missing later is said."""
    assert run(tmp_path, *SHORT) == 0
    with_, without = (Store(out).runs().set_index("run_key") for out in (swept, tmp_path))
    assert with_.best_accuracy.to_dict() == without.best_accuracy.to_dict()
    assert with_.local_accuracy_mean.notna().all()
    assert without.local_accuracy_mean.isna().all()
    capsys.readouterr()
    assert run(tmp_path, *SHORT, "--track", "local,models") == 0
    assert "local, models" in capsys.readouterr().err
    assert run(tmp_path, *SHORT, "--track", "local,models", "--force") == 0
    assert Store(tmp_path).runs().local_accuracy_mean.notna().all()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_ray_keeps_what_the_inline_executor_keeps(swept: Path, tmp_path: Path) -> None:
    assert (
        sweep.main([*SHORT, "--track", *ALL, "--max-concurrent", "1", "--out", str(tmp_path)]) == 0
    )
    assert_equal_results(swept, tmp_path)
    for key in Store(swept).runs().run_key:
        assert_same_arrays(artifacts.arrays(swept, key), artifacts.arrays(tmp_path, key))
        assert_same_arrays(
            *(load_file(artifacts.path_of(out, key, "safetensors")) for out in (swept, tmp_path))
        )


@pytest.mark.slow
def test_force_says_what_its_rows_will_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And `--track` does not take the files of a replaced row for the accuracies of the new one."""
    words = ("--algo", "fedavg", "--rounds", "1", "--set", "local_epochs=1")
    assert run(tmp_path, *words, "--track", "local") == 0
    capsys.readouterr()
    assert run(tmp_path, *words, "--force") == 0
    assert "1 stored run with local" in capsys.readouterr().err
    assert run(tmp_path, *words, "--track", "local") == 0
    assert "1 stored run without all of local" in capsys.readouterr().err
    assert run(tmp_path, *words, "--track", "local", "--force") == 0
    assert run(tmp_path, *words, "--track", "local") == 0
    assert "without" not in capsys.readouterr().err
    with_its_row = ["fedavg_t1" if word == "fedavg" else word for word in words]
    assert run(tmp_path, *with_its_row, "--force") == 0
    assert "1 stored run with local" in capsys.readouterr().err


def begin(out: Path, track: tuple[str, ...]) -> None:
    """One round of a run, saved."""
    execution = Execution(
        str(out), rounds_per_report=1, save_seconds=-1, track=track, stop_file=str(out / "stop")
    )
    made = Trial([run_spec()], execution)
    made.step()
    (out / "stop").touch()
    made.close()


@pytest.mark.parametrize(("before", "now"), [((), ("local", "models")), (("local",), ())])
def test_a_run_goes_on_tracking_and_may_begin_to(
    tmp_path: Path, before: tuple[str, ...], now: tuple[str, ...]
) -> None:
    begin(tmp_path, before)
    track = ["--track", *now] if now else []
    assert (
        run(tmp_path, "--algo", "fedavg", "--rounds", "3", "--set", "local_epochs=1", *track) == 0
    )
    assert artifacts.Tracked(tmp_path, [run_spec().key]).names(run_spec().key) == {*before, *now}
    curves = Store(tmp_path).curves()
    rounds = set(curves[curves.metric == "local_accuracy"]["round"])
    assert rounds == ({1, 2, 3} if before else {2, 3})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_keeps_what_a_cpu_keeps(tmp_path: Path) -> None:
    kept = []
    for device in ("cpu", "cuda"):
        made = Simulation(
            make("fedavg"),
            TINY,
            0,
            toy_dataset(),
            INFO,
            toy_split(),
            device,
            "stacked",
            StateFolder(tmp_path),
            ALL,
        )
        made.advance(4)
        results.write_tracked(made, tmp_path / device, {"": KEYS[""]}, {"": "fedavg"})
        kept.append(
            artifacts.arrays(tmp_path / device, KEYS[""]) | load_model(tmp_path / device, KEYS[""])
        )
    for name in set(kept[0]) - {"run/key", "run/algorithm"}:
        np.testing.assert_allclose(kept[0][name], kept[1][name], rtol=1e-5, atol=1e-6, err_msg=name)
