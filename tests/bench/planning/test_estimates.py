"""Times of runs of which nothing is recorded: counted by hand at a given pace, and how paces are measured and kept."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT
from rows import CURVE, make_row

from algorithms import entry
from bench.data import info
from bench.engine import pace as measuring
from bench.engine.network import Network
from bench.errors import UsageError
from bench.planning import cost_model as paces
from bench.planning.cost_model import SPREAD, Pace, estimated_time
from bench.planning.run_spec import RunSpec
from bench.planning.settings import supply
from bench.sweep import command as sweep
from leaderboards import Store, identity_columns
from search_spaces import Setting

SETTING = Setting(
    num_clients=10, participation=0.5, rounds=20, local_epochs=2, batch_size=8, evaluate_every=3
)
SAMPLES, TESTS = info("digits").train_size / 10, info("digits").test_size
STILL = Pace(0.0, 0.0, 0.0, 0.0, 0.0)


def run_spec(algorithm: str, **fields: Any) -> RunSpec:
    """A run with default hyper-parameters."""
    found = entry(algorithm)
    return RunSpec(algorithm, found.resolve({}), supply(found, replace(SETTING, **fields)), 0)


@pytest.mark.parametrize(
    ("algorithm", "pace", "seconds"),
    [
        ("fedavg", {"client": 1}, 20 * 5),
        ("fedavg", {"batch": 1}, 20 * 5 * (SAMPLES / 8 + 0.5)),
        ("fedavg", {"step": 1}, 20 * 5 * 2 * (SAMPLES / 8 + 0.5)),
        (
            "fedavg",
            {"step": 1, "sample": 1},
            20 * 5 * 2 * SAMPLES / 8 + 7 * TESTS,
        ),  # a step of half a batch is half
        ("fedavg", {"server_step": 1}, 0),
        ("fedgen", {"server_step": 1}, 20 * 50),
        ("centralized", {"step": 1}, 20 * 2 * (10 * SAMPLES / 8 + 0.5)),
    ],
)
def test_a_run_takes_its_counted_work_at_the_pace(
    algorithm: str, pace: dict[str, float], seconds: float
) -> None:
    time = estimated_time(run_spec(algorithm), replace(STILL, **pace))
    assert (time.low, time.high) == (
        pytest.approx(seconds / SPREAD),
        pytest.approx(seconds * SPREAD),
    )
    assert time.middle == pytest.approx(seconds)


@pytest.mark.parametrize("algorithm", ["fedbn", "local"])
@pytest.mark.parametrize(("participation", "every"), [(0.5, 3), (0.1, 1), (0.1, 20), (1.0, 2)])
def test_personal_models_are_counted_as_drawn(
    algorithm: str, participation: float, every: int
) -> None:
    run = run_spec(algorithm, participation=participation, evaluate_every=every)
    generator, repetitions, counts = random.Random(0), 500, []
    for _ in range(repetitions):
        trained, since, measured, first = set[int](), set[int](), 0, True
        for at in range(1, run.setting.rounds + 1):
            cohort = generator.sample(range(10), run.setting.cohort_size)
            trained |= {*cohort}
            since |= {*cohort}
            if at % every and at < run.setting.rounds:
                continue
            untrained = len(trained) < 10
            if algorithm == "fedbn":
                measured += len(trained) + untrained
            else:
                measured += len(since) + (first and untrained)
            since, first = set(), False
        counts.append(measured)
    time = estimated_time(run, replace(STILL, sample=1))
    assert time.middle / TESTS == pytest.approx(sum(counts) / repetitions, rel=0.02)


TIMED = Pace(client=0.02, batch=0.003, step=0.005, sample=0.0001, server_step=0.007)


def timed_round(
    algorithm: str,
    values: Any,
    setting: Setting,
    epochs: int = 1,
    batches: int = 1,
    evaluated: bool = False,
    server_steps: int = 1,
) -> float:
    """The seconds of a round at the pace `TIMED`: a batch is stepped on in each epoch."""
    seconds = TIMED.client + epochs * TIMED.step + (batches - 1) * (TIMED.step + TIMED.batch)
    seconds += evaluated * TIMED.sample * (measuring.TESTS + measuring.HELD_OUT)
    return seconds + (server_steps - 1) * TIMED.server_step


@pytest.mark.parametrize("algorithm", ["fedavg", "fedgen"])
def test_a_pace_is_solved_for(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_round_seconds", timed_round)
    setting = replace(SETTING, validation_fraction=0.1)
    server_step = TIMED.server_step if algorithm == "fedgen" else 0.0
    found = measuring.measure(algorithm, {}, setting)
    expected = replace(TIMED, server_step=server_step)
    assert vars(found) == pytest.approx(vars(expected))


def test_noise_gives_no_negative_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds take equally long, or longer rounds less."""
    for slope in (0.0, -0.001):
        monkeypatch.setattr(
            measuring,
            "_round_seconds",
            lambda *given, slope=slope, **more: 0.01 + slope * sum(more.values()),
        )
        found = measuring.measure("fedgen", {}, SETTING)
        assert (found.batch, found.step, found.sample, found.server_step) == (0, 0, 0, 0)
        assert found.client >= 0


