"""`bench.boards`: folders of several machines become one, and what is wrong with a folder is said by name."""

from __future__ import annotations

import importlib.util
import json
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from commands import ROOT
from rows import CURVE, START, failed_row, make_row, sound_row

from bench.boards import main, merge
from bench.sync.mirror import Moved
from leaderboards import Store
from leaderboards.rows.compaction import compact

LATER = START + timedelta(days=1)
GPU = {"device": "gpu"}


def curve_of(level: float) -> list[tuple[int, str, float]]:
    """A curve of three rounds that reaches `level`, with all counters."""
    points: list[tuple[int, str, float]] = []
    for t in (1, 2, 3):
        points += [(t, "accuracy", level * (t / 3)), (t, "val_accuracy", level * t / 4)]
        points += [
            (t, name, float(t))
            for name in ("communications", "bytes_down", "bytes_up", "train_steps")
        ]
    return points


def add(
    store: Store, level: float = 0.5, algorithm: str = "fedavg", seed: int = 0, **columns: Any
) -> Path:
    """Store a run whose results are those of its curve."""
    curve = curve_of(level)
    hyperparameters = columns.pop("hyperparameters", {"mu": 0.1})
    return store.write(sound_row(curve, algorithm, hyperparameters, seed=seed, **columns), curve)


@pytest.fixture
def laptop(tmp_path: Path) -> Store:
    store = Store(tmp_path / "laptop")
    for seed in range(3):
        add(store, (4 + seed) / 10, seed=seed)
    add(store, 0.3, "fedprox", hyperparameters={"mu": 1})
    return store


@pytest.fixture
def server(tmp_path: Path) -> Store:
    store = Store(tmp_path / "server")
    for seed in (2, 3):
        add(store, (4 + seed) / 10, seed=seed, finished=LATER)
    add(store, 0.45, seed=0, finished=LATER, **GPU)
    return store


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def parquets(folder: Path) -> dict[Path, bytes]:
    return {path: content for path, content in tree(folder).items() if path.suffix == ".parquet"}


def merged(
    capsys: pytest.CaptureFixture[str], out: Path, *stores: Store, status: int = 0
) -> dict[str, Any]:
    capsys.readouterr()
    assert (
        main(["merge", *(str(store.out) for store in stores), "--out", str(out), "--json"])
        == status
    )
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# Merging


@pytest.mark.parametrize("packed", [False, True])
def test_folders_become_one_and_sources_stay(laptop, server, tmp_path, capsys, packed):
    if packed:
        compact(laptop.out)
        compact(server.out)
    before = tree(laptop.out) | tree(server.out)
    done = merged(capsys, tmp_path / "all", laptop, server)
    assert tree(laptop.out) | tree(server.out) == before
    assert (done["rows"], done["new"]) == (7, 6)
    runs = Store(tmp_path / "all").runs(replicates=True)
    assert len(runs) == 6
    assert runs[runs["seed"] == 2]["finished"].tolist() == [LATER], (
        "of equal results the one written last"
    )
    assert len(Store(tmp_path / "all").runs()) == 5  # a replicate is no seed
    rows = pd.concat([laptop.runs(replicates=True), server.runs(replicates=True)])
    for row in runs.to_dict("records"):
        same = (rows["run_key"] == row["run_key"]) & (rows["finished"] == row["finished"])
        original = rows[same].iloc[0]
        assert {k: v for k, v in row.items() if v == v} == {
            k: v for k, v in original.to_dict().items() if v == v
        }
    curves = Store(tmp_path / "all").curves()
    own = laptop.curves()
    assert curves.groupby("run_key").size().eq(18).all()
    one = own["run_key"].iloc[0]
    assert (
        curves[curves["run_key"] == one]["value"].tolist()
        == own[own["run_key"] == one]["value"].tolist()
    )
    files = parquets(tmp_path / "all")
    assert tmp_path / "all" / "leaderboard.parquet" in files
    assert merged(capsys, tmp_path / "all", laptop, server)["new"] == 0
    assert parquets(tmp_path / "all") == files
    assert main(["validate", str(tmp_path / "all")]) == 0


