"""Settings, spaces and tables of FedKF (Zhou et al. 2022), section 6, Tables 3-5.

Printed: models, optimisers, lr, rounds, epochs, batch size, clients, local test share, EMNIST's
tenth. From the code of the authors' journal version: no momentum and no weight decay, no
augmentation, the normalisation, 26 letters resized to 32x32, LeNet-5's 120 channels as features, as
many steps for every client as the mean client has, the partition in groups, the generator's noise
and its adversarial term. FedKF's spaces ask for that code's variant; if its examples and the paper
differ, as in lambda_1 and FedProx's mu on EMNIST, the paper's values are used.

Not expressed by a `Setting`:
    - Accuracies are those on the clients' own test splits; the official test sets are not used.
    - q-FFL alone passes over a client's own data E times in the code; here it takes as many steps
      as the others.
    - FedGKD's distillation waits in the code until five models are in the buffer.
    - The paper states neither the round that the tables report nor the seeds.

`PRINTED` is FedKF with Algorithm 1 as printed, beside the spaces above, which follow the authors'
later code. It has a key of its own, because both are FedKF on the same data. Printed: a generator
made anew in every client update and trained before the student, all K slots from w_0 in the mean
(OCA), E passes of each client over its own data. Printed nowhere, hence the defaults: the length of
the noise, and no adversarial term. The rest is the same.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

from search_spaces.bounds import Grid, Value
from search_spaces.setting import Paper, PaperTable, Setting, Space, crossed

PAPER = Paper(
    key="fedkf",
    title="Handling Data Heterogeneity in Federated Learning via Knowledge Fusion",
    authors="Zhou et al.",
    year=2022,
)

# The normalisation is that of FedGKD's code; CIFAR-100 takes CIFAR-10's figures.
CIFAR10 = Setting(
    dataset="cifar10",
    model="resnet8_wide",
    partition="fedkf",
    alpha=0.1,
    num_clients=20,
    participation=0.2,
    rounds=100,
    local_epochs=10,
    step_rule="equal",
    batch_size=64,
    optimizer="sgd",
    lr=0.1,
    normalization="fedgkd",
    local_test_fraction=0.2,
)
CIFAR100 = replace(CIFAR10, dataset="cifar100", normalization="fedkf")
EMNIST = replace(
    CIFAR10,
    dataset="emnist_letters",
    model="lenet5_120",
    lr=0.01,
    normalization="fedkf",
    image_size="resize32",
    fraction=0.1,
)

SETTINGS = (CIFAR10, CIFAR100, EMNIST)
_SOURCE = "Section 6.1, Implementation & Training Details"
_SIX = Grid(1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
_GAMMAS = Grid(0.001, 0.01, 0.1, 0.2, 0.5, 1.0)
_PROX_MU = {"cifar10": 1e-3, "cifar100": 1e-4, "emnist_letters": 1e-3}
_GKD_GAMMA = {"cifar10": 0.2, "cifar100": 0.2, "emnist_letters": 0.001}
_LAMBDA_1 = {"cifar10": 0.1, "cifar100": 0.01, "emnist_letters": 0.01}


def _tuned_weights(setting: Setting, fixed: dict[str, Value], source: str) -> Space:
    """Return FedKF's space with the grids of section 6.1; the values in `fixed` are not tuned."""
    grid = {"lambda_1": Grid(0.001, 0.01, 0.1)}
    chosen = {"lambda_1": _LAMBDA_1[setting.dataset]}
    if setting.dataset != "cifar10":
        return Space("fedkf", setting, grid, {"gamma": 1.0, **fixed}, source=source, chosen=chosen)
    # The paper has another gamma for one alpha, so a sweep chooses between the two.
    grid = {"gamma": Grid(0.001, 1.0), **grid}
    chosen = {"gamma": 1.0, **chosen}
    return Space(
        "fedkf",
        setting,
        grid,
        fixed,
        source=source,
        chosen=chosen,
        chosen_at={1.0: {"gamma": 0.001}},
    )


def _spaces(setting: Setting) -> tuple[Space, ...]:
    """List each baseline with its T1 form, then FedKF.

    A T1 form is the same run with another evaluated model.
    """
    name = setting.dataset
    cifar = setting.dataset != "emnist_letters"
    mu: dict[str, Value] = {"mu": _PROX_MU[name]}
    gamma: dict[str, Value] = {"gamma": _GKD_GAMMA[name]}
    buffer: dict[str, Value] = {"buffer": 5}
    fixed: dict[str, Value] = {
        "lambda_2": 0.1,
        "variant": "code",
        "generator_lr": 1e-3,
        "noise_dim": 1000 if cifar else 100,
        "adversarial": cifar,
        "teacher": "oca",
        "t1_unvisited": "skip",
    }
    source = (
        f"lambda_1, lambda_2, gamma, the generator's lr: {_SOURCE}; "
        "variant, noise, adversarial term, slots: code"
    )
    return (
        Space("fedavg", setting, source=_SOURCE),
        Space("fedavg_t1", setting, source=_SOURCE),
        Space("fedprox", setting, {"mu": _SIX}, source=_SOURCE, chosen=mu),
        Space("fedprox_t1", setting, {"mu": _SIX}, source=_SOURCE, chosen=mu),
        Space("fedgkd", setting, {"gamma": _GAMMAS}, buffer, source=_SOURCE, chosen=gamma),
        Space("fedgkd_t1", setting, {"gamma": _GAMMAS}, buffer, source=_SOURCE, chosen=gamma),
        Space("qffl", setting, {"q": _SIX}, source=_SOURCE, chosen={"q": 1e-4}),
        _tuned_weights(setting, fixed, source),
    )


SPACES = tuple(chain.from_iterable(map(_spaces, SETTINGS)))

_ALL = ("fedavg", "fedprox", "fedgkd", "qffl", "fedavg_t1", "fedprox_t1", "fedgkd_t1", "fedkf")
TABLES = tuple(
    PaperTable(name, crossed(setting, alpha=(1.0, 0.1, 0.01)), _ALL)
    for name, setting in zip("345", SETTINGS, strict=True)
)

# Algorithm 1 as printed.

_PRINTED_SETTINGS = tuple(replace(setting, step_rule="epochs") for setting in SETTINGS)
_PRINTED: dict[str, Value] = {
    "lambda_2": 0.1,
    "variant": "paper",
    "generator_lr": 1e-3,
    "teacher": "oca",
    "t1_unvisited": "w0",
}
_PRINTED_SOURCE = "Algorithm 1; lambda_1, lambda_2, gamma, the generator's lr: Section 6.1"
PRINTED = SimpleNamespace(
    PAPER=replace(
        PAPER,
        key="fedkf_printed",
        title=f"{PAPER.title} (Algorithm 1 as printed)",
        part_of=PAPER.key,
    ),
    SETTINGS=_PRINTED_SETTINGS,
    SPACES=tuple(
        _tuned_weights(setting, _PRINTED, _PRINTED_SOURCE) for setting in _PRINTED_SETTINGS
    ),
    TABLES=(),
)
