"""The settings that result from options, and what an algorithm needs of one.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from algorithms import ALGORITHMS, Entry
from bench import data, models
from bench.errors import UsageError, refusing_values
from bench.planning.given import distinct
from bench.planning.options import SweepOptions, Texts
from bench.terminal.words import no_effect
from search_spaces import SETTINGS, Setting, combinations, setting_fields

FALLBACK_PAPER = "fedgkd"
AUXILIARY_PER_CLASS = 32  # FedCAD, Experiments: "using only 32 samples for each class"
VALIDATION_FRACTION = 0.1
NEEDED_BY = "needed by"  # begins the origin of a value that some algorithms bring


def choose_setting(
    entries: list[Entry], options: SweepOptions, notes: list[str]
) -> tuple[str | None, Setting]:
    """Choose the setting of a command; return its paper (or None) and the setting.

    A note names other papers' settings.

    It is the setting of `--paper`; else of the first algorithm whose own paper has the data set;
    else of FedGKD. The embedded digits have their own setting. A data set from outside has the
    default one, without a paper, and a model that takes its samples.

    Raises UsageError if the paper has no such setting, or there is no such data set.
    """
    chosen = options.paper
    name = options.dataset
    if chosen:
        names = [dataset for paper, dataset in SETTINGS if paper == chosen]
        if name not in names:
            raise UsageError(
                f"paper {chosen!r} has no setting for data set {name!r}; it has: {', '.join(names)}"
            )
        return chosen, SETTINGS[chosen, name]
    papers = [paper for paper, dataset in SETTINGS if dataset == name]
    preferred = [*(algorithm.paper for algorithm in entries), FALLBACK_PAPER, *papers]
    having = [paper for paper in preferred if paper in papers]
    if having:
        paper = having[0]
        others = ", ".join(other for other in papers if other != paper)
        if others:
            notes.append(
                f"the setting is {paper}'s; --paper takes another of those on {name}: {others}"
            )
        return paper, SETTINGS[paper, name]
    info = data.info(name)
    default = Setting()
    rules = info.normalizations
    rule = default.normalization if default.normalization in rules else next(iter(rules))
    model = _default_model(info)
    return None, replace(default, dataset=name, model=model, normalization=rule)


def _default_model(info: data.DatasetInfo) -> str:
    """Return the setting's default model, or the first of the table that takes the samples."""
    default = Setting().model
    if info.kind == "texts" or models.MODELS[default].fits(info.input_shape, info.kind):
        return default
    for name, entry in models.MODELS.items():
        if entry.fits(info.input_shape, info.kind):
            return name
    return default


def settings_of(
    base: Setting,
    fields: Mapping[str, Texts],
    entries: list[Entry],
    options: SweepOptions,
    notes: list[str],
) -> tuple[list[Setting], dict[str, str]]:
    """Make every combination of the given setting values, with the splits that algorithms need.

    All algorithms of a command get these splits, to train on the same data.

    Returns the settings, and the origin of each field that is not from the preset. Raises
    UsageError for a value that is not allowed.
    """
    kinds = setting_fields()
    grids = {}
    origins = {}
    for name, texts in fields.items():
        grids[name] = distinct(name, texts, str(kinds[name].type), options.place_of(name))
        origins[name] = options.origin_of(name)
    extra: dict[str, Any] = {}
    publics = fields.get("public", ("own",))
    needing = [algorithm.name for algorithm in entries if "auxiliary" in algorithm.needs]
    if "own" in publics or "" in publics:
        needing += [algorithm.name for algorithm in entries if "public" in algorithm.needs]
    if needing and not base.auxiliary_per_class and "auxiliary_per_class" not in fields:
        extra["auxiliary_per_class"] = AUXILIARY_PER_CLASS
        origins["auxiliary_per_class"] = f"{NEEDED_BY} {', '.join(needing)}"
    if any(fields.get("client_models", ())) and "model" not in fields:
        origins["model"] = "the first of client_models"
    if not base.validation_fraction and "validation_fraction" not in fields:
        extra["validation_fraction"] = VALIDATION_FRACTION
        origins["validation_fraction"] = "a sweep selects on validation, never on test"
    if any(fields.get("public", ())) and not any("public" in entry.needs for entry in entries):
        notes.append("public has no effect: none of the algorithms uses public samples")
    with refusing_values():
        settings = [_with_values(base, {**extra, **values}) for values in combinations(grids)]
    checked = [canonical(setting) for setting in settings]
    for name in grids:
        if name in ("public", "client_models"):  # whose values may have a shorter form
            continue
        pairs = zip(settings, checked, strict=True)
        if not any(getattr(before, name) == getattr(after, name) for before, after in pairs):
            notes.append(no_effect(name, getattr(checked[0], name)))
    return list(dict.fromkeys(checked)), origins


