"""Packs in a sweep: their runs, what a trial makes of them, schedulers, their share of a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import finish

from algorithms import ALGORITHMS
from bench.execution import Execution
from bench.executors.trials import by_configuration, contest, trials_of
from bench.machine import AUTO_PACK, resolve_pack
from bench.planning import packing
from bench.planning.options import SweepOptions
from bench.planning.packing import packs_of, program_of
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.sweep.command import main
from bench.sweep.parser import parse
from bench.sweep.preflight import completed, resolve
from bench.trial.trial import Trial
from leaderboards import Store
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
    packs = packs_of(run_specs, 4)
    assert [[(one.hyperparameters["mu"], one.seed) for one in pack] for pack in packs] == [
        [(0.1, 0), (0.2, 0), (0.3, 0)],
        [(0.1, 1), (0.2, 1), (0.3, 1)],
    ]
    assert [len(pack) for pack in packs_of(run_specs[:5], 4)] == [3, 2], "none is left alone"


def test_lone_runs_keep_their_order() -> None:
    plan = make_plan(SweepOptions(("fedprox",), values={"mu": ("0.1", "1")}, seeds=2))
    runs = list(plan.run_specs)
    assert trials_of(plan, runs, 1) == [[run] for run in runs]
    assert trials_of(plan, runs, 2) == [[runs[0], runs[2]], [runs[1], runs[3]]]


def test_a_configurations_seeds_are_one_trial_of_a_scheduler() -> None:
    run_specs = []
    for seed in (0, 1, 2):
        run_specs += [run_spec(mu, seed) for mu in (0.1, 0.2, 0.3)]
    trials = by_configuration(run_specs)
    for trial in trials:
        assert [one.seed for one in trial] == [0, 1, 2]
    assert len(trials) == 3
    assert {trial[0].hyperparameters["mu"] for trial in trials} == {0.1, 0.2, 0.3}


def test_replicates_are_in_the_trial_of_their_configuration() -> None:
    run_specs = []
    for mu in (0.1, 0.2):
        run_specs += [run_spec(mu, seed) for seed in (0, 1)]
        run_specs += [run_spec(mu, 1000 + seed, partition_seed=seed) for seed in (0, 1)]
    trials = by_configuration(run_specs)
    for trial in trials:
        assert [one.seed for one in trial] == [0, 1, 1000, 1001]
    assert len(trials) == 2
    assert contest(trials[0]) == contest(trials[1])


# A trial of several runs.


@pytest.mark.parametrize("backend", ["stacked", "loop"])
def test_the_rows_of_a_pack_are_those_of_lone_runs(
    backend: str, execution: Execution, tmp_path: Path
) -> None:
    run_specs = [run_spec(mu, seed, rounds=3) for mu in (0.01, 1.0) for seed in (0, 1)]
    assert finish(Trial(run_specs, replace(execution, backend=backend)))["status"] == "finished"
    for one in run_specs:
        finish(Trial([one], replace(execution, out=str(tmp_path / "alone"), backend="loop")))
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
    first = Trial(run_specs, execution)
    first.step()
    (tmp_path / "stop").touch()
    assert first.step()["status"] == "interrupted"
    first.close()
    (tmp_path / "stop").unlink()
    again = Trial(run_specs, execution)
    assert [run.round for run in again.runs] == [2, 2]
    finish(again)
    finish(Trial(run_specs, replace(execution, out=str(tmp_path / "whole"))))
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


# How large a pack is, and its share of a GPU.


def test_packs_are_the_choice_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_pack("auto", "cpu", "stacked", 5) == 1
    assert resolve_pack("auto", "cuda", "loop", 5) == 1
    assert resolve_pack("auto", "cuda", "auto", 5) == AUTO_PACK
    assert resolve_pack(3, "cpu", "auto", 5) == 3
    monkeypatch.setattr("bench.machine.count_gpus", lambda: 2)
    assert resolve_pack("auto", "cuda", "auto", 5) == 3, "no GPU waits for the other"
    assert resolve_pack("auto", "cuda", "auto", 0) == 1
    assert resolve_pack("auto", "cuda", "auto", 100 * AUTO_PACK) == AUTO_PACK


@pytest.mark.parametrize(
    ("cpus", "gpus", "trials"),
    [(1, 0.0, 16), (3, 0.0, 5), (1, 1.0, 4), (1, 2.0, 2), (1, 0.6, 4), (1, 0.1, 16)],
)
def test_as_many_trials_fit_as_the_scarcer_of_both_allows(
    cpus: int, gpus: float, trials: int
) -> None:
    """On 16 cores and 4 GPUs; a share lies on one of them."""
    assert packing.fitting(16, 4, cpus, gpus) == trials


def test_a_saved_round_is_not_written_again(execution: Execution) -> None:
    """Its manifest vouches for the files that are there."""
    trial = Trial([run_spec(seed=0)], execution)
    trial.step()
    trial.save()
    files = list(Path(execution.out).glob("state/*/*"))
    before = [file.stat().st_ino for file in files]
    trial.save()
    assert [file.stat().st_ino for file in files] == before != []
    trial.close()


def test_the_objective_is_the_mean_over_seeds(execution: Execution) -> None:
    trial = Trial([run_spec(seed=seed) for seed in (0, 1)], execution)
    trial.step()
    numbers = [run.number("best_val_accuracy") for run in trial.runs]
    assert trial.report()["objective"] == pytest.approx(sum(numbers) / 2)
    trial.close()


@pytest.mark.parametrize(
    ("words", "advice"),
    [(("--pack", "8"), "give --pack 1"), (("--executor", "inline"), "use --executor ray")],
)
def test_a_scheduler_refuses_what_leaves_nothing_to_compare(
    words: tuple[str, ...], advice: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--algo", "fedprox", "--scheduler", "asha", *words, "--out", str(tmp_path)]) == 2
    assert advice in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_pack_has_a_size() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--algo", "fedprox", "--pack", "x"])


@pytest.mark.parametrize("given", [[], ["--pack", "1"]])
def test_a_schedulers_trials_are_single_configurations(
    given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where runs without a scheduler would be packed."""
    monkeypatch.setattr("bench.machine.count_gpus", lambda: 1)
    words = ["--algo", "fedprox", "--set", "mu=0,1", "--seeds", "2", "--device", "cuda", *given]
    options = parse([*words, "--scheduler", "asha"])
    plan = make_plan(completed(options))
    execution = resolve(plan)
    assert (execution.device, execution.pack) == ("cuda", 1)
    trials = trials_of(plan, plan.run_specs, execution.pack)
    assert len(trials) == 2
    for trial in trials:
        assert [one.seed for one in trial] == [0, 1]


def test_rows_and_states_of_stopped_packs_are_read(execution: Execution, tmp_path: Path) -> None:
    """A scheduler stopped runs of a pack, as earlier versions did: they count, and can go on."""
    run_specs = [run_spec(mu, rounds=4) for mu in (0.01, 1.0)]
    stopped = Trial(run_specs, execution)
    stopped.step()
    stopped.close()
    rows = Store(tmp_path).runs()
    assert (set(rows["status"]), set(rows["pack"])) == ({"stopped"}, {2})
    compared = replace(execution, keep_stopped=True)
    for one in run_specs:
        kept = Trial([one], compared)
        assert (kept.report()["status"], kept.runs[0].round) == ("finished", 1)
        kept.close()
    again = Trial(run_specs[:1], execution)
    assert again.runs[0].round == 1
    assert finish(again)["status"] == "finished"
