"""`--scheduler module:factory` and `--search module:factory`: a user's own, in one place each."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
from commands import run

from bench.errors import UsageError
from bench.executors.factories import make_sampler, make_scheduler
from bench.sweep import command as sweep
from bench.sweep.parser import parse
from bench.sweep.preflight import completed
from leaderboards import Store

OWN = """
from optuna.samplers import RandomSampler
from ray.tune.schedulers import FIFOScheduler

seeds = []

def sampler(seed):
    seeds.append(seed)
    return RandomSampler(seed=seed)

class AtFour(FIFOScheduler):
    def __init__(self, time_attr, metric, mode):
        super().__init__()
        self.compared = time_attr, metric

    def on_trial_result(self, controller, trial, result):
        time, metric = self.compared
        assert -1 <= result[metric] <= 1
        return self.STOP if result[time] == 4 else self.CONTINUE

class Broken(AtFour):
    def on_trial_result(self, controller, trial, result):
        return {}["absent"]

class Undecided(AtFour):
    def on_trial_result(self, controller, trial, result):
        return None

class BrokenSampler(RandomSampler):
    def sample_independent(self, *anything):
        raise ValueError("no idea")

def number(**anything):
    return 3
"""
SMALL = ("--algo", "fedprox", "--dataset", "digits")
GRID = ("--set", "mu=0,0.01,0.1,100")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module of the user's own."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own", raising=False)
    return tmp_path


def test_an_own_sampler_proposes_the_configurations(own: Path) -> None:
    words = (*SMALL, *GRID, "--rounds", "1", "--search", "own:sampler", "--num-samples", "2")
    assert run(own / "out", *words) == 0
    assert len(Store(own / "out").runs()) == 2
    assert run(own / "out", *words[:-1], "3") == 0
    assert len(Store(own / "out").runs()) == 3, "the two that are stored count"
    assert sys.modules["own"].seeds[-1] == 2, "its seed is the number of results so far"


@pytest.mark.slow
def test_an_own_scheduler_stops_trials(own: Path) -> None:
    words = (*SMALL, "--set", "mu=0,0.1", "--rounds", "8", "--out", "out", "-q")
    assert sweep.main([*words, "--scheduler", "own:AtFour"]) == 0
    store = Store(own / "out")
    assert [*store.runs()["status"]] == ["stopped"] * 2
    assert store.curves()["round"].max() == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--scheduler", "own:Broken"),
            "scheduler 'own:Broken': it raises KeyError: 'absent' (own",
        ),
        (("--scheduler", "own:Undecided"), "CONTINUE, STOP, NOOP, got None"),
        (("--search", "own:BrokenSampler", "--num-samples", "2"), "ValueError: no idea (own.py:"),
    ],
)
def test_an_error_of_own_code_is_named_without_traceback(
    own: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    end = (*GRID, "--rounds", "2", "--executor", "ray", "--out", "out", "-q")
    assert sweep.main([*SMALL, *words, *end]) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("own:number", r"must return a .*FIFOScheduler, got int"),
        ("own:sampler", "it raises TypeError"),
        ("own:absent", "has no 'absent'"),
        ("absent:x", "no module 'absent'"),
        ("ray.tune.schedulers:HyperBandScheduler", "chooses which trial runs next"),
    ],
)
def test_what_is_no_scheduler_is_refused(own: Path, path: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make_scheduler(path)


def test_an_experimental_sampler_warns_of_nothing() -> None:
    """The user asked for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_sampler("optuna.samplers:QMCSampler", seed=0)


def test_what_is_no_sampler_is_refused(own: Path) -> None:
    with pytest.raises(UsageError, match=r"must return a .*BaseSampler, got int"):
        make_sampler("own:number", seed=0)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--scheduler", "own:AtFour", "--pack", "4"), "give --pack 1"),
        (("--scheduler", "own:AtFour", "--executor", "inline"), "use --executor ray"),
        (("--scheduler", "median"), "choose none, asha or module:factory"),
        (("--search", "own:number", "--num-samples", "2"), "must return a"),
    ],
)
def test_wrong_uses_end_before_anything_runs(
    own: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    try:
        status: object = sweep.main([*SMALL, *GRID, *words, "--out", "out"])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert problem in capsys.readouterr().err
    assert not (own / "out").exists()


def test_a_file_elsewhere_cannot_name_code(own: Path) -> None:
    (own / "far").mkdir()
    file = own / "far" / "sweep.toml"
    file.write_text('algo = ["fedprox"]\nscheduler = "own:AtFour"\n')
    with pytest.raises(UsageError, match="--import own:AtFour"):
        parse(["--config", str(file)])
    options = completed(parse(["--config", str(file), "--import", "own:AtFour"]))
    assert options.scheduler == "own:AtFour"
