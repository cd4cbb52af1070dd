"""The benchmark of data work: what it measures, and what it leaves alone. Timings are never asserted."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from bench.data import DATASETS, Dataset
from bench.data.download import Original
from bench.data.files import FileSource
from bench.data.partition import PARTITIONS
from bench.perf import data, main


@dataclass(frozen=True)
class Counted(FileSource):
    """A small CIFAR-10 that counts how often its files are read."""

    parsed: list[Path] = field(default_factory=list)

    def parse(self, folder: Path) -> Dataset:
        self.parsed.append(folder)
        images, labels = np.zeros((20, 3, 32, 32), np.uint8), np.arange(20) % 10
        return Dataset.of(self.name, (images, labels), (images[:10], labels[:10]))


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Its file lies in tmp_path/data."""
    made = Counted(replace(DATASETS["cifar10"], train_size=20, test_size=10), "bytes", (Original("batch"),))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "batch").write_bytes(b"x")
    monkeypatch.setattr(data, "CIFAR10", made)
    monkeypatch.setattr(data, "SIZES", {"small": (5_000, 20, 0.2), "large": (10_000, 40, 3.0)})
    monkeypatch.setattr(data, "FEWER", {("fedgen", "large"): 20})
    monkeypatch.setattr(data, "WRITERS", 100)
    return made


def _written(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """What lies below a folder: which file it is, when it was written, its bytes."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}


def test_preparation_leaves_the_users_copy_alone(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    counted.read(tmp_path / "data")
    before, files = dict(os.environ), _written(tmp_path / ".cache")
    assert files
    found = data.preparation(tmp_path / "data", 3)
    assert dict(os.environ) == before
    assert _written(tmp_path / ".cache") == files
    assert len(counted.parsed) == 1 + 3, "each preparation reads the originals, each loading the copy"
    assert {name: entry["seconds"]["limit"] for name, entry in found.items()} == {"prepare": 3.0, "load": 0.5}
    assert found["load"]["seconds"]["n"] == 3


def test_every_partition_is_measured_at_each_size(
    counted: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--part", "data", "--repetitions", "2", "--data-dir", str(tmp_path / "data")]
    assert main([*command, "--json"]) == 0
    part = json.loads(capsys.readouterr().out)["parts"]["data"]
    assert {title: list(found) for title, found in part["partitions"].items()} == {
        "small": list(PARTITIONS),
        "large": list(PARTITIONS),
    }
    lda, iid = part["partitions"]["large"]["lda"], part["partitions"]["large"]["iid"]
    assert {name: lda[name] for name in ("samples", "num_clients", "alpha")} == {
        "samples": 10_000,
        "num_clients": 40,
        "alpha": 10.0,
    }
    assert (lda["seconds"]["limit"], lda["seconds"]["bound"], lda["seconds"]["n"], iid["alpha"]) == (3.0, "<=", 2, None)
    assert part["partitions"]["large"]["fedgen"]["num_clients"] == 20
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "data cifar10 prepare seconds" in printed
    assert "data partitions large lda seconds" in printed
