"""The command line of `bench.selftest` and its certificates.

Imports neither torch nor ray before the first check.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING

from algorithms import ALGORITHMS
from bench import __version__
from bench.errors import EXIT_FAILED, EXIT_OK, UsageError
from bench.planning.given import find_algorithm
from bench.selftest.certify import CHECKS, FAILED, NOT_APPLICABLE, PASSED, Certificate, certify
from bench.terminal.console import Parser, console, exit_status, print_json
from bench.terminal.values import some_of, split_list

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {PASSED: "green", FAILED: "bold red", NOT_APPLICABLE: "dim"}
DESCRIPTION = """\
Certify algorithms: each runs on a federation of four clients that takes milliseconds, and every
property that this suite relies on is measured. Certificates on stdout, progress on stderr."""
EPILOG = """\
examples:
  python -m bench.selftest fedprox fedcad                 two of the registry
  python -m bench.selftest --all                          every registered algorithm
  python -m bench.selftest fedcad --only backends resume  some of the checks; names come first
  python -m bench.selftest mypackage.mine:MyMethod        one from outside, as `module:factory` or
                                                          by its entry point

exit status: 0 every check passed or does not apply; 1 some check failed; 2 usage or value;
130 interrupted"""


def make_parser() -> Parser:
    """Return the parser of all options."""
    parser = Parser(prog="python -m bench.selftest", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="of the registry, of an entry point, or module:factory",
    )
    add("--all", action="store_true", help="every registered algorithm")
    add("--only", nargs="+", default=[], metavar="CHECK", help=f"of {', '.join(CHECKS)}")
    add("--json", action="store_true", help="machine-readable output")
    add("-v", "--verbose", action="store_true", help="tracebacks of errors")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = make_parser().parse_args(list(sys.argv[1:] if argv is None else argv))
    return exit_status(lambda: _selftest(options), options.verbose)


def _selftest(options: argparse.Namespace) -> int:
    checks = some_of(options.only, CHECKS, "check")
    names = _requested_names(options)
    screen = None
    if not options.json:
        # The terminal's width, or 80 characters if the output goes to a pipe or a file.
        screen = console(None if sys.stdout.isatty() else 80)
    certificates: list[Certificate] = []
    for certificate in _certify(names, checks or tuple(CHECKS), options):
        certificates.append(certificate)
        if screen:
            print_certificate(certificate, screen, whole=len(names) == 1)
            sys.stdout.flush()
    passed = all(certificate.passed for certificate in certificates)
    if screen:
        _print_verdict(certificates, screen)
    else:
        about = {"package_version": __version__, "torch": version("torch"), "passed": passed}
        report = {**about, "certificates": [certificate.as_dict() for certificate in certificates]}
        print_json(report)
    return EXIT_OK if passed else EXIT_FAILED


def _requested_names(options: argparse.Namespace) -> list[str]:
    """Return the algorithms to certify.

    Raises UsageError for none or both of names and `--all`, or an unknown name.
    """
    names = list(dict.fromkeys(split_list(options.names)))
    if options.all == (len(names) > 0):
        raise UsageError(
            "name the algorithms to certify, or --all; `python -m bench.sweep --list` shows them"
        )
    names = list(ALGORITHMS) if options.all else names
    for name in names:
        find_algorithm(name)
    return names


def _certify(
    names: Sequence[str], checks: Sequence[str], options: argparse.Namespace
) -> Iterator[Certificate]:
    import torch

    from bench.selftest.candidate import candidate

    # Bit-equality holds at equal threads, and toy runs gain nothing from more.
    torch.set_num_threads(1)
    for number, name in enumerate(names, 1):
        sys.stderr.write(f"[{number}/{len(names)}] {name}\n")
        yield certify(candidate(name), checks, options.verbose)


def print_certificate(certificate: Certificate, screen: Console, whole: bool) -> None:
    """Print a certificate as a line, or `whole` as a table; then its failures."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    counts = ", ".join(_counts(outcome.status for outcome in certificate.outcomes))
    origin = f"version {certificate.version}"
    if certificate.factory != certificate.algorithm:
        origin = f"{certificate.factory}, {origin}"
    screen.print(Text(f"{certificate.algorithm} ({origin}): {counts}", "bold"))
    if whole:
        table = Table(
            "check", "result", "measured", "s", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
        )
        for outcome in certificate.outcomes:
            result = Text(outcome.status, STYLES[outcome.status])
            table.add_row(outcome.check, result, Text(outcome.measured), f"{outcome.seconds:.1f}")
        screen.print(table)
    for outcome in certificate.outcomes:
        if outcome.status == FAILED:
            screen.print(Text(f"{outcome.check} failed:", STYLES[FAILED]))
            for problem in (*outcome.problems, f"look at: {outcome.look}"):
                screen.print(Text(f"  {problem}"))


def _print_verdict(certificates: Sequence[Certificate], screen: Console) -> None:
    from rich.text import Text

    failed = [certificate.algorithm for certificate in certificates if not certificate.passed]
    outcomes = chain.from_iterable(certificate.outcomes for certificate in certificates)
    counts = ", ".join(_counts(outcome.status for outcome in outcomes))
    verdict = f"NOT certified: {', '.join(failed)}" if failed else "Certified"
    versions = f"fedkd-bench {__version__}, torch {version('torch')}"
    screen.print(Text(f"{verdict} ({counts}; {versions}, CPU)"))


def _counts(statuses: Iterable[str]) -> list[str]:
    counts = Counter(statuses)
    return [f"{counts[status]} {status}" for status in STYLES if counts[status]]
