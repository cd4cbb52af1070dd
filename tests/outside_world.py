"""What the tests of things from outside share: a working directory of their own, and the documented module."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from algorithms import plugins as outside_algorithms
from bench import data
from bench.data import outside as outside_data
from bench.data import partition
from bench.engine import own_draws
from bench.engine.trial_passes import stacks
from bench.models import outside as outside_models
from bench.models import registry

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/extending.md"
EXAMPLE = re.findall(r"```python\n(# my_world\.py\n.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]
CACHES = (
    outside_algorithms.find,
    outside_data.find,
    outside_data.loader,
    outside_data.version,
    registry.info,
    registry.source_version,
    partition.partition,
    partition.version,
    outside_models.examined,
    own_draws.drawing_layer,
    own_draws.mixes_samples,
    stacks.check_stacks,
    data._read,
)
Part = tuple[np.ndarray, np.ndarray]


def forget() -> None:
    """As a new process: nothing found is remembered. Modules that were imported still are."""
    for cache in CACHES:
        cache.cache_clear()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    forget()
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


@pytest.fixture
def world(place: Path) -> Path:
    """That directory with the documented module, and the file that it reads."""
    (place / "my_world.py").write_text(EXAMPLE)
    save(place, *shapes())
    return place


def shapes() -> tuple[Part, Part]:
    """500 training and 100 test images of noise, a class's own rows brighter."""
    rng = np.random.RandomState(0)
    labels = np.arange(600) % 3
    images = rng.randint(0, 100, (600, 1, 8, 8))
    for label in range(3):
        images[labels == label, :, 2 * label : 2 * label + 3] += 100
    pixels = images.astype(np.uint8)
    return (pixels[:500], labels[:500]), (pixels[500:], labels[500:])


def save(place: Path, train: Part, test: Part) -> None:
    """The file that the documented module reads."""
    np.savez(
        place / "my_data.npz", train_x=train[0], train_y=train[1], test_x=test[0], test_y=test[1]
    )


def install(place: Path, monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    """A package installed in this process that adds `datasets="name = module:thing"`, and so on."""
    info = place / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    groups = (f"[fedkd_bench.{group}]\n{lines}\n" for group, lines in entries.items())
    (info / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(str(place))
