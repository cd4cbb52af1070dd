"""Downloads are checked, stand in their places once they are whole, and leave nothing else behind."""

from __future__ import annotations

import errno
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import published_formats as formats
import pytest
from published_formats import folder, surroundings

from bench import data
from bench.data import download, femnist, parquet, vision
from bench.data.dataset import Dataset
from bench.data.download import Original
from bench.data.file_loaders import FileLoader
from bench.errors import EnvironmentProblem

__all__ = ["folder", "surroundings"]
CONTENT = {"first": np.random.RandomState(0).bytes(200_000), "second": b"b" * 1000}


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    """An HTTP server on this machine: `files` by path; `cut` closes the next answers after so many bytes of a file."""
    state = SimpleNamespace(files={}, cut=[], url="")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            blob = state.files.get(self.path)
            if blob is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(blob)))
            self.end_headers()
            self.wfile.write(blob[: state.cut.pop(0) if state.cut else len(blob)])

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{running.server_port}"
    Thread(target=running.serve_forever, daemon=True).start()
    yield state
    running.shutdown()
    running.server_close()


@dataclass(frozen=True)
class Two(FileLoader):
    """A loader of two files."""

    def parse(self, folder: Path) -> Dataset:
        raise AssertionError("only fetched here")


@pytest.fixture
def loader(server: SimpleNamespace) -> Two:
    """Two files, each by itself on the server."""
    files = []
    for name, blob in CONTENT.items():
        server.files[f"/{name}"] = blob
        files.append(formats.published(Original(f"set/{name}", url=f"{server.url}/{name}"), blob))
    return Two(data.info("usps"), "bytes", tuple(files))


def archived(server: SimpleNamespace, blob: bytes) -> Two:
    """The same out of one archive without a published checksum."""
    server.files["/all.zip"] = blob
    archive = Original("all.zip", url=f"{server.url}/all.zip")
    return Two(data.info("usps"), "bytes", (Original("set/first"), Original("set/second")), archive)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


WHOLE = [".usps.lock", "set/first", "set/second"]


def test_missing_files_are_downloaded(folder, server, loader):
    loader.fetch(folder, offline=False)
    assert files_in(folder) == WHOLE
    assert {name: (folder / "set" / name).read_bytes() for name in CONTENT} == CONTENT
    (folder / "set/second").unlink()
    server.files.pop("/first")
    loader.fetch(folder, offline=False)
    assert files_in(folder) == WHOLE


@pytest.mark.parametrize("damage", ["cut", "another"])
def test_a_wrong_download_is_refused(folder, server, loader, damage):
    if damage == "cut":
        server.cut = [200_000, 200_000, 70, 70]  # torchvision asks for the address first
    else:
        server.files["/second"] = b"another"
    with pytest.raises(EnvironmentProblem, match="USPS"):
        loader.fetch(folder, offline=False)
    assert "set/second" not in files_in(folder)
    server.files["/second"] = CONTENT["second"]
    loader.fetch(folder, offline=False)
    assert files_in(folder) == WHOLE


def test_offline_unpacks_the_archive_that_is_here(folder, server, loader):
    with pytest.raises(data.MissingData, match=rf"{folder}: set/first, set/second"):
        loader.fetch(folder, offline=True)
    assert not folder.exists()
    packed = archived(server, b"")
    archive = formats.put(folder / "all.zip", formats.zipped(CONTENT))
    packed.fetch(folder, offline=True)
    assert (folder / "set/first").read_bytes() == CONTENT["first"]
    (folder / "set/first").unlink()
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(EnvironmentProblem, match=r"all\.zip"):
        packed.fetch(folder, offline=True)
    assert archive.exists()


@pytest.mark.parametrize("place", ["folder/", "../../"])
def test_archives_are_searched_by_file_name(folder, server, place):
    blob = formats.zipped(
        {f"{place}{name}": blob for name, blob in {**CONTENT, "third": b""}.items()}
    )
    archived(server, blob).fetch(folder, offline=False)
    assert files_in(folder) == WHOLE
    assert (folder / "set/first").read_bytes() == CONTENT["first"]


@pytest.mark.parametrize(
    "blob", [b"", b"<html>Too many users</html>", formats.zipped(CONTENT)[:-30]]
)
def test_a_damaged_archive_leaves_nothing_behind(folder, server, blob):
    with pytest.raises(EnvironmentProblem, match=r"all\.zip"):
        archived(server, blob).fetch(folder, offline=False)
    assert files_in(folder) == [".usps.lock"]


def test_a_swollen_archive_is_not_unpacked(folder, server, monkeypatch):
    monkeypatch.setattr(download, "SMALLEST", 10_000)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first", bytes(10**6))
        archive.writestr("second", b"second")
    with pytest.raises(EnvironmentProblem, match="bytes"):
        archived(server, made.getvalue()).fetch(folder, offline=False)
    assert files_in(folder) == [".usps.lock"]


