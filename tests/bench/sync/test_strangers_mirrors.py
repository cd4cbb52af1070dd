"""Mirrors and result folders of strangers: what is copied, and what stays where it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import curve_of, make_row, sound_row
from test_claims import claiming, fill

from bench import artifacts, boards
from bench.errors import UsageError
from bench.state_files import STATE_VERSION
from bench.sync.mirror import Moved, open_mirror
from bench.sync.place import MirrorProblem, open_place
from leaderboards import Store
from leaderboards.rows.compaction import compact
from leaderboards.rows.verify import validate

KEY = "ab" * 32
SECRET = "the user's own"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id_rsa").write_text(SECRET)
    return tmp_path / "home"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The mirror."""
    return tmp_path / "mirror"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def manifest_of(sums: dict[str, str], **changed: Any) -> str:
    server = next(iter(sums))
    content = {
        "version": STATE_VERSION,
        "round": 1,
        "server": server,
        "memories": {},
        "sha256": sums,
    }
    return json.dumps(content | changed)


def save_state(out: Path, content: bytes = b"state", name: str = "server-1.pt") -> None:
    put(out / "state" / KEY / name, content)
    put(out / "state" / KEY / "manifest.json", manifest_of({name: sha256(content).hexdigest()}))


def pull(out: Path, there: Path) -> Moved:
    return open_mirror(str(there), out).pull()


def push(out: Path, there: Path) -> Moved:
    return open_mirror(str(there), out).push()


@pytest.mark.parametrize(
    "name", ["../../../home/id_rsa", "{home}/id_rsa", "id_rsa", "server-1.pt/../../x"]
)
def test_a_push_reads_files_of_states_alone(name: str, out: Path, home: Path, there: Path) -> None:
    name = name.format(home=home)
    (out / "runs").mkdir(parents=True)
    put(out / "state" / KEY / "id_rsa", SECRET)
    put(
        out / "state" / KEY / "manifest.json",
        manifest_of({name: sha256(SECRET.encode()).hexdigest()}),
    )
    assert push(out, there) == Moved()
    assert files(there) == []


def test_a_push_follows_no_link_of_a_state(out: Path, home: Path, there: Path) -> None:
    (out / "runs").mkdir(parents=True)
    save_state(out, SECRET.encode())
    (out / "state" / KEY / "server-1.pt").unlink()
    (out / "state" / KEY / "server-1.pt").symlink_to(home / "id_rsa")
    assert push(out, there) == Moved()
    other = out / "state" / ("cd" * 32)
    save_state(home / "out", SECRET.encode())
    other.symlink_to(home / "out" / "state" / KEY)
    assert push(out, there) == Moved()
    assert files(there) == []


def test_a_push_takes_what_the_checksum_says(out: Path, there: Path) -> None:
    (out / "runs").mkdir(parents=True)
    save_state(out)
    put(out / "state" / KEY / "server-1.pt", b"other")
    assert push(out, there) == Moved()
    put(out / "state" / KEY / "server-1.pt", b"state")
    assert push(out, there) == Moved(states=1)


