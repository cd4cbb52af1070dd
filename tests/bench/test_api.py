"""`bench.api`: the commands as functions, with DataFrames and exceptions."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import ROOT, run

from algorithms.base import Algorithm, Server
from bench import api
from bench.errors import EnvironmentProblem, UsageError
from leaderboards import Store

SMALL = {"dataset": "digits", "rounds": 1, "local_epochs": 1}


def test_run_trains_one_configuration_once(tmp_path: Path) -> None:
    first = api.run("fedcad", gamma=0.7, beta=0.3, seed=3, out=tmp_path, **SMALL)
    (row,) = first.runs.to_dict("records")
    assert json.loads(row["hp_json"])["gamma"] == 0.7
    assert (row["seed"], row["status"], row["command"]) == (3, "finished", "bench.api.run")
    assert set(first.curves["run_key"]) == {row["run_key"]}
    assert [*first.board["n"]] == [1]
    again = api.run("fedcad", gamma=0.7, beta=0.3, seed=3, out=tmp_path, **SMALL)
    pd.testing.assert_frame_equal(first.runs, again.runs)


class Signalled(Algorithm):
    """FedAvg that interrupts its process in round 2, once."""

    def server_step(self, fed: Any, server: Server, uploads: Any, cohort: Any) -> Server:
        """Send the signal."""
        if server.round == 1 and not SENT:
            SENT.append(True)
            signal.raise_signal(signal.SIGINT)
        return super().server_step(fed, server, uploads, cohort)


SENT: list[bool] = []


def test_an_interrupted_call_raises_and_goes_on(tmp_path: Path) -> None:
    """A script that calls it in a loop would otherwise begin the next run."""
    SENT.clear()
    longer = {**SMALL, "rounds": 4, "out": tmp_path, "uncertified": True}
    with pytest.raises(KeyboardInterrupt, match="the same call goes on"):
        api.run(Signalled, **longer)
    assert not list(Store(tmp_path).status())
    frames = api.run(Signalled, **longer)
    assert frames.runs["status"].tolist() == ["finished"]
    assert frames.runs["communications"].item() == 4


def test_an_unusable_state_is_an_exception(tmp_path: Path) -> None:
    SENT.clear()
    longer = {**SMALL, "rounds": 4, "out": tmp_path, "uncertified": True}
    with pytest.raises(KeyboardInterrupt):
        api.run(Signalled, **longer)
    for part in (tmp_path / "state").glob("*/*.pt"):
        part.write_bytes(b"damaged")
    with pytest.raises(EnvironmentProblem, match="the problems on standard error"):
        api.run(Signalled, **longer)


def test_run_takes_a_table(tmp_path: Path) -> None:
    lines = [f"{number % 3},{number},{number % 3}" for number in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y,kind", *lines]))
    of_table = {"dataset": f"csv:{tmp_path / 't.csv'}", "label": "kind", "num_clients": 2}
    frames = api.run("fedavg", out=tmp_path / "out", **{**SMALL, **of_table})
    assert frames.runs["dataset"].str.startswith("csv@").all()


def test_run_gives_all_rows_of_its_run(tmp_path: Path) -> None:
    frames = api.run("fedavg_t1", out=tmp_path, **SMALL)
    assert {*frames.runs["algorithm"]} == {"fedavg", "fedavg_t1"}


def test_sweep_is_the_command(tmp_path: Path) -> None:
    frames = api.sweep(
        algo=["fedavg", "fedprox"],
        alpha=(0.1, 1),
        set={"mu": [0.1, 1]},
        executor="inline",
        out=tmp_path / "api",
        quiet=True,
        **SMALL,
    )
    words = "--algo fedavg,fedprox --dataset digits --alpha 0.1 1 --set mu=0.1,1 --rounds 1"
    assert run(tmp_path / "command", *words.split(), "--local-epochs", "1") == 0
    same = ["run_key", "final_accuracy", "partition_hash"]
    expected = Store(tmp_path / "command").runs()[same].sort_values("run_key")
    ours = frames.runs[same].sort_values("run_key")
    assert len(ours) == 6
    assert list(frames.runs.columns) == list(Store(tmp_path / "command").runs().columns)
    pd.testing.assert_frame_equal(
        ours.reset_index(drop=True), expected.reset_index(drop=True), check_dtype=False
    )
    assert frames.board["selected"].sum() == 4
    assert "index" not in frames.board


def test_switches_may_be_numpys() -> None:
    on = api.compare(board="reference-v2", over_cells=np.bool_(True), metric="final")
    off = api.compare(board="reference-v2", over_cells=np.bool_(False), metric="final")
    assert "average_rank" in on
    assert "average_rank" not in off


def test_sweep_leaves_other_results_out(tmp_path: Path) -> None:
    api.run("fedprox", out=tmp_path, **SMALL)
    frames = api.sweep(algo="fedavg", executor="inline", out=tmp_path, quiet=True, **SMALL)
    assert {*frames.runs["algorithm"]} == {*frames.board["algorithm"]} == {"fedavg"}
    assert {*api.load(tmp_path).runs["algorithm"]} == {"fedavg", "fedprox"}


def test_compare_has_the_numbers_of_csv(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.compare.command import main

    options = ["--board", "reference", "--metric", "last10", "--alpha", "0.1", "--format", "csv"]
    assert main(options) == 0
    text = capsys.readouterr().out
    frame = api.compare(board="reference", metric="last10", alpha=0.1)
    assert len(frame) == text.count("\n") - 1
    assert [*frame.columns] == text.split("\n")[0].split(",")


def test_compare_with_a_reference_has_differences() -> None:
    frame = api.compare(
        board="reference",
        metric=["last10"],
        alpha=[0.1],
        where={"participation": [0.2]},
        reference="fedavg",
    )
    (title,) = set(frame["sheet"])
    assert title.endswith("difference from fedavg")
    assert {*frame["participation"]} == {0.2}
    assert "fedgkd" in {*frame["algorithm"]}
    assert "fedavg" not in {*frame["algorithm"]}


def test_load_reads_boards_as_they_select() -> None:
    frames = api.load("reference")
    assert repr(frames).startswith("Frames(runs: 618 rows, curves: ")
    assert frames.board["selected"].all(), "what was tried on seed 0 is not reported"
    assert 0 not in {*frames.runs["seed"]}
    assert {*frames.curves["run_key"]} <= {*frames.runs["run_key"]}


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: api.run("fedcad", gama=0.5), "did you mean gamma"),
        (lambda: api.run("fedavg", seeds=3), r"did you mean seed\?\); known: "),
        (lambda: api.run("fedavg", device="gpu"), "invalid choice: 'gpu'"),
        (lambda: api.run("fedavg", out=5), "out must be a path, as text or a Path, got 5"),
        (lambda: api.sweep(algo="fedavg", data_dir=b"x"), "data_dir must be a path"),
        (lambda: api.run(3), "an algorithm is a name"),
        (lambda: api.sweep(algo="fedavg", datset="digits"), "did you mean dataset"),
        (lambda: api.sweep(algo="fedavg", seeds="x"), "give how many seeds"),
        (lambda: api.sweep(algo="fedavg", dry_run=True), "dry_run only prints"),
        (lambda: api.sweep(algo="fedavg", quiet="yes"), "quiet takes true or false"),
        (lambda: api.compare(board="reference", format="md"), "use to_latex"),
        (lambda: api.compare(metrc="best"), "did you mean metric"),
        (lambda: api.compare(board="reference", metric="nope"), "no metric 'nope'"),
        (lambda: api.run("fedavg", force="no"), r"bench\.api\.run: force takes true or false"),
        (lambda: api.load("nowhere"), "no board 'nowhere'"),
        (lambda: api.load("-x"), "there is no folder or file -x"),
        (lambda: api.load(["reference"]), r"load takes one path .* got \['reference'\]"),
    ],
)
def test_mistakes_are_exceptions_with_the_next_step(
    call: Callable[[], object], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=problem):
        call()
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize("first", ["bench.sweep.command", "bench.compare", "bench.api"])
def test_it_works_in_whatever_order_things_are_imported(first: str) -> None:
    script = (
        f"import {first}, bench.api as api, sys; assert not {{'torch', 'ray'}} & {{*sys.modules}}; "
    )
    script += "print(callable(api.sweep), callable(api.compare), callable(api.trainable))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"] * 3


@pytest.mark.slow
def test_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs/quickstart.ipynb", as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=place).execute()
    (cell,) = [cell for cell in notebook.cells if "fedprox = api.run" in cell["source"]]
    (result,) = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
    own, registered = json.loads(result["data"]["text/plain"])
    assert own == registered, "the notebook's FedProx is that of the package"
