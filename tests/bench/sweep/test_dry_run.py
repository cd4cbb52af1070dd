"""`--dry-run`: figures by hand, and the sentences and tables that show them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import cells_of
from rows import CURVE, make_row

from algorithms import entry
from bench.execution import Execution
from bench.planning.cost_model import Time
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.work import samples_of
from bench.sweep import command, feasible, plan_report, plan_text
from bench.sweep.feasible import partition_status
from bench.sweep.plan_report import _bytes, _concurrent, _duration, _memory, sample_run
from bench.sweep.plan_text import _confirmation_lines, _cost_line, _second_stage_lines, _size
from leaderboards import Store, identity_columns
from search_spaces import Setting

MIB = 2**20
MLP_BYTES = 4 * 8970  # 64 x 128, 128 x 64... of the digits: all weights in single precision
DIGITS = Setting(dataset="digits", model="mlp", num_clients=10, participation=0.5)


# Figures


def work(*counts: int) -> list[tuple[Any, int]]:
    """So many runs of each kind, whose keys are their places."""
    kinds = []
    for place, count in enumerate(counts):
        setting = SimpleNamespace(client_models="", model=f"m{place}")
        kinds.append((SimpleNamespace(key=str(place), setting=setting), count))
    return kinds


NOTHING = Time(math.nan, math.nan)


@pytest.mark.parametrize(
    ("at_once", "low", "middle", "high"), [(1, 23, 26, 32), (2, 11.5, 13, 16), (10, 10, 10, 10)]
)
def test_a_sweep_takes_its_work_or_longest_run(
    at_once: int, low: float, middle: float, high: float
) -> None:
    times = {"0": Time(1, 4), "1": NOTHING, "2": Time(10, 10)}
    assert _duration(work(3, 0, 2), times, at_once) == {
        "seconds": middle,
        "seconds_at_least": low,
        "seconds_at_most": high,
        "estimated": True,
        "models_without_rate": [],
    }


def test_unknown_times_leave_a_least() -> None:
    kinds = work(3, 1, 2)
    kinds[1][0].setting.client_models = "b/a"
    times = {"0": Time(2, 2), "1": NOTHING, "2": NOTHING}
    assert _duration(kinds, times, 1) == {
        "seconds": None,
        "seconds_at_least": 6,
        "seconds_at_most": None,
        "estimated": False,
        "models_without_rate": ["b/a", "m2"],
    }


@pytest.mark.parametrize(
    ("searches", "missing", "sizes", "at_once", "largest", "states"),
    [
        ((), 5, [2, 3], 2, 3, 5),
        ((), 7, [2, 3], 2, 3, 6),
        ((), 0, [], 1, 1, 0),
        (("one",), 0, [], 2, 4, 8),
        (("one",), 9, [5], 1, 5, 5),
    ],
)
def test_states_of_runs_at_work_take_disk(
    searches: tuple[str, ...],
    missing: int,
    sizes: list[int],
    at_once: int,
    largest: int,
    states: int,
) -> None:
    """Beside a row of 60 KiB for each run; a state is of two models."""
    options = SweepOptions(seeds=4, track=("local",) if missing else ())
    plan: Any = SimpleNamespace(options=options, searches=searches, settings=(DIGITS,))
    assert _bytes(plan, missing, sizes, at_once) == {
        "memory_bytes_per_trial": _memory(DIGITS, largest),
        "disk_bytes": missing * 60 * 1024 + states * 2 * 4 * MLP_BYTES,
        "tracked": missing > 0,
    }


@pytest.mark.parametrize("pack", [1, 3])
def test_memory_is_of_process_data_and_models(pack: int) -> None:
    """Three copies of 1,797 images; of each run, a client's in double precision, and 5 models."""
    client = 143.8 * 64 * 8
    models = 8 * 5 * MLP_BYTES
    expected = 900 * MIB + 3 * 1797 * 64 + pack * (client + models)
    assert _memory(DIGITS, pack) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("execution", "gpus", "trials"),
    [
        ({"executor": "inline", "concurrent": 7}, 0.0, 1),
        ({}, 0.0, 16),
        ({"threads": 3}, 0.0, 5),
        ({"threads": 3, "concurrent": 2}, 0.0, 2),
        ({"threads": 3, "concurrent": 99}, 0.0, 5),
        ({"threads": 99}, 0.0, 1),
        ({}, 1.0, 4),
        ({"address": "head:1", "concurrent": 99}, 1.0, 99),
        ({"address": "head:1"}, 1.0, 16),
    ],
)
def test_trials_at_once_are_those_that_fit(
    execution: dict[str, Any], gpus: float, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_report, "cpu_count", lambda: 16)
    monkeypatch.setattr(plan_report, "count_gpus", lambda: 4)
    assert _concurrent(Execution(out="", **execution), gpus) == trials


