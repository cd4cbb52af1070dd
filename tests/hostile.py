"""Folders and files of strangers, on which commands must not crash, hang, leak or destroy.

`FOLDERS` has the result folders: each entry changes a copy of a sound one. All `TARGETS` are put in
all `PLACES`, and `SHAPES` are single ones. `FILES` has files of options and of data. Another shape
is one more entry. `attack` makes a folder, runs commands on it, and returns what went wrong;
`read_file` does the same with a file.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.cli import main
from leaderboards.rows.compaction import compact
from leaderboards.rows.schema import digest

SECRET = "the key that nobody else may read"
PATIENCE = 60.0  # seconds after which a command hangs; the longest takes a few, on a busy machine
MEMORY = 2**31  # bytes that a command may have; ordinary ones have 0.5 GiB
SWEEP = (
    "--algo",
    "fedavg",
    "--dataset",
    "digits",
    "--rounds",
    "4",
    "--seeds",
    "1",
    "--executor",
    "inline",
    "--quiet",
)


@dataclass(frozen=True)
class Site:
    """A hostile result folder `out`, and the folder `home` of somebody who uses it.

    `key`: a run with a saved state.
    """

    root: Path
    key: str

    @property
    def out(self) -> Path:
        """The result folder."""
        return self.root / "out"

    @property
    def home(self) -> Path:
        """The user's own files, which no command may change, copy or add to."""
        return self.root / "home"

    def one(self, pattern: str) -> Path:
        """The first file of the result folder that matches."""
        return sorted(self.out.glob(pattern))[0]

    @property
    def state(self) -> Path:
        """The folder of the saved state."""
        return self.out / "state" / self.key


def put_link(path: Path, target: Path) -> None:
    """A link in place of whatever is there."""
    _clear(path)
    path.symlink_to(target)


def put_pipe(path: Path) -> None:
    """A pipe in place of whatever is there."""
    _clear(path)
    os.mkfifo(path)


def put_folder(path: Path) -> None:
    """A folder in place of whatever is there."""
    _clear(path)
    path.mkdir()


