"""`Request`, which holds a user's options, the check of its names, and the settings that result from it.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from algorithms import ALGORITHMS, Entry, entry
from bench import data, models
from bench.errors import UsageError
from bench.terminal.words import text, unknown
from leaderboards.selection import DEFAULT_RULE
from search_spaces import PAPERS, SETTINGS, Grid, Setting, cast, combinations, setting_fields

EMBEDDED_DATASET = "digits"
LABEL = "label"  # in `--set label=NAME`: the column of labels of `--dataset csv:PATH`
FALLBACK_PAPER = "fedgkd"
AUXILIARY_PER_CLASS = 32  # FedCAD, Experiments: "using only 32 samples for each class"
VALIDATION_FRACTION = 0.1
AT_ONCE, TWO_STAGE = TUNINGS = ("at-once", "two-stage")
REPLICATE_STEP = 1000  # replicate r of seed p has seed p + 1000 r
NEEDED_BY = "needed by"  # begins the origin of a value that some algorithms bring


@dataclass(frozen=True)
class Request:
    """A user's request for a sweep.

    Args:
        values: setting fields and hyper-parameters given, each with its values as text.
        tuning: one of `TUNINGS`; the second stage of `TWO_STAGE` is planned from the first one's
            results.
        confirm: seeds, 0 not among them, that run the configurations chosen on seed 0; empty for no
            confirmation.
        confirm_at: setting field -> values, as text, of the cells to confirm in; empty for the
            tuned cells.
        replicates: name of a row -> number of runs of each of its seeds.
    """

    algorithms: tuple[str, ...]  # registry names, or `all`; for a table, empty means all
    dataset: str = EMBEDDED_DATASET  # for a table, several joined by commas, or empty for all
    paper: str | None = (
        None  # source of the setting and the grids; None chooses it by data set and algorithms
    )
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)  # where each of `values` was given
    seeds: int = 1  # counted from 0
    search: str = "grid"
    sampler: str = ""  # of `--search module:factory`, which is Optuna's with that sampler
    num_samples: int = 10  # configurations per algorithm, for random and Optuna without `budget`
    budget: int = 0  # configurations that every algorithm gets, with the learning rate tuned as well; 0 for none
    scheduler: str = "none"  # `asha`, or `module:factory`
    tuning: str = AT_ONCE
    chosen_by: str = DEFAULT_RULE  # of `leaderboards.selection.RULES`
    select_on: str | None = (
        None  # of `leaderboards.selection.PROTOCOLS`; None: as each setting has it
    )
    confirm: tuple[int, ...] = ()
    confirm_at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    replicates: Mapping[str, int] = field(default_factory=dict)
    force: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)  # of `all`: algorithm -> why
    table: str | None = (
        None  # printed name of a table of `paper`, whose cells are run; None for an ordinary sweep
    )

    @property
    def configurations(self) -> int:
        """The number of configurations that Optuna chooses for each algorithm."""
        return self.budget or self.num_samples

    def place_of(self, name: str) -> str:
        """Return the words that a message adds about a value's origin; empty for the command line."""
        origin = self.origins.get(name, "command line")
        return "" if origin == "command line" else f" (from {origin})"


def with_named_data(request: Request, notes: list[str]) -> Request:
    """Name a user's own files by their content, in place of their path and label.

    A note says what was read. Raises UsageError if they cannot be read, or label is given for other
    data.
    """
    labels = request.values.get(LABEL, ())
    if not data.is_path(request.dataset):
        return request
    if len(labels) > 1:
        raise UsageError(
            f"label takes the name of one column, got {', '.join(labels)}{request.place_of(LABEL)}"
        )
    info = data.info(data.named(request.dataset, *labels))
    inputs = "x".join(map(str, info.input_shape))
    notes.append(
        f"{info.name} is {request.dataset}: {info.train_size:,} training and "
        f"{info.test_size:,} test samples, {info.kind} of {inputs}, {info.num_classes} classes"
    )
    values = {name: texts for name, texts in request.values.items() if name != LABEL}
    return replace(request, dataset=info.name, values=values)


