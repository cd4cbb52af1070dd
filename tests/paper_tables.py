"""What the papers print and what their code adds, copied by hand: `search_spaces` is held to it."""

from __future__ import annotations

from dataclasses import dataclass, field

PROBLEM = (
    "model",
    "partition",
    "alpha",
    "num_clients",
    "participation",
    "rounds",
    "local_epochs",
    "batch_size",
)
TRAINING = ("optimizer", "lr", "lr_decay", "momentum", "weight_decay")

_GKD_VISION = {
    "decay_exempt": "norm_but_shortcut",
    "clip_norm": 10,
    "augmentation": "flip_crop",
    "normalization": "fedgkd",
    "validation_fraction": 0.1,
}
_GKD_TEXT = {"adam_eps": 1e-3, "clip_norm": 10, "normalization": "none"}
# Problem; training; fields in which code or resolution differ from a setting's defaults.
_SETTINGS = {
    **{
        ("fedgkd", dataset): (
            ("resnet8", "fedgkd_groups", 0.5, 20, 0.2, 100, 20, 64),
            ("sgd", 0.05, 1, 0.9, 1e-5),
            _GKD_VISION | {"validation_rule": "last"},
        )
        for dataset in ("cifar10", "cifar100")
    },
    ("fedgkd", "tiny_imagenet"): (
        ("resnet50", "fedgkd_groups", 0.5, 20, 0.2, 30, 20, 64),
        ("sgd", 0.05, 1, 0.9, 1e-5),
        _GKD_VISION,
    ),
    ("fedgkd", "ag_news"): (
        ("distilbert", "fedgkd_groups", 0.1, 20, 0.2, 10, 1, 64),
        ("adam", 1e-5, 1, 0, 0),
        _GKD_TEXT | {"fraction": 0.55, "validation_fraction": 6_000 / 66_000},
    ),
    ("fedgkd", "sst5"): (
        ("distilbert", "fedgkd_groups", 0.1, 10, 0.4, 10, 3, 64),
        ("adam", 1e-5, 1, 0, 0),
        _GKD_TEXT | {"validation_fraction": 1_101 / (8_544 + 1_101), "validation_rule": "last"},
    ),
    ("feddkd", "emnist_letters"): (
        ("cnn_femnist", "pathological", None, 20, 0.5, 660, 5, 64),
        ("sgd", 0.1, 0.98, 0.9, 5e-4),
        {
            "normalization": "fedmax",
            "image_size": "pad32",
            "fraction": 0.6,
            "validation_fraction": 12_480 / 74_880,
        },
    ),
    ("feddkd", "cifar10"): (
        ("vgg9", "lda", 0.1, 16, 1, 350, 10, 64),
        ("adam", 1e-3, 0.99, 0, 1e-4),
        {"augmentation": "flip_crop_reflect", "validation_fraction": 0.1},
    ),
    ("feddkd", "cifar100"): (
        ("vgg9", "lda", 0.1, 16, 1, 350, 10, 64),
        ("adam", 1e-3, 0.99, 0, 1e-4),
        {"augmentation": "flip_crop_reflect", "normalization": "fedma", "validation_fraction": 0.1},
    ),
    ("feddkd", "digits5"): (
        ("cnn_digits5", "by_source", None, 5, 1, 100, 1, 32),
        ("sgd", 0.01, 0.98, 0, 0),
        {},
    ),
    ("feddkd_emnist", "emnist_letters"): (
        ("cnn_fedgen", "fedgen", 0.1, 20, 0.5, 200, 20, 32),
        ("sgd", 0.01, 0.99, 0, 0),
        {"step_rule": "batches", "normalization": "fedgen", "fraction": 0.1},
    ),
    ("fedcad", "cifar10"): (
        ("cnn_cifar", "lda", 0.5, 10, 1, 100, 10, 64),
        ("sgd", 0.01, 1, 0.9, 0),
        {"augmentation": "flip_crop_reflect", "auxiliary_per_class": 32},
    ),
    ("fedcad", "cifar100"): (
        ("resnet50+bn", "lda", 0.5, 10, 1, 100, 10, 64),
        ("sgd", 0.01, 1, 0.9, 0),
        {"augmentation": "flip_crop_rotate", "auxiliary_per_class": 32},
    ),
    **{
        ("fedcad", dataset): (
            ("resnet50+bn", "by_writer_2000", None, 10, 1, 50, 10, 64),
            ("sgd", 0.01, 1, 0.9, 0),
            {"auxiliary_per_class": 32},
        )
        for dataset in (
            "femnist",
            "femnist_letters",
            "femnist_digits",
        )  # the paper does not say which
    },
    ("fedkf", "cifar10"): (
        ("resnet8_wide", "fedkf", 0.1, 20, 0.2, 100, 10, 64),
        ("sgd", 0.1, 1, 0, 0),
        {"normalization": "fedgkd", "local_test_fraction": 0.2, "step_rule": "equal"},
    ),
    ("fedkf", "cifar100"): (
        ("resnet8_wide", "fedkf", 0.1, 20, 0.2, 100, 10, 64),
        ("sgd", 0.1, 1, 0, 0),
        {"normalization": "fedkf", "local_test_fraction": 0.2, "step_rule": "equal"},
    ),
    ("fedkf", "emnist_letters"): (
        ("lenet5_120", "fedkf", 0.1, 20, 0.2, 100, 10, 64),
        ("sgd", 0.01, 1, 0, 0),
        {
            "normalization": "fedkf",
            "image_size": "resize32",
            "local_test_fraction": 0.2,
            "step_rule": "equal",
        }
        | {"fraction": 0.1},
    ),
}
# Appendix A; batch size, samples and rounds are the code's.
_SETTINGS["fedproto", "mnist"] = (
    ("cnn_fedproto", "fedproto", None, 20, 1, 100, 1, 4),
    ("sgd", 0.01, 1, 0.5, 0),
    {
        "classes_per_client": 3,
        "step_rule": "whole_epochs",
        "local_test_fraction": 40 / 140,
        "evaluate_personal": "last",
    },
)
# Algorithm 1 as printed: E passes of each client over its own data.
_SETTINGS |= {
    ("fedkf_printed", name): (problem, training, others | {"step_rule": "epochs"})
    for (paper, name), (problem, training, others) in _SETTINGS.items()
    if paper == "fedkf"
}
SETTINGS = {
    key: dict(zip(PROBLEM, problem, strict=True))
    | dict(zip(TRAINING, training, strict=True))
    | others
    for key, (problem, training, others) in _SETTINGS.items()
}

