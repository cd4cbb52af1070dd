"""Downloads are checked, go on where they broke off and leave nothing half done."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import published_formats as formats
import pytest
from published_formats import folder, surroundings

from bench import data
from bench.data import femnist, parquet, vision
from bench.data.dataset import Dataset
from bench.data.download import Original, checksum
from bench.data.files import FileSource
from bench.errors import EnvironmentProblem

__all__ = ["folder", "surroundings"]
CONTENT = {"first": np.random.RandomState(0).bytes(200_000), "second": b"b" * 1000}
PACKED = {name: gzip.compress(blob) for name, blob in CONTENT.items()}


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    """An HTTP server on this machine: `files` by path; `cut` closes the next answers after so many bytes of a file.

    Its `log` has path and `Range` of each request; without `ranges` it always begins anew.
    """
    state = SimpleNamespace(files={}, cut=[], log=[], ranges=True, url="")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.log.append((self.path, wanted))
            blob = state.files.get(self.path)
            if blob is None:
                self.send_error(404)
                return
            begin = int(wanted.split("=")[1].rstrip("-")) if wanted and state.ranges else 0
            if begin and begin >= len(blob):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(blob) - begin))
            self.end_headers()
            self.wfile.write(blob[begin : state.cut.pop(0) if state.cut else len(blob)])

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{running.server_port}"
    Thread(target=running.serve_forever, daemon=True).start()
    yield state
    running.shutdown()
    running.server_close()


@dataclass(frozen=True)
class Two(FileSource):
    """A source of two files."""

    def parse(self, folder: Path) -> Dataset:
        raise AssertionError("only fetched here")


@pytest.fixture
def source(server: SimpleNamespace) -> Two:
    """Two files, each packed for itself on the server."""
    remotes = []
    for name, blob in PACKED.items():
        server.files[f"/{name}.gz"] = blob
        remotes.append(formats.published(Original(f"set/{name}.gz", urls=(f"{server.url}/{name}.gz",)), blob))
    return Two(data.info("usps"), "bytes", (Original("set/first"), Original("set/second")), tuple(remotes))


def archived(source: Two, server: SimpleNamespace, blob: bytes, name: str = "all.zip") -> Two:
    """The same out of one archive without a published checksum."""
    server.files[f"/{name}"] = blob
    return replace(source, downloads=(Original(name, urls=(f"{server.url}/{name}",)),))


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


WHOLE = [".usps.lock", "set/first", "set/second"]


def test_missing_files_are_downloaded_unpacked_and_nothing_else_stays(folder, server, source, capsys):
    source.fetch(folder, offline=False)
    assert files_in(folder) == WHOLE
    assert {name: (folder / "set" / name).read_bytes() for name in CONTENT} == CONTENT
    assert f"downloading {server.url}/first.gz (0.2 MB)" in capsys.readouterr().err
    (folder / "set/second").unlink()
    server.log.clear()
    source.fetch(folder, offline=False)
    assert server.log == [("/second.gz", None)]


def test_a_download_goes_on_where_it_broke_off(folder, server, source, capsys):
    server.cut = [70_000, 150_000]
    source.fetch(folder, offline=False)
    assert server.log[:3] == [("/first.gz", None), ("/first.gz", "bytes=70000-"), ("/first.gz", "bytes=150000-")]
    assert (folder / "set/first").read_bytes() == CONTENT["first"]
    assert "going on after 0.1 MB" in capsys.readouterr().err


def test_the_next_command_goes_on_too(folder, server, source):
    server.cut = [1_000, 2_000, 3_000]
    with pytest.raises(EnvironmentProblem, match=r"3,000 of .*--data-dir"):
        source.fetch(folder, offline=False)
    assert files_in(folder) == [".usps.lock", "set/.first.gz.part"]
    source.fetch(folder, offline=False)
    assert server.log[3] == ("/first.gz", "bytes=3000-")
    assert files_in(folder) == WHOLE


@pytest.mark.parametrize(("part", "requests"), [(PACKED["first"], 1), (b"of another file", 2)])
def test_a_part_that_lies_there_is_used_if_it_fits(folder, server, source, part, requests):
    formats.put(folder / "set/.first.gz.part", part)
    source.fetch(folder, offline=False)
    assert [path for path, _ in server.log] == ["/first.gz"] * requests + ["/second.gz"]
    assert (folder / "set/first").read_bytes() == CONTENT["first"]


def test_servers_that_cannot_go_on_or_lack_the_file_are_no_obstacle(folder, server, source):
    server.ranges, server.cut = False, [70_000]
    first, second = source.downloads
    elsewhere = replace(second, urls=(f"{server.url}/nothing", *second.urls))
    replace(source, downloads=(first, elsewhere)).fetch(folder, offline=False)
    assert files_in(folder) == WHOLE


def test_another_file_is_refused_and_does_not_stay(folder, server, source):
    server.files["/second.gz"] = gzip.compress(b"another")
    with pytest.raises(EnvironmentProblem, match=source.downloads[1].md5):
        source.fetch(folder, offline=False)
    assert files_in(folder) == [".usps.lock", "set/first"]


def test_offline_uses_the_archives_that_are_here_and_no_network(folder, server, source):
    with pytest.raises(data.MissingData, match=rf"{folder}: set/first, set/second missing.*--data-dir.*without --offl"):
        source.fetch(folder, offline=True)
    assert not folder.exists()
    for name, blob in PACKED.items():
        formats.put(folder / f"set/{name}.gz", blob)
    source.fetch(folder, offline=True)
    assert (folder / "set/first").read_bytes() == CONTENT["first"]
    (folder / "set/first").unlink()
    (folder / "set/first.gz").write_bytes(PACKED["first"][:-1])
    with pytest.raises(EnvironmentProblem, match=r"first.gz is not the original file"):
        source.fetch(folder, offline=True)
    assert server.log == []


def tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, blob in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(blob)
            archive.addfile(member, io.BytesIO(blob))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "blob"),
    [
        ("all.zip", formats.zipped({f"gzip/{name}.gz": blob for name, blob in {**PACKED, "third": b""}.items()})),
        ("all.zip", formats.zipped({f"../../{name}": blob for name, blob in CONTENT.items()})),
        ("all.tar.gz", tar({f"folder/{name}": blob for name, blob in CONTENT.items()})),
    ],
    ids=["archive of archives", "outside", "tar"],
)
def test_files_are_found_in_an_archive_by_name(folder, server, source, name, blob):
    archived(source, server, blob, name).fetch(folder, offline=False)
    assert files_in(folder) == WHOLE
    assert (folder / "set/first").read_bytes() == CONTENT["first"]


def flagged(encrypted: bool) -> bytes:
    """A zip archive whose first member says that it is encrypted, or packed by an unknown method."""
    blob = bytearray(formats.zipped(CONTENT))
    entry = blob.index(b"PK\x01\x02")
    place, value = (6, 1) if encrypted else (8, 99)
    blob[place] = blob[entry + place + 2] = value
    return bytes(blob)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"<html>Too many users have viewed this file</html>",
        formats.zipped(CONTENT)[:-30],
        flagged(True),
        flagged(False),
    ],
    ids=["empty", "page", "cut", "encrypted", "method"],
)
def test_a_damaged_archive_leaves_nothing_behind(folder, server, source, blob):
    with pytest.raises(EnvironmentProblem, match=r"all.zip: expected an archive with first, second, found"):
        archived(source, server, blob).fetch(folder, offline=False)
    assert files_in(folder) == [".usps.lock"]


def test_a_folder_that_cannot_be_made_is_named(source, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=rf"{tmp_path}/file/data.*--data-dir"):
        source.fetch(tmp_path / "file/data", offline=False)


@pytest.mark.parametrize("name", ["mnist", "usps", "svhn", "cifar10", "cifar100", "emnist_letters"])
def test_addresses_and_checksums_of_torchvision_are_used(folder, name):
    source = data.source(name)
    names = {Path(file.path).name for file in source.files}
    for remote in source.remotes:
        assert remote.md5
        assert remote.content in (None, *names)
        assert all(url.startswith("http") and url.endswith(Path(remote.path).name) for url in remote.urls)
    with pytest.raises(data.MissingData, match=source.remotes[0].md5):
        source.fetch(folder, offline=True)


def test_the_published_archive_of_letters_needs_no_network(folder, monkeypatch):
    from torchvision import datasets

    arrays = [array for count in (60, 40) for array in formats.draw(count, (28, 28), 26)]
    blobs = [formats.idx(array + (array.ndim == 1)) for array in arrays]
    names = [f"gzip/{Path(file.path).name}.gz" for file in vision.EMNIST_LETTERS.files]
    members = dict(zip(names, map(gzip.compress, blobs), strict=True))
    archive = formats.put(folder / "EMNIST/raw/gzip.zip", formats.zipped({**members, "gzip/others.gz": b"other"}))
    monkeypatch.setattr(datasets.EMNIST, "md5", checksum(archive))
    monkeypatch.setattr(vision, "EMNIST_LETTERS", formats.small(vision.EMNIST_LETTERS, 60, 40))
    np.testing.assert_array_equal(data.load("emnist_letters", folder, offline=True).train_y, arrays[1])
    files = [file.path for file in vision.EMNIST_LETTERS.files]
    assert files_in(folder) == [".emnist_letters.lock", *sorted([*files, "EMNIST/raw/gzip.zip"])]


# --- the hub's parquet files


def test_the_hubs_own_client_fetches_parquet_files(folder, monkeypatch):
    asked = []

    def snapshot_download(repository: str, **options: object) -> None:
        asked.append((repository, options))
        raise ConnectionError("no route to host")

    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    with pytest.raises(EnvironmentProblem, match=r"no route to host.*flwrlabs/femnist"):
        femnist.FEMNIST.fetch(folder, offline=False)
    options = {"repo_type": "dataset", "allow_patterns": "data/*.parquet", "local_dir": folder / "femnist"}
    assert asked == [("flwrlabs/femnist", options)]
    with pytest.raises(data.MissingData, match="without --offline"):
        femnist.FEMNIST.fetch(folder, offline=True)
    assert len(asked) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_some_of_a_parts_files_are_no_part_and_two_downloads_are_not_mixed(tmp_path, first):
    def put(*names: str) -> list[Path]:
        return [formats.put(tmp_path / "data" / f"train-{name}.parquet", b"") for name in names]

    put("00000-of-00002")
    assert parquet.find(tmp_path, "a/b", "train") == []
    assert femnist.FEMNIST.missing(tmp_path)
    whole = put(*(f"{number:05}-of-00003-{number}a6b" for number in range(first, first + 3)))
    assert parquet.find(tmp_path, "a/b", "train") == whole
    whole[1].unlink()
    assert parquet.find(tmp_path, "a/b", "train") == []
