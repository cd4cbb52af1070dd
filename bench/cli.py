"""The console script `fedkd`, also `python -m bench`: each `bench.X` as a sub-command."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from bench import __version__
from bench.errors import EXIT_OK
from bench.terminal.console import exit_status
from bench.terminal.words import unknown

COMMANDS = {
    "sweep": "plan and run: hyper-parameters, heterogeneity, participation",
    "status": "what is done, failed, stopped or missing",
    "compare": "leaderboard tables",
    "report": "leaderboard, curves and every run as one web page",
    "figures": "the papers' figures from stored runs, as SVG and PNG",
    "boards": "merge, validate, compact, push and pull result folders",
    "data": "data sets: list, prepare, and how a partition looks",
    "selftest": "certificates of algorithms",
    "perf": "benchmarks of this suite itself",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return exit_status(lambda: _dispatch(argv))


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["--version"]:
        sys.stdout.write(f"fedkd-bench {__version__}\n")
        return EXIT_OK
    if not argv or argv[0] in ("-h", "--help"):
        lines = [f"  {name:<10}{summary}" for name, summary in COMMANDS.items()]
        usage = "usage: fedkd COMMAND ..., or python -m bench COMMAND ..."
        sys.stdout.write("\n".join([usage, "", *lines, "", "COMMAND --help has details.", ""]))
        return EXIT_OK
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    module = f"bench.{argv[0]}" if argv[0] in ("boards", "status") else f"bench.{argv[0]}.command"
    status: int = importlib.import_module(module).main(argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