# Setting fields that were tuned for one algorithm; the setting has what was chosen. FedGKD, section
# 5.1.
TUNED = {
    ("fedgkd", name, "fedavg"): {"lr": (0.1, 0.05, 0.01)}
    for name in ("cifar10", "cifar100", "tiny_imagenet")
}

# Samples of the whole training part, those that clients train on, and those that validate. FedKF's
# clients train on 80 % of what they own; FedCAD's server takes 32 of each class, and how many
# FEMNIST has is not stated.
SAMPLES = {
    ("fedgkd", "cifar10"): (50_000, 45_000, 5_000),
    ("fedgkd", "cifar100"): (50_000, 45_000, 5_000),
    ("fedgkd", "tiny_imagenet"): (100_000, 90_000, 10_000),
    ("fedgkd", "ag_news"): (120_000, 60_000, 6_000),
    ("fedgkd", "sst5"): (9_645, 8_544, 1_101),
    ("feddkd", "emnist_letters"): (124_800, 62_400, 12_480),
    ("feddkd", "cifar10"): (50_000, 45_000, 5_000),
    ("feddkd", "cifar100"): (50_000, 45_000, 5_000),
    ("feddkd", "digits5"): (5 * 743, 5 * 743, 0),
    ("feddkd_emnist", "emnist_letters"): (124_800, 12_480, 0),
    ("fedcad", "cifar10"): (50_000, 49_680, 0),
    ("fedcad", "cifar100"): (50_000, 46_800, 0),
    ("fedkf", "cifar10"): (50_000, 40_000, 0),
    ("fedkf", "cifar100"): (50_000, 40_000, 0),
    ("fedkf", "emnist_letters"): (124_800, 9_984, 0),
}


