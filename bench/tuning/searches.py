"""Optuna under Ray Tune: the searches of a sweep side by side, each with a sampler of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.search import Searcher

from bench.tuning.search import Proposer


class Searches(Searcher):
    """Several samplers as one. A configuration is `search`, the sampler's place, and `chosen`, its values.

    One sampler after another proposes all that it lacks, without waiting for trials of another to end.

    Args:
        proposers: by the place of their search.
        stopping: whether the sweep is.
    """

    def __init__(self, proposers: Mapping[int, Proposer], stopping: Callable[[], bool]) -> None:
        super().__init__(metric="objective", mode="max")
        self._proposers, self._stopping = proposers, stopping
        self._asked: dict[str, Any] = {}  # trial -> place and Optuna's trial

    def suggest(self, trial_id: str) -> Any:
        """Propose the next trial's configuration; `Searcher.FINISHED` if nothing is wanted any more."""
        for index, proposer in self._proposers.items():
            asked = None if self._stopping() else proposer.propose()
            if asked is not None:
                self._asked[trial_id] = index, asked
                return {"search": index, "chosen": asked.params}
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the trial's sampler."""
        index, asked = self._asked[trial_id]
        self._proposers[index].tell(asked, float(result["objective"]) if result and not error else math.nan)

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: a sweep goes on from its rows and states, never from Tune's own files."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, as `save`."""
