"""Trials and searches as Tune gets them, without Tune: configurations, rules, errors and ends."""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import UsageError
from bench.execution import Execution
from bench.executors import ray_executor
from bench.executors.progress import Events
from bench.executors.ray_cluster import ClusterLost
from bench.executors.ray_executor import ByContest, _fit, _fit_while_watched, rule_of, run_ray
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from search_spaces import Setting


def plan_of(*algorithms: str, **options: Any) -> Plan:
    return make_plan(SweepOptions(algorithms, **options))


class Fits:
    """Fits that keep what they are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[tuple[Any, ...]] = []
        monkeypatch.setattr(ray_executor, "_fit", lambda *given: self.given.append(given))
        monkeypatch.setattr(ray_executor, "start", lambda execution: True)
        monkeypatch.setattr(ray_executor, "concurrent", lambda execution: 7)
        self.left: list[bool] = []
        monkeypatch.setattr(ray_executor, "leave", lambda: self.left.append(True))


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Fits:
    return Fits(monkeypatch)


@pytest.mark.parametrize("scheduler", ["none", "asha"])
def test_trials_are_indices(scheduler: str, fits: Fits, tmp_path: Path) -> None:
    values = {"mu": ("0", "1"), "rounds": ("40",)}
    plan = plan_of("fedprox", values=values, scheduler=scheduler)
    trials = [[run] for run in plan.run_specs]
    run_ray(plan, trials, Execution(out=str(tmp_path)), Events())
    ((execution, _, trainable, space, rules),) = fits.given
    assert execution.concurrent == 7
    assert space == {"index": {"grid_search": [0, 1]}}
    run_specs, own = trainable.resolve(None, {"index": 1})
    assert run_specs == trials[1]
    assert trainable.varied["fedprox"].hyperparameters == ("mu",)
    assert (rules is None) == (scheduler == "none")
    assert own.rounds_per_report == (0 if scheduler == "none" else 2)
    assert own.keep_stopped == (scheduler == "asha")
    assert fits.left == [True]


@pytest.mark.parametrize("scheduler", ["none", "asha"])
def test_searches_are_sampled(scheduler: str, fits: Fits, tmp_path: Path) -> None:
    values = {"mu": ("0", "1", "2"), "alpha": ("0.1", "1"), "rounds": ("40",)}
    search = {"search": "optuna", "num_samples": 2, "seeds": 2, "scheduler": scheduler}
    plan = plan_of("fedprox", values=values, **search)
    run_ray(plan, [], Execution(out=str(tmp_path)), Events())
    ((_, _, trainable, space, rules, searcher, wanted),) = fits.given
    assert (space, wanted) == ({}, 4)
    first = searcher.suggest("a")
    assert first["search"] == 0
    config = {"search": 1, "chosen": {"mu": 2.0}}
    run_specs, own = trainable.resolve(None, config)
    assert [(run.seed, run.hyperparameters["mu"]) for run in run_specs] == [(0, 2.0), (1, 2.0)]
    assert {run.setting.alpha for run in run_specs} == {plan.searches[1].setting.alpha}
    assert own.rounds_per_report == (0 if scheduler == "none" else 2)
    assert (rules is None) == (scheduler == "none")
    if rules:
        trial = SimpleNamespace(config={"search": 1})
        assert rules._rule(trial) is rules._rules[1]
        assert rules._rules[0] is not rules._rules[1]


@pytest.mark.parametrize("stops", [True, False])
def test_a_stopping_sweep_begins_nothing(stops: bool, fits: Fits, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    if stops:
        stop.touch()
    plan = plan_of("fedprox", "fedavg", search="optuna")
    execution = Execution(out=str(tmp_path), stop_file=str(stop))
    run_ray(plan, [[run] for run in plan.run_specs], execution, Events())
    assert len(fits.given) == (0 if stops else 2)
    assert fits.left == [True]


def test_nothing_to_run_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "start", lambda execution: pytest.fail("Ray is started"))
    run_ray(plan_of("fedavg"), [], Execution(out=""), Events())


# Tune


class Tuner:
    """A tuner that keeps what it is given and does something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Any = None) -> None:
        self.given: dict[str, Any] = {}
        self.action = action
        self.lost = ""
        watch = SimpleNamespace(lost_reason=lambda stopping: self.lost, close=self.close)
        monkeypatch.setattr(ray_executor, "Watch", lambda execution: watch)
        self.closed = 0
        for name in ("TuneConfig", "RunConfig", "FailureConfig"):
            monkeypatch.setattr(ray_executor.tune, name, partial(self.keep, name))
        monkeypatch.setattr(ray_executor.tune, "with_resources", lambda *given: given)
        monkeypatch.setattr(ray_executor.tune, "Tuner", self.make)

    def close(self) -> None:
        self.closed += 1

    def keep(self, kind: str, /, **options: Any) -> dict[str, Any]:
        """Keep the options of one of Tune's configurations."""
        self.given[kind] = options
        return options

    def make(self, trainable: Any, **options: Any) -> Tuner:
        self.given |= {"trainable": trainable, "space": options["param_space"]}
        return self

    def fit(self) -> None:
        """Do something, as Tune's thread does."""
        if self.action:
            self.action()


