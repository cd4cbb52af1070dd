"""FedGKD's Fig. 2: t-SNE of penultimate features, above of global models, below of a local model of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.artifacts import Arrays
from bench.charts.classes import points
from bench.charts.panels import picture
from bench.charts.theme import Spec
from bench.figures.comparisons import Comparison, further
from bench.figures.runs import Found, Runs, picture_of_each, untracked
from bench.stored.results import Run
from bench.terminal.console import say
from bench.terminal.words import counted

_LACKING = untracked("features", "local,features")
_NEEDED = ("features/labels", "features/client", "features/local")
_PERPLEXITY = 30.0  # the usual one, which scikit-learn has
_COLUMNS = 6


def find(runs: Runs, figure: str) -> Found:
    """Find the pictures that some runs make: one for each setting."""
    return picture_of_each(runs, figure, lambda one: runs.keeping(one.records, "features"), spec, _LACKING)


def spec(runs: Runs, comparison: Comparison, kept: Mapping[str, Run]) -> Spec:
    """Draw one picture. `kept`: label -> run whose features are shown."""
    arrays_of = {name: runs.arrays(kept[name], _NEEDED) for name in runs.labels if name in kept}
    say(f"placing the features of {counted(len(arrays_of), 'algorithm')} by t-SNE, which takes some seconds for each")
    classes = 1 + max(int(arrays["features/labels"].max()) for arrays in arrays_of.values())
    scores = {
        name: f"global: {100 * kept[name]['final_accuracy']:.2f} %"
        if "features/global" in arrays
        else "no global model"
        for name, arrays in arrays_of.items()
    }
    above = [_panel(arrays, "global", f"{name}, {scores[name]}", classes) for name, arrays in arrays_of.items()]
    below = [_panel(arrays, "local", _local(name, arrays), classes) for name, arrays in arrays_of.items()]
    rows = []
    for start in range(0, len(arrays_of), _COLUMNS):
        rows += [above[start : start + _COLUMNS], below[start : start + _COLUMNS]]
    count = max(len(arrays["features/labels"]) for arrays in arrays_of.values())
    clients = sorted({int(arrays["features/client"]) for arrays in arrays_of.values()})
    seed = next(iter(kept.values()))["seed"]
    whose = f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))}"
    notes = [
        f"Penultimate features of {count:,} test samples at the end, by t-SNE, and test accuracy; seed {seed}",
        f"Local: the model of {whose} as the last round's training left it",
        *further([comparison], arrays_of, "not tracked"),
    ]
    return picture(comparison.title, notes, rows)


def embedded(features: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(n, 2) places of (n, D) features by t-SNE, the same whenever it is computed from the same features."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    flat = features.shape[1] < 2 or not np.ptp(features, axis=0).any()
    tsne = TSNE(
        n_components=2,
        perplexity=min(_PERPLEXITY, (len(features) - 1) / 3),
        init="random" if flat else "pca",
        random_state=0,
    )
    with threadpool_limits(1):  # sums of several threads differ in their last bits, and t-SNE makes much of little
        return np.asarray(tsne.fit_transform(np.asarray(features, np.float32)), np.float64)


def _panel(arrays: Arrays, which: str, title: str, classes: int) -> Spec:
    """Empty where each client has a model of its own, and there is no global one."""
    rows = []
    if f"features/{which}" in arrays:
        places = embedded(arrays[f"features/{which}"])
        triples = zip(places.round(3).tolist(), arrays["features/labels"].tolist(), strict=True)
        rows = [{"x": x, "y": y, "class": label} for (x, y), label in triples]
    return points(rows, classes, title=title)


def _local(name: str, arrays: Arrays) -> str:
    """With its accuracy where that was tracked too."""
    if "local/accuracy" not in arrays:
        return f"{name}, local"
    position = arrays["local/clients"][-1].tolist().index(int(arrays["features/client"]))
    return f"{name}, local: {100 * arrays['local/accuracy'][-1][position]:.2f} %"
