"""Commands as `python -m` runs them: with the arguments of the process, and its exit status."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from board import ran
from rows import write

COMMANDS = {
    "bench.compare": ([], r"56\.67 \(1\)"),
    "bench.report": (["--to", "page.html"], r"1 run in page\.html: \d\.\d MB\n"),
    "bench.figures": (["--all", "--dry-run"], "^figures/own/fedgkd-4-digits"),
}


@pytest.mark.parametrize("module", COMMANDS)
def test_a_module_is_a_command(
    module: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if module == "bench.report":
        pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "own", [ran("fedavg", (0.1, 0.5), 2)])
    (tmp_path / "own" / "board.toml").write_text('options = ["--tuned=lr"]\nmetrics = ["final"]\n')
    words, shown = COMMANDS[module]
    monkeypatch.setattr(sys, "argv", [module, "--board", "own", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert re.search(shown, said.out + said.err, re.MULTILINE)
    monkeypatch.setattr(sys, "argv", [module, "--board", "nowhere"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    assert ended.value.code == 2


@pytest.mark.parametrize("module", COMMANDS)
def test_importing_a_module_runs_nothing(module: str) -> None:
    runpy.run_module(f"{module}.__main__", run_name="other", alter_sys=False)
