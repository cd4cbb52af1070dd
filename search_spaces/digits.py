"""This project's own small setting: 8x8 digits, ten clients, seconds a run. For demonstrations and tests."""

from __future__ import annotations

from search_spaces.base import Grid, Paper, Space
from search_spaces.setting import Setting

PAPER = Paper(key="fedkd", title="fedkd-bench: the embedded setting", authors="fedkd-bench", year=2026)

DIGITS = Setting(
    dataset="digits",
    model="mlp",
    partition="lda",
    alpha=0.1,
    num_clients=10,
    participation=0.5,
    rounds=20,
    local_epochs=5,
    batch_size=16,
    optimizer="sgd",
    lr=0.1,
    validation_fraction=0.1,
    auxiliary_per_class=8,
)

SETTINGS = (DIGITS,)
_SOURCE = "our own choice for the embedded data"

SPACES = (
    Space("fedavg", DIGITS, source=_SOURCE),
    Space("fedprox", DIGITS, {"mu": Grid(0.01, 0.1, 1.0)}, source=_SOURCE),
    Space("fedgkd", DIGITS, {"gamma": Grid(0.2, 1.0), "buffer": Grid(1, 5)}, source=_SOURCE),
    Space("fedlsd", DIGITS, {"distillation_weight": Grid(0.1, 0.3, 0.5)}, source=_SOURCE),
    Space(
        "fedcad",
        DIGITS,
        {"beta": Grid(0.0, 0.3, 0.5), "gamma": Grid(0.3, 0.5, 0.7)},
        where=("beta <= gamma",),
        source=_SOURCE,
    ),
)
