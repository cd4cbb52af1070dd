"""Packs in a sweep: which runs they hold, what a trial makes of them, halving within them, their share of a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from commands import finish

from algorithms import ALGORITHMS
from bench.execution import Execution
from bench.executors.trials import group, missing_run_specs, trials_of
from bench.machine import AUTO_PACK, resolve_pack
from bench.planning import packing
from bench.planning.options import SweepOptions
from bench.planning.packing import packs_of, program_of
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.sweep.command import main
from bench.trial.halving import losers, next_rung, objective, rungs_of
from bench.trial.trial import RunGroup
from leaderboards import Store
from leaderboards.selection import DEFAULT_RULE, RULES
from search_spaces import SETTINGS

SETTING = replace(SETTINGS["fedkd", "digits"], rounds=10, local_epochs=1)


def run_spec(mu: float = 0.01, seed: int = 0, algorithm: str = "fedprox", **fields: Any) -> RunSpec:
    values = {**ALGORITHMS[algorithm].defaults(), **({"mu": mu} if algorithm == "fedprox" else {})}
    return RunSpec(algorithm, values, replace(SETTING, **fields), seed)


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return Execution(
        out=str(tmp_path),
        backend="stacked",
        rounds_per_report=1,
        stop_file=str(tmp_path / "stop"),
        provenance=command_columns("test"),
    )


# Which runs share a program.


@pytest.mark.parametrize(
    "changed", [{"alpha": 5.0}, {"lr": 0.01}, {"rounds": 3}, {"participation": 1.0}]
)
def test_runs_that_differ_in_clients_length_or_rates_share_a_program(
    changed: dict[str, Any],
) -> None:
    assert program_of(run_spec()) == program_of(run_spec(0.5, seed=7, **changed))


@pytest.mark.parametrize(
    "changed", [{"batch_size": 8}, {"momentum": 0.9}, {"model": "mlp+bn"}, {"precision": "bf16"}]
)
def test_runs_whose_steps_differ_do_not(changed: dict[str, Any]) -> None:
    assert program_of(run_spec()) != program_of(run_spec(**changed))


def test_what_shapes_a_program_parts_runs() -> None:
    mean = replace(run_spec(), hyperparameters={"mu": 0.01, "prox_reduction": "mean_per_tensor"})
    assert program_of(run_spec()) != program_of(mean)
    assert program_of(run_spec()) != program_of(run_spec(algorithm="fedavg"))


def test_a_seeds_configurations_come_first_then_further_seeds() -> None:
    run_specs = [run_spec(mu, seed) for mu in (0.1, 0.2, 0.3) for seed in (0, 1)]
    packs = packs_of([[one] for one in run_specs], 4)
    assert [[(one.hyperparameters["mu"], one.seed) for one in pack] for pack in packs] == [
        [(0.1, 0), (0.2, 0), (0.3, 0)],
        [(0.1, 1), (0.2, 1), (0.3, 1)],
    ]
    assert [len(pack) for pack in packs_of([[one] for one in run_specs[:5]], 4)] == [3, 2], (
        "none is left alone"
    )


def test_what_belongs_together_stays_together() -> None:
    run_specs = [run_spec(mu, seed) for mu in (0.1, 0.2, 0.3) for seed in (0, 1, 2)] + [
        run_spec(algorithm="fedavg")
    ]
    assert sorted(len(pack) for pack in group(run_specs, by_configuration=True, pack=4)) == [
        1,
        3,
        3,
        3,
    ]
    assert sorted(len(pack) for pack in group(run_specs, by_configuration=True, pack=6)) == [
        1,
        3,
        6,
    ]


def test_only_one_settings_configurations_compare() -> None:
    run_specs = [run_spec(mu, alpha=alpha) for mu in (0.1, 0.2) for alpha in (0.1, 5.0)]
    assert [len(pack) for pack in group(run_specs, by_configuration=True, pack=8)] == [2, 2]
    assert [len(pack) for pack in group(run_specs, by_configuration=False, pack=8)] == [4]


# A trial of several runs.


@pytest.mark.parametrize("backend", ["stacked", "loop"])
def test_the_rows_of_a_pack_are_those_of_lone_runs(
    backend: str, execution: Execution, tmp_path: Path
) -> None:
    run_specs = [run_spec(mu, seed, rounds=3) for mu in (0.01, 1.0) for seed in (0, 1)]
    assert finish(RunGroup(run_specs, replace(execution, backend=backend)))["status"] == "finished"
    for one in run_specs:
        finish(RunGroup([one], replace(execution, out=str(tmp_path / "alone"), backend="loop")))
    packed, alone = (
        Store(out).runs().set_index("run_key").sort_index()
        for out in (tmp_path, tmp_path / "alone")
    )
    assert list(packed.index) == list(alone.index)
    assert (set(packed["pack"]), set(alone["pack"])) == ({4 if backend == "stacked" else 1}, {1})
    assert (packed.best_accuracy - alone.best_accuracy).abs().max() < (
        0.02 if backend == "stacked" else 1e-12
    )
    exact = [
        "communications",
        "bytes_down",
        "bytes_up",
        "train_steps",
        "partition_hash",
        "hp_json",
        "seed",
    ]
    assert packed[exact].equals(alone[exact])


def test_a_pack_goes_on_after_an_interruption(execution: Execution, tmp_path: Path) -> None:
    run_specs = [run_spec(mu, rounds=4) for mu in (0.01, 1.0)]
    first = RunGroup(run_specs, execution)
    first.step()
    (tmp_path / "stop").touch()
    assert first.step()["status"] == "interrupted"
    first.close()
    (tmp_path / "stop").unlink()
    again = RunGroup(run_specs, execution)
    assert [run.round for run in again.runs] == [2, 2]
    finish(again)
    finish(RunGroup(run_specs, replace(execution, out=str(tmp_path / "whole"))))
    stopped, whole = (
        Store(out).runs().set_index("run_key").sort_index()
        for out in (tmp_path, tmp_path / "whole")
    )
    results = [
        "best_accuracy",
        "final_accuracy",
        "best_val_accuracy",
        "ema_accuracy",
        "train_steps",
    ]
    assert stopped[results].equals(whole[results])


# Halving within a trial.


@dataclass
class Stood:
    """A run at a rung."""

    run_spec: RunSpec
    value: float
    round: int = 100
    status: str = "running"
    diverged: bool = False
    execution: Execution = field(default_factory=lambda: Execution(out="out"))
    selecting_number: str = RULES[DEFAULT_RULE]

    def number(self, name: str, until: float = math.inf) -> float:
        assert name == self.selecting_number
        return self.value


def test_rungs_are_a_tenth_and_four_times_as_many_each() -> None:
    assert rungs_of(100) == (10, 40)
    assert rungs_of(20) == (2, 8)
    assert rungs_of(5) == (1, 4)
    assert rungs_of(1) == ()
    assert rungs_of(100, every=25) == (25, 50), "where there is an evaluation"
    assert next_rung((10, 40), 10) == 40
    assert next_rung((10, 40), 40) == math.inf


def test_the_best_quarter_goes_on_by_means_over_seeds() -> None:
    values = {
        0.1: (0.9, 0.1),
        0.2: (0.6, 0.6),
        0.3: (0.2, 0.2),
        0.4: (0.3, math.nan),
        0.5: (0.1, 0.1),
    }
    runs = [
        Stood(run_spec(mu, seed), value)
        for mu, pair in values.items()
        for seed, value in enumerate(pair)
    ]
    lost = {run.run_spec.hyperparameters["mu"] for run in losers(runs, [10])}
    assert lost == {0.3, 0.4, 0.5}, "two of five go on: 0.6, and the mean of 0.9 and 0.1"


def test_a_failed_seed_loses_and_equal_ones_keep_their_order() -> None:
    runs = [Stood(run_spec(mu), value) for mu, value in ((0.1, 0.5), (0.2, 0.5), (0.3, 0.4))]
    runs.append(Stood(run_spec(0.4), 0.9, status="failed"))
    assert [run.run_spec.hyperparameters["mu"] for run in losers(runs, [10])] == [0.2, 0.3]


@pytest.mark.parametrize(
    "status", ["failed", "finished"]
)  # the mean of 0.8 and 0.1, of one that diverged
def test_a_seed_that_ended_before_the_rung_counts_with_its_configuration(status: str) -> None:
    runs = [Stood(run_spec(mu, seed), 0.5) for mu in (0.1, 0.2, 0.3) for seed in (0, 1)]
    runs += [Stood(run_spec(0.4, 0), 0.8), Stood(run_spec(0.4, 1), 0.1, round=3, status=status)]
    assert {run.run_spec.hyperparameters["mu"] for run in losers(runs, [10])} == {0.2, 0.3, 0.4}


def test_a_diverged_seed_loses_at_later_rungs() -> None:
    early = Stood(run_spec(0.4, 1), 0.9, round=9, status="finished", diverged=True)
    late = Stood(run_spec(0.3, 1), 0.8, round=11, status="finished", diverged=True)
    values = {0.1: 0.2, 0.2: 0.1, 0.3: 0.8, 0.4: 0.9}
    runs = [early, late, *(Stood(run_spec(mu, 0), value) for mu, value in values.items())]
    assert {run.run_spec.hyperparameters["mu"] for run in losers(runs, [10])} == {0.1, 0.2, 0.4}
    assert {run.run_spec.hyperparameters["mu"] for run in losers(runs, [12])} == {0.2, 0.3, 0.4}
    assert objective([early]) == pytest.approx(-0.1), "of several that diverged the best goes on"


def test_a_rung_judges_alike_however_often_and_when_it_is_asked() -> None:
    runs = [Stood(run_spec(0.1 * i), 0.1 * i) for i in range(8)]
    first = losers(runs, [10])
    assert len(first) == 6
    for run in first[:4]:
        run.status, run.round = "stopped", 10
    assert losers(runs, [10]) == first[4:], (
        "those that were told to stop before a crash count still"
    )
    for run in first[4:]:
        run.status, run.round = "stopped", 10
    assert losers(runs, [10]) == []
    assert losers(runs, [10, 40]) == [runs[6]]


def test_asha_within_a_pack(execution: Execution, tmp_path: Path) -> None:
    """Four configurations, two seeds each: after the first rung one of them is left, in a stack that has shrunk."""
    rates = (1e-4, 1e-3, 0.1, 1e-5)
    run_specs = [run_spec(seed=seed, lr=lr) for lr in rates for seed in (0, 1)]
    trial = RunGroup(run_specs, replace(execution, rungs=rungs_of(10), keep_stopped=True))
    trial.step()
    assert len(trial._packs[0].active) == 8
    trial.step()
    assert len(trial._packs[0].active) == 2
    finish(trial)
    runs = Store(tmp_path).runs()
    assert runs.groupby("lr").status.unique().map(list).to_dict() == {
        1e-5: ["stopped"],
        1e-4: ["stopped"],
        1e-3: ["stopped"],
        0.1: ["finished"],
    }
    assert set(runs[runs.status == "stopped"].communications) == {1}
    again = RunGroup(run_specs, replace(execution, rungs=rungs_of(10), keep_stopped=True))
    assert again.report()["status"] == "finished", (
        "nothing is left to do, and nothing is judged again"
    )
    assert [run.round for run in again.runs] == [1, 1, 1, 1, 10, 10, 1, 1]
    again.close()


def test_asha_in_packs_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--algo",
        "fedprox",
        "--set",
        "mu=0,0.01,1,3",
        "--rounds",
        "10",
        "--local-epochs",
        "1",
    ]
    options += [
        "--executor",
        "inline",
        "--scheduler",
        "asha",
        "--seeds",
        "2",
        "--out",
        str(tmp_path),
    ]
    assert main(options) == 2
    assert "--executor ray" in capsys.readouterr().err
    assert main([*options, "--pack", "8", "--backend", "stacked"]) == 0
    runs = Store(tmp_path).runs()
    assert runs[runs.status == "finished"].hp_json.nunique() == 1
    assert len(runs) == 8
    assert main([*options, "--pack", "8", "--backend", "stacked"]) == 0
    assert "0 to do" in capsys.readouterr().err


# How large a pack is, and its share of a GPU.


def test_packs_are_the_choice_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_pack("auto", "cpu", "stacked") == 1
    assert resolve_pack("auto", "cuda", "loop") == 1
    assert resolve_pack("auto", "cuda", "auto") == AUTO_PACK
    assert resolve_pack(3, "cpu", "auto") == 3
    monkeypatch.setattr("bench.machine.count_gpus", lambda: 2)
    assert resolve_pack("auto", "cuda", "auto", runs=5) == 3, "no GPU waits for the other"
    assert resolve_pack("auto", "cuda", "auto", runs=0) == 1
    assert resolve_pack("auto", "cuda", "auto", runs=100 * AUTO_PACK) == AUTO_PACK
    assert resolve_pack("auto", "cuda", "auto", seeds=AUTO_PACK) == 2 * AUTO_PACK, (
        "under a scheduler they stay together"
    )


@pytest.mark.parametrize(
    ("cpus", "gpus", "trials"),
    [(1, 0.0, 16), (3, 0.0, 5), (1, 1.0, 4), (1, 2.0, 2), (1, 0.6, 4), (1, 0.1, 16)],
)
def test_as_many_trials_fit_as_the_scarcer_of_both_allows(
    cpus: int, gpus: float, trials: int
) -> None:
    """On 16 cores and 4 GPUs; a share lies on one of them."""
    assert packing.fitting(16, 4, cpus, gpus) == trials


def test_an_interrupted_contest_ends_as_the_undisturbed_one(
    execution: Execution, tmp_path: Path
) -> None:
    """Rungs are at 1 and 4; what is missing is grouped as the command does."""

    class Planned:
        options = SweepOptions(("fedprox",), "digits", scheduler="asha")
        run_specs = tuple(
            run_spec(seed=seed, lr=0.1, mu=mu)
            for mu in (0, 0.001, 0.01, 0.1, 1.0)
            for seed in (0, 1)
        )

    def contest(out: Path, interrupted: int) -> dict[str, str]:
        how = replace(
            execution,
            out=str(out),
            rungs=rungs_of(10),
            keep_stopped=True,
            stop_file=str(out / "stop"),
        )
        out.mkdir()
        (trial,) = [
            RunGroup(run_specs, how) for run_specs in trials_of(Planned(), Planned.run_specs, 16)
        ]  # type: ignore[arg-type]
        for _ in range(interrupted):
            trial.step()
        if interrupted:
            (out / "stop").touch()
            trial.step()
            trial.close()
            (out / "stop").unlink()
            missing = missing_run_specs(Planned(), Store(out))  # type: ignore[arg-type]
            (trial,) = [RunGroup(run_specs, how) for run_specs in trials_of(Planned(), missing, 16)]  # type: ignore[arg-type]
        finish(trial)
        return dict(Store(out).status())

    assert contest(tmp_path / "stopped", 4) == contest(tmp_path / "whole", 0)


def test_a_saved_round_is_not_written_again(execution: Execution) -> None:
    """Its manifest vouches for the files that are there."""
    trial = RunGroup([run_spec(seed=0)], execution)
    trial.step()
    trial.save()
    files = list(Path(execution.out).glob("state/*/*"))
    before = [file.stat().st_ino for file in files]
    trial.save()
    assert [file.stat().st_ino for file in files] == before != []
    trial.close()


def test_the_objective_is_the_best_configurations(execution: Execution) -> None:
    run_specs = [run_spec(seed=seed, lr=lr) for lr in (1e-5, 0.1) for seed in (0, 1)]
    trial = RunGroup(run_specs, execution)
    trial.step()
    means = [
        sum(run.number("best_val_accuracy") for run in trial.runs[at : at + 2]) / 2 for at in (0, 2)
    ]
    assert trial.report()["objective"] == pytest.approx(max(means))
    trial.close()


def test_asha_needs_two_configurations_in_a_pack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [
        "--algo",
        "fedprox",
        "--scheduler",
        "asha",
        "--seeds",
        "3",
        "--pack",
        "4",
        "--out",
        str(tmp_path),
    ]
    assert main([*options, "--executor", "inline"]) == 2
    assert "--pack 24" in capsys.readouterr().err
    alone = [
        "--algo",
        "fedgkd",
        "--set",
        "gamma=1",
        "buffer=1,3",
        "--scheduler",
        "asha",
        "--pack",
        "8",
        "--dry-run",
    ]
    assert main([*alone, "--executor", "inline", "--out", str(tmp_path)]) == 0
    assert "--pack 1" in capsys.readouterr().err, "buffers are never in one pack"
    with pytest.raises(SystemExit, match="2"):
        main(["--algo", "fedprox", "--pack", "x"])
