"""Result folders of earlier versions: read, merged, compacted, pulled, gone on from, and shown with new numbers.

Each folder of `tests/data` named `results_*` is one, with the numbers that it must give
(`tests/golden.py` makes them). `results_v1` is of before files were named by their content, and has
a `mirror`, which `boards push` wrote of it. `results_v2` is the last whose rows have `accuracy_at`
and `rounds_to`. `results_v3` is of 0.2.0, with clients of unlike models and numbers of clients' own
samples.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, saved_round

from bench import artifacts, boards
from bench.planning.run_spec import setting_identity, setting_of
from bench.sweep import command as sweep
from leaderboards import Store, canonical_json, run_key
from leaderboards.rows.store import Folders
from search_spaces import Setting, setting_fields
from search_spaces.setting import FIRST

DATA = ROOT / "tests/data"
VERSIONS = sorted(path.name for path in DATA.glob("results_*"))
SOURCES = sorted(
    f"{path.parent.name}/{path.name}" for path in DATA.glob("results_*/*") if path.is_dir()
)
EXPECTED = {
    version: json.loads((DATA / version / "expected.json").read_text()) for version in VERSIONS
}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(version: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / version / "folder", tmp_path / "folder"))


def accuracies(out: Path, key: str) -> list[float]:
    curves = Store(out).curves([key])
    return list(curves[curves["metric"] == "accuracy"].sort_values("round")["value"])


def assert_expected(out: Path, version: str) -> None:
    runs = Store(out).runs().set_index("run_key")
    stored: dict[str, dict[str, Any]] = EXPECTED[version]["stored"]
    assert set(stored) <= set(runs.index)
    for key, expected in stored.items():
        for name in expected.keys() - {"accuracy"}:
            value = runs.loc[key, name]
            assert value == expected[name] or (value != value and expected[name] is None), name
        assert accuracies(out, key) == expected["accuracy"]
    (kept,) = runs.index[runs["local_accuracy_mean"].notna()]
    assert "local/accuracy" in artifacts.arrays(out, kept)


def test_it_is_read_and_in_order(folder: Path, version: str) -> None:
    assert_expected(folder, version)
    assert boards.main(["validate", str(folder)]) == 0


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_merged_and_compacted(source: str, tmp_path: Path) -> None:
    out, version = tmp_path / "out", source.partition("/")[0]
    for _ in range(2):
        assert boards.main(["merge", str(DATA / source), "--out", str(out)]) == 0
        assert_expected(out, version)
    assert boards.main(["compact", str(out)]) == 0
    assert_expected(out, version)
    everything = [str(DATA / each) for each in SOURCES]
    assert boards.main(["merge", *everything, "--out", str(tmp_path / "all")]) == 0
    assert boards.main(["compact", str(tmp_path / "all")]) == 0
    assert_expected(tmp_path / "all", version)
    assert boards.main(["validate", str(tmp_path / "all")]) == 0


@pytest.mark.parametrize("source", SOURCES)
def test_its_interrupted_run_goes_on(
    source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, mirror = tmp_path / "out", tmp_path / "mirror"
    version, _, kind = source.partition("/")
    interrupted = EXPECTED[version]["interrupted"]
    more = []
    if kind == "folder":
        shutil.copytree(DATA / source, out)
        assert saved_round(out) == interrupted["round"]
    else:
        shutil.copytree(DATA / source, mirror)
        more = ["--mirror", str(mirror)]
    assert sweep.main([*interrupted["command"].split(), "--out", str(out), *more]) == 0
    assert "1 from where it was saved" in capfd.readouterr().err
    assert accuracies(out, interrupted["run_key"]) == pytest.approx(
        interrupted["accuracy"], abs=0.02
    )
    assert_expected(out, version)
    if more:
        assert_expected(mirror, version)
        assert not list((mirror / "state").rglob("*.json")), "the run is over"


def test_a_failed_run_of_it_is_run_again(folder: Path, version: str) -> None:
    words = EXPECTED[version]["interrupted"]["failed"].split()
    failed = [key for key, status in Store(folder).status().items() if status == "failed"]
    assert sweep.main([*words, "--out", str(folder)]) == 0
    assert {Store(folder).status()[key] for key in failed} == {"finished"}
    assert len(Store(folder).runs()) == len(EXPECTED[version]["stored"])


ADD = """
import sys
from pathlib import Path
from types import ModuleType