def test_a_sample_has_first_values() -> None:
    plan = make_plan(SweepOptions(("fedcad",), search="optuna", seeds=3))
    sample = sample_run(plan.searches[0])
    assert (sample.hyperparameters["beta"], sample.hyperparameters["gamma"]) == (0.0, 0.3)
    assert (sample.seed, sample.setting) == (0, plan.searches[0].setting)


# Partitions


def drawn(monkeypatch: pytest.MonkeyPatch, *partitions: tuple[str, int, int]) -> None:
    """Let seeds draw these: a problem, the smallest client's samples, clients with too few."""
    monkeypatch.setattr(feasible, "_draw", lambda setting, seed, folder: partitions[seed])


def status(names: str, seeds: Sequence[int], **values: tuple[str, ...]) -> str:
    """What is said of a partition."""
    (run_spec,) = make_plan(SweepOptions((names,), values=values)).run_specs
    return partition_status(run_spec, seeds, None)


SOUND = ("", 2, 0)


@pytest.mark.parametrize(
    ("algorithm", "model", "smallest", "said"),
    [
        ("fedavg", "mlp", 1, "feasible"),
        ("fedavg", "mlp+bn", 2, "feasible"),
        ("centralized", "mlp+bn", 1, "feasible"),
        (
            "fedavg",
            "mlp+bn",
            1,
            "NOT feasible: BatchNorm takes statistics over a batch, and a client has 1 sample",
        ),
    ],
)
def test_batchnorm_needs_two_samples(
    algorithm: str, model: str, smallest: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn(monkeypatch, SOUND, ("", smallest, 0))
    assert status(algorithm, [0, 1], model=(model,)) == said


def test_a_hundred_seeds_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(monkeypatch, *[SOUND] * 100, ("too late", 0, 0))
    assert status("fedavg", range(100)) == "feasible"
    assert status("fedavg", range(101)) == "feasible (first 100 of 101 seeds)"
    drawn(monkeypatch, *[SOUND] * 99, ("NOT feasible: x", 0, 0))
    assert status("fedavg", range(101)) == "NOT feasible: x"


def test_clients_without_own_tests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    few = "clients, which train on all and count for neither"
    lacking = "feasible; too few samples for tests and validation of their own:"
    drawn(monkeypatch, ("", 9, 2), ("", 9, 5), ("", 9, 1))
    assert status("fedavg", [0]) == f"{lacking} 2 of 10 {few}"
    assert status("fedavg", [0, 1, 2]) == f"{lacking} 5 of 10 {few} (seed with most)"


def test_a_drawn_partition_is_examined() -> None:
    plain = Setting(dataset="digits", num_clients=4, partition="iid", alpha=None)
    assert feasible._draw(plain, 0, None) == ("", 359, 0)
    own = {"local_test_fraction": 0.2, "local_validation_fraction": 0.1}
    assert feasible._draw(replace(plain, **own), 0, None)[2] == 0
    assert feasible._draw(replace(plain, num_clients=719, **own), 0, None)[2] == 719
    problem, *rest = feasible._draw(Setting(num_clients=1400, alpha=0.01), 0, None)
    assert problem.startswith("NOT feasible: ")
    assert rest == [0, 0]
    missing = feasible._draw(Setting(dataset="cifar10"), 0, "/nowhere")
    assert missing == ("unknown: the data are not here", 0, 0)


# Sentences


REPORT: dict[str, Any] = {
    "runs": 1200,
    "to_do": 1100,
    "searches": [],
    "packs": [],
    "seconds_at_least": 60.0,
    "seconds_at_most": 119.0,
    "models_without_rate": [],
    "estimated": False,
    "trials_at_once": 2,
    "memory_bytes_per_trial": 2.0**30,
    "disk_bytes": 1.5 * MIB,
    "tracked": False,
    "out": "here",
}
PLACE = "with 2 trials at once; memory about 1.0 GiB a trial; disk about 1.5 MiB in here"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, f"1,200 runs, 1,100 to do; time about 60 to 119 s {PLACE}"),
        (
            {"estimated": True, "tracked": True, "runs": 1},
            "1 run, 1,100 to do; time about 60 to 119 s (estimated from counted steps and a short "
            f"measurement of this machine) {PLACE}, what --track keeps not counted",
        ),
        (
            {"seconds_at_most": None, "models_without_rate": ["a", "b"], "packs": [3, 4]},
            "1,200 runs, 1,100 to do in 2 packs of at most 4 runs; time at least 60 s (no recorded "
            f"rate for a, b here) {PLACE}",
        ),
        (
            {
                "seconds_at_most": None,
                "seconds_at_least": 0.0,
                "models_without_rate": ["a"],
                "packs": [1],
            },
            "1,200 runs, 1,100 to do in 1 pack of at most 1 run; time unknown (no recorded rate "
            f"for a here) {PLACE}",
        ),
        ({"to_do": 0}, "1,200 runs, 0 to do: all are stored in here"),
        (
            {"to_do": 0, "searches": [{"runs_at_most": 2}, {"runs_at_most": 3}]},
            "1,200 runs, 0 to do, and at most 5 that Optuna chooses; time about 60 to 119 s "
            f"{PLACE}",
        ),
        (
            {"to_do": 0, "searches": [{"runs_at_most": 0}]},
            "1,200 runs, 0 to do: all are stored in here",
        ),
    ],
)
def test_the_cost_is_a_sentence(changed: dict[str, Any], line: str) -> None:
    assert _cost_line(REPORT | changed) == line


