"""Options: repeated, from a file, over one another."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from algorithms import ALGORITHMS
from bench import cli
from bench.errors import UsageError
from bench.planning.options import SweepOptions, parse_set
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.sweep import command as sweep
from bench.sweep import parser
from bench.sweep.parser import parse, words_of
from bench.sweep.preflight import completed


def plan_of(*arguments: str) -> Plan:
    return make_plan(completed(parse(arguments)))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "sweep.toml"


def test_an_option_given_twice_takes_both() -> None:
    plan = plan_of(
        "--algo", "fedprox", "--set", "mu=0.5", "--set", "momentum=0.9", "--algo", "fedavg"
    )
    assert {run_spec.algorithm for run_spec in plan.run_specs} == {"fedprox", "fedavg"}
    assert {run_spec.hyperparameters.get("mu") for run_spec in plan.run_specs} == {0.5, None}
    assert {run_spec.setting.momentum for run_spec in plan.run_specs} == {0.9}


def test_one_value_in_two_ways_is_refused() -> None:
    with pytest.raises(UsageError, match="--set lr="):
        plan_of("--algo", "fedavg", "--lr", "0.5", "--set", "lr=0.1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("seeds = 0", "--seeds must be in [1, 100000], got 0 (from "),
        ('out = ""', "--out"),
        ("sedes = 3", "did you mean seeds?"),
        ("a = ", "no TOML file"),
        ('force = "yes"', "force takes true or false, got 'yes'"),
        ("confirm_at = {participation = [1]}", "confirm_at takes values as on the command line"),
        ("[set]\nbeta = []", "beta has no value"),
        ('alpha = ""', "--alpha takes a value"),
        ("alpha = []", "alpha has no value"),
        ('rounds = "two"', "rounds must be a whole number, got 'two' (from "),
        ("rounds = 0x" + "f" * 20_000, "80,000 bits"),
        ("set = 0x" + "f" * 20_000, "80,000 bits"),
        ("[set]\n" + ".".join(["a"] * 3_000) + " = 1", "parts"),
        ("[" + ".".join(['"a"'] * 10_000) + "]", "parts"),
        ("a = " + "[" * 5_000, "no TOML file"),
        ('out = "a\\u0000b"', "zero byte"),
        ("#" + "x" * 2**20, "bytes"),
        ("rounds = 07:32:00", "no option takes a date or a time"),
        ("rounds = [{a = 1}]", "takes texts or numbers, got {'a': 1}"),
        ("seeds = [1, 2]", "seeds takes one value, got [1, 2]"),
        ("local-epochs = 1\nlocal_epochs = 2", "local_epochs is given twice"),
        ('paper = "-h"', "got the option -h"),
        ('[set]\n"--list" = 1', "names of fields, got '--list'"),
        ("time-budget = -inf", "must be >= 0, and finite, got -inf"),
        ("max-concurrent = 1.5", "give a whole number, got '1.5'"),
        ('algo = ["fedavg", "--out", "elsewhere"]', "--out"),
        ('import = "mine:Mine"', "no option for --config"),
        ('config = "other.toml"', "(did you mean confirm?); known: address, "),
    ],
)
def test_a_wrong_file_ends_with_2(
    content: str, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes through the parser of the command line, and errors about values name it."""
    config.write_text(content)
    with pytest.raises(SystemExit) as ended:  # by argparse, or by the command
        sys.exit(cli.main(["sweep", "--algo", "fedavg", "--dry-run", "--config", str(config)]))
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert words in message
    assert str(config) in message


def test_an_item_of_a_list_keeps_its_comma() -> None:
    values = {"set": {"public": ["folder:a,b:50"], "label": ['say "a,b"'], "alpha": "0.1,0.5"}}
    words = words_of(values, "bench.api.sweep")
    assert parse_set(words[1:]) == {
        "public": ("folder:a,b:50",),
        "label": ('say "a,b"',),
        "alpha": ("0.1", "0.5"),
    }


