"""Texts as token ids: the vocabulary, the tokenizer, and what the sources of texts have in common.

Texts are split as DistilBERT does it, by the WordPiece vocabulary of lower-cased English (Devlin et al. 2019): [CLS],
the pieces, [SEP], at most `TOKENS` in all. They are split once, and the ids are kept as the prepared copy.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.hub import DISTILBERT, HubFile
from bench.data.originals import Original, unlike
from bench.data.remote import Remote
from bench.data.table import TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.data.dataset import Labels

PAD = 0  # the id of [PAD], the vocabulary's first piece

VOCABULARY = HubFile(
    path="distilbert-base-uncased/vocab.txt",
    md5="64800d5d8528ce344256daf115d4965e",
    size=231_508,
    also=("bert-base-uncased/vocab.txt",),
    repository=DISTILBERT,
)


@dataclass(frozen=True)
class TextSource(FileSource):
    """A `FileSource` of texts, in files of its own or in tables of the Hugging Face hub.

    Args:
        repository: on the hub, whose tables have columns `text` and `label`.
        table_parts: what the tables of each part are called; all but the last are trained on.
    """

    repository: str
    table_parts: tuple[tuple[str, ...], ...] = (("train",), ("test",))

    @abstractmethod
    def texts(self, folder: Path) -> list[tuple[list[str], Labels]]:
        """The parts in turn, from the data set's own files: texts, and (N,) labels from 0."""

    def missing(self, folder: Path) -> list[str]:
        """As `FileSource.missing` says; of the data set's own files none where its tables are."""
        return [path for path in super().missing(folder) if path == VOCABULARY.path or not self._tables(folder)]

    def present(self, folder: Path) -> list[Path]:
        """As `FileSource.present` says."""
        if not super().missing(folder):
            return super().present(folder)
        vocabulary = VOCABULARY.find(folder)
        return [*([vocabulary] if vocabulary else []), *(file for part in self._tables(folder) for file in part)]

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        parts = self._parts(folder)
        self.files[0].read(folder, self.name)  # which says where the vocabulary is another
        vocabulary = self.files[0].find(folder) or folder
        ids = tokens([text for texts, _ in parts for text in texts], vocabulary)
        labels = np.concatenate([targets for _, targets in parts])
        last = len(labels) - len(parts[-1][1])
        return Dataset.of(self.name, (ids[:last], labels[:last]), (ids[last:], labels[last:]))

    def parse_labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part, no text being split."""
        return np.concatenate([targets for _, targets in self._parts(folder)[:-1]])

    def _parts(self, folder: Path) -> list[tuple[list[str], Labels]]:
        own = all(file.find(folder) for file in self.files[1:])
        parts = self.texts(folder) if own else [self._of_tables(folder, files) for files in self._tables(folder)]
        where = self.present(folder)[-1].parent
        for (_, targets), count in zip(parts, self.counts, strict=True):
            self.check(where, folder, count, targets)
        return parts

    def _tables(self, folder: Path) -> list[list[Path]]:
        """The tables of each part, or nothing where one part has none."""
        return parquet.parts(folder / self.name, self.repository, self.table_parts, (".parquet", ".jsonl"))

    def _of_tables(self, folder: Path, files: Sequence[Path]) -> tuple[list[str], Labels]:
        if files[0].suffix == ".jsonl":
            return self._of_lines(folder, files)
        columns = parquet.read(files, ("text", "label"), self.name, folder)
        return self._typed(folder, files[0], list(zip(columns["text"], columns["label"], strict=True)))

    def _of_lines(self, folder: Path, files: Sequence[Path]) -> tuple[list[str], Labels]:
        rows: list[tuple[Any, Any]] = []
        for file in files:
            try:
                # Not `splitlines`: a text may hold other separators that it splits at.
                lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
                rows += [(row["text"], row["label"]) for row in map(json.loads, lines)]
            except (ValueError, KeyError, TypeError) as problem:
                raise unlike(file, self.name, folder, "lines of JSON with text and label", repr(problem)) from problem
        return self._typed(folder, files[0], rows)

    def _typed(self, folder: Path, file: Path, rows: Sequence[tuple[Any, Any]]) -> tuple[list[str], Labels]:
        """The rows of a table, once each is known to be a text and a whole number."""
        for number, (text, label) in enumerate(rows):
            if not isinstance(text, str) or not isinstance(label, int) or isinstance(label, bool):
                found = f"{type(text).__name__} and {type(label).__name__} ({label!r})"
                raise unlike(file, self.name, folder, f"a text and a whole number in row {number}", found)
        return [text for text, _ in rows], np.array([label for _, label in rows], np.int64)


def vocabulary_remote() -> Remote:
    """Where the vocabulary comes from."""
    return Remote(VOCABULARY, (VOCABULARY.url,))


def tokens(texts: list[str], vocabulary: Path) -> NDArray[np.int32]:
    """Texts as ids.

    Args:
        texts: N of them.
        vocabulary: a file with a piece a line.

    Returns:
        (N, L) int32, L the tokens of the longest text, at most `TOKENS`; shorter ones end with `PAD`.
    """
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    tokenizer.enable_truncation(TOKENS)
    found = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    ids = np.full((len(found), max(map(len, found))), PAD, np.int32)
    for row, known in zip(ids, found, strict=True):
        row[: len(known)] = known
    return ids


def read_text(source: FileSource, file: Original, folder: Path) -> str:
    """The content of one of a source's files, as `Original.read` says.

    Raises:
        EnvironmentProblem: it is not the published file, or no text.
    """
    try:
        return file.read(folder, source.name).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise unlike(file.find(folder) or folder, source.name, folder, "text in UTF-8", str(problem)) from problem
