"""Warnings of trials reach the sweep's display, from this process and from workers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from bench.errors import Slower, Waiting
from bench.execution import Execution
from bench.executors.ray_callback import Watcher
from bench.executors.ray_executor import trainable_for
from bench.executors.runner import warnings_said
from bench.executors.trials import Outcome

WORKER = """
import sys, warnings
from bench.errors import Slower, Waiting
from bench.executors.ray_trainable import write_warnings
write_warnings(sys.argv[1])
write_warnings(sys.argv[1])
warnings.warn("going on\\nwith 6 at a time", Slower)
warnings.warn("fedavg is already running", Waiting)
warnings.warn("of somebody else")
"""


def test_a_workers_own_warnings_are_said_once_for_all_workers(tmp_path: Path) -> None:
    file, said = tmp_path / "said", list[str]()
    execution = Execution(str(tmp_path), notice_file=str(file))
    watcher = Watcher(trainable_for([], []), execution, (), Outcome())
    with warnings_said(said.append):
        watcher.on_step_end(0, [])
        for _ in range(2):
            command = [sys.executable, "-c", WORKER, str(file)]
            left = subprocess.run(command, capture_output=True, text=True, check=True).stderr
            assert "of somebody else" in left
            assert "going on" not in left
            watcher.on_step_end(0, [])
    assert said == ["warning: going on with 6 at a time", "warning: fedavg is already running"]


def test_this_processs_own_warnings_are_said_and_others_are_shown_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    said, others = list[str](), list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: others.append(str(message)))
        shown = warnings.showwarning
        with warnings_said(said.append):
            for category in (Slower, Waiting, Slower, RuntimeWarning):
                warnings.warn(category.__name__, category, stacklevel=1)
        assert warnings.showwarning is shown
    assert said == ["warning: Slower", "warning: Waiting"]
    assert others == ["RuntimeWarning"]
