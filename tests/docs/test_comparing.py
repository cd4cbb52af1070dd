"""The commands of docs/comparing.md, in their order, on shorter runs."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from scipy.special import stdtrit

from bench import api
from bench.boards import main as boards
from bench.compare.command import main as compare
from bench.figures.command import main as figures
from bench.report.command import main as report
from bench.sweep.command import main as sweep
from leaderboards import Store

COMMANDS = {
    "bench.sweep": sweep,
    "bench.compare": compare,
    "bench.figures": figures,
    "bench.report": report,
    "bench.boards": boards,
}
SHORTER = ["--rounds", "2", "--alpha", "0.1", "--executor", "inline"]
GUIDE = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, start: str, text: str) -> str:
    """The content of the fenced block that begins with a line."""
    fenced = re.search(rf"```{language}\n({re.escape(start)}\n.*?)```", text, re.DOTALL)
    assert fenced, start
    return fenced[1]


@pytest.mark.slow
def test_the_guides_commands_lead_from_a_class_to_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    searched = re.search(r"```python\n(mu: .*)\n```", GUIDE)
    assert searched
    method = block("python", "# my_methods.py", README)
    Path("my_methods.py").write_text(re.sub(r"mu: float = .*", searched[1], method))
    Path("study.toml").write_text(block("toml", "# study.toml", GUIDE))
    lines = re.findall(r"^python -m (bench\.\w+) (.*?)(?:  +#.*)?$", GUIDE, re.MULTILINE)
    named = [name for name, _ in lines]
    assert named.count("bench.sweep") == 2
    for name, text in lines:
        if name not in COMMANDS:
            continue
        words = shlex.split(text.replace("101-108", "101-103"))
        if name == "bench.sweep":
            words += SHORTER
        elif Path("study").exists() and not Path("study/board.toml").exists():
            Path("study/board.toml").write_text(block("toml", "# study/board.toml", GUIDE))
        assert COMMANDS[name](words) == 0, (name, words, capsys.readouterr().err)
        if name == "bench.compare":
            table = capsys.readouterr().out
    rows = Store("study").runs()
    tried = rows[rows["seed"] == 0].groupby("algorithm").size()
    assert tried.to_dict() == dict.fromkeys(tried.index, 6)
    assert "my_methods:MyProx" in tried.index
    assert "Over 1 cell · last10: difference from fedavg" in table
    assert list(Path("figures/study").glob("board-differences-*.svg"))
    assert Path("report.html").exists()


def test_spreads_and_partitions_are_the_boards() -> None:
    """The spread of a paired difference, and how many partitions show one point."""
    hypotheses = ["fedgkd", "fedgkd_vote", "feddkd", "fedlsd"]
    tests = api.compare(
        board="reference-v2", algo=["fedavg", *hypotheses], reference="fedavg", metric="last10"
    )
    half = 100 * (tests["high"] - tests["low"]) / 2
    spreads = half * np.sqrt(tests["n"]) / stdtrit(tests["n"] - 1, 0.975)
    medians = spreads.groupby(tests["alpha"]).median().round(1)
    text = " ".join(GUIDE.split())
    assert medians.to_dict() == {0.1: 2.3, 0.5: 1.3, 5.0: 1.4}
    assert "2.3 points at α = 0.1, 1.3 at 0.5 and 1.4 at 5" in text
    partitions = np.ceil((2.8 * medians) ** 2).astype(int)
    assert "these are {}, {} and {} partitions".format(*partitions) in text
