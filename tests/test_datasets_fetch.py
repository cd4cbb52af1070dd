"""Downloads are checked, go on where they broke off and leave nothing half done; `bench.data` says what there is."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import published_formats as formats
import pytest

from bench import cli, data
from bench.data import femnist, idx, parquet
from bench.data.command import main
from bench.data.originals import Original
from bench.data.remote import Remote
from bench.errors import EnvironmentProblem

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """Empty folders: of prepared copies, of the hub's client, of data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("FEDKD_DATA", raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


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


def parts_of_mnist() -> dict[str, np.ndarray]:
    (train_x, train_y), (test_x, test_y) = formats.draw(300, (28, 28), seed=1), formats.draw(40, (28, 28), seed=2)
    arrays = (train_x, train_y, test_x, test_y)
    return {file.path: array for file, array in zip(idx.MNIST.files, arrays, strict=True)}


@pytest.fixture
def mnist(server, monkeypatch) -> idx.Idx:
    """MNIST of 340 images, on the server, packed as it is published."""
    files, remotes = [], []
    for path, array in parts_of_mnist().items():
        blob = formats.idx(array)
        packed = gzip.compress(blob)
        server.files[f"/{Path(path).name}.gz"] = packed
        files.append(Original(path, md5(blob).hexdigest()))
        original = Original(f"{path}.gz", md5(packed).hexdigest(), len(packed))
        remotes.append(Remote(original, (f"{server.url}/{Path(path).name}.gz",)))
    source = formats.small(idx.MNIST, 300, 40, files=tuple(files), remotes=tuple(remotes))
    monkeypatch.setattr(idx, "MNIST", source)
    return source