@dataclass(frozen=True)
class Row:
    """An algorithm in a paper: values tried, the reported one of them, and all values that differ from the default."""

    paper: str
    datasets: str
    algorithm: str
    tried: dict[str, tuple[object, ...]] = field(default_factory=dict)
    reported: dict[str, object] = field(default_factory=dict)
    fixed: dict[str, object] = field(default_factory=dict)


_GKD_ALL = "cifar10 cifar100 tiny_imagenet ag_news sst5"
_DKD_ALL = "emnist_letters cifar10 cifar100 digits5"
_CAD_ALL = "cifar10 cifar100 femnist femnist_letters femnist_digits"
_KF_ALL = "cifar10 cifar100 emnist_letters"
_M = {"buffer": (1, 3, 5, 7)}
_A = {"hard_weight": (0.1, 1, 10)}
_SIX = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1)
_GAMMAS = {"gamma": (0.001, 0.01, 0.1, 0.2, 0.5, 1)}
_KF_PRINTED = {"lambda_2": 0.1, "generator_lr": 0.001, "t1_unvisited": "w0"}
_LAMBDAS = {"lambda_1": (0.001, 0.01, 0.1)}
_KF_GAMMAS = _LAMBDAS | {"gamma": (0.001, 1)}
_KF_CODE = {"lambda_2": 0.1, "variant": "code", "noise_dim": 1000, "adversarial": True}
_KF_LETTERS = _KF_CODE | {"gamma": 1, "noise_dim": 100, "adversarial": False}
_GEN8 = {"annealing": 0.98, "label_prior": "uniform", "hidden_dim": 512, "noise_dim": 64}
_GEN50 = {"annealing": 0.98, "label_prior": "uniform", "hidden_dim": 2048, "noise_dim": 2048}
_GENBERT = {"annealing": 0.98, "label_prior": "uniform", "hidden_dim": 768, "noise_dim": 768}
_GEN_CODE = {
    "objective": "broadcast",
    "hard_weight": 10,
    "soft_weight": 1,
    "annealing": 0.98,
    "label_prior": "uniform",
}
_GEN_CODE |= {"hidden_dim": 256, "noise_dim": 32, "generator_lr": 1e-4, "generator_steps": 50}
_DISTILL_CODE = {
    "distillation_weight": 1,
    "temperature": 1,
    "fd_exclude_self": False,
    "fd_cumulative": True,
}
_PROX_CODE = {"prox_reduction": "mean_per_tensor"}
_MAX_CODE = {"fedmax_direction": "u_a", "fedmax_reduction": "elementmean"}
_DKD_FEMNIST = {"steps": 10, "lr": 0.2, "lr_decay": 0.98}
_DKD_DIGITS = {"steps": 10, "lr": 0.01, "lr_decay": 0.98, "step_decay": 0.97, "batch_size": 10}

