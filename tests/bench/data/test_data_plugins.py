"""A data set of another package: found, read, looked at, run, and refused with a reason."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import assert_equal_results, command
from outside_world import EXAMPLE, forget, install, place, save, shapes, world

from algorithms import entry
from bench import data
from bench.data.command import main as data_command
from bench.data.dataset import MissingData, content_hash
from bench.data.outside import Arrays
from bench.data.partition import partition
from bench.data.splits import split
from bench.errors import UsageError
from bench.planning.options import SweepOptions
from bench.planning.run_spec import RunSpec, setting_identity, setting_of
from bench.sweep import command as sweep
from bench.sweep.feasible import fitting_plan
from leaderboards import Store, run_key
from search_spaces import Setting

__all__ = ["place", "world"]
OWN = (
    "--dataset",
    "my_world:SHAPES",
    "--model",
    "my_world:NET",
    "--set",
    "partition=my_world:uneven",
)
SHORT = ("--rounds", "2", "--local-epochs", "1", "--lr", "0.1")
SETTING = Setting(
    dataset="my_world:SHAPES", model="my_world:NET", partition="my_world:uneven", alpha=None
)


# The whole world


@pytest.mark.slow
def test_ray_and_inline_run_it_alike(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = command(
        "--algo", "fedavg,moon", *OWN, *SHORT, "--executor", "ray", "--out", "ray", cwd=world
    )
    assert done.returncode == 0, done.stderr
    assert (
        sweep.main(
            ["--algo", "fedavg,moon", *OWN, *SHORT, "--executor", "inline", "--out", "inline"]
        )
        == 0
    )
    assert_equal_results(world / "ray", world / "inline")
    runs = Store(world / "ray").runs().set_index("algorithm")
    assert set(runs["dataset"]) == {"my_world:SHAPES"}
    assert set(runs["partition"]) == {"my_world:uneven"}
    assert runs["model"].to_dict() == {"fedavg": "my_world:NET", "moon": "my_world:NET+head"}
    assert set(runs["dataset_hash"]) == {data.load("my_world:SHAPES").hash}
    assert min(runs["final_accuracy"]) > 0.6, "chance is a third"
    assert sweep.main(["--algo", "fedavg,moon", *OWN, *SHORT, "--out", "ray"]) == 0
    assert "2 already stored" in capsys.readouterr().err
    names = ("my_world:SHAPES", "my_world:uneven", "my_world:NET")
    assert (
        sweep.main(["reproduce", str(runs["run_key"].iloc[0]), "--out", "ray", "--import", *names])
        == 0
    )


@pytest.mark.slow
def test_short_runs_and_other_data_sets(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No paper says how long it should be; and what has hardly begun may do no better than guessing."""
    short = (
        "--rounds",
        "1",
        "--local-epochs",
        "1",
        "--lr",
        "1e-6",
        "--executor",
        "inline",
        "--out",
        "short",
    )
    assert sweep.main(["--algo", "fedavg", *OWN, *short]) == 0
    (row,) = Store(world / "short").runs().to_dict("records")
    assert (row["status"], row["diverged"], row["shortened"]) == ("finished", False, False)
    train, test = shapes()
    train[0][0, 0, 0, 0] ^= 1
    save(world, train, test)
    forget()
    capsys.readouterr()
    names = ("my_world:SHAPES", "my_world:uneven,my_world:NET")
    assert sweep.main(["reproduce", row["run_key"], "--out", "short", "--import", *names]) == 2
    assert "another version" in capsys.readouterr().err


def test_information_commands_take_it(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["--algo", "fedavg", *OWN, "--dry-run", "--json"]) == 0
    (trial,) = json.loads(capsys.readouterr().out)["trials"]
    assert (trial["partition"], trial["setting"]["dataset"]) == ("feasible", "my_world:SHAPES")
    assert data_command(["list", "my_world:SHAPES", "--json"]) == 0
    assert [(row["name"], row["here"]) for row in json.loads(capsys.readouterr().out)] == [
        ("my_world:SHAPES", True)
    ]
    shown = (
        "partition",
        "--dataset",
        "my_world:SHAPES",
        "--partition",
        "my_world:uneven",
        "--clients",
        "4",
        "--json",
    )
    assert data_command(shown) == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == [187, 63, 187, 63]
    assert data_command(["prepare", "my_world:SHAPES"]) == 0
    assert "500 " in capsys.readouterr().out


