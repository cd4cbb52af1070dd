"""Preparation of a sweep: its execution on this machine, and checks before the first trial.

The checks cover methods from outside, the result folder, and stored models to start from; those
of the data are in `bench.sweep.feasible`. Imports neither torch nor ray.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from algorithms import ALGORITHMS, entry
from algorithms.entry_points import names_of_rows
from bench import artifacts, data, is_ours
from bench.errors import EnvironmentProblem, UsageError
from bench.execution import Execution
from bench.executors.factories import make_sampler, make_scheduler
from bench.executors.runner import import_executor
from bench.executors.trials import Trials, count_stored
from bench.machine import (
    UNPACKED_SHARE,
    cpu_count,
    packs_train_together,
    resolve_device,
    resolve_pack,
)
from bench.models import is_from_outside
from bench.planning.given import check_paper
from bench.planning.options import COMMAND_LINE, SweepOptions
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, setting_identity, setting_of
from bench.planning.search import Search
from bench.planning.tables import needs_local_accuracy
from bench.terminal.console import say
from bench.terminal.paths import resolved, result_folder
from bench.terminal.words import counted, seeds_in_words
from leaderboards import Store
from leaderboards.rows.files import PARTS, is_regular, part_of
from leaderboards.rows.schema import TRACKED_COLUMN
from leaderboards.shell_text import shell_command
from search_spaces import Setting


def completed(options: SweepOptions) -> SweepOptions:
    """Return options as planning takes them: with seeds, whole run keys, and a table's data sets.

    Raises UsageError if they conflict, or lack an algorithm or a model to start from.
    """
    given = options.given
    if "num_samples" in given and (options.budget or options.search == "grid"):
        raise UsageError(
            f"--num-samples {options.num_samples} is for --search random or --search optuna, and "
            "--budget has a number of its own: leave it out"
        )
    _check_confirm(options)
    check_paper(options.paper)
    if not options.algo and not options.table:
        raise UsageError("--algo is missing: name an algorithm, several, or all; --list shows them")
    if "start_from" in options.values:
        keys = full_keys(options.values["start_from"], result_folder(options.out))
        options = replace(options, values={**options.values, "start_from": keys})
    if options.confirm:
        options = replace(options, seeds=1)
    if options.table and options.paper and "seeds" not in given:
        from bench.planning.tables import table_of

        _, table = table_of(options.paper, options.table)
        options = replace(options, seeds=table.runs)
    if options.table and "dataset" not in given:
        options = replace(options, dataset="")
    return options


def _check_confirm(options: SweepOptions) -> None:
    """Refuse options that `--confirm` excludes.

    It alone decides the seeds of a search and of its confirmation.
    """
    if options.confirm_at and not options.confirm:
        raise UsageError(
            "--confirm-at says where --confirm runs what the search chose: give --confirm 3, too"
        )
    if not options.confirm:
        return
    seeds = options.given.get("seeds")
    of_file = options.given.get("confirm") == COMMAND_LINE != seeds  # and overridden
    if seeds and not of_file:
        reported = seeds_in_words(options.confirm)
        raise UsageError(
            f"--confirm searches seed 0 and reports seeds {reported}: leave --seeds out"
        )
    if options.table:
        raise UsageError(
            "--table runs a paper's own configurations on its own seeds: leave out --confirm, or "
            "--table"
        )


def resolve(plan: Plan) -> Execution:
    """Resolve how the runs of a plan are executed on this machine.

    What follows from the runs to do, such as their share of a GPU, is added when they begin.

    Raises UsageError if this machine cannot do what the options ask for.
    """
    options = plan.options
    if not options.address and options.cpus_per_trial > cpu_count():
        raise UsageError(
            f"--cpus-per-trial {options.cpus_per_trial} is more than the "
            f"{counted(cpu_count(), 'core')} of this machine"
        )
    device = resolve_device(options.device, options.gpus_per_trial, bool(options.address))
    settings = [*plan.settings, *(run_spec.setting for run_spec in plan.confirming)]
    if device == "cpu" and any(setting.precision == "tf32" for setting in settings):
        raise UsageError(
            "precision tf32 is a GPU's, and these runs are on a CPU, where it would be fp32"
        )
    _check_scheduler(options)
    pack = 1  # under a scheduler
    if options.scheduler == "none":
        pack = resolve_pack(options.pack, device, options.backend, len(plan.run_specs))
    if options.sampler:
        make_sampler(options.sampler, seed=0)
    _check_own_draws(settings, device, options.backend, pack)
    if options.address and options.executor == "inline":
        raise UsageError(
            f"--address {options.address} names a Ray cluster: use --executor ray, or leave "
            "--address out"
        )
    if options.executor == "ray":
        _check_working_folder()
    return Execution(
        out=str(result_folder(options.out)),
        data_dir=str(resolved(options.data_dir)) if options.data_dir else None,
        offline=options.offline,
        device=device,
        backend=options.backend,
        threads=options.cpus_per_trial,
        chosen_by=options.chosen_by,
        select_on=options.select_on,
        force=options.force,
        save_seconds=options.save_seconds,
        track=options.track,
        executor=options.executor,
        concurrent=options.max_concurrent,
        pack=pack,
        address=options.address,
        time_budget=options.time_budget,
        verbose=options.verbose,
    )


def _check_working_folder() -> None:
    """Refuse packages of our names in the working folder, which Ray's workers would import.

    The console script itself does not, because Python does not look there for it.
    """
    for name in ("bench", "algorithms", "search_spaces", "leaderboards"):
        spec = PathFinder.find_spec(name, [str(Path.cwd())])
        file = spec.origin if spec else None  # None of a plain folder, such as one of results
        if file is not None and not is_ours(name, file):
            raise UsageError(
                f"another package {name!r}, {file}, hides fedkd-bench's from Ray's workers: "
                "run the command in another folder, or with --executor inline"
            )


def _check_scheduler(options: SweepOptions) -> None:
    """Refuse a scheduler that would have no trials to compare, or that cannot be made."""
    scheduler = options.scheduler
    if scheduler == "none":
        return
    if options.pack not in ("auto", 1):
        raise UsageError(
            f"--scheduler {scheduler} compares trials of one configuration each, and --pack "
            f"{options.pack} puts several configurations into one trial: give --pack 1, or leave "
            "--pack out"
        )
    if options.executor == "inline":
        raise UsageError(
            f"--scheduler {scheduler} compares trials that run at the same time, and --executor "
            "inline runs one after another: use --executor ray, or leave --scheduler out"
        )
    if ":" in scheduler:
        import_executor(options.executor)  # with the variables that Ray reads when it is imported
        make_scheduler(scheduler)


def _check_own_draws(settings: Iterable[Setting], device: str, backend: str, pack: int) -> None:
    """Raise UsageError for a model from outside that cannot be trained, here or at all.

    `bench.engine.own_draws` says why.
    """
    shapes = set()
    for setting in settings:
        input_shape = data.info_of(setting).input_shape
        shapes |= {(model, input_shape) for model in setting.models}
    outside = [(model, shape) for model, shape in sorted(shapes) if is_from_outside(model)]
    if not outside:
        return
    from bench.engine.own_draws import drawing_layer, mixes_samples, refuse
    from bench.engine.trial_passes.stacks import check_stacks

    places = {
        "on a GPU": device != "cpu",
        "in a stack": backend == "stacked",
        "in a pack": pack > 1,
    }
    refused = [place for place, asked in places.items() if asked]
    for model, shape in outside:
        layer = drawing_layer(model, shape)
        mixes_samples(model, shape)
        if layer and refused:
            raise refuse(model, layer, refused[0])
        if refused and backend != "loop":
            check_stacks(model, shape)


def gpu_share(plan: Plan, execution: Execution, trials: Trials) -> float:
    """Return each trial's share of a GPU: as given, or by the size of the largest trial.

    A pack has a GPU to itself; trials of one run share it, because a small model does not fill it.
    """
    if execution.device == "cpu":
        return 0.0
    if plan.options.gpus_per_trial is not None:
        return plan.options.gpus_per_trial
    sizes = [len(trial) for trial in trials]
    if plan.searches:  # a configuration that Optuna chooses is one trial with all its seeds
        sizes.append(plan.options.seeds)
    together = packs_train_together(execution.device, execution.backend)
    return 1.0 if together and max(sizes, default=1) > 1 else UNPACKED_SHARE


def mirror_url(given: str | None, offline: bool = False) -> str | None:
    """Return the URL of the mirror, from the option or `$FEDKD_MIRROR`; None without a mirror.

    Raises:
        UsageError: it has a password in it, or is on the network although `offline` is set.
    """
    url = (os.environ.get("FEDKD_MIRROR") if given is None else given) or None
    if not url:
        return None
    from bench.sync.place import local_folder, refuse_password

    refuse_password(url)
    if offline and local_folder(url) is None:
        shown = url.partition("?")[0]
        raise UsageError(
            f"--offline and the mirror {shown} exclude each other: leave one out, or --mirror '' "
            "for none"
        )
    return url


# Checks.


def check_out(out: Path) -> None:
    """Raise EnvironmentProblem unless files can be written under `out`.

    Raises StoreError if a folder in it is a link.
    """
    for name in PARTS:
        part_of(out, name)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        raise EnvironmentProblem(
            f"--out {out} cannot be written: {error.strerror or error}; choose another folder with "
            "--out or FEDKD_OUT"
        ) from None


def check_algorithms(asked: Iterable[RunSpec | Search]) -> tuple[str, ...]:
    """Certify algorithms from outside by the quick self-test; return those that passed.

    Results of the others are marked: a hyper-parameter changes nothing there, which is reported. It
    may act late, or never.

    Raises:
        UsageError: an algorithm modifies its inputs, draws from global generators, keeps state
            elsewhere, or fails.
    """
    certified = []
    for name in dict.fromkeys(part.algorithm for part in asked):
        if name in ALGORITHMS:
            continue
        problems, remarks = _run_self_test(name, entry(name).version)
        hint = f"`{shell_command('bench.selftest', name)}` gives details"
        if problems:
            raise UsageError(
                f"{name} fails the self-test: {'; '.join(problems[:3])}. {hint}; "
                "--uncertified runs it, and marks its results"
            )
        if remarks:
            say(f"{name}: {'; '.join(remarks[:3])}. Its results are marked; {hint}")
        else:
            certified.append(name)
    return tuple(certified)


@cache
def _run_self_test(name: str, version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Run the quick self-test on a version of an algorithm.

    Returns its problems, and remarks on its fields.
    """
    import torch

    from bench.selftest.candidate import Candidate
    from bench.selftest.certify import QUICK, certify

    say(f"{name}: checked by the self-test before it runs")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # bit-equality holds at equal threads
    try:
        with redirect_stdout(sys.stderr):  # what the algorithm prints
            outcomes = certify(Candidate(name, entry(name)), (*QUICK, "hyperparameters")).outcomes
    finally:
        torch.set_num_threads(threads)
    problems: list[str] = []
    remarks: list[str] = []
    for outcome in outcomes:
        if outcome.check in QUICK:
            problems += outcome.problems
        else:
            remarks += outcome.problems
    return tuple(problems), tuple(remarks)