def content(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- downloads


def test_what_is_missing_is_downloaded_unpacked_and_nothing_else_stays(folder, server, mnist, capsys):
    found = data.load("mnist", folder)
    np.testing.assert_array_equal(found.train_x[:, 0], parts_of_mnist()["MNIST/raw/train-images-idx3-ubyte"])
    assert content(folder) == [".mnist.lock", *sorted(file.path for file in mnist.files)]
    assert [path for path, _ in server.log] == [f"/{Path(file.path).name}.gz" for file in mnist.files]
    assert f"downloading {server.url}/train-images-idx3-ubyte.gz (0.2 MB)" in capsys.readouterr().err


def test_only_the_missing_file_is_downloaded(folder, server, mnist):
    data.source("mnist").fetch(folder, offline=False)
    (folder / mnist.files[2].path).unlink()
    server.log.clear()
    data.source("mnist").fetch(folder, offline=False)
    assert [path for path, _ in server.log] == ["/t10k-images-idx3-ubyte.gz"]


def test_a_download_goes_on_where_it_broke_off(folder, server, mnist, capsys):
    server.cut = [70_000, 150_000]
    data.load("mnist", folder)
    assert server.log[:3] == [
        ("/train-images-idx3-ubyte.gz", None),
        ("/train-images-idx3-ubyte.gz", "bytes=70000-"),
        ("/train-images-idx3-ubyte.gz", "bytes=150000-"),
    ]
    assert "going on after 0.1 MB" in capsys.readouterr().err


def test_the_next_command_goes_on_too(folder, server, mnist):
    server.cut = [1_000, 2_000, 3_000]
    with pytest.raises(EnvironmentProblem, match=r"the connection closed after 3,000 of .* Check the connection"):
        data.load("mnist", folder)
    assert [name for name in content(folder) if "lock" not in name] == ["MNIST/raw/.train-images-idx3-ubyte.gz.part"]
    data.load("mnist", folder)
    assert server.log[3] == ("/train-images-idx3-ubyte.gz", "bytes=3000-")
    assert not [name for name in content(folder) if "part" in name]


def test_a_server_that_cannot_go_on_begins_anew(folder, server, mnist):
    server.ranges, server.cut = False, [70_000]
    data.load("mnist", folder)
    assert [path for path, _ in server.log].count("/train-images-idx3-ubyte.gz") == 2


def test_a_part_that_was_whole_is_used(folder, server, mnist):
    packed = server.files["/train-images-idx3-ubyte.gz"]
    formats.put(folder / "MNIST/raw/.train-images-idx3-ubyte.gz.part", packed)
    data.load("mnist", folder)
    assert server.log[0] == ("/train-images-idx3-ubyte.gz", f"bytes={len(packed)}-")


def test_a_wrong_part_is_thrown_away(folder, server, mnist):
    formats.put(folder / "MNIST/raw/.train-images-idx3-ubyte.gz.part", b"of another file")
    data.load("mnist", folder)
    assert server.log[:2] == [("/train-images-idx3-ubyte.gz", "bytes=15-"), ("/train-images-idx3-ubyte.gz", None)]


def test_another_file_is_refused_and_does_not_stay(folder, server, mnist):
    server.files["/train-labels-idx1-ubyte.gz"] = gzip.compress(b"another")
    with pytest.raises(EnvironmentProblem, match=f"expected md5 {mnist.remotes[1].file.md5}, got a file with"):
        data.load("mnist", folder)
    assert content(folder) == [".mnist.lock", "MNIST/raw/train-images-idx3-ubyte"]


def test_the_second_server_is_asked_where_the_first_has_nothing(folder, server, mnist, monkeypatch):
    remotes = tuple(replace(remote, urls=(f"{server.url}/nothing", *remote.urls)) for remote in mnist.remotes)
    monkeypatch.setattr(idx, "MNIST", replace(mnist, remotes=remotes))
    assert len(data.load("mnist", folder).train_y) == 300


def test_offline_uses_the_archives_that_are_here_and_no_network(folder, server, mnist):
    for path, packed in server.files.items():
        formats.put(folder / f"MNIST/raw{path}", packed)
    assert len(data.load("mnist", folder, offline=True).train_y) == 300
    assert server.log == []
    (folder / mnist.files[0].path).unlink()
    (folder / f"{mnist.files[0].path}.gz").unlink()
    with pytest.raises(data.MissingData, match="train-images-idx3-ubyte missing"):
        data.source("mnist").fetch(folder, offline=True)
    assert server.log == []


def test_letters_are_unpacked_from_the_archive_of_archives(folder, server, monkeypatch):
    arrays = [array for count in (60, 40) for array in formats.draw(count, (28, 28), 26)]
    blobs = [formats.idx(array + (array.ndim == 1)) for array in arrays]
    members = {
        f"gzip/{Path(file.path).name}.gz": gzip.compress(blob)
        for file, blob in zip(idx.EMNIST_LETTERS.files, blobs, strict=True)
    }
    server.files["/gzip.zip"] = formats.zipped({**members, "gzip/emnist-digits-train-images-idx3-ubyte.gz": b"other"})
    (remote,) = idx.EMNIST_LETTERS.remotes
    remote = Remote(formats.published(remote.file, server.files["/gzip.zip"]), (f"{server.url}/gzip.zip",))
    monkeypatch.setattr(idx, "EMNIST_LETTERS", formats.small(idx.EMNIST_LETTERS, 60, 40, remotes=(remote,)))
    np.testing.assert_array_equal(data.load("emnist_letters", folder).train_y, arrays[1])
    assert content(folder) == [".emnist_letters.lock", *sorted(file.path for file in idx.EMNIST_LETTERS.files)]


@pytest.fixture
def archived(server, mnist, monkeypatch) -> dict[str, bytes]:
    """MNIST out of one archive without a published checksum; the files that it should hold."""
    remote = Remote(Original("all.zip", None), (f"{server.url}/all.zip",))
    monkeypatch.setattr(idx, "MNIST", replace(mnist, remotes=(remote,)))
    files = {f"gzip{path}": packed for path, packed in server.files.items()}
    server.files["/all.zip"] = formats.zipped(files)
    return files


def test_what_an_archive_that_is_here_lacks_is_downloaded(folder, server, archived):
    lacking = formats.zipped(dict(list(archived.items())[:2]))
    formats.put(folder / "all.zip", lacking)
    with pytest.raises(data.MissingData, match=r"t10k-labels-idx1-ubyte missing.*run once without --offline"):
        data.load("mnist", folder, offline=True)
    assert server.log == []
    assert len(data.load("mnist", folder).train_y) == 300
    assert [path for path, _ in server.log] == ["/all.zip"]
    assert (folder / "all.zip").read_bytes() == lacking, "the user's own stays as it is"
    assert len(content(folder)) == 4 + len((".mnist.lock", "all.zip"))


@pytest.mark.parametrize("published", [False, True])
def test_what_no_archive_has_is_said_without_advice_to_go_online(folder, server, archived, monkeypatch, published):
    """Where the archive that is here has the published checksum, another download would bring the same."""
    blob = formats.zipped(dict(list(archived.items())[:3]))
    server.files["/all.zip"] = formats.put(folder / "all.zip", blob).read_bytes()
    (remote,) = idx.MNIST.remotes
    if published:
        remote = replace(remote, file=formats.published(remote.file, blob))
        monkeypatch.setattr(idx, "MNIST", replace(idx.MNIST, remotes=(remote,)))
    with pytest.raises(data.MissingData, match=r"t10k-labels-idx1-ubyte missing.* all.zip.* lacks them$") as caught:
        data.load("mnist", folder)
    assert "--offline" not in str(caught.value)
    assert len(server.log) == (0 if published else 1)


@pytest.mark.parametrize("kept", [0, 200, -30])
def test_a_damaged_archive_leaves_nothing_behind(folder, server, mnist, monkeypatch, kept):
    blob = formats.zipped({f"gzip{path}": packed for path, packed in server.files.items()})[: kept or None]
    blob = b"<html>Too many users have viewed this file</html>" if not kept else blob
    server.files["/all.zip"] = blob
    remote = Remote(Original("all.zip", None), (f"{server.url}/all.zip",))
    monkeypatch.setattr(idx, "MNIST", replace(mnist, remotes=(remote,)))
    with pytest.raises(EnvironmentProblem, match="MNIST could not be fetched"):
        data.load("mnist", folder)
    assert content(folder) == [".mnist.lock"]


def test_the_hubs_own_client_fetches_parquet_files(folder, monkeypatch):
    asked = []

    def snapshot_download(repository: str, **options: object) -> None:
        asked.append((repository, options))
        raise ConnectionError("no route to host")

    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    with pytest.raises(EnvironmentProblem, match=r"FEMNIST could not be fetched.*no route to host.*flwrlabs/femnist"):
        femnist.FEMNIST.fetch(folder, offline=False)
    options = {"repo_type": "dataset", "allow_patterns": "data/*.parquet", "local_dir": folder / "femnist"}
    assert asked == [("flwrlabs/femnist", options)]
    with pytest.raises(data.MissingData, match="without --offline"):
        femnist.FEMNIST.fetch(folder, offline=True)
    assert len(asked) == 1


def test_parquet_files_that_a_broken_download_left_are_named_and_fetched(folder, monkeypatch):
    """Two of three files of FEMNIST are no data set: what is missing is downloaded, and only then read."""
    blob, images = formats.encoded(np.zeros((28, 28), np.uint8)), {0: 3, 1: 4, 2: 5}

    def put(number: int) -> None:
        file, count = folder / f"femnist/data/train-0000{number}-of-00003.parquet", images[number]
        formats.images_table(file, [blob] * count, writer_id=["a"] * count, character=[number] * count)

    put(0)
    put(2)
    source, lacking = formats.small(femnist.FEMNIST, 11, 1), "femnist/data/train-00001-of-00003.parquet"
    monkeypatch.setattr(femnist, "FEMNIST", source)
    assert source.missing(folder) == [lacking]
    with pytest.raises(data.MissingData, match=rf"FEMNIST is not in {folder}: {lacking} missing.*without --offline"):
        data.load("femnist", folder, offline=True)
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: put(1))
    found = data.load("femnist", folder)
    assert len(found.train_y) + len(found.test_y) == 12


