"""The cells of the papers' tables of results, of which `paper_cells.csv` is a list in printed names."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PRINTED_DATASETS = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "Tiny-ImageNet": "tiny_imagenet",
    "AG News": "ag_news",
    "SST-5": "sst5",
    "EMNIST": "emnist_letters",
    "Digits-5": "digits5",
}
_PRINTED_MODELS = {
    "ResNet-8": "resnet8",
    "ResNet-8(w64)": "resnet8_wide",
    "ResNet-50": "resnet50",
    "DistilBERT": "distilbert",
    "CNN-FEMNIST": "cnn_femnist",
    "VGG-9": "vgg9",
    "FedGen-CNN": "cnn_fedgen",
    "CNN-digits": "cnn_digits5",
    "CNN-6-16": "cnn_cifar",
    "LeNet-5": "lenet5_120",
}
_PRINTED_ALGORITHMS = {
    "FedDistill+": "feddistill",
    "FedGKD+": "fedgkd_plus",
    "FedGKD-VOTE": "fedgkd_vote",
    "FedGKD-MSE": "fedgkd_mse",
    "FedAvg+T1": "fedavg_t1",
    "FedProx+T1": "fedprox_t1",
    "FedGKD+T1": "fedgkd_t1",
    "q-FFL": "qffl",
}


class Cell(NamedTuple):
    """A problem in a table of results, in this suite's names, and the algorithms that stand in it."""

    paper: str
    table: str
    dataset: str
    model: str
    alpha: float | None
    clients: int
    participation: float
    local_epochs: int
    rounds: int | None
    algorithms: tuple[str, ...]


def cells() -> Iterator[Cell]:
    """Every cell of the papers' tables, without those that read an earlier round of a run that another cell has."""
    with (Path(__file__).parent / "paper_cells.csv").open() as file:
        for row in csv.DictReader(file):
            if "@" not in row["algorithms"]:
                yield _cell(row)


def _cell(row: dict[str, str]) -> Cell:
    paper, dataset = row["paper"].lower(), row["dataset"]
    if dataset == "FEMNIST":
        dataset = "EMNIST" if paper == "feddkd" else dataset
    names = (name.partition("[")[0] for name in row["algorithms"].split())
    return Cell(
        paper,
        row["table"],
        _PRINTED_DATASETS.get(dataset, dataset.lower()),
        _PRINTED_MODELS[row["model"]],
        float(row["alpha"]) if row["alpha"][0].isdigit() else None,
        int(row["clients"]),
        float(row["participation"]),
        int(row["local_epochs"]),
        int(row["rounds"]) if row["rounds"] else None,
        tuple(dict.fromkeys(_PRINTED_ALGORITHMS.get(name, name.lower()) for name in names)),
    )
