"""The command line of `bench.selftest`. Imports neither torch nor ray before something is checked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from algorithms import ALGORITHMS
from bench.errors import EXIT_FAILED, EXIT_OK, UsageError
from bench.planning.request import find_algorithm
from bench.selftest.certify import CHECKS, Certificate, certify
from bench.selftest.report import as_json, line_of, print_certificates, print_checks
from bench.terminal.console import Parser, console, exit_status
from bench.terminal.values import split_list, unknown

DESCRIPTION = """\
Certify algorithms: each runs on a federation of four clients that takes milliseconds, and every property that this
suite relies on is measured. Certificates on stdout, progress on stderr."""
EPILOG = """\
examples:
  python -m bench.selftest fedprox fedcad                 two of the registry
  python -m bench.selftest --all                          every registered algorithm
  python -m bench.selftest fedcad --only backends resume  some of the checks; names come first
  python -m bench.selftest mypackage.mine:MyMethod        one from outside, as `module:factory` or by its entry point
  python -m bench.selftest mine:Prox --as fedprox         held to FedProx's printed formulas and limits, too

exit status: 0 every check passed or does not apply; 1 some check failed; 2 usage or value; 130 interrupted"""


def make_parser() -> Parser:
    """All options."""
    parser = Parser(prog="python -m bench.selftest", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="of the registry, of an entry point, or module:factory")
    add("--all", action="store_true", help="every registered algorithm")
    add("--as", dest="judged_as", metavar="NAME", help="hold one algorithm to this built-in's formulas and limits")
    add("--only", nargs="+", default=[], metavar="CHECK", help=f"of {', '.join(CHECKS)}")
    add("--list", action="store_true", help="the checks, and what each one shows")
    add("--json", action="store_true", help="machine-readable output")
    add("-v", "--verbose", action="store_true", help="tracebacks of errors")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = make_parser().parse_args(list(sys.argv[1:] if argv is None else argv))
    return exit_status(lambda: _selftest(given), given.verbose)


def _selftest(given: argparse.Namespace) -> int:
    # As wide as the terminal; a certificate that is piped or kept has lines of 80 characters.
    screen = console(None if sys.stdout.isatty() else 80)
    if given.list:
        print_checks(screen, given.json)
        return EXIT_OK
    asked = split_list(given.only)
    for name in asked:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    checks = [name for name in CHECKS if name in asked or not asked]
    certificates = _certify(_names(given), checks, given)
    if given.json:
        sys.stdout.write(json.dumps(as_json(certificates), indent=2) + "\n")
    else:
        print_certificates(certificates, screen)
    return EXIT_OK if all(certificate.passed for certificate in certificates) else EXIT_FAILED


def _names(given: argparse.Namespace) -> list[str]:
    """The algorithms to certify.

    Raises:
        UsageError: none or both of names and `--all`; an unknown name; `--as` with several.
    """
    names = list(dict.fromkeys(split_list(given.names)))
    if bool(names) == given.all:
        raise UsageError("name the algorithms to certify, or --all; `python -m bench.sweep --list` shows them")
    names = list(ALGORITHMS) if given.all else names
    if given.judged_as is not None:
        if given.judged_as not in ALGORITHMS:
            raise unknown("built-in algorithm", given.judged_as, ALGORITHMS)
        if len(names) != 1:
            raise UsageError(f"--as {given.judged_as} holds one algorithm to it, got {len(names)}")
    for name in names:
        find_algorithm(name)
    return names


def _certify(names: Sequence[str], checks: Sequence[str], given: argparse.Namespace) -> list[Certificate]:
    import torch

    from bench.selftest.candidate import Candidate, candidate

    torch.set_num_threads(1)  # bit-equality holds at equal threads, and toys gain nothing from more
    certificates: list[Certificate] = []
    for number, name in enumerate(names, 1):
        tested = Candidate.of(name, given.judged_as) if given.judged_as else candidate(name)
        certificates.append(certify(tested, checks, given.verbose))
        sys.stderr.write(f"[{number}/{len(names)}] {line_of(certificates[-1])}\n")
        sys.stderr.flush()
    return certificates
