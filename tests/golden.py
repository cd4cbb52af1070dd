"""Make a golden result folder of the present version, which later versions must read, merge and resume.

`python tests/golden.py tests/data/results_vN`, in the repository's root, once for each released
version and never again for the same one. `tests/leaderboards/rows/test_golden.py` reads all of them.

    folder         what a result folder can hold: a segment of several runs, one of them forced; small files of a
                   finished, a failed and a stopped run; tracked files; the state of an interrupted
                   run
    expected.json  the numbers and accuracies of the stored runs; of the interrupted one those that
    it reaches
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.execution import Execution
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.sweep import command as sweep
from bench.sweep.parser import parse
from bench.sweep.preflight import completed
from bench.trial.run import record_failure
from bench.trial.trial import Trial
from leaderboards import Store
from leaderboards.rows.compaction import compact

COMMON = (
    "--dataset digits --model mlp --offline --executor inline --quiet --seeds 1 --local-epochs 1"
)
PACKED = (
    "--algo fedavg_t1 --rounds 2",
    "--algo fedgkd --set gamma=0.2 --rounds 3",
    "--algo fedgkd --set gamma=0.2 --rounds 3 --force",
    "--algo scaffold --rounds 2 --set local_test_fraction=0.2",
    "--algo fedproto fd --rounds 2 --set client_models=mlp/cnn_digits local_test_fraction=0.2 "
    "local_validation_fraction=0.2 finetune_steps=2",
)
ALONE = "--algo fedprox --set mu=0.5 --rounds 2 --track local,classes"
FAILED = f"{COMMON} --algo fedprox --set mu=0.5 --rounds 2 --seeds 2"
STOPPED = f"{COMMON} --algo fedcad --set beta=0.3 gamma=0.7 --rounds 4"
INTERRUPTED = f"{COMMON} --algo fedbn --set num_clients=2 --rounds 6"
LAST_SAVED = 3  # round of the interrupted run's state


def golden(out: Path) -> None:
    """Write a golden folder, and what is expected of it."""
    folder = out / "folder"
    for words in PACKED:
        _sweep(words, folder)
    compact(folder)
    _sweep(ALONE, folder)
    failed = _runs_of(FAILED)[1]
    record_failure(failed, _execution(folder), "the process died", together=1)
    stopped = Trial(_runs_of(STOPPED), _execution(folder))
    stopped.step()
    stopped.close()
    shutil.rmtree(folder / "state")
    (interrupted,) = _runs_of(INTERRUPTED)
    trial = Trial([interrupted], _execution(folder))
    for _ in range(LAST_SAVED):
        trial.step()
    trial.save()
    trial.runs[0].release()
    for lock in (folder / "state").glob("*.lock"):
        lock.unlink()
    (folder / "leaderboard.parquet").unlink()  # it is made of the others
    expected = {"stored": _expected(folder), "interrupted": _undisturbed(interrupted)}
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def _sweep(words: str, out: Path) -> None:
    if status := sweep.main([*COMMON.split(), *words.split(), "--out", str(out)]):
        raise SystemExit(f"the sweep {words!r} ended with exit status {status}")


def _runs_of(words: str) -> tuple[RunSpec, ...]:
    return tuple(make_plan(completed(parse(words.split(), "golden"))).run_specs)


def _execution(out: Path) -> Execution:
    return Execution(
        out=str(out.resolve()),
        offline=True,
        rounds_per_report=1,
        provenance=command_columns("golden"),
    )


def _expected(out: Path) -> dict[str, Any]:
    """Return what is stored of each run: identity, status, some numbers, and the test accuracy of every round."""
    runs, curves = Store(out).runs(), Store(out).curves()
    accuracy = (
        curves[curves["metric"] == "accuracy"]
        .sort_values("round")
        .groupby("run_key")["value"]
        .apply(list)
    )
    names = (
        "algorithm",
        "seed",
        "status",
        "hp_json",
        "best_accuracy",
        "final_accuracy",
        "local_accuracy_mean",
        "wlp",
    )
    rows = runs.astype(object).where(runs.notna(), None).set_index("run_key")
    return {
        key: {**{name: row[name] for name in names}, "accuracy": accuracy.get(key, [])}
        for key, row in rows.iterrows()
    }


def _undisturbed(run_spec: RunSpec) -> dict[str, Any]:
    """Return what is expected of the interrupted run, its command and the round of its state."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial([run_spec], _execution(Path(folder)))
        while not trial.step()["done"]:
            pass
        trial.close()
        (row,) = [row | {"run_key": key} for key, row in _expected(Path(folder)).items()]
    return {**row, "round": LAST_SAVED, "command": INTERRUPTED, "failed": FAILED}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("to", type=Path, help="a new folder")
    asked = parser.parse_args()
    if asked.to.exists():
        sys.exit(f"{asked.to} exists: a golden folder is made once")
    golden(asked.to)
