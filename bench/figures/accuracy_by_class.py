"""FedCAD's Fig.

1: one client's data, and accuracy by class of global models and of its local models, as strips.

In print, all local models are trained from one global model, FedAvg's after ten rounds. Here this
holds for runs of one round that `--start-from` begins with a stored model; in other runs each local
model is trained from the global model of its own algorithm in the last round, because a run keeps
only these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.artifacts import Arrays
from bench.charts.class_panels import DARK, label_width, strips
from bench.charts.panels import picture
from bench.charts.theme import Spec
from bench.figures.comparisons import further
from bench.figures.stored_runs import Found, Runs, picture_of_each, untracked
from bench.stored.results import Run
from leaderboards.problems import Problem
from leaderboards.tables.captions import title

if TYPE_CHECKING:
    import numpy as np

Field = dict[str, Any]

_LACKING = untracked("accuracies by class", "classes")
_NEEDED = tuple(f"classes/{name}" for name in ("rounds", "global", "counts", "clients", "local"))


def find(runs: Runs, figure: str) -> Found:
    """Find the pictures that the runs allow, one for each setting."""
    return picture_of_each(runs, figure, partial(_runs_to_show, runs), spec, _LACKING)


def spec(runs: Runs, comparison: Problem, kept: Mapping[str, Run]) -> Spec:
    """Draw one picture. `kept`: label -> run whose accuracies are shown."""
    arrays_of = {name: runs.arrays(run, _NEEDED) for name, run in kept.items()}
    first, seed = next(iter(arrays_of.values())), next(iter(kept.values()))["seed"]
    client = int(first["classes/clients"][0])
    counts = first["classes/counts"][client]
    samples = [
        _field(f"samples of client {client}", at, int(count), f"{count:,}")
        for at, count in enumerate(counts)
    ]
    start = _start_strip(runs, comparison)
    rows = [
        *start,
        *(
            row
            for name, arrays in arrays_of.items()
            for row in _accuracies(name, arrays, client, bool(start))
        ),
    ]
    names = list(dict.fromkeys(row["name"] for row in rows))
    margin = label_width([*names, samples[0]["name"]])
    largest, sample_names, classes = max(1, int(counts.max())), [samples[0]["name"]], len(counts)
    above = strips(
        samples,
        sample_names,
        classes,
        "samples",
        largest,
        dark=DARK,
        numbered=False,
        label_width=margin,
    )
    below = strips(rows, names, classes, "accuracy, %", 100, label_width=margin)
    origin = "the global model of its own algorithm; in print, all from one of FedAvg"
    if _starts_alike(comparison):
        origin = (
            "the one global model above, as in print"
            if start
            else "one stored model, which was not tracked"
        )
    notes = [
        f"Test accuracy by class, %, and the data of client {client}, whose local models these are; seed {seed}",
        f"Each local model is trained from {origin}",
        *further(comparison, arrays_of, "not tracked, or on pooled data"),
    ]
    return picture(
        title(comparison),
        notes,
        [[above], [below]],
        beside=margin + 10,
        resolve={"scale": {"color": "independent"}},
    )


def _runs_to_show(runs: Runs, comparison: Problem) -> dict[str, Run]:
    """Return label -> run that keeps the arrays needed; none on pooled data, which belong to no client."""
    tracked = runs.keeping(comparison.records, "classes")
    clients = {
        name: len(runs.arrays(run, _NEEDED)["classes/counts"]) for name, run in tracked.items()
    }
    return {
        name: tracked[name]
        for name in runs.labels
        if clients.get(name) == comparison.setting["num_clients"]
    }


def _starts_alike(comparison: Problem) -> bool:
    """Return whether the local models of the only round are trained from one stored model."""
    return bool(comparison.setting.get("start_from")) and comparison.setting["rounds"] == 1


def _start_strip(runs: Runs, comparison: Problem) -> list[Field]:
    """Return the strip of the stored model that runs of one round begin with; [] if its accuracies are not kept."""
    run = {"run_key": comparison.setting.get("start_from", "")}
    if not _starts_alike(comparison) or "classes" not in runs.held(run):
        return []
    arrays = runs.arrays(run, (*_NEEDED, "run/algorithm"))
    label = f"start: {arrays['run/algorithm']}, round {arrays['classes/rounds'][-1]}"
    return list(_strip(label, arrays["classes/global"][-1]))


def _accuracies(name: str, arrays: Arrays, client: int, common_start: bool) -> Iterator[Field]:
    """Yield a strip of the client's model after the last round; before it, unless `common_start`, of the global one.

    That is the global model before the round, or after the round if the former was not evaluated.
    """
    rounds = arrays["classes/rounds"].tolist()
    before = rounds.index(rounds[-1] - 1) if rounds[-1] - 1 in rounds else -1
    which = "mean of clients" if arrays.get("classes/personal", False) else "global"
    position = arrays["classes/clients"].tolist().index(client)
    if not common_start:
        yield from _strip(
            f"{name}, {which}, round {rounds[before]}", arrays["classes/global"][before]
        )
    yield from _strip(f"{name}, local, round {rounds[-1]}", arrays["classes/local"][position])


def _strip(label: str, values: np.ndarray[Any, Any]) -> Iterator[Field]:
    for at, value in enumerate(values.tolist()):
        finite = not math.isnan(value)
        yield _field(
            label, at, 100 * value if finite else None, f"{100 * value:.0f}" if finite else ""
        )


def _field(name: str, label: int, value: float | None, text: str) -> Field:
    return {"name": name, "class": label, "value": value, "print": text}