@pytest.mark.parametrize(
    ("count", "size"),
    [(2**29, "0.5 GiB"), (2**29 - 1, "512.0 MiB"), (3 * 2**30, "3.0 GiB"), (MIB, "1.0 MiB")],
)
def test_a_size_has_a_unit(count: int, size: str) -> None:
    assert _size(count) == size


@pytest.mark.parametrize(
    ("runs", "to_do", "lines"),
    [
        (0, None, []),
        (
            1,
            None,
            ["then, not counted above, 1 run of the second stage, at the best learning rates"],
        ),
        (7, 1000, ["of the 7 runs of the second stage, 1,000 to do, not counted above"]),
        (7, 0, ["of the 7 runs of the second stage, 0 to do, not counted above"]),
    ],
)
def test_the_second_stage_is_counted_apart(runs: int, to_do: int | None, lines: list[str]) -> None:
    report = {"second_stage_runs": runs, "second_stage_to_do": to_do}
    assert list(_second_stage_lines(report)) == lines


@pytest.mark.parametrize(
    ("most", "to_do", "lines"),
    [
        (0, None, []),
        (
            6,
            None,
            [
                "then, not counted above, at most 6 runs, stored ones included: 3 configurations "
                "that the search chooses (one for each row and cell), on 2 seeds"
            ],
        ),
        (6, 0, ["of the runs that confirm its choices, on 2 seeds, 0 to do, not counted above"]),
    ],
)
def test_confirming_runs_are_counted_apart(most: int, to_do: int | None, lines: list[str]) -> None:
    report = {"confirming_runs_at_most": most, "confirming_runs_to_do": to_do}
    plan: Any = SimpleNamespace(options=SweepOptions(confirm=(1, 2)))
    assert list(_confirmation_lines(plan, report)) == lines


# Whole texts


@pytest.fixture(autouse=True)
def no_paces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pace of this machine is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def printed(capsys: pytest.CaptureFixture[str], words: str, out: Path) -> list[list[str]]:
    """The lines of a dry run; of a table's line its cells."""
    assert command.main([*words.split(), "--dry-run", "--out", str(out)]) == 0
    return cells_of(capsys.readouterr().out)


