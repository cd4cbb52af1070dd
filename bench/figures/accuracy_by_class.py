"""One client's data, and accuracy by class of global models and of its local models, as strips.

This is Figure 1 of FedCAD. In print, all local models are trained from one global model, FedAvg's
after ten rounds. Here this holds for runs of one round that `--start-from` begins with a stored
model. In other runs each local model is trained from the global model of its own algorithm in the
last round, because a run keeps no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bench.artifacts import Arrays
from bench.charts.class_panels import DARK, label_width, strips
from bench.charts.panels import picture
from bench.charts.theme import Spec
from bench.figures.comparisons import further
from bench.figures.stored_runs import Pictures, Runs, picture_of_each
from bench.stored.results import Run
from leaderboards.problems import Problem
from leaderboards.tables.captions import title

if TYPE_CHECKING:
    import numpy as np

Field = dict[str, Any]

_NEEDED = tuple(f"classes/{name}" for name in ("rounds", "global", "counts", "clients", "local"))


def find(runs: Runs) -> Pictures:
    """Find the pictures that the runs allow, one for each setting."""
    return picture_of_each(runs, _runs_to_show, spec)


def spec(runs: Runs, comparison: Problem, run_of: Mapping[str, Run]) -> Spec:
    """Draw one picture. `run_of`: label -> run whose accuracies are shown."""
    arrays_of = {name: runs.arrays(run, _NEEDED) for name, run in run_of.items()}
    first = next(iter(arrays_of.values()))
    seed = next(iter(run_of.values()))["seed"]
    client = int(first["classes/clients"][0])
    counts = first["classes/counts"][client]
    classes = len(counts)
    samples_name = f"samples of client {client}"
    samples = []
    for label, count in enumerate(counts):
        samples.append(_field(samples_name, label, int(count), f"{count:,}"))
    start = _start_strip(runs, comparison)
    accuracies = [*start]
    for name, arrays in arrays_of.items():
        accuracies += _accuracies(name, arrays, client, common_start=bool(start))
    names = list(dict.fromkeys(field["name"] for field in accuracies))
    margin = label_width([*names, samples_name])
    above = strips(
        samples,
        [samples_name],
        classes,
        "samples",
        max(1, int(counts.max())),
        dark=DARK,
        numbered=False,
        label_width=margin,
    )
    below = strips(accuracies, names, classes, "accuracy, %", 100, label_width=margin)
    notes = [
        f"Test accuracy by class, %, and the data of client {client}, whose local models these "
        f"are; seed {seed}",
        f"Each local model is trained from {_origin(comparison, bool(start))}",
        *further(comparison, arrays_of, "not tracked, or on pooled data"),
    ]
    return picture(
        title(comparison),
        notes,
        [[above], [below]],
        beside=margin + 10,
        resolve={"scale": {"color": "independent"}},
    )


def _origin(comparison: Problem, start_is_shown: bool) -> str:
    """Say from which model each local model is trained."""
    if not _starts_alike(comparison):
        return "the global model of its own algorithm; in print, all from one of FedAvg"
    if start_is_shown:
        return "the one global model above, as in print"
    return "one stored model, which was not tracked"


def _runs_to_show(runs: Runs, comparison: Problem) -> dict[str, Run]:
    """Return label -> run that keeps the needed arrays.

    Runs on pooled data are left out, because these belong to no client.
    """
    shown = {}
    for name, run in runs.keeping(comparison.records, "classes").items():
        counts = runs.arrays(run, _NEEDED)["classes/counts"]
        if len(counts) == comparison.setting["num_clients"]:
            shown[name] = run
    return shown


def _starts_alike(comparison: Problem) -> bool:
    """Return whether the local models of the only round are trained from one stored model."""
    return bool(comparison.setting.get("start_from")) and comparison.setting["rounds"] == 1


def _start_strip(runs: Runs, comparison: Problem) -> list[Field]:
    """Return the strip of the stored model that runs of one round begin with.

    It is empty if the accuracies of that model are not kept.
    """
    run = {"run_key": comparison.setting.get("start_from", "")}
    if not _starts_alike(comparison) or "classes" not in runs.held(run):
        return []
    arrays = runs.arrays(run, (*_NEEDED, "run/algorithm"))
    label = f"start: {arrays['run/algorithm']}, round {arrays['classes/rounds'][-1]}"
    return list(_strip(label, arrays["classes/global"][-1]))


def _accuracies(name: str, arrays: Arrays, client: int, common_start: bool) -> Iterator[Field]:
    """Yield strips of the global model, unless there is a `common_start`, and of the local model.

    The local model is the client's after the last round. The global model is that before the last
    round, or after this round if the former was not evaluated.
    """
    rounds = arrays["classes/rounds"].tolist()
    last = rounds[-1]
    if not common_start:
        shown = rounds.index(last - 1) if last - 1 in rounds else -1
        which = "mean of clients" if arrays.get("classes/personal", False) else "global"
        strip = f"{name}, {which}, round {rounds[shown]}"
        yield from _strip(strip, arrays["classes/global"][shown])
    position = arrays["classes/clients"].tolist().index(client)
    yield from _strip(f"{name}, local, round {last}", arrays["classes/local"][position])


def _strip(name: str, accuracies: np.ndarray[Any, Any]) -> Iterator[Field]:
    for label, accuracy in enumerate(accuracies.tolist()):
        if math.isnan(accuracy):
            yield _field(name, label, None, "")
        else:
            percent = 100 * accuracy
            yield _field(name, label, percent, f"{percent:.0f}")


def _field(name: str, label: int, value: float | None, text: str) -> Field:
    return {"name": name, "class": label, "value": value, "print": text}
