"""What a sweep says around its trials: runs to do, its end, and the command for its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import run
from rows import CURVE, make_row

from algorithms import entry
from bench.execution import Execution
from bench.executors.progress import Events, Quiet
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.sweep import command
from bench.sweep.command import _announce, _report_end, _suggest_compare, _trials_and_work
from leaderboards import Store, identity_columns

THREE = make_plan(SweepOptions(("fedavg",), seeds=3))


def state_of(out: Path, key: str) -> None:
    """Leave a saved state of a run."""
    folder = out / "state" / key
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()


@pytest.mark.parametrize(
    ("to_do", "force", "line"),
    [
        (3, False, "3 runs, 3 to do (2 from where it was saved)\n"),
        (2, False, "3 runs, 1 already stored, 2 to do (1 from where it was saved)\n"),
        (3, True, "3 runs, 3 to do\n"),
        (0, False, "3 runs, 3 already stored, 0 to do\n"),
    ],
)
def test_runs_to_do_are_counted(
    to_do: int, force: bool, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_spec in THREE.run_specs[:2]:
        state_of(tmp_path, run_spec.key)
    plan = replace(THREE, options=replace(THREE.options, force=force), notes=("one", "two"))
    _announce(plan, plan.run_specs[3 - to_do :], tmp_path)
    assert capsys.readouterr().err == f"note: one\nnote: two\n{line}"


def test_searches_are_announced_by_algorithm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(SweepOptions(("fedprox", "fedcad", "fedavg"), search="optuna"))
    _announce(plan, plan.run_specs, tmp_path)
    line = "1 run, 1 to do, and the trials of fedcad, fedprox"
    assert capsys.readouterr().err.splitlines()[-1] == line
    _announce(replace(plan, run_specs=(), notes=()), (), tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("interrupted", "options", "said"),
    [
        (False, {}, ["problem: p", "note: failed runs are tried again by the same command; with"]),
        (False, {"verbose": True}, ["problem: p", "first", "second"]),
        (True, {"force": True}, ["interrupted: the same command begins anew, as --force asks"]),
        (True, {}, ["interrupted: the same command goes on from what is saved"]),
    ],
)
def test_the_end_is_told(
    interrupted: bool,
    options: dict[str, Any],
    said: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = Events()
    events.interrupted = interrupted
    for traceback in () if interrupted else ("first\n", "second\n", "first\n"):
        events.note({"status": "failed", "error": "p", "traceback": traceback})
    _report_end(events, SweepOptions(**options))
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(lines) == len(said)
    assert all(line.startswith(text) for line, text in zip(lines, said, strict=True))


@pytest.mark.parametrize(
    ("changed", "options", "words"),
    [
        ({}, {}, ""),
        ({"tuned": ("lr",)}, {}, "selected over lr as well; again: {} --tuned lr{}"),
        ({}, {"chosen_by": "best"}, "again: {} --chosen-by best{}"),
        ({}, {"select_on": "global"}, "again: {} --select-on global{}"),
        (
            {"confirmed_at": {"participation": 0.5, "nesterov": False}},
            {},
            "again: {} --confirmed participation=0.5 nesterov=false{}",
        ),
        ({"confirmed_at": {}}, {}, "again: {} --confirmed{}"),
    ],
)
@pytest.mark.parametrize("usual", [False, True])
def test_the_table_again_needs_its_options(
    changed: dict[str, Any],
    options: dict[str, Any],
    words: str,
    usual: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path) if usual else "elsewhere")
    plan = replace(THREE, options=replace(THREE.options, **options), **changed)
    _suggest_compare(plan, tmp_path)
    out = "" if usual else f" --out {tmp_path}"
    expected = words.format("python -m bench.compare", out)
    assert capsys.readouterr().err == (f"note: {expected}\n" if words else "")


def test_the_work_of_searches_counts(tmp_path: Path) -> None:
    """Three configurations of two seeds, of which one is stored, beside a trial of one run."""
    values = {"mu": ("0.1", "0.2", "0.3", "0.4"), "rounds": ("20",)}
    options = SweepOptions(
        ("fedavg", "fedprox"), values=values, search="optuna", num_samples=3, seeds=2
    )
    plan = make_plan(options)
    stored = make_plan(replace(options, algo=("fedprox",), search="grid")).run_specs[:2]
    for run_spec in stored:
        identity = identity_columns(*run_spec.identity(entry("fedprox")))
        Store(tmp_path).write(make_row() | identity, CURVE)
    trials = [[run_spec] for run_spec in plan.run_specs]
    execution = Execution(out=str(tmp_path))
    count, work = _trials_and_work(plan, trials, execution)
    per_run = 20 * 5 * 5 * (1438 * 0.9 - 80) / 10
    assert count == 2 + 2
    assert work == pytest.approx((2 + 2 * 2) * per_run)


class Stages:
    """A sweep whose trainings are recorded, each of ten seconds, with the given statuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *statuses: int) -> None:
        self.trained: list[tuple[int, float]] = []
        self.now = 100.0
        waiting = list(statuses)

        def train(plan: Plan, execution: Any, words: str, spent: float = 0.0) -> int:
            self.trained.append((len(plan.run_specs), spent))
            self.now += 10
            for run_spec in plan.run_specs if waiting[0] == 0 else ():
                row = make_row() | identity_columns(*run_spec.identity(entry(run_spec.algorithm)))
                Store(Path(execution.out)).write(row, CURVE)
            return waiting.pop(0)

        monkeypatch.setattr(command, "_train", train)
        monkeypatch.setattr(command, "monotonic", lambda: self.now)
        monkeypatch.setattr(command.data, "hashes", lambda names, folder: {})

    def end(self, out: Path, **options: Any) -> int:
        """The status of a sweep over two rates with a budget of three."""
        values = {"lr": ("0.1", "0.2")}
        asked = SweepOptions(
            ("fedavg",), values=values, budget=3, tuning="two-stage", executor="inline", **options
        )
        plan = command.prepare(asked)
        return command._run_stages(plan, Execution(out=str(out)), "words")[0]