def test_a_grid_is_shown_with_its_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--algo fedavg,fedprox --set mu=0.1,1 --seeds 2 --executor inline --lr 0.2 0.3"
    lines = printed(capsys, words, tmp_path)
    assert lines[0] == ["setting", "value", "from"]
    assert lines[1] == ["dataset", "digits", "preset fedkd"]
    assert ["lr", "0.2, 0.3", "command line"] in lines
    place = lines.index(["algorithm", "hyper-parameter", "value", "default"])
    names = [f"fedprox lr={lr} mu={mu}" for lr, mu in product((0.2, 0.3), (0.1, 1))]
    names = ["fedavg lr=0.2", *names[:2], "fedavg lr=0.3", *names[2:]]
    assert lines[place + 1 : -1] == [
        ["fedprox", "mu", "0.1, 1", "0.01"],
        ["fedprox", "prox_reduction", "sum", ""],
        ["configuration", "seeds", "to do", "partition", "time a run"],
        *([name, "2", "2", "feasible", "unknown"] for name in names),
    ]
    assert lines[-1] == [
        "12 runs, 12 to do; time unknown (no recorded rate for mlp here) with 1 trial at once; "
        f"memory about 0.9 GiB a trial; disk about 1.0 MiB in {tmp_path}"
    ]


def test_a_search_is_shown_with_its_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_report, "cpu_count", lambda: 1)
    words = "--algo fedcad --search optuna --budget 3 --alpha 0.1 0.5 --confirm 2"
    lines = printed(capsys, words, tmp_path)
    spaces = "space", "source", "configurations", "runs to do, at most", "partition"
    place = lines.index(["chosen by Optuna", *spaces, "time a run, about"])
    own = ("our own choice for the embedded data", "3", "3", "feasible", "unknown")
    assert ["lr", "[0.01, 1] log", "--budget 3, within a factor of 10 of 0.1"] in lines
    shown = lines[place + 1 : place + 9]
    assert shown[0] == ["fedcad alpha=0.1", "lr in [0.01, 1] log", *own]
    assert [cells[1] for cells in shown[1:4]] == [
        "beta in {0, 0.3, 0.5}",
        "gamma in {0.3, 0.5, 0.7}",
        "beta <= gamma",
    ]
    assert shown[4] == ["fedcad alpha=0.5", "lr in [0.01, 1] log", *own]
    assert lines[-2] == [
        "0 runs, 0 to do, and at most 6 that Optuna chooses; time unknown (no recorded rate for "
        "mlp here) with 1 trial at once; memory about 0.9 GiB a trial; disk about 0.3 MiB in "
        f"{tmp_path}"
    ]
    assert lines[-1] == [
        "then, not counted above, at most 4 runs, stored ones included: 2 configurations that the "
        "search chooses (one for each row and cell), on 2 seeds"
    ]


def test_a_table_is_shown_with_its_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--paper fedgkd --table 9 --dataset cifar10 --device cpu"
    first, *lines = printed(capsys, words, tmp_path)
    assert first == ["Table 9 of fedgkd: 3 printed cells, 9 models evaluated, 9 runs (3 seeds)"]
    assert ["lr", "0.05", "preset fedgkd"] in lines
    assert ["fedgkd", "buffer", "1", "5"] in lines


def test_tables_that_name_no_configuration_try_several() -> None:
    places = []
    for count, name in ((1, "fedavg"), (2, "fedgkd")):
        keys = tuple(SimpleNamespace(key=f"{name}{at}") for at in range(count))
        printed_cell = SimpleNamespace(table="IV", algorithm=name)
        places.append(SimpleNamespace(printed=printed_cell, run_specs=keys))
    options = SweepOptions(seeds=2)
    plan: Any = SimpleNamespace(places=places, options=options, run_specs=[1] * 7, paper="p")
    assert plan_text._table_sentence(plan) == (
        "Table IV of p: 2 printed cells, 6 models evaluated, 7 runs (2 seeds); of fedgkd "
        "everything that the paper tried is run"
    )