def _with_values(base: Setting, values: Mapping[str, Any]) -> Setting:
    """Return the setting with these values; a `model` not given is the first of `client_models`."""
    setting = replace(base, **values)
    if values.get("client_models") and "model" not in values:
        setting = replace(setting, model=setting.models_of_clients[0])
    return setting


def canonical(setting: Setting) -> Setting:
    """Check the names in a setting, and reset fields that have no effect in it.

    So equal runs get equal keys.

    Raises UsageError for a normalisation, size or mirroring that the data set does not allow, or an
    unknown partition.
    """
    from bench.data.partition import partition  # numpy, which `--help` does without

    info = data.info(setting.dataset)
    normalization = setting.normalization if info.kind == "images" else "none"
    info.normalization(normalization)
    if setting.augmentation != "none" and not info.flip:
        raise UsageError(
            f"augmentation={setting.augmentation} mirrors images, which changes the meaning of "
            f"{info.title}: use none"
        )
    reset: dict[str, Any] = {"normalization": normalization, "client_models": _shortest(setting)}
    if setting.public == "own":
        reset["public"] = ""
    deal = partition(setting.partition)
    if not deal.needs_alpha:
        reset["alpha"] = None
    inert = []
    if not deal.needs_classes:
        inert.append("classes_per_client")
    if info.sized(setting.image_size) is info:
        inert.append("image_size")
    if setting.optimizer == "adam":
        reset |= {"momentum": 0.0, "nesterov": False}
    else:
        inert += ["adam_beta1", "adam_beta2", "adam_eps"]
    if not setting.weight_decay:
        inert.append("decay_exempt")
    if not setting.validation_fraction:
        inert.append("validation_rule")
    for name in inert:
        reset[name] = getattr(Setting(), name)
    return replace(setting, **reset)


