"""The catalogue of figures: what each one shows, and the command that makes its runs.

Some figures are a paper's, others show any board. Imports neither torch nor ray, so that `--help`
and a misspelt name are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from leaderboards.shell_text import shell_command

if TYPE_CHECKING:
    from pathlib import Path

    from bench.figures.stored_runs import Drawing, Pictures, Runs


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, or of any board.

    Args:
        name: on the command line, and first in the names of its files: paper and number, or `board`
            and a word.
        shows: what it shows.
        arguments: of `python -m bench.sweep`, for the runs that the paper draws.
        finder: `module:name` of the function that finds its pictures.
        lacking: what runs lack of which there is no picture.
    """

    name: str
    shows: str
    arguments: str
    finder: str
    lacking: str

    def command(self, out: Path) -> str:
        """Return the command that makes the paper's or the board's runs, in a result folder."""
        return shell_command("bench.sweep", *self.arguments.split(), "--out", out)

    def find(self, runs: Runs) -> dict[str, Drawing]:
        """Find the pictures of this figure that the runs allow, by file name without ending.

        Raises EnvironmentProblem for a damaged file.
        """
        from bench.figures.comparisons import file_name

        finder: Callable[[Runs], Pictures] = resolve_name(f"bench.figures.{self.finder}")
        return {file_name(self.name, comparison): drawing for comparison, drawing in finder(runs)}


def _untracked(what: str, names: str) -> str:
    """Describe the lack of tracked data. `names`: of `bench.execution.TRACKS`, as typed."""
    return f"no run here keeps {what}, as --track {names} does; --force runs again what is stored"


_BOARD = "--config docs/reference.toml"
_GKD_3 = (
    "--paper fedgkd --algo fedavg,fedgkd --dataset cifar10 --alpha 0.1 0.5 1 "
    "--participation 0.1 0.2 0.3 0.4"
)
_DKD = "--paper feddkd --table I"
_DKD_5 = f"{_DKD} --local-epochs 5 --participation 0.5 0.75"
_DKD_15 = f"{_DKD} --local-epochs 15 --participation 0.5 0.75"
_CAD = "--paper fedcad --algo fedavg,fedlsd,fedcad --dataset cifar10"
_CAD_3 = "--paper fedcad --algo fedavg --dataset cifar10 --rounds 1 --track classes"
_KF_2 = "--paper fedkf --table 3 --algo fedavg --rounds 1 --track classes"
_NO_STEPS = "no finished run here has a curve of its local steps"
_NOT_LONG = "no finished run here has 15 local epochs"
_NO_COMMUNICATIONS = "no finished run here communicates, or none has a curve of it"
_NO_PARTITION = (
    f"{_untracked('the class counts of clients', 'classes')}; and the data are not here to count in"
)

_ALL = (
    Figure(
        "board-differences",
        "differences from fedavg over all cells, with simultaneous intervals and costs",
        _BOARD,
        "any_board:differences",
        "no setting here has an algorithm beside fedavg",
    ),
    Figure(
        "board-costs",
        "final accuracy against traffic and against time, for each alpha",
        _BOARD,
        "any_board:costs",
        "no cell here has two algorithms to compare",
    ),
    Figure(
        "fedgkd-2",
        "t-SNE of the features of global and local models",
        "--paper fedgkd --table fig2 --track local,features",
        "planes:features",
        _untracked("features", "local,features"),
    ),
    Figure(
        "fedgkd-3",
        "partitions as bubbles; accuracy over participation, for each alpha",
        f"{_GKD_3} --set buffer=1 --seeds 3 --track classes",
        "partitions:with_accuracy",
        "no setting here has finished runs at several values of alpha or participation",
    ),
    Figure(
        "fedgkd-4",
        "test accuracy by round, for each alpha",
        "--paper fedgkd --table 3 --algo fedavg,fedprox,fedgkd",
        "curves:by_round",
        "no finished run here has a curve of test accuracy",
    ),
    Figure(
        "fedgkd-5",
        "decision boundaries of a toy example",
        "--algo fedavg,fedgkd --dataset toy2d --track models",
        "planes:boundaries",
        _untracked("the model of a task in the plane, such as toy2d", "models"),
    ),
    Figure(
        "feddkd-2",
        "test accuracy at equal communication, for each participation",
        _DKD_5,
        "curves:at_equal_communication",
        _NO_COMMUNICATIONS,
    ),
    Figure(
        "feddkd-3",
        "test accuracy at equal local steps, for each participation",
        _DKD_5,
        "curves:at_equal_steps",
        _NO_STEPS,
    ),
    Figure(
        "feddkd-4",
        "as 2, of the runs with 15 local epochs",
        _DKD_15,
        "curves:long_at_equal_communication",
        _NOT_LONG,
    ),
    Figure(
        "feddkd-5",
        "as 3, of the runs with 15 local epochs",
        _DKD_15,
        "curves:long_at_equal_steps",
        _NOT_LONG,
    ),
    Figure(
        "feddkd-6",
        "test accuracy at equal local steps, for each number of local epochs",
        f"{_DKD} --participation 0.25",
        "curves:at_equal_steps_by_epochs",
        "no setting here has finished runs with several numbers of local epochs",
    ),
    Figure(
        "feddkd-7",
        "training loss by round",
        "--paper feddkd --table VI",
        "curves:training_loss",
        "no finished run here has a curve of training loss",
    ),
    Figure(
        "fedcad-1",
        "accuracy by class of global and local models, beside the client's data",
        f"{_CAD} --rounds 11 --track classes",
        "accuracy_by_class:find",
        _untracked("accuracies by class", "classes"),
    ),
    Figure(
        "fedcad-3",
        "who holds how many samples of which class, as a heat map",
        _CAD_3,
        "partitions:heat_map",
        _NO_PARTITION,
    ),
    Figure(
        "fedcad-4",
        "global and mean local accuracy by round",
        f"{_CAD} --track local",
        "curves:global_and_local",
        _untracked("the accuracy of the clients' own models", "local"),
    ),
    Figure(
        "fedkf-2",
        "partitions as bubbles, for each alpha",
        _KF_2,
        "partitions:bubbles",
        _NO_PARTITION,
    ),
    Figure(
        "fedkf-3",
        "AMP, FM and WLP by round, for each alpha",
        "--paper fedkf --table 3",
        "curves:fairness",
        "no run here keeps samples of its clients to test on: local_test_fraction is 0 in all",
    ),
)
FIGURES = {figure.name: figure for figure in _ALL}