def test_unlike_results_are_kept_on_request(laptop, server, tmp_path, capsys):
    add(server, 0.7, seed=0, finished=LATER)
    assert main(["merge", str(laptop.out), str(server.out), "--out", str(tmp_path / "all")]) == 3
    said = capsys.readouterr().err
    assert f"{laptop.out}/runs/" in said
    assert f"{server.out}/runs/" in said
    assert parquets(tmp_path / "all") == {}
    for _ in range(2):
        assert (
            main(
                [
                    "merge",
                    str(laptop.out),
                    str(server.out),
                    "--out",
                    str(tmp_path / "all"),
                    "--keep-both",
                ]
            )
            == 0
        )
        runs = Store(tmp_path / "all").runs(replicates=True)
        assert sorted(
            runs[(runs["seed"] == 0) & (runs["algorithm"] == "fedavg")]["best_accuracy"]
        ) == [0.45, 0.7]
    assert main(["validate", str(tmp_path / "all")]) == 3
    compact(tmp_path / "all")
    assert main(["validate", str(tmp_path / "all")]) == 3, "it stays an error"


@pytest.mark.parametrize("packed", [False, True])
def test_finished_rows_replace_failed_rows(laptop, server, tmp_path, capsys, packed):
    server.write(failed_row("fedprox", {"mu": 1}, finished=LATER), [])
    assert merged(capsys, tmp_path / "all", server)["new"] == 4
    if packed:
        compact(tmp_path / "all")
    done = merged(capsys, tmp_path / "all", laptop)
    assert done["new"] == 3
    assert set(Store(tmp_path / "all").runs(replicates=True)["status"]) == {"finished"}
    assert merged(capsys, tmp_path / "all", server)["new"] == 0


def test_a_compacted_copy_merges_as_one(laptop, server, tmp_path, capsys):
    """Whichever of the two is compacted: files that a segment stands in for are not copied."""
    merged(capsys, tmp_path / "all", laptop)
    compact(laptop.out)
    assert merged(capsys, tmp_path / "all", laptop, server)["new"] == 3
    compact(tmp_path / "all")
    before = parquets(tmp_path / "all")
    assert merged(capsys, tmp_path / "all", laptop, server)["new"] == 0
    assert len(before) == 3, "a segment, its curves and the leaderboard"
    assert parquets(tmp_path / "all") == before
    assert main(["validate", str(tmp_path / "all")]) == 0


@pytest.mark.parametrize("damage", ["cut", "key", "newer"])
def test_a_fault_stops_the_merge(laptop, server, tmp_path, capsys, damage):
    path = next((server.out / "runs").glob("*.parquet"))
    {
        "cut": _cut,
        "key": lambda path: change(path, seed=77),
        "newer": lambda path: _version(path, 2),
    }[damage](path)
    assert main(["merge", str(laptop.out), str(server.out), "--out", str(tmp_path / "all")]) == 3
    assert str(path) in capsys.readouterr().err
    assert parquets(tmp_path / "all") == {}


