"""Before the first trial: options completed, the execution resolved, what is refused or noted."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rows import CURVE, make_row

from algorithms import entry
from bench import artifacts
from bench.errors import EnvironmentProblem, UsageError
from bench.execution import Execution
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.selftest.certify import QUICK
from bench.sweep import preflight
from bench.sweep.parser import parse
from bench.sweep.preflight import check_track, completed, gpu_share, resolve, track_notes
from leaderboards import Store, StoreError, identity_columns
from search_spaces import PAPERS


def plan_of(*words: str) -> Plan:
    return make_plan(completed(parse(words)))


# Options


TABLE = ("--paper", "fedgkd", "--table", "3")


@pytest.mark.parametrize(
    ("words", "seeds", "dataset"),
    [
        (("--algo", "fedavg"), 1, "digits"),
        (("--algo", "fedavg", "--seeds", "4"), 4, "digits"),
        (("--algo", "fedavg", "--confirm", "3"), 1, "digits"),
        (("--algo", "fedavg", "--num-samples", "3", "--search", "random"), 1, "digits"),
        (("--table", "3"), 1, ""),
        (TABLE, 3, ""),
        ((*TABLE, "--seeds", "7", "--dataset", "cifar10"), 7, "cifar10"),
    ],
)
def test_seeds_and_data_are_completed(words: tuple[str, ...], seeds: int, dataset: str) -> None:
    options = completed(parse(words))
    assert (options.seeds, options.dataset) == (seeds, dataset)


CONFIRM = ("--algo", "fedavg", "--confirm", "3")
SEEDS = "--confirm searches seed 0 and reports seeds 1 to 3: leave --seeds out"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--algo", "fedavg", "--num-samples", "3"),
            "--num-samples 3 is for --search random or --search optuna, and --budget has a number "
            "of its own: leave it out",
        ),
        (
            (),
            "--algo is missing: name an algorithm, several, or all; --list shows them",
        ),
        (
            ("--paper", "fedxx"),
            f"no paper 'fedxx' (did you mean fedkf?); known: {', '.join(sorted(PAPERS))}",
        ),
        ((*CONFIRM, "--seeds", "2"), SEEDS),
        (
            ("--algo", "fedavg", "--confirm-at", "participation=1"),
            "--confirm-at says where --confirm runs what the search chose: give --confirm 3, too",
        ),
        (
            (*TABLE, "--confirm", "3"),
            "--table runs a paper's own configurations on its own seeds: leave out --confirm, or "
            "--table",
        ),
    ],
)
def test_options_in_conflict_are_refused(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        completed(parse(words))
    assert str(refused.value) == problem


def test_a_typed_confirm_goes_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("seeds = 3\n")
    assert completed(parse([*CONFIRM, "--config", str(file)])).seeds == 1
    file.write_text("seeds = 3\nconfirm = 3\n")
    with pytest.raises(UsageError) as refused:
        completed(parse(["--algo", "fedavg", "--config", str(file)]))
    assert str(refused.value) == SEEDS


# The execution


def test_every_option_reaches_the_execution(tmp_path: Path) -> None:
    words = (
        "--algo fedavg --offline --device cpu --backend loop --cpus-per-trial 1 --chosen-by best "
        "--select-on global --force --save-seconds 3 --track local --executor inline "
        "--max-concurrent 4 --pack 3 --time-budget 9 --verbose"
    )
    places = ("--out", str(tmp_path / "out"), "--data-dir", str(tmp_path))
    assert resolve(plan_of(*words.split(), *places)) == Execution(
        out=str(tmp_path / "out"),
        data_dir=str(tmp_path),
        offline=True,
        device="cpu",
        backend="loop",
        threads=1,
        chosen_by="best",
        select_on="global",
        force=True,
        save_seconds=3.0,
        track=("local",),
        executor="inline",
        concurrent=4,
        pack=3,
        time_budget=9.0,
        verbose=True,
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--cpus-per-trial 3", "--cpus-per-trial 3 is more than the 2 cores of this machine"),
        (
            "--precision tf32 --device cpu",
            "precision tf32 is a GPU's, and these runs are on a CPU, where it would be fp32",
        ),
        (
            "--address a:1 --executor inline",
            "--address a:1 names a Ray cluster: use --executor ray, or leave --address out",
        ),
        (
            "--scheduler asha --pack 2",
            "--scheduler asha compares trials of one configuration each, and --pack 2 puts several "
            "configurations into one trial: give --pack 1, or leave --pack out",
        ),
        (
            "--scheduler asha --executor inline",
            "--scheduler asha compares trials that run at the same time, and --executor inline "
            "runs one after another: use --executor ray, or leave --scheduler out",
        ),
    ],
)
def test_what_this_machine_cannot_do(
    words: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "cpu_count", lambda: 2)
    with pytest.raises(UsageError) as refused:
        resolve(plan_of("--algo", "fedavg", *words.split()))
    assert str(refused.value) == problem


def test_as_many_cores_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "cpu_count", lambda: 2)
    plan = plan_of("--algo", "fedavg", "--cpus-per-trial", "2", "--scheduler", "asha")
    assert (resolve(plan).threads, resolve(plan).pack) == (2, 1)
    far = plan_of("--algo", "fedavg", "--cpus-per-trial", "3", "--address", "a:1")
    assert (resolve(far).threads, resolve(far).address) == (3, "a:1")


def test_packages_of_our_names_hide_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers would import them; a plain folder of results is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaderboards").mkdir()
    preflight._check_working_folder()
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").touch()
    with pytest.raises(UsageError, match=r"another package 'bench', .* hides fedkd-bench's from"):
        resolve(plan_of("--algo", "fedavg"))
    assert resolve(plan_of("--algo", "fedavg", "--executor", "inline")).executor == "inline"


@pytest.mark.parametrize(
    ("words", "execution", "sizes", "share"),
    [
        ("", {"device": "cpu"}, [2], 0.0),
        ("--gpus-per-trial 0.3", {"device": "cuda"}, [2], 0.3),
        ("--gpus-per-trial 0", {"device": "cuda"}, [2], 0.0),
        ("", {"device": "cuda"}, [1, 1], 0.25),
        ("", {"device": "cuda"}, [1, 2], 1.0),
        ("", {"device": "cuda"}, [], 0.25),
        ("", {"device": "cuda", "backend": "loop"}, [1, 2], 0.25),
        ("--search optuna --seeds 2", {"device": "cuda"}, [], 1.0),
        ("--search optuna", {"device": "cuda"}, [], 0.25),
    ],
)
def test_a_pack_has_a_gpu_to_itself(
    words: str, execution: dict[str, Any], sizes: list[int], share: float
) -> None:
    plan: Any = SimpleNamespace(options=parse(words.split()), searches=("s",) * ("--s" in words))
    trials: Any = [[None] * size for size in sizes]
    assert gpu_share(plan, Execution(out="", **execution), trials) == share


# Checks


@pytest.mark.parametrize(
    ("layer", "device", "backend", "pack", "ends"),
    [
        ("drop", "cpu", "loop", 1, "mixes"),
        ("drop", "cuda", "auto", 1, "drop on a GPU"),
        ("drop", "cpu", "stacked", 1, "drop in a stack"),
        ("drop", "cpu", "loop", 2, "drop in a pack"),
        ("drop", "cuda", "stacked", 2, "drop on a GPU"),
        ("", "cpu", "auto", 1, "mixes"),
        ("", "cpu", "auto", 2, "stacks"),
        ("", "cuda", "stacked", 1, "stacks"),
        ("", "cuda", "loop", 2, "mixes"),
    ],
)
def test_outside_models_are_tried_where_they_train(
    layer: str, device: str, backend: str, pack: int, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that draws is refused wherever its draws cannot be repeated."""
    done: list[str] = []
    engine = "bench.engine.own_draws"
    stacks = "bench.engine.trial_passes.stacks.check_stacks"
    monkeypatch.setattr(preflight, "is_from_outside", lambda model: model == "cnn_digits")
    monkeypatch.setattr(f"{engine}.drawing_layer", lambda *given: layer)
    monkeypatch.setattr(f"{engine}.mixes_samples", lambda *given: done.append("mixes"))
    monkeypatch.setattr(f"{engine}.refuse", lambda model, *why: UsageError(" ".join(why)))
    monkeypatch.setattr(stacks, lambda model, shape: done.append("stacks"))
    settings = plan_of("--algo", "fd", "--set", "client_models=mlp/cnn_digits").settings
    try:
        preflight._check_own_draws(settings, device, backend, pack)
    except UsageError as refused:
        done.append(str(refused))
    assert done[0] == "mixes"
    assert done[-1] == ends


