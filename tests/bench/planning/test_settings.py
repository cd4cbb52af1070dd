"""Settings: the preset of a command, what it adds, and what an algorithm needs of one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from algorithms import Entry, entry
from bench.errors import UsageError
from bench.planning.options import SweepOptions
from bench.planning.settings import (
    _default_model,
    canonical,
    choose_setting,
    settings_of,
    supply,
)
from search_spaces import SETTINGS, Setting

DIGITS = Setting(dataset="digits", model="mlp", num_clients=4, validation_fraction=0.1)
IMAGES = replace(DIGITS, dataset="cifar10", model="resnet8")
SELECTS = "a sweep selects on validation, never on test"


# The preset


@pytest.mark.parametrize(
    ("names", "dataset", "paper", "chosen", "others"),
    [
        ("fedcad", "cifar10", None, "fedcad", "fedgkd, feddkd, fedkf, fedkf_printed"),
        ("fedavg,fedcad", "cifar10", None, "fedcad", "fedgkd, feddkd, fedkf, fedkf_printed"),
        ("fedavg", "cifar10", None, "fedgkd", "feddkd, fedcad, fedkf, fedkf_printed"),
        ("fedavg", "mnist", None, "fedkd", "fedproto"),
        ("fedavg", "digits", None, "fedkd", ""),
        ("fedcad", "cifar10", "fedkf", "fedkf", ""),
    ],
)
def test_a_preset_is_a_papers(
    names: str, dataset: str, paper: str | None, chosen: str, others: str
) -> None:
    algorithms = tuple(names.split(","))
    notes: list[str] = []
    options = SweepOptions(algorithms, dataset, paper)
    found = choose_setting([entry(name) for name in algorithms], options, notes)
    assert found == (chosen, SETTINGS[chosen, dataset])
    note = f"the setting is {chosen}'s; --paper takes another of those on {dataset}: {others}"
    assert notes == ([note] if others else [])


def test_a_paper_without_the_data_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        choose_setting([], SweepOptions(dataset="digits", paper="feddkd_emnist"), [])
    assert str(refused.value) == (
        "paper 'feddkd_emnist' has no setting for data set 'digits'; it has: emnist_letters"
    )


@pytest.mark.parametrize(
    ("kind", "shape", "model"),
    [
        ("images", (1, 8, 8), "mlp"),
        ("vectors", (2,), "mlp_vectors"),
        ("images", (3, 32, 32), "cnn_cifar"),
        ("texts", (128,), "mlp"),
        ("nothing", (7, 7, 7, 7), "mlp"),
    ],
)
def test_own_data_have_a_model_that_fits(kind: str, shape: tuple[int, ...], model: str) -> None:
    info: Any = SimpleNamespace(kind=kind, input_shape=shape)
    assert _default_model(info) == model


def made(
    names: str, base: Setting, values: dict[str, str], **options: Any
) -> tuple[list[Setting], dict[str, str], list[str]]:
    """The settings, their origins and the notes of a command."""
    algorithms = tuple(names.split(","))
    fields = {name: tuple(text.split(",")) for name, text in values.items()}
    notes: list[str] = []
    entries = [entry(name) for name in algorithms]
    settings, origins = settings_of(
        base, fields, entries, SweepOptions(algorithms, **options), notes
    )
    return settings, origins, notes


PLAIN = replace(DIGITS, validation_fraction=0.0)


@pytest.mark.parametrize(
    ("names", "values", "samples", "needing"),
    [
        ("fedcad,feddf,fedavg", {}, 32, "fedcad, feddf"),
        ("fedcad,feddf", {"public": "mnist:5"}, 32, "fedcad"),
        ("feddf", {"public": "mnist:5"}, 0, ""),
        ("feddf", {"public": ""}, 32, "feddf"),
        ("feddf", {"public": "own"}, 32, "feddf"),
        ("fedavg", {}, 0, ""),
    ],
)
def test_samples_of_the_server_are_added(
    names: str, values: dict[str, str], samples: int, needing: str
) -> None:
    (setting,), origins, notes = made(names, PLAIN, values)
    assert (setting.auxiliary_per_class, setting.validation_fraction) == (samples, 0.1)
    expected = dict.fromkeys(values, "command line") | {"validation_fraction": SELECTS}
    if needing:
        expected["auxiliary_per_class"] = f"needed by {needing}"
    assert (origins, notes) == (expected, [])


def test_what_is_there_is_not_added() -> None:
    has = replace(PLAIN, auxiliary_per_class=3, validation_fraction=0.2)
    assert made("fedcad", has, {}) == ([has], {}, [])
    values = {"auxiliary_per_class": "0", "validation_fraction": "0"}
    settings, origins, _ = made("fedcad", PLAIN, values, origins={"auxiliary_per_class": "file"})
    assert settings == [PLAIN]
    assert origins == {"auxiliary_per_class": "file", "validation_fraction": "command line"}


@pytest.mark.parametrize(
    ("values", "models", "origin"),
    [
        ({"client_models": "cnn_digits/mlp,mlp/mlp"}, ["cnn_digits", "mlp"], "the first of"),
        ({"client_models": "cnn_digits/mlp", "model": "mlp"}, ["mlp"], "command line"),
        ({"client_models": ""}, ["mlp"], None),
    ],
)
def test_the_first_of_unlike_models_is_the_servers(
    values: dict[str, str], models: list[str], origin: str | None
) -> None:
    settings, origins, notes = made("fd", DIGITS, values)
    assert [setting.model for setting in settings] == models
    assert (origins.get("model") or "").startswith(origin or "")
    assert ("model" in origins) == (origin is not None)
    assert notes == []


@pytest.mark.parametrize(
    ("values", "settings", "notes"),
    [
        ({"alpha": "0.1,0.5", "partition": "iid", "lr": "0.1,0.2"}, 2, ["alpha at none"]),
        ({"alpha": "0.1,0.5", "partition": "iid,lda"}, 3, []),
        ({"decay_exempt": "norm", "adam_eps": "0.1"}, 1, ["decay_exempt at none", "adam_eps at"]),
        ({"validation_rule": "last", "validation_fraction": "0"}, 1, ["validation_rule at random"]),
    ],
)
def test_values_without_effect_are_noted(
    values: dict[str, str], settings: int, notes: list[str]
) -> None:
    found, _, said = made("fd", DIGITS, values)
    assert len(found) == settings
    assert len(said) == len(notes)
    for note, words in zip(said, notes, strict=True):
        name, _, value = words.partition(" at")
        assert note.startswith(f"{name} has no effect with the other settings: it is left at")
        assert note.endswith(value)


# Its canonical form


@pytest.mark.parametrize(
    ("given", "short"),
    [
        ("mlp/cnn_digits/mlp/cnn_digits", "mlp/cnn_digits"),
        ("mlp/mlp", ""),
        ("cnn_digits/cnn_digits", "cnn_digits"),
        ("mlp/cnn_digits/cnn_digits/mlp", "mlp/cnn_digits/cnn_digits/mlp"),
        ("mlp/cnn_digits/mlp", "mlp/cnn_digits/mlp"),
        ("mlp+bn+head/mlp+head+bn", "mlp+head+bn"),
    ],
)
def test_repeated_models_are_shortened(given: str, short: str) -> None:
    assert canonical(replace(DIGITS, client_models=given)).client_models == short


def test_a_size_that_images_have_is_reset() -> None:
    assert canonical(replace(DIGITS, image_size="resize32")).image_size == "resize32"
    assert canonical(replace(IMAGES, image_size="resize32")).image_size == "own"
    mirrored = replace(IMAGES, augmentation="flip_crop")
    assert canonical(mirrored).augmentation == "flip_crop"
    with pytest.raises(UsageError, match="mirrors images, which changes the meaning of"):
        canonical(replace(DIGITS, augmentation="flip_crop"))


def test_vectors_have_no_normalization() -> None:
    vectors = replace(DIGITS, dataset="toy2d", model="mlp_vectors")
    assert canonical(vectors).normalization == "none"
    with pytest.raises(UsageError, match="normalization must be one of standard, none for digits"):
        canonical(replace(DIGITS, normalization="fedgkd"))


# What an algorithm needs


@pytest.mark.parametrize(
    ("name", "fields", "model", "client_models"),
    [
        ("fedavg", {"model": "mlp+bn", "batch_size": 2}, "mlp+bn", ""),
        ("fedavg", {"optimizer": "adam"}, "mlp", ""),
        ("fedbn", {}, "mlp+bn", ""),
        ("fedbn", {"model": "mlp+bn"}, "mlp+bn", ""),
        ("moon", {}, "mlp+head", ""),
        ("moon", {"model": "mlp+head"}, "mlp+head", ""),
        ("feddf", {"auxiliary_per_class": 1}, "mlp", ""),
        ("feddf", {"public": "cifar100:50000", **vars(IMAGES)}, "resnet8", ""),
        ("fedcad", {"auxiliary_per_class": 1}, "mlp", ""),
        ("fednova", {"momentum": 0.9, "clip_norm": 1.0}, "mlp", ""),
        ("fd", {"client_models": "mlp/cnn_digits"}, "mlp", "mlp/cnn_digits"),
        (
            "fedproto",
            {"client_models": "mlp/cnn_digits"},
            "mlp+fd64",
            "mlp+fd64/cnn_digits+fd64",
        ),
        (
            "fedproto",
            {"client_models": "mlp/mlp", "model": "cnn_digits"},
            "cnn_digits+fd64",
            "mlp/mlp",
        ),
        ("fedproto", {"client_models": "mlp/mlp+bn"}, "mlp", "mlp/mlp+bn"),
        (
            "fedproto",
            {"client_models": "mlp+head/cnn_digits+head"},
            "mlp+fd256",
            "mlp+head/cnn_digits+head",
        ),
    ],
)
def test_models_get_the_form_that_is_needed(
    name: str, fields: dict[str, Any], model: str, client_models: str
) -> None:
    if "public" in fields:
        fields = {**fields, "public": "cifar100:50000"}
    supplied = supply(entry(name), replace(DIGITS, **fields))
    assert (supplied.model, supplied.client_models) == (model, client_models)


OTHERS = "feddf, fd, fedproto, lg_fedavg, fml, fedtgp, fedmd, dsfl, fedkd, fedgh, local"
OTHER_SGD = "add --set optimizer=sgd nesterov=false"
PLAIN_SGD = "needs plain SGD: add --set momentum=0 clip_norm=0 nesterov=false"


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [
        (
            "fedavg",
            {"model": "mlp+bn", "batch_size": 1},
            "has BatchNorm (mlp+bn), which takes statistics over a batch: batch_size must be > 1, "
            "got 1",
        ),
        ("feddf", {}, "needs public samples: name another data set and a number of them, as in "),
        ("fedcad", {}, "needs server samples: set auxiliary_per_class to 1 or more (FedCAD uses "),
        ("fedgkd_vote", {"validation_fraction": 0.0}, "needs validation samples: set validation_"),
        (
            "fedkf",
            {"dataset": "toy2d", "model": "mlp_vectors"},
            "needs images, which toy2d does not hold: choose another data set",
        ),
        ("scaffold", {"optimizer": "adam"}, f"needs SGD, not adam: {OTHER_SGD}"),
        (
            "scaffold",
            {"nesterov": True, "momentum": 0.9},
            f"needs SGD, not Nesterov's form: {OTHER_SGD}",
        ),
        ("scaffold", {"momentum": 0.9}, PLAIN_SGD),
        ("scaffold", {"clip_norm": 1.0}, PLAIN_SGD),
        ("fednova", {"optimizer": "adam"}, f"needs SGD, not adam: {OTHER_SGD}"),
        (
            "fednova",
            {"nesterov": True, "momentum": 0.9},
            f"needs SGD, not Nesterov's form: {OTHER_SGD}",
        ),
        (
            "fedavg",
            {"client_models": "mlp/cnn_digits"},
            "combines the weights of all clients, and client_models=mlp/cnn_digits gives them "
            "unlike models: leave out client_models, or choose an algorithm for unlike models "
            f"({OTHERS})",
        ),
        (
            "fedproto",
            {"client_models": "mlp+head/cnn_digits"},
            "needs models with one number of features, and the projection head of mlp+head has "
            "256, where a client's model has 128: give all models the form +head, or none",
        ),
        (
            "lg_fedavg",
            {**vars(IMAGES), "client_models": "lenet5/lenet5_120", "model": "lenet5"},
            "averages the heads of all clients, and client_models and model have heads with "
            "unlike hidden layers (lenet5+fd84 none, lenet5_120+fd84 a hidden layer of 84): choose "
            "models whose heads agree",
        ),
        ("fedbn", vars(IMAGES) | {"model": "cnn_cifar"}, "needs batchnorm: model 'cnn_cifar' has "),
    ],
)
def test_what_a_setting_lacks_is_named(name: str, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        supply(entry(name), replace(DIGITS, **fields))
    assert str(refused.value).startswith(f"{name} {problem}")


def test_an_own_class_is_told_how() -> None:
    own = replace(entry("fedavg"), name="mine:Mine")
    with pytest.raises(UsageError, match=r"; if it combines none, .*: unlike_models = True$"):
        supply(own, replace(DIGITS, client_models="mlp/cnn_digits"))


LEARNER = replace(entry("fedmd"), needs=frozenset({"public_labels"}))


@pytest.mark.parametrize(
    ("public", "dataset", "algorithm", "problem"),
    [
        ("digits:5", "digits", entry("fedmd"), "names the data set that clients train on: take "),
        ("mnist:5", "digits", entry("fedmd"), "has images of 1x28x28, and digits images of 1x8x8"),
        ("cifar100:50001", "cifar10", entry("fedmd"), ": cifar100 has 50000 samples to train on"),
        (
            "cifar100:9",
            "cifar10",
            LEARNER,
            ": fedmd learns the labels of public samples, and cifar100 has 100 classes, cifar10 "
            "10: take a data set of no more classes",
        ),
    ],
)
def test_public_samples_must_fit(public: str, dataset: str, algorithm: Entry, problem: str) -> None:
    base = DIGITS if dataset == "digits" else IMAGES
    with pytest.raises(UsageError) as refused:
        supply(algorithm, replace(base, public=public))
    assert str(refused.value).startswith(f"public={public}{' ' * (problem[0] != ':')}{problem}")


def test_public_labels_may_be_as_many() -> None:
    of_ten = replace(DIGITS, dataset="svhn", model="resnet8", public="cifar10:50000")
    assert supply(LEARNER, of_ten) == of_ten
    sized = {"image_size": "resize32", "model": "resnet8", "public": "mnist:60000"}
    assert supply(LEARNER, replace(DIGITS, **sized)).public == "mnist:60000"
