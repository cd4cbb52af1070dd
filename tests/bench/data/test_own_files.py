"""A user's own files as a data set: `folder:PATH` and `csv:PATH`."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import assert_equal_results, run
from PIL import ExifTags, Image

from algorithms.entry_points import names_of_rows
from bench import data
from bench.boards import main as boards
from bench.data import own
from bench.data.command import main as data_command
from bench.errors import EnvironmentProblem, UsageError
from bench.execution import Execution
from bench.executors.ray_executor import trainable_for
from bench.executors.ray_trainable import run_spec_of
from bench.planning.options import SweepOptions, parse_set
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.sweep import command as sweep
from leaderboards import Store

SHORT = ("--algo", "fedavg", "--clients", "2", "--rounds", "2", "--local-epochs", "1")
ODD = "pics, a: b"  # a comma, a colon and a space, each of which separates names elsewhere
SIDE = 6


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared copies of this test's own, and a process that knows no data set yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "defined", {})
    own._loaded.cache_clear()


def images(root: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 10) -> Path:
    """A folder of images of each class, whose brightness tells it."""
    generator = np.random.RandomState(len(root.name))
    for number, name in enumerate(classes):
        folder = root / name
        folder.mkdir(parents=True)
        for position in range(count):
            pixels = generator.randint(0, 100, (SIDE, SIDE, 3)) + 150 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{position}.png")
    return root


def table(path: Path, lines: str = "") -> Path:
    """A CSV file of two numbers and a label, or of other lines."""
    rows = [f"{number % 3},{number / 7},{'abc'[number % 3]}" for number in range(30)]
    path.write_text(lines or "\n".join(["x,y,kind", *rows]))
    return path


def key_of(dataset: str, label: str = "") -> str:
    """The run key of a run on it."""
    values = {"label": (label,)} if label else {}
    (run_spec,) = make_plan(SweepOptions(("fedavg",), dataset, values=values)).run_specs
    return run_spec.key


# What is read


def test_a_folder_is_read_by_class(tmp_path: Path) -> None:
    root = images(tmp_path / ODD, ("b", "a", "B"))
    (root / ".hidden").mkdir()
    (root / "LICENSE").write_text("beside the classes")
    name = data.named(f"folder:{root}")
    info = data.info(name)
    dataset = data.load(name)
    assert (info.num_classes, info.input_shape) == (3, (3, SIDE, SIDE))
    assert (info.train_size, info.test_size) == (24, 6), "a fifth of each class is the test part"
    assert np.bincount(dataset.test_y).tolist() == [2, 2, 2]
    brightness = [dataset.train_x[dataset.train_y == label].mean() for label in range(3)]
    expected = [350, 200, 50]  # B was made last, then a
    assert np.allclose(brightness, [min(value, 999) % 256 for value in expected], atol=60)


def test_pixels_and_parts_are_the_files(tmp_path: Path) -> None:
    images(tmp_path / "d" / "train")
    images(tmp_path / "d" / "test", count=3)
    dataset = data.load("folder:d")
    assert (len(dataset.train_y), len(dataset.test_y)) == (20, 6)
    assert dataset.test_y.tolist() == [0, 0, 0, 1, 1, 1]
    with Image.open(tmp_path / "d" / "test" / "dog" / "2.png") as image:
        pixels = np.asarray(image).transpose(2, 0, 1)
    assert np.array_equal(dataset.test_x[5], pixels)


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    root = images(tmp_path / "d")
    for file in root.rglob("*.png"):
        with Image.open(file) as image:
            image.convert("L").save(file)
    assert data.info(data.named("folder:d")).input_shape == (1, SIDE, SIDE)
    Image.new("RGB", (SIDE, SIDE), "red").save(root / "cat" / "0.png")
    assert data.info(data.named("folder:d")).input_shape == (3, SIDE, SIDE)


def test_a_table_is_numbers_and_labels(tmp_path: Path) -> None:
    text = '﻿"a, b",kind,c\n1.5,10,-2\n 3 ,9,1e3\n' + "0,9,0\n0,10,0\n" * 4
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    name = data.named("csv:t.csv", "kind")
    info = data.info(name)
    dataset = data.load(name)
    assert (info.kind, info.input_shape, info.num_classes) == ("vectors", (2,), 2)
    x = np.concatenate([dataset.train_x, dataset.test_x])
    y = np.concatenate([dataset.train_y, dataset.test_y])
    rows = {(*numbers, label) for numbers, label in zip(x.tolist(), y.tolist(), strict=True)}
    expected = {(1.5, -2.0, 1), (3.0, 1000.0, 0), (0.0, 0.0, 0), (0.0, 0.0, 1)}
    assert rows == expected, "whole numbers are in the order of their values: 9 is class 0"
    assert len(dataset.test_y) == 2


def test_labels_and_names_may_be_odd(tmp_path: Path) -> None:
    """Labels with two signs are text, and a name of a file need not be UTF-8."""
    table(tmp_path / "t.csv", "x,kind\n" + "1,--1\n2,1\n3,-\n" * 5)
    assert data.info(data.named("csv:t.csv", "kind")).num_classes == 3
    images(tmp_path / "d")
    latin = os.fsencode(tmp_path) + b"/d/cat/caf\xe9.png"
    os.rename(tmp_path / "d" / "cat" / "0.png", latin)  # noqa: PTH104 (bytes)
    assert data.info(data.named("folder:d")).num_classes == 2


@pytest.mark.parametrize("accented", ["caf\u00e9", "cafe\u0301"])
def test_accents_are_read_in_either_form(accented: str, tmp_path: Path) -> None:
    """`cafes` is between both forms in the order of characters."""
    images(tmp_path / "d", (accented, "cafes"))
    brightness = data.load("folder:d").train_x.reshape(2, -1).mean(axis=1)
    assert brightness[0] > brightness[1]
    forms = "x,kind\n" + "1,caf\u00e9\n2,cafe\u0301\n3,dog\n" * 5
    (tmp_path / "t.csv").write_text(forms, encoding="utf-8")
    assert data.info(data.named("csv:t.csv", "kind")).num_classes == 2


# What makes two runs the same


def test_content_decides_the_run_key(tmp_path: Path) -> None:
    first = images(tmp_path / "d" / "one")
    second = tmp_path / ODD
    images(second.parent / "e" / "one").rename(second)
    (tmp_path / "link").symlink_to(first)
    keys = {key_of(f"folder:{path}") for path in (first, second, "link", "d/one", "d/../d/one")}
    assert len(keys) == 1
    (second / "cat").rename(second / "ant")  # the classes keep their order
    assert {key_of(f"folder:{second}")} == keys
    (second / "ant").rename(second / "elk")
    assert {key_of(f"folder:{second}")} != keys


def test_changed_data_are_another_run(tmp_path: Path) -> None:
    root = images(tmp_path / "d")
    file = table(tmp_path / "t.csv")
    before = key_of("folder:d"), key_of("csv:t.csv", "kind")
    with Image.open(root / "cat" / "3.png") as image:
        image.putpixel((0, 0), (255, 255, 255))
        image.save(root / "cat" / "3.png")
    text = file.read_text()
    file.write_text(text.replace("1,0.14285714285714285", "1,0.5"))
    after = key_of("folder:d"), key_of("csv:t.csv", "kind")
    assert not {*before} & {*after}
    file.write_text(text.replace("x,y,kind", "p,q,species"))
    assert key_of("csv:t.csv", "species") == before[1], "names of columns decide nothing"
    file.write_text("p,q\n" + "1,0\n1,1\n2,2\n" * 9)
    assert key_of("csv:t.csv", "p") != key_of("csv:t.csv", "q")


def test_public_samples_are_named_by_content(tmp_path: Path) -> None:
    """So a stored run of other public samples is not taken for one of these."""
    table(tmp_path / "mine.csv")
    lines = (tmp_path / "mine.csv").read_text().splitlines()
    publics = []
    for name, value in (("first", "8"), ("copy", "8"), ("changed", "9")):
        changed = "\n".join([*lines[:-1], f"{value},1,a"])
        (tmp_path / f"{name}.csv").write_text(changed)
        setting = {"dataset": "csv:mine.csv", "public": f"csv:{name}.csv:5", "label": "kind"}
        publics.append(run_spec_of("fedmd", setting).setting.public)
    assert publics[0] == publics[1] != publics[2]
    assert publics[0].startswith("csv@")
    assert publics[0].endswith(":5")
    shutil.copy(tmp_path / "mine.csv", tmp_path / "again.csv")
    setting = {"dataset": "csv:mine.csv", "public": "csv:again.csv:5", "label": "kind"}
    with pytest.raises(UsageError, match="that clients train on"):
        run_spec_of("fedmd", setting)


def test_a_run_finds_changed_files(tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    name = data.named("csv:t.csv", "kind")
    loader = data.loader(name)
    table(tmp_path / "t.csv", "x,kind\n" + "1,a\n2,b\n" * 9)
    with pytest.raises(EnvironmentProblem, match="has changed"):
        loader.read(tmp_path)
    (tmp_path / "t.csv").unlink()
    with pytest.raises(EnvironmentProblem):
        loader.read(tmp_path)


def test_the_prepared_copy_is_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images(tmp_path / "d")
    before = data.load("folder:d")
    own._loaded.cache_clear()
    data._read.cache_clear()
    monkeypatch.setattr(own.ImageFolder, "parts", lambda self: pytest.fail("read again"))
    after = data.load("folder:d")
    assert (after.hash, after.name) == (before.hash, before.name)
    assert np.array_equal(after.train_x, before.train_x)


# Commands


def test_a_sweep_and_what_follows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(tmp_path / ODD, count=30)
    images(tmp_path / "other")
    typed = f"folder:{tmp_path / ODD}"
    assert run(tmp_path / "out", *SHORT, "--dataset", typed) == 0
    (row,) = Store(tmp_path / "out").runs().to_dict("records")
    assert row["dataset"] == data.named(typed)
    assert str(tmp_path) not in row["setting_json"]
    assert row["final_accuracy"] > 0.4
    (tmp_path / ODD).rename(tmp_path / "moved")
    capsys.readouterr()
    assert run(tmp_path / "out", *SHORT, "--dataset", "folder:moved") == 0
    assert "1 already stored" in capsys.readouterr().err
    assert boards(["validate", "out"]) == 0
    own.defined.clear()
    again = ["reproduce", row["run_key"], "--out", "out"]
    assert sweep.main(again) == 2, "the row does not say where the data are"
    assert sweep.main([*again, "--dataset", "folder:other"]) == 2
    assert sweep.main([*again, "--dataset", "folder:moved"]) == 0


def test_a_run_with_public_samples_of_a_folder_is_reproduced(tmp_path: Path) -> None:
    images(tmp_path / "mine", count=30)
    images(tmp_path / "public, too")
    options = ("--algo", "fedmd", *SHORT[2:], "--dataset", "folder:mine")
    public = ("--set", 'public="folder:public, too:5"', "public_samples=3")
    assert run(tmp_path / "out", *options, *public) == 0
    (row,) = Store(tmp_path / "out").runs().to_dict("records")
    own.defined.clear()
    again = ["reproduce", row["run_key"], "--out", "out", "--dataset", "folder:mine"]
    assert sweep.main(again) == 2, "the row does not say where the public samples are"
    assert sweep.main([*again, "folder:public, too"]) == 0


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('label="a, b"', ("a, b",)),
        ('label="a,b", c', ("a,b", "c")),
        ('label="say ""no"""', ('say "no"',)),
        ("alpha=0.1, 0.5,", ("0.1", "0.5")),
    ],
)
def test_a_value_with_a_comma_is_quoted(text: str, values: tuple[str, ...]) -> None:
    ((_, parsed),) = parse_set([text]).items()
    assert parsed == values


