"""Texts: their files and tables, the tokenizer, and runs on batches that are padded to the longest text."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY, largest_gap, toy_split
from published_formats import put, small

from algorithms import build
from bench import data
from bench.data.dataset import Dataset
from bench.data.text import AG_NEWS, PAD, SST5, VOCABULARY, TextLoader, tokens
from bench.engine.samples import TextSamples
from bench.engine.simulation import Simulation
from bench.errors import EnvironmentProblem, UsageError
from bench.planning.settings import canonical
from search_spaces import SETTINGS, Setting

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("it", "is", "a", "fine", "film", "##s", "##y", "bad", "(", ")", "news", ".")
VOCABULARY_BLOB = "\n".join((*SPECIAL, *WORDS)).encode()
TREES = {
    "train": "(3 (2 It) (4 (2 is) (4 (2 a) (4 (3 Fine) (2 film)))))\n"
    "(1 (2 -LRB-) (1 (1 bad) (2 -RRB-)))\n"
    "(2 (2 A) (2 .))\n",
    "dev": "(4 fines)\n",
    "test": "(0 (2 a) (0 (0 bad) (2 film)))\n(2 (2 it) (2 is))\n",
}
SENTENCES = {
    "train": ["It is a Fine film", "( bad )", "A ."],
    "dev": ["fines"],
    "test": ["a bad film", "it is"],
}
TARGETS = {"train": [3, 1, 2], "dev": [4], "test": [0, 2]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of data sets with a vocabulary of 16 pieces; no prepared copies from elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "data"
    put(folder / VOCABULARY.path, VOCABULARY_BLOB)
    return folder


def sst5() -> TextLoader:
    vocabulary = replace(VOCABULARY, md5=md5(VOCABULARY_BLOB).hexdigest())
    return small(SST5, 4, 2, files=(vocabulary, *SST5.files[1:]), development=1)


def ag_news(train: bytes, test: bytes) -> TextLoader:
    vocabulary = replace(VOCABULARY, md5=md5(VOCABULARY_BLOB).hexdigest())
    files = [
        replace(file, md5=md5(blob).hexdigest())
        for file, blob in zip(AG_NEWS.files[1:], (train, test), strict=True)
    ]
    return small(AG_NEWS, 3, 1, files=(vocabulary, *files))


def put_trees(folder: Path, place: str = "sst5/trees") -> None:
    for part, content in TREES.items():
        put(folder / place / f"{part}.txt", content.encode())


def put_table(folder: Path, form: str, names: dict[str, str]) -> None:
    for part, name in names.items():
        rows = [
            {"text": text, "label": label}
            for text, label in zip(SENTENCES[part], TARGETS[part], strict=True)
        ]
        if form == "jsonl":
            put(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
        else:
            folder.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(rows).to_parquet(folder / f"{name}-00000-of-00001.parquet")


# --- sources


def test_trees_of_sst5_are_whole_sentences(folder):
    put_trees(folder)
    found = sst5().read(folder)
    pieces = (*SPECIAL, *WORDS)
    spelt = [[pieces[piece] for piece in row if piece != PAD] for row in found.train_x]
    assert spelt == [
        ["[CLS]", "it", "is", "a", "fine", "film", "[SEP]"],
        ["[CLS]", "(", "bad", ")", "[SEP]"],
        ["[CLS]", "a", ".", "[SEP]"],
        ["[CLS]", "fine", "##s", "[SEP]"],
    ]
    assert found.train_y.tolist() == [
        3,
        1,
        2,
        4,
    ]  # the development set stands behind the training set
    assert found.test_y.tolist() == [0, 2]
    assert (found.train_x.dtype, found.train_x.shape, found.test_x.shape) == (
        np.int32,
        (4, 7),
        (2, 7),
    )


@pytest.mark.parametrize(
    ("place", "form"), [("sst5", "jsonl"), ("hub/datasets--SetFit--sst5/snapshots/0123", "parquet")]
)
def test_tables_of_the_hub_agree(folder, tmp_path, place, form):
    names = {"train": "train", "dev": "dev", "test": "test"}
    put_trees(folder)
    expected = sst5().read(folder)
    other = tmp_path / "other"
    put(other / VOCABULARY.path, VOCABULARY_BLOB)
    put_table(tmp_path / place if place.startswith("hub") else other / place, form, names)
    assert sst5().missing(other) == []
    found = sst5().read(other)
    assert found.hash == expected.hash


def test_the_published_archive_is_unpacked(folder):
    with zipfile.ZipFile(folder / "trainDevTestTrees_PTB.zip", "w") as archive:
        for part, content in TREES.items():
            archive.writestr(f"trees/{part}.txt", content)
    source = sst5()
    assert source.missing(folder) == [f"sst5/trees/{part}.txt" for part in ("train", "dev", "test")]
    source.fetch(folder, offline=True)
    assert source.read(folder).test_y.tolist() == [0, 2]


def test_ag_news_joins_title_and_description(folder):
    train = b'"3","It is","a ""fine"" film"\n"1","news","bad, bad"\n"4","it",""\n'
    test = b'"2","film","is\\bad"\n'
    source = ag_news(train, test)
    put(folder / "ag_news_csv/train.csv", train)
    put(folder / "AG_NEWS/test.csv", test)
    rows = [('It is a "fine" film', 2), ("news bad, bad", 0), ("it ", 3)]
    assert source.texts(folder / "ag_news_csv/train.csv") == rows
    assert source.texts(folder / "AG_NEWS/test.csv") == [("film is\\bad", 1)]
    found = source.read(folder)
    assert (found.train_y.tolist(), found.test_y.tolist()) == ([2, 0, 3], [1])


def test_a_prepared_copy_spares_the_tokenizer(folder, monkeypatch):
    put_trees(folder)
    first = sst5().read(folder)
    monkeypatch.setattr("bench.data.text.tokens", lambda *_: pytest.fail("tokenised twice"))
    again = sst5().read(folder)
    np.testing.assert_array_equal(again.train_x, first.train_x)
    assert again.hash == first.hash


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("train", b"(3 (2 It) (2 is)\n"),
        ("train", b"(3 a)\n(9 a)\n(2 a)\n"),
        ("test", b"(3 a)\n"),
        ("dev.jsonl", b'{"sentence": "a"}\n'),
        ("dev.jsonl", b'{"text": "a", "label": "1"}\n'),
        ("dev.jsonl", b'{"text": null, "label": 1}\n'),
    ],
)
def test_a_damaged_file_is_told(folder, part, content):
    if part == "dev.jsonl":
        put_table(folder / "sst5", "jsonl", {"train": "train", "dev": "dev", "test": "test"})
        put(folder / "sst5/dev.jsonl", content)
    else:
        put_trees(folder)
        put(folder / f"sst5/trees/{part}.txt", content)
    with pytest.raises(EnvironmentProblem, match=str(folder)) as caught:
        sst5().read(folder)
    assert "prepare sst5" in str(caught.value)
    assert not list((folder.parent / "cache").rglob("*.npy"))


def test_the_hubs_vocabulary_is_found(folder, tmp_path):
    put_trees(folder)
    (folder / VOCABULARY.path).unlink()
    kept = "hub/models--distilbert--distilbert-base-uncased/snapshots/0123/vocab.txt"
    put(tmp_path / kept, VOCABULARY_BLOB)
    assert sst5().missing(folder) == []
    assert sst5().read(folder).train_y.tolist() == [3, 1, 2, 4]


def test_texts_are_cut_and_padded(tmp_path):
    vocabulary = put(tmp_path / "vocab.txt", VOCABULARY_BLOB)
    ids = tokens(["a " * 500, "bad"], vocabulary)
    piece = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    assert ids.shape == (2, 128)
    assert (ids[0, 0], ids[0, 126], ids[0, 127]) == (piece["[CLS]"], piece["a"], piece["[SEP]"])
    assert ids[1].tolist() == [piece["[CLS]"], piece["bad"], piece["[SEP]"], *[PAD] * 125]


# --- the real ones


def real(name: str) -> Dataset:
    folder = os.environ.get("FEDKD_DATA")
    if not folder or data.loader(name).missing(Path(folder)):
        pytest.skip(f"FEDKD_DATA names no folder with {name} and the vocabulary")
    return data.load(name, folder, offline=True)


def test_the_tokenizer_is_that_of_transformers():
    from transformers import DistilBertTokenizer

    real("sst5")
    vocabulary = VOCABULARY.find(Path(os.environ["FEDKD_DATA"]))
    texts = [
        "It 's Café-like: naïve, UNBELIEVABLE!",
        "你好 world",
        "a\tb\nc",
        "",
        "xyzzyqwert " * 90,
    ]
    theirs = DistilBertTokenizer(vocab=str(vocabulary), do_lower_case=True)
    expected = theirs(texts, truncation=True, max_length=128)["input_ids"]
    ids = tokens(texts, vocabulary)
    assert [row[row != PAD].tolist() for row in ids] == expected


# --- batches


def toy_texts(longest: int = 24) -> Dataset:
    """66 training and 30 test texts of 3 to `longest` words out of 50; a class has words of its own."""
    draw = np.random.RandomState(0)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels, ids = np.arange(count) % 3, np.zeros((count, longest), np.int32)
        for row, label in zip(ids, labels, strict=True):
            length = draw.randint(3, longest + 1)
            row[:length] = draw.randint(1, 30, length) + 10 * label
        return ids, labels.astype(np.int64)

    return Dataset.of("toy_texts", part(66), part(30))


TEXT_INFO = replace(data.info("sst5"), name="toy_texts", num_classes=3, train_size=66, test_size=30)
TEXT_SETTING = replace(
    TINY,
    dataset="sst5",
    model="distilbert_tiny",
    normalization="none",
    optimizer="adam",
    lr=1e-3,
    rounds=2,
)


def text_run(
    algorithm: str, backend: str = "loop", dataset: Dataset | None = None, **changes: object
) -> Simulation:
    setting = replace(TEXT_SETTING, **changes)
    return Simulation(
        build(algorithm),
        setting,
        0,
        dataset or toy_texts(),
        TEXT_INFO,
        toy_split(),
        backend=backend,
    )


def test_batches_fit_their_longest_text():
    ids = np.array([[5, 6, 0, 0] * 5, [5] * 9 + [0] * 11, [5] * 17 + [0] * 3], np.int32)
    ids[0] = [5, 6] + [0] * 18
    part = TextSamples(ids, torch.tensor([0, 1, 2]))
    assert part.at(torch.tensor([0])).shape == (1, 8)
    assert part.at(torch.tensor([0, 1])).shape == (2, 16)
    assert part.at(slice(0, 3)).shape == (3, 20)  # never beyond what there is
    assert part.widths(torch.tensor([[0, 0], [1, 0], [2, 1]])) == [8, 16, 20]
    assert part.by_cost(None).tolist() == [0, 1, 2]
    assert part.by_cost(torch.tensor([2, 0])).tolist() == [0, 2]
    assert part.batch(torch.tensor([1]), None, 16).tolist() == [[5] * 9 + [0] * 7]
    assert TextSamples(np.zeros((2, 20), np.int32), torch.tensor([0, 1])).at(slice(0, 2)).shape == (
        2,
        8,
    ), "without a token"


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_padding_changes_nothing(backend):
    """Texts with 40 more places of padding give the same models, dropout included."""
    longer = toy_texts()
    wide = Dataset.of(
        "wide",
        (np.pad(longer.train_x, ((0, 0), (0, 40))), np.array(longer.train_y)),
        (np.pad(longer.test_x, ((0, 0), (0, 40))), np.array(longer.test_y)),
    )
    short, long = text_run("fedgkd", backend), text_run("fedgkd", backend, wide)
    # Every batch of the second run is padded to the end.
    long.federation.train._lengths[:] = 64
    for run in (short, long):
        run.advance(1)
    assert largest_gap(short, long) < 1e-12
    for ours, theirs in zip(short.progress.curves[""], long.progress.curves[""], strict=True):
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("algorithm", ["fedgkd", "fedgen", "fednova"])
def test_stacked_equals_loop_on_texts(algorithm):
    changes = {"optimizer": "sgd", "lr": 0.05} if algorithm == "fednova" else {}
    loop, stacked = (text_run(algorithm, backend, **changes) for backend in ("loop", "stacked"))
    for run in (loop, stacked):
        run.advance(2)
    assert largest_gap(loop, stacked) < 1e-10


# --- settings


def test_image_fields_leave_text_keys_alone():
    assert (
        canonical(replace(SETTINGS["fedgkd", "sst5"], normalization="standard")).normalization
        == "none"
    )
    assert canonical(SETTINGS["fedgkd", "ag_news"]).image_size == "own"
    with pytest.raises(UsageError, match="flip_crop"):
        canonical(replace(SETTINGS["fedgkd", "sst5"], augmentation="flip_crop"))


def test_a_model_of_images_is_refused():
    from algorithms import entry
    from bench.planning.settings import supply

    with pytest.raises(UsageError, match="resnet8"):
        supply(entry("fedavg"), replace(SETTINGS["fedgkd", "sst5"], model="resnet8"))
    with pytest.raises(UsageError, match="fedkf"):
        supply(entry("fedkf"), replace(SETTINGS["fedgkd", "sst5"], auxiliary_per_class=1))
    assert isinstance(supply(entry("fedavg"), SETTINGS["fedgkd", "sst5"]), Setting)


@pytest.mark.slow
def test_texts_are_learnt():
    run = text_run("fedavg", lr=5e-3, rounds=8, local_epochs=4)
    run.advance(8)
    accuracy = [value for _, name, value in run.progress.curves[""] if name == "accuracy"]
    assert accuracy[-1] > 0.7
