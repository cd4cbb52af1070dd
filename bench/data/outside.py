"""Data sets of other packages: a `DatasetInfo` by an entry point in `fedkd_bench.datasets`, or as `module:name`.

Its `loader` names a `Source`, or simply a function that gives arrays (`bench.data.arrays`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, cast

from algorithms.fingerprint import fingerprint
from bench import outside
from bench.data import paths
from bench.data.dataset import MissingData, Source
from bench.data.table import GROUPS, DatasetInfo
from bench.errors import UsageError
from leaderboards.identity import digest

KIND = outside.DATASETS
KINDS = {"images": 3, "texts": 1, "vectors": 1}  # what samples may be, and the numbers in their shape


@cache
def find(name: str) -> DatasetInfo | None:
    """The entry of a data set that is not of this suite, under the name that was typed; None where there is none.

    Raises:
        UsageError: its module, or what it says of the data set, is not what it should be.
    """
    path = KIND.path(name)
    if path is None:
        return None
    found = replace(outside.load_info(KIND, name, path, DatasetInfo), name=name)
    for what, wrong in _mistakes(found).items():
        if wrong:
            raise _problem(name, f"{what}, got {getattr(found, what.split()[0])!r}")
    return found


@cache
def source(name: str) -> Source:
    """Where a data set from outside comes from.

    Raises:
        UsageError: its loader cannot be imported, or is neither a `Source` nor a function.
    """
    info = find(name)
    assert info is not None, "only data sets from outside are asked for here"
    found = outside.load(KIND, name, info.loader)
    is_class = isinstance(found, type)
    if not is_class and all(hasattr(found, method) for method in ("read", "labels", "missing", "fetch")):
        return cast(Source, found)
    if is_class or not callable(found):
        what = "a class" if is_class else type(found).__name__
        raise _problem(name, f"loader {info.loader} is {what}: name a Source's instance, or a function of arrays")
    from bench.data.arrays import Arrays

    return Arrays(info, found)


@cache
def version(name: str) -> str | None:
    """What in a run key stands for the data of a data set from outside; None where no package has one of that name.

    Where a function gives the arrays, they and what is said of them: an edit that leaves the data alone changes
    nothing, a changed file does. Of a `Source` the code, for its files may come only after the planning.
    """
    info = find(name)
    if info is None:
        return None
    from bench.data.arrays import Arrays

    found = source(name)
    if isinstance(found, Arrays):
        try:
            return digest({"content": found.read(paths.data_dir()).hash, **_said(info)})[:16]
        except MissingData:
            pass  # a plan without data has runs that nobody has made
    modules = [outside.module_of(path) for path in (KIND.path(name) or "", info.loader)]
    return f"{fingerprint(dict.fromkeys(modules)):08x}"


def _said(info: DatasetInfo) -> dict[str, Any]:
    """What of an entry decides the numbers of a run, besides the arrays."""
    names = ("num_classes", "input_shape", "scale", "flip", "groups", "kind")
    said = {name: getattr(info, name) for name in names}
    return said | {"normalizations": dict(sorted(info.normalizations.items()))}


def _mistakes(info: DatasetInfo) -> Mapping[str, bool]:
    """What must hold of an entry, the field's name coming first -> whether it does not."""
    shape, kind = info.input_shape, info.kind
    numbers = KINDS.get(kind, 0)
    return {
        f"kind must be one of {', '.join(KINDS)}": kind not in KINDS,
        f"input_shape must be {numbers} whole numbers > 0 for {kind}, as (channels, rows, columns) or (length,)": (
            not isinstance(shape, tuple) or len(shape) != numbers or not all(_positive(side) for side in shape)
        ),
        "num_classes must be a whole number > 1": not _positive(info.num_classes) or info.num_classes < 2,
        "train_size must be a whole number > 0": not _positive(info.train_size),
        "test_size must be a whole number > 0": not _positive(info.test_size),
        "scale must be a whole number from 1 to 255": not _positive(info.scale) or info.scale > 255,
        f"groups must be one of {', '.join(map(repr, GROUPS))}": info.groups not in GROUPS,
        "loader must be 'module:name'": ":" not in info.loader,
        "normalizations must map a rule, such as 'standard', to a mean and a deviation > 0 for each channel": (
            kind == "images" and not _fit(info.normalizations, shape)
        ),
        f'normalizations must be {{"none": ((), ())}} for {kind}': (
            kind != "images" and "none" not in info.normalizations
        ),
    }


def _fit(rules: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    """Whether each rule has two tuples of a number for each channel, no deviation being 0."""
    try:
        return len(rules) > 0 and all(
            len(mean) == len(std) == shape[0] and min(std) > 0 for mean, std in rules.values()
        )
    except (TypeError, ValueError):
        return False


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _problem(name: str, what: str) -> UsageError:
    return outside.problem(KIND, name, what)