@pytest.mark.parametrize("text", ['label="a,b', 'label="a"b', "label=a\nb", 'label=""'])
def test_a_value_with_a_torn_quote_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--set takes name=value"):
        parse_set([text])


def test_a_table_is_swept_and_confirmed(tmp_path: Path) -> None:
    table(tmp_path / "t, 1.csv")
    words = ("--dataset", f"csv:{tmp_path / 't, 1.csv'}", "--set", "label=kind")
    assert run(tmp_path / "out", *SHORT, *words, "--budget", "2", "--confirm", "1") == 0
    runs = Store(tmp_path / "out").runs()
    assert sorted(runs["seed"]) == [0, 0, 1]
    assert set(runs["model"]) == {"mlp_vectors"}


def test_a_configuration_file_may_name_data(tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    (tmp_path / "there").mkdir()
    text = 'algo = "fedavg"\ndataset = "csv:t.csv"\nrounds = 1\n[set]\nlabel = "kind"\n'
    (tmp_path / "there" / "c.toml").write_text(text)
    assert sweep.main(["--config", "there/c.toml", "--dry-run"]) == 0, "it runs no code"


@pytest.mark.slow
def test_ray_and_inline_run_it_alike(shared_ray: None, tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    words = (*SHORT, "--dataset", "csv:t.csv", "--set", "label=kind")
    assert run(tmp_path / "inline", *words) == 0
    assert sweep.main([*words, "--executor", "ray", "--out", "ray", "--quiet"]) == 0
    assert_equal_results(tmp_path / "ray", tmp_path / "inline")


def test_a_worker_knows_what_its_driver_read(tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    values = {"label": ("kind",), "num_clients": ("2",), "rounds": ("2",)}
    (run_spec,) = make_plan(SweepOptions(("fedavg",), "csv:t.csv", values=values)).run_specs
    trainable = trainable_for([[run_spec]], [Execution(out=str(tmp_path / "out"))])
    trainable.own_data = dict(own.defined)
    own.defined.clear()
    worker = trainable({"index": 0})
    assert worker.step()["round"] >= 1
    worker.cleanup()


def test_a_tuner_takes_it(tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    run_spec = run_spec_of("fedavg", {"dataset": f"csv:{tmp_path / 't.csv'}", "label": "kind"})
    assert isinstance(run_spec, RunSpec)
    assert run_spec.setting.dataset == data.named("csv:t.csv", "kind")


def test_listing_and_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(tmp_path / ODD)
    table(tmp_path / "t.csv")
    words = [f"folder:{tmp_path / ODD}", "csv:t.csv", "--label", "kind"]
    assert data_command(["list", "digits,mnist", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    sizes = [(row["num_classes"], row["train_size"], row["here"]) for row in rows[2:]]
    assert sizes == [(2, 16, True), (3, 24, True)]
    assert data_command(["prepare", *words, "--offline"]) == 0
    partition = ["partition", "--dataset", *words[1:], "--clients", "2", "--alpha", "1", "--json"]
    capsys.readouterr()
    assert data_command(partition) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 24


def test_a_stored_name_reads_no_path(tmp_path: Path) -> None:
    images(tmp_path / "d")
    with names_of_rows(), pytest.raises(UsageError, match="only a stored run"):
        data.info(f"folder:{tmp_path / 'd'}")
    with pytest.raises(UsageError, match="by its content"):
        data.info("folder@0123456789abcdef")


# What is refused

Change = Callable[[Path], object]


def _image(path: str, mode: str = "RGB", side: int = SIDE) -> Change:
    """One more image."""
    return lambda root: Image.new(mode, (side, side)).save(root / path)


def _truncated(root: Path) -> None:
    file = root / "cat" / "0.png"
    file.write_bytes(file.read_bytes()[:60])


def _bomb(side: int) -> Change:
    """A small file that says it is an image of so many rows and columns."""

    def change(root: Path) -> None:
        blob = bytearray((root / "cat" / "0.png").read_bytes())
        blob[16:24] = side.to_bytes(4) * 2
        blob[29:33] = zlib.crc32(blob[12:29]).to_bytes(4)
        (root / "cat" / "0.png").write_bytes(blob)

    return change


def _empty(root: Path) -> None:
    for file in (root / "cat").iterdir():
        file.unlink()


def _one_class(root: Path) -> None:
    (root / "cat").rename(root / ".cat")


def _parts(*folders: str) -> Change:
    def change(root: Path) -> None:
        for folder in folders:
            images(root / folder)
        for name in ("cat", "dog"):
            (root / name).rename(root.parent / name)

    return change


def _turned(path: str) -> Change:
    """One more image, upside down."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    return lambda root: Image.new("RGB", (SIDE, SIDE)).save(root / path, exif=exif)


def _animated(root: Path) -> None:
    frames = [Image.new("RGB", (SIDE, SIDE), colour) for colour in ("red", "blue")]
    frames[0].save(root / "cat" / "x.gif", save_all=True, append_images=frames[1:])


def _twice_named(root: Path) -> None:
    images(root, ("caf\u00e9", "cafe\u0301"))


FOLDERS: dict[str, tuple[Change, str]] = {
    "a link to an image": (lambda root: (root / "cat" / "x.png").symlink_to("0.png"), "link"),
    "a link to a class": (lambda root: (root / "elk").symlink_to("cat"), "link"),
    "a pipe": (lambda root: os.mkfifo(root / "cat" / "x.png"), "pipe"),
    "no image": (lambda root: (root / "cat" / "x.png").write_text("text"), "x.png is no image"),
    "a truncated image": (_truncated, "0.png"),
    "an image that is too large": (_bomb(10_000), "10000x10000"),
    "an image that is much too large": (_bomb(40_000), "more than 1,048,576 pixels"),
    "an image of another size": (_image("dog/x.png", side=7), "7x7"),
    "an image of 32 bits": (_image("dog/x.tif", "I"), "mode I"),
    "an image that EXIF turns": (_turned("cat/x.jpg"), "EXIF orientation 3"),
    "a PNG that EXIF turns": (_turned("cat/x.png"), "EXIF orientation 3"),
    "an animation": (_animated, "2 frames"),
    "one name written in two ways": (_twice_named, "two folders of the name café"),
    "a folder in a class": (lambda root: (root / "cat" / "more").mkdir(), "more"),
    "a class without images": (_empty, "no images"),
    "one class": (_one_class, "found dog"),
    "something beside the parts": (_parts("train", "test", "val"), "val"),
    "parts of other classes": (
        lambda root: [_parts("train", "test")(root), (root / "test/cat").rename(root / "test/x")],
        "same classes",
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_is_refused(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = FOLDERS[case]
    change(images(tmp_path / "d"))
    assert sweep.main([*SHORT, "--dataset", "folder:d", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: folder:{tmp_path / 'd'}: ")
    assert said.count("\n") == 1
    assert message in said


TABLES = {
    "a word": ("x,kind\n1,a\nnine,b\n", "row 2, column 'x': 'nine'"),
    "an empty cell": ("x,kind\n1,a\n,b\n", "row 2, column 'x': ''"),
    "not a number": ("x,kind\nnan,a\n1,b\n", "row 1, column 'x'"),
    "more than 32 bits hold": ("x,kind\n1,a\n2,b\n1e39,b\n", "row 3, column 'x'"),
    "a shorter row": ("x,y,kind\n1,2,a\n1,b\n", "2"),
    "one class": ("x,kind\n1,a\n2,a\n", "one value 'a'"),
    "an empty label": ("x,kind\n1,a\n2,\n", "row 2 has no label"),
    "one number in two ways": ("x,kind\n1,1\n2,1.0\n", "labels '1' and '1.0'"),
    "one number with a zero": ("x,kind\n1,1\n2,01\n", "labels '01' and '1'"),
    "another column": ("x,kinds\n1,a\n2,b\n", "did you mean kinds"),
    "a column twice": ("x,x,kind\n1,2,a\n", "more than once"),
    "the numbers of rows": (",x,kind\n0,1,a\n1,2,b\n", "column 1 has no name"),
    "no numbers": ("kind\na\nb\n", "only column"),
    "semicolons": ("x;kind\n1;a\n", "separated by commas"),
    "very many columns": (f"{'x,' * 60_000}kind\n", "60,001 columns"),
    "no rows": ("x,kind\n", "no rows"),
    "nothing": ("", "first line, which names the columns, is empty"),
    "an empty first line": ("\nx,kind\n1,a\n2,b\n", "first line"),
    "too few to test on": ("x,kind\n1,a\n2,b\n", "three samples"),
    "a measured quantity": (
        "x,kind\n" + "".join(f"1,{number / 8}\n" for number in range(2_000)),
        "2,000 values",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_is_refused(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, message = TABLES[case]
    (tmp_path / "t.csv").write_text(lines)
    words = ("--dataset", "csv:t.csv", "--set", "label=kind")
    assert sweep.main([*SHORT, *words, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: csv:{tmp_path / 't.csv'}: ")
    assert said.count("\n") == 1
    assert message in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe", "pipe is a pipe, and only regular files"),
        ("latin", "latin cannot be read: UnicodeDecodeError: "),
        ("missing", "there is no "),
        ("/dev/null", "/dev/null is a device, and only regular files"),
        (".", " is a folder, and only regular files"),
    ],
)
def test_files_that_are_no_tables_are_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"x,kind\n1,\xe9\n2,a\n")
    words = ("--dataset", f"csv:{name}", "--set", "label=kind")
    assert sweep.main([*SHORT, *words, "--dry-run"]) == 2
    assert message in capsys.readouterr().err


COMMANDS = {
    "csv:t.csv": r"t.csv: which column has the labels\? .*, of x, y, kind$",
    "csv:t.csv --set label=x,y": "label takes the name of one column, got x, y$",
    "csv:": "'csv:': name a path behind it, as csv:PATH$",
    "folder:": "'folder:': name a path behind it, as folder:PATH$",
    "folder:t.csv": "t.csv is a file; for a table give csv:/.*/t.csv$",
    "folder:none": "folder:/.*/none: there is no /.*/none: check the path$",
    "folder:d --set label=x": "d: label=x is for csv:PATH: folders name the classes here$",
    "digits --set label=x": "no setting field or hyper-parameter of fedavg 'label'",
    "folder:~nobody-is-called-so/d": "there is no such user, or no home folder is known",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_that_are_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images(tmp_path / "d")
    table(tmp_path / "t.csv")
    assert sweep.main([*SHORT, "--dataset", *words.split(), "--dry-run"]) == 2
    assert re.search(COMMANDS[words], capsys.readouterr().err.strip())
