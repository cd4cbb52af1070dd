"""What checks of whole runs say of gaps, traffic and accuracies on either side of their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from itertools import chain, product, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import holds, trained

from algorithms import entry
from bench.engine.counters import Progress
from bench.engine.simulation import Simulation
from bench.selftest import unlike_models, whole_runs
from bench.selftest.candidate import Candidate, candidate
from bench.selftest.certify import CheckOutcome, Finding, run_check
from bench.selftest.equations import Limit
from bench.selftest.toy import TINY, gap, largest_gap, models_of

Patch = pytest.MonkeyPatch


def returning(*values: Any) -> Callable[..., Any]:
    """A function that returns these values in turn, the last one ever after."""
    given = chain(values, repeat(values[-1]))
    return lambda *arguments, **options: next(given)


def outcome_of(name: str, check: str) -> CheckOutcome:
    """The outcome of a check of a registered algorithm."""
    return run_check(candidate(name), check)


# backends


@pytest.fixture
def cases(monkeypatch: Patch) -> list[dict[str, str]]:
    """Two comparisons of backends, with and without BatchNorm."""
    fields = [{"model": "mlp"}, {"model": "mlp+bn"}]
    monkeypatch.setattr(whole_runs, "_backend_cases", lambda tested: [({}, f) for f in fields])
    monkeypatch.setattr(whole_runs, "_both_backends", lambda *arguments: (None, None))
    return fields


@pytest.mark.parametrize(
    ("packed", "gaps", "distances", "measured", "problem"),
    [
        (
            1e-11,
            (1e-10, 1e-9),
            (2.0, 2.0),
            "largest gap 1.0e-10 <= 1e-10; with BatchNorm 1.0e-09 <= 1e-09; "
            "distance in float32 2.0e+00 <= 2; 8 cases",
            "",
        ),
        (
            3e-11,
            (2e-11, 2e-9),
            (1.0, 2.0),
            "largest gap 3.0e-11 <= 1e-10; with BatchNorm 2.0e-09 > 1e-09; "
            "distance in float32 1.0e+00 <= 2; 8 cases",
            "Loop and Stacked differ in 1 of 3 cases: by 2.0e-09 > 1e-09 with model=mlp+bn",
        ),
        (
            0.0,
            (2e-10, 2e-9),
            (3.0, 2.0),
            "largest gap 2.0e-10 > 1e-10; with BatchNorm 2.0e-09 > 1e-09; "
            "distance in float32 3.0e+00 > 2; 8 cases",
            "Loop and Stacked differ in 3 of 3 cases: by 2.0e-10 > 1e-10 with model=mlp",
        ),
        (
            0.0,
            (0.0, 0.0),
            (math.nan, 2.0),
            "largest gap 0.0e+00 <= 1e-10; with BatchNorm 0.0e+00 <= 1e-09; "
            "distance in float32 nan > 2; 8 cases",
            "Loop and Stacked differ in 1 of 3 cases: by nan > 2 in float32, with most seeds",
        ),
    ],
)
@pytest.mark.usefixtures("cases")
def test_gaps_of_backends_have_bounds(
    packed: float,
    gaps: tuple[float, ...],
    distances: tuple[float, float],
    measured: str,
    problem: str,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(whole_runs, "_compare_packed", lambda *arguments: (packed, 5))
    monkeypatch.setattr(whole_runs, "largest_gap", returning(*gaps))
    monkeypatch.setattr(whole_runs, "float32_distance", lambda *arguments: distances)
    outcome = outcome_of("fedavg", "backends")
    assert outcome.measured == measured
    assert "\n".join(outcome.problems) == problem


def test_backends_are_compared_over_models_and_forms() -> None:
    cases = list(whole_runs._backend_cases(candidate("fedmax")))
    assert [fields["model"] for _, fields in cases] == [
        *("mlp", "mlp+bn", "mlp+head", "cnn_digits", "cnn_digits+bn"),
        *("cnn_digits", "mlp+bn", "mlp", "mlp", "mlp"),
    ]
    assert [values for values, _ in cases if values] == list(candidate("fedmax").other_choices())
    models = [fields["model"] for _, fields in whole_runs._backend_cases(candidate("fedkf"))]
    assert models[:3] == ["mlp", "cnn_digits+bn", "cnn_digits"]


def ended(**changes: Any) -> Any:
    """A run of FedAvg that has ended, with other numbers of its progress."""
    progress = Progress()
    for name, value in changes.items():
        setattr(progress, name, value)
    return SimpleNamespace(progress=progress, advance=lambda rounds: None, trainer=None)


@pytest.mark.parametrize(
    ("loop", "stacked", "problem"),
    [
        ({}, {}, ""),
        ({"diverged": True, "complaint": "a"}, {}, "it diverges with mu=1, model=mlp: a"),
        ({}, {"diverged": True, "complaint": "b"}, "it diverges with mu=1, model=mlp: b"),
    ],
)
def test_a_diverged_run_of_either_backend_is_told(loop: dict, stacked: dict, problem: str) -> None:
    runs: Any = SimpleNamespace(
        run=lambda *arguments, **fields: ended(**loop),
        simulate=lambda *arguments, **fields: ended(**stacked),
    )
    finding = Finding()
    whole_runs._both_backends(runs, finding, {"mu": 1}, {"model": "mlp"})
    assert "\n".join(finding.problems) == problem


def test_other_traffic_of_one_backend_is_told() -> None:
    one = ended()
    one.progress.traffic.bytes_up += 8
    runs: Any = SimpleNamespace(
        run=lambda *arguments, **fields: ended(), simulate=lambda *arguments, **fields: one
    )
    finding = Finding()
    whole_runs._both_backends(runs, finding, {}, {"model": "mlp"})
    (problem,) = finding.problems
    assert problem.startswith("the traffic differs with model=mlp: ")
    assert "bytes_up=8" in problem


def test_coarse_arithmetic_cuts_six_bits_of_float32() -> None:
    fine = torch.tensor([1.0, 3.0]) + 2.0**-12 + 2.0**-18
    with whole_runs.CoarseArithmetic():  # type: ignore[no-untyped-call]
        coarse = fine + 0.0
        double = torch.tensor([1.0], dtype=torch.float64) + 2.0**-18
        whole = torch.arange(3).to(torch.int32) + 65
        fine.view(2, 1)
    assert coarse.tolist() == [1.0 + 2.0**-12, 3.0 + 2.0**-12]
    assert double.tolist() == [1.0 + 2.0**-18]
    assert whole.tolist() == [65, 66, 67]
    assert fine.tolist() == [1.0 + 2.0**-12 + 2.0**-18, 3.0 + 2.0**-12 + 2.0**-18]


def test_packed_runs_that_differ_are_told(monkeypatch: Patch) -> None:
    monkeypatch.setattr(whole_runs, "largest_gap", returning(0.0, 2e-10, 0.0))
    finding = Finding()
    largest, members = whole_runs._compare_packed(candidate("fedprox"), finding)
    assert (largest, members) == (2e-10, 4)
    assert finding.problems == ["the models differ by 2.0e-10 in a pack of runs that differ in mu"]


def test_packed_runs_without_numbers_differ_in_seed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(whole_runs, "largest_gap", returning(math.nan))
    finding = Finding()
    assert whole_runs._compare_packed(candidate("fedavg"), finding)[1] == 3
    assert finding.problems == ["the models differ by nan in a pack of runs"]


def test_all_numbers_change_in_one_member() -> None:
    finding = Finding()
    largest, members = whole_runs._compare_packed(candidate("fedgkd_vote"), finding)
    assert largest <= 1e-10
    assert members == 4
    assert finding.problems == []


# reductions


LIMIT = Limit({"mu": 0.0}, tolerance=1e-12)


@pytest.fixture
def one_limit(monkeypatch: Patch) -> list[tuple[str, str]]:
    """FedProx has one limit; the models and backends at which it is compared."""
    monkeypatch.setattr(whole_runs, "LIMITS", {"fedprox": (LIMIT,)})
    return []


@pytest.mark.parametrize(
    ("gaps", "effect", "measured", "problems"),
    [
        (
            (0.0,),
            1.0,
            "mu=0.0 = fedavg: exactly; differs from fedavg by 1.0e+00",
            (),
        ),
        (
            (1e-13, 1e-12),
            2e-9,
            "mu=0.0 = fedavg: 1.0e-12; differs from fedavg by 2.0e-09",
            (),
        ),
        (
            (0.0, 2e-12, 0.0),
            1e-9,
            "mu=0.0 = fedavg: 2.0e-12; differs from fedavg by 1.0e-09",
            (
                "mu=0.0 = fedavg: models differ by 2.0e-12 > 1e-12",
                "with its defaults it is FedAvg: the models differ by 1.0e-09",
            ),
        ),
    ],
)
@pytest.mark.usefixtures("one_limit")
def test_gaps_of_limits_have_bounds(
    gaps: tuple[float, ...],
    effect: float,
    measured: str,
    problems: tuple[str, ...],
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(whole_runs, "_limit_gap", returning(*gaps))
    monkeypatch.setattr(whole_runs, "gap", lambda *models: effect)
    outcome = outcome_of("fedprox", "reductions")
    assert outcome.measured == measured
    assert outcome.problems == problems


def test_a_limit_without_batchnorm_leaves_it_out(monkeypatch: Patch) -> None:
    compared = []

    def record(tested: Candidate, limit: Limit, model: str, backend: str) -> float:
        compared.append((model, backend))
        return 0.0

    limits = {"fedprox": (Limit({}), Limit({}, without_batchnorm=True))}
    monkeypatch.setattr(whole_runs, "LIMITS", limits)
    monkeypatch.setattr(whole_runs, "_limit_gap", record)
    assert outcome_of("fedprox", "reductions").status == "passed"
    both = [*product(("mlp", "cnn_digits"), ("loop", "stacked"))]
    assert [pair for pair in compared if pair not in both] == [
        ("mlp+bn", "loop"),
        ("mlp+bn", "stacked"),
    ]
    assert sorted(compared) == sorted([*both, *both, *compared[2:4]])


def test_fedavg_has_no_limit_to_compare() -> None:
    outcome = outcome_of("fedavg", "reductions")
    assert (outcome.status, outcome.measured) == (
        "not applicable",
        "other algorithms reduce to this one",
    )


def test_clients_own_models_have_limits(monkeypatch: Patch) -> None:
    monkeypatch.setattr(whole_runs, "LIMIT_MODELS", ("mlp",))
    holds("fml", "reductions")


# resume, learns


def resumable(same: bool, restores: bool = True, **progress: Any) -> Any:
    """An algorithm whose resumed run is the same or not, and has its backend or not."""
    whole = trained("fedavg", rounds=4)
    for name, value in progress.items():
        setattr(whole.progress, name, value)

    def resumed(backend: str, values: Any, **fields: Any) -> Simulation:
        other = copy(whole if same else trained("fedavg", rounds=4, seed=1))
        other.backend = backend if restores else "auto"
        return other

    return SimpleNamespace(
        run=lambda *arguments, **fields: whole,
        resumed=resumed,
        other_choices=lambda: iter([{"form": "b"}]),
        place=" (mine.py:3)",
    )


def test_a_resumed_run_has_to_be_equal() -> None:
    finding = Finding()
    whole_runs.resume(resumable(same=True), finding)
    assert finding.problems == []
    assert finding.measured == "2 + 2 rounds equal 4 bit for bit, 3 cases"
    finding = Finding()
    whole_runs.resume(resumable(same=True, restores=False), finding)
    assert finding.problems == ["the state or its backend was not restored"]
    finding = Finding()
    whole_runs.resume(resumable(same=False), finding)
    places = ("backend=loop", "backend=stacked", "backend=loop, form=b")
    for problem, place in zip(finding.problems, places, strict=True):
        assert problem.startswith(f"2 + 2 rounds differ from 4 ({place}): models by ")
        assert problem.endswith(" (mine.py:3)")
    assert finding.measured == "3 cases"


def test_a_run_that_diverges_is_not_resumed() -> None:
    finding = Finding()
    whole_runs.resume(resumable(same=False, diverged=True, complaint="nan"), finding)
    assert finding.problems == [
        "it diverges with backend=loop: nan",
        "it diverges with backend=stacked: nan",
        "it diverges with backend=loop, form=b: nan",
    ]


def learnt(accuracies: dict[str, float], loss: float = 1.0, diverged: bool = False) -> Finding:
    """What is found of a run that ends so."""
    curves = {
        suffix: [(1, "loss", 1.0), (1, "accuracy", 0.1), (15, "loss", loss), (15, "accuracy", last)]
        for suffix, last in accuracies.items()
    }
    progress = SimpleNamespace(curves=curves, diverged=diverged)
    tested: Any = SimpleNamespace(
        run=lambda *arguments, **fields: SimpleNamespace(progress=progress, round=15),
        entry=SimpleNamespace(rows={"": "mine"}),
    )
    finding = Finding()
    whole_runs.learns(tested, finding)
    return finding


def test_rows_have_to_end_above_chance() -> None:
    finding = learnt({"": 0.6, "_t1": 0.7})
    assert finding.problems == []
    assert finding.measured == "accuracy 0.60 and 0.70 after 15 rounds; guessing 0.33"
    finding = learnt({"": 0.59, "_t1": 0.5})
    assert finding.problems == [
        "mine: accuracy 0.59 after 15 rounds, guessing gives 0.33",
        "_t1: accuracy 0.50 after 15 rounds, guessing gives 0.33",
    ]


def test_losses_have_to_be_finite() -> None:
    assert learnt({"": 0.9}, loss=math.nan).problems == ["mine: a loss is not finite"]
    assert learnt({"": 0.9}, diverged=True).problems == ["it diverges in round 15"]


# unlike_models


@pytest.mark.parametrize(
    ("gaps", "equal", "traffic", "measured", "problems"),
    [
        (
            (1e-10, 0.0),
            (True,),
            0,
            "equal models as one model bit for bit, largest gap of stacks 1.0e-10 <= 1e-10",
            [],
        ),
        (
            (0.0, 2e-10),
            (True,),
            0,
            "largest gap of stacks 2.0e-10 > 1e-10",
            ["models differ by 2.0e-10 > 1e-10"],
        ),
        (
            (0.0,),
            (False, True),
            0,
            "largest gap of stacks 0.0e+00 <= 1e-10",
            ["two clients' models that are equal are not the run of one model"],
        ),
        (
            (0.0,),
            (True, False),
            8,
            "largest gap of stacks 0.0e+00 <= 1e-10",
            [
                "traffic of unlike models differs between Loop and Stacked",
                "2 + 2 rounds of unlike models differ from 4",
            ],
        ),
    ],
)
def test_what_is_said_of_unlike_models(
    gaps: tuple[float, ...],
    equal: tuple[bool, ...],
    traffic: int,
    measured: str,
    problems: list[str],
    monkeypatch: Patch,
) -> None:
    used = set()

    def run(rounds: int = 4, backend: str = "loop", **fields: Any) -> Any:
        used.add((fields["model"], fields.get("client_models", "")))
        of_one = ended()
        of_one.progress.traffic.bytes_up += traffic * (backend == "stacked")
        return of_one

    monkeypatch.setattr(unlike_models, "largest_gap", returning(*gaps))
    monkeypatch.setattr(unlike_models, "identical", returning(*equal))
    tested: Any = SimpleNamespace(
        entry=SimpleNamespace(unlike_models=True),
        needs=frozenset({"common_features"} if traffic else ()),
        model=lambda form: form,
        run=run,
        resumed=run,
    )
    finding = Finding()
    unlike_models.unlike_models(tested, finding)
    assert finding.problems == problems
    assert finding.measured == measured
    form = "+fd32" if traffic else ""
    one = f"mlp{form}"
    assert used == {(one, ""), (one, f"{one}/{one}"), (one, f"{one}/cnn_digits{form}")}


def test_weights_of_all_clients_need_one_model() -> None:
    outcome = outcome_of("fedavg", "unlike_models")
    assert (outcome.status, outcome.measured) == (
        "not applicable",
        "it combines the weights of all clients",
    )


# Candidate


def test_runs_are_shared_and_as_long_as_asked() -> None:
    tested = Candidate("fedprox", entry("fedprox"))
    two = tested.run(2, values={"mu": 0.5})
    assert two is tested.run(2, values={"mu": 0.5})
    assert two is not tested.run(2, values={"mu": 0.7})
    assert (two.round, two.setting.rounds) == (2, TINY.rounds)
    six = tested.run(6, model="mlp+bn")
    assert (six.round, six.setting.rounds, six.setting.model) == (6, 6, "mlp+bn")
    assert gap(models_of(two), models_of(tested.run(2))) > 0


def test_a_resumed_run_was_saved_after_two_rounds(monkeypatch: Patch) -> None:
    saved = []
    save = Simulation.save
    monkeypatch.setattr(Simulation, "save", lambda run: saved.append(run.round) or save(run))
    tested = candidate("fedavg")
    resumed = tested.resumed("stacked")
    assert saved[:1] == [2]
    assert (resumed.round, resumed.backend) == (4, "stacked")
    assert largest_gap(resumed, tested.run(4)) < 1e-10


def test_an_exact_model_is_kept_as_it_is() -> None:
    tested = candidate("fedbn")
    assert tested.simulate().setting.model == "mlp+bn"
    assert tested.simulate(exact_model=True, model="mlp").setting.model == "mlp"
    assert tested.needs == {"batchnorm"}