def _clear(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


# Places of a result folder.
PLACES: dict[str, Callable[[Site], Path]] = {
    "new rows": lambda site: site.out / "runs" / "x.parquet",
    "new curves": lambda site: site.out / "curves" / "x.parquet",
    "rows": lambda site: site.one("runs/*.parquet"),
    "curves": lambda site: site.one("curves/*.parquet"),
    "leaderboard": lambda site: site.out / "leaderboard.parquet",
    "runs": lambda site: site.out / "runs",
    "curves folder": lambda site: site.out / "curves",
    "state": lambda site: site.out / "state",
    "tracked": lambda site: site.out / "tracked",
    "logs": lambda site: site.out / "logs",
    "the state of a run": lambda site: site.state,
    "manifest": lambda site: site.state / "manifest.json",
    "lock": lambda site: site.state.with_suffix(".lock"),
    "server of the state": lambda site: site.one("state/*/server-*.pt"),
    "server of the next round": lambda site: site.state / "server-3.pt",
    "arrays": lambda site: site.one("tracked/*.npz"),
    "model": lambda site: site.one("tracked/*.safetensors"),
    "arrays of an earlier version": lambda site: site.out / "tracked" / f"{site.key[:16]}.npz",
}
# What stands there instead.
TARGETS: dict[str, Callable[[Site, Path], None]] = {
    "a link to a file": lambda site, path: put_link(path, site.home / "secret.txt"),
    "a link to a folder": lambda site, path: put_link(path, site.home),
    "a link to nothing": lambda site, path: put_link(path, site.home / "new.txt"),
    "a link to a device": lambda site, path: put_link(path, Path("/dev/zero")),
    "a pipe": lambda site, path: put_pipe(path),
    "a folder": lambda site, path: put_folder(path),
}


def _rewrite(site: Site, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the manifest of the state; its digest is right again."""
    path = site.state / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["digest"]
    manifest = changed(manifest)
    path.write_text(json.dumps(manifest | {"digest": digest(manifest)}))


def _names_outside(site: Site, name: str) -> None:
    sha256 = hashlib.sha256((site.home / "secret.txt").read_bytes()).hexdigest()
    _rewrite(site, lambda manifest: manifest | {"sha256": {**manifest["sha256"], name: sha256}})


def _server_outside(site: Site) -> None:
    name = "../../../home/secret.txt"
    _names_outside(site, name)
    _rewrite(site, lambda manifest: manifest | {"server": name})


def _claiming(site: Site, names: Callable[[], Sequence[str]]) -> None:
    """A segment that claims to replace other files than its own."""
    claimed = list(names())
    other = site.root / "other"
    shutil.copytree(site.out, other)
    compact(other)
    shutil.rmtree(site.out)
    other.rename(site.out)
    path = site.one("runs/packed-*.parquet")
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"fedkd_replaces": json.dumps(claimed).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    named = f"packed-{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}.parquet"
    (site.out / "curves" / path.name).rename(site.out / "curves" / named)
    path.rename(path.with_name(named))


def _repeated(site: Site, rows: int, text: str) -> None:
    """Rows that are few bytes on the disk and many in memory."""
    path = site.one("runs/*.parquet")
    table = pq.read_table(path)
    at = table.schema.get_field_index("error")
    table = table.set_column(at, table.schema.field("error"), pa.array([text] * table.num_rows))
    pq.write_table(pa.concat_tables([table] * rows), path, compression="zstd", row_group_size=rows)


def _many_versions(site: Site, entries: int, text: str) -> None:
    path = site.one("runs/*.parquet")
    table = pq.read_table(path)
    at = table.schema.get_field_index("versions")
    kind = pa.map_(pa.string(), pa.string())
    versions = pa.array([[(str(entry), text) for entry in range(entries)]] * table.num_rows, kind)
    pq.write_table(table.set_column(at, "versions", versions), path, compression="zstd")


def _swollen(site: Site) -> None:
    """Tracked arrays that are few bytes on the disk."""
    path = site.one("tracked/*.npz")
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("classes/global.npy", "w") as file,
    ):
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (2**29,)}
        )
        for _ in range(64):
            file.write(bytes(2**20))


def _endless_array(site: Site) -> None:
    """Tracked arrays of a shape that no memory holds."""
    path = site.one("tracked/*.npz")
    with zipfile.ZipFile(path, "w") as archive, archive.open("classes/global.npy", "w") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (2**50,)}
        )


def _named_in_bytes(site: Site) -> None:
    path = os.fsencode(site.out / "runs") + b"/caf\xe9.parquet"
    shutil.copy(site.one("runs/*.parquet"), os.fsdecode(path))


SHAPES: dict[str, Callable[[Site], None]] = {
    "a state that names a file outside": lambda site: _names_outside(
        site, "../../../home/secret.txt"
    ),
    "a state that names a file by its whole path": lambda site: _names_outside(
        site, str(site.home / "secret.txt")
    ),
    "a state whose server is a file outside": _server_outside,
    "a manifest of lists": lambda site: _rewrite(
        site, lambda manifest: manifest | {"server": [], "memories": {"0": []}}
    ),
    "a manifest nested deep": lambda site: (
        (site.state / "manifest.json").write_text("[" * 10**5) and None
    ),
    "a manifest that is no object": lambda site: (
        (site.state / "manifest.json").write_text("[]") and None
    ),
    "notes beside a state": lambda site: (site.state / "notes.txt").write_text("keep") and None,
    "a segment that claims a stranger's rows": lambda site: _claiming(
        site, lambda: [f"{'0' * 16}-{'0' * 8}-0.parquet"]
    ),
    "a segment that claims paths": lambda site: _claiming(
        site, lambda: ["../../home/secret.txt", "/etc/passwd"]
    ),
    "a segment that claims another": lambda site: _claiming(
        site, lambda: [f"packed-{'0' * 32}.parquet"]
    ),
    "a text in many rows": lambda site: _repeated(site, 2_200, "A" * 10**6),
    "long versions": lambda site: _many_versions(site, 400, "A" * 10**6),
    "swollen arrays": _swollen,
    "an array that no memory holds": _endless_array,
    "rows named in other bytes": _named_in_bytes,
}


def _all_folders() -> Iterator[tuple[str, Callable[[Site], None]]]:
    for place, path_of in PLACES.items():
        for target, put in TARGETS.items():
            yield f"{place}: {target}", partial(_put, path_of, put)
    yield from SHAPES.items()


def _put(path_of: Callable[[Site], Path], put: Callable[[Site, Path], None], site: Site) -> None:
    put(site, path_of(site))


FOLDERS = dict(_all_folders())


# Files of options and of data, each made in an empty folder, and the words of the command that
# reads it.
def _options(content: bytes) -> Callable[[Path], list[str]]:
    """A file of options."""

    def make(root: Path) -> list[str]:
        (root / "c.toml").write_bytes(content)
        (root / "here").mkdir()
        (root / "here" / "theirs.py").write_text(f"open({str(root / 'ran')!r}, 'w')")
        return ["sweep", "--dry-run", "--config", str(root / "c.toml")]

    return make


def _data(name: str, path: str, content: bytes, *others: str) -> Callable[[Path], list[str]]:
    """A file of a data set; `others` have the same content."""

    def make(root: Path) -> list[str]:
        for file in (root / "data" / each for each in (path, *others)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return ["data", "prepare", name, "--offline", "--data-dir", str(root / "data")]

    return make


def _empty_pipe(root: Path) -> list[str]:
    """A pipe in place of a file of options."""
    os.mkfifo(root / "c.toml")
    return ["sweep", "--dry-run", "--config", str(root / "c.toml")]


def _csv(content: bytes) -> Callable[[Path], list[str]]:
    """A table of the user's own, with labels in the column k."""

    def make(root: Path) -> list[str]:
        (root / "t.csv").write_bytes(content)
        return ["data", "list", f"csv:{root / 't.csv'}", "--label", "k"]

    return make


def _zeros(count: int) -> bytes:
    """So many zeros, compressed, in a thousandth of the bytes."""
    block = gzip.compress(bytes(2**20))  # members of a file are read one after another
    return block * (count // 2**20)


def _archive(member: str, megabytes: int) -> bytes:
    """An archive with zeros."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(member, "w") as file,
    ):
        for _ in range(megabytes):
            file.write(bytes(2**20))
    return made.getvalue()


def _images(rows: int) -> bytes:
    """A table whose images are one of a megabyte."""
    cell = pa.array(
        [{"bytes": bytes(10**6), "path": None}],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    made = io.BytesIO()
    pq.write_table(
        pa.table({"image": pa.chunked_array([cell] * rows), "label": [0] * rows}),
        made,
        compression="zstd",
    )
    return made.getvalue()


_PICKLE = "MNIST_M/mnistm_data.pkl"
_TWICE = b"h\x00h\x00\x86q\x00"  # a tuple of the last one, twice
FILES: dict[str, Callable[[Path], list[str]]] = {
    "options with a mark": _options(b'\xef\xbb\xbfalgo = "fedavg"'),
    "a number of 80,000 bits": _options(b"rounds = 0x" + b"f" * 20_000),
    "a number of 5,000 digits": _options(b"rounds = " + b"9" * 5_000),
    "a name of 3,000 parts": _options(b"[set]\n" + b".".join([b"a"] * 3_000) + b" = 1"),
    "a table of 50,000 parts": _options(b"[" + b".".join([b"a"] * 50_000) + b"]"),
    "a list nested deep": _options(b"a = " + b"[" * 10**5),
    "a table nested deep": _options(b"a = " + b"{a = " * 10**5),
    "options of noise": _options(bytes(range(256)) * 100),
    "options that name a module": _options(b'algo = "theirs:X"'),
    "options that name a module in a set": _options(
        b'algo = "fedavg"\n[set]\npartition = "theirs:X"'
    ),
    "options that name more options": _options(b'algo = ["theirs:X", "--import", "theirs:X"]'),
    "options with a zero byte": _options(b'algo = "fedavg"\nout = "a\\u0000b"'),
    "a name of 10,000 odd parts": _options(b"[" + b".".join([b'"!"'] * 10_000) + b"]"),
    "many tables of many parts": _options(
        b"".join(b"[set." + b".".join([b"a%d" % number] * 17) + b"]\n" for number in range(1_000))
    ),
    "a date for a number": _options(b'algo = "fedavg"\nrounds = 1979-05-27'),
    "options that ask for help": _options(b'algo = ["fedavg", "-h"]'),
    "a number that is none": _options(b'algo = "fedavg"\nlr = nan\nalpha = inf\nrounds = -1'),
    "options through a pipe that nobody fills": _empty_pipe,
    "a table of 10^5 columns": _csv(b",".join(b"c%d" % number for number in range(10**5)) + b",k"),
    "a table of one name, 10^5 times": _csv(b"c," * 10**5 + b"k"),
    "a table whose labels have two signs": _csv(b"x,k\n" + b"1,--1\n2,1\n" * 9),
    "a compressed file of a gigabyte of zeros": _data(
        "mnist",
        "MNIST/raw/train-images-idx3-ubyte.gz",
        _zeros(2**30),
        "MNIST/raw/train-labels-idx1-ubyte.gz",
        "MNIST/raw/t10k-images-idx3-ubyte.gz",
        "MNIST/raw/t10k-labels-idx1-ubyte.gz",
    ),
    "a pickle with a key of 2^60 leaves": _data(
        "mnist_m", _PICKLE, b"\x80\x02}(K\x01\x85q\x00" + _TWICE * 60 + b"K\x01u."
    ),
    "a pickle with a value of 2^60 leaves": _data(
        "mnist_m", _PICKLE, b"\x80\x02}(U\x05trainK\x01\x85q\x00" + _TWICE * 60 + b"u."
    ),
    "a pickle with a deep key": _data(
        "mnist_m", _PICKLE, b"\x80\x02}K\x01" + b"\x85" * 10**6 + b"K\x01s."
    ),
    "a pickle of many lists": _data("mnist_m", _PICKLE, b"\x80\x02" + b"]" * 10**6 + b"."),
    "a pickle that runs a program": _data(
        "mnist_m", _PICKLE, b"cposix\nsystem\n(S'touch ran'\ntR."
    ),
    "a pickle of 16 GiB": _data("mnist_m", _PICKLE, b"\x80\x02]r\xff\xff\xff\x7f."),
    "an archive of zeros": _data(
        "mnist_m", "fedbn-digits.zip", _archive("MNIST_M/mnistm_data.pkl", 400)
    ),
    "tables of one image": _data(
        "usps",
        "usps/data/train-00000-of-00001.parquet",
        _images(3_000),
        "usps/data/test-00000-of-00001.parquet",
    ),
}


def read_file(name: str, root: Path) -> list[str]:
    """Make a hostile file, and run the command that reads it; return what went wrong."""
    root.mkdir()
    words = FILES[name](root)
    cwd = root / "here"
    cwd.mkdir(exist_ok=True)
    status, said, seconds = run(words, cwd)
    faults = _faults(name, status, said, seconds)
    if [*root.rglob("ran")]:
        faults.append(f"RAN {name}")
    return faults


# Commands on a folder, in this order; the last ones change it.
def commands(site: Site) -> list[list[str]]:
    """The commands, each as its words after `python -m bench`."""
    out = str(site.out)
    root = site.root
    return [
        ["compare", "--out", out],
        ["status", "--out", out],
        ["figures", "--out", out],
        ["report", "--out", out, "--to", str(root / "page.html")],
        ["boards", "validate", out],
        ["boards", "merge", out, "--out", str(root / "merged")],
        ["boards", "push", str(root / "mirror"), out],
        ["boards", "pull", out, str(root / "pulled")],
        ["sweep", "reproduce", site.key[:16], "--out", out, "--into", str(root / "reproduced")],
        ["boards", "compact", out],
        [
            "sweep",
            *SWEEP,
            "--track",
            "classes",
            "--log",
            "tensorboard",
            "--save-seconds",
            "0",
            "--out",
            out,
        ],
    ]


def sound_folder(root: Path) -> str:
    """Make `root/sound`, a folder with all kinds of files; return the key of a saved run."""
    sound = root / "sound"
    kept = [*SWEEP, "--track", "classes", "models", "--out", str(sound), "--offline"]
    for words in ([*kept, "--set", "lr=0.05"], [*kept, "--set", "lr=0.01"]):
        status, said, _ = run(["sweep", *words], root)
        assert status == 0, said
    _begun(sound)
    (key,) = [path.name for path in (sound / "state").iterdir() if len(path.name) == 64]
    return key


def _begun(out: Path) -> None:
    """Two rounds of the run of `SWEEP`, saved."""
    from bench.execution import Execution
    from bench.planning.planner import make_plan
    from bench.provenance import command_columns
    from bench.sweep.parser import parse
    from bench.sweep.preflight import completed
    from bench.trial.trial import Trial

    (run_spec,) = make_plan(completed(parse(SWEEP))).run_specs
    stop = out / "stop"
    execution = Execution(
        str(out), rounds_per_report=2, stop_file=str(stop), provenance=command_columns("test")
    )
    group = Trial([run_spec], execution)
    group.step()
    stop.touch()
    group.close()
    stop.unlink()


def warm_up() -> None:
    """Import what commands need, once for all of them."""
    import torch

    for module in (
        "sklearn.datasets",
        "bench.figures.stored_runs",
        "bench.report.page",
        "bench.sync.mirror",
        "bench.trial.trial",
    ):
        importlib.import_module(module)
    torch.set_num_threads(1)


def attack(
    name: str, sound: Path, key: str, root: Path, chance: random.Random, most: int | None = None
) -> tuple[int, list[str]]:
    """Make a hostile folder, and run so many commands on it, drawn by `chance`; None is all.

    Returns:
        How many commands were run, and what went wrong: tracebacks, hangs, and what became of the
        user's own files.
    """
    site = Site(root, key)
    shutil.copytree(sound, site.out)
    (site.home / "folder").mkdir(parents=True)
    for file in ("secret.txt", "thesis.tex", "server-1.pt", "folder/data.csv"):
        (site.home / file).write_text(f"{file}: {SECRET}")
    status, said, _ = _in_child(lambda: FOLDERS[name](site), root)
    assert status == 0, said
    before = _content(site.home)
    faults: list[str] = []
    asked = commands(site)
    drawn = sorted(chance.sample(range(len(asked)), most or len(asked)))
    asked = [asked[at] for at in drawn]
    for words in asked:
        faults += _faults(f"{name}: {' '.join(words[:2])}", *run(words, root))
    if _content(site.home) != before:
        faults.append(f"LOST {name}: the user's own files have changed")
    if leaked := [
        path
        for path in _files(root)
        if site.home not in path.parents and SECRET.encode() in path.read_bytes()
    ]:
        faults.append(f"LEAKED {name}: {leaked[0]}")
    if (site.out / "state" / key / "notes.txt").exists() != (name == "notes beside a state"):
        faults.append(f"LOST {name}: notes.txt")
    return len(asked), faults


def _faults(shown: str, status: int, said: str, seconds: float) -> list[str]:
    """What is wrong with the end of a command."""
    if seconds > PATIENCE:
        return [f"HANG {shown}"]
    if status == -signal.SIGKILL:
        return [f"MEMORY {shown}"]
    if status not in (0, 2, 3) or "Traceback" in said:
        return [f"TRACEBACK {shown}: exit {status}: {said[-300:]}"]
    return []


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in _files(folder)}


def run(words: Sequence[str], cwd: Path) -> tuple[int, str, float]:
    """Run a command in a child; its exit status, what it said, and the seconds it took."""
    return _in_child(lambda: main([*words]), cwd)


def _in_child(action: Callable[[], int | None], cwd: Path) -> tuple[int, str, float]:
    """Do something in a child, which is killed if it takes too long or too much memory."""
    began = time.monotonic()
    log = cwd / "log"
    log.touch()
    child = os.fork()
    if not child:
        _be_child(action, cwd, log)
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended:
        if time.monotonic() - began > PATIENCE or _resident(child) > MEMORY:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
        ended, status = os.waitpid(child, os.WNOHANG)
    return (
        os.waitstatus_to_exitcode(status),
        log.read_text(errors="replace"),
        time.monotonic() - began,
    )


def _be_child(action: Callable[[], int | None], cwd: Path, log: Path) -> None:
    status = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(cwd)
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (2**28, 2**28)
        )  # a copy of an endless file ends there
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        status = action() or 0
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _resident(process: int) -> int:
    """Bytes of memory that a process has."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):  # it has ended
        return 0