source = Path("leaderboards/numbers.py").read_text()
entry = '_of(_accuracy, "first_accuracy", value_at("accuracy", at_round(1)), short="first"),'
place = '        METRICS["amp"],'
assert place in source
module = sys.modules["leaderboards.numbers"] = ModuleType("leaderboards.numbers")
exec(source.replace(place, entry + place), vars(module))

from bench import boards
from bench.compare import command as compare
from leaderboards import Store

out = sys.argv[1]
before = {path: path.read_bytes() for path in Path(out).rglob("*.parquet")}
for row in Store(out).runs().to_dict("records"):
    print("first", row["run_key"], row["first_accuracy"])
compare.main(["--out", out, "--metric", "first", "--format", "csv"])
print("validate", boards.main(["validate", out]))
assert {path: path.read_bytes() for path in Path(out).rglob("*.parquet")} == before
print("compact", boards.main(["compact", out]), boards.main(["validate", out]))
for row in Store(out).runs().to_dict("records"):
    print("again", row["run_key"], row["first_accuracy"])
"""


def test_a_number_added_later_shows_in_it(folder: Path, version: str) -> None:
    """One entry in the source of `leaderboards.numbers` is all that the code gains; no stored file changes."""
    command = [sys.executable, "-c", ADD, str(folder)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = {
        key: str(run["accuracy"][0]) if run["accuracy"] else "nan"
        for key, run in EXPECTED[version]["stored"].items()
    }
    for word in ("first", "again"):
        found = dict(line.split()[1:] for line in said.splitlines() if line.startswith(f"{word} "))
        assert found == expected
    assert "validate 0" in said
    assert "compact 0 0" in said
    assert ",first_accuracy," in said
    # What an older version compacts, or stores beside it, stays readable here.
    assert_expected(folder, version)
    assert boards.main(["validate", str(folder)]) == 0


BOARDS = [
    *(path for path in SOURCES if path.endswith("folder")),
    "../../leaderboards/reference",
    "../../leaderboards/reproduced.parquet",
]


@pytest.mark.parametrize("board", BOARDS)
def test_settings_of_stored_rows_keep_their_identity(board: str) -> None:
    """A new field that enters the identity at its default would orphan all of them."""
    runs = Folders([DATA / board]).runs()
    assert len(runs)
    for row in runs.to_dict("records"):
        setting = setting_of(row["setting_json"])
        assert canonical_json(setting_identity(setting)) == row["setting_json"]
        parts = (json.loads(row["hp_json"]), setting_identity(setting), row["seed"])
        assert run_key(row["algorithm"], row["algorithm_version"], *parts) == row["run_key"]


def test_a_field_added_later_is_no_part_of_an_identity() -> None:
    """Fields at their default beside those of the first version, which are these for ever."""
    assert len(FIRST) == 31
    assert Setting().as_dict().keys() == FIRST
    setting = Setting(local_test_fraction=0.25)  # some fields need clients with tests of their own
    of_kind = {"str": "a" * 64, "float": 0.25}
    for item in setting_fields().values():
        if item.name not in FIRST:
            choices = item.metadata["bounds"].choices
            value = choices[-1] if choices else of_kind.get(str(item.type), 1)
            value = "own" if item.name == "public" else value
            other = dataclasses.replace(setting, **{item.name: value})
            assert other.as_dict().keys() - FIRST == {item.name}