def test_installed_packages_are_listed(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "shapes = my_world:SHAPES\nbroken = nowhere:DATA"
    install(world, monkeypatch, datasets=lines, partitions="uneven = my_world:uneven")
    assert data_command(["list"]) == 0
    out = capsys.readouterr().out
    assert "My shapes" in out
    assert "no module 'nowhere'" in out
    assert data.info("shapes").name == "shapes"
    assert partition("uneven").summary.startswith("Every other client")
    with pytest.raises(UsageError, match="shapes"):
        data.info("shape")
    assert data_command(["list", "broken"]) == 2
    assert "no module 'nowhere'" in capsys.readouterr().err


# Arrays


def test_arrays_are_copied_and_hashed(world: Path) -> None:
    found = data.load("my_world:SHAPES")
    (train_x, train_y), (test_x, test_y) = shapes()
    arrays = (found.train_x, found.train_y, found.test_x, found.test_y)
    for array, original in zip(arrays, (train_x, train_y, test_x, test_y), strict=True):
        np.testing.assert_array_equal(array, original)
        assert not array.flags.writeable
    assert found.train_y.dtype == np.int64
    assert found.hash == content_hash(arrays)
    assert found is data.load("my_world:SHAPES", world), "read once"


def given(**fields: object) -> str:
    """A module whose data set has these arguments beside, or in place of, those of the example."""
    return f"from dataclasses import replace\nimport my_world\nDATA = replace(my_world.SHAPES, **{fields!r})\n"


INFO_MISTAKES = {
    "num_classes": 1,
    "test_size": 0,
    "input_shape": (8, 8),
    "groups": "user",
    "normalizations": {"standard": ((0.5,), (0.0,))},
}


@pytest.mark.parametrize("field", INFO_MISTAKES)
def test_a_mistake_in_the_entry_is_named(world: Path, field: str) -> None:
    (world / f"wrong_{field}.py").write_text(given(**{field: INFO_MISTAKES[field]}))
    with pytest.raises(UsageError, match=f"'wrong_{field}:DATA': {field}"):
        data.info(f"wrong_{field}:DATA")


@pytest.mark.parametrize("name", ["nowhere:DATA", "my_world:DATA", "my_world:NET"])
def test_a_mistake_in_the_place_is_named(world: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}'"):
        data.info(name)


ARRAY_MISTAKES = {
    "pair": ("(x, y)", "ndarray"),
    "groups": ("((x, y, y), (u, v, v))", "labels"),
    "size": ("((x[:9], y), (u, v))", "500, got shape"),
    "axis": ("((x[:, 0], y), (u, v))", r"\(500, 8, 8\)"),
    "float": ("((x / 255, y), (u, v))", "float64"),
    "range": ("((x.astype(int) * 2, y), (u, v))", "398"),
    "one hot": ("((x, np.eye(3, dtype=int)[y]), (u, v))", r"\(500, 3\)"),
    "labels from 1": ("((x, y + 1), (u, v))", "1 to 3"),
    "raises": ("1 / 0", "ZeroDivisionError"),
}


@pytest.mark.parametrize("mistake", ARRAY_MISTAKES)
def test_wrong_arrays_are_refused(world: Path, mistake: str) -> None:
    code, words = ARRAY_MISTAKES[mistake]
    name = f"arrays_{list(ARRAY_MISTAKES).index(mistake)}"
    text = f"import numpy as np\ndef read():\n    (x, y), (u, v) = my_world.read()\n    return {code}\n"
    (world / f"{name}.py").write_text(given(loader=f"{name}:read") + text)
    with pytest.raises(UsageError, match=f"'{name}:DATA'.*{words}"):
        data.load(f"{name}:DATA")


@pytest.mark.slow
def test_a_missing_file_is_missing_data(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "my_data.npz").unlink()
    assert data.read("my_world:SHAPES") is None
    assert "my_data.npz" in data.loader("my_world:SHAPES").missing(world)[0]
    with pytest.raises(MissingData, match=r"my_data\.npz"):
        data.loader("my_world:SHAPES").read(world)
    planned = command("--algo", "fedavg", *OWN, "--dry-run", "--json", cwd=world)
    assert json.loads(planned.stdout)["trials"][0]["partition"].startswith("unknown")
    assert sweep.main(["--algo", "fedavg", *OWN, "--out", "o"]) == 3
    assert "my_data.npz" in capsys.readouterr().err


def test_vectors_and_texts_are_checked_too(world: Path) -> None:
    plain = replace(data.info("my_world:SHAPES"), train_size=3, test_size=3, input_shape=(2,))
    labels = np.arange(3)

    def made(kind: str, x: np.ndarray) -> np.ndarray:
        return (
            Arrays(replace(plain, kind=kind), lambda: ((x, labels), (x, labels)))
            .read(world)
            .train_x
        )

    numbers = np.arange(6.0).reshape(3, 2)
    assert made("vectors", numbers).dtype == np.float32
    assert made("texts", numbers.astype(int)).dtype == np.int32
    with pytest.raises(UsageError, match="finite"):
        made("vectors", np.full((3, 2), np.nan))
    with pytest.raises(UsageError, match="float64"):
        made("texts", numbers)
    with pytest.raises(UsageError, match="-1 to 4"):
        made("texts", numbers.astype(int) - 1)


def test_sources_and_writers_may_be_told(world: Path) -> None:
    text = "import numpy as np\ndef read():\n    return [(x, y, np.arange(len(y)) % 5) for x, y in my_world.read()]\n"
    (world / "told.py").write_text(given(groups="source", loader="told:read") + text)
    setting = Setting(dataset="told:DATA", partition="by_source", alpha=None, num_clients=5)
    found = data.load("told:DATA")
    clients = split(setting, found.train_y, 0, found.train_groups).clients
    assert [set(found.train_groups[client]) for client in clients] == [{0}, {1}, {2}, {3}, {4}]
    with pytest.raises(UsageError, match=r"by_writer.*told:DATA"):
        split(replace(setting, partition="by_writer"), found.train_y, 0, found.train_groups)


SOURCE = """\
from bench.data.dataset import Dataset


class Own:
    def read(self, folder):
        return Dataset.of("own", *my_world.read())

    def labels(self, folder):
        return self.read(folder).train_y

    def missing(self, folder):
        return []

    def fetch(self, folder, offline):
        pass


OWN = Own()
"""


def test_a_source_is_taken_as_it_is(world: Path) -> None:
    (world / "sourced.py").write_text(given(loader="sourced:OWN") + SOURCE)
    assert data.load("sourced:DATA").hash == data.load("my_world:SHAPES").hash
    before = data.version("sourced:DATA")
    (world / "sourced.py").write_text((world / "sourced.py").read_text() + "# edited\n")
    forget()
    assert data.version("sourced:DATA") != before, "its files may not be here: the code tells"


# What some algorithms of a command need


def test_too_few_samples_name_who_takes_them(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FedCAD's server takes 32 samples a class, and there are 16 or 17."""
    options = ("--dataset", "my_world:SHAPES", "--model", "my_world:NET", "--clients", "3")
    small = ("--set", "fraction=0.1", "alpha=5", "--executor", "inline")
    assert sweep.main(["--algo", "fedavg,fedcad", *options, *SHORT, *small]) == 2
    said = capsys.readouterr().err
    assert "fedcad needs" in said
    assert said.strip().endswith("--algo fedavg")
    values = {"fraction": ("0.1",), "model": ("my_world:NET",), "num_clients": ("3",)}
    values["alpha"] = ("5",)
    plan = fitting_plan(SweepOptions(("all",), "my_world:SHAPES", values=values))
    algorithms = {run_spec.algorithm for run_spec in plan.run_specs}
    assert "fedavg_t1" in algorithms
    assert not any("auxiliary" in entry(name).needs for name in algorithms)
    assert {run_spec.setting.auxiliary_per_class for run_spec in plan.run_specs} == {0}
    (note,) = [note for note in plan.notes if "fedcad" in note]
    assert note.startswith("left out: ")
    assert "need" in note


# Keys


def test_built_in_keys_are_unchanged() -> None:
    for setting in (
        Setting(),
        Setting(dataset="cifar10", model="resnet8+head", partition="iid", alpha=None),
    ):
        assert setting_identity(setting) == setting.as_dict()
    assert RunSpec("fedavg", {}, Setting(), 0).key == run_key(
        "fedavg", 1, {}, Setting().as_dict(), 0
    )


def key(setting: Setting = SETTING) -> str:
    forget()
    sys.modules.pop("my_world", None)
    return RunSpec("fedavg", {}, setting, 0).key


def test_content_enters_the_run_key(world: Path) -> None:
    setting = Setting(dataset="my_world:SHAPES")
    before = key(setting)
    module, (train, test) = world / "my_world.py", shapes()
    module.write_text(EXAMPLE + "# a comment\n")
    assert key(setting) == before, "the data are the same"
    module.write_text(EXAMPLE.replace("(0.2,)", "(0.25,)"))
    assert key(setting) != before, "it is normalised otherwise"
    module.write_text(EXAMPLE)
    assert key(setting) == before
    train[0][0, 0, 0, 0] ^= 1
    save(world, train, test)
    assert key(setting) != before, "a pixel has changed"


@pytest.mark.parametrize("field", ["partition", "model"])
def test_the_source_is_in_the_key(world: Path, field: str) -> None:
    setting = Setting(**{field: getattr(SETTING, field)})
    before = key(setting)
    assert key(setting) == before
    (world / "my_world.py").write_text(EXAMPLE + "# a comment\n")
    assert key(setting) != before


# Numbers instead of images

TABLE = """\
import numpy as np
from torch import nn
from bench.data import DatasetInfo
from bench.models import ModelInfo


def read():
    labels = np.arange(300) % 2
    points = np.random.RandomState(0).randn(300, 5) + 2 * labels[:, None]
    return (points[:200], labels[:200]), (points[200:], labels[200:])


def body(numbers, batchnorm):
    return nn.Sequential(nn.Linear(numbers, 8), nn.ReLU())


DATA = DatasetInfo("", "a table", 2, (5,), 200, 100, 1, {"none": ((), ())}, "table:read", False, kind="vectors")
LINE = ModelInfo("table:body", "8 units", vectors=True)
"""


@pytest.mark.slow
def test_a_table_of_numbers_trains(place: Path) -> None:
    (place / "table.py").write_text(TABLE)
    options = ("--rounds", "3", "--lr", "0.1", "--executor", "inline", "--out", "o", "-q")
    assert (
        sweep.main(
            ["--algo", "fedavg,moon", "--dataset", "table:DATA", "--model", "table:LINE", *options]
        )
        == 0
    )
    runs = Store(place / "o").runs()
    assert {setting_of(text).normalization for text in runs["setting_json"]} == {"none"}
    assert min(runs["final_accuracy"]) > 0.9
    assert (
        sweep.main(["--algo", "fedgen", "--dataset", "table:DATA", "--model", "mlp", "--dry-run"])
        == 2
    )


def test_draws_without_a_seed_are_refused(world: Path) -> None:
    """Every process would have other data, under another key."""
    module = world / "my_world.py"
    noisy = 'np.random.randint(0, 9, file["train_x"].shape).astype(np.uint8), file["train_y"]'
    module.write_text(EXAMPLE.replace('file["train_x"], file["train_y"]', noisy))
    with pytest.raises(UsageError, match="my_world:SHAPES"):
        data.load("my_world:SHAPES")
