"""Commands that messages suggest work when they are pasted, whatever a folder is called."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import boards, status
from bench.compare import command as compare
from bench.report import command as report
from bench.sweep import command as sweep
from bench.sweep import reproduce
from leaderboards.shell_text import shell_command

AWKWARD = "my $HOME `results`, 'all' of them"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name a shell takes apart."""
    made = tmp_path / AWKWARD
    made.mkdir()
    return made


def test_a_command_is_quoted_where_a_shell_would_take_it_apart(folder: Path) -> None:
    plain = shell_command(
        "bench.sweep", "reproduce", "3fa1", "--out", "runs/a", "--set", "mu=0.1,1"
    )
    assert plain == "python -m bench.sweep reproduce 3fa1 --out runs/a --set mu=0.1,1"
    printing = "import sys; print(sys.argv[1:])"
    words = shell_command("bench.status", "--out", folder).split("bench.status ")[1]
    done = subprocess.run(
        f'{sys.executable} -c "{printing}" {words}', shell=True, capture_output=True, text=True
    )
    assert done.stdout == f"{['--out', str(folder)]}\n"


# What is asked of a folder without what it takes, by a function of it, and the words of the command
# that is suggested.
ASKED: dict[str, tuple[Callable[[str], int], str]] = {
    "compare": (
        lambda out: compare.main(["--out", out]),
        "bench.sweep --algo fedavg,fedprox --dataset digits --out",
    ),
    "report": (
        lambda out: report.main(["--out", out, "--to", "page.html"]),
        "bench.sweep --algo fedavg,fedprox --dataset digits --out",
    ),
    "diff": (
        lambda out: compare.main(["diff", "xyz", "fedcad/cifar10", "--out", out]),
        "bench.status --out",
    ),
    "reproduce": (lambda out: reproduce.main(["xyz", "--out", out]), "bench.status --out"),
}


@pytest.mark.parametrize(("ask", "words"), ASKED.values(), ids=ASKED)
def test_what_is_suggested_names_the_folder_as_a_shell_takes_it(
    ask: Callable[[str], int], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(str(folder)) == 2
    assert f"python -m {words} {shlex.quote(str(folder))}" in capsys.readouterr().err


SWEEP = ["--algo", "fedavg", "--rounds", "1", "--executor", "inline"]


@pytest.mark.parametrize(
    "asked",
    [
        lambda out: sweep.main([*SWEEP, "--out", out]),
        lambda out: sweep.main([*SWEEP, "--dry-run", "--out", out]),
        lambda out: reproduce.main(["xyz", "--out", f"{Path(out).parent}/there", "--into", out]),
        lambda out: status.main(["--algo", "fedavg", "--out", out]),
        lambda out: boards.main(["merge", f"{Path(out).parent}/there", "--out", out]),
    ],
    ids=["sweep", "dry run", "reproduce", "status of a plan", "merge"],
)
def test_a_file_where_results_go_is_refused_in_words(
    asked: Callable[[str], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there" / "runs").mkdir(parents=True)
    file = tmp_path / "notes.txt"
    file.write_text("of the user")
    assert asked(str(file)) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {file} is a file, and ")
    assert (said.out, file.read_text()) == ("", "of the user")


def test_a_sweep_shows_one_table_over_what_was_tuned_and_the_command_for_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.main([*SWEEP, "--budget", "2", "-q", "--out", str(folder)]) == 0
    output = capsys.readouterr()
    assert output.out.count("Configurations tried: fedavg 2") == 1
    assert (
        f"again: python -m bench.compare --tuned lr --out {shlex.quote(str(folder))}\n"
        in output.err
    )
    assert sweep.main([*SWEEP, "--chosen-by", "best", "-q", "--out", str(folder)]) == 0
    words = shlex.quote(str(folder))
    assert f"again: python -m bench.compare --chosen-by best --out {words}\n" in (
        capsys.readouterr().err
    )
    assert sweep.main([*SWEEP, "-q", "--out", str(folder)]) == 0
    assert "again:" not in capsys.readouterr().err