def test_a_report_describes_each_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--algo fedprox --set mu=0.1,1 --seeds 2 --replicates fedprox=2 --executor inline"
    out = ["--out", str(tmp_path), "--dry-run", "--json", "--mirror", "s3://bucket/x"]
    assert command.main([*words.split(), *out]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["notes"] == [
        "mirror s3://bucket/x: not contacted; runs that it already has are fetched first and not "
        "repeated"
    ]
    assert [trial["name"] for trial in report["trials"]] == ["fedprox mu=0.1", "fedprox mu=1"]
    assert [len(trial["run_keys"]) for trial in report["trials"]] == [4, 4]
    assert (report["runs"], report["to_do"], report["seeds"]) == (8, 8, 4)
    assert (report["packs"], report["concurrent_trials"], report["trials_at_once"]) == ([], 1, 1)
    assert report["trials"][0]["seconds_per_run_at_most"] is None
    later = ("second_stage_runs", "confirming_runs_at_most", "second_stage_to_do")
    assert [report[name] for name in later] == [0, 0, None]
    assert report["out"] == str(tmp_path)


def reported(capsys: pytest.CaptureFixture[str], words: str, out: Path) -> dict[str, Any]:
    """The report of a dry run."""
    assert command.main([*words.split(), "--dry-run", "--json", "--out", str(out)]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


TIMES = ("seconds_per_run", "seconds_per_run_at_least", "seconds_per_run_at_most")


def store_all(out: Path, plan: Plan, count: int, rate: float = 1000.0) -> None:
    """Store the first runs of a plan, which train so many samples a second."""
    for run_spec in plan.run_specs[:count]:
        identity = identity_columns(*run_spec.identity(entry(run_spec.algorithm)))
        row = make_row() | identity | {"samples_per_second": rate}
        Store(out).write(row, CURVE)


def test_stored_runs_take_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others take the time of one like them, or of other algorithms on the same model."""
    monkeypatch.setattr(plan_report, "cpu_count", lambda: 16)
    plan = make_plan(SweepOptions(("fedprox",), values={"mu": ("0.1", "1")}, seeds=2))
    seconds = samples_of(plan.run_specs[0]) / 1000
    store_all(tmp_path, plan, 3)
    report = reported(capsys, "--algo fedprox --set mu=0.1,1 --seeds 2", tmp_path)
    stored, other = report["trials"]
    assert [stored[name] for name in TIMES] == [0, 0, 0]
    assert [other[name] for name in TIMES] == pytest.approx([seconds] * 3)
    assert (stored["to_do"], other["to_do"]) == (0, 1)
    assert (report["runs"], report["to_do"], report["seconds"]) == (4, 1, pytest.approx(seconds))
    assert (report["concurrent_trials"], report["trials_at_once"]) == (16, 1)
    like = reported(capsys, "--algo moon --model mlp --set mu=0.5 --device cpu", tmp_path)
    assert like["trials"][0]["seconds_per_run"] is None, "it has a head, as no stored run has"
    avg = reported(capsys, "--algo fedavg", tmp_path)
    assert avg["seconds"] == pytest.approx(seconds)


@pytest.mark.parametrize(("pack", "sizes"), [(1, []), (2, [2, 1]), (3, [3])])
def test_packs_of_several_runs_are_listed(
    pack: int, sizes: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--algo fedavg --seeds 3 --backend stacked --device cpu --pack {pack}"
    assert reported(capsys, words, tmp_path)["packs"] == sizes


def test_a_search_that_is_stored_is_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--algo fedprox --set mu=0.1,1 --confirm 3"
    plan = make_plan(SweepOptions(("fedprox",), values={"mu": ("0.1", "1")}))
    for count, to_do in ((1, None), (2, 3)):
        store_all(tmp_path, plan, count)
        report = reported(capsys, words, tmp_path)
        counts = (report["confirming_runs_at_most"], report["confirming_runs_to_do"])
        assert counts == (3, to_do)
    searched = reported(capsys, f"{words} --search optuna --num-samples 2", tmp_path)
    assert searched["confirming_runs_to_do"] is None, "a search may add runs"


def test_partitions_of_confirming_runs_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn(monkeypatch, SOUND, SOUND, ("NOT feasible: x", 0, 0), ("NOT feasible: y", 0, 0))
    words = "--algo fedavg,fedprox --confirm"
    for seeds, notes in (("1", []), ("3", ["confirming runs are NOT feasible: x"])):
        assert reported(capsys, f"{words} {seeds}", tmp_path)["notes"] == notes


def test_a_mirror_inside_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algo", "fedavg", "--dry-run", "--out", str(tmp_path)]
    assert command.main([*words, "--mirror", str(tmp_path / "below")]) == 2
    assert "error: " in capsys.readouterr().err