def check_names(request: Request) -> None:
    """Raise UsageError unless every name in a request exists and its options go together."""
    names = request.algorithms
    if "all" in names and len(names) > 1:
        raise UsageError("--algo all stands alone: name the algorithms, or all of them")
    if len(set(names)) != len(names):
        raise UsageError(f"--algo names an algorithm twice: {', '.join(names)}")
    for name in names:
        if name not in ALGORITHMS and name != "all":
            find_algorithm(name)
    if "dataset" in request.values:
        raise UsageError(
            "the data set decides whose setting is used: give it as --dataset, not with --set"
        )
    data.info(request.dataset)
    if request.paper and request.paper not in PAPERS:
        raise unknown("paper", request.paper, PAPERS)
    excluded = {
        "--search random": request.search == "random",
        "--scheduler": request.scheduler != "none",
    }
    if request.budget and any(excluded.values()):
        flags = " and ".join(name for name, given in excluded.items() if given)
        raise UsageError(
            f"--budget draws configurations itself, or has Optuna choose them, and runs all of them: leave out {flags}"
        )
    if request.tuning == TWO_STAGE and (not request.budget or request.search != "grid"):
        raise UsageError(
            "--tuning two-stage divides the configurations of --budget: give --budget 6, without --search"
        )
    _check_replicates(request)


def _check_replicates(request: Request) -> None:
    """Raise UsageError if `replicates` names an algorithm that does not run, or seeds would not be distinct."""
    everything = request.algorithms == ("all",)
    for name in request.replicates:
        if not everything and name not in request.algorithms:
            raise unknown("algorithm for --replicates", name, request.algorithms)
    largest = max([request.seeds - 1, *request.confirm])
    if request.replicates and largest >= REPLICATE_STEP:
        raise UsageError(
            f"--replicates needs seeds below {REPLICATE_STEP}, got {largest}: they number the partitions"
        )
    if request.replicates and request.search == "optuna":
        raise UsageError(
            "--replicates are runs of configurations that are known: leave out --search optuna"
        )


def find_algorithm(name: str) -> Entry:
    """Find an algorithm in the registry, or import one from outside; raises UsageError if there is none or it fails."""
    try:
        return entry(name)
    except KeyError:
        from algorithms import plugins

        raise unknown("algorithm", name, [*ALGORITHMS, *plugins.names()], importable=True) from None
    except ValueError as error:
        raise UsageError(str(error)) from error


def sort_values(
    request: Request, entries: list[Entry]
) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str | None, str], tuple[str, ...]]]:
    """Sort the given values into setting fields, and hyper-parameters by (algorithm or None for any, name).

    A file may have values for algorithms that a command leaves out; these are ignored. Raises
    UsageError for a name that neither the setting nor a chosen algorithm has.
    """
    fields: dict[str, tuple[str, ...]] = {}
    hyper: dict[tuple[str | None, str], tuple[str, ...]] = {}
    names_of = {algorithm.name: set(algorithm.defaults()) for algorithm in entries}
    for name, values in request.values.items():
        algorithm, dot, short = name.rpartition(".")
        if name in setting_fields():
            fields[name] = values
        elif dot and short in names_of.get(algorithm, set()):
            hyper[algorithm, short] = values
        elif not dot and any(name in names for names in names_of.values()):
            hyper[None, name] = values
        elif (
            request.place_of(name)
            and algorithm in ALGORITHMS
            and short in ALGORITHMS[algorithm].defaults()
        ):
            continue  # a file's value for an algorithm that this command does not run
        else:
            allowed = [*setting_fields(), *sorted(set().union(*names_of.values()))]
            kind = f"setting or hyper-parameter of {', '.join(names_of)}"
            near = short if algorithm in names_of else name
            raise UsageError(f"{unknown(kind, near, allowed)}{request.place_of(name)}")
    return fields, hyper


# The settings of a request.


def choose_setting(
    entries: list[Entry], request: Request, notes: list[str]
) -> tuple[str | None, Setting]:
    """Choose the setting of a command; return its paper (or None) and the setting.

    A note names other papers' settings.

    It is the setting of `--paper`; else of the first algorithm whose own paper has the data set;
    else of FedGKD. The embedded digits have their own setting. A data set from outside has the
    default one, without a paper, and a model that takes its samples.

    Raises UsageError if the paper has no such setting, or there is no such data set.
    """
    if request.paper:
        names = [dataset for paper, dataset in SETTINGS if paper == request.paper]
        if request.dataset not in names:
            raise UsageError(
                f"paper {request.paper!r} has no setting for data set {request.dataset!r}; it has: {', '.join(names)}"
            )
        return request.paper, SETTINGS[request.paper, request.dataset]
    own_papers = [
        algorithm.paper for algorithm in entries if (algorithm.paper, request.dataset) in SETTINGS
    ]
    papers = [paper for paper, dataset in SETTINGS if dataset == request.dataset]
    for paper in [*own_papers, FALLBACK_PAPER, *papers]:
        if (paper, request.dataset) in SETTINGS:
            others = ", ".join(other for other in papers if other != paper)
            if others:
                notes.append(
                    f"the setting is {paper}'s; --paper takes another of those on {request.dataset}: {others}"
                )
            return paper, SETTINGS[paper, request.dataset]
    info = data.info(request.dataset)
    default = Setting()
    rules = info.normalizations
    rule = default.normalization if default.normalization in rules else next(iter(rules))
    model = _default_model(info)
    return None, replace(default, dataset=request.dataset, model=model, normalization=rule)


