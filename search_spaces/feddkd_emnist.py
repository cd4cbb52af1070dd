"""Setting, spaces and table of FedDKD (Li et al. 2022), section IV-C, Table V.

EMNIST is as in FedGen (Zhu et al. 2021). It has its own key, because FedDKD has two problems on
EMNIST's letters: its "FEMNIST" is the other (`feddkd`). Printed: clients, participation, E = 20, a
tenth of the training data, the whole test set, alpha, FedDKD's lr, decay and steps;
"hyper-parameters for the baseline as those in FedGen". From FedGen's code: model, lr and its decay,
batch size, 200 rounds, partition, normalisation, E as a number of mini-batches and all values of
the baselines. Settled here: 32 samples for a request of FedDKD.

Not expressed by a `Setting`:
    - FedGen's code tests clients on the labels that they hold; FedDKD prints "all test datasets".
    - FedGen's code neither sends nor averages BatchNorm's running statistics: each client is tested
      with its own.
    - FedGen's code drops the last incomplete batch, and goes on in a client's order of batches in
      the next round.
    - FedGen's FedProx also decays weights by 0.001, apart from the gradient.
    - Ten runs each.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.bounds import Value
from search_spaces.feddkd import PAPER as MAIN
from search_spaces.feddkd import distillation
from search_spaces.setting import PaperTable, Setting, Space, crossed

PAPER = replace(
    MAIN, key="feddkd_emnist", title=f"{MAIN.title} (Table V, FedGen's EMNIST)", part_of=MAIN.key
)

EMNIST = Setting(
    dataset="emnist_letters",
    model="cnn_fedgen",
    partition="fedgen",
    alpha=0.1,
    num_clients=20,
    participation=0.5,
    rounds=200,
    local_epochs=20,
    step_rule="batches",
    batch_size=32,
    optimizer="sgd",
    lr=0.01,
    lr_decay=0.99,
    normalization="fedgen",
    fraction=0.1,
)
SETTINGS = (EMNIST,)

_FEDDISTILL: dict[str, Value] = {
    "distillation_weight": 1.0,
    "temperature": 1.0,
    "fd_exclude_self": False,
    "fd_cumulative": True,
}
_FEDGEN: dict[str, Value] = {
    "objective": "broadcast",
    "hard_weight": 10.0,
    "soft_weight": 1.0,
    "annealing": 0.98,
    "label_prior": "uniform",
    "diversity_weight": 1.0,
    "generator_steps": 50,
    "generator_lr": 1e-4,
    "generator_lr_decay": 0.98,
    "generator_weight_decay": 0.01,
    "hidden_dim": 256,
    "noise_dim": 32,
    "label_embedding": False,
}
_BASELINE = "Section IV-C; values: FedGen's code"
SPACES = (
    Space("fedavg", EMNIST, source=_BASELINE),
    Space("fedprox", EMNIST, fixed={"mu": 1.0}, source=_BASELINE),
    Space("feddistill", EMNIST, fixed=_FEDDISTILL, source=_BASELINE),
    Space("fedgen", EMNIST, fixed=_FEDGEN, source=_BASELINE),
    Space(
        "feddkd",
        EMNIST,
        fixed=distillation(3, 0.4, 0.99, 32),
        source="Section IV-C; batch as in local training",
    ),
)
_ALL = ("fedavg", "fedprox", "feddistill", "fedgen", "feddkd")
TABLES = (PaperTable("V", crossed(EMNIST, alpha=(0.05, 0.1)), _ALL, runs=10),)  # Section IV-C