_ROWS = (
    Row("fedgkd", _GKD_ALL, "fedavg"),
    Row("fedgkd", "cifar10", "fedprox", fixed={"mu": 0.01}),
    Row("fedgkd", "cifar100 tiny_imagenet ag_news sst5", "fedprox", fixed={"mu": 0.001}),
    Row("fedgkd", "cifar10 cifar100", "moon", fixed={"mu": 5, "temperature": 0.5}),
    Row("fedgkd", "tiny_imagenet", "moon", fixed={"mu": 1, "temperature": 0.5}),
    Row("fedgkd", "ag_news sst5", "moon", fixed={"mu": 0.1, "temperature": 0.5}),
    Row("fedgkd", _GKD_ALL, "feddistill", fixed={"distillation_weight": 0.1, "temperature": 1}),
    Row("fedgkd", "cifar10", "fedgen", _A, {"hard_weight": 0.1}, _GEN8),
    Row("fedgkd", "cifar100", "fedgen", _A, {"hard_weight": 1}, _GEN8),
    Row("fedgkd", "tiny_imagenet", "fedgen", _A, {"hard_weight": 0.1}, _GEN50),
    Row("fedgkd", "ag_news sst5", "fedgen", _A, {"hard_weight": 1}, _GENBERT),
    Row("fedgkd", "cifar10 cifar100", "fedgkd", _M, {"buffer": 5}, {"gamma": 0.2}),
    Row("fedgkd", "tiny_imagenet", "fedgkd", fixed={"gamma": 0.1, "buffer": 5}),
    Row("fedgkd", "ag_news sst5", "fedgkd", fixed={"gamma": 0.2, "buffer": 1}),
    Row(
        "fedgkd",
        "cifar10",
        "fedgkd_vote",
        _M,
        {"buffer": 5},
        {"distillation_weight": 0.1, "beta": None},
    ),
    Row(
        "fedgkd",
        "cifar100 tiny_imagenet",
        "fedgkd_vote",
        fixed={"distillation_weight": 0.1, "buffer": 5},
    ),
    Row("fedgkd", "ag_news sst5", "fedgkd_vote", fixed={"distillation_weight": 0.1, "buffer": 3}),
    Row("fedgkd", "cifar10 cifar100", "fedgkd_plus", fixed={"gamma": 0.2, "buffer": 5}),
    Row("fedgkd", "ag_news sst5", "fedgkd_plus", fixed={"gamma": 0.2, "buffer": 1}),
    Row("fedgkd", "tiny_imagenet", "fedgkd_plus", fixed={"gamma": 0.1, "buffer": 5}),
    Row("fedgkd", "cifar10 cifar100 sst5", "fedgkd_mse", fixed={"gamma": 0.2, "buffer": 1}),
    Row("feddkd", _DKD_ALL, "fedavg"),
    Row("feddkd", "emnist_letters", "fedprox", {"mu": (0.01, 0.1, 1, 10)}, {"mu": 10}, _PROX_CODE),
    Row("feddkd", "cifar10 cifar100", "fedprox", {"mu": (0.001, 0.01, 0.1, 1, 10)}, {"mu": 0.01}),
    Row("feddkd", "digits5", "fedprox", fixed={"mu": 0.01}),
    Row(
        "feddkd",
        "emnist_letters",
        "fedmax",
        {"beta": (1, 10, 100, 1_000, 10_000)},
        {"beta": 10},
        _MAX_CODE,
    ),
    Row("feddkd", "emnist_letters", "feddkd", fixed=_DKD_FEMNIST),
    Row("feddkd", "emnist_letters", "feddkd_max", fixed={"beta": 10} | _MAX_CODE | _DKD_FEMNIST),
    Row(
        "feddkd",
        "cifar10",
        "feddkd",
        fixed={"steps": 3, "lr": 0.08, "lr_decay": 0.99, "batch_size": 64},
    ),
    Row(
        "feddkd",
        "cifar100",
        "feddkd",
        fixed={"steps": 3, "lr": 0.06, "batch_size": 256, "warmup_rounds": 30},
    ),
    Row("feddkd", "digits5", "fedbn"),
    Row("feddkd", "digits5", "feddkd", fixed=_DKD_DIGITS),
    Row("feddkd", "digits5", "feddkd_bn", fixed=_DKD_DIGITS),
    Row("feddkd_emnist", "emnist_letters", "fedavg"),
    Row("feddkd_emnist", "emnist_letters", "fedprox", fixed={"mu": 1}),
    Row("feddkd_emnist", "emnist_letters", "feddistill", fixed=_DISTILL_CODE),
    Row("feddkd_emnist", "emnist_letters", "fedgen", fixed=_GEN_CODE),
    Row(
        "feddkd_emnist",
        "emnist_letters",
        "feddkd",
        fixed={"steps": 3, "lr": 0.4, "lr_decay": 0.99, "batch_size": 32},
    ),
    Row("fedcad", _CAD_ALL, "fedavg"),
    Row("fedcad", _CAD_ALL, "fedprox", {"mu": (0.001, 0.01, 0.1)}),
    Row(
        "fedcad",
        _CAD_ALL,
        "fedlsd",
        {"distillation_weight": (0.1, 0.3, 0.5)},
        {},
        {"temperature": 2},
    ),
    Row("fedcad", _CAD_ALL, "fedcad", {"beta": (0, 0.3, 0.5, 0.7), "gamma": (0, 0.3, 0.5, 0.7)}),
    Row("fedkf", _KF_ALL, "fedavg"),
    Row("fedkf", _KF_ALL, "fedavg_t1"),
    Row("fedkf", "cifar10 emnist_letters", "fedprox", {"mu": _SIX}, {"mu": 0.001}),
    Row("fedkf", "cifar100", "fedprox", {"mu": _SIX}, {"mu": 0.0001}),
    Row("fedkf", "cifar10 emnist_letters", "fedprox_t1", {"mu": _SIX}, {"mu": 0.001}),
    Row("fedkf", "cifar100", "fedprox_t1", {"mu": _SIX}, {"mu": 0.0001}),
    Row("fedkf", "cifar10 cifar100", "fedgkd", _GAMMAS, {"gamma": 0.2}, {"buffer": 5}),
    Row("fedkf", "emnist_letters", "fedgkd", _GAMMAS, {"gamma": 0.001}, {"buffer": 5}),
    Row("fedkf", "cifar10 cifar100", "fedgkd_t1", _GAMMAS, {"gamma": 0.2}, {"buffer": 5}),
    Row("fedkf", "emnist_letters", "fedgkd_t1", _GAMMAS, {"gamma": 0.001}, {"buffer": 5}),
    Row("fedkf", _KF_ALL, "qffl", {"q": _SIX}, {"q": 0.0001}),
    Row(
        "fedkf",
        "cifar10",
        "fedkf",
        _KF_GAMMAS,
        {"lambda_1": 0.1, "gamma": 1},
        _KF_CODE | {"generator_lr": 0.001},
    ),
    Row("fedkf", "cifar100", "fedkf", _LAMBDAS, {"lambda_1": 0.01}, _KF_CODE | {"gamma": 1}),
    Row("fedkf", "emnist_letters", "fedkf", _LAMBDAS, {"lambda_1": 0.01}, _KF_LETTERS),
    Row(
        "fedkf_printed", "cifar10", "fedkf", _KF_GAMMAS, {"lambda_1": 0.1, "gamma": 1}, _KF_PRINTED
    ),
    Row("fedproto", "mnist", "fedavg"),
    Row("fedproto", "mnist", "fedprox"),
    Row("fedproto", "mnist", "local", fixed={"own_weights": True}),
    Row("fedproto", "mnist", "fedproto", fixed={"own_weights": True}),
    Row(
        "fedkf_printed",
        "cifar100 emnist_letters",
        "fedkf",
        _LAMBDAS,
        {"lambda_1": 0.01},
        {"gamma": 1} | _KF_PRINTED,
    ),
)
ROWS = {
    (row.paper, dataset, row.algorithm): row for row in _ROWS for dataset in row.datasets.split()
}

# Where the reported value depends on alpha: FedGKD, the M of Table 7 whose cell is Table 3's;
# FedKF, section 6.1.
REPORTED_AT = {
    ("fedgkd", "cifar10", "fedgkd"): {1.0: {"buffer": 5}, 0.5: {"buffer": 1}, 0.1: {"buffer": 5}},
    ("fedgkd", "cifar100", "fedgkd"): {1.0: {"buffer": 5}, 0.5: {"buffer": 7}, 0.1: {"buffer": 5}},
    ("fedkf", "cifar10", "fedkf"): {1.0: {"gamma": 0.001}, 0.1: {"gamma": 1}, 0.01: {"gamma": 1}},
}
