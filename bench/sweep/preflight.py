"""Checks before the first trial: methods from outside, the result folder, data, weights, partitions, stored models.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from algorithms import ALGORITHMS, entry
from algorithms.entry_points import names_of_rows
from bench import artifacts, data
from bench.errors import EnvironmentProblem, UsageError
from bench.execution import Execution
from bench.planning.model import Plan, Search
from bench.planning.run_spec import RunSpec, setting_identity, setting_of
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards.shell_text import shell_command


def check_out(out: Path) -> None:
    """Raise EnvironmentProblem unless files can be written under `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        raise EnvironmentProblem(
            f"--out {out} cannot be written: {error.strerror or error}; choose another folder with --out or FEDKD_OUT"
        ) from None


def check_algorithms(asked: Iterable[RunSpec | Search]) -> bool:
    """Certify algorithms from outside by the self-test's quick part; return whether their results need no mark.

    A hyper-parameter that changes nothing there is said, and the results are marked: it may act late, or never.

    Raises:
        UsageError: one writes to what it is given, draws from global generators, keeps state elsewhere, or fails.
    """
    certified = True
    for name in dict.fromkeys(one.algorithm for one in asked if one.algorithm not in ALGORITHMS):
        problems, remarks = _findings(name, entry(name).version)
        more = f"`{shell_command('bench.selftest', name)}` tells more"
        if problems:
            raise UsageError(
                f"{name} fails the self-test: {'; '.join(problems[:3])}. {more}; --uncertified runs it, and marks its "
                "results"
            )
        if remarks:
            say(f"{name}: {'; '.join(remarks[:3])}. Its results are marked; {more}")
        certified &= not remarks
    return certified


@cache
def _findings(name: str, version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Run the quick part of the self-test on a version of an algorithm: what fails it, and remarks on its fields."""
    import torch

    from bench.selftest.candidate import Candidate
    from bench.selftest.certify import QUICK, certify

    say(f"{name}: checked by the self-test before it runs")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # bit-equality holds at equal threads
    try:
        with redirect_stdout(sys.stderr):  # its own prints
            outcomes = certify(Candidate(name, entry(name)), (*QUICK, "hyperparameters")).outcomes
    finally:
        torch.set_num_threads(threads)
    problems = [problem for outcome in outcomes if outcome.check in QUICK for problem in outcome.problems]
    remarks = [problem for outcome in outcomes if outcome.check not in QUICK for problem in outcome.problems]
    return tuple(problems), tuple(remarks)


def prepare_data(plan: Plan, units: Sequence[RunSpec], execution: Execution) -> None:
    """Fetch each data set once, before workers ask for it together, and refuse partitions that cannot be drawn.

    Raises UsageError for such a partition, or a client of one sample for a model with BatchNorm; EnvironmentProblem if
    data or weights are missing or altered.
    """
    from bench.data.splits import feasible, split, split_like
    from bench.models import has_batchnorm, weights

    settings = [(unit.setting, unit.seed) for unit in units]
    settings += [(search.setting, seed) for search in plan.searches for seed in range(plan.request.seeds)]
    # Many runs share a partition, which takes milliseconds to draw, or with many samples seconds.
    distinct = {(split_like(setting), setting.model, seed): (setting, seed) for setting, seed in settings}
    for setting, seed in sorted(distinct.values(), key=lambda case: case[0].dataset):
        dataset = data.load(setting.dataset, execution.data_dir, execution.offline)
        weights.provide(setting.model, execution.data_dir, execution.offline)
        reason = feasible(setting, dataset.train_y, seed, dataset.train_groups)
        if reason:
            raise UsageError(reason)
        if has_batchnorm(setting.model):
            clients = split(setting, dataset.train_y, seed, dataset.train_groups).clients
            smallest = min(len(index) for index in clients)
            if smallest < 2:
                raise UsageError(
                    f"model {setting.model!r} takes its statistics over a batch, and a client has {smallest} sample: "
                    "use fewer clients, a larger alpha, or a model without BatchNorm"
                )


def track_notes(plan: Plan, units: Sequence[RunSpec], out: Path, track: Sequence[str]) -> Iterator[str]:
    """Say what `--track` would add: numbers of a printed table, and files of stored runs. `units`: those to do."""
    if "local" not in track and any(cell.column == "local_accuracy_mean" for cell in plan.cells):
        yield "some printed numbers are of clients' own models, which only --track local measures"
    to_do = {unit.key for unit in units}
    stored = [unit for unit in plan.units if unit.key not in to_do] if track else []
    lacking = sum(not set(track) <= artifacts.held(out, unit.key) for unit in stored)
    if lacking:
        yield f"{counted(lacking, 'stored run')} without all of {', '.join(track)}: --force runs what is stored again"


# The stored model of `--start-from`.


def full_keys(starts: Iterable[str], out: Path) -> tuple[str, ...]:
    """The run keys that begin so, each of a run whose final model is kept.

    Raises UsageError if no run begins so, or several do, or it has no model, or one for each client.
    """
    return tuple(str(_row(start, out)["run_key"]) for start in starts)


def check_start(plan: Plan, out: Path) -> None:
    """Raise UsageError if a model that runs begin with is not of their architecture."""
    asked: list[RunSpec | Search] = [*plan.units, *plan.searches]
    rows = {key: _row(key, out) for key in {one.setting.start_from for one in asked} if key}
    for one in asked:
        if one.setting.start_from:
            row = rows[one.setting.start_from]
            wanted = _architecture(setting_identity(one.setting))
            with names_of_rows((one.setting.dataset,), "--dataset"):
                stored = _architecture(json.loads(row["setting_json"]))
            if stored != wanted:
                raise UsageError(
                    f"--start-from {row['run_key'][:16]}: its model is {stored}, and {one.algorithm} runs {wanted} "
                    "here: name a run with that model, or other algorithms"
                )


def _row(start: str, out: Path) -> Mapping[str, Any]:
    from safetensors import safe_open

    from bench.compare.filters import run_of_key
    from leaderboards.rows.store import Folders

    row = {str(name): value for name, value in run_of_key(Folders([out]).runs(), start, [out]).iloc[0].items()}
    path = artifacts.path_of(out, row["run_key"], "safetensors")
    if not path.exists():
        raise UsageError(
            f"--start-from {start}: no final model of that run is kept; its own command with --track models --force "
            "makes it"
        )
    with safe_open(path, "numpy") as file:
        if any("/" in name for name in file.keys()):  # noqa: SIM118 # it is no mapping
            raise UsageError(
                f"--start-from {start}: in that run of {row['algorithm']} each client has its own model; name a run "
                "with one model for all"
            )
    return row


def _architecture(fields: Mapping[str, Any]) -> str:
    """Describe all that decides names and shapes of a model's tensors. `fields`: of a row's setting."""
    setting = setting_of(json.dumps(fields))
    info = data.info(setting.dataset).sized(setting.image_size)
    version = f" (version {fields['model_version']})" if fields.get("model_version") is not None else ""
    return f"{setting.model}{version} of inputs {'x'.join(map(str, info.input_shape))} and {info.num_classes} classes"