@pytest.mark.slow
def test_an_interrupted_merge_is_completed_later(laptop, server, tmp_path, capsys, monkeypatch):
    merged(capsys, tmp_path / "whole", laptop, server)
    expected = Store(tmp_path / "whole")

    class Killed(BaseException):
        pass

    steps, rename = 0, Path.replace
    for last in (0, 1, 2, 7, 8):
        out, steps = tmp_path / str(last), 0

        def replace(source: Path, target: Path, last: int = last) -> Path:
            nonlocal steps
            if steps >= last:
                raise Killed
            steps += 1
            return rename(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            with pytest.raises(Killed):
                main(["merge", str(laptop.out), str(server.out), "--out", str(out)])
        runs = Store(out).runs(replicates=True)
        assert not set(runs["run_key"]) - set(expected.runs()["run_key"])
        assert set(Store(out).curves()["run_key"]) == set(runs["run_key"])
        merged(capsys, out, laptop, server)
        pd.testing.assert_frame_equal(Store(out).runs(True), expected.runs(True))
        pd.testing.assert_frame_equal(Store(out).curves(), expected.curves())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["merge", "{laptop}", "--out", "{laptop}"], "{laptop}"),
        (["merge", "{laptop}/nowhere", "--out", "x"], "{laptop}/nowhere"),
        (["validate", "{laptop}/runs"], "{laptop}/runs"),
    ],
)
def test_a_wrong_request_is_refused(laptop, capsys, arguments, problem):
    assert main([argument.format(laptop=laptop.out) for argument in arguments]) == 2
    assert problem.format(laptop=laptop.out) in capsys.readouterr().err


TEXTS = {
    "validate": "8 files, 4 rows, 72 points in {out}: nothing wrong\n",
    "compact": "4 files of rows in {out}, 1 now\n",
    "push {there}": "4 rows pushed: {out} -> {there}\n",
    "pull {there}": "nothing new fetched: {there} -> {out}\n",
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "validate": {"files": 8, "rows": 4, "points": 72, "faults": []},
    "compact": {"before": 4, "after": 1},
    "push {there}": {"url": "{there}", "rows": 4, "tracked": 0, "states": 0, "problems": []},
    "pull {there}": {"url": "{there}", "rows": 0, "tracked": 0, "states": 0, "problems": []},
}


@pytest.mark.parametrize("action", TEXTS)
def test_an_action_says_what_it_did(action, laptop, tmp_path, capsys, monkeypatch):
    """Of the folder that is named, or of the usual one."""
    there = tmp_path / "there"
    if "pull" in action:
        main(["push", str(there), str(laptop.out)])
        capsys.readouterr()
    words = action.format(there=there).split()
    places = {"out": str(laptop.out), "there": str(there)}
    if action != "compact":
        monkeypatch.setenv("FEDKD_OUT", str(laptop.out))
        assert main([*words, "--json"]) == 0
        document = {"out": str(laptop.out)} | DOCUMENTS[action]
        said = json.loads(capsys.readouterr().out)
        assert {name: said[name] for name in document} == {
            name: value.format(**places) if isinstance(value, str) else value
            for name, value in document.items()
        }
    if "push" in action:
        there = places["there"] = tmp_path / "second"
        words = action.format(there=there).split()
    assert main([*words, str(laptop.out)]) == 0
    assert capsys.readouterr().out == TEXTS[action].format(**places)


