"""Optuna under Ray Tune: the searches of a sweep side by side, each with a sampler of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from bench.planning.plan import Search
from bench.tuning.search import History, distributions


def sampler(search: Search, past: History, first: Sequence[dict[str, Any]], seed: int) -> OptunaSearch:
    """Tune's Optuna sampler, filled with what is stored; it proposes some values first."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = OptunaSearch(
        space=distributions(search),
        metric="objective",
        mode="max",
        seed=seed,
        points_to_evaluate=list(first) or None,
    )
    for chosen, value in past.known:
        made.add_evaluated_point(chosen, value)
    return made


class Searches(Searcher):
    """Several samplers as one. A configuration is `search`, whose it is, and `chosen`, the sampler's values.

    One search after another proposes all that it lacks, and none waits for trials of another to end.

    Args:
        samplers: by the place of their search.
        wanted: trials that each proposes.
        stopping: whether the sweep is.

    Attributes:
        failed: the searches of which a trial failed.
    """

    def __init__(
        self, samplers: Mapping[int, Searcher], wanted: Mapping[int, int], stopping: Callable[[], bool]
    ) -> None:
        super().__init__(metric="objective", mode="max")
        self.failed: set[int] = set()
        self._samplers, self._stopping = samplers, stopping
        self._ahead = [index for index, count in wanted.items() for _ in range(count)]
        self._whose: dict[str, int] = {}

    def suggest(self, trial_id: str) -> Any:
        """The next trial's configuration; `Searcher.FINISHED` where nothing is wanted any more."""
        if not self._ahead or self._stopping():
            return Searcher.FINISHED
        index = self._ahead[0]
        chosen = self._samplers[index].suggest(trial_id)
        if chosen is None:  # not yet
            return None
        self._ahead.pop(0)
        self._whose[trial_id] = index
        return {"search": index, "chosen": chosen}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Its sampler hears of it."""
        self._samplers[self._whose[trial_id]].on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Its sampler hears of it."""
        index = self._whose[trial_id]
        self._samplers[index].on_trial_complete(trial_id, result, error)
        if error or (result or {}).get("status") == "failed":
            self.failed.add(index)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a sweep goes on from its rows and states, never from Tune's own files."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, as `save`."""
