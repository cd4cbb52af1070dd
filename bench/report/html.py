"""Markup that cannot be broken from outside: text is escaped unless it is `Html` already."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

_EMPTY = frozenset({"meta", "link", "input", "br", "col"})


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Child = str | int | float | Iterable["Child"] | None


def tag(name: str, /, *children: Child, **attributes: Any) -> Html:
    """An element.

    Args:
        name: of the element.
        children: text (escaped), `Html` (as it is), several of them, or None (nothing).
        attributes: by name; an underscore is a hyphen, one at the end is dropped (`class_`). True is the name alone,
            None and False are left out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Several parts one after the other."""
    return Html("".join(_parts(children)))


def embedded_json(value: Any) -> Html:
    """A value for `<script type="application/json">`: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)


def _parts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str | int | float):
            yield html.escape(str(child))
        elif child is not None:
            yield from _parts(child)


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
