"""AG News: titles and first sentences of news in four classes (World, Sports, Business, Sci/Tech).

Source: X. Zhang, J. Zhao, Y. LeCun, Character-level Convolutional Networks for Text Classification (2015), out of A.
Gulli's corpus. The files lie where torchtext puts them, or as `ag_news_csv` is unpacked; on the hub it is
`fancyzhx/ag_news`. A text is the title, a blank and the description.
"""

from __future__ import annotations

import csv
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

COLUMNS = 3  # class from 1, title, description


@dataclass(frozen=True)
class AgNews(TextSource):
    """The `Source` of AG News."""

    def texts(self, folder: Path) -> list[tuple[list[str], Labels]]:
        """As `TextSource.texts` says."""
        return [self._part(folder, file) for file in self.files[1:]]

    def _part(self, folder: Path, file: Original) -> tuple[list[str], Labels]:
        lines = read_text(self, file, folder).splitlines(keepends=True)
        try:
            rows = list(csv.reader(lines, strict=True))
            wrong = next((row for row in rows if len(row) != COLUMNS), None)
            if wrong is not None:
                raise ValueError(f"a line of {len(wrong)} columns")
            labels = np.array([int(row[0]) - 1 for row in rows], np.int64)
        except (csv.Error, ValueError) as problem:
            where = file.find(folder) or folder
            raise unlike(where, self.name, folder, "lines of class, title, description", str(problem)) from problem
        return [f"{title} {description}" for _, title, description in rows], labels


_ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"
_FILES = (
    Original(
        "ag_news_csv/train.csv",
        "b1a00f826fdfbd249f79597b59e1dc12",
        29_470_338,
        also=("AG_NEWS/train.csv", "datasets/AG_NEWS/train.csv", "ag_news/train.csv"),
    ),
    Original(
        "ag_news_csv/test.csv",
        "d52ea96a97a2d943681189a97654912d",
        1_857_427,
        also=("AG_NEWS/test.csv", "datasets/AG_NEWS/test.csv", "ag_news/test.csv"),
    ),
)
AG_NEWS = AgNews(
    info=DATASETS["ag_news"],
    files=(VOCABULARY, *_FILES),
    remotes=(
        vocabulary_remote(),
        *(Remote(file, (f"{_ADDRESS}/{file.path.rpartition('/')[2]}",)) for file in _FILES),
    ),
    repository="fancyzhx/ag_news",
)
