"""One wording for a name that is not known, wherever names are looked up."""

from __future__ import annotations

from collections.abc import Iterable

from algorithms.entry_points import as_module
from bench.errors import UsageError


def unknown(kind: str, name: str, known: Iterable[str], importable: bool = False) -> UsageError:
    """The error for a name that is not in a table, with the nearest name that is.

    Args:
        kind: what the name stands for, such as "data set".
        name: what was asked for.
        known: the names that there are.
        importable: whether `module:name` would do, too, for which some type a file.
    """
    from difflib import get_close_matches

    meant = as_module(name) if importable else ""
    if meant:
        return UsageError(f"no {kind} {name!r}: {meant}")
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return UsageError(f"no {kind} {name!r}; known: {', '.join(names)}{hint}")
