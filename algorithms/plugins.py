"""Algorithms of other packages.

They are named by entry points in the group `fedkd_bench.algorithms`, or as
`package.module:factory`. Their registry entry is read from the factory: types and defaults from its
signature, ranges from the dataclass that it makes, meanings from the docstrings' Args. A field
without a range is unbounded, and configurations that differ in it never share a program.
Hyper-parameters, hooks, needs and rows are checked.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from algorithms.entry import About, Entry, Field
from algorithms.entry_points import Kind, file_of, fingerprint, module_name, source_of
from search_spaces.bounds import Bounds, Grid, Range, cast, check, kind_of, nearest

if TYPE_CHECKING:
    from algorithms.base import Algorithm

KIND = Kind("algorithm", "fedkd_bench.algorithms")
Factory = Callable[..., Any]
names = KIND.names
KINDS = ("bool", "int", "float", "str")  # of hyper-parameters
# By name, the algorithms that were given as objects to this process or to its parent.
given: dict[str, tuple[Entry, Factory]] = {}


@cache
def find(name: str) -> Entry | None:
    """Return the entry of an algorithm from outside this suite, or None if there is none.

    Raises:
        ValueError: the module, the factory or its result is invalid; the message says why.
    """
    path = KIND.path(name)
    return read_entry(name, path) if path else None


def read_entry(name: str, path: str) -> Entry:
    """Read the entry of an algorithm from its code at `path`, a `module:factory`.

    `name` is the name that the user typed, or the one in `About` for an algorithm of this suite.

    Raises:
        ValueError: as in `find`.
    """
    factory = KIND.load(name, path)
    if not callable(factory):
        raise KIND.error(
            name, f"{path} is neither a class nor a function but {type(factory).__name__}"
        )
    return entry_of(name, path, factory)


def path_of(factory: Factory) -> str:
    """Return the `module:name` of a class or function; ValueError if it is neither.

    The module of a script is its file's name, that of a notebook `__main__`.
    """
    if not inspect.isclass(factory) and not inspect.isfunction(factory):
        raise ValueError(
            "an algorithm is a name, a class that extends algorithms.base.Algorithm, "
            f"or a function that makes one; got {factory!r}"
        )
    return f"{module_name(factory.__module__)}:{factory.__name__}"


def define(factory: Factory) -> Entry:
    """Read the entry of an algorithm given as a class or function.

    Its `path_of` finds it from now on.

    Raises:
        ValueError: it is neither, as in `find`, or Python does not know the source of a notebook's
            class.
    """
    path = path_of(factory)
    entry = entry_of(path, path, factory)
    given[path] = (entry, factory)
    return entry


def factory_of(entry: Entry) -> Factory:
    """Return the class or function that makes an algorithm.

    It is one of the registry, or was found or given.
    """
    if entry.name in given:
        return given[entry.name][1]
    module, _, name = entry.factory.partition(":")
    factory: Factory = getattr(importlib.import_module(module), name)
    return factory


def entry_of(name: str, path: str, factory: Factory) -> Entry:
    """Read the entry of an algorithm from its class or function; raises as `find`."""
    from algorithms.base import layers

    algorithm = _make_algorithm(name, factory)
    check_class(name, algorithm)
    about = _own_about(factory)
    if about is None:
        summary = (inspect.getdoc(factory) or type(algorithm).__name__).splitlines()[0]
        about = About(
            paper=path.partition(":")[0],
            summary=summary,
            down="counted",
            up="counted",
            keeps="counted",
        )
    wrapped = list(layers(algorithm))
    metadata: dict[str, Any] = {}
    meanings: dict[str, str] = {}
    for layer in reversed(wrapped):
        metadata |= {item.name: item.metadata for item in dataclasses.fields(layer)}
        meanings |= _argument_meanings(type(layer))
    meanings |= _argument_meanings(factory)
    fields = []
    for parameter in _parameters(factory):
        declared = metadata.get(parameter.name, {})
        entry_field = Field(
            parameter.name,
            kind_of(parameter.annotation),
            parameter.default,
            declared.get("bounds", Bounds()),
            meanings.get(parameter.name, "–"),
            declared.get("packable", False),
            declared.get("optional", False),
            _search_of(name, parameter, declared),
        )
        fields.append(entry_field)
    return Entry(
        **vars(about)
        | {
            "name": name,
            "factory": path,
            "fields": tuple(fields),
            "needs": algorithm.needs | about.needs,
            "rows": about.rows or {suffix: name + suffix for suffix in algorithm.rows},
            "version": _version(name, factory, algorithm),
            "unlike_models": algorithm.unlike_models,
            "personal": algorithm.personal,
            "server_steps": _server_steps(name, algorithm, fields),
        }
    )


def _server_steps(name: str, algorithm: Algorithm, fields: Sequence[Field]) -> str:
    """Return the hyper-parameter of `server_steps`; empty if the factory fixes it."""
    from algorithms.base import layers

    counted = algorithm.server_steps
    names = [parameter.name for parameter in fields]
    if counted in names:
        return counted
    if counted and not any(hasattr(layer, str(counted)) for layer in layers(algorithm)):
        raise ValueError(
            f"algorithm {name!r}: `server_steps` names {counted!r}, which is no hyper-parameter; "
            f"it has: {', '.join(names) or 'none'}"
        )
    return ""


def _make_algorithm(name: str, factory: Factory) -> Algorithm:
    from algorithms.base import Algorithm

    for parameter in _parameters(factory):
        check_parameter(name, parameter)
    try:
        algorithm = factory()
    except Exception as error:
        raise KIND.failure(name, "made", error) from error
    if not isinstance(algorithm, Algorithm):
        raise KIND.error(
            name,
            f"the factory returns {type(algorithm).__name__}, not an algorithms.base.Algorithm",
        )
    return algorithm


def _own_about(factory: Factory) -> About | None:
    """Return the facts that a class or a `Variant` states itself, not inherited facts."""
    about = getattr(factory, "__dict__", {}).get("about")
    return about if isinstance(about, About) else None


def _parameters(factory: Factory) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{factory!r} has no readable signature: {error}") from error
    return [parameter for parameter in parameters if parameter.name != "base"]


def _search_of(
    name: str, parameter: inspect.Parameter, metadata: Mapping[str, Any]
) -> Grid | Range | None:
    """Return the values that a hyper-parameter's declaration has a search try.

    Raises ValueError if one is not allowed.
    """
    search: Grid | Range | None = metadata.get("search")
    if search is None:
        return None
    kind = kind_of(parameter.annotation)
    base = kind.removesuffix(" | None")
    if isinstance(search, Range):
        if base not in ("int", "float"):
            raise KIND.error(
                name, f"{parameter.name} is {base}, of which `search` has no range: give a list"
            )
        search = dataclasses.replace(search, whole=base == "int")
    try:
        values = [cast(parameter.name, value, kind) for value in search.values]
        for value in values:
            check(parameter.name, value, metadata["bounds"])
    except ValueError as error:
        raise KIND.error(name, f"`search`: {error}") from None
    return search if isinstance(search, Range) else Grid(*values)


def _argument_meanings(documented: object) -> dict[str, str]:
    """Return each argument's text in a docstring's Args section.

    It is on one line and without its full stop.
    """
    _, _, section = (inspect.getdoc(documented) or "").partition("Args:\n")
    section = textwrap.dedent(section.split("\n\n")[0])
    items = re.findall(r"^(\w+): (.*(?:\n +.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in items}


def _version(name: str, factory: Factory, algorithm: Algorithm) -> int:
    """Return the version that the class states, or 1 in this suite.

    Elsewhere it is a number that changes with the source. So stored results of earlier source are
    never taken for those of an algorithm under development. The source is that of its classes, of
    those they extend and wrap, and of the neighbouring files that these import; also of a file in
    this suite whose class is named as `module:Class`, because it is not registered yet.
    """
    version: Any = type(algorithm).version
    if version is not None:
        if type(version) is not int or not 0 <= version < 2**63:  # as a column of rows holds it
            raise KIND.error(name, f"`version` must be a whole number from 0 on, got {version!r}")
        return version
    if name == getattr(_own_about(factory), "name", ""):
        return 1
    kinds = [kind for kind in _classes(algorithm) if kind is not object]
    parts = dict.fromkeys([factory, *kinds])
    modules = {part.__module__ for part in parts}
    sources = []
    try:
        for part in parts:
            if not file_of(part.__module__):
                source, used = source_of(part)
                sources.append(source)
                modules |= used
    except ValueError as error:
        raise KIND.error(
            name, f"{error}: put it into a file, or state its `version`, a whole number"
        ) from None
    return fingerprint(modules, factory.__module__, sources)


def check_parameter(name: str, parameter: inspect.Parameter) -> None:
    """Check that a factory's parameter is a hyper-parameter: with a name, a type and a default.

    Raises:
        ValueError: it is not; the message says what to write.
    """
    where = f"algorithm {name!r}: hyper-parameter {parameter.name!r}"
    if parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
        parameter.POSITIONAL_ONLY,
    ):
        raise ValueError(f"{where} must be a named parameter in the factory's signature")
    if parameter.name == "json":
        raise ValueError(
            f"{where} needs another name: its column would be hp_json, which holds all of them"
        )
    kind = "" if parameter.annotation is parameter.empty else kind_of(parameter.annotation)
    if kind.removesuffix(" | None") not in KINDS:
        annotated = f"is annotated {kind!r}" if kind else "has no annotation"
        raise ValueError(
            f"{where} {annotated}; allowed are {', '.join(KINDS)}, each also with `| None`"
        )
    if parameter.default is parameter.empty:
        raise ValueError(f"{where} has no default; every hyper-parameter needs one")
    _check_default(where, parameter.default, kind)


def _check_default(where: str, default: Any, kind: str) -> None:
    """Raise ValueError unless the default is of its hyper-parameter's type.

    That of `field(default_factory=...)` is an object that stands for it, whose text would be taken.
    """
    try:
        fits = not kind.startswith("str") or isinstance(default, str | None)
        cast("its default", default, kind)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{where} is {kind}, and its default is {default!r}: state a value of that type, as in "
            "hyper(0.1), without a default_factory"
        )


def check_class(name: str, algorithm: Algorithm) -> None:
    """Check the hooks, fields, needs and rows of the algorithm's classes.

    Raises:
        ValueError: a hook or a class attribute is misspelt, a hook takes its arguments in another
            order, fields are declared outside a dataclass, a need is unknown, rows are repeated
            or no names.
    """
    from algorithms.base import NEEDS, Algorithm, layers

    for layer in layers(algorithm):
        _check_fields(name, layer)
        _check_facts(name, layer)
    hooks = methods(Algorithm)
    for kind in _classes(algorithm):
        _check_attributes(name, kind)
        for method in methods(kind):
            if method in hooks:
                _check_order(name, kind, method)
            near = get_close_matches(method, hooks, n=1, cutoff=0.85)
            if near and method not in hooks:  # the engine would never call it
                raise ValueError(
                    f"algorithm {name!r}: {kind.__name__}.{method} is no hook: "
                    f"did you mean {near[0]}?"
                )
        declared = [
            key
            for key, text in inspect.get_annotations(kind).items()
            if "ClassVar" not in str(text)
        ]
        if declared and issubclass(kind, Algorithm) and "__dataclass_fields__" not in vars(kind):
            raise ValueError(
                f"algorithm {name!r}: {kind.__name__} declares {declared[0]!r} "
                "without being a dataclass: put @dataclass(frozen=True) above the class"
            )
    unknown = sorted(algorithm.needs - NEEDS.keys())
    if unknown:
        raise ValueError(
            f"algorithm {name!r} has the unknown need {unknown[0]!r}; known: {', '.join(NEEDS)}"
            f"{nearest(unknown[0], NEEDS)}"
        )
    _check_suffixes(name, algorithm.rows)


def _check_suffixes(name: str, rows: tuple[str, ...]) -> None:
    """Raise ValueError unless `rows` holds '' and suffixes of names, each once."""
    if "" not in rows or len(set(rows)) < len(rows):
        raise ValueError(
            f"algorithm {name!r}: `rows` must hold '' and each suffix once, got {rows}"
        )
    for suffix in rows:
        if not re.fullmatch(r"\w*", suffix, re.ASCII):
            raise ValueError(
                f"algorithm {name!r}: a suffix in `rows` has letters, digits and _ alone, as '_x', "
                f"because it ends a name; got {suffix!r}"
            )


def _check_fields(name: str, layer: Algorithm) -> None:
    """Raise ValueError for a field that has the name of a hook or a fact of `Algorithm`.

    It would replace what the engine calls or reads, such as the `version`.
    """
    from algorithms.base import Algorithm

    for item in dataclasses.fields(layer):
        if item.name in vars(Algorithm):
            raise ValueError(
                f"algorithm {name!r}: {type(layer).__name__} has a hyper-parameter {item.name!r}, "
                "which is a hook or a class attribute of Algorithm: give it another name, or write "
                "the class attribute without a type"
            )


def _check_facts(name: str, layer: Algorithm) -> None:
    """Check the types of a layer's class attributes, and that the engine calls its `predict`.

    A text in place of a tuple would have its letters as items, and every text holds "".

    Raises:
        ValueError: an attribute has another type, or `predict` stands without `predicted`.
    """
    from algorithms.base import Algorithm, Plugin

    kind = type(layer)
    for key, text in inspect.get_annotations(Algorithm).items():
        default = getattr(Algorithm, key)
        value = getattr(layer, key)
        where = f"algorithm {name!r}: {kind.__name__}.{key}"
        if "tuple" in text:
            items = value if isinstance(value, tuple | list) else [None]
            if not all(isinstance(item, str) for item in items):
                raise ValueError(f"{where} must be a tuple of texts, as ('_x',), got {value!r}")
        elif isinstance(default, frozenset) and not isinstance(value, frozenset | set):
            raise ValueError(f"{where} must be a set of texts, as {{'public'}}, got {value!r}")
        elif isinstance(default, bool | str) and not isinstance(value, type(default)):
            raise ValueError(f"{where} must be a {type(default).__name__}, got {value!r}")
    own = kind.predict not in (Algorithm.predict, Plugin.predict)
    if own and not layer.predicted:
        raise ValueError(
            f"algorithm {name!r}: {kind.__name__}.predict is called for the rows in `predicted` "
            "alone, which names none: name them there, and in `rows`, as ('', '_x')"
        )


def _classes(algorithm: Algorithm) -> list[type]:
    """List the classes of an algorithm's layers and the classes that they extend, each once."""
    from algorithms.base import layers

    return list(
        dict.fromkeys(chain.from_iterable(type(layer).__mro__ for layer in layers(algorithm)))
    )