def test_a_merge_says_what_is_new(laptop, server, tmp_path, capsys):
    out = tmp_path / "all"
    sources = [str(laptop.out), str(server.out)]
    assert main(["merge", *sources, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"14 files read, 7 rows\n6 new rows in {out}\n"
    assert said.err == ""


def test_a_compaction_is_counted_as_json(laptop, capsys):
    assert main(["compact", str(laptop.out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["out"], said["before"], said["after"]) == (str(laptop.out), 4, 1)


def test_faults_are_listed_with_their_number(laptop, capsys):
    change(next((laptop.out / "runs").glob("*.parquet")), seconds=-1.0)
    assert main(["validate", str(laptop.out)]) == 3
    *listed, last = capsys.readouterr().out.splitlines()
    assert last.endswith(f" in {laptop.out}: {len(listed)} fault{'s' * (len(listed) > 1)}")
    assert "changed since it was written" in listed[0]


def test_copies_of_data_are_noted(laptop, tmp_path, capsys):
    other = Store(tmp_path / "other")
    add(other, 0.5, seed=9, dataset_hash="cd" * 32)
    assert main(["merge", str(laptop.out), str(other.out), "--out", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().err.endswith("; tables mark them\n")


def test_no_results_are_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path / "usual"))
    for words, advice in (([], "; name one, or set FEDKD_OUT"), ([str(tmp_path)], "")):
        assert main(["validate", *words]) == 2
        folder = tmp_path if words else tmp_path / "usual"
        text = f"error: {folder} is no result folder: it has no folder runs{advice}\n"
        assert capsys.readouterr().err == text


# Validating


def faults(capsys: pytest.CaptureFixture[str], store: Store) -> list[dict[str, str]]:
    """What validate finds, having changed nothing."""
    before = tree(store.out)
    capsys.readouterr()
    status = main(["validate", str(store.out), "--json"])
    assert tree(store.out) == before
    found = json.loads(capsys.readouterr().out)["faults"]
    assert status == (3 if found else 0)
    return list(found)


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_in_order_has_no_faults(laptop, server, capsys, packed):
    server.write(failed_row("moon"), [])
    for store in (laptop, server):
        if packed:
            compact(store.out)
        store.rebuild()
        assert faults(capsys, store) == []
    assert main(["validate", str(laptop.out)]) == 0
    assert "4 rows, 72 points" in capsys.readouterr().out


def change(path: Path, **columns: Any) -> None:
    """Write other values into a file of one row."""
    import pyarrow as pa

    table = pq.read_table(path)
    for name, value in columns.items():
        at = table.column_names.index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array([value] * table.num_rows, field.type))
    pq.write_table(table, path)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _without_status(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["status"]), path)


def _version(path: Path, version: int) -> None:
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"fedkd_schema_version": str(version).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"accuracy")
    content[at : at + 8] = b"ACCURACY"
    path.write_bytes(content)


def _curve(path: Path) -> Path:
    return path.parent.parent / "curves" / path.name


DAMAGES: dict[str, tuple[Any, str, str]] = {
    "truncated": (_cut, "parquet", "delete"),
    "foreign": (lambda path: (path.parent / "notes.txt").write_text("x"), "parquet", "move"),
    "newer": (lambda path: _version(path, 2), "schema version 2", "upgrade"),
    "column": (_without_status, "status", "delete"),
    "no curve": (lambda path: _curve(path).unlink(), "curve", "curves/"),
    "no row": (lambda path: path.unlink(), "without a row", "delete"),
    "key": (lambda path: change(path, algorithm_version=2), "identity", "sweep"),
    "summary": (lambda path: change(path, best_accuracy=0.875), "best_accuracy is 0.875", "sweep"),
    "a byte": (lambda path: _flip(_curve(path)), "hash", "delete"),
    "range": (lambda path: change(path, seconds=-1.0), "seconds", "sweep"),
    "board": (
        lambda path: (path.parent.parent / "leaderboard.parquet").write_bytes(b"x"),
        "no readable",
        "sweep",
    ),
}


def test_no_advice_deletes_a_segment(laptop, capsys):
    change(next(path for path in (laptop.out / "runs").glob("*.parquet")), seconds=-1.0)
    compact(laptop.out)
    listed = faults(capsys, laptop)
    assert listed
    assert all("--force" in fault["next_step"] for fault in listed)


def test_a_merge_brings_missing_curves(laptop, tmp_path):
    for folder in ("first", "second"):
        merge([laptop.out], tmp_path / folder)
    lost = next((tmp_path / "first" / "curves").iterdir())
    lost.unlink()
    merge([tmp_path / "second"], tmp_path / "first")
    assert lost.exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_faults_name_the_next_step(laptop, capsys, damage):
    make, problem, step = DAMAGES[damage]
    path = next(path for path in (laptop.out / "runs").glob("*.parquet"))
    make(path)
    found = faults(capsys, laptop)
    assert any(problem in entry["problem"] and step in entry["next_step"] for entry in found), found
    assert all(entry["file"] for entry in found)


# Reading without this package


@pytest.fixture
def growing(laptop: Store) -> Store:
    """A pack and, beside it, a run with other hyper-parameters."""
    compact(laptop.out)
    add(laptop, 0.3, "fedcad", seed=5, hyperparameters={"beta": 2})
    return laptop


def test_documented_lines_expand_the_hyperparameters(growing, monkeypatch):
    """The line for pandas and the query for DuckDB in docs/results.md, as they stand there."""
    text = (ROOT / "docs" / "results.md").read_text()
    monkeypatch.chdir(growing.out.parent)
    growing.out.rename("leaderboards")
    (line,) = re.findall(r"^hyperparameters = pd.*$", text, re.MULTILINE)
    frame = pd.concat(map(pd.read_parquet, Path("leaderboards/runs").glob("*.parquet")))
    scope: dict[str, Any] = {"pd": pd, "json": json, "runs": frame}
    exec(line, scope)
    values = (
        scope["hyperparameters"]
        .assign(algorithm=frame["algorithm"].to_numpy())
        .groupby("algorithm")
    )
    assert values["mu"].max().dropna().to_dict() == {"fedavg": 0.1, "fedprox": 1}
    assert values["beta"].max().dropna().to_dict() == {"fedcad": 2}
    assert len(pd.read_parquet("leaderboards/curves")) == 90
    if importlib.util.find_spec("duckdb"):
        import duckdb

        (query,) = re.findall(r'by_mu = duckdb\.sql\("""\n(.*?)"""\)', text, re.DOTALL)
        assert dict(duckdb.sql(query).fetchall()) == pytest.approx({0.1: 0.5, 1.0: 0.3})


def test_documented_lines_read_a_confirmed_board(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "leaderboards")
    for seed in range(3):
        for mu in (0.1, 1.0):
            store.write(make_row("fedprox", {"mu": mu}, {"participation": 0.5}, seed), CURVE)
    text = (ROOT / "docs" / "results.md").read_text()
    start = "from leaderboards import Store\nfrom leaderboards.board "
    (block,) = re.findall(rf"```python\n({start}.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(block, scope)
    assert sorted(scope["runs"]["seed"]) == [1, 2]
    assert scope["board"]["chosen_on"].tolist() == ["seed 0 at participation=0.5"]


def test_units_are_in_every_file(laptop):
    for path in (laptop.out / "runs").glob("*.parquet"):
        assert json.loads(pq.read_schema(path).metadata[b"fedkd_units"])["bytes_up"] == "bytes"


def test_what_was_not_moved_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = Moved(rows=2, problems=("one is damaged", "another, too"))
    opened: list[Any] = []

    def open_mirror(url: str, out: Path, read_only: bool = False) -> Any:
        opened.append((url, out, read_only))
        return SimpleNamespace(push=lambda: moved, pull=lambda: moved)

    monkeypatch.setattr("bench.sync.mirror.open_mirror", open_mirror)
    (tmp_path / "runs").mkdir()
    for action, way, verb in (
        ("push", f"{tmp_path} -> s3://b", "pushed"),
        ("pull", f"s3://b -> {tmp_path}", "fetched"),
    ):
        assert main([action, "s3://b", str(tmp_path)]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "one is damaged",
            "another, too",
            f"2 rows {verb}: {way}",
        ]
    assert opened == [("s3://b", tmp_path, False), ("s3://b", tmp_path, True)]


HELP = "`python -m bench.boards {}--help` shows the options"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "required: merge | validate | compact | push | pull; " + HELP.format("")),
        (["merge", "a"], "required: --out; " + HELP.format("merge ")),
        (["validate", "."], "it has no folder runs"),
        (["validate"], "it has no folder runs; name one, or set FEDKD_OUT"),
    ],
)
def test_what_is_missing_is_named(
    words: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKD_OUT", raising=False)
    try:
        status: object = main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert capsys.readouterr().err.strip().endswith(problem)
