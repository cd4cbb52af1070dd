"""One wording for a name that is not known, wherever names are looked up."""

from __future__ import annotations

from collections.abc import Iterable

from bench.errors import UsageError


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a table, with the nearest name that is.

    Args:
        kind: what the name stands for, such as "data set".
        name: what was asked for.
        known: the names that there are.
    """
    from difflib import get_close_matches

    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return UsageError(f"no {kind} {name!r}; known: {', '.join(names)}{hint}")