@pytest.mark.parametrize(("algorithm", "server_step"), [("fedavg", 0.0), ("fedgen", 0.3)])
def test_a_slow_round_is_timed_with_few_samples(
    algorithm: str, server_step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second a sample; a round has further costs, which a larger batch does not raise."""
    asked: list[int] = []

    def slow(algorithm: str, values: Any, setting: Setting, server_steps: int = 1) -> float:
        asked.append(setting.batch_size)
        return 0.7 + 0.5 * setting.batch_size + 0.3 * (server_steps - 1)

    monkeypatch.setattr(measuring, "_round_seconds", slow)
    pace = measuring.measure(algorithm, {}, replace(SETTING, batch_size=40))
    assert max(asked) == measuring.FEW
    assert vars(pace) == pytest.approx(vars(Pace(0.7, 0.0, 20.0, 0.5 / 3, server_step)))


def test_a_slow_batch_of_one_sample_is_never_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def slow(algorithm: str, values: Any, setting: Setting, **changes: Any) -> float:
        asked.append(setting.batch_size)
        return 2 * measuring.SLOW

    monkeypatch.setattr(measuring, "_round_seconds", slow)
    assert measuring._slow_pace("fedavg", {}, replace(SETTING, batch_size=1)) is None
    assert set(asked) == {1}


def test_one_disturbed_round_is_no_slow_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([3 * measuring.SLOW, measuring.SLOW / 10])
    monkeypatch.setattr(measuring, "_round_seconds", lambda *_, **__: next(seconds))
    assert measuring._slow_pace("fedavg", {}, SETTING) is None


def test_a_slow_server_is_not_a_slow_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedDF's round begins with the teachers' answers, whatever a client's batch is."""

    def round_seconds(algorithm: str, values: Any, setting: Setting, **changes: Any) -> float:
        return 3 * measuring.SLOW + timed_round(algorithm, values, setting, **changes)

    monkeypatch.setattr(measuring, "_round_seconds", round_seconds)
    pace = measuring.measure("feddf", {}, replace(SETTING, validation_fraction=0.1))
    expected = replace(TIMED, client=TIMED.client + 3 * measuring.SLOW)
    assert vars(pace) == pytest.approx(vars(expected))


def test_single_batches_are_counted_as_such() -> None:
    given = run_spec("fedavg", step_rule="batches", local_epochs=7)
    assert estimated_time(given, replace(STILL, step=1)).middle == pytest.approx(20 * 5 * 7)


def test_whole_epochs_have_a_batch_less() -> None:
    times = [
        estimated_time(run_spec("fedavg", step_rule=rule), replace(STILL, step=1))
        for rule in ("epochs", "whole_epochs")
    ]
    epochs = run_spec("fedavg").setting.local_epochs
    assert times[0].middle - times[1].middle == pytest.approx(20 * 5 * epochs)
    # If a step takes as long as its samples: half a batch, by which an epoch is longer on average.
    by_samples = [
        estimated_time(run_spec("fedavg", step_rule=rule), replace(STILL, step=1, sample=1))
        for rule in ("epochs", "whole_epochs")
    ]
    difference = by_samples[0].middle - by_samples[1].middle
    assert difference == pytest.approx(20 * 5 * epochs / 2)


# The measurement, with forward passes of a network for seconds.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only forward passes move, by a millisecond each."""
    passes = [0]

    def counted(forward: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            passes[0] += 1
            return forward(*given)

        return count

    for name in ("__call__", "eval"):
        monkeypatch.setattr(Network, name, counted(getattr(Network, name)))
    monkeypatch.setattr(measuring.time, "thread_time", lambda: passes[0] / 1000)


@pytest.mark.parametrize(
    ("algorithm", "client", "batch", "step", "server_step"),
    [
        ("fedavg", 0, 0, 1, 0),
        ("fedlsd", 1, 0.75, 1, 0),  # a teacher answers 64 samples in one chunk, 320 in four
        ("feddf", 4, 0, 1, 1),  # the server: the client's answers, a step, and two validations
    ],
)
def test_a_pace_tells_steps_from_what_is_done_once_a_round(
    clock: None, algorithm: str, client: float, batch: float, step: float, server_step: float
) -> None:
    given = run_spec(algorithm, batch_size=64, auxiliary_per_class=10, validation_fraction=0.1)
    pace = measuring.measure(algorithm, given.hyperparameters, given.setting)
    sample = 3 / (
        measuring.TESTS + measuring.HELD_OUT
    )  # two chunks of test samples, one of those held out
    expected = {
        "client": client,
        "batch": batch,
        "step": step,
        "sample": sample,
        "server_step": server_step,
    }
    assert {name: 1000 * seconds for name, seconds in vars(pace).items()} == pytest.approx(expected)


# Paces are kept.


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The algorithms that were measured, each at a pace of a second a step."""
    algorithms: list[str] = []

    def measured(
        run_specs: Sequence[RunSpec], threads: int, limit: float
    ) -> list[Pace | float | None]:
        algorithms.extend(run_spec.algorithm for run_spec in run_specs)
        return [replace(STILL, step=1.0) for _ in run_specs]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(paces.LIMIT, "20")
    monkeypatch.setattr(paces, "_measured", measured)
    monkeypatch.setattr("bench.sweep.preflight.cpu_count", lambda: 2)
    return algorithms


def dry_run(out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    options = [
        "--algo",
        "fedavg,fedprox",
        "--set",
        "mu=0.1,1",
        "--dry-run",
        "--json",
        "--executor",
        "inline",
    ]
    assert sweep.main([*options, "--out", str(out), *more]) == 0
    planned: dict[str, Any] = json.loads(capsys.readouterr().out)
    return planned


def _store_finished(out: Path, trial: dict[str, Any]) -> None:
    """Store the one run of a trial of a dry run."""
    row = make_row(trial["algorithm"], trial["hyperparameters"], trial["setting"])
    Store(out).write(row | {"run_key": trial["run_keys"][0]}, CURVE)


def test_a_dry_run_measures_each_program_once(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = dry_run(tmp_path, capsys)
    assert asked == ["fedavg", "fedprox"]
    trials = first["trials"]
    for trial in trials:
        alone = RunSpec(
            trial["algorithm"], trial["hyperparameters"], Setting(**trial["setting"]), 0
        )
        time = estimated_time(alone, replace(STILL, step=1.0))
        assert (trial["seconds_per_run_at_least"], trial["seconds_per_run_at_most"]) == (
            time.low,
            time.high,
        )
    assert first["estimated"]
    _store_finished(tmp_path, trials[0])
    after = dry_run(tmp_path, capsys)["trials"][0]
    bounds = (after["seconds_per_run_at_least"], after["seconds_per_run_at_most"])
    assert (after["to_do"], *bounds) == (0, 0.0, 0.0)
    shutil.rmtree(tmp_path / "runs")
    shutil.rmtree(tmp_path / "curves")
    assert first["seconds"] == pytest.approx(sum(trial["seconds_per_run"] for trial in trials))
    assert dry_run(tmp_path, capsys) == first
    assert asked == ["fedavg", "fedprox"], "from what was kept"
    dry_run(tmp_path, capsys, "--cpus-per-trial", "2")
    assert len(asked) == 4, "of other threads nothing was known"
    for number, damage in enumerate(("[]", '{"step": 1}', '{"client": 0}')):
        next((tmp_path / "cache").rglob("*.json")).write_text(damage)
        dry_run(tmp_path, capsys, "--cpus-per-trial", "2")
        assert dry_run(tmp_path, capsys) == first
        assert len(asked) == 5 + number, "a damaged pace is measured anew"


def test_an_algorithms_recorded_rate_wins(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    estimated = dry_run(tmp_path / "none", capsys)["trials"]
    for one in (estimated[0], estimated[-1]):
        asked.clear()
        run = RunSpec(one["algorithm"], one["hyperparameters"], Setting(**one["setting"]), 5)
        identity = identity_columns(*run.identity(entry(run.algorithm)))
        Store(tmp_path).write(make_row(run.algorithm) | identity, CURVE)
        for kept in paces.cache_dir().rglob("*.json"):
            kept.unlink()
        planned = dry_run(tmp_path, capsys)
        assert asked == (["fedprox"] if one is estimated[0] else [])
    assert not planned["estimated"]
    assert (
        planned["seconds_at_least"]
        == pytest.approx(planned["seconds"])
        == planned["seconds_at_most"]
    )


def test_another_machine_is_not_estimated_by_this_one(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        sweep.main(
            ["--algo", "fedavg", "--dry-run", "--address", "ray://far:1", "--out", str(tmp_path)]
        )
        == 0
    )
    assert "time unknown" in capsys.readouterr().out
    assert not asked


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "long"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paces.LIMIT, value)
    with pytest.raises(UsageError, match=repr(value)):
        paces.measured_paces([run_spec("fedavg")], 1)


@pytest.mark.slow
def test_a_dry_run_that_measures_imports_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(paces.LIMIT, "300")
    script = "import sys; from bench.sweep import command as sweep; "
    script += f"sweep.main(['--algo', 'fedavg', '--dry-run', '--device', 'cpu', '--out', {str(tmp_path)!r}]); "
    script += "sys.exit(', '.join({'torch', 'ray'} & set(sys.modules)) or 0)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "estimated" in done.stdout


@pytest.mark.usefixtures("asked")
def test_what_a_limit_left_unmeasured_is_said_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_vain(run_specs: Sequence[RunSpec], threads: int, limit: float) -> list[Any]:
        return [limit / len(run_specs) for _ in run_specs]

    monkeypatch.setattr(paces, "_measured", in_vain)
    words = f"2 kinds of runs not measured; {paces.LIMIT} gives more than 20 s"
    arguments = ["--algo", "fedavg,fedprox", "--dry-run", "--executor", "inline"]
    for begun in (False, True):
        assert sweep.main([*arguments, "--out", str(tmp_path)]) == 0
        assert (words in capsys.readouterr().err) == begun
