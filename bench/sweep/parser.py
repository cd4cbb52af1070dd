"""The options of `bench.sweep`, read from the command line and a TOML file.

Imports neither torch nor ray.
"""

from __future__ import annotations

import argparse
import errno
import os
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from bench.data import is_path
from bench.errors import UsageError, refusing_values
from bench.planning.options import (
    COMMAND_LINE,
    EXECUTION,
    FIELD_OF_OPTION,
    OUTPUT,
    RUN,
    SEARCH,
    SETTING_OPTIONS,
    SweepOptions,
    Texts,
)
from bench.terminal.console import Parser
from bench.terminal.toml import TOML_BYTES, toml_values
from bench.terminal.values import number, whole_number
from bench.terminal.words import flag, unknown
from search_spaces import setting_fields
from search_spaces.bounds import check

SWEEP = "python -m bench.sweep"
DESCRIPTION = """\
Run federated algorithms over hyper-parameters, data heterogeneity and participation, as Ray Tune \
trials.
Finished runs are never computed twice: the same command again runs what is missing or failed."""
EPILOG = """\
examples:
  python -m bench.sweep --algo fedcad --dataset cifar10           the paper's setting and grid
  python -m bench.sweep --algo fedavg,fedcad --dataset digits --alpha 0.1 0.5 \
--participation 0.5 1.0 --seeds 3
  python -m bench.sweep --algo fedcad --dataset cifar10 --set beta=0,0.3 gamma=0.5 --dry-run
  python -m bench.sweep --paper fedgkd --table 3                  every cell of a printed table
  python -m bench.sweep --paper fedgkd --table 3 --dataset cifar10 --alpha 0.1 \
--algo fedavg,fedgkd --rounds 2
  python -m bench.sweep reproduce RUN_KEY                         the run of a stored row, again

Lists take spaces or commas. Several values make a grid.
exit status: 0 all finished; 1 a trial failed; 2 usage or value; 3 data, disk or cluster; \
130 interrupted, resumable"""

PIPE_SECONDS = 5.0  # that a pipe may take to bring its first bytes
_OF_COMMAND_LINE = ("config", "import_")  # options that a file cannot set
_TYPES: dict[str, Callable[[str], Any]] = {"int": whole_number, "float": number, "str": str}


def _declarations() -> Iterator[tuple[str, Field[Any]]]:
    """Yield each option's name and its declaration, in the order of `--help`."""
    for item in fields(SweepOptions):
        if item.name == "seeds":
            yield from SETTING_OPTIONS.items()
        if item.metadata:
            yield "set" if item.name == "values" else item.name, item


OPTIONS = dict(_declarations())


def parse(argv: Sequence[str], prog: str = SWEEP) -> SweepOptions:
    """Parse the options: command line over `--config` over defaults.

    `prog` is the program that errors name.

    Raises UsageError for a value that is not allowed or a file that cannot be read; argparse raises
    SystemExit.
    """
    layers = {COMMAND_LINE: _parse_words(argv, prog)}
    if file := layers[COMMAND_LINE].get("config"):
        # The file goes through the same parser, so that the types and choices of the command line
        # hold for it.
        layers = {file: _parse_words(_file_arguments(file), prog, f" (from {file})"), **layers}
    options: dict[str, Any] = {}
    given: dict[str, str] = {}
    values: dict[str, Texts] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers.items():
        given |= dict.fromkeys(layer, origin)
        new = _values_of(layer)
        # A plain name overrides an earlier layer's value for a single algorithm, unless it is a
        # field of the setting.
        hyper = new.keys() - setting_fields().keys()
        for name in list(values):
            if name not in new and name.rpartition(".")[2] in hyper:
                del values[name]
        values |= new
        origins |= dict.fromkeys(new, origin)
        for name, value in layer.items():
            if name != "set" and name not in SETTING_OPTIONS:
                options[name] = value
    parsed = SweepOptions(**options, given=given, values=values, origins=origins)
    if file and Path(os.path.realpath(file)).parent != Path.cwd():
        _check_imports(parsed, file)
    return parsed