def forge(there: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest of the state in a mirror."""
    (path,) = there.glob("state/*/*/manifest.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["files"]["server-1.pt"].update(blob="../../../../home/id_rsa"),
        lambda content: content["files"]["server-1.pt"].update(
            blob="../../../../../../../../dev/zero"
        ),
        lambda content: content["files"]["server-1.pt"].update(bytes=1),
        lambda content: content["files"]["server-1.pt"].update(sha256="0" * 64),
        lambda content: (
            content["files"].update({"../../x": content["files"]["server-1.pt"]})
            or content.update(files={})
        ),
        lambda content: content["manifest"]["sha256"].update({"../../../x.pt": "0" * 64}),
        lambda content: content.update(manifest=[]),
        lambda content: content.update(files=None),
    ],
)
def test_a_pull_takes_what_the_manifest_may_say(
    change: Callable[[dict[str, Any]], Any], out: Path, home: Path, there: Path, tmp_path: Path
) -> None:
    (out / "runs").mkdir(parents=True)
    save_state(out)
    push(out, there)
    forge(there, change)
    before = files(tmp_path)
    found = pull(tmp_path / "again", there)
    assert (found.states, len(found.problems)) == (0, 1)
    assert {name for name in files(tmp_path) if not name.endswith(".lock")} <= {
        *before,
        "mirror.lock",
    }


@pytest.mark.parametrize("kind", ["link", "device", "pipe", "folder"])
@pytest.mark.parametrize(
    "place",
    ["runs/x.parquet", "curves/x.parquet", "tracked/{key}.npz", "state/{key}/w/manifest.json"],
)
def test_a_pull_passes_over_links_and_devices(
    kind: str, place: str, home: Path, there: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "out", [0])
    push(tmp_path / "out", there)
    path = there / place.format(key=KEY if "state" in place else KEY[:16])
    path.parent.mkdir(parents=True, exist_ok=True)
    {
        "link": lambda: path.symlink_to(home / "id_rsa"),
        "device": lambda: path.symlink_to("/dev/zero"),
        "pipe": lambda: os.mkfifo(path),
        "folder": lambda: path.symlink_to(home),
    }[kind]()
    again = tmp_path / "again"
    found = pull(again, there)
    assert (found.rows, found.tracked, found.states) == (1, 0, 0)
    assert not [
        name
        for name in files(again)
        if SECRET in (again / name).read_bytes().decode(errors="ignore")
    ]


def test_a_mirror_behind_links_is_not_written(out: Path, home: Path, there: Path) -> None:
    fill(out, [0])
    there.mkdir()
    (there / "runs").symlink_to(home)
    with pytest.raises(MirrorProblem):
        push(out, there)
    assert files(home) == ["id_rsa"]


def test_a_mirror_may_itself_be_a_link(out: Path, there: Path, tmp_path: Path) -> None:
    fill(out, [0])
    there.mkdir()
    (tmp_path / "link").symlink_to(there)
    for url in (str(tmp_path / "link"), (tmp_path / "link").as_uri()):
        assert open_mirror(url, out).pull() == Moved()
        open_mirror(url, out).push()
    assert len(files(there)) == 2


def test_a_file_that_grows_is_given_up(there: Path, tmp_path: Path) -> None:
    put(there / "runs" / "x", b"12345")
    place = open_place(str(there))
    with pytest.raises(MirrorProblem):
        place.fetch("runs/x", tmp_path / "in" / "x", 4)
    assert files(tmp_path / "in") == []
    assert place.read("runs/x", 5) == b"12345"


@pytest.mark.parametrize("part", ["runs", "curves", "tracked", "state"])
def test_a_folder_with_linked_parts_is_refused(
    part: str, out: Path, home: Path, there: Path
) -> None:
    fill(out, [0])
    push(out, there)
    with_link = out.with_name("linked")
    with_link.mkdir()
    for name in {"runs", "curves"} - {part}:
        (out / name).rename(with_link / name)
    (with_link / part).symlink_to(home)
    for words in (
        ["push", str(there), str(with_link)],
        ["pull", str(there), str(with_link)],
        ["validate", str(with_link)],
    ):
        assert boards.main(words) in ((3, 0) if part in ("tracked", "state") else (3,))
    assert files(home) == ["id_rsa"]


# Segments


def test_a_claim_removes_nothing_of_others(out: Path, there: Path, tmp_path: Path) -> None:
    names = {path.name for path in fill(out, range(2))}
    push(out, there)
    theirs = tmp_path / "theirs"
    fill(theirs, range(2, 4))
    claiming(theirs, names)
    assert boards.main(["merge", str(theirs), "--out", str(out)]) == 0
    push(out, there)
    assert {*names} <= {path.name for path in (there / "runs").iterdir()}
    push(theirs, there)
    assert {*names} <= {path.name for path in (there / "runs").iterdir()}
    pull(theirs, there)
    assert len(Store(theirs).runs()) == 4


def test_a_worse_row_removes_nothing(out: Path, there: Path, tmp_path: Path) -> None:
    """Its run and environment are those of the file that it claims to replace."""
    row = make_row(local_accuracy_mean=None)
    path = Store(out).write(row, curve_of(0))
    push(out, there)
    theirs = tmp_path / "theirs"
    Store(theirs).write(row | {"best_accuracy": 1.0}, curve_of(0))
    Store(theirs).write(make_row(seed=1), curve_of(1))
    claiming(theirs, [path.name])
    push(theirs, there)
    assert path.name in {each.name for each in (there / "runs").iterdir()}
    assert [fault for fault in validate(there).faults if "disagree" in fault.problem]


def test_a_right_claim_still_compacts_the_mirror(out: Path, there: Path) -> None:
    names = {path.name for path in fill(out, range(3))}
    push(out, there)
    compact(out)
    push(out, there)
    assert not names & {path.name for path in (there / "runs").iterdir()}
    assert files(there / "runs") == files(there / "curves") == files(out / "runs")


# Tracked files


def track(out: Path, values: Iterable[float], forced: bool = False) -> dict[str, Any]:
    """A row with a tracked model of these values."""
    row = sound_row(curve_of(0))
    tensors = {"weight": np.array(values, np.float32)}
    names = [artifacts.write_tensors(out, row["run_key"], tensors, {})]
    names.append(artifacts.write_arrays(out, row["run_key"], {"made/values": np.array(values)}))
    Store(out).write(row, curve_of(0), forced, names)
    return row


def test_a_forced_model_reaches_other_machines(out: Path, there: Path, tmp_path: Path) -> None:
    """It has the size of the one before."""
    other = tmp_path / "other"
    key = track(out, [1.0])["run_key"]
    push(out, there)
    assert pull(other, there).tracked == 2
    track(out, [2.0], forced=True)
    assert push(out, there).tracked == 2
    assert pull(other, there).tracked == 2
    for folder in (out, other, there):
        assert artifacts.arrays(folder, key)["made/values"].tolist() == [2.0]
        assert (
            artifacts.path_of(folder, key, "safetensors").name
            == artifacts.path_of(out, key, "safetensors").name
        )
    assert push(other, there) == pull(out, there) == Moved()


def test_a_damaged_tracked_file_is_named(out: Path, there: Path, tmp_path: Path) -> None:
    track(out, [1.0])
    push(out, there)
    (model,) = (there / "tracked").glob("*.safetensors")
    model.write_bytes(bytes(model.stat().st_size))
    found = pull(tmp_path / "other", there)
    assert (found.rows, found.tracked, len(found.problems)) == (1, 1, 1)
    assert not (tmp_path / "other" / "tracked" / model.name).exists()


def test_only_tracked_files_travel(out: Path, home: Path, there: Path, tmp_path: Path) -> None:
    track(out, [1.0])
    names = {path.name for path in (out / "tracked").iterdir()}
    put(out / "tracked" / "notes.npz", SECRET)
    put(out / "tracked" / f"{KEY[:16]}.txt", SECRET)
    (out / "tracked" / f"{KEY[:16]}.npz").symlink_to(home / "id_rsa")
    os.mkfifo(out / "tracked" / f"{KEY[:16]}.safetensors")
    push(out, there)
    assert boards.main(["merge", str(out), "--out", str(tmp_path / "merged")]) == 0
    for folder in (there, tmp_path / "merged"):
        assert {path.name for path in (folder / "tracked").iterdir()} == names


# URLs


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/x?secret_key=HUSH",
        "abfs://container@account/x?client_secret=HUSH",
        "s3://bucket/x?zone=HUSH",
        "ftp://host/x?q=HUSH",
        "s3://bucket/%zz?a=HUSH",
        "s3://bucket/x?a=HUSH&HUSH",
    ],
)
def test_a_refused_url_keeps_its_query(
    url: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(out, [0])
    assert boards.main(["push", url, str(out)]) == 2
    assert "HUSH" not in capsys.readouterr().err


def test_a_mirror_in_nobodys_home_is_refused() -> None:
    with pytest.raises(UsageError):
        open_place("~nosuchuser/mirror")
