"""Checks of what options give: names that exist, and values of their types.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from algorithms import ALGORITHMS, Entry, entry
from bench import data
from bench.errors import UsageError, refusing_values
from bench.planning.options import TWO_STAGE, SweepOptions, Texts
from bench.terminal.words import unknown
from search_spaces import PAPERS, Grid, cast, setting_fields

LABEL = "label"  # in `--set label=NAME`: the column of labels of `csv:PATH`
PUBLIC = "public"  # in `--set public=NAME:N`, whose NAME may be a path as that of `--dataset`
REPLICATE_STEP = 1000  # replicate r of seed p has seed p + 1000 r

# Values of hyper-parameters, by (algorithm or None for any, name).
HyperTexts = Mapping[tuple[str | None, str], Texts]


def with_named_data(options: SweepOptions, notes: list[str]) -> SweepOptions:
    """Name a user's own files by their content, in place of their path and label.

    A note says what was read. Raises UsageError if they cannot be read, or label is given for other
    data.
    """
    labels = options.values.get(LABEL, ())
    publics = options.values.get(PUBLIC, ())
    typed = [options.dataset, *(name_and_count(text)[0] for text in publics)]
    paths = [name for name in typed if data.is_path(name)]
    if not paths:
        return options
    if len(labels) > 1:
        raise UsageError(
            f"label takes the name of one column, got {', '.join(labels)}{options.place_of(LABEL)}"
        )
    names = names_of_paths(paths, *labels)
    for path, name in names.items():
        info = data.info(name)
        inputs = "x".join(map(str, info.input_shape))
        notes.append(
            f"{name} is {path}: {info.train_size:,} training and "
            f"{info.test_size:,} test samples, {info.kind} of {inputs}, {info.num_classes} classes"
        )
    values = {name: texts for name, texts in options.values.items() if name != LABEL}
    if publics:
        values[PUBLIC] = tuple(_named_public(text, names) for text in publics)
    dataset = names.get(options.dataset, options.dataset)
    return replace(options, dataset=dataset, values=values)


def names_of_paths(paths: Sequence[str], *label: str) -> dict[str, str]:
    """Return by path the name by which runs know the data there.

    `label`: the column of labels of every table among them. Raises UsageError as `data.named`.
    """
    tables = [path for path in paths if path.startswith(data.CSV)]
    names = {}
    for path in dict.fromkeys(paths):
        of_path = label if path in tables or not tables else ()
        names[path] = data.named(path, *of_path)
    return names


def name_and_count(public: str) -> tuple[str, str]:
    """Divide `NAME:N`, a text of `public`, into its two parts."""
    name, _, count = public.rpartition(":")
    return name, count


def _named_public(text: str, names: Mapping[str, str]) -> str:
    """Return a text of `public`, with the name by content in place of a path."""
    name, count = name_and_count(text)
    return f"{names[name]}:{count}" if name in names else text


def check_names(options: SweepOptions) -> None:
    """Raise UsageError unless every name in the options exists, and they go together."""
    names = options.algo
    if "all" in names and len(names) > 1:
        raise UsageError("--algo all stands alone: name the algorithms, or all of them")
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise UsageError(f"--algo names an algorithm twice: {', '.join(repeated)}")
    for name in names:
        if name not in ALGORITHMS and name != "all":
            find_algorithm(name)
    if "dataset" in options.values:
        raise UsageError(
            "the data set decides whose setting is used: give it as --dataset, not with --set"
        )
    data.info(options.dataset)
    check_paper(options.paper)
    _check_tuning(options)
    _check_replicates(options)


def check_paper(name: str | None) -> None:
    """Raise UsageError unless there is no name, or a paper of it."""
    if name and name not in PAPERS:
        raise unknown("paper", name, PAPERS)


def _check_tuning(options: SweepOptions) -> None:
    """Raise UsageError if options of the search exclude each other."""
    excluded = []
    if options.search == "random":
        excluded.append("--search random")
    if options.scheduler != "none":
        excluded.append("--scheduler")
    if options.budget and excluded:
        raise UsageError(
            "--budget draws configurations itself, or has Optuna choose them, and runs all of "
            f"them: leave out {' and '.join(excluded)}"
        )
    if options.tuning == TWO_STAGE and (not options.budget or options.search != "grid"):
        raise UsageError(
            "--tuning two-stage divides the configurations of --budget: give --budget 6, without "
            "--search"
        )


def _check_replicates(options: SweepOptions) -> None:
    """Raise UsageError if replicates are of no algorithm that runs, or their seeds not distinct."""
    for name in options.replicates:
        if not options.asks_for(name):
            names = ALGORITHMS if options.every_algorithm else options.algo
            raise unknown("algorithm for --replicates", name, names)
    largest = max([options.seeds - 1, *options.confirm])
    if options.replicates and largest >= REPLICATE_STEP:
        raise UsageError(
            f"--replicates needs seeds below {REPLICATE_STEP}, got {largest}: they number the "
            "partitions"
        )
    if options.replicates and options.by_optuna:
        raise UsageError(
            "--replicates are runs of configurations that are known: leave out --search optuna"
        )


def find_algorithm(name: str) -> Entry:
    """Find an algorithm in the registry, or import one from outside.

    Raises UsageError if there is none, or it fails.
    """
    try:
        return entry(name)
    except KeyError:
        from algorithms import plugins

        raise unknown("algorithm", name, [*ALGORITHMS, *plugins.names()], importable=True) from None
    except ValueError as error:
        raise UsageError(str(error)) from error


def sort_values(options: SweepOptions, entries: list[Entry]) -> tuple[dict[str, Texts], HyperTexts]:
    """Sort the given values into setting fields and hyper-parameters.

    A file may have values for algorithms that a command leaves out; these are ignored. Raises
    UsageError for a name that neither the setting nor a chosen algorithm has.
    """
    fields: dict[str, Texts] = {}
    hyper: dict[tuple[str | None, str], Texts] = {}
    names_of = {algorithm.name: set(algorithm.defaults()) for algorithm in entries}
    every_name = set().union(*names_of.values())
    for name, texts in options.values.items():
        algorithm, dot, short = name.rpartition(".")
        if name in setting_fields():
            fields[name] = texts
        elif dot and short in names_of.get(algorithm, set()):
            hyper[algorithm, short] = texts
        elif not dot and name in every_name:
            hyper[None, name] = texts
        elif algorithm in names_of and short in setting_fields():
            raise UsageError(
                f"{short} is a field of the setting, the same for all algorithms, not a "
                f"hyper-parameter of {algorithm}: give {short} alone{options.place_of(name)}"
            )
        elif not options.place_of(name) or not _is_hyperparameter(algorithm, short):
            owners = [] if dot else _owners(name)
            if owners:
                raise UsageError(
                    f"{name} is a hyper-parameter of {', '.join(owners)}, not of "
                    f"{', '.join(names_of)}: leave it out, or add such an algorithm"
                    f"{options.place_of(name)}"
                )
            allowed = [*setting_fields(), *sorted(every_name)]
            kind = f"setting field or hyper-parameter of {', '.join(names_of)}"
            near = short if algorithm in names_of else name
            raise UsageError(f"{unknown(kind, near, allowed)}{options.place_of(name)}")
    return fields, hyper


def _owners(name: str) -> list[str]:
    """List the algorithms of the registry that have a hyper-parameter of that name."""
    return [algorithm for algorithm in ALGORITHMS if _is_hyperparameter(algorithm, name)]


def _is_hyperparameter(algorithm: str, name: str) -> bool:
    """Tell whether an algorithm of the registry has a hyper-parameter of that name."""
    return algorithm in ALGORITHMS and name in ALGORITHMS[algorithm].defaults()


def distinct(name: str, values: Iterable[str], kind: str, place: str = "") -> Grid:
    """Cast the distinct values to their type.

    `place`: their origin, for messages. Raises UsageError.
    """
    with refusing_values(place):
        return Grid(*dict.fromkeys(cast(name, value, kind) for value in values))


def given_grids(algorithm: Entry, hyper: HyperTexts) -> dict[str, Grid]:
    """Return the values given for an algorithm's hyper-parameters, by name.

    `hyper`: as `sort_values` returns them.
    """
    grids = {}
    for item in algorithm.fields:
        texts = hyper.get((algorithm.name, item.name)) or hyper.get((None, item.name))
        if texts:
            grids[item.name] = distinct(f"{algorithm.name}.{item.name}", texts, item.kind)
    return grids