def check_track(plan: Plan) -> None:
    """Raise UsageError for `--track drift` of clients with unlike models."""
    if "drift" not in plan.options.track:
        return
    for part in [*plan.parts, *plan.confirming]:
        if part.setting.client_models:
            raise UsageError(
                "--track drift compares the gradients of clients, which "
                f"client_models={part.setting.client_models} gives unlike models: leave out either"
            )


def track_notes(plan: Plan, run_specs: Sequence[RunSpec], out: Path) -> Iterator[str]:
    """Note what `--track` would add to a printed table and to stored runs.

    `run_specs`: the runs to do.
    """
    track = plan.options.track
    if "local" not in track and needs_local_accuracy(plan.places):
        yield "some printed numbers are of clients' own models, which only --track local measures"
    if plan.options.force:
        yield from _untracked_by_force(plan, out)
        return
    if not track:
        return
    to_do = {run_spec.key for run_spec in run_specs}
    stored = {run_spec.key for run_spec in plan.run_specs} - to_do
    if not stored:
        return
    tracked = artifacts.Tracked(out)
    without_accuracy = set[str]()  # their files are those of a row that --force replaced
    if "local" in track:
        rows = Store(out).runs(columns=("run_key", TRACKED_COLUMN), keys=stored)
        without_accuracy = set(rows["run_key"][rows[TRACKED_COLUMN].isna()])
    lacking = sum(key in without_accuracy or not set(track) <= tracked.names(key) for key in stored)
    if lacking:
        names = ", ".join(track)
        runs = counted(lacking, "stored run")
        yield f"{runs} without all of {names}: --force runs what is stored again"


