"""AG News and SST-5 as token ids: the vocabulary, the tokenizer, the files.

Texts are split as for DistilBERT, by the WordPiece vocabulary of lower-cased English (Devlin et al.
2019): [CLS], the pieces, [SEP], at most `TOKENS` in all. They are split once, and the ids are
stored in the prepared copy.

Sources: X. Zhang, J. Zhao, Y. LeCun, Character-level Convolutional Networks for Text Classification
(2015), out of A. Gulli's corpus; R. Socher et al., Recursive Deep Models for Semantic
Compositionality Over a Sentiment Treebank (2013).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.data import parquet
from bench.data.dataset import PAD, Dataset
from bench.data.download import DISTILBERT, Original
from bench.data.file_loaders import FileLoader
from bench.data.registry import DATASETS, TOKENS

LEAF = re.compile(r"\(\d ([^()]+)\)")  # (label word)
TREE = re.compile(r"\(\d .*\)$")
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}  # brackets of a text, which are syntax in trees

VOCABULARY = Original(
    "distilbert-base-uncased/vocab.txt",
    "64800d5d8528ce344256daf115d4965e",
    also=("bert-base-uncased/vocab.txt",),
    repository=DISTILBERT,
)

Rows = list[tuple[str, int]]  # of a part: texts, each with its label from 0


@dataclass(frozen=True)
class TextLoader(FileLoader):
    """A `FileLoader` of texts.

    Its files are the vocabulary, then one for each part. Tables with columns `text` and `label`
    replace the parts.

    Args:
        texts: reads the texts of one of the data set's own files.
        development: samples of the development part that ends the training part; 0 for none.
    """

    texts: Callable[[Path], Rows] = field(kw_only=True)
    development: int = 0

    def parse(self, folder: Path) -> Dataset:
        """Read and split all texts."""
        files_of_parts = self.tables(folder)
        if not files_of_parts:
            files_of_parts = [[file.where(folder)] for file in self.files[1:]]
        parts: list[Rows] = []
        for files in files_of_parts:
            with self.reading(files[0], folder):
                parts.append(self._part(files))
        if self.development and len(parts[1]) != self.development:
            raise ValueError(
                f"{len(parts[1]):,} samples of {self.development:,} in the development part"
            )
        rows = list(chain.from_iterable(parts))
        vocabulary = self.files[0].where(folder)
        ids = tokens([text for text, _ in rows], vocabulary)
        labels = np.array([label for _, label in rows], np.int64)
        train_size = len(rows) - len(parts[-1])
        return Dataset.of(
            self.name,
            (ids[:train_size], labels[:train_size]),
            (ids[train_size:], labels[train_size:]),
        )

    def _part(self, files: list[Path]) -> Rows:
        rows: Rows = []
        if files[0].suffix == ".jsonl":
            for file in files:
                # Not `splitlines`, which also splits at separators that a text may contain.
                for line in file.read_text(encoding="utf-8").split("\n"):
                    if line.strip():
                        row = json.loads(line)
                        rows.append((row["text"], row["label"]))
        elif files[0].suffix == ".parquet":
            columns = parquet.read(files, ("text", "label"))
            rows = list(zip(columns["text"], columns["label"], strict=True))
        else:
            rows = self.texts(files[0])
        for number, (text, label) in enumerate(rows):
            if not isinstance(text, str) or type(label) is not int:
                raise ValueError(
                    f"{type(text).__name__} and {type(label).__name__} ({label!r}) in row {number}"
                )
        return rows


def _news_texts(file: Path) -> Rows:
    """Read rows of class, title and description; a text is the title, a space, the description."""
    lines = file.read_bytes().decode("utf-8").splitlines(keepends=True)
    rows = csv.reader(lines, strict=True)
    return [(f"{title} {description}", int(label) - 1) for label, title, description in rows]


def _sentences(file: Path) -> Rows:
    """Read the whole sentences of parse trees."""
    rows = []
    for tree in filter(None, file.read_bytes().decode("utf-8").split("\n")):
        if not TREE.match(tree) or tree.count("(") != tree.count(")"):
            raise ValueError(repr(tree[:60]))
        words = [BRACKETS.get(word, word) for word in LEAF.findall(tree)]
        rows.append((" ".join(words), int(tree[1])))
    return rows


def tokens(texts: list[str], vocabulary: Path) -> NDArray[np.int32]:
    """Return (N, L) ids of N texts, int32.

    L is the number of tokens of the longest text, at most `TOKENS`; shorter texts end with `PAD`.
    `vocabulary`: a file with one piece per line.
    """
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    tokenizer.enable_truncation(TOKENS)
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    ids = np.full((len(encoded), max(map(len, encoded))), PAD, np.int32)
    for row, pieces in zip(ids, encoded, strict=True):
        row[: len(pieces)] = pieces
    return ids


_NEWS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"


def _news_file(part: str, md5: str) -> Original:
    return Original(
        f"ag_news_csv/{part}.csv",
        md5,
        also=(f"AG_NEWS/{part}.csv", f"datasets/AG_NEWS/{part}.csv", f"ag_news/{part}.csv"),
        url=f"{_NEWS}/{part}.csv",
    )


_TREES_FILES = tuple(
    Original(f"sst5/trees/{part}.txt", also=(f"trees/{part}.txt", f"sst/trees/{part}.txt"))
    for part in ("train", "dev", "test")
)
_TREES = Original(
    "trainDevTestTrees_PTB.zip",
    also=("sst5/trainDevTestTrees_PTB.zip",),
    url="https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
)
# Titles and first sentences of news.
AG_NEWS = TextLoader(
    info=DATASETS["ag_news"],
    form="lines of class, title, description, or a table of text and label",
    files=(
        VOCABULARY,
        _news_file("train", "b1a00f826fdfbd249f79597b59e1dc12"),
        _news_file("test", "d52ea96a97a2d943681189a97654912d"),
    ),
    repository="fancyzhx/ag_news",
    texts=_news_texts,
)
# Sentences of film reviews. The development set ends the training part, so that `validation_rule =
# last` can hold it out.
SST5 = TextLoader(
    info=DATASETS["sst5"],
    form="a tree a line, as (3 (2 It) ...), or a table of text and label",
    files=(VOCABULARY, *_TREES_FILES),
    archive=_TREES,
    repository="SetFit/sst5",
    table_parts=("train", "dev", "test"),
    texts=_sentences,
    development=1_101,
)
