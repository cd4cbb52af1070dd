"""`Plan`: all runs and searches of a sweep.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.planning.options import SweepOptions
from bench.planning.run_spec import RunSpec, row_entry, row_names
from bench.planning.search import Search, TwoStages
from search_spaces import Setting, Value, setting_defaults

if TYPE_CHECKING:
    import pandas as pd

    from bench.planning.tables import TablePlace


@dataclass(frozen=True)
class Plan:
    """All runs and searches of a sweep.

    Args:
        options: what they follow from, with own data by the name of their content.
        paper: that the setting is from, if any.
        run_specs: the runs, for Optuna none in advance; of two stages those of the first.
        searches: the spaces from which Optuna chooses.
        settings: the distinct problems, before an algorithm's own needs.
        origins: setting field -> origin of its value, if that is not the preset.
        notes: what was left out or added, in sentences.
        left_out: algorithm of `all` that cannot run -> what it needs.
        places: of a printed table.
        tuned: setting fields over which configurations are selected.
        stages: of `--tuning two-stage`.
        confirming: runs that may follow the search, without hyper-parameters, which are not chosen
            yet.
        confirmed_at: of a plan that confirms a search: setting fields in which the two differ, with
            the values of the search; None of other plans.
    """

    options: SweepOptions
    paper: str | None
    run_specs: tuple[RunSpec, ...]
    searches: tuple[Search, ...]
    settings: tuple[Setting, ...]
    origins: Mapping[str, str]
    notes: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    places: tuple[TablePlace, ...] = ()
    tuned: tuple[str, ...] = ()
    stages: tuple[TwoStages, ...] = ()
    confirming: tuple[RunSpec, ...] = ()
    confirmed_at: Mapping[str, Value] | None = None

    @property
    def parts(self) -> list[RunSpec | Search]:
        """Its runs and searches."""
        return [*self.run_specs, *self.searches]

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets of its runs and searches."""
        return tuple(dict.fromkeys(part.setting.dataset for part in self.parts))

    def without_tuned(self, setting: Setting) -> Setting:
        """Reset the tuned fields of a setting to their defaults: competing runs share the rest."""
        defaults = vars(Setting())
        return replace(setting, **{name: defaults[name] for name in self.tuned})

    def winners(self, runs: pd.DataFrame, at: Mapping[str, Value]) -> list[dict[Hashable, Any]]:
        """List the rows of seed 0 of the configurations that win in cells with the values `at`."""
        from leaderboards.confirmed import chosen
        from leaderboards.selection import with_protocol

        runs = with_protocol(runs, self.options.select_on)
        rows = chosen(runs, self.tuned, at, setting_defaults(), self.options.chosen_by)
        return rows.to_dict("records")

    def of_own_versions(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Select the runs of the plan's algorithms in their present versions, and all of others."""
        versions: dict[str, int] = {}
        for part in self.parts:
            for suffix in row_names(part.algorithm, part.setting):
                row = row_entry(part.algorithm, suffix)
                versions[row.name] = row.version
        wanted = runs["algorithm"].map(versions)
        return runs[wanted.isna() | (wanted == runs["algorithm_version"])]

    def of_searches(self, rows: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Select the (algorithm, `setting_json`) of rows that may come from the searches."""
        distinct = set(rows)
        selected: set[tuple[str, str]] = set()
        for search in self.searches:
            names = row_names(search.algorithm, search.setting).values()
            for algorithm, setting_json in distinct:
                if algorithm in names and search.covers(setting_json):
                    selected.add((algorithm, setting_json))
        return selected