def _check_imports(options: SweepOptions, file: str) -> None:
    """Refuse each `module:name` that only a file names: importing runs a stranger's code."""
    names: list[str] = []
    for option, texts in (
        ("algo", options.algo),
        ("dataset", (options.dataset,)),
        ("search", (options.search,)),
        ("scheduler", (options.scheduler,)),
        ("confirm_at", chain.from_iterable(options.confirm_at.values())),
    ):
        if options.given.get(option) == file:
            names += texts
    for name, texts in options.values.items():
        if options.origins[name] == file:
            names += texts
    for name in names:
        if ":" in name and not is_path(name) and name not in options.import_:
            raise UsageError(
                f"--config {file} names {name}, whose code would run, and the file is not in the "
                f"working folder: if you trust it, add --import {name}, or give the command in the "
                "file's folder"
            )


def make_parser(prog: str = SWEEP) -> Parser:
    """Build the parser of all options; its result lacks the options that were not given."""
    parser = Parser(
        prog=prog, description=DESCRIPTION, epilog=EPILOG, argument_default=argparse.SUPPRESS
    )
    groups = {name: parser.add_argument_group(name) for name in (RUN, SEARCH, EXECUTION, OUTPUT)}
    for name, declared in OPTIONS.items():
        facts = declared.metadata
        flags = [facts["short"]] if facts.get("short") else []
        add = partial(groups[facts["group"]].add_argument, *flags, flag(name), dest=name)
        if "read" in facts:
            add(nargs="+", action="extend", metavar=facts["metavar"], help=facts["help"])
        elif declared.type == "bool":
            add(action="store_true", help=facts["help"])
        else:
            add(
                type=facts["parse"] or _TYPES[str(declared.type).removesuffix(" | None")],
                choices=facts["choices"],
                metavar=facts["metavar"],
                help=facts["help"] + _shown(declared.default),
            )
    return parser


def _shown(default: Any) -> str:
    """Return what `--help` says of a default; nothing if the option does nothing by default."""
    if not default:
        return ""
    return f" ({default:g})" if isinstance(default, int | float) else f" ({default})"


def _parse_words(words: Sequence[str], prog: str, place: str = "") -> dict[str, Any]:
    """Parse and check the options in `words`.

    `place` is appended to errors if the words come from a file.
    """
    parser = make_parser(prog)
    parser.place = place
    options = vars(parser.parse_args(words))
    for name, value in options.items():
        facts = OPTIONS[name].metadata
        if "read" in facts:
            options[name] = facts["read"](value)
            is_empty = not options[name]
        else:
            is_empty = value == "" and not facts["empty"]
            with refusing_values(place):
                check(flag(name), value, facts["bounds"])
        if is_empty:
            raise UsageError(f"{flag(name)} takes a value, and got an empty one{place}")
    return options


def _file_arguments(path: str) -> list[str]:
    """Convert the options of a TOML file to words of a command line."""
    content = _read_toml(path)
    for key in content:
        if key.replace("-", "_") in _OF_COMMAND_LINE:
            raise unknown(f"option for --config {path}", key, OPTIONS.keys() - {*_OF_COMMAND_LINE})
    return words_of(content, f"--config {path}")


