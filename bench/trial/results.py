"""Result rows of a run (`leaderboards.rows.schema`), and the data that `--track` keeps."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import artifacts
from bench.planning.run_spec import RunSpec, row_entry
from leaderboards import SCHEMA_VERSION, identity_columns
from leaderboards.numbers import curve_of, numbers_of
from leaderboards.problems import FINETUNED
from leaderboards.selection import CLIENTS, selected_on
from search_spaces import Setting

if TYPE_CHECKING:
    from algorithms.base import Params
    from bench.engine.counters import MeasuredPoint, Progress
    from bench.engine.network import Network
    from bench.engine.simulation import Simulation


def guesses(accuracy: float, chance: float, samples: int, shortened: bool) -> bool:
    """Return whether a run that ends with this accuracy has diverged.

    At full length it has if it is no better than guessing, within three standard errors of
    `chance`. A shortened run may have hardly begun, and has diverged if it is worse than guessing,
    by more than three standard errors.

    Args:
        accuracy: of the last round on the test set, in [0, 1].
        chance: accuracy of the best guess, one class for all samples.
        samples: number of test samples.
        shortened: whether it has fewer rounds, fewer local epochs or less data than the preset.
    """
    margin = 3 * math.sqrt(chance * (1 - chance) / samples)
    if shortened:
        return accuracy < chance - margin
    return accuracy <= chance + margin


def rows_of(
    run_spec: RunSpec,
    progress: Progress,
    facts: Mapping[str, Any],
    *,
    personal: Collection[str],
    chance: float,
    test_samples: int,
) -> list[tuple[dict[str, Any], list[MeasuredPoint]]]:
    """Make the (row, curve) pairs of a finished or stopped run.

    `facts` are the columns that the engine does not know: provenance, cost, `status`. `personal`
    are the suffixes of the rows of clients' own models. `chance` is the accuracy of the best guess,
    one class for all samples, and with `test_samples` gives its standard error.
    """
    rows = []
    short = run_spec.shortened or (
        run_spec.paper is None and run_spec.setting.rounds < Setting.rounds
    )
    for suffix in run_spec.rows:
        curve = progress.curves[suffix]
        results = numbers_of(curve_of(curve))
        final = results["final_accuracy"]
        reference = row_entry(run_spec.algorithm, suffix).reference
        # A personal row may be meant for clients' own samples, not for the test set.
        own_samples = suffix.endswith(FINETUNED) or _selected_on(run_spec) == CLIENTS
        for_itself = suffix in personal and own_samples
        diverged = progress.diverged
        # A client that has one class and nobody to learn from may guess without having diverged,
        # and so may a model for one client alone.
        if final is not None and not reference and not for_itself:
            diverged = diverged or guesses(final, chance, test_samples, short)
        complaint = progress.complaint
        if not complaint:
            complaint = _lost(curve, "after further steps " if suffix.endswith(FINETUNED) else "")
            diverged = diverged or bool(complaint)
        outcome = {
            "error": complaint or None,
            "diverged": diverged,
            "personal": suffix in personal,
        }
        rows.append(({**_common(run_spec, suffix), **results, **facts, **outcome}, curve))
    return rows


def _lost(curve: Sequence[MeasuredPoint], when: str) -> str:
    """Describe the first loss on the test set that is not finite; empty if there is none.

    The run goes on if only the models of this row are lost, or only their outputs. With outputs
    that are NaN, accuracy would be that of guessing the first class.
    """
    for at, metric, value in curve:
        if metric == "loss" and not math.isfinite(value):
            return f"round {at}, {when}the loss on the test set is not finite"
    return ""


def _selected_on(run_spec: RunSpec) -> str:
    return selected_on(run_spec.setting.as_dict())


def failed_rows(run_spec: RunSpec, error: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the rows of a run that failed, without results. `facts`: as of `rows_of`."""
    outcome = {"error": error, "diverged": False, "personal": None}
    return [{**_common(run_spec, suffix), **outcome, **facts} for suffix in run_spec.rows]


def _common(run_spec: RunSpec, suffix: str) -> dict[str, Any]:
    """Return the identity columns, and the columns that plan and schema decide."""
    return {
        **identity_columns(*run_spec.identity(row_entry(run_spec.algorithm, suffix))),
        "paper": run_spec.paper,
        "shortened": run_spec.shortened,
        "selected_on": _selected_on(run_spec),
        "schema_version": SCHEMA_VERSION,
    }


def write_tracked(
    simulation: Simulation, out: Path | str, rows: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, list[str]]:
    """Write the tracked data of a finished run for each of its rows.

    `rows` and `names` are keys and names by suffix.

    Returns:
        Run key -> names of the row's files.

    Raises:
        OSError: the folder cannot be written, or the disk is full; nothing half-written is left.
    """
    tracked = simulation.tracker.what
    written: dict[str, list[str]] = {key: [] for key in rows.values()}
    if not tracked:
        return written
    setting = simulation.setting
    for suffix, key in rows.items():
        if "models" in tracked:
            metadata = {
                "run_key": key,
                "algorithm": names[suffix],
                "round": str(simulation.round),
                "dataset": setting.dataset,
                "model": setting.model,
                "precision": setting.precision,
            }
            if setting.client_models:
                metadata["client_models"] = setting.client_models
            tensors = _tensors(simulation, suffix)
            written[key].append(artifacts.write_tensors(out, key, tensors, metadata))
        arrays = dict(simulation.tracker.arrays(suffix))
        arrays |= {"run/key": key, "run/algorithm": names[suffix]}
        written[key].append(artifacts.write_arrays(out, key, arrays))
    return written


def _tensors(simulation: Simulation, suffix: str) -> dict[str, Any]:
    """Return a row's tensors by name, and by `client/name` what a client adds to a personal row.

    If clients have models of their own, all of a personal row are the client's.
    """
    setting = simulation.setting
    personal = suffix in simulation.personal
    finetuned = suffix.endswith(FINETUNED)
    models = simulation.models_of(suffix)
    shared: Params = {}  # by all clients
    if not finetuned:
        shared = simulation.algorithm.evaluated(simulation.server)[suffix]
    if not personal and not shared:  # of pooled data: the one client's model is everyone's
        (shared,) = models([0])
    tensors: Params = {}
    if not (personal and setting.client_models):
        tensors = _by_all_names(simulation.net, shared)
    common = frozenset(tensors)
    if personal:
        # After further steps each client has a model of its own, also if the data are pooled.
        clients = setting.training_clients if finetuned else simulation.fed.num_clients
        for client in range(clients):
            (model,) = models([client])
            own = _by_all_names(simulation.net_of(suffix, client), model)
            for name, value in own.items():
                if name not in common:
                    tensors[f"{client}/{name}"] = value
    return {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}


def _by_all_names(net: Network, params: Params) -> Params:
    """Return parameters and constants by all names of a module, also those of tied tensors."""
    tensors = {**net.constants, **params}
    for name, listed in net.tied.items():
        if listed in tensors:
            tensors[name] = tensors[listed]
    return tensors