def fit(out: Path, events: Any = None, **options: Any) -> type:
    """Fit one trial; return the trainable."""
    (out / "state").mkdir(exist_ok=True)
    trainable = type("own", (), {})
    execution = Execution(out=str(out), threads=2, gpus=0.5, concurrent=3, **options)
    given: Any = (execution, events or Events(), trainable, {"index": 1}, "rules", "searcher", 5)
    _fit(*given)
    return trainable


def test_tune_gets_resources_and_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def look() -> None:
        (folder,) = (tmp_path / "state").iterdir()
        assert folder.name.startswith(".tune-")
        seen.append(folder.stat().st_mode & 0o777)

    tuner = Tuner(monkeypatch, look)
    trainable = fit(tmp_path)
    assert seen == [0o700]
    assert list((tmp_path / "state").iterdir()) == []
    given = tuner.given
    assert given["trainable"] == (trainable, {"cpu": 2, "gpu": 0.5})
    assert given["space"] == {"index": 1}
    assert given["TuneConfig"] == {
        "num_samples": 5,
        "max_concurrent_trials": 3,
        "scheduler": "rules",
        "search_alg": "searcher",
        "reuse_actors": True,
    }
    assert given["FailureConfig"] == {"max_failures": 3}
    run = given["RunConfig"]
    assert (run["verbose"], run["failure_config"]) == (0, {"max_failures": 3})
    assert run["storage_path"] == str((tmp_path / "state").resolve())
    assert len(run["callbacks"]) == 1
    assert tuner.closed == 1


@pytest.mark.parametrize("verbose", [False, True])
def test_rays_own_words_are_hidden(
    verbose: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Tuner(monkeypatch, lambda: sys.stdout.write("chatter"))
    fit(tmp_path, verbose=verbose)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "chatter" if verbose else "")


def test_a_lost_cluster_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    tuner = Tuner(monkeypatch, released.wait)
    tuner.lost = "no node"
    closed: list[bool] = []
    watcher = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(ray_executor, "Watcher", lambda *given: watcher)
    with pytest.raises(ClusterLost, match=r"^no node$"):
        fit(tmp_path)
    released.set()
    assert (tuner.closed, closed) == (1, [True])
    assert list((tmp_path / "state").iterdir()) == []


def failing(error: BaseException) -> Any:
    def fail() -> None:
        raise error

    return fail