def test_parquet_files_of_two_downloads_are_not_mixed(tmp_path):
    def put(*names: str) -> list[Path]:
        return [formats.put(tmp_path / "data" / f"train-{name}.parquet", b"") for name in names]

    put("00000-of-00002")
    assert parquet.find(tmp_path, "a/b", "train") == []
    second = put("00000-of-00003-5a6b", "00001-of-00003-0c1d", "00002-of-00003-77aa")
    assert parquet.find(tmp_path, "a/b", "train") == second
    assert parquet.lacking(tmp_path, "train") == []
    second[1].unlink()
    assert parquet.find(tmp_path, "a/b", "train") == []
    assert parquet.lacking(tmp_path, "train") == [tmp_path / "data/train-00001-of-00003.parquet"]


def test_parquet_files_may_be_counted_from_one(tmp_path):
    files = [formats.put(tmp_path / "data" / f"train-0000{number}-of-00002.parquet", b"") for number in (1, 2)]
    assert parquet.find(tmp_path, "a/b", "train") == files
    files[0].unlink()
    assert parquet.find(tmp_path, "a/b", "train") == []
    assert parquet.lacking(tmp_path, "train") == files[:1]


# --- the command


def test_preparing_downloads_checks_and_says_sizes(folder, mnist, capsys):
    assert main(["prepare", "mnist,digits", "--data-dir", str(folder)]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].startswith(
        "mnist: ready, 300 training and 40 test samples, 0.3 MB of pixels, hash "
    )
    assert told.out.splitlines()[1].startswith("digits: ready, 1,438 training and 359 test samples")
    assert "mnist: 4 files missing, to download: 11.6 MB" in told.err
    assert list((folder.parent / "cache/fedkd-bench").glob("mnist-*/train_x.npy"))


