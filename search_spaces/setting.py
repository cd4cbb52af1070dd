"""A federated problem (`Setting`), the values a paper tried (`Space`), its tables (`PaperTable`).

A setting is everything that decides a run's numbers except the algorithm and the seed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

from search_spaces.bounds import Bounds, Grid, Range, Value, cast, check

PRECISIONS = ("fp32", "tf32", "bf16", "fp64")
STEP_RULES = ("epochs", "whole_epochs", "batches", "equal")
OPTIMIZERS = ("sgd", "adam")
AUGMENTATIONS = ("none", "flip_crop", "flip_crop_reflect", "flip_crop_rotate")
DECAY_EXEMPT = ("none", "norm", "norm_but_shortcut")
VALIDATION_RULES = ("random", "last")
EVALUATIONS = ("every", "last")
IMAGE_SIZES = ("own", "pad32", "resize32")
# "standard" is the data set's own; the others are named after the code that their figures are from.
NORMALIZATIONS = ("standard", "fedgkd", "fedma", "fedmax", "fedgen", "fedkf", "none")


# The fields of the first version, which identify a setting even at their default. Never add one: a
# field that was added later is left out at its default, so that run keys and rows from before it
# existed stay valid.
FIRST = frozenset(
    {
        "dataset",
        "model",
        "partition",
        "alpha",
        "num_clients",
        "participation",
        "rounds",
        "local_epochs",
        "step_rule",
        "batch_size",
        "optimizer",
        "lr",
        "lr_decay",
        "momentum",
        "nesterov",
        "weight_decay",
        "decay_exempt",
        "clip_norm",
        "adam_beta1",
        "adam_beta2",
        "adam_eps",
        "augmentation",
        "normalization",
        "image_size",
        "fraction",
        "validation_fraction",
        "validation_rule",
        "auxiliary_per_class",
        "local_test_fraction",
        "evaluate_every",
        "precision",
    }
)


def _setting(
    default: Any,
    meaning: str,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple[str, ...] = (),
    packable: bool = False,
) -> Any:
    """Declare a field of `Setting`.

    `packable`: runs that differ in it can train as one program, because it changes no step's
    computation.
    """
    bounds = Bounds(low, high, open_low, open_high, choices)
    facts = {"bounds": bounds, "meaning": meaning, "packable": packable}
    return field(default=default, metadata=facts)


@dataclass(frozen=True)
class Setting:
    """A federated problem.

    Each field carries its range and meaning as metadata; construction checks them.

    Raises:
        ValueError: a value has the wrong type or lies outside its range; the message names both.
    """

    dataset: str = _setting("digits", "registered data set")
    model: str = _setting(
        "mlp",
        "registered model; `+head` adds a projection head, `+bn` BatchNorm, `+lora8` LoRA, `+fd64` "
        "pools the features to 64; with client_models it is the server's own",
    )
    partition: str = _setting("lda", "how training samples are assigned to clients", packable=True)
    alpha: float | None = _setting(
        0.5,
        "Dirichlet concentration; small is non-IID; none for partitions without it",
        0,
        open_low=True,
        packable=True,
    )
    num_clients: int = _setting(10, "clients K", 1, packable=True)
    participation: float = _setting(
        1.0, "share C of the clients that train in a round", 0, 1, open_low=True, packable=True
    )
    rounds: int = _setting(
        100, "communication rounds with local training, T", 1, 10**9, packable=True
    )
    local_epochs: int = _setting(10, "passes E over a client's data in a round", 1, packable=True)
    step_rule: str = _setting(
        "epochs",
        "what local_epochs counts: a client's own epochs, with or without their short last batch; "
        "single batches; or the mean client's epochs, for all",
        choices=STEP_RULES,
        packable=True,
    )
    batch_size: int = _setting(64, "examples B in a local step", 1, 10**9)
    optimizer: str = _setting("sgd", "local optimiser, made anew each round", choices=OPTIMIZERS)
    lr: float = _setting(0.01, "local learning rate of round 1", 0, open_low=True, packable=True)
    lr_decay: float = _setting(
        1.0, "factor on lr after each round", 0, 1, open_low=True, packable=True
    )
    momentum: float = _setting(0.0, "SGD momentum", 0, 1, open_high=True)
    nesterov: bool = _setting(False, "Nesterov's form of momentum")
    weight_decay: float = _setting(0.0, "L2 coefficient added to the gradient", 0)
    decay_exempt: str = _setting("none", "parameters without weight decay", choices=DECAY_EXEMPT)
    clip_norm: float = _setting(0.0, "largest gradient norm of a step; 0 is no clipping", 0)
    adam_beta1: float = _setting(0.9, "Adam's first decay", 0, 1, open_high=True)
    adam_beta2: float = _setting(0.999, "Adam's second decay", 0, 1, open_high=True)
    adam_eps: float = _setting(1e-8, "Adam's denominator term", 0, open_low=True)
    augmentation: str = _setting(
        "none", "random flip, crop and rotation of training images", choices=AUGMENTATIONS
    )
    normalization: str = _setting(
        "standard", "mean and standard deviation that normalize the pixels", choices=NORMALIZATIONS
    )
    image_size: str = _setting(
        "own",
        "size of the images: their own, or 32x32, padded with black or resized (bilinear)",
        choices=IMAGE_SIZES,
    )
    fraction: float = _setting(
        1.0, "share of the training data that is used at all", 0, 1, open_low=True, packable=True
    )
    validation_fraction: float = _setting(
        0.0, "share of the training data held out to select on", 0, 1, open_high=True, packable=True
    )
    validation_rule: str = _setting(
        "random",
        "which samples are held out: drawn at random, or the last in file order",
        choices=VALIDATION_RULES,
        packable=True,
    )
    auxiliary_per_class: int = _setting(
        0, "server's labelled samples per class, taken out of the training data", 0, packable=True
    )
    local_test_fraction: float = _setting(
        0.0,
        "share of each client's data kept as its own test set",
        0,
        1,
        open_high=True,
        packable=True,
    )
    evaluate_every: int = _setting(
        1, "rounds between evaluations; the last round always is one", 1, packable=True
    )
    precision: str = _setting("fp32", "arithmetic of training", choices=PRECISIONS)
    partition_seed: int | None = _setting(
        None,
        "seed of the data subset, the splits, the partition and w_0; none for the run's own seed",
        0,
        2**63 - 1,
        packable=True,
    )
    classes_per_client: int = _setting(
        2,
        "shards of each client under partition shards, classes of each under k_classes, "
        "give or take 2 under fedproto",
        1,
        packable=True,
    )
    client_models: str = _setting(
        "",
        "models of the clients, joined by `/` and dealt in turn: client k has the one at place k "
        "modulo their number; empty if all have `model`",
    )
    public: str = _setting(
        "",
        "samples without labels that server and clients have, `NAME:N`: N of another data set's "
        "training samples, of the same shape; `own` is auxiliary_per_class; empty for none",
        packable=True,
    )
    start_from: str = _setting(
        "",
        "run key of a stored run, whose final model is w_0; empty for drawn weights",
        packable=True,
    )
    local_validation_fraction: float = _setting(
        0.0,
        "share of each client's data kept as its own validation set; runs are then selected on it",
        0,
        1,
        open_high=True,
        packable=True,
    )
    finetune_steps: int = _setting(
        0,
        "local steps after which each client's model is evaluated again, as NAME_ft; 0 for none",
        0,
        packable=True,
    )
    new_clients: float = _setting(
        0.0,
        "share of the clients, the last ones, that never train and are evaluated apart",
        0,
        1,
        open_high=True,
        packable=True,
    )
    evaluate_personal: str = _setting(
        "every",
        "when clients' own models are measured on the test set: each evaluation, or the last",
        choices=EVALUATIONS,
        packable=True,
    )

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = cast(item.name, getattr(self, item.name), str(item.type))
            check(item.name, value, item.metadata["bounds"])
            object.__setattr__(self, item.name, value)
        if self.nesterov and not self.momentum:
            raise ValueError(
                "nesterov needs momentum > 0, got momentum=0.0: set momentum, or nesterov=false"
            )
        if self.evaluate_every > self.rounds:
            raise ValueError(
                "evaluate_every must be <= rounds, "
                f"got evaluate_every={self.evaluate_every}, rounds={self.rounds}"
            )
        self._check_clients()
        if self.client_models and not all(self.client_models.split("/")):
            raise ValueError(
                "client_models must be models joined by /, such as mlp/cnn_digits, "
                f"got {self.client_models!r}"
            )
        if self.public not in ("", "own") and not re.fullmatch(r".+:0*[1-9]\d{0,8}", self.public):
            raise ValueError(
                "public must be a data set and a number of samples, such as cifar100:5000, or own, "
                f"got {self.public!r}"
            )
        if self.start_from and not re.fullmatch("[0-9a-f]{64}", self.start_from):
            raise ValueError(
                f"start_from must be a run key of 64 hexadecimal digits, got {self.start_from!r}"
            )

    def _check_clients(self) -> None:
        """Raise ValueError unless clients keep training samples, and some clients train."""
        own_tests = self.local_test_fraction
        own_validation = self.local_validation_fraction
        if own_validation and not own_tests:
            raise ValueError(
                f"local_validation_fraction={own_validation:g} needs local_test_fraction > 0, "
                "got 0: set local_test_fraction=0.2, or leave out local_validation_fraction"
            )
        if own_validation and own_tests + own_validation >= 1:
            raise ValueError(
                "local_test_fraction + local_validation_fraction must be < 1, so that clients keep "
                f"samples to train on, got {own_tests:g} + {own_validation:g}: lower either"
            )
        if self.new_clients and not own_tests:
            raise ValueError(
                f"new_clients={self.new_clients:g} needs local_test_fraction > 0, on which these "
                "clients are evaluated, got 0: set local_test_fraction=0.2, or no new_clients"
            )
        if not self.training_clients:
            raise ValueError(
                "new_clients must leave a client to train, got "
                f"new_clients={self.new_clients:g} of num_clients={self.num_clients}: lower it"
            )

    @property
    def training_clients(self) -> int:
        """The number of clients that ever train, the first; new_clients*K is rounded half up."""
        return self.num_clients - share_of(self.new_clients, self.num_clients)

    @property
    def models_of_clients(self) -> tuple[str, ...]:
        """The models that are dealt to the clients in turn; `model` alone if they have no other."""
        return tuple(self.client_models.split("/")) if self.client_models else (self.model,)

    @property
    def models(self) -> tuple[str, ...]:
        """All distinct models: `model`, and the clients'."""
        return tuple(dict.fromkeys((self.model, *self.models_of_clients)))

    @property
    def public_set(self) -> tuple[str, int] | None:
        """The data set that public samples are of, and their number; None if there is no such."""
        if self.public in ("", "own"):
            return None
        name, _, count = self.public.rpartition(":")
        return name, int(count)

    @property
    def cohort_size(self) -> int:
        """The number of clients of a round: C of those that ever train, rounded half up, or one."""
        return max(1, share_of(self.participation, self.training_clients))

    def partition_seed_of(self, seed: int) -> int:
        """Return the seed of the partition of a run with this seed."""
        return seed if self.partition_seed is None else self.partition_seed

    def as_dict(self) -> dict[str, Value]:
        """Return the fields that identify the setting, by name.

        These are the fields of `FIRST`, and others off their default.
        """
        identifying = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name in FIRST or value != item.default:
                identifying[item.name] = value
        return identifying

    def of_program(self) -> dict[str, Value]:
        """Return the fields that decide what a step computes, by name.

        They are equal in all runs that train as one program.
        """
        fields = [item for item in dataclasses.fields(self) if not item.metadata["packable"]]
        return {item.name: getattr(self, item.name) for item in fields}


