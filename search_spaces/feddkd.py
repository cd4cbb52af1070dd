"""Settings, spaces and tables of FedDKD (Li et al. 2022).

Sources: section IV and Supplementary Materials E-G. Printed: models, optimisers, lr and its decay,
weight decay, batch sizes, epochs, rounds, clients, sizes of the data sets, all values of FedDKD
except those named below. From the code of papers that it follows: augmentation and normalisation of
CIFAR (FedMA, whose model and partition it takes), normalisation and padding of FEMNIST (FedMAX,
whose data it takes), mu of FedProx on digits (FedBN). Settled here: momentum 0.9 on FEMNIST ("SGD
with momentum"), none on digits; drawn validation samples, on FEMNIST from outside the half that is
trained on; a decay of 0.99 for FedDKD's lr on CIFAR-100; Adam begins anew every round; no weight
decay on digits.

Not expressed by a `Setting`:
    - Test accuracies are those of the round with the best validation accuracy. On digits the rule
      is not stated; each source counts alike.
    - `FedDKD@60` and the like are the same runs, read after that many rounds.
    - FEMNIST: each client has 6 of 26 classes. FedMAX's code has Nesterov momentum 0.1.
    - Table V runs in FedGen's setting: `feddkd_emnist`.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.bounds import Grid, Value
from search_spaces.setting import Paper, PaperTable, Setting, Space, crossed

PAPER = Paper(
    key="feddkd",
    title="FedDKD: Federated Learning with Decentralized Knowledge Distillation",
    authors="Li et al.",
    year=2022,
)

# 62,400 of the 124,800 letters are for training, 12,480 others for validation.
FEMNIST = Setting(
    dataset="emnist_letters",
    model="cnn_femnist",
    partition="pathological",
    alpha=None,
    num_clients=20,
    participation=0.5,
    rounds=660,
    local_epochs=5,
    batch_size=64,
    optimizer="sgd",
    lr=0.1,
    lr_decay=0.98,
    momentum=0.9,
    weight_decay=5e-4,
    normalization="fedmax",
    image_size="pad32",
    fraction=0.6,
    validation_fraction=1 / 6,
)
CIFAR10 = Setting(
    dataset="cifar10",
    model="vgg9",
    partition="lda",
    alpha=0.1,
    num_clients=16,
    participation=1.0,
    rounds=350,
    local_epochs=10,
    batch_size=64,
    optimizer="adam",
    lr=1e-3,
    lr_decay=0.99,
    weight_decay=1e-4,
    augmentation="flip_crop_reflect",
    normalization="standard",
    validation_fraction=0.1,
)
# FedMA's code has one normalisation, CIFAR-10's.
CIFAR100 = replace(CIFAR10, dataset="cifar100", normalization="fedma")
DIGITS = Setting(
    dataset="digits5",
    model="cnn_digits5",
    partition="by_source",
    alpha=None,
    num_clients=5,
    participation=1.0,
    rounds=100,
    local_epochs=1,
    batch_size=32,
    optimizer="sgd",
    lr=0.01,
    lr_decay=0.98,
)
SETTINGS = (FEMNIST, CIFAR10, CIFAR100, DIGITS)


def distillation(
    steps: int, lr: float, lr_decay: float, batch_size: int, **others: Value
) -> dict[str, Value]:
    """Return FedDKD's values: J, gamma_0, its decay per round, the batch of a request.

    `others` are values that only some settings state.
    """
    common: dict[str, Value] = {
        "steps": steps,
        "lr": lr,
        "lr_decay": lr_decay,
        "batch_size": batch_size,
    }
    return {"step_decay": 1.0, "warmup_rounds": 0, **common, **others}


_FEMNIST = (
    "Section IV-A, Supplementary Materials E (weight decay 1e-3 at participation 0.25 with 5 "
    "epochs: in the tables alone)"
)
_FEDMAX_CODE: dict[str, Value] = {"fedmax_direction": "u_a", "fedmax_reduction": "elementmean"}
_FEMNIST_DKD = distillation(10, 0.2, 0.98, 64)
_CIFAR = "Section IV-B, Supplementary Materials F"
_CIFAR_MU = Grid(0.001, 0.01, 0.1, 1.0, 10.0)
_DIGITS = "Section IV-D, Supplementary Materials G"
_DIGITS_DKD = distillation(10, 0.01, 0.98, 10, step_decay=0.97)
SPACES = (
    Space("fedavg", FEMNIST, source=_FEMNIST),
    Space(
        "fedprox",
        FEMNIST,
        {"mu": Grid(0.01, 0.1, 1.0, 10.0)},
        fixed={"prox_reduction": "mean_per_tensor"},
        source=f"{_FEMNIST}; reduction: FedMAX's code, whose data, lr and weight decay these are",
        chosen={"mu": 10.0},
    ),
    Space(
        "fedmax",
        FEMNIST,
        {"beta": Grid(1.0, 10.0, 100.0, 1000.0, 10_000.0)},
        fixed=_FEDMAX_CODE,
        source=f"{_FEMNIST}; direction and reduction: FedMAX's code",
        chosen={"beta": 10.0},
    ),
    Space("feddkd", FEMNIST, fixed=_FEMNIST_DKD, source=_FEMNIST),
    Space(
        "feddkd_max",
        FEMNIST,
        fixed={"beta": 10.0, **_FEDMAX_CODE, **_FEMNIST_DKD},
        source=f"{_FEMNIST}; beta as FedMAX",
    ),
    Space("fedavg", CIFAR10, source=_CIFAR),
    Space("fedprox", CIFAR10, {"mu": _CIFAR_MU}, source=_CIFAR, chosen={"mu": 0.01}),
    Space("feddkd", CIFAR10, fixed=distillation(3, 0.08, 0.99, 64), source=_CIFAR),
    Space("fedavg", CIFAR100, source=_CIFAR),
    Space("fedprox", CIFAR100, {"mu": _CIFAR_MU}, source=_CIFAR, chosen={"mu": 0.01}),
    Space(
        "feddkd", CIFAR100, fixed=distillation(3, 0.06, 0.99, 256, warmup_rounds=30), source=_CIFAR
    ),
    Space("fedavg", DIGITS, source=_DIGITS),
    Space("fedprox", DIGITS, fixed={"mu": 0.01}, source=f"{_DIGITS}; mu: FedBN's code"),
    Space("fedbn", DIGITS, source=_DIGITS),
    Space("feddkd", DIGITS, fixed=_DIGITS_DKD, source=_DIGITS),
    Space("feddkd_bn", DIGITS, fixed=_DIGITS_DKD, source=_DIGITS),
)

# Supplementary Materials E: weight decay is twice as large if the fewest clients take the fewest
# epochs.
_CELLS = (
    replace(FEMNIST, local_epochs=5, participation=0.25, weight_decay=1e-3),
    *crossed(FEMNIST, local_epochs=(5,), participation=(0.5, 0.75)),
    *crossed(FEMNIST, local_epochs=(15,), participation=(0.25, 0.5, 0.75)),
)
_FEMNIST_ALL = ("fedavg", "fedprox", "fedmax", "feddkd", "feddkd_max")
TABLES = (
    PaperTable("I", _CELLS, _FEMNIST_ALL, runs=3),  # Section IV-A
    PaperTable("II", _CELLS, _FEMNIST_ALL, runs=3),
    PaperTable("III", (CIFAR10,), ("fedavg", "fedprox", "feddkd")),
    PaperTable("IV", (CIFAR100,), ("fedavg", "fedprox", "feddkd")),
    PaperTable("VI", (DIGITS,), ("fedavg", "fedprox", "fedbn", "feddkd", "feddkd_bn")),
)
