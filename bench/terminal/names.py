"""One wording for a name that is not known, wherever names are looked up."""

from __future__ import annotations

from collections.abc import Iterable

from algorithms.entry_points import as_module
from bench.errors import UsageError


def unknown(kind: str, name: str, known: Iterable[str], importable: bool = False) -> UsageError:
    """Make the error for a name that is not in a table, with the nearest name that is.

    Args:
        kind: of the name, such as "data set".
        name: the unknown name.
        known: the names of the table.
        importable: whether `module:name` is allowed, too, for which some users type a file.
    """
    from difflib import get_close_matches

    meant = as_module(name) if importable else ""
    if meant:
        return UsageError(f"no {kind} {name!r}: {meant}")
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return UsageError(f"no {kind} {name!r}; known: {', '.join(names)}{hint}")