def share_of(share: float, count: int) -> int:
    """Round `share` of `count` half up.

    The share is taken as it is printed: 0.29 of 50 is 14.5, hence 15.
    """
    return floor(Fraction(repr(share)) * count + Fraction(1, 2))


def crossed(setting: Setting, **values: tuple[Value, ...]) -> tuple[Setting, ...]:
    """Return the setting with every combination of the given values of its fields.

    The last one varies fastest.
    """
    settings = []
    for combination in product(*values.values()):
        fields: dict[str, Any] = dict(zip(values, combination, strict=True))
        settings.append(dataclasses.replace(setting, **fields))
    return tuple(settings)


def setting_fields() -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of `Setting` by name, with `bounds` and `meaning` in their metadata."""
    return {item.name: item for item in dataclasses.fields(Setting)}


def setting_defaults() -> dict[str, Value]:
    """Return the default of each field, which `Setting.as_dict` leaves out of later fields."""
    defaults = Setting()
    return {name: getattr(defaults, name) for name in setting_fields()}


# The papers' search spaces and tables.


@dataclass(frozen=True)
class Paper:
    """A paper whose experiments are encoded here, or this project's own settings.

    `key` is its name on the command line; `part_of` is the paper's main key if this is a second
    problem on a data set.
    """

    key: str
    title: str
    authors: str
    year: int
    part_of: str = ""


@dataclass(frozen=True)
class Space:
    """The values that one paper tried for one algorithm in one setting.

    Args:
        algorithm: name in the registry.
        setting: the problem; its model may differ from that of the paper's other algorithms.
        grid: values tried, by hyper-parameter.
        fixed: values without tuning, stated in the paper or in the code that it ran (`source` says
            which).
        source: section or table of the paper.
        chosen: values of the paper's results, for the names of `grid` for which it states one; a
            sweep ignores them.
        chosen_at: the same for single values of the setting's alpha, if they differ.
        tuned: values tried for fields of the setting, such as `lr`; the setting has those of the
            paper's results.
    """

    algorithm: str
    setting: Setting
    grid: Mapping[str, Grid] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    source: str = ""
    chosen: Mapping[str, Value] = field(default_factory=dict)
    chosen_at: Mapping[float, Mapping[str, Value]] = field(default_factory=dict)
    tuned: Mapping[str, Grid] = field(default_factory=dict)

    def reported(self, alpha: float | None = None) -> dict[str, Value]:
        """Return the fixed and the chosen values of a result at an alpha, by default the setting's.

        Missing names of `grid` have no printed choice; names in neither have the algorithm's
        default.
        """
        if alpha is None:
            alpha = self.setting.alpha
        values = {**self.fixed, **self.chosen}
        if alpha is not None:
            values.update(self.chosen_at.get(alpha, {}))
        return values


@dataclass(frozen=True)
class PaperTable:
    """One table of a paper's results: every setting with every algorithm.

    An algorithm runs with the values that its `Space` reports, and on its `Space`'s model if that
    differs.

    Args:
        name: as printed, such as `3` or `IV`.
        settings: the problems.
        algorithms: names in the registry, as printed from first to last.
        runs: number of runs behind a printed mean; 1 if the paper does not say.
    """

    name: str
    settings: tuple[Setting, ...]
    algorithms: tuple[str, ...]
    runs: int = 1


def combinations(grid: Mapping[str, Grid | Range]) -> Iterator[dict[str, Value]]:
    """Yield every combination of a grid's values, the last name varying fastest."""
    for values in product(*(entry.values for entry in grid.values())):
        yield dict(zip(grid, values, strict=True))
