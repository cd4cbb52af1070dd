"""Where a sweep's options come from: a configuration file, and the command line over it. Neither torch nor ray."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.sweep.options import DEFAULTS, SETTING_OPTIONS, SWEEP, make_parser
from bench.terminal.names import unknown


@dataclass(frozen=True)
class Layer:
    """Options from one place, those of later layers going over them. `origin` names the place."""

    origin: str
    options: Mapping[str, Any]


def parse(argv: Sequence[str], prog: str = SWEEP) -> tuple[argparse.Namespace, list[Layer]]:
    """The options, filled up from `--config` and the defaults, and the layers they came in.

    Args:
        argv: the words of the command line.
        prog: the command that is named in errors.

    Raises:
        UsageError: the file cannot be read or names an option that does not exist.
        SystemExit: argparse's own, for `--help` and malformed options, in the file as well.
    """
    parser = make_parser(prog)
    given = vars(parser.parse_args(argv))
    layers = [Layer("command line", given)]
    if "config" in given:
        # The file goes through the same parser, so that types and choices are those of the command line.
        of_file = make_parser(prog)
        of_file.place = f", as {given['config']} has it"
        layers.insert(0, Layer(given["config"], vars(of_file.parse_args(_file_arguments(given["config"])))))
    merged = {name: value for layer in layers for name, value in layer.options.items()}
    return argparse.Namespace(**{**DEFAULTS, **merged}), layers


def _file_arguments(path: str) -> list[str]:
    """A TOML file's options as the words of a command line."""
    try:
        content = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} is no TOML file: {error}") from None
    known = {*DEFAULTS, *SETTING_OPTIONS, "algo", "set"}
    words: list[str] = []
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in known:
            raise unknown(f"option for --config {path}", key, known)
        if (name == "set") != isinstance(value, dict):
            raise UsageError(
                f"--config {path}: values for --set stand under [set], and only there; got {key} = {value!r}"
            )
        flag = isinstance(DEFAULTS.get(name), bool)
        if flag != isinstance(value, bool):
            allowed = "true or false" if flag else "a value"
            raise UsageError(f"--config {path}: {key} takes {allowed}, got {_typed(value)}")
        words += _words("--" + name.replace("_", "-"), value)
    return words


def _typed(value: Any) -> str:
    """As TOML has it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _words(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, dict):
        return [option, *(f"{name}={','.join(_texts(texts))}" for name, texts in _flat(value))] if value else []
    return [option, *_texts(value)]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`fedcad.gamma = 0.5` is a table within a table to TOML: its names joined by dots again."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]