def test_stages_share_the_time_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Stages(monkeypatch, 0, 0, 0)
    assert stages.end(tmp_path, confirm=(1, 2)) == 0
    assert stages.trained == [(2, 0.0), (1, 10.0), (2, 20.0)]
    assert (tmp_path / "leaderboard.parquet").exists()


@pytest.mark.parametrize(
    ("statuses", "trained", "status"),
    [((130,), 1, 130), ((0, 1, 0), 3, 1), ((0, 0, 3), 3, 3)],
)
def test_a_later_stage_follows_what_ended(
    statuses: tuple[int, ...],
    trained: int,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupted stage has none after it; a failed run does not hold the next one up."""
    stages = Stages(monkeypatch, *statuses)
    assert stages.end(tmp_path, confirm=(1,)) == status
    assert len(stages.trained) == trained


def test_a_stage_without_results_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = Stages(monkeypatch, 1)
    assert stages.end(tmp_path, confirm=(1,)) == 1
    assert capsys.readouterr().err.splitlines() == [
        "note: no second stage of fedavg yet: runs of the first have not finished, which the same "
        "command tries again",
        "note: no configuration has finished on seed 0 yet: there is none to confirm",
    ]
    assert not (tmp_path / "leaderboard.parquet").exists()


def test_a_spent_budget_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 25 seconds ten are left after fifteen, and none after thirty."""
    given: list[float | None] = []
    display = Quiet()
    closed: list[bool] = []
    monkeypatch.setattr(display, "close", lambda: closed.append(True))
    monkeypatch.setattr(command, "make_display", lambda *_: display)

    def run_plan(plan: Any, trials: Any, execution: Execution, *_: Any) -> Events:
        given.append(execution.time_budget)
        events = Events()
        events.interrupted = True
        return events

    monkeypatch.setattr(command, "run_plan", run_plan)
    execution = Execution(out=str(tmp_path), executor="inline")
    for budget, spent in ((25.0, 0.0), (25.0, 15.0), (25.0, 30.0), (None, 5.0)):
        options = replace(THREE.options, time_budget=budget, quiet=True)
        plan = replace(THREE, options=options)
        assert command._train(plan, execution, "words", spent) == 130
    assert given == [25.0, 10.0, 0.0, None]
    assert len(closed) == 4


def test_verbose_is_short_or_long(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(command, "exit_status", lambda action, verbose: told.append(verbose) or 0)
    for words in (["-v"], ["--verbose"], []):
        command.main(words)
    assert told == [True, True, False]


def test_a_command_may_only_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--algo", "fedavg", "--dry-run") == 0
    assert list(tmp_path.iterdir()) == []
    assert "1 run, 1 to do" in capsys.readouterr().out


def test_a_mirror_gets_the_states_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a search, whose runs are not known before."""
    asked: list[Any] = []
    monkeypatch.setattr(command, "_run_stages", lambda *given: (0, given[0], None))
    module = SimpleNamespace(mirrored=lambda url, out, keys: asked.append(keys) or Nothing())
    monkeypatch.setitem(__import__("sys").modules, "bench.sync.mirror", module)
    for options in ({}, {"search": "optuna"}, {"confirm": (1,)}):
        plan = make_plan(SweepOptions(("fedprox",), mirror="/there", **options))
        command.run(plan, Execution(out=str(tmp_path)), "words")
    every = {run_spec.key for run_spec in make_plan(SweepOptions(("fedprox",))).run_specs}
    assert asked == [every, None, None]


class Nothing:
    """A context that does nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
