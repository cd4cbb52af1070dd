"""The papers' tables of results, cell by cell, against a list of what they print."""

from __future__ import annotations

from itertools import product

from leaderboards.published import PrintedCell, printed_cells
from search_spaces import PAPERS, SETTINGS, SPACES, TABLES, find_table


def test_tables_hold_the_printed_cells_and_algorithms() -> None:
    printed: dict[tuple[str, str], list[PrintedCell]] = {}
    for cell in printed_cells():
        printed.setdefault((cell.paper, cell.table), []).append(cell)
    for (paper, name), cells in printed.items():
        key, table = find_table(paper, name)
        held = {
            (
                s.dataset,
                s.model.partition("+")[0],
                s.client_models,
                s.classes_per_client if s.partition == "fedproto" else None,
                s.alpha,
                s.num_clients,
                s.participation,
                s.local_epochs,
            )
            for s in table.settings
        }
        assert held == {
            (
                c.dataset,
                c.model,
                c.client_models or "",
                c.classes_per_client,
                c.alpha,
                c.num_clients,
                c.participation,
                c.local_epochs,
            )
            for c in cells
        }, (
            paper,
            name,
        )
        assert set(table.algorithms) == {cell.algorithm for cell in cells}, (paper, name)
        assert table == TABLES[key, name]
    assert len(TABLES) == len(printed)


def test_every_algorithm_of_a_table_has_a_space_there() -> None:
    for (key, name), table in TABLES.items():
        assert table.name == name
        for setting, algorithm in product(table.settings, table.algorithms):
            assert SETTINGS[key, setting.dataset].partition == setting.partition
            assert (key, setting.dataset, algorithm) in SPACES


def test_femnist_decays_weights_as_printed() -> None:
    decays = {
        (s.participation, s.local_epochs): s.weight_decay for s in TABLES["feddkd", "II"].settings
    }
    assert decays.pop((0.25, 5)) == 1e-3
    assert set(decays.values()) == {5e-4}


def test_a_paper_that_stands_twice_says_so() -> None:
    assert PAPERS["feddkd_emnist"].part_of == "feddkd"
    assert find_table("feddkd", "V") == ("feddkd_emnist", TABLES["feddkd_emnist", "V"])
    assert find_table("feddkd", "VII") is None
    assert find_table("fedcad", "V") is None
