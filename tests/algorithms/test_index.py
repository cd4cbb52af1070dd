"""The index, which all commands read, says what the classes say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from algorithms import ALGORITHMS, Entry, entry
from algorithms.entry import About, from_json
from algorithms.plugins import factory_of, read_entry
from search_spaces import Bounds, Grid, Range


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_entry_is_what_its_class_says(name: str) -> None:
    stored = ALGORITHMS[name]
    assert read_entry(name, stored.factory) == stored


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_built_by_itself_has_its_defaults(name: str) -> None:
    stored = ALGORITHMS[name]
    made = factory_of(stored)()
    layer = made
    values: dict[str, object] = {}
    while layer is not None:
        values = {**vars(layer), **values}
        layer = getattr(layer, "base", None)
    assert {field: values[field] for field in stored.defaults()} == stored.defaults()


def test_what_a_class_leaves_out_has_its_usual_value() -> None:
    about = About()
    assert (about.name, about.equations, about.defaults_follow) == ("", "–", "the paper")
    assert (about.down, about.up, about.keeps) == ("P", "P", "nothing")
    assert about.reference is False
    made = Entry(name="a", factory="m:A")
    assert (made.rows, made.fields, made.version) == ({"": "a"}, (), 1)
    assert not made.unlike_models
    assert not made.personal
    assert replace(made, rows={"": "b"}).rows == {"": "b"}


def test_an_index_is_read_with_all_its_kinds() -> None:
    text = """[{"name": "a", "factory": "m:A", "needs": ["public"], "where": ["x <= y"],
      "fields": [
        {"name": "x", "kind": "float", "default": 0.5, "bounds": {"low": 0, "high": 1},
         "search": {"low": 0.1, "high": 1.0, "log": false}},
        {"name": "y", "kind": "str", "default": "p", "bounds": {"choices": ["p", "q"]},
         "search": {"values": ["p", "q"]}, "optional": true, "packable": false},
        {"name": "z", "kind": "bool", "default": true}]}]"""
    (found,) = from_json(text)
    x, y, z = found.fields
    assert (found.needs, found.where) == ({"public"}, ("x <= y",))
    assert (x.bounds, x.search) == (Bounds(0, 1), Range(0.1, 1.0, log=False))
    assert (y.bounds, y.search) == (Bounds(choices=("p", "q")), Grid("p", "q"))
    assert (y.optional, y.packable, z.optional, z.packable) == (True, False, False, True)
    assert (z.search, z.meaning) == (None, "–")
    assert (x.allowed, y.allowed, z.allowed) == ("in [0, 1]", "one of p, q", "true or false")
    assert found.identifying({"x": 0.5, "y": "p", "z": True}) == {"x": 0.5, "z": True}
    assert found.identifying({"x": 0.5, "y": "q", "z": True})["y"] == "q"
    assert found.resolve({"x": "1", "z": "no"}) == {"x": 1.0, "y": "p", "z": False}
    with pytest.raises(ValueError, match=r"^a has no hyper-parameter 'xx'; known: x, y, z \(did"):
        found.resolve({"xx": 1})
    with pytest.raises(ValueError, match=r"^a\.x must be in \[0, 1\], got 1\.5$"):
        found.resolve({"x": 1.5})


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"no algorithm 'fedavgg' \(did you mean fedavg.?\?\)"):
        entry("fedavgg")
