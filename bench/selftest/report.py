"""Certificates at the terminal and as JSON. Imports neither torch nor ray."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bench import __version__
from bench.selftest.certify import CHECKS, FAILED, NOT_APPLICABLE, PASSED, SAME_ERROR, Certificate
from bench.terminal.words import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

STYLES = {PASSED: "green", FAILED: "bold red", SAME_ERROR: "red", NOT_APPLICABLE: "dim"}
SHORT = {PASSED: "ok", FAILED: "FAILED", SAME_ERROR: "same\nerror", NOT_APPLICABLE: "–"}
# The checks as heads of narrow columns.
HEADS = {
    "contract": "con-\ntract",
    "backends": "back-\nends",
    "reductions": "reduc-\ntions",
    "resume": "re-\nsume",
    "learns": "learns",
    "communication": "commu-\nnica-\ntion",
    "hyperparameters": "hyper-\nparam-\neters",
    "memory": "mem-\nory",
    "equations": "equa-\ntions",
}
SEVERAL = 3  # from so many certificates on, one table shows them all


def print_checks(screen: Console, machine: bool) -> None:
    """Print every check and what it shows, for `--list`."""
    if machine:
        listed = [{"check": name, "shows": check.summary} for name, check in CHECKS.items()]
        sys.stdout.write(json.dumps(listed, indent=2) + "\n")
        return
    table = _table("check", "shows that")
    for name, check in CHECKS.items():
        table.add_row(name, check.summary)
    _show(screen, table)


def as_json(certificates: Sequence[Certificate]) -> dict[str, Any]:
    """Everything, with what it was measured with."""
    return {
        "package_version": __version__,
        "torch": version("torch"),
        "passed": all(certificate.passed for certificate in certificates),
        "certificates": [certificate.as_dict() for certificate in certificates],
    }


def line_of(certificate: Certificate) -> str:
    """One line of progress."""
    failed = [outcome.check for outcome in certificate.outcomes if outcome.status == FAILED]
    same = sum(outcome.status == SAME_ERROR for outcome in certificate.outcomes)
    verdict = f"FAILED: {', '.join(failed)}" if failed else "passed"
    verdict += f", and {counted(same, 'check')} by the same error" if same else ""
    return f"{certificate.algorithm}: {verdict} ({certificate.seconds:.1f} s)"


def print_certificates(certificates: Sequence[Certificate], screen: Console) -> None:
    """Print a certificate each; of several, one table and the failures."""
    shown: list[RenderableType] = []
    if len(certificates) < SEVERAL:
        for certificate in certificates:
            shown += [*_certificate(certificate), ""]
    else:
        shown.append(_overview(certificates))
        for certificate in certificates:
            if not certificate.passed:
                title = f"{certificate.algorithm} ({certificate.factory})"
                shown += ["", _text(title, "bold"), *_failures(certificate)]
        shown.append("")
    _show(screen, *shown, _text(_verdict(certificates)))


def _show(screen: Console, *items: RenderableType) -> None:
    """Print items below each other; only a terminal gets lines filled with blanks."""
    if screen.is_terminal:
        screen.print(*items, sep="\n")
        return
    with screen.capture() as captured:
        screen.print(*items, sep="\n")
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def _certificate(certificate: Certificate) -> Iterator[RenderableType]:
    judged = certificate.judged_as
    held = f", held to {judged}" if judged and judged != certificate.algorithm else ""
    yield _text(f"{certificate.algorithm} ({certificate.factory}, version {certificate.version}{held})", "bold")
    table = _table("check", "result", "measured", "s")
    table.columns[-1].justify = "right"
    for outcome in certificate.outcomes:
        result = _text(outcome.status, STYLES[outcome.status])
        table.add_row(outcome.check, result, _text(outcome.measured), f"{outcome.seconds:.1f}")
    yield table
    yield from _failures(certificate)


def _failures(certificate: Certificate) -> Iterator[RenderableType]:
    from rich.padding import Padding

    for outcome in certificate.outcomes:
        if outcome.status == FAILED:
            yield _text(f"{outcome.check} failed:", STYLES[FAILED])
            for problem in (*outcome.problems, f"look at: {outcome.look}"):
                yield Padding(_text(problem), (0, 0, 0, 2))


def _overview(certificates: Sequence[Certificate]) -> Table:
    """Algorithms down, checks across."""
    checks = [outcome.check for outcome in certificates[0].outcomes]
    table = _table("algorithm", *(HEADS[check] for check in checks), "s", space=0)
    for column in table.columns[1:-1]:
        column.justify = "center"
    table.columns[-1].justify = "right"
    for certificate in certificates:
        cells = [_text(SHORT[outcome.status], STYLES[outcome.status]) for outcome in certificate.outcomes]
        table.add_row(certificate.algorithm, *cells, f"{certificate.seconds:.1f}")
    return table


def _table(*heads: str, space: int = 1) -> Table:
    """A table without edges, its columns one and `space` blanks apart."""
    from rich import box
    from rich.table import Table

    return Table(*heads, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, space, 0, 0))


def _text(text: str, style: str = "") -> Text:
    """Text as it is: brackets in it are no markup."""
    from rich.text import Text

    return Text(text, style)


def _verdict(certificates: Sequence[Certificate]) -> str:
    counts = Counter(outcome.status for certificate in certificates for outcome in certificate.outcomes)
    failed = [certificate.algorithm for certificate in certificates if not certificate.passed]
    checks = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    measured = f"{checks}; fedkd-bench {__version__}, torch {version('torch')}, CPU"
    return f"NOT certified: {', '.join(failed)} ({measured})" if failed else f"Certified ({measured})"