def test_preparing_offline_is_an_answer_with_status_three(folder, server, mnist, capsys):
    assert main(["prepare", "mnist", "--offline", "--data-dir", str(folder)]) == 3
    assert "error: MNIST is not in" in capsys.readouterr().err
    assert (server.log, folder.exists()) == ([], False)


def test_a_damaged_file_is_an_answer_with_status_three(folder, mnist, capsys):
    assert main(["prepare", "mnist", "--data-dir", str(folder)]) == 0
    file = folder / mnist.files[0].path
    file.write_bytes(file.read_bytes()[:-7])
    data._read.cache_clear()
    assert main(["prepare", "mnist", "--data-dir", str(folder)]) == 3
    told = capsys.readouterr().err
    assert f"{file} is not the original file: expected md5 {mnist.files[0].md5}, found 235,209 bytes" in told
    assert f"delete it and run: python -m bench.data prepare mnist --data-dir {folder}" in told
    file.unlink()
    assert main(["prepare", "mnist", "--data-dir", str(folder)]) == 0


def test_an_unknown_name_is_an_answer_with_status_two(folder, capsys):
    assert main(["prepare", "mnits", "--data-dir", str(folder)]) == 2
    assert "did you mean mnist?" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["prepair"])
    assert caught.value.code == 2


def test_the_list_has_every_data_set_and_whether_it_is_here(folder, mnist, capsys):
    main(["prepare", "mnist", "--data-dir", str(folder)])
    capsys.readouterr()
    assert cli.main(["data", "list", "--json", "--data-dir", str(folder)]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(data.DATASETS)
    assert {name for name, row in rows.items() if row["here"]} >= {"digits", "mnist"}
    assert not rows["usps"]["here"]
    assert rows["cifar10"]["download"] == 170_498_071
    assert main(["list", "--data-dir", str(folder)]) == 0
    told = capsys.readouterr().out
    assert [name for name in data.DATASETS if name not in told] == []
    assert "170.5 MB" in told


def test_the_list_needs_no_torch(folder):
    program = (
        "import sys; from bench.data.command import main; main(['list', '--data-dir', sys.argv[1]])\n"
        "assert not {'torch', 'torchvision', 'sklearn', 'scipy', 'pyarrow', 'ray'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, folder], check=True, cwd=ROOT, capture_output=True)


def test_sizes_add_up_to_what_is_downloaded():
    for name in ("mnist", "usps", "svhn", "cifar10", "cifar100", "emnist_letters", "tiny_imagenet"):
        sizes = [remote.file.size for remote in data.source(name).remotes]
        assert sum(sizes) == data.info(name).download, name
    assert data.info("mnist_usps").download == data.info("mnist").download + data.info("usps").download
