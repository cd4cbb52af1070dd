"""Replicates of a partition are averaged before anything is compared, beside a recomputation by hand."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pandas as pd
import pytest
from rows import failed_row, make_row

from leaderboards.board import leaderboard, with_seeds
from leaderboards.confirmed import chosen, confirmed
from leaderboards.numbers import NUMBERS
from leaderboards.problems import cell_of
from leaderboards.replicates import by_partition, partitions
from leaderboards.rows.schema import environment_key
from leaderboards.tables.model import TableCell

FINAL = NUMBERS["final_accuracy"]
PARTITIONS = (101, 102, 103)


def replicate(partition: int, number: int, **told: Any) -> dict[str, Any]:
    setting = {"partition_seed": partition} if number else {}
    return make_row("fedavg", {}, setting, partition + 1000 * number, **told)


def replicated(generator: random.Random, count: int = 4) -> list[dict[str, Any]]:
    return [
        replicate(partition, number, final_accuracy=generator.random())
        for partition in PARTITIONS
        for number in range(count)
    ]


def test_partition_seeds_keep_all_their_digits() -> None:
    seeds = [2**53, 2**53 + 1, 2**63 - 1]
    rows = [make_row("fedavg", {}, {"partition_seed": seed}, 1) for seed in seeds]
    runs = pd.DataFrame([*rows, make_row("fedavg", seed=4)])
    assert partitions(runs).tolist() == [*seeds, 4]


def test_means_are_of_partition_means() -> None:
    rows = replicated(random.Random(0))
    others = [
        make_row("fedprox", {"mu": 0.1}, seed=seed, final_accuracy=0.5) for seed in PARTITIONS
    ]
    runs = pd.DataFrame([*rows, *others])
    board = leaderboard(runs).set_index("algorithm")
    means = [sum(row["final_accuracy"] for row in rows[4 * i : 4 * i + 4]) / 4 for i in range(3)]
    assert board.loc["fedavg", "n"] == 3
    assert board.loc["fedavg", "final_accuracy_mean"] == pytest.approx(sum(means) / 3)
    assert board.loc["fedavg", "final_accuracy_std"] == pytest.approx(pd.Series(means).std(ddof=1))
    assert board["cell"].nunique() == 1
    seeds = with_seeds(leaderboard(runs), runs, [FINAL]).set_index("algorithm")["seeds"]
    assert seeds["fedavg"]["final_accuracy"] == pytest.approx(
        dict(zip(PARTITIONS, means, strict=True))
    )
    assert set(seeds["fedprox"]["final_accuracy"]) == set(PARTITIONS)


def test_order_of_rows_is_no_matter() -> None:
    rows = replicated(random.Random(1))
    expected = leaderboard(pd.DataFrame(rows))
    random.Random(2).shuffle(rows)
    pd.testing.assert_frame_equal(leaderboard(pd.DataFrame(rows)), expected)


def test_rows_without_replicates_stay() -> None:
    runs = pd.DataFrame([make_row("fedavg", {}, seed=seed) for seed in (0, 1)])
    assert by_partition(runs, ["final_accuracy"]) is runs


def test_unfinished_replicates_are_left_out() -> None:
    rows = [replicate(101, 0, final_accuracy=0.2), replicate(101, 1, final_accuracy=0.4)]
    rows.append(failed_row("fedavg", {}, {"partition_seed": 101}, 2101))
    (row,) = by_partition(pd.DataFrame(rows), ["final_accuracy"]).to_dict("records")
    assert (row["seed"], row["status"]) == (101, "finished")
    assert row["final_accuracy"] == pytest.approx(0.3)


def test_failed_replicates_alone_are_a_failure() -> None:
    rows = [failed_row("fedavg", {}, {"partition_seed": 101}, seed) for seed in (1101, 2101)]
    (row,) = leaderboard(pd.DataFrame(rows)).to_dict("records")
    assert (row["n"], row["failed"]) == (0, 1)


def test_one_diverged_replicate_is_a_diverged_partition() -> None:
    rows = [
        replicate(101, 0),
        replicate(101, 1, diverged=True),
        replicate(102, 0),
        replicate(102, 1),
    ]
    averaged = by_partition(pd.DataFrame(rows), ["final_accuracy"]).set_index("seed")
    assert averaged["diverged"].to_dict() == {101: True, 102: False}


def test_a_diverged_replicate_counts_as_it_ended() -> None:
    rows = [
        replicate(101, 0, mean_last10_accuracy=0.6, final_accuracy=0.7),
        replicate(101, 1, mean_last10_accuracy=0.5, final_accuracy=0.1, diverged=True),
        failed_row("fedavg", {}, seed=102),
    ]
    runs = pd.DataFrame(rows)
    metric = NUMBERS["mean_last10_accuracy"]
    (seeds,) = with_seeds(leaderboard(runs), runs, [metric])["seeds"]
    assert seeds[metric.name] == pytest.approx({101: (0.6 + 0.1) / 2})


def test_a_replicate_without_a_value_leaves_none() -> None:
    rows = [replicate(101, 0), replicate(101, 1), replicate(102, 0), replicate(102, 1)]
    runs = pd.DataFrame(rows).assign(**{"rounds@66": [3.0, math.nan, 4.0, 6.0]})
    averaged = by_partition(runs, ["rounds@66"]).set_index("seed")["rounds@66"]
    assert math.isnan(averaged[101])
    assert averaged[102] == 5.0


def test_replicates_on_other_platforms_or_data_are_seen() -> None:
    rows = [replicate(101, 0), replicate(101, 1), replicate(102, 0)]
    (alike,) = leaderboard(pd.DataFrame(rows)).to_dict("records")
    assert (alike["platforms_mixed"], alike["data_mixed"]) == (False, False)
    rows[1] = replicate(101, 1, device="some GPU")
    rows[2] = replicate(102, 0, dataset_hash="ef56")
    rows[0]["seconds"] = 5.0
    (mixed,) = leaderboard(pd.DataFrame(rows)).to_dict("records")
    assert (mixed["platforms_mixed"], mixed["data_mixed"]) == (True, True)
    assert alike["platforms"] in mixed["platforms"].split(", ")
    runs = pd.DataFrame(rows)
    (record,) = with_seeds(leaderboard(runs), runs, [FINAL, FINAL]).to_dict("records")
    assert {seed: len(found) for seed, found in record["platforms_by_seed"].items()} == {
        101: 2,
        102: 1,
    }
    assert record["shortest"] == {
        environment_key(rows[0]): 5.0,
        environment_key(rows[1]): rows[1]["seconds"],
    }


def test_replicates_on_the_same_platforms_are_alike() -> None:
    """One is on a GPU, of each algorithm; of the third all are on the CPU."""
    rows = []
    for number, device in enumerate(("cpu", "some GPU")):
        rows.append(replicate(101, number, device=device))
        setting = {"partition_seed": 101} if number else {}
        rows.append(make_row("fedprox", {}, setting, 101 + 1000 * number, device=device))
        rows.append(make_row("moon", {}, setting, 101 + 1000 * number))
    runs = pd.DataFrame(rows)
    board = with_seeds(leaderboard(runs), runs, [FINAL])
    records = {record["algorithm"]: record for record in board.to_dict("records")}
    cells = {name: TableCell("value", FINAL, record) for name, record in records.items()}
    assert not cells["fedprox"].is_unlike(cells["fedavg"])
    assert cells["moon"].is_unlike(cells["fedavg"])


def test_partitions_are_named_or_the_seed() -> None:
    runs = pd.DataFrame(
        [replicate(101, 0), replicate(101, 3), make_row("fedavg", {}, {"partition_seed": 0}, 7)]
    )
    assert partitions(runs).tolist() == [101, 101, 0]
    texts = runs["setting_json"].tolist()
    assert cell_of(texts[0]) == cell_of(texts[1]) == cell_of(texts[2])


def test_replicates_confirm_and_do_not_choose() -> None:
    search = [
        make_row("fedavg", {}, {"lr": lr}, 0, best_val_accuracy=score)
        for lr, score in ((0.1, 0.9), (0.2, 0.5))
    ]
    search.append(
        make_row("fedavg", {}, {"lr": 0.2, "partition_seed": 0}, 1000, best_val_accuracy=1.0)
    )
    search.append(
        make_row("fedavg", {}, {"lr": 0.2, "partition_seed": 101}, 0, best_val_accuracy=1.0)
    )
    others = [
        make_row("fedavg", {}, {"lr": lr, **({"partition_seed": 101} if seed > 1000 else {})}, seed)
        for lr in (0.1, 0.2)
        for seed in (101, 1101)
    ]
    runs = pd.DataFrame([*search, *others])
    (winner,) = chosen(runs, ["lr"], {}, {}).to_dict("records")
    assert json.loads(winner["setting_json"])["lr"] == 0.1
    assert sorted(confirmed(runs, ["lr"], {}, {})["seed"]) == [101, 1101]
