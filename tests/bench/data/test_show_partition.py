"""`python -m bench.data partition` says what a run gets: in the terminal, as JSON, as a picture."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from bench import data
from bench.data import show_partition
from bench.data.show_partition import main
from bench.data.splits import split
from bench.errors import UsageError
from bench.sweep.command import main as sweep_main
from search_spaces.setting import Setting

DIGITS = ["--dataset", "digits", "--clients", "7", "--alpha", "0.3"]


def printed(capsys, *options):
    assert main([*DIGITS, *options]) == 0
    return capsys.readouterr().out


def test_the_counts_are_those_of_a_run(capsys):
    labels = data.load("digits").train_y
    expected = split(
        Setting(dataset="digits", partition="lda", alpha=0.3, num_clients=7), labels, 5
    )
    found = json.loads(printed(capsys, "--seed", "5", "--json"))
    assert found["partition_hash"] == expected.hash
    for index, row in zip(expected.clients, found["counts"], strict=True):
        assert np.bincount(labels[index], minlength=10).tolist() == row
    sizes = [len(index) for index in expected.clients]
    assert found["sizes"] == sizes
    assert found["smallest"] == {"client": int(np.argmin(sizes)), "samples": min(sizes)}
    assert found["largest"] == {"client": int(np.argmax(sizes)), "samples": max(sizes)}
    assert found["distinct_classes"] == [sum(count > 0 for count in row) for row in found["counts"]]
    assert (found["samples"], found["unused"]) == (1438, 0)


def test_classes_per_client_is_that_of_a_run(capsys):
    labels = data.load("digits").train_y
    setting = Setting(
        dataset="digits", partition="k_classes", alpha=None, num_clients=7, classes_per_client=3
    )
    options = ("--partition", "k_classes", "--classes-per-client")
    report = json.loads(printed(capsys, *options, "3", "--json"))
    assert report["partition_hash"] == split(setting, labels, 0).hash
    assert report["distinct_classes"] == [3] * 7
    assert report["classes_per_client"] == 3
    lines = printed(capsys, *options, "3").splitlines()
    assert "classes_per_client 3" in lines[0]
    assert lines[-3] == "classes of a client: 3, mean 3.0; samples left over: 0"


@pytest.mark.parametrize("value", ["0", "x", "2.5", "30"])
def test_bad_classes_per_client_are_refused_as_by_a_sweep(capsys, value):
    partition = ["--partition", "k_classes"]
    assert main([*DIGITS, *partition, "--classes-per-client", value]) == 2
    error = capsys.readouterr().err.removeprefix("error: ").strip()
    sweep = ["--algo", "fedavg", "--dataset", "digits", "--dry-run", "--clients", "7"]
    values = ["partition=k_classes", f"classes_per_client={value}"]
    sweep_main([*sweep, "--set", *values])
    planned = " ".join("".join(capsys.readouterr()).split())
    assert error[:40] in planned


def test_unused_classes_per_client_are_noted(capsys):
    assert main([*DIGITS, "--classes-per-client", "3"]) == 0
    note = capsys.readouterr()
    assert "classes_per_client has no effect" in note.err
    assert "left at 2" in note.err
    assert note.out == printed(capsys)


def test_offline_shows_the_same(capsys):
    assert printed(capsys, "--offline", "--json") == printed(capsys, "--json")


def test_the_table_has_counts_and_sums(capsys):
    found = json.loads(printed(capsys, "--json"))
    lines = printed(capsys).splitlines()
    rows = [line.split() for line in lines[3:10]]
    for client, row in enumerate(rows):
        counts = [0 if word == "." else int(word) for word in row[3:]]
        assert counts == found["counts"][client]
        assert row[:3] == [str(client), str(sum(counts)), str(sum(count > 0 for count in counts))]
    totals = next(line for line in lines if line.split()[:1] == ["all"]).split()
    assert totals[1:] == ["1438", "10", *np.bincount(data.load("digits").train_y).astype(str)]


def test_eighty_columns_show_every_number(capsys, monkeypatch):
    counts = np.random.RandomState(0).randint(0, 5000, (20, 100))
    shown = json.loads(printed(capsys, "--json")) | {
        "counts": counts.tolist(),
        "samples": int(counts.sum()),
    }
    monkeypatch.setattr(show_partition, "console", lambda: Console(width=80, highlight=False))
    show_partition._print(shown)
    tables = capsys.readouterr().out.split("smallest:")[0]
    assert max(len(line) for line in tables.splitlines()) <= 80
    assert "…" not in tables
    rows = re.findall(r"^ +3 +\d+ +\d+ +(.*)$", tables, re.M)
    assert " ".join(rows).split() == [str(count) for count in counts[3]]


def test_all_lines_around_the_table_are_printed(capsys):
    found = json.loads(printed(capsys, "--json"))
    lines = printed(capsys).splitlines()
    sizes = found["sizes"]
    distinct = found["distinct_classes"]
    assert lines[0] == "scikit-learn digits (8x8): lda, alpha 0.3, seed 0"
    assert lines[1].split() == ["client", "samples", "classes", *map(str, range(10))]
    assert lines[-4:] == [
        f"smallest: client {np.argmin(sizes)} with {min(sizes)} samples; "
        f"largest: client {np.argmax(sizes)} with {max(sizes)}; mean {1438 / 7:.1f}",
        f"classes of a client: {min(distinct)} to {max(distinct)}, "
        f"mean {sum(distinct) / 7:.1f}; samples left over: 0",
        f"partition hash {found['partition_hash']}",
        "all training samples are shared out; "
        "a sweep first holds back its validation and auxiliary samples",
    ]


@pytest.mark.parametrize(("count", "more"), [(100, None), (101, 1), (1_200, 1_100)])
def test_a_table_has_a_hundred_clients_at_most(capsys, count, more):
    shown = json.loads(printed(capsys, "--json")) | {"counts": [[1, 2]] * count}
    show_partition._print(shown)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.split()[1:] == ["3", "2", "1", "2"]]
    assert [row[0] for row in rows] == [str(client) for client in range(min(count, 100))]
    cut = [line for line in lines if line.startswith("...")]
    expected = [f"... and {more:,} more clients; --json has them all"] if more else []
    assert cut == expected


@pytest.mark.parametrize(("most", "more"), [(7, None), (6, 1), (3, 4)])
def test_a_long_table_is_cut(capsys, monkeypatch, most, more):
    monkeypatch.setattr(show_partition, "MOST_ROWS", most)
    lines = printed(capsys).splitlines()
    clients = [
        line.split()[0] for line in lines[3:] if line.split()[:1] and line[:6].strip().isdigit()
    ]
    assert clients == [str(client) for client in range(most)]
    cut = f"... and {more} more clients; --json has them all"
    assert (cut in lines) is bool(more)
    assert any("more clients" in line for line in lines) is bool(more)


@pytest.mark.parametrize(
    ("width", "tables"), [(43, [10]), (42, [5, 5]), (27, [2] * 5), (0, [1] * 10)]
)
def test_classes_fill_as_few_tables_as_fit(width, tables):
    """Three columns take 23 places, and each class two."""
    columns = show_partition._columns_of_tables(np.ones((2, 10), int), 20, width)
    assert [len(part) for part in columns] == tables
    assert np.concatenate(columns).tolist() == list(range(10))


def test_wider_numbers_take_more_room():
    counts = np.full((2, 12), 99_999)
    (single,) = show_partition._columns_of_tables(counts, 2_399_976, 7 + 8 + 8 + 12 * 7)
    assert len(single) == 12
    assert len(show_partition._columns_of_tables(counts, 2_399_976, 22 + 12 * 7)) == 2
    assert len(show_partition._columns_of_tables(counts, 23_999_760, 23 + 12 * 7)) == 2


def test_pictures_have_an_end_and_few_clients(tmp_path):
    show_partition._check_plot(tmp_path / "a.SVG", 1000)
    with pytest.raises(UsageError, match=r"at most 1,000 clients, got 1,001; --json has them all$"):
        show_partition._check_plot(tmp_path / "a.svg", 1001)
    with pytest.raises(UsageError, match=r"must end in \.svg or \.png, .*; try .*a\.svg$"):
        show_partition._check_plot(tmp_path / "a.pdf", 7)


def test_a_picture_has_all_bubbles(capsys, tmp_path, monkeypatch):
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    printed(capsys, "--plot", "a.svg")
    words = (tmp_path / "a.svg").read_text()
    ElementTree.fromstring(words)
    counts = json.loads(printed(capsys, "--json", "--plot", "a.png"))["counts"]
    assert "lda, alpha 0.3, seed 0" in words.replace("\u00a0", " ")
    marks = words[words.index("mark-symbol") :]
    assert marks[: marks.index("</g>")].count("<path") == np.count_nonzero(counts)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--dataset", "digts"], 2, "digits"),
        (["--partition", "ldaa"], 2, "lda"),
        (["--alpha", "-1"], 2, "alpha"),
        (["--clients", "0"], 2, "num_clients"),
        (["--clients", "200"], 2, "143"),
        (["--partition", "by_writer"], 2, "femnist"),
        (["--plot", "a.pdf"], 2, "a.pdf"),
        (["--plot", "/nowhere/a.svg"], 3, "/nowhere/a.svg"),
        (["--dataset", "cifar10"], 3, "prepare cifar10"),
    ],
)
def test_errors_name_the_next_step(capsys, tmp_path, options, status, words):
    assert main([*DIGITS, "--data-dir", str(tmp_path), *options]) == status
    said = capsys.readouterr()
    assert not said.out
    assert words in said.err