def words_of(values: Mapping[str, Any], place: str) -> list[str]:
    """Convert options with values of Python or TOML to words of a command line.

    Args:
        values: option -> value: true or false for a switch, a mapping for `set`, else one value or
            a list.
        place: what messages say of their origin.

    Raises:
        UsageError: there is no such option, or a value is of another kind.
    """
    words: list[str] = []
    names: set[str] = set()
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in OPTIONS:
            raise unknown(f"option for {place}", key, OPTIONS.keys() - {*_OF_COMMAND_LINE})
        if name in names:
            raise UsageError(f"{place}: {key} is given twice, with - and with _: leave one out")
        names.add(name)
        if name != "set" and isinstance(value, dict):
            raise UsageError(
                f"{place}: {key} takes values as on the command line; only [set] is a table; got "
                f"{value!r}"
            )
        if name == "set" and not isinstance(value, dict):
            raise UsageError(
                f"{place}: values for --set stand under [set], and only there; got {key} = "
                f"{value!r}"
            )
        if name == "set":
            words += _words_of_set(value, place)
        else:
            words += _words_of_option(key, name, value, place)
    return words


def _words_of_set(values: Mapping[str, Any], place: str) -> list[str]:
    """Convert the values of `[set]` to words; raises as `words_of`."""
    pairs = []
    for full, texts in _flatten(values):
        if full.startswith("-"):  # it would be read as another option
            raise UsageError(f"{place}: set takes names of fields, got {full!r}")
        words = _texts(f"{place}: {full}", texts)
        if isinstance(texts, list):
            words = [_quoted(word) for word in words]
        pairs.append(f"{full}={','.join(words)}")
    return [flag("set"), *pairs] if pairs else []


def _quoted(text: str) -> str:
    """Quote an item of a list that has a comma, as `--set` takes it."""
    if "," not in text:
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _words_of_option(key: str, name: str, value: Any, place: str) -> list[str]:
    """Convert an option, of which `key` is the name as given, to words; raises as `words_of`."""
    switch = OPTIONS[name].type == "bool"
    if switch != isinstance(value, bool):
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        wanted = "true or false" if switch else "a value"
        raise UsageError(f"{place}: {key} takes {wanted}, got {shown}")
    if switch:
        return [flag(name)] if value else []
    if isinstance(value, list) and "read" not in OPTIONS[name].metadata:
        raise UsageError(f"{place}: {key} takes one value, got {value!r}")
    return [flag(name), *_texts(f"{place}: {key}", value)]


def _read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises UsageError if it cannot be read, or has names or numbers that no option has.
    """
    try:
        with _opened(path) as file:
            return toml_values(file.read(TOML_BYTES + 1))
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--config {path} is no TOML file of options: {error}") from None


def _opened(path: str) -> BinaryIO:
    """Open a file to read, or a pipe, such as `<(command)`, into which something is written.

    Raises OSError if it cannot be opened, or nothing comes through the pipe.
    """
    if not Path(path).is_fifo():
        return Path(path).open("rb")
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    ready, _, _ = select.select([pipe], [], [], PIPE_SECONDS)
    if not ready:
        os.close(pipe)
        raise TimeoutError(errno.ETIMEDOUT, "nothing comes through this pipe: name a file")
    os.set_blocking(pipe, True)
    return os.fdopen(pipe, "rb")


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted names.

    TOML parses `fedcad.gamma = 0.5` as a table within a table.
    """
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _texts(name: str, value: Any) -> list[str]:
    if value == []:
        raise UsageError(f"{name} has no value: give one, or leave it out")
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, list | dict):
            raise UsageError(f"{name} takes texts or numbers, got {item!r}")
    texts = [str(item) for item in items]
    for text in texts:
        if text.startswith("-") and not _is_number(text):  # it would be read as another option
            raise UsageError(f"{name} takes a value, got the option {text}")
    return texts


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _values_of(layer: Mapping[str, Any]) -> dict[str, Texts]:
    """Return one layer's setting fields and hyper-parameters, by name."""
    extra: dict[str, Texts] = layer.get("set", {})
    values: dict[str, Texts] = {}
    for option, name in FIELD_OF_OPTION.items():
        if option not in layer:
            continue
        if name in extra:
            raise UsageError(
                f"{flag(option)} and --set {name}= are the same thing, and both are given: leave "
                "one out"
            )
        values[name] = layer[option]
    return values | extra
