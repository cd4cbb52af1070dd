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
from search_spaces.setting import Setting

DIGITS = ["--dataset", "digits", "--clients", "7", "--alpha", "0.3"]


def printed(capsys, *options):
    assert main([*DIGITS, *options]) == 0
    return capsys.readouterr().out


def test_the_counts_are_those_of_a_run(capsys):
    labels = data.labels("digits")
    expected = split(Setting(dataset="digits", partition="lda", alpha=0.3, num_clients=7), labels, 5)
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


def test_the_table_has_the_counts_and_their_sums(capsys):
    found = json.loads(printed(capsys, "--json"))
    lines = printed(capsys).splitlines()
    rows = [line.split() for line in lines[3:10]]
    for client, row in enumerate(rows):
        counts = [0 if word == "." else int(word) for word in row[3:]]
        assert counts == found["counts"][client]
        assert row[:3] == [str(client), str(sum(counts)), str(sum(count > 0 for count in counts))]
    totals = next(line for line in lines if line.split()[:1] == ["all"]).split()
    assert totals[1:] == ["1438", "10", *np.bincount(data.labels("digits")).astype(str)]


def test_samples_left_over_are_said(capsys):
    assert "samples left over: 3" in printed(capsys, "--partition", "fedgkd_groups")


@pytest.mark.parametrize("classes", [10, 26, 100])
def test_a_terminal_of_eighty_columns_shows_every_number(capsys, monkeypatch, classes):
    counts = np.random.RandomState(0).randint(0, 5000, (20, classes))
    shown = json.loads(printed(capsys, "--json")) | {"counts": counts.tolist(), "samples": int(counts.sum())}
    monkeypatch.setattr(show_partition, "console", lambda: Console(width=80, highlight=False))
    show_partition._print(shown)
    tables = capsys.readouterr().out.split("smallest:")[0]
    assert max(len(line) for line in tables.splitlines()) <= 80
    assert "…" not in tables
    rows = re.findall(r"^ +3 +\d+ +\d+ +(.*)$", tables, re.M)
    assert " ".join(rows).split() == [str(count) for count in counts[3]]


def test_a_long_table_is_cut_and_says_so(capsys):
    assert main(["--dataset", "digits", "--clients", "120", "--partition", "iid"]) == 0
    out = capsys.readouterr().out
    assert "... and 20 more clients" in out
    assert re.search(r"^ +99 ", out, re.M)
    assert not re.search(r"^ +100 ", out, re.M)


def test_alpha_is_not_shown_where_it_has_no_meaning(capsys):
    assert printed(capsys, "--partition", "iid").splitlines()[0].endswith("iid, seed 0")


def test_a_picture_has_a_bubble_for_each_client_and_class_held(capsys, tmp_path, monkeypatch):
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    printed(capsys, "--plot")
    words = (tmp_path / "digits-lda-0.3-7clients-seed0.svg").read_text()
    ElementTree.fromstring(words)
    counts = json.loads(printed(capsys, "--json", "--plot", "a.png"))["counts"]
    assert "lda, alpha 0.3, seed 0" in words.replace("\u00a0", " ")
    marks = words[words.index("mark-symbol") :]
    assert marks[: marks.index("</g>")].count("<path") == np.count_nonzero(counts)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--dataset", "digts"], 2, ["no data set 'digts'", "did you mean digits?"]),
        (["--partition", "ldaa"], 2, ["no partition 'ldaa'", "did you mean lda?"]),
        (["--alpha", "-1"], 2, ["alpha", "-1"]),
        (["--clients", "0"], 2, ["num_clients", "0"]),
        (["--clients", "200"], 2, ["num_clients must be <= 143"]),
        (["--partition", "by_writer"], 2, ["writer of each training sample", "digits does not record", "femnist"]),
        (["--plot", "a.pdf"], 2, ["must end in .svg or .png", "a.pdf"]),
        (["--plot", "/nowhere/a.svg"], 3, ["/nowhere/a.svg cannot be written"]),
        (["--plot", "/nowhere/a.png"], 3, ["/nowhere/a.png cannot be written"]),
        (["--dataset", "cifar10"], 3, ["cifar10 is not in", "python -m bench.data prepare cifar10"]),
    ],
)
def test_what_cannot_be_shown_is_said(capsys, tmp_path, options, status, words):
    assert main([*DIGITS, "--data-dir", str(tmp_path), *options]) == status
    found = capsys.readouterr()
    assert not found.out
    assert all(word in found.err for word in words), found.err


def test_too_many_clients_are_not_drawn(capsys, tmp_path):
    options = ["--dataset", "digits", "--clients", "1001", "--partition", "iid", "--plot", str(tmp_path / "a.svg")]
    assert main(options) == 2
    assert "at most 1,000 clients, got 1,001" in capsys.readouterr().err


def test_an_alpha_is_asked_for_where_it_is_needed(capsys):
    assert main(["--dataset", "digits", "--clients", "7"]) == 2
    assert "alpha must be a number > 0 for partition lda" in capsys.readouterr().err
