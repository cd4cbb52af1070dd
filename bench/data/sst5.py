"""SST-5: sentences of film reviews in five classes, from very negative to very positive.

Source: R. Socher et al., Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank (2013). The
published parse trees are read, of each the whole sentence; on the hub it is `SetFit/sst5`. The training part is the
official one with the development set behind it, so that `validation_rule = last` can hold that set out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.originals import Original, unlike
from bench.data.remote import Remote
from bench.data.table import DATASETS
from bench.data.text import VOCABULARY, TextSource, read_text, vocabulary_remote

if TYPE_CHECKING:
    from bench.data.dataset import Labels

LEAF = re.compile(r"\(\d ([^()]+)\)")  # (label word)
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}  # which trees need for themselves


@dataclass(frozen=True)
class Sst5(TextSource):
    """The `Source` of SST-5.

    Args:
        development: samples of the development set.
    """

    development: int = 1_101

    @property
    def counts(self) -> tuple[int, ...]:
        """As `PreparedSource.counts` says: the development set is a part of its own in the files."""
        return self.info.train_size - self.development, self.development, self.info.test_size

    def texts(self, folder: Path) -> list[tuple[list[str], Labels]]:
        """As `TextSource.texts` says."""
        return [self._part(folder, file) for file in self.files[1:]]

    def _part(self, folder: Path, file: Original) -> tuple[list[str], Labels]:
        trees = [tree for tree in read_text(self, file, folder).split("\n") if tree]
        wrong = next((tree for tree in trees if not _whole(tree)), None)
        if wrong is not None:
            where = file.find(folder) or folder
            raise unlike(where, self.name, folder, "a tree a line, as (3 (2 It) ...)", repr(wrong[:60]))
        return [_sentence(tree) for tree in trees], np.array([int(tree[1]) for tree in trees], np.int64)


def _whole(tree: str) -> bool:
    return re.match(r"\(\d .*\)$", tree) is not None and tree.count("(") == tree.count(")")


def _sentence(tree: str) -> str:
    return " ".join(BRACKETS.get(word, word) for word in LEAF.findall(tree))


_FILES = tuple(
    Original(f"sst5/trees/{part}.txt", None, also=(f"trees/{part}.txt", f"sst/trees/{part}.txt"))
    for part in ("train", "dev", "test")
)
_ARCHIVE = Original("trainDevTestTrees_PTB.zip", None, also=("sst5/trainDevTestTrees_PTB.zip",))
SST5 = Sst5(
    info=DATASETS["sst5"],
    files=(VOCABULARY, *_FILES),
    remotes=(vocabulary_remote(), Remote(_ARCHIVE, ("https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",))),
    repository="SetFit/sst5",
    table_parts=(("train",), ("validation", "dev"), ("test",)),
)
