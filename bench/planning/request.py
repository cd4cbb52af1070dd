"""`Request`: what a user asked for, its names looked up. Imports neither torch nor ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from algorithms import ALGORITHMS, Entry, entry
from bench.data import info
from bench.errors import UsageError
from bench.terminal.values import unknown
from search_spaces import PAPERS, setting_fields

EMBEDDED_DATASET = "digits"


@dataclass(frozen=True)
class Request:
    """A sweep as the user asks for it.

    Args:
        values: setting fields and hyper-parameters given, each with its values as text.
        confirm: how many seeds, from 1 on, run the choice of the search on seed 0; 0 for no confirmation.
        confirm_at: setting field -> values, as text, of the cells to confirm in; empty for the tuned cells.
    """

    algorithms: tuple[str, ...]  # registry names, or `all`; for a table none is all
    dataset: str = EMBEDDED_DATASET  # for a table several, joined by commas, or empty for all
    paper: str | None = None  # whose setting and grids to use; None chooses
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)  # where each of `values` was given
    seeds: int = 1  # counted from 0
    search: str = "grid"
    num_samples: int = 10  # configurations per algorithm, for random and Optuna without `budget`
    budget: int = 0  # configurations that every algorithm gets, the learning rate being tuned as well; 0 for none
    scheduler: str = "none"
    confirm: int = 0
    confirm_at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    force: bool = False
    table: str | None = None  # name in print of a table of `paper`, whose cells are run; None for a sweep of one's own

    @property
    def configurations(self) -> int:
        """The number of configurations that Optuna chooses for each algorithm."""
        return self.budget or self.num_samples

    def place_of(self, name: str) -> str:
        """The words that a message adds on a value's origin; none for the command line."""
        origin = self.origins.get(name, "command line")
        return "" if origin == "command line" else f", as {origin} has it"


class Notes:
    """Sentences for the user, each said once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Say it, unless it was said."""
        if line not in self.lines:
            self.lines.append(line)


def check_names(request: Request) -> None:
    """Raise UsageError unless every name in a request exists and its options go together."""
    names = request.algorithms
    if "all" in names and len(names) > 1:
        raise UsageError("--algo all stands alone: name the algorithms, or all of them")
    if len(set(names)) != len(names):
        raise UsageError(f"--algo names an algorithm twice: {', '.join(names)}")
    for name in names:
        if name not in ALGORITHMS and name != "all":
            find_algorithm(name)
    if "dataset" in request.values:
        raise UsageError("the data set decides whose setting is used: give it as --dataset, not with --set")
    info(request.dataset)
    if request.paper and request.paper not in PAPERS:
        raise unknown("paper", request.paper, PAPERS)
    beside = {"--search random": request.search == "random", "--scheduler": request.scheduler != "none"}
    if request.budget and any(beside.values()):
        left = " and ".join(name for name, given in beside.items() if given)
        raise UsageError(
            f"--budget draws configurations itself, or has Optuna choose them, and runs all of them: leave out {left}"
        )


def find_algorithm(name: str) -> Entry:
    """The registry's entry, or that of an algorithm from outside; raises UsageError if there is none or it fails."""
    try:
        return entry(name)
    except KeyError:
        from algorithms import plugins

        raise unknown("algorithm", name, [*ALGORITHMS, *plugins.names()], importable=True) from None
    except ValueError as error:
        raise UsageError(str(error)) from error


def sort_values(
    request: Request, entries: list[Entry]
) -> tuple[dict[str, tuple[str, ...]], dict[tuple[str | None, str], tuple[str, ...]]]:
    """The given values as setting fields, and as hyper-parameters by (algorithm or None for any, name).

    A file may give values of algorithms that a command leaves out; these are ignored. Raises UsageError for a name that
    neither the setting nor a chosen algorithm has.
    """
    fields: dict[str, tuple[str, ...]] = {}
    hyper: dict[tuple[str | None, str], tuple[str, ...]] = {}
    having = {algorithm.name: set(algorithm.defaults()) for algorithm in entries}
    for name, values in request.values.items():
        algorithm, dot, short = name.rpartition(".")
        if name in setting_fields():
            fields[name] = values
        elif dot and short in having.get(algorithm, set()):
            hyper[algorithm, short] = values
        elif not dot and any(name in names for names in having.values()):
            hyper[None, name] = values
        elif request.place_of(name) and algorithm in ALGORITHMS and short in ALGORITHMS[algorithm].defaults():
            continue  # a file's value for an algorithm that this command does not run
        else:
            known = [*setting_fields(), *sorted(set().union(*having.values()))]
            kind = f"setting or hyper-parameter of {', '.join(having)}"
            raise UsageError(f"{unknown(kind, name, known)}{request.place_of(name)}")
    return fields, hyper
