"""Writes images in the formats that data sets are published in, for tests that have no published files."""

from __future__ import annotations

import bz2
import io
import os
import pickle
import struct
import zipfile
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy.io import savemat

from bench.data.download import Original
from bench.data.file_loaders import PreparedLoader

REAL = os.environ.get("FEDKD_DATA")  # before a test looks elsewhere
Prepared = TypeVar("Prepared", bound=PreparedLoader)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty folders of prepared copies and of the hub's client; no folder of data that is named elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("FEDKD_DATA", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of data sets, which is not there yet."""
    return tmp_path / "data"


def draw(
    count: int, shape: tuple[int, ...], classes: int = 10, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Random pixels (N, *shape) and labels (N,), in which every class occurs."""
    rng = np.random.RandomState(seed)
    labels = np.arange(count) % classes
    return rng.randint(0, 256, (count, *shape)).astype(np.uint8), rng.permutation(labels).astype(
        np.int64
    )


def put(file: Path, blob: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(blob)
    return file


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def libsvm(values: np.ndarray, labels: np.ndarray) -> bytes:
    """USPS's text: labels from 1, values (N, 256) in [-1, 1]."""
    lines = [
        f"{label + 1} "
        + " ".join(f"{index}:{value:.6g}" for index, value in enumerate(row, 1))
        + " \n"
        for row, label in zip(values, labels, strict=True)
    ]
    return bz2.compress("".join(lines).encode())


def matlab(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """SVHN's and SynthDigits' file of pixels (N, 32, 32, 3)."""
    made = io.BytesIO()
    savemat(
        made,
        {"X": pixels.transpose(1, 2, 3, 0), "y": labels[:, None].astype(np.uint8)},
        do_compression=True,
    )
    return made.getvalue()


def cifar(pixels: np.ndarray, labels: np.ndarray, key: str = "labels") -> bytes:
    """A file of CIFAR, of pixels (N, 3, 32, 32)."""
    return pickle.dumps({"data": pixels.reshape(len(pixels), -1), key: labels.tolist()}, protocol=2)


def mnist_m(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> bytes:
    content = {}
    for name, (pixels, labels) in parts.items():
        content |= {name: pixels, f"{name}_label": labels}
    return pickle.dumps(content, protocol=4)


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    """One image (H, W) or (H, W, 3)."""
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, kind)
    return made.getvalue()


def table(file: Path, columns: dict[str, list]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def images_table(file: Path, blobs: list[bytes], **columns: list) -> Path:
    """A parquet file as Hugging Face's `datasets` writes a column of images."""
    return table(file, {"image": [{"bytes": blob, "path": None} for blob in blobs], **columns})


def usps_tables(folder: Path, parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Hugging Face's form of USPS, of pixels (N, 16, 16), for parts `train` and `test`."""
    for part, (pixels, labels) in parts.items():
        file = folder / f"usps/data/{part}-00000-of-00001.parquet"
        images_table(file, [encoded(image) for image in pixels], label=labels.tolist())


def tiny_imagenet(wnids: list[str], train: np.ndarray, test: np.ndarray) -> dict[str, bytes]:
    """Paths and contents: train (C, N, 64, 64, 3), test (C, M, 64, 64, 3)."""
    files = {"wnids.txt": "\n".join(wnids).encode()}
    rows = []
    for wnid, images, held_out in zip(wnids, train, test, strict=True):
        for number, image in enumerate(images):
            files[f"train/{wnid}/images/{wnid}_{number}.JPEG"] = encoded(image, "JPEG")
        for image in held_out:
            rows.append(f"val_{len(rows)}.JPEG\t{wnid}\t0\t0\t62\t62")
            files[f"val/images/val_{len(rows) - 1}.JPEG"] = encoded(image, "JPEG")
    files["val/val_annotations.txt"] = "\n".join(rows).encode()
    return {f"tiny-imagenet-200/{path}": blob for path, blob in files.items()}


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, blob in files.items():
            archive.writestr(path, blob)
    return made.getvalue()


def published(file: Original, blob: bytes) -> Original:
    """The file with the checksum of this content."""
    return replace(file, md5=md5(blob).hexdigest())


def small(
    loader: Prepared, train: int, test: int, classes: int | None = None, **changes: object
) -> Prepared:
    """The loader of so few samples, and of fewer classes."""
    num_classes = classes or loader.info.num_classes
    info = replace(loader.info, train_size=train, test_size=test, num_classes=num_classes)
    return replace(loader, info=info, **changes)
