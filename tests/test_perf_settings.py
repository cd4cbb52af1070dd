"""Known settings against the clock, cores and profiles: what is run, and what is said of it. Never how fast it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bench.models import num_parameters
from bench.perf import cores, main, settings
from bench.perf.cores import beside_fp32, two_trials
from bench.perf.options import SETTINGS as NAMES
from bench.perf.pfl_cnn import NAME
from bench.perf.profile import MOST, measure_profile
from bench.perf.settings import SETTINGS, Asked, rounds_of, run_setting
from bench.perf.workload import Workload

TINY = Workload("cnn_cifar", clients=2, cohort=2, samples=16, epochs=1, batch_size=8)


def test_settings_are_the_published_ones() -> None:
    assert tuple(SETTINGS) == NAMES
    fedgkd, fedcad, pfl = (settings._runs(SETTINGS[name], SETTINGS[name].algorithm, Asked("cpu")) for name in NAMES)
    assert [len(runs) for runs in (fedgkd, fedcad, pfl)] == [3, 1, 1]
    shapes = []
    for runs in (fedgkd, fedcad, pfl):
        own = runs[0].setting
        sizes = set(runs[0].federation.sizes)
        shapes.append((own.cohort_size, sizes, own.local_epochs, own.batch_size, own.rounds))
        assert len(runs[0].federation.test.labels) == 10_000
    # FedCAD's server keeps 320 of the 50,000.
    assert shapes == [(4, {2_250}, 20, 64, 100), (10, {4_968}, 10, 64, 100), (50, {50}, 1, 10, 1_500)]
    assert (len(fedgkd[0].federation.validation), len(fedcad[0].federation.auxiliary)) == (5_000, 320)


def test_pfls_network_has_its_parameters() -> None:
    assert num_parameters(NAME, (3, 32, 32), 10) == 896 + 18_496 + (12_544 * 128 + 128) + 1_290 == 1_626_442


@pytest.mark.parametrize("pack", [1, 3])
def test_fewer_samples_only_show_that_it_runs(pack: int) -> None:
    found = run_setting("fedgkd", "fedgkd", Asked("cpu", rounds=1, samples=4, pack=pack))
    assert (found["rounds"], found["of"], found["seeds"], found["clients"], found["samples"]) == (1, 100, 3, 4, 4)
    assert {"seconds", "seconds_estimate"}.isdisjoint(found)
    # 3 seeds, 4 clients of 4 samples, 20 epochs
    assert found["rate"]["median"] * found["seconds_tried"]["median"] == pytest.approx(3 * 4 * 4 * 20)


def test_fewer_rounds_are_extrapolated() -> None:
    known = SETTINGS["fedgkd"]
    # The first two rounds prepare and count once; the mean of the others stands for all 98.
    found = settings._times(known, [[10.0, 3.0, 1.0, 2.0], [5.0, 3.0, 1.0, 1.0]], "cuda")
    estimate = found["seconds_estimate"]
    assert estimate["median"] == pytest.approx(10 + 3 + 98 * 1.5 + 5 + 3 + 98 * 1)
    assert (estimate["limit"], "met" in estimate) == (90.0, False)
    assert settings._times(known, [[2.0]], "cpu") == {"seconds_estimate": settings.figure([200.0], "s")}


def test_whole_runs_have_a_target_on_a_gpu() -> None:
    turns = [[0.25] * 100] * 3
    assert settings._times(SETTINGS["fedgkd"], turns, "cuda")["seconds"]["met"] is True
    assert "met" not in settings._times(SETTINGS["fedgkd"], turns, "cpu")["seconds"]


@pytest.mark.parametrize(("asked", "rounds"), [(None, 1_500), (1, 10), (20, 20), (2_000, 1_500)])
def test_rounds_reach_an_evaluation(asked: int | None, rounds: int) -> None:
    assert rounds_of(SETTINGS["pfl"], Asked("cpu", rounds=asked)) == rounds


def test_command_runs_settings_and_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "perf.json"
    options = ["--part", "settings", "profile", "--setting", "fedcad", "--rounds", "1", "--samples", "8"]
    ways = ["--model", "cnn_cifar", "--precision", "fp32", "tf32", "--json", str(file)]
    assert main([*options, *ways]) == 0
    parts = json.loads(file.read_text())["parts"]
    fp32, tf32 = parts["settings"]["runs"]
    assert (fp32["setting"], fp32["algorithm"], fp32["backend"]) == ("fedcad", "fedcad", "loop")
    assert "TF32" in tf32["left_out"]
    printed = capsys.readouterr().out
    for text in ("tried", "1 of 100", "aten::mkldnn_convolution", "setting fedcad: TF32"):
        assert text in printed


def test_failing_setting_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(settings, "_runs", lambda *_: 1 / 0)
    assert main(["--part", "settings", "--setting", "fedcad", "--rounds", "1"]) == 1
    assert "setting fedcad: ZeroDivisionError" in capsys.readouterr().out


def test_profile_orders_operators_by_their_own_time() -> None:
    found = measure_profile(TINY, "fedavg")
    spent = [entry["seconds"] for entry in found["operators"]]
    assert spent == sorted(spent, reverse=True)
    assert len(spent) == MOST
    assert sum(entry["share"] for entry in found["operators"]) <= 1
    assert found["operators"][0]["share"] == pytest.approx(spent[0] / found["seconds"])
    assert "aten::mkldnn_convolution" in [entry["name"] for entry in found["operators"]]


def test_bf16_where_the_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "bf16_support", lambda: "avx512_bf16")
    found = beside_fp32(TINY, 1)
    ratio = found["rates"]["bf16"]["median"] / found["rates"]["fp32"]["median"]
    assert found["ratio"]["median"] == pytest.approx(ratio)
    assert found["cpu_ratio"]["n"] == 1
    assert ("limit" in found["bare_ratio"], found["bare_ratio"]["n"]) == (False, 1)
    assert (found["ratio"]["limit"], found["ratio"]["bound"]) == (1.6, ">=")
    monkeypatch.setattr(cores, "bf16_support", str)
    assert beside_fp32(TINY, 1) == {
        "left_out": "not applicable: the processor has neither of avx512_bf16, amx_bf16",
    }


@pytest.mark.parametrize(
    ("flags", "asked", "found"),
    [({"avx512_bf16"}, False, "avx512_bf16"), (set(), True, "amx_bf16"), (set(), False, "")],
)
def test_support_is_asked_of_the_processor(
    flags: set[str], asked: bool, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_processor_flags", lambda: flags)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: asked, raising=False)
    assert cores.bf16_support() == found


def test_two_trials_need_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_count", lambda: 1)
    assert two_trials(TINY, 1) == {"left_out": "not applicable: 1 core here"}


@pytest.mark.slow
def test_two_trials_are_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_count", lambda: 2)
    found = two_trials(TINY, 1)
    assert found["ratio"]["median"] == pytest.approx(found["two"]["median"] / found["one"]["median"])
    assert (found["ratio"]["limit"], found["ratio"]["n"], found["cpu_ratio"]["n"]) == (1.9, 1, 1)
    assert ("limit" in found["bare_ratio"], found["bare_ratio"]["n"]) == (False, 1)


@pytest.mark.slow
def test_a_trial_that_ends_is_reported() -> None:
    with pytest.raises(cores.EnvironmentProblem, match="ended before its round was over"):
        two_trials(Workload("no such model"), 1)