def test_an_own_mistake_comes_through_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = UsageError("a sampler's")
    wrapped = RuntimeError("pages of text")
    wrapped.__context__ = mistake
    tuner: Any = Tuner(monkeypatch, failing(wrapped))
    with pytest.raises(UsageError, match="a sampler's"):
        _fit_while_watched(tuner, Execution(out=""), Events())
    tuner.action = failing(KeyError("other"))
    with pytest.raises(KeyError, match="other"):
        _fit_while_watched(tuner, Execution(out=""), Events())


@pytest.mark.parametrize(("when", "raised"), [("before", True), ("during", False)])
def test_a_full_disk_is_the_trials_problem(
    when: str, raised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    note = {"status": "environment", "error": "no space"}

    def fail() -> None:
        if when == "during":
            events.note(note)
        raise OSError("full")

    if when == "before":
        events.note(note)
    tuner: Any = Tuner(monkeypatch, fail)
    if raised:
        with pytest.raises(OSError, match="full"):
            _fit_while_watched(tuner, Execution(out=""), events)
    else:
        _fit_while_watched(tuner, Execution(out=""), events)
    assert tuner.closed == 1


# Rules


@pytest.mark.parametrize(("rounds", "every", "first"), [(40, 1, 4), (200, 30, 30), (5, 4, 4)])
def test_asha_begins_at_a_tenth(rounds: int, every: int, first: int) -> None:
    rule: Any = rule_of("asha", Setting(rounds=rounds, evaluate_every=every))
    assert (rule._max_t, rule._reduction_factor) == (rounds, 4)
    assert rule._brackets[0]._rungs[-1][0] == first
    assert (rule._metric, rule._mode, rule._time_attr) == ("objective", "max", "round")


class Rule:
    """A rule that keeps what it is asked, and decides as told."""

    def __init__(self, decision: Any = "CONTINUE") -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.decision = decision

    def __getattr__(self, name: str) -> Any:
        def answer(*given: Any) -> Any:
            self.asked.append((name, *given))
            if isinstance(self.decision, Exception):
                raise self.decision
            return self.decision

        return answer


ONE, TWO = (SimpleNamespace(config={"index": index}) for index in (0, 1))


def test_a_trial_is_asked_of_its_rule() -> None:
    rules: Any = [Rule(), Rule("STOP")]
    scheduler = ByContest("index", "asha", rules)
    one: Any = ONE
    two: Any = TWO
    scheduler.on_trial_add("c", one)
    assert scheduler.on_trial_result("c", one, {"round": 1}) == "CONTINUE"
    assert scheduler.on_trial_result("c", two, {"round": 2}) == "STOP"
    scheduler.on_trial_complete("c", two, {"round": 3})
    scheduler.on_trial_remove("c", one)
    assert rules[0].asked == [
        ("on_trial_add", "c", ONE),
        ("on_trial_result", "c", ONE, {"round": 1}),
        ("on_trial_remove", "c", ONE),
    ]
    assert rules[1].asked == [
        ("on_trial_result", "c", TWO, {"round": 2}),
        ("on_trial_complete", "c", TWO, {"round": 3}),
    ]


@pytest.mark.parametrize("name", ["add", "result", "complete", "remove"])
def test_errors_of_rules_are_named(name: str) -> None:
    rules: Any = [Rule(ValueError("odd"))]
    scheduler = ByContest("index", "mine:make", rules)
    given = {"result": ({},), "complete": ({},)}.get(name, ())
    with pytest.raises(UsageError, match=r"^scheduler 'mine:make': it raises ValueError: odd \(.*"):
        getattr(scheduler, f"on_trial_{name}")("c", ONE, *given)


def test_pauses_are_no_decisions() -> None:
    one: Any = ONE
    for decision, allowed in (("NOOP", True), ("PAUSE", False)):
        rules: Any = [Rule(decision)]
        scheduler = ByContest("index", "mine:make", rules)
        if allowed:
            assert scheduler.on_trial_result("c", one, {}) == decision
            continue
        with pytest.raises(UsageError, match="must return CONTINUE, STOP, NOOP, got 'PAUSE'"):
            scheduler.on_trial_result("c", one, {})