def _untracked_by_force(plan: Plan, out: Path) -> Iterator[str]:
    """Note the tracked data that rows of `--force` would not have any more."""
    tracked = artifacts.Tracked(out)
    lost: dict[str, None] = {}
    count = 0
    for run_spec in plan.run_specs:
        names = set[str]().union(*map(tracked.names, run_spec.rows.values()))
        names -= set(plan.options.track)
        lost |= dict.fromkeys(sorted(names))
        count += bool(names)
    if count:
        yield (
            f"{counted(count, 'stored run')} with {', '.join(lost)}, which the rows of --force "
            f"will lack: add --track {' '.join(lost)} to keep them"
        )


def other_data_notes(plan: Plan, out: Path, data_hashes: Mapping[str, str]) -> Iterator[str]:
    """Note how many stored runs are not reused.

    `data_hashes`: data set -> hash of the data at hand.
    """
    of_all_data = count_stored(plan, Store(out))
    for name, digest in data_hashes.items():
        count = of_all_data - count_stored(plan, Store(out, {name: digest}))
        if count:
            runs = counted(count, "stored run")
            yield f"{runs} not reused: trained on another copy of {name} than the one here"


# The stored model of `--start-from`.


def full_keys(starts: Iterable[str], out: Path) -> tuple[str, ...]:
    """Complete the first characters of run keys, each of a run whose final model is stored.

    Raises UsageError if no run or several runs match, or the run has no model, or one for each
    client.
    """
    return tuple(str(_row_with_model(start, out)["run_key"]) for start in starts)