def test_a_full_disk_is_no_bad_archive(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_unpack_members", full)
    with pytest.raises(OSError, match="No space left"):
        download.unpack(tmp_path / "a.zip", ["a"], tmp_path, "usps")


def test_an_unwritable_folder_is_named(loader, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=rf"{tmp_path}/file/data.*--data-dir"):
        loader.fetch(tmp_path / "file/data", offline=False)


def test_torchvision_downloads_only_missing_files(folder, server, monkeypatch):
    from torchvision import datasets

    rng = np.random.RandomState(3)
    listed, files = {}, []
    for part, file, count in zip(("train", "test"), vision.USPS.files, (30, 20), strict=True):
        blob = formats.libsvm(rng.rand(count, 256), np.arange(count) % 10)
        server.files[f"/{file.path}"] = blob
        files.append(formats.published(file, blob))
        listed[part] = [f"{server.url}/{file.path}", file.path, files[-1].md5]
    monkeypatch.setattr(datasets.USPS, "split_list", listed)
    loader = formats.small(vision.USPS, 30, 20, files=tuple(files))
    mine = formats.put(folder / "usps.bz2", server.files["/usps.bz2"]).stat()
    loader.fetch(folder, offline=False)
    assert files_in(folder) == [".usps.lock", "usps.bz2", "usps.t.bz2"]
    assert (folder / "usps.bz2").stat().st_ino == mine.st_ino
    assert len(loader.read(folder).test_y) == 20


# --- the hub's parquet files


def test_the_hubs_own_client_fetches_parquet_files(folder, monkeypatch):
    asked = []

    def snapshot_download(repository: str, **options: object) -> None:
        asked.append((repository, options))
        raise ConnectionError("no route to host")

    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    with pytest.raises(EnvironmentProblem, match="FEMNIST"):
        femnist.FEMNIST.fetch(folder, offline=False)
    options = {
        "repo_type": "dataset",
        "allow_patterns": "data/*.parquet",
        "local_dir": folder / "femnist",
    }
    assert asked == [("flwrlabs/femnist", options)]
    with pytest.raises(data.MissingData, match="flwrlabs/femnist"):
        femnist.FEMNIST.fetch(folder, offline=True)
    assert len(asked) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_downloads_are_not_mixed(tmp_path, first):
    names = [
        f"train-{number:05}-of-00003-{number}a6b.parquet" for number in range(first, first + 3)
    ]
    formats.put(tmp_path / "data" / names[0], b"")
    assert parquet.find(tmp_path, "a/b", "train") == []
    some = f"{tmp_path / 'data'} has 1 of 3 tables of train"
    assert parquet.incomplete(tmp_path, "a/b", "train") == some
    assert femnist.FEMNIST.missing(tmp_path)
    whole = [formats.put(tmp_path / "data" / name, b"") for name in names]
    assert parquet.find(tmp_path, "a/b", "train") == whole
    assert parquet.incomplete(tmp_path, "a/b", "train") == ""
    formats.put(tmp_path / "data" / "train-00000-of-00002.parquet", b"")
    assert parquet.find(tmp_path, "a/b", "train") == []


def test_tables_without_others_are_named(tmp_path):
    for name in ("train-00001-of-00002.parquet", "test-00000-of-00001.parquet"):
        formats.put(tmp_path / "cifar10" / "plain_text" / name, b"")
    with pytest.raises(data.MissingData) as refused:
        vision.CIFAR10.read(tmp_path)
    place = tmp_path / "cifar10" / "plain_text"
    assert str(refused.value).endswith(f"to download them; {place} has 1 of 2 tables of train")


def test_some_tables_of_femnist_are_named(tmp_path):
    place = tmp_path / "femnist" / "data"
    for number in (0, 2):
        formats.put(place / f"train-{number:05}-of-00003.parquet", b"")
    with pytest.raises(data.MissingData) as refused:
        femnist.FEMNIST.read(tmp_path)
    assert str(refused.value).endswith(f"; {place} has 2 of 3 tables of train")


def test_links_to_lost_files_are_missing(tmp_path):
    """The hub client's cache links versions' files to others, which may be deleted."""
    snapshots = tmp_path / "hub/datasets--uoft-cs--cifar10/snapshots"
    snapshots.mkdir(parents=True)
    (snapshots / "lost").symlink_to("nowhere")
    part = snapshots / "version/plain_text/train-00000-of-00001.parquet"
    part.parent.mkdir(parents=True)
    part.symlink_to("nowhere")
    repository = ("uoft-cs/cifar10", "train", "plain_text")
    assert parquet.find(tmp_path / "cifar10", *repository) == []
    part.with_name("nowhere").touch()
    assert parquet.find(tmp_path / "cifar10", *repository) == [part]
