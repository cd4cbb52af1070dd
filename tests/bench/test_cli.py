"""`fedkd` and `python -m bench...`: commands, their help, and their exit status."""

from __future__ import annotations

import runpy
import sys

import pytest

from bench import __version__, cli


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedkd-bench {__version__}\n"


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_lists_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    first, blank, *lines, last_blank, end = capsys.readouterr().out.splitlines()
    assert first == "usage: fedkd COMMAND ..., or python -m bench COMMAND ..."
    assert (blank, last_blank, end) == ("", "", "COMMAND --help has details.")
    assert lines == [f"  {name:<10}{text}" for name, text in cli.COMMANDS.items()]


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stat"]) == 2
    assert "no command 'stat' (did you mean status?)" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_gets_its_own_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = cli.main([name, "--help"])
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    assert f"usage: python -m bench.{name} " in capsys.readouterr().out


RUN = {
    "bench": ["nothing"],
    "bench.cli": ["nothing"],
    "bench.sweep": ["--algo", "nothing"],
    "bench.status": ["--nothing"],
    "bench.boards": ["nothing"],
    "bench.perf": ["--part", "nothing"],
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("module", RUN)
def test_a_module_runs_its_command(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [module, *RUN[module]])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code == 2
    file = f"{module}.__main__" if module in ("bench", "bench.sweep", "bench.perf") else module
    runpy.run_module(file, run_name="imported", alter_sys=True)
