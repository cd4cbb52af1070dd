"""`--start-from` before a run begins: which stored model a key names, and whether it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import CURVE, make_row

from bench import artifacts
from bench.errors import Unfit, UsageError
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.sweep import feasible
from bench.sweep.feasible import fitting_plan, prepare_data, unmet_needs
from bench.sweep.preflight import check_start, completed, full_keys
from leaderboards import Store

DIGITS = {"dataset": "digits", "model": "mlp"}


def stored(out: Path, names: tuple[str, ...] = ("w",), seed: int = 0, **setting: Any) -> str:
    """Store a run with a model of these tensors; its key."""
    row = make_row("fedavg", {}, DIGITS | setting, seed)
    key = str(row["run_key"])
    files = []
    if names:
        tensors = {name: np.zeros(2, np.float32) for name in names}
        files.append(artifacts.write_tensors(out, key, tensors, {}))
    Store(out).write(row, CURVE, False, files)
    return key


def test_a_key_is_completed(tmp_path: Path) -> None:
    keys = [stored(tmp_path, seed=seed) for seed in (0, 1)]
    short = [key[:12] for key in keys]
    assert full_keys(short, tmp_path) == tuple(keys)
    values = {"start_from": (short[0],), "lr": ("1",)}
    options = SweepOptions(("fedavg",), values=values, out=str(tmp_path))
    assert completed(options).values == {"start_from": (keys[0],), "lr": ("1",)}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (
            (),
            "no final model of that run is kept; its own command with --track models --force "
            "creates it",
        ),
        (
            ("w", "3/w"),
            "in that run of fedavg each client has its own model; name a run with one model for "
            "all",
        ),
    ],
)
def test_a_run_needs_one_model(names: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    key = stored(tmp_path, names)
    with pytest.raises(UsageError) as refused:
        full_keys([key[:16]], tmp_path)
    assert str(refused.value) == f"--start-from {key[:16]}: {problem}"


def starting(key: str, algorithm: str = "fedavg", **values: str) -> Plan:
    """The plan of a run that starts from another."""
    texts = {name: (text,) for name, text in values.items()}
    return make_plan(SweepOptions((algorithm,), values=texts | {"start_from": (key,)}))


def test_a_model_must_fit(tmp_path: Path) -> None:
    key = stored(tmp_path)
    check_start(starting(key), tmp_path)
    check_start(make_plan(SweepOptions(("fedavg",))), tmp_path / "nowhere")
    with pytest.raises(UsageError) as refused:
        check_start(starting(key, model="mlp+bn"), tmp_path)
    shapes = "of inputs 1x8x8 and 10 classes"
    assert str(refused.value) == (
        f"--start-from {key[:16]}: its model is mlp {shapes}, and fedavg runs mlp+bn {shapes} "
        "here: name a run with that model, or other algorithms"
    )
    with pytest.raises(UsageError) as refused:
        check_start(starting(key, "fd", client_models="mlp/cnn_digits"), tmp_path)
    assert str(refused.value) == (
        f"--start-from {key[:16]} gives one model, and client_models=mlp/cnn_digits gives clients "
        "models of their own: leave out either"
    )


# Algorithms that the data do not suffice for


def clients(monkeypatch: pytest.MonkeyPatch, *smallest: Any) -> list[int]:
    """Let seeds have smallest clients of so many samples, or problems; the seeds asked for."""
    asked: list[int] = []

    def count(setting: Any, seed: int, read: Any) -> int:
        asked.append(seed)
        found = smallest[seed]
        if isinstance(found, UsageError) and setting.auxiliary_per_class:
            raise found
        return 9 if isinstance(found, UsageError) else int(found)

    monkeypatch.setattr(feasible, "_smallest_client", count)
    return asked


def needs(algorithms: str, seeds: int = 1, **values: str) -> dict[str, str]:
    """What algorithms lack."""
    texts = {name: (text,) for name, text in values.items()}
    plan = make_plan(SweepOptions(tuple(algorithms.split(",")), values=texts, seeds=seeds))
    return unmet_needs(plan, plan.run_specs, lambda name: None)


ONE_SAMPLE = "BatchNorm (mlp+bn), which takes statistics over a batch, and a client has 1 sample"


def test_batchnorm_lacks_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = clients(monkeypatch, 2, 1)
    assert needs("fedavg,fedbn") == {}
    assert needs("fedavg,fedbn", seeds=2) == {"fedbn": ONE_SAMPLE}
    assert asked == [0, 0, 1], "each partition is drawn once"
    assert needs("fedavg,fedbn,centralized", seeds=2) == {"fedbn": ONE_SAMPLE}
    pooled = needs("centralized,fedavg", seeds=2, model="mlp+bn")
    assert pooled == {"fedavg": ONE_SAMPLE}
    with pytest.raises(UsageError) as refused:
        needs("fedbn,feddkd_bn", seeds=2)
    assert str(refused.value) == (
        f"fedbn has {ONE_SAMPLE}: use fewer clients, a larger alpha, or a model without BatchNorm"
    )


def test_the_server_takes_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it does so for some algorithms alone, these are named."""
    problem = UsageError("too few")
    clients(monkeypatch, problem)
    paper = {"dataset": "mnist", "paper": "fedproto"}
    plan = make_plan(SweepOptions(("fedavg", "fedcad", "feddf"), **paper))
    found = unmet_needs(plan, plan.run_specs, lambda name: None)
    lacking = "the server's own samples, and too few"
    assert found == {"fedcad": lacking, "feddf": lacking}
    given = SweepOptions(("fedavg", "fedcad"), **paper, values={"auxiliary_per_class": ("3",)})
    plan = make_plan(given)
    with pytest.raises(UsageError, match=r"^too few$"):
        unmet_needs(plan, plan.run_specs, lambda name: None)