def test_own_kinds_are_made_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is imported with its variables before a scheduler of the user's imports it."""
    created: list[Any] = []
    monkeypatch.setattr(preflight, "import_executor", created.append)
    monkeypatch.setattr(preflight, "make_scheduler", created.append)
    monkeypatch.setattr(preflight, "make_sampler", lambda path, seed: created.append(path))
    resolve(plan_of("--algo", "fedprox", "--scheduler", "own:rule"))
    resolve(plan_of("--algo", "fedprox", "--scheduler", "asha"))
    resolve(plan_of("--algo", "fedprox", "--search", "own:sampler"))
    assert created == ["ray", "own:rule", "own:sampler"]


def test_a_full_disk_is_found_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    monkeypatch.setattr(preflight.tempfile, "TemporaryFile", lambda dir: full.open("wb"))
    with pytest.raises(EnvironmentProblem, match="cannot be written: No space left on device; "):
        preflight.check_out(tmp_path)
    (tmp_path / "curves").symlink_to(tmp_path)
    with pytest.raises(StoreError):
        preflight.check_out(tmp_path)


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    preflight.check_out(tmp_path / "a" / "out")
    assert list((tmp_path / "a" / "out").iterdir()) == []
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    with pytest.raises(EnvironmentProblem) as refused:
        preflight.check_out(out)
    assert str(refused.value) == (
        f"--out {out} cannot be written: Not a directory; choose another folder with --out or "
        "FEDKD_OUT"
    )


