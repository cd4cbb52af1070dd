"""Optuna under Ray Tune: the searches of a sweep side by side, each with a sampler of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from bench.planning.plan import Search
from bench.tuning.search import PATIENCE, History, distributions
from leaderboards import canonical_json


def sampler(search: Search, past: History, first: Sequence[dict[str, Any]]) -> OptunaSearch:
    """Tune's Optuna sampler, filled with what is stored; it proposes some values first."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = OptunaSearch(
        space=distributions(search),
        metric="objective",
        mode="max",
        seed=len(past.known),
        points_to_evaluate=list(first) or None,
    )
    for chosen, value in past.known:
        made.add_evaluated_point(chosen, value)
    return made


class _Asked(NamedTuple):
    """Whose trial it is, what its sampler calls it, and its values as text."""

    search: int
    name: str
    chosen: str


class Searches(Searcher):
    """Several samplers as one. A configuration is `search`, whose it is, and `chosen`, the sampler's values.

    One search after another proposes all that it lacks, without waiting for trials of another to end. A sampler that
    repeats itself is told what came of that and asked again: nothing is tried twice.

    Args:
        samplers: by the place of their search.
        past: what is stored of each of these searches.
        wanted: trials that each proposes.
        stopping: whether the sweep is.
    """

    def __init__(
        self,
        samplers: Mapping[int, Searcher],
        past: Mapping[int, History],
        wanted: Mapping[int, int],
        stopping: Callable[[], bool],
    ) -> None:
        super().__init__(metric="objective", mode="max")
        self._samplers, self._stopping = samplers, stopping
        self._ahead = [index for index, count in wanted.items() for _ in range(count)]
        self._patience = {index: PATIENCE * count for index, count in wanted.items()}
        # The objective of each configuration that was proposed or is stored; NaN where there is none, or not yet.
        self._had = {index: {canonical_json(one): value for one, value in past[index].known} for index in wanted}
        self._asked: dict[str, _Asked] = {}

    def suggest(self, trial_id: str) -> Any:
        """The next trial's configuration; `Searcher.FINISHED` where nothing is wanted any more."""
        while self._ahead and not self._stopping():
            index = self._ahead[0]
            had, name = self._had[index], f"{trial_id} {self._patience[index]}"
            chosen = self._samplers[index].suggest(name)
            if chosen is None:  # not yet
                return None
            asked = _Asked(index, name, canonical_json(chosen))
            if asked.chosen not in had:
                had[asked.chosen] = math.nan
                self._ahead.pop(0)
                self._asked[trial_id] = asked
                return {"search": index, "chosen": chosen}
            self._tell_again(asked)
        return Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Its sampler hears of it."""
        asked = self._asked[trial_id]
        self._samplers[asked.search].on_trial_result(asked.name, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Its sampler hears of it."""
        asked = self._asked[trial_id]
        if result and not error:
            self._had[asked.search][asked.chosen] = float(result["objective"])
        self._tell(asked)

    def _tell(self, asked: _Asked) -> None:
        """What came of a proposal; a sampler takes no NaN."""
        value = self._had[asked.search][asked.chosen]
        known = None if math.isnan(value) else {"objective": value}
        self._samplers[asked.search].on_trial_complete(asked.name, known, error=known is None)

    def _tell_again(self, asked: _Asked) -> None:
        """Of a proposal that is none, what is known; on a small grid a sampler may have no other."""
        self._tell(asked)
        self._patience[asked.search] -= 1
        if not self._patience[asked.search]:
            self._ahead = [index for index in self._ahead if index != asked.search]

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a sweep goes on from its rows and states, never from Tune's own files."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, as `save`."""
