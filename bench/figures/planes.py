"""Points in the plane by class: Figures 2 and 5 of FedGKD.

They show t-SNE of penultimate features, and the classes that models give to a plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import artifacts
from bench.artifacts import Arrays
from bench.charts.class_panels import points
from bench.charts.panels import picture
from bench.charts.theme import Spec
from bench.errors import EnvironmentProblem, UsageError
from bench.figures.comparisons import further
from bench.figures.stored_runs import Pictures, Runs, picture_of_each
from bench.stored.results import Run
from bench.terminal.console import say
from bench.terminal.words import counted, listed
from leaderboards.problems import Problem
from leaderboards.tables.captions import title

Edges = NDArray[np.float64]
Classes = NDArray[np.int64]

_NEEDED = ("features/labels", "features/client", "features/local")
_PERPLEXITY = 30.0  # the default of scikit-learn
# Panels beside each other.
_EMBEDDED = 6
_PLANES = 4
_FINE = 160  # fields along each side of a plane
_POINTS = 400
_AGAIN = "delete it; --track models with --force makes it again"


def features(runs: Runs) -> Pictures:
    """Find the pictures that the runs allow, one for each setting."""
    return picture_of_each(runs, _with_features, _features)


def _with_features(runs: Runs, comparison: Problem) -> dict[str, Run]:
    return runs.keeping(comparison.records, "features")


def _features(runs: Runs, comparison: Problem, run_of: Mapping[str, Run]) -> Spec:
    """Draw one picture. `run_of`: label -> run whose features are shown."""
    arrays_of = {name: runs.arrays(run, _NEEDED) for name, run in run_of.items()}
    algorithms = counted(len(arrays_of), "algorithm")
    say(f"placing the features of {algorithms} by t-SNE, which takes some seconds for each")
    classes = 1 + max(int(arrays["features/labels"].max()) for arrays in arrays_of.values())
    above = []
    below = []
    for name, arrays in arrays_of.items():
        score = "no global model"
        if "features/global" in arrays:
            score = f"global: {100 * run_of[name]['final_accuracy']:.2f} %"
        above.append(_panel(arrays, "global", f"{name}, {score}", classes))
        below.append(_panel(arrays, "local", _local_title(name, arrays), classes))
    rows = []
    for start in range(0, len(arrays_of), _EMBEDDED):
        shown = slice(start, start + _EMBEDDED)
        rows += [above[shown], below[shown]]
    count = max(len(arrays["features/labels"]) for arrays in arrays_of.values())
    whose = listed("client", {int(arrays["features/client"]) for arrays in arrays_of.values()})
    seed = next(iter(run_of.values()))["seed"]
    notes = [
        f"Penultimate features of {count:,} test samples at the end, by t-SNE, and test accuracy; "
        f"seed {seed}",
        f"Local: the model of {whose} as the last round's training left it",
        *further(comparison, arrays_of, "not tracked"),
    ]
    return picture(title(comparison), notes, rows)


def embedded(features: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Place (n, D) features at (n, 2) points by t-SNE; equal features always get equal points."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    flat = features.shape[1] < 2 or not np.ptp(features, axis=0).any()
    tsne = TSNE(
        n_components=2,
        perplexity=min(_PERPLEXITY, (len(features) - 1) / 3),
        init="random" if flat else "pca",
        random_state=0,
    )
    # Sums of several threads differ in their last bits, which t-SNE amplifies.
    with threadpool_limits(1):
        return np.asarray(tsne.fit_transform(np.asarray(features, np.float32)), np.float64)


def _panel(arrays: Arrays, which: str, title: str, classes: int) -> Spec:
    """Draw a panel of features.

    That of the global model is empty if each client has a model of its own instead.
    """
    rows = []
    if f"features/{which}" in arrays:
        places = embedded(arrays[f"features/{which}"])
        triples = zip(places.round(3).tolist(), arrays["features/labels"].tolist(), strict=True)
        rows = [{"x": x, "y": y, "class": label} for (x, y), label in triples]
    return points(rows, classes, title=title)


def _local_title(name: str, arrays: Arrays) -> str:
    """Return the title of a local panel, with the accuracy if that was tracked too."""
    if "local/accuracy" not in arrays:
        return f"{name}, local"
    position = arrays["local/clients"][-1].tolist().index(int(arrays["features/client"]))
    accuracy = arrays["local/accuracy"][-1][position]
    return f"{name}, local: {100 * accuracy:.2f} %"


def boundaries(runs: Runs) -> Pictures:
    """Find the pictures that the runs allow, one for each setting."""
    return picture_of_each(runs, _with_a_model, _boundaries)


def _with_a_model(runs: Runs, comparison: Problem) -> dict[str, Run]:
    """Return label -> run on data in the plane that keeps one model."""
    if not _in_plane(comparison.setting["dataset"]):
        return {}
    tracked = runs.keeping(comparison.records, "models")
    return {name: run for name, run in tracked.items() if _has_one_model(runs, run)}


def _boundaries(runs: Runs, comparison: Problem, run_of: Mapping[str, Run]) -> Spec:
    """Draw one picture. `run_of`: label -> run whose model is shown."""
    from bench import data

    name_of_data = comparison.setting["dataset"]
    dataset = data.load(name_of_data)
    classes = data.info(name_of_data).num_classes
    samples = np.concatenate([dataset.train_x, dataset.test_x]).astype(np.float64)
    xs, ys = np.linspace(samples.min(axis=0), samples.max(axis=0), _FINE + 1).T
    places = dataset.test_x[:_POINTS].round(4).tolist()
    labels = dataset.test_y[:_POINTS].tolist()
    pairs = zip(places, labels, strict=True)
    shown = [{"x": x, "y": y, "class": label} for (x, y), label in pairs]
    panels = []
    for name, run in run_of.items():
        regions = list(rectangles(classified(runs, run, xs, ys), xs, ys))
        heading = f"{name}: {100 * run['final_accuracy']:.2f} %"
        panels.append(points(shown, classes, title=heading, regions=regions))
    seed = next(iter(run_of.values()))["seed"]
    notes = [
        "The class that the final global model gives to each point of the plane, and test "
        f"accuracy; seed {seed}",
        f"Points: {len(shown)} test samples, coloured by their own class",
        *further(comparison, run_of, "no model was kept, or each client has its own"),
    ]
    rows = [panels[start : start + _PLANES] for start in range(0, len(panels), _PLANES)]
    return picture(title(comparison), notes, rows)


def classified(runs: Runs, run: Run, xs: Edges, ys: Edges) -> Classes:
    """Return the class of each field of a grid, (rows, columns), by a run's final model.

    The edges of the fields are `xs` and `ys`; the model classifies the middle of each field.

    Raises EnvironmentProblem if the stored model does not fit the run's setting.
    """
    import torch

    from bench import data, models
    from bench.engine.tracking import load_model

    info = data.info(run["dataset"])
    folder = runs.model_folder(run)
    params = load_model(folder, run["run_key"])
    module = models.make(run["model"], info.input_shape, info.num_classes)
    try:
        module.load_state_dict(params)
    except RuntimeError as error:
        path = artifacts.path_of(folder, run["run_key"], "safetensors")
        raise EnvironmentProblem(
            f"{path} does not hold a {run['model']} for {run['dataset']}: {_AGAIN}"
        ) from error
    dtype = next(iter(params.values())).dtype
    x_middles = (xs[1:] + xs[:-1]) / 2
    y_middles = (ys[1:] + ys[:-1]) / 2
    columns, rows = np.meshgrid(x_middles, y_middles)
    middles = np.stack([columns.ravel(), rows.ravel()], axis=-1)
    model = module.to(dtype).eval()
    with torch.no_grad():
        logits = model(torch.tensor(middles, dtype=dtype)).logits
    classes = logits.argmax(1).numpy()
    return np.asarray(classes).reshape(columns.shape)


def rectangles(grid: Classes, xs: Edges, ys: Edges) -> Iterator[dict[str, float]]:
    """Yield the fields of a grid, with neighbours of one class in a row merged."""
    for row, classes in enumerate(grid):
        ends = [*np.flatnonzero(np.diff(classes)) + 1, len(classes)]
        for start, end in zip([0, *ends], ends, strict=False):
            corners = {"x": xs[start], "x2": xs[end], "y": ys[row], "y2": ys[row + 1]}
            field = {name: round(float(value), 4) for name, value in corners.items()}
            yield field | {"class": int(classes[start])}


def _has_one_model(runs: Runs, run: Run) -> bool:
    """Tell whether a run keeps one model, not one per client."""
    path = artifacts.path_of(runs.model_folder(run), run["run_key"], "safetensors")
    return all("/" not in name for name in artifacts.tensor_names(path))


def _in_plane(dataset: str) -> bool:
    from bench import data

    try:
        return data.info(dataset).input_shape == (2,)
    except UsageError:  # of a package that is not installed here
        return False