def _check_attributes(name: str, kind: type) -> None:
    """Raise ValueError for a class attribute that is one of `Algorithm` but for its name.

    It would be ignored. An author's own attribute has a value of another type, or is a field.
    """
    from algorithms.base import Algorithm

    facts = {}
    for key, text in inspect.get_annotations(Algorithm).items():
        if "ClassVar" in text:
            facts[key] = type(getattr(Algorithm, key))
    for key, value in vars(kind).items():
        if key in facts or key.startswith("_") or key in getattr(kind, "__dataclass_fields__", {}):
            continue
        near = get_close_matches(key, facts, n=1, cutoff=0.85)
        if near and type(value) is facts[near[0]]:
            raise ValueError(
                f"algorithm {name!r}: {kind.__name__}.{key} has no meaning: did you mean {near[0]}?"
            )


def _check_order(name: str, kind: type, hook: str) -> None:
    """Raise ValueError if a hook names its arguments in another order, because it gets them so."""
    from algorithms.base import Algorithm

    wanted = [*inspect.signature(getattr(Algorithm, hook)).parameters]
    function = vars(kind)[hook]
    given_names = [*inspect.signature(function, follow_wrapped=False).parameters]
    common = [key for key in given_names if key in wanted]
    if common != [key for key in wanted if key in common]:
        raise ValueError(
            f"algorithm {name!r}: {kind.__name__}.{hook} takes ({', '.join(given_names)}), and "
            f"gets ({', '.join(wanted)})"
        )


def methods(kind: type) -> tuple[str, ...]:
    """Return the names of the public methods that the class itself defines.

    The public methods of `Algorithm` are the hooks.
    """
    return tuple(
        key
        for key, value in vars(kind).items()
        if inspect.isfunction(value) and not key.startswith("_")
    )