@pytest.mark.parametrize(
    ("problems", "remarks", "said"),
    [
        (("a", "b", "c", "d"), (), "m:M fails the self-test: a; b; c. `python -m bench.selftest"),
        ((), ("a", "b", "c", "d"), "note: m:M: a; b; c. Its results are marked; `python -m bench"),
        ((), (), ""),
    ],
)
def test_three_problems_of_an_algorithm_are_told(
    problems: tuple[str, ...],
    remarks: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preflight, "_run_self_test", lambda name, version: (problems, remarks))
    monkeypatch.setattr(preflight, "entry", lambda name: entry("fedavg"))
    asked: Any = [SimpleNamespace(algorithm=name) for name in ("m:M", "fedavg", "m:M")]
    if problems:
        with pytest.raises(UsageError) as refused:
            preflight.check_algorithms(asked)
        assert str(refused.value).startswith(said)
        assert str(refused.value).endswith("; --uncertified runs it, and marks its results")
    else:
        certified = preflight.check_algorithms(asked)
        assert certified == (() if remarks else ("m:M",))
        assert capsys.readouterr().err.startswith(said)
        assert "d." not in said


def test_a_self_test_has_one_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hyper-parameter without effect is a remark, all else a problem."""
    threads: list[int] = []

    def certify(candidate: Any, checks: tuple[str, ...]) -> Any:
        threads.append(torch.get_num_threads())
        sys.stdout.write("an algorithm speaks\n")
        outcomes = [SimpleNamespace(check=check, problems=(check,)) for check in checks]
        return SimpleNamespace(outcomes=outcomes)

    monkeypatch.setattr("bench.selftest.certify.certify", certify)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        outcome = preflight._run_self_test.__wrapped__("fedavg", 1)
        assert (threads, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)
    assert outcome == (QUICK, ("hyperparameters",))
    notes = "note: fedavg: checked by the self-test before it runs\nan algorithm speaks\n"
    assert capsys.readouterr() == ("", notes)


def test_drift_needs_like_models() -> None:
    like = plan_of("--algo", "fd", "--track", "drift,local")
    check_track(like)
    unlike = ("--algo", "fd", "--set", "client_models=mlp/cnn_digits", "--track")
    check_track(plan_of(*unlike, "local"))
    with pytest.raises(UsageError) as refused:
        check_track(plan_of(*unlike, "drift"))
    assert str(refused.value) == (
        "--track drift compares the gradients of clients, which client_models=mlp/cnn_digits gives "
        "unlike models: leave out either"
    )


# Notes


def stored(out: Path, run_spec: RunSpec, *names: str, **columns: Any) -> None:
    """Store a run, with tracked data of these names."""
    identity = identity_columns(*run_spec.identity(entry(run_spec.algorithm)))
    files = []
    arrays = {f"{name}/rounds": np.arange(2) for name in names}
    if arrays:
        files.append(artifacts.write_arrays(out, run_spec.key, arrays))
    Store(out).write(make_row() | identity | columns, CURVE, False, files)


TRACKED = "local_accuracy_mean"


def notes(out: Path, to_do: Iterable[RunSpec] = (), **options: Any) -> list[str]:
    """What is noted of two runs."""
    plan = make_plan(SweepOptions(("fedavg",), seeds=2, **options))
    return list(track_notes(plan, list(to_do), out))


def test_stored_runs_may_lack_what_is_tracked(tmp_path: Path) -> None:
    first, second = make_plan(SweepOptions(("fedavg",), seeds=2)).run_specs
    stored(tmp_path, first, "local", "classes", **{TRACKED: 0.5})
    stored(tmp_path, second, "local", **{TRACKED: None})
    again = "--force runs what is stored again"
    assert notes(tmp_path) == []
    assert notes(tmp_path, track=("classes",)) == [f"1 stored run without all of classes: {again}"]
    assert notes(tmp_path, [second], track=("classes",)) == []
    assert notes(tmp_path, [first, second], track=("drift",)) == []
    assert notes(tmp_path, track=("drift", "classes")) == [
        f"2 stored runs without all of drift, classes: {again}"
    ]
    assert notes(tmp_path, [second], track=("local", "classes")) == []
    assert notes(tmp_path, [first], track=("local",)) == [
        f"1 stored run without all of local: {again}"
    ]


def test_force_may_lose_what_was_tracked(tmp_path: Path) -> None:
    first, second = make_plan(SweepOptions(("fedavg",), seeds=2)).run_specs
    stored(tmp_path, first, "local", "classes")
    assert notes(tmp_path, force=True, track=("local", "classes")) == []
    lost = "which the rows of --force will lack: add --track"
    assert notes(tmp_path, force=True, track=("local",)) == [
        f"1 stored run with classes, {lost} classes to keep them"
    ]
    stored(tmp_path, second, "drift")
    assert notes(tmp_path, force=True) == [
        f"2 stored runs with classes, local, drift, {lost} classes local drift to keep them"
    ]


def test_tables_of_local_accuracy_need_tracking(tmp_path: Path) -> None:
    plan = plan_of("--paper", "fedproto", "--table", "1", "--algo", "fedproto")
    printed = {place.printed.quantity for place in plan.places}
    said = list(track_notes(plan, [], tmp_path))
    measures = "some printed numbers are of clients' own models, which only --track local measures"
    assert said == ([measures] if "local_accuracy" in printed else [])
    place = SimpleNamespace(printed=SimpleNamespace(quantity="local_accuracy"))
    for track, expected in (((), [measures]), (("local",), [])):
        options = SweepOptions(track=track)
        fake: Any = SimpleNamespace(options=options, places=[place], run_specs=())
        assert list(track_notes(fake, [], tmp_path)) == expected


def test_runs_on_other_data_are_counted(tmp_path: Path) -> None:
    plan = make_plan(SweepOptions(("fedavg",), seeds=3))
    for number, run_spec in enumerate(plan.run_specs):
        stored(tmp_path, run_spec, dataset_hash=("ab" if number else "cd") * 32)
    for digest, line in (
        ("ab" * 32, ["1 stored run not reused: trained on another copy of digits than the one"]),
        ("cd" * 32, ["2 stored runs not reused: trained on another copy of digits than the one"]),
    ):
        found = list(preflight.other_data_notes(plan, tmp_path, {"digits": digest}))
        assert found == [f"{text} here" for text in line]
    assert list(preflight.other_data_notes(plan, tmp_path, {})) == []


def test_an_architecture_is_described() -> None:
    setting = make_plan(SweepOptions(("fedavg",))).settings[0].as_dict()
    described = preflight._architecture(setting)
    assert described == "mlp of inputs 1x8x8 and 10 classes"
    own = preflight._architecture(setting | {"model_version": 7})
    assert own == "mlp (version 7) of inputs 1x8x8 and 10 classes"