def test_a_file_may_begin_with_a_mark(config: Path) -> None:
    """As editors of Windows save it."""
    config.write_bytes(b'\xef\xbb\xbfalgo = ["fedavg"]\r\nrounds = 1\r\n')
    (run_spec,) = plan_of("--config", str(config)).run_specs
    assert (run_spec.algorithm, run_spec.setting.rounds) == ("fedavg", 1)


@pytest.fixture
def stranger(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module that says when it is imported; `config` lies elsewhere."""
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    monkeypatch.setattr("sys.path", sys.path[:])
    (working / "their_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    return working


@pytest.mark.parametrize(
    "content",
    [
        'algo = "their_module:X"',
        'algo = "fedavg"\ndataset = "their_module:X"',
        'algo = "fedavg"\nmodel = "their_module:X"',
        'algo = "fedavg"\n[set]\npartition = "their_module:X"',
        'algo = "fedavg"\nconfirm = 1\nconfirm-at = "partition=their_module:X"',
    ],
)
@pytest.mark.parametrize("command", ["sweep", "status"])
def test_a_strangers_file_imports_nothing(
    content: str, command: str, config: Path, stranger: Path
) -> None:
    config.write_text(content)
    words = [command, "--config", str(config), *["--dry-run"] * (command == "sweep")]
    assert cli.main(words) == 2
    assert not config.with_name("ran").exists()
    assert cli.main([*words, "--import", "their_module:X"]) == 2, "it has no X"
    assert config.with_name("ran").exists()
    del sys.modules["their_module"]


def test_a_file_in_the_working_folder_imports(config: Path, stranger: Path) -> None:
    own = stranger / "sweep.toml"
    own.write_text('algo = "their_module:X"')
    link = stranger / "link.toml"
    config.write_text(own.read_text())
    link.symlink_to(config)
    assert cli.main(["sweep", "--dry-run", "--config", str(link)]) == 2
    assert not config.with_name("ran").exists(), "the file is elsewhere, the link is not"
    assert cli.main(["sweep", "--dry-run", "--config", "sweep.toml"]) == 2
    assert config.with_name("ran").exists()
    del sys.modules["their_module"]


def test_a_typed_name_goes_over_the_file(config: Path, stranger: Path) -> None:
    config.write_text('algo = "their_module:X"')
    assert cli.main(["sweep", "--dry-run", "--config", str(config), "--algo", "fedavg"]) == 0
    assert not config.with_name("ran").exists()


FOLDER_COMMANDS = (
    "sweep --algo fedavg --executor inline --out",
    "compare --out",
    "boards validate",
)


@pytest.mark.parametrize("asked", FOLDER_COMMANDS)
def test_a_folder_not_in_utf8_is_refused(asked: str, tmp_path: Path) -> None:
    """Before anything runs: its name could be stored in no row and printed in no table."""
    out = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    assert cli.main([*asked.split(), out]) == 2
    assert not Path(out).exists()


@pytest.mark.parametrize("asked", FOLDER_COMMANDS)
def test_a_folder_that_cannot_be_is_refused(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to itself, a name that is too long, folders in one another without end."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for out in ("loop", "loop/below", "x" * 300, "x/" * 1_900):
        assert cli.main([*asked.split(), out]) == 2, out
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_an_empty_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.sweep.parser.PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    before = list(Path("/proc/self/fd").iterdir())
    assert cli.main(["sweep", "--dry-run", "--config", str(tmp_path / "pipe")]) == 2
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before), "it is closed"


def test_a_pipe_brings_options(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            file.write(b'algo = "fedavg"\n')
            time.sleep(0.05)
            file.write(b"rounds = 7")

    writer = Thread(target=write)
    writer.start()
    assert parse(["--config", str(pipe)]).values["rounds"] == ("7",)
    writer.join()


@pytest.mark.parametrize(
    ("default", "text"),
    [(None, ""), (False, ""), (0, ""), (10, " (10)"), (15.0, " (15)"), ("grid", " (grid)")],
)
def test_help_shows_defaults_that_act(default: Any, text: str) -> None:
    assert parser._shown(default) == text


def test_a_negative_number_is_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("-1e-3", "-inf", "-.5"):
        assert cli.main(["sweep", "--algo", "fedavg", "--lr", value, "--dry-run"]) == 2
        assert "lr must be > 0" in capsys.readouterr().err


def test_an_overlong_name_is_refused() -> None:
    assert cli.main(["sweep", "--algo", "x" * 5_000, "--dry-run"]) == 2


def test_the_command_line_goes_over_the_file_however_a_value_is_given(config: Path) -> None:
    config.write_text(
        'algo = "fedcad"\nquiet = true\n[set]\nlr = 0.1\nmomentum = 0.5\nfedcad.gamma = 0.5\nbeta = 0\n'
    )
    plan = plan_of("--config", str(config), "--lr", "0.5")
    assert {run_spec.setting.lr for run_spec in plan.run_specs} == {0.5}
    assert {run_spec.setting.momentum for run_spec in plan.run_specs} == {0.5}
    assert {run_spec.hyperparameters["gamma"] for run_spec in plan.run_specs} == {0.5}
    assert (plan.origins["lr"], plan.origins["momentum"]) == ("command line", str(config))
    plan = plan_of("--config", str(config), "--set", "gamma=0.7")
    assert {run_spec.hyperparameters["gamma"] for run_spec in plan.run_specs} == {0.7}, (
        "a plain name goes over the file's qualified"
    )


def test_a_field_of_the_setting_leaves_a_hyper_parameter_of_that_name_alone(config: Path) -> None:
    config.write_text('algo = "feddkd"\n[set]\nfeddkd.lr = 0.3\n')
    plan = plan_of("--config", str(config), "--lr", "0.5")
    assert {
        (run_spec.setting.lr, run_spec.hyperparameters["lr"]) for run_spec in plan.run_specs
    } == {(0.5, 0.3)}


def test_qualified_names_reach_one_algorithm() -> None:
    plan = plan_of(
        "--algo", "fedgkd,fedcad", "--set", "gamma=0.5", "fedgkd.gamma=2", "beta=0", "buffer=1"
    )
    assert {
        (run_spec.algorithm, run_spec.hyperparameters["gamma"]) for run_spec in plan.run_specs
    } == {
        ("fedgkd", 2.0),
        ("fedcad", 0.5),
    }


def test_the_spaces_shown_are_those_on_the_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> set[str]:
        assert sweep.main(["--algo", "fedcad", "--show", "--json", *arguments]) == 0
        return {space["setting"]["dataset"] for space in json.loads(capsys.readouterr().out)}

    assert shown("--dataset", "cifar10") == {"cifar10"}
    assert shown("--algo", "fedavg,fedavg_t1", "--dataset", "femnist") == {"femnist"}, (
        "runs shared, not spaces"
    )
    assert shown() == {
        "cifar10",
        "cifar100",
        "femnist",
        "femnist_letters",
        "femnist_digits",
        "digits",
    }
    assert sweep.main(["--algo", "fedcad", "--show", "--dataset", "mnist"]) == 2
    assert "cifar10, cifar100" in capsys.readouterr().err


def test_all_spaces_are_shown_without_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["--show", "--json"]) == 0
    shown = {space["algorithm"] for space in json.loads(capsys.readouterr().out)}
    assert {"fedcad", "fedproto"} <= shown <= ALGORITHMS.keys()


def key_of(*values: str) -> str:
    return plan_of("--algo", "fedprox", "--set", "mu=0.1", *values).run_specs[0].key


def test_equal_runs_have_equal_keys() -> None:
    assert key_of("weight_decay=-0") == key_of("weight_decay=0")
    assert key_of("optimizer=adam", "momentum=0.9") == key_of("optimizer=adam")
    assert key_of("adam_eps=1e-3") == key_of()
    assert key_of("partition=iid", "alpha=0.1") == key_of("partition=iid", "alpha=5")
    assert key_of("decay_exempt=norm") == key_of()


def test_whatever_changes_results_changes_the_key() -> None:
    others = [
        "lr=0.2",
        "batch_size=8",
        "optimizer=adam",
        "momentum=0.9",
        "model=mlp+bn",
        "evaluate_every=2",
    ]
    keys = [key_of(), *map(key_of, others)]
    assert len(set(keys)) == len(keys)


def test_a_field_without_effect_is_said() -> None:
    plan = plan_of("--algo", "fedavg", "--set", "partition=iid", "--alpha", "0.1", "0.5")
    assert len(plan.run_specs) == 1
    assert any(note.startswith("alpha ") for note in plan.notes)


def test_optuna_searches_only_where_there_is_a_choice() -> None:
    plan = make_plan(SweepOptions(("fedavg", "fedprox"), search="optuna"))
    assert [search.algorithm for search in plan.searches] == ["fedprox"]
    assert [run_spec.algorithm for run_spec in plan.run_specs] == ["fedavg"]


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        ("fedcad", {"values": {"validation_fraction": ("0",)}, "search": "optuna"}, "test set"),
        ("fedavg", {"values": {"validation_fraction": ("0",)}, "scheduler": "asha"}, "asha"),
        ("fedavg", {"values": {"model": ("mlp+bn",), "batch_size": ("1",)}}, "batch_size"),
    ],
)
def test_plans_that_cannot_be_are_refused(
    algorithm: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        make_plan(SweepOptions((algorithm,), **options))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seeds", str(10**12)),
        ("--pack", "0"),
        ("--time-budget", "nan"),
        ("--save-seconds", "-1"),
        ("--out", ""),
    ],
)
def test_a_value_that_must_be_a_mistake_is_refused_by_its_option(option: str, value: str) -> None:
    with pytest.raises(UsageError, match=option):
        parse(["--algo", "fedprox", option, value])


def test_every_option_has_its_default_and_where_it_was_given() -> None:
    assert parse(["--rounds", "3,4"]) == parse(["--rounds", "3", "4"]), (
        "lists take spaces or commas"
    )
    options = parse(["--rounds", "3", "4", "--track", "models,local", "--set", "mu=0.1,1"])
    assert (options.values["rounds"], options.track) == (("3", "4"), ("local", "models"))
    assert (options.seeds, options.save_seconds, options.out, options.quiet) == (
        1,
        15.0,
        None,
        False,
    )
    assert options.values == {"rounds": ("3", "4"), "mu": ("0.1", "1")}
    assert set(options.given) == {"rounds", "track", "set"}
    with pytest.raises(AttributeError):
        options.seeds = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "more", [(), ("--search", "grid"), ("--budget", "3"), ("--paper", "fedcad", "--table", "1")]
)
def test_a_number_of_configurations_without_a_search_is_refused(more: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--num-samples 5"):
        plan_of("--algo", "fedprox", "--num-samples", "5", *more)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["sweep", "--algo", "fedavg", "--ruonds", "2"], "--ruonds 2 (did you mean --rounds?)"),
        (
            ["sweep", "--algo", "fedavg", "--partition", "iid"],
            "--partition iid (did you mean --set partition=VALUE?)",
        ),
        (["compare", "--rounds", "3"], "--rounds 3 (did you mean --where rounds=VALUE?)"),
        (["compare", "--import", "a:b"], "--import a:b; `"),
        (["sweep", "fedavg"], "fedavg (did you mean --algo fedavg?)"),
        (
            ["data", "list", "--offline"],
            "unrecognized arguments: --offline; `python -m bench.data list --help`",
        ),
    ],
)
def test_an_option_that_does_not_exist_is_answered_in_a_line(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(command)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.startswith("error: ")
    assert message.count("\n") == 1


def test_a_file_may_hold_values_of_algorithms_that_a_command_leaves_out(config: Path) -> None:
    config.write_text(
        'algo = ["fedcad", "fedprox"]\n[set]\n"fedcad.gamma" = 0.5\n"fedprox.mu" = 0.1\n'
    )
    assert {
        run_spec.hyperparameters["mu"]
        for run_spec in plan_of("--config", str(config), "--algo", "fedprox").run_specs
    } == {0.1}
    with pytest.raises(UsageError, match=r"fedcad\.gamma"):
        plan_of("--algo", "fedprox", "--set", "fedcad.gamma=0.5")
    config.write_text('algo = "fedcad"\n[set]\n"fedprox.momentum" = 0.5\n')
    with pytest.raises(UsageError, match=r"fedprox\.momentum"):
        plan_of("--config", str(config))