def _default_model(info: data.DatasetInfo) -> str:
    """Return the setting's default model, or the first of the table that takes the samples."""
    default = Setting().model
    if info.kind == "texts" or models.MODELS[default].fits(info.input_shape, info.kind):
        return default
    fitting = (
        name for name, entry in models.MODELS.items() if entry.fits(info.input_shape, info.kind)
    )
    return next(fitting, default)


def settings_of(
    base: Setting,
    fields: Mapping[str, tuple[str, ...]],
    entries: list[Entry],
    request: Request,
    notes: list[str],
) -> tuple[list[Setting], dict[str, str]]:
    """Make every combination of the given setting values, with the splits that the command's algorithms need.

    Returns the settings, and the origin of each field that is not from the preset. Raises
    UsageError for a value that is not allowed.
    """
    kinds = setting_fields()
    grids = {
        name: distinct(name, values, str(kinds[name].type), request.place_of(name))
        for name, values in fields.items()
    }
    origins = {name: request.origins.get(name, "command line") for name in fields}
    extra: dict[
        str, Any
    ] = {}  # the splits that some algorithm needs: all get them, to train on the same data
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
    try:
        settings = [_with_cell(base, {**extra, **cell}) for cell in combinations(grids)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    checked = [canonical(setting) for setting in settings]
    for name in grids:
        if all(
            getattr(a, name) != getattr(b, name) for a, b in zip(settings, checked, strict=True)
        ):
            value = text(getattr(checked[0], name))
            notes.append(
                f"{name} has no effect with the other settings: it is left at {value or 'its default'}"
            )
    return list(dict.fromkeys(checked)), origins


def _with_cell(base: Setting, values: Mapping[str, Any]) -> Setting:
    """Return the setting with these values; a `model` not given is the first of `client_models`."""
    setting = replace(base, **values)
    if values.get("client_models") and "model" not in values:
        setting = replace(setting, model=setting.models_of_clients[0])
    return setting


def canonical(setting: Setting) -> Setting:
    """Check the names in a setting and reset fields that have no effect in it, so that equal runs get equal keys.

    Raises UsageError for a normalisation, size or mirroring that the data set does not allow, or an
    unknown partition.
    """
    from bench.data.partition import partition  # numpy, which `--help` does without

    info = data.info(setting.dataset)
    normalization = setting.normalization if info.kind == "images" else "none"
    info.normalization(normalization)
    if setting.augmentation != "none" and not info.flip:
        raise UsageError(
            f"augmentation={setting.augmentation} mirrors images, which changes the meaning of {info.title}: use none"
        )
    default = Setting()
    inert: dict[str, Any] = {"normalization": normalization}
    inert["client_models"] = _shortest(setting)
    if setting.public == "own":
        inert["public"] = ""
    deal = partition(setting.partition)
    inert |= {"alpha": None} if not deal.needs_alpha else {}
    if not deal.needs_classes:
        inert["classes_per_client"] = default.classes_per_client
    if info.sized(setting.image_size) is info:
        inert["image_size"] = default.image_size
    if setting.optimizer == "adam":
        inert |= {"momentum": 0.0, "nesterov": False}
    else:
        inert |= {name: getattr(default, name) for name in ("adam_beta1", "adam_beta2", "adam_eps")}
    if not setting.weight_decay:
        inert["decay_exempt"] = default.decay_exempt
    if not setting.validation_fraction:
        inert["validation_rule"] = default.validation_rule
    return replace(setting, **inert)


def _shortest(setting: Setting) -> str:
    """Return `client_models` without repetitions of the whole list; empty if all are `model`.

    Names are as `models.spelt` has them. Raises UsageError for a model that does not exist.
    """
    if not setting.client_models:
        return ""
    names = [models.spelt(name) for name in setting.models_of_clients]
    if set(names) == {models.spelt(setting.model)}:
        return ""
    lengths = [count for count in range(1, len(names) + 1) if not len(names) % count]
    period = next(count for count in lengths if names == names[:count] * (len(names) // count))
    return "/".join(names[:period])


def distinct(name: str, values: Iterable[str], kind: str, place: str = "") -> Grid:
    """Cast the distinct values to their type.

    `place`: their origin, for messages. Raises UsageError.
    """
    try:
        return Grid(*dict.fromkeys(cast(name, value, kind) for value in values))
    except ValueError as error:
        raise UsageError(f"{error}{place}") from None


def given_grids(
    algorithm: Entry, given: Mapping[tuple[str | None, str], tuple[str, ...]]
) -> dict[str, Grid]:
    """Return the values given for an algorithm's hyper-parameters, by name.

    `given`: as `sort_values` returns them.
    """
    texts = {
        f: given.get((algorithm.name, f.name)) or given.get((None, f.name))
        for f in algorithm.fields
    }
    return {
        f.name: distinct(f"{algorithm.name}.{f.name}", values, f.kind)
        for f, values in texts.items()
        if values
    }


def supply(entry: Entry, setting: Setting) -> Setting:
    """Return the setting in which this algorithm runs, its models in the form that it needs.

    Raises UsageError, with the fix, if the setting cannot give what the algorithm needs.
    """
    _check_unlike_models(entry, setting)
    setting = replace(setting, model=_supplied_model(entry, setting.model))
    if setting.client_models:
        own = [_supplied_model(entry, name) for name in setting.models_of_clients]
        setting = replace(setting, client_models="/".join(own))
    shapes = data.info(setting.dataset).sized(setting.image_size)
    for model in setting.models:
        if models.has_batchnorm(model) and setting.batch_size == 1:
            statistics = f"BatchNorm ({model}), which takes statistics over a batch"
            raise UsageError(f"{entry.name} has {statistics}: batch_size must be > 1, got 1")
        models.check_model(model, shapes.input_shape, shapes.kind)
    if entry.needs & {"common_features", "common_head"}:
        setting = _with_common_features(setting, shapes.input_shape)
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
            f"{entry.name} needs server samples: set auxiliary_per_class to 1 or more (FedCAD uses 32)"
        )
    if "validation" in entry.needs and not setting.validation_fraction:
        raise UsageError(
            f"{entry.name} needs validation samples: set validation_fraction above 0, for instance 0.1"
        )
    if "images" in entry.needs and shapes.kind != "images":
        raise UsageError(
            f"{entry.name} needs images, which {setting.dataset} does not hold: choose another data set"
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
        if "batchnorm" in entry.needs and not models.has_batchnorm(model):
            model += "+bn"
        return models.spelt(model)
    except UsageError as error:
        forms = " and ".join(sorted(entry.needs & {"batchnorm", "projection_head"}))
        raise UsageError(f"{entry.name} needs {forms}: {error}" if forms else str(error)) from None


def _check_unlike_models(entry: Entry, setting: Setting) -> None:
    """Raise UsageError if clients have models of their own, and the algorithm needs one for all."""
    if not setting.client_models or entry.unlike_models:
        return
    fitting = [name for name, other in ALGORITHMS.items() if other.unlike_models]
    raise UsageError(
        f"{entry.name} combines the weights of all clients, and client_models="
        f"{setting.client_models} gives them unlike models: leave out client_models, or choose an "
        f"algorithm for unlike models ({', '.join(fitting)})"
    )


def _with_common_features(setting: Setting, input_shape: tuple[int, ...]) -> Setting:
    """Pool the features of the clients' models to the smallest number of any, if they differ."""
    counts = [models.num_features(name, input_shape) for name in setting.models_of_clients]
    width = min(counts)
    if width == max(counts):
        return setting
    pooled = [_pooled_to(name, width) for name in setting.models_of_clients]
    return replace(setting, model=_pooled_to(setting.model, width), client_models="/".join(pooled))


def _check_common_head(entry: Entry, setting: Setting) -> None:
    """Raise UsageError if the heads of the clients' models have unlike hidden layers."""
    names = dict.fromkeys(setting.models_of_clients)
    hidden = {name: models.parse(name).entry.hidden for name in names}
    if len(set(hidden.values())) > 1:
        heads = ", ".join(
            f"{name} {f'a hidden layer of {units}' if units else 'none'}"
            for name, units in hidden.items()
        )
        raise UsageError(
            f"{entry.name} averages the heads of all clients, and client_models gives them unlike "
            f"hidden layers ({heads}): choose models whose heads agree"
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
