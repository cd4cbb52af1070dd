"""Settings and grids of FedGKD (Yao et al. 2021), section 5.1 and Tables 3-9."""

from __future__ import annotations

from dataclasses import replace

from search_spaces.base import Grid, Paper, Space
from search_spaces.setting import Setting

PAPER = Paper(
    key="fedgkd",
    title="Local-Global Knowledge Distillation in Heterogeneous Federated Learning with Non-IID Data",
    authors="Yao et al.",
    year=2021,
    link="https://arxiv.org/abs/2107.00051",
)

# Not printed, taken from the authors' code: gradients clipped to norm 10, no weight decay on the norm layers of blocks
# and stem, the last tenth of the training files as validation split, flips and crops, a constant lr.
CIFAR10 = Setting(
    dataset="cifar10",
    model="resnet8",
    partition="fedgkd_groups",
    alpha=0.5,
    num_clients=20,
    participation=0.2,
    rounds=100,
    local_epochs=20,
    batch_size=64,
    optimizer="sgd",
    lr=0.05,
    momentum=0.9,
    weight_decay=1e-5,
    decay_exempt="norm_but_shortcut",
    clip_norm=10.0,
    augmentation="flip_crop",
    normalization="fedgkd",
    validation_fraction=0.1,
    validation_rule="last",
)
CIFAR100 = replace(CIFAR10, dataset="cifar100")

SETTINGS = (CIFAR10, CIFAR100)
_PROXIMAL = {"cifar10": 0.01, "cifar100": 0.001}


def _spaces(setting: Setting) -> tuple[Space, ...]:
    return (
        Space("fedavg", setting, source="Section 5.1"),
        Space("fedprox", setting, fixed={"mu": _PROXIMAL[setting.dataset]}, source="Section 5.1, tuned value only"),
        Space(
            "fedgkd",
            setting,
            {"buffer": Grid(1, 3, 5, 7)},
            fixed={"gamma": 0.2},
            source="gamma: Section 5.1 (ResNet-8); M: Table 7",
        ),
    )


SPACES = tuple(space for setting in SETTINGS for space in _spaces(setting))
