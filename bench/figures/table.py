"""The papers' figures that are drawn: what each shows, and the command that makes its runs.

Imports neither torch nor ray, so that `--help` and a misspelt name are answered at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from leaderboards.commands import shell_command

if TYPE_CHECKING:
    from pathlib import Path

    from bench.figures.runs import Runs
    from bench.figures.sketch import Found


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Args:
        paper: key in `search_spaces.PAPERS`.
        number: as printed; a word for what the paper's analysis has and no figure of it shows.
        shows: in a line.
        arguments: of `python -m bench.sweep`, for the runs that the paper draws.
        finder: `module:name` of the function that finds what can be drawn; `Found` of (runs, the figure's name).
    """

    paper: str
    number: str
    shows: str
    arguments: str
    finder: str

    @property
    def name(self) -> str:
        """On the command line, and first in the names of its files."""
        return f"{self.paper}-{self.number}"

    def command(self, out: Path) -> str:
        """What makes the runs that the paper draws, in a result folder."""
        return shell_command("bench.sweep", *self.arguments.split(), "--out", out)

    def find(self, runs: Runs) -> Found:
        """What of it some runs can draw.

        Raises:
            EnvironmentProblem: a file of tracked data is damaged.
        """
        module, _, name = self.finder.partition(":")
        finder = cast("Callable[[Runs, str], Found]", getattr(importlib.import_module(f"bench.figures.{module}"), name))
        return finder(runs, self.name)


_GKD_2 = "--paper fedgkd --table fig2 --track local,features"
_GKD_3 = "--paper fedgkd --algo fedavg,fedgkd --dataset cifar10 --alpha 0.1 0.5 1 --participation 0.1 0.2 0.3 0.4"
_CAD = "--paper fedcad --algo fedavg,fedlsd,fedcad --dataset cifar10"

_ALL = (
    Figure("fedgkd", "2", "t-SNE of the features of global and local models", _GKD_2, "features:find"),
    Figure(
        "fedgkd",
        "3",
        "partitions as bubbles; accuracy over participation, for each alpha",
        f"{_GKD_3} --set buffer=1 --seeds 3 --track classes",
        "heterogeneity:find",
    ),
    Figure(
        "fedgkd",
        "4",
        "test accuracy by round, for each data set and alpha",
        "--paper fedgkd --table 3 --algo fedavg,fedprox,fedgkd",
        "curve_figures:by_round",
    ),
    Figure(
        "fedgkd",
        "5",
        "decision boundaries of a toy example",
        "--algo fedavg,fedgkd --dataset toy2d --track models",
        "boundaries:find",
    ),
    Figure(
        "fedgkd",
        "drift",
        "distance of local models and dissimilarity of their gradients by round (section 4.1)",
        "--paper fedgkd --algo fedavg,fedprox,fedgkd --dataset cifar10 --track drift",
        "curve_figures:drift",
    ),
    Figure(
        "feddkd",
        "2",
        "test accuracy at equal communication, for each participation",
        "--paper feddkd --table I --local-epochs 5 --participation 0.5 0.75",
        "curve_figures:at_equal_communication",
    ),
    Figure(
        "feddkd",
        "3",
        "test accuracy at equal local steps, for each participation",
        "--paper feddkd --table I --local-epochs 5 --participation 0.5 0.75",
        "curve_figures:at_equal_steps",
    ),
    Figure(
        "feddkd",
        "4",
        "as 2, of the runs with 15 local epochs",
        "--paper feddkd --table I --local-epochs 15 --participation 0.5 0.75",
        "curve_figures:long_at_equal_communication",
    ),
    Figure(
        "feddkd",
        "5",
        "as 3, of the runs with 15 local epochs",
        "--paper feddkd --table I --local-epochs 15 --participation 0.5 0.75",
        "curve_figures:long_at_equal_steps",
    ),
    Figure(
        "feddkd",
        "6",
        "test accuracy at equal local steps, for each number of local epochs",
        "--paper feddkd --table I --participation 0.25",
        "curve_figures:at_equal_steps_by_epochs",
    ),
    Figure("feddkd", "7", "training loss by round", "--paper feddkd --table VI", "curve_figures:training_loss"),
    Figure(
        "fedcad",
        "1",
        "accuracy by class of global and local models, beside the client's data",
        f"{_CAD} --rounds 11 --track classes",
        "classes:find",
    ),
    Figure(
        "fedcad",
        "3",
        "who holds how many samples of which class, as a heat map",
        "--paper fedcad --algo fedavg --dataset cifar10 --rounds 1 --track classes",
        "partitions:heat_map",
    ),
    Figure(
        "fedcad",
        "4",
        "global and mean local accuracy by round",
        f"{_CAD} --track local",
        "curve_figures:global_and_local",
    ),
    Figure(
        "fedkf",
        "2",
        "partitions as bubbles, for each alpha",
        "--paper fedkf --table 3 --algo fedavg --rounds 1 --track classes",
        "partitions:bubbles",
    ),
    Figure(
        "fedkf", "3", "AMP, FM and WLP by round, for each alpha", "--paper fedkf --table 3", "curve_figures:fairness"
    ),
)
FIGURES = {figure.name: figure for figure in _ALL}
