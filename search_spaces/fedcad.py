"""Settings and grids of FedCAD (He et al. 2022), section Experiments."""

from __future__ import annotations

from search_spaces.base import Grid, Paper, Space
from search_spaces.setting import Setting

PAPER = Paper(
    key="fedcad",
    title="Class-Wise Adaptive Self Distillation for Heterogeneous Federated Learning",
    authors="He et al.",
    year=2022,
)

# Not printed, and how it is settled: the decay of lr ("initial learning rate 0.01") and weight decay are none; the
# balance rule and augmentation are those of NIID-Bench, which the partition cites; pixels are normalised, without which
# FedAvg ends several points under the printed 71.29 %.
CIFAR10 = Setting(
    dataset="cifar10",
    model="cnn_cifar",
    partition="lda",
    alpha=0.5,
    num_clients=10,
    participation=1.0,
    rounds=100,
    local_epochs=10,
    batch_size=64,
    optimizer="sgd",
    lr=0.01,
    momentum=0.9,
    augmentation="flip_crop_reflect",
    normalization="standard",
    auxiliary_per_class=32,
)

SETTINGS = (CIFAR10,)
_SOURCE = "Experiments, Hyper-parameters"


def _spaces(setting: Setting) -> tuple[Space, ...]:
    return (
        Space("fedavg", setting, source=_SOURCE),
        Space("fedprox", setting, {"mu": Grid(0.001, 0.01, 0.1)}, source=_SOURCE),
        Space(
            "fedlsd",
            setting,
            {"distillation_weight": Grid(0.1, 0.3, 0.5)},
            fixed={"temperature": 2.0},
            source=_SOURCE,
        ),
        Space(
            "fedcad",
            setting,
            {"beta": Grid(0.0, 0.3, 0.5, 0.7), "gamma": Grid(0.0, 0.3, 0.5, 0.7)},
            where=("beta <= gamma",),
            source=f"{_SOURCE}; bounds below Eq. 6; equal pairs kept as the sanity rows FedLSD and FedAvg",
        ),
    )


SPACES = tuple(space for setting in SETTINGS for space in _spaces(setting))