def test_partitions_may_be_impossible_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without the server's samples: then no algorithm is to blame."""

    def fail(setting: Any, seed: int, read: Any) -> int:
        raise UsageError("too few")

    monkeypatch.setattr(feasible, "_smallest_client", fail)
    paper = {"dataset": "mnist", "paper": "fedproto"}
    plan = make_plan(SweepOptions(("fedavg", "fedcad"), **paper))
    with pytest.raises(UsageError, match=r"^too few$"):
        unmet_needs(plan, plan.run_specs, lambda name: None)


def test_data_sets_are_read_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [make_plan(SweepOptions(("fedavg",), name, seeds=2)) for name in ("mnist", "digits")]
    asked: list[str] = []
    monkeypatch.setattr(
        feasible, "_smallest_client", lambda setting, *_: asked.append(setting.dataset) or 9
    )
    mixed = []
    for seed in (0, 1):
        mixed += [plan.run_specs[seed] for plan in plans[:2]]
    assert unmet_needs(plans[0], mixed, lambda name: None) == {}
    assert asked == ["digits", "digits", "mnist", "mnist"]


def test_searches_are_checked_on_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = clients(monkeypatch, 9, 9, 9)
    plan = make_plan(SweepOptions(("fedprox",), search="optuna", seeds=3))
    assert unmet_needs(plan, (), lambda name: None) == {}
    assert asked == [0, 1, 2]


def test_all_are_planned_again_without_some(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"fedbn": "more"}, {"fedavg": "less"}, {}]
    monkeypatch.setattr(feasible, "unmet_needs", lambda *given: answers.pop(0))
    plan = fitting_plan(SweepOptions(("all",)), {"fedcad": "first"})
    assert plan.left_out == {"fedcad": "first", "fedbn": "more", "fedavg": "less"}
    assert answers == []
    some = fitting_plan(SweepOptions(("fedavg",)))
    assert some.left_out == {}


def test_data_are_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.execution import Execution
    from bench.models import weights

    loaded: list[tuple[str, Any, bool]] = []
    provided: list[Any] = []

    def load(name: str, folder: Any, offline: bool) -> None:
        loaded.append((name, folder, offline))

    monkeypatch.setattr(feasible.data, "load", load)
    monkeypatch.setattr(weights, "provide", lambda *given: provided.append(given))
    asked: list[Any] = []
    monkeypatch.setattr(feasible, "unmet_needs", lambda *given: asked.append(given) or {})
    values = {"public": ("cifar100:5",), "model": ("resnet8",)}
    plan = make_plan(SweepOptions(("fedmd", "feddf"), "cifar10", values=values))
    execution = Execution(out="", data_dir=str(tmp_path), offline=True)
    prepare_data(plan, plan.run_specs, execution)
    assert provided == [("resnet8", str(tmp_path), True)]
    assert loaded == [("cifar100", str(tmp_path), True)]
    assert asked[0][:2] == (plan, plan.run_specs)
    monkeypatch.setattr(feasible, "unmet_needs", lambda *given: {"fedmd": "x"})
    with pytest.raises(Unfit) as refused:
        prepare_data(plan, plan.run_specs, execution)
    assert str(refused.value) == "fedmd needs x: leave it out with --algo feddf"
