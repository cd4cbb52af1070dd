"""Fields of stored settings, and what is said of folders without runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.stored.fields import field_named, field_value, value_in, worth_telling
from bench.stored.groups import number, on_clients
from bench.stored.results import source_of
from leaderboards.selection import ALL_RUNS


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("lr", {"lr": 0.1}, 0.1),
        ("public", {}, None),
        ("public", {"public": ""}, ""),
        ("finetune_steps", {}, 0),
        ("model_version", {}, None),
        ("model_version", {"model_version": 3}, 3),
        ("classes_per_client", {"partition": "lda"}, None),
        ("classes_per_client", {"partition": "shards"}, 2),
        ("classes_per_client", {"partition": "mine:Own"}, 2),
        ("classes_per_client", {}, 2),
        ("finetune_steps", {"partition": "lda"}, 0),
    ],
)
def test_what_is_worth_telling(name: str, setting: dict[str, Any], value: Any) -> None:
    assert worth_telling(name, setting) == value


def test_a_missing_field_has_its_default() -> None:
    assert (value_in("lr", {"lr": 0.5}), value_in("lr", {})) == (0.5, 0.01)


def test_values_of_fields_have_their_types() -> None:
    assert field_named("--by", "lr") == "lr"
    assert (field_value("lr", "1"), field_value("alpha", "none")) == (1.0, None)
    with pytest.raises(UsageError, match="lr must be a number"):
        field_value("lr", "much")
    with pytest.raises(UsageError, match="no field of a setting for --by 'lrr'"):
        field_named("--by", "lrr")


def test_values_are_printed_as_typed() -> None:
    assert [number(value) for value in (0.1, True, None)] == ["0.1", "true", "–"]


@pytest.mark.parametrize(
    ("samples", "own"), [((), False), (("clients",) * 2, True), (("clients", "none"), False)]
)
def test_all_records_are_selected_on_clients(samples: tuple[str, ...], own: bool) -> None:
    assert on_clients([{"selected_on": rule} for rule in samples]) is own


@pytest.mark.parametrize(
    ("names", "folder"),
    [(["a"], "a"), (["a", "b"], "a"), (["x.parquet"], "usual"), (["x.parquet", "b"], "b")],
)
def test_a_sweep_into_a_folder_is_suggested(
    names: list[str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDKD_OUT", "usual")
    with pytest.raises(UsageError) as refused:
        source_of([Path(name) for name in names], ALL_RUNS)
    start = f"no results in {', '.join(names)}: a sweep such as `python -m bench.sweep --algo"
    assert str(refused.value).startswith(start)
    assert f" --out {folder}` makes some, or name another folder" in str(refused.value)