def _shortest(setting: Setting) -> str:
    """Return `client_models` without repetitions of the whole list; empty if all are `model`.

    Names are canonical, as `Form.name` has them. Raises UsageError for a model that does not exist.
    """
    if not setting.client_models:
        return ""
    names = [models.parse(name).name for name in setting.models_of_clients]
    if set(names) == {models.parse(setting.model).name}:
        return ""
    lengths = [count for count in range(1, len(names) + 1) if not len(names) % count]
    period = next(count for count in lengths if names == names[:count] * (len(names) // count))
    return "/".join(names[:period])


def supply(entry: Entry, setting: Setting) -> Setting:
    """Return the setting in which this algorithm runs, its models in the form that it needs.

    Raises UsageError, with the fix, if the setting cannot give what the algorithm needs.
    """
    _check_unlike_models(entry, setting)
    setting = replace(setting, model=_supplied_model(entry, setting.model))
    if setting.client_models:
        own = [_supplied_model(entry, name) for name in setting.models_of_clients]
        setting = replace(setting, client_models="/".join(own))
    shapes = data.info_of(setting)
    for model in setting.models:
        if models.parse(model).has_batchnorm and setting.batch_size == 1:
            statistics = f"BatchNorm ({model}), which takes statistics over a batch"
            raise UsageError(f"{entry.name} has {statistics}: batch_size must be > 1, got 1")
        models.check_model(model, shapes.input_shape, shapes.kind)
    if "common_features" in entry.needs:
        setting = _with_common_features(entry, setting, shapes.input_shape)
    if "common_head" in entry.needs:
        _check_common_head(entry, setting)
    _check_samples(entry, setting, shapes)
    _check_optimizer(entry, setting)
    return setting


def _check_samples(entry: Entry, setting: Setting, shapes: data.DatasetInfo) -> None:
    """Raise UsageError unless the setting has the samples that the algorithm needs."""
    if setting.public_set:
        _check_public(entry, setting, shapes)
    elif "public" in entry.needs and not setting.auxiliary_per_class:
        raise UsageError(
            f"{entry.name} needs public samples: name another data set and a number of them, as in "
            "public=NAME:1000, or set public=own auxiliary_per_class=32"
        )
    if "auxiliary" in entry.needs and not setting.auxiliary_per_class:
        raise UsageError(
            f"{entry.name} needs server samples: set auxiliary_per_class to 1 or more (FedCAD uses "
            "32)"
        )
    if "validation" in entry.needs and not setting.validation_fraction:
        raise UsageError(
            f"{entry.name} needs validation samples: set validation_fraction above 0, for instance "
            "0.1"
        )
    if "images" in entry.needs and shapes.kind != "images":
        raise UsageError(
            f"{entry.name} needs images, which {setting.dataset} does not hold: choose another "
            "data set"
        )


def _check_optimizer(entry: Entry, setting: Setting) -> None:
    """Raise UsageError unless clients train with the optimiser that the algorithm needs."""
    if entry.needs & {"sgd", "plain_sgd"} and (setting.optimizer != "sgd" or setting.nesterov):
        other = "Nesterov's form" if setting.optimizer == "sgd" else setting.optimizer
        raise UsageError(
            f"{entry.name} needs SGD, not {other}: add --set optimizer=sgd nesterov=false"
        )
    if "plain_sgd" in entry.needs and (setting.momentum or setting.clip_norm):
        raise UsageError(
            f"{entry.name} needs plain SGD: add --set momentum=0 clip_norm=0 nesterov=false"
        )


def _supplied_model(entry: Entry, model: str) -> str:
    """Return a model's canonical name, with the forms that the algorithm needs.

    Raises UsageError if there is no such form.
    """
    if "projection_head" in entry.needs and "+head" not in model:
        model += "+head"
    try:
        if "batchnorm" in entry.needs and not models.parse(model).has_batchnorm:
            model += "+bn"
        return models.parse(model).name
    except UsageError as error:
        forms = " and ".join(sorted(entry.needs & {"batchnorm", "projection_head"}))
        raise UsageError(f"{entry.name} needs {forms}: {error}" if forms else str(error)) from None


def _check_unlike_models(entry: Entry, setting: Setting) -> None:
    """Raise UsageError if clients have models of their own, and the algorithm needs one for all."""
    if not setting.client_models or entry.unlike_models:
        return
    fitting = [name for name, other in ALGORITHMS.items() if other.unlike_models]
    own = ""
    if entry.name not in ALGORITHMS:
        own = "; if it combines none, say so in its class: unlike_models = True"
    raise UsageError(
        f"{entry.name} combines the weights of all clients, and client_models="
        f"{setting.client_models} gives them unlike models: leave out client_models, or choose an "
        f"algorithm for unlike models ({', '.join(fitting)}){own}"
    )


def _with_common_features(entry: Entry, setting: Setting, input_shape: tuple[int, ...]) -> Setting:
    """Pool the features of all models to the smallest number of any client's, if they differ.

    Raises UsageError if a projection head, whose features are not pooled, has another number.
    """
    counts = {name: models.num_features(name, input_shape) for name in setting.models}
    own = list(setting.models_of_clients)
    width = min(counts[name] for name in own)
    if set(counts.values()) == {width}:
        return setting
    for name, count in counts.items():
        if models.parse(name).head and count != width:
            raise UsageError(
                f"{entry.name} needs models with one number of features, and the projection head "
                f"of {name} has {count}, where a client's model has {width}: give all models the "
                "form +head, or none"
            )
    if max(counts[name] for name in own) > width:
        own = [_pooled_to(name, width) for name in own]
    return replace(setting, model=_pooled_to(setting.model, width), client_models="/".join(own))


def _check_common_head(entry: Entry, setting: Setting) -> None:
    """Raise UsageError if the heads of the clients' and the server's models are unlike."""
    heads = []
    hidden = set()
    for name in dict.fromkeys((*setting.models_of_clients, setting.model)):
        units = models.parse(name).entry.hidden
        hidden.add(units)
        heads.append(f"{name} a hidden layer of {units}" if units else f"{name} none")
    if len(hidden) > 1:
        raise UsageError(
            f"{entry.name} averages the heads of all clients, and client_models and model have "
            f"heads with unlike hidden layers ({', '.join(heads)}): choose models whose heads agree"
        )


def _pooled_to(model: str, width: int) -> str:
    """Return the form of a model that pools its features to a width."""
    form = models.parse(model)
    return replace(form, width=width).name


def _check_public(entry: Entry, setting: Setting, shapes: data.DatasetInfo) -> None:
    """Raise UsageError unless public samples are of another data set, in the shape of this one."""
    assert setting.public_set is not None, "there are none to check"
    name, count = setting.public_set
    public = data.info(name).sized(setting.image_size)
    given = f"public={setting.public}"
    if name == setting.dataset:
        raise UsageError(
            f"{given} names the data set that clients train on: take another, or public=own, which "
            "keeps auxiliary_per_class of its samples from them"
        )
    if (public.kind, public.input_shape) != (shapes.kind, shapes.input_shape):
        sizes = ["x".join(map(str, info.input_shape)) for info in (public, shapes)]
        raise UsageError(
            f"{given} has {public.kind} of {sizes[0]}, and {setting.dataset} {shapes.kind} of "
            f"{sizes[1]}: choose a data set of that shape, or an image_size that gives it to both"
        )
    if count > public.train_size:
        raise UsageError(
            f"{given}: {name} has {public.train_size} samples to train on: ask for as many at most"
        )
    if "public_labels" in entry.needs and public.num_classes > shapes.num_classes:
        raise UsageError(
            f"{given}: {entry.name} learns the labels of public samples, and {name} has "
            f"{public.num_classes} classes, {setting.dataset} {shapes.num_classes}: take a data "
            "set of no more classes"
        )
