"""The versions of what the suite needs: the bounds in pyproject.toml, and the files of versions tested together."""

from __future__ import annotations

import re
import tomllib

import pytest
from commands import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)(?:,<([\d.]+))?")


def pins(file: str) -> dict[str, tuple[int, ...]]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    return {plain(name): numbers(version) for name, version in (line.split("==") for line in lines)}


def plain(name: str) -> str:
    return name.lower().replace("_", "-")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


BOUNDS = {
    plain(found[1]): (numbers(found[2]), numbers(found[3] or ""))
    for extra in (PROJECT["dependencies"], PROJECT["optional-dependencies"]["dev"])
    for found in map(REQUIREMENT.fullmatch, extra)
    if found
}


def test_oldest_versions_are_the_lower_bounds() -> None:
    oldest = pins("constraints-oldest.txt")
    required = {
        plain(found[1]) for found in map(REQUIREMENT.fullmatch, PROJECT["dependencies"]) if found
    }
    assert len(required) == len(PROJECT["dependencies"])
    assert required <= set(oldest)
    for name, version in oldest.items():
        lowest, _ = BOUNDS[name]
        assert version[: len(lowest)] == lowest, f"{name}: pyproject.toml allows {lowest}"
        assert not any(version[len(lowest) :]), f"{name}: {lowest} itself was not tested"


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-oldest.txt"])
def test_tested_versions_are_allowed(file: str) -> None:
    for name, version in pins(file).items():
        lowest, beyond = BOUNDS.get(name, ((), ()))
        assert version >= lowest, name
        assert not beyond or version < beyond, name