def check_start(plan: Plan, out: Path) -> None:
    """Raise UsageError if a stored model that runs start from has another architecture."""
    parts: dict[Setting, RunSpec | Search] = {}
    for part in [*plan.parts, *plan.confirming]:
        if part.setting.start_from:
            parts.setdefault(part.setting, part)
    starts = dict.fromkeys(setting.start_from for setting in parts)
    rows = {start: _row_with_model(start, out) for start in starts}
    for setting, part in parts.items():
        if setting.client_models:
            raise UsageError(
                f"--start-from {setting.start_from[:16]} gives one model, and client_models="
                f"{setting.client_models} gives clients models of their own: leave out either"
            )
        row = rows[setting.start_from]
        wanted = _architecture(setting_identity(setting))
        with names_of_rows((setting.dataset,), "--dataset"):
            stored = _architecture(json.loads(row["setting_json"]))
        if stored != wanted:
            raise UsageError(
                f"--start-from {row['run_key'][:16]}: its model is {stored}, and {part.algorithm} "
                f"runs {wanted} here: name a run with that model, or other algorithms"
            )


def _row_with_model(start: str, out: Path) -> Mapping[str, Any]:
    """Find the row of the run whose model `start`, a run key or its beginning, names."""
    from bench.compare.filters import run_of_key
    from leaderboards.rows.frames import records
    from leaderboards.rows.store import Folders

    (row,) = records(run_of_key(Folders([out]).runs(), start, [out]))
    path = artifacts.path_of(out, row["run_key"], "safetensors")
    if not is_regular(path):
        raise UsageError(
            f"--start-from {start}: no final model of that run is kept; its own command with "
            "--track models --force creates it"
        )
    if any("/" in name for name in artifacts.tensor_names(path)):
        raise UsageError(
            f"--start-from {start}: in that run of {row['algorithm']} each client has its own "
            "model; name a run with one model for all"
        )
    return row


def _architecture(fields: Mapping[str, Any]) -> str:
    """Describe everything that decides the names and shapes of a model's tensors.

    `fields`: the setting of a row.
    """
    setting = setting_of(json.dumps(fields))
    info = data.info_of(setting)
    version = fields.get("model_version")
    model = setting.model if version is None else f"{setting.model} (version {version})"
    inputs = "x".join(map(str, info.input_shape))
    return f"{model} of inputs {inputs} and {info.num_classes} classes"
