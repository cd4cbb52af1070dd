"""This project's own small setting for demonstrations and tests: 8x8 digits, ten clients.

A run takes seconds. Every registered algorithm has a space, some fifty configurations in all;
expensive algorithms have one or two. FedKF, whose clients train an image generator, takes most of a
minute.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces import fedcad, feddkd
from search_spaces.bounds import Grid, Value
from search_spaces.setting import Paper, Setting, Space

PAPER = Paper(
    key="fedkd", title="fedkd-bench: the embedded setting", authors="fedkd-bench", year=2026
)

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

# FedDKD's digits with the two sources that are easy to obtain.
MNIST_USPS = replace(feddkd.DIGITS, dataset="mnist_usps", num_clients=2)
# Single sources of digits in FedCAD's federation, on its networks, with images as they are or
# brought to 32x32.
_SOURCE = replace(fedcad.CIFAR10, augmentation="none")
SVHN = replace(_SOURCE, dataset="svhn")
SYNTHDIGITS = replace(_SOURCE, dataset="synthdigits")
MNIST_M = replace(_SOURCE, dataset="mnist_m", image_size="pad32")
MNIST = replace(_SOURCE, dataset="mnist", model="lenet5", image_size="pad32")
FASHION_MNIST = replace(MNIST, dataset="fashion_mnist")
KMNIST = replace(MNIST, dataset="kmnist")
USPS = replace(_SOURCE, dataset="usps", model="lenet5", image_size="resize32")
# FedGKD's toy task; the paper states four classes, the model's three layers, Adam and the square
# that points are drawn from.
TOY2D = Setting(
    dataset="toy2d",
    model="mlp_vectors",
    partition="lda",
    alpha=0.1,
    num_clients=4,
    participation=1.0,
    rounds=20,
    local_epochs=5,
    batch_size=32,
    optimizer="adam",
    lr=1e-2,
    normalization="none",
    validation_fraction=0.1,
)
SETTINGS = (
    DIGITS,
    MNIST_USPS,
    MNIST,
    FASHION_MNIST,
    KMNIST,
    USPS,
    SVHN,
    SYNTHDIGITS,
    MNIST_M,
    TOY2D,
)


def _space(
    algorithm: str,
    grid: dict[str, Grid] | None = None,
    fixed: dict[str, Value] | None = None,
) -> Space:
    return Space(
        algorithm,
        DIGITS,
        grid or {},
        fixed or {},
        source="our own choice for the embedded data",
    )


_DKD: dict[str, Value] = {"steps": 3, "batch_size": 16}

SPACES = (
    _space("fedavg"),
    _space("fedprox", {"mu": Grid(0.01, 0.1, 1.0)}),
    _space("moon", {"mu": Grid(0.1, 1.0)}),
    _space("feddistill", {"distillation_weight": Grid(0.1, 1.0)}),
    _space("fedgen", fixed={"hidden_dim": 64, "noise_dim": 16}),
    _space("fedgkd", {"gamma": Grid(0.2, 1.0), "buffer": Grid(1, 5)}),
    _space("fedgkd_vote", fixed={"buffer": 3}),
    _space("fedgkd_plus", fixed={"gamma": 1.0}),
    _space("fedgkd_mse", fixed={"gamma": 0.2}),
    # The printed term is a sum over features; weights of 10 and more are for the mean in the
    # authors' code.
    _space("fedmax", {"beta": Grid(0.1, 1.0)}),
    _space("fedbn"),
    _space("fedntd", {"beta": Grid(0.3, 1.0)}),
    _space("fedlc", {"tau": Grid(0.3, 1.0)}),
    _space("fedrs", {"missing_scale": Grid(0.5, 0.9)}),
    _space("qffl", {"q": Grid(1e-3, 0.1)}),
    _space("feddkd", {"lr": Grid(0.05, 0.2)}, _DKD),
    _space("feddkd_max", fixed={"beta": 0.1, **_DKD}),
    _space("feddkd_bn", fixed=_DKD),
    _space("fedlsd", {"distillation_weight": Grid(0.1, 0.3, 0.5)}),
    _space("fedcad", {"beta": Grid(0.0, 0.3, 0.5), "gamma": Grid(0.3, 0.5, 0.7)}),
    _space("fedkf", fixed={"noise_dim": 32}),
    _space("fedavg_t1"),
    _space("fedprox_t1", fixed={"mu": 0.1}),
    _space("fedgkd_t1", fixed={"gamma": 1.0}),
    _space("scaffold"),
    _space("fednova"),
    _space("feddyn", {"alpha_dyn": Grid(0.01, 0.1)}),
    _space("fedavgm", {"server_momentum": Grid(0.5, 0.9)}),
    _space("fedadam", {"server_lr": Grid(0.01, 0.1)}),
    _space(
        "feddf",
        fixed={"max_steps": 200, "check_every": 50, "patience": 100, "server_batch_size": 32},
    ),
    _space("ditto", {"mu": Grid(0.1, 1.0)}),
    _space("fd", {"distillation_weight": Grid(0.1, 1.0)}),
    _space("fedproto", {"proto_weight": Grid(0.1, 1.0)}),
    _space("lg_fedavg"),
    _space("fml", {"ce_weight": Grid(0.5, 0.9)}),
    _space("fedtgp", {"proto_weight": Grid(0.1, 1.0)}, {"server_epochs": 20}),
    _space("fedmd", {"digest_epochs": Grid(1, 5)}, {"digest_batch_size": 16}),
    _space("dsfl", {"aggregation": Grid("era", "sa")}, {"digest_batch_size": 16}),
    _space("fedkd"),
    _space("fedgh", {"server_lr": Grid(0.01, 0.1)}, {"server_epochs": 20}),
    _space("fedrep", {"head_share": Grid(0.5, 0.9)}),
    _space("centralized"),
    _space("local"),
)
TABLES = ()
