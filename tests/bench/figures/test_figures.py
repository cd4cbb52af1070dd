"""The papers' figures: their pictures hold the stored numbers, are whole, and what cannot be drawn is said."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from commands import ROOT
from PIL import Image
from rows import Pair, failed_row, make_row, tables_of, write

from algorithms import ALGORITHMS
from bench import artifacts, data, models
from bench.charts.lines import mean_and_spread
from bench.charts.panels import print_config
from bench.charts.theme import LIGHT, SHAPES
from bench.data.splits import split
from bench.engine.tracking import load_model
from bench.figures.catalogue import FIGURES
from bench.figures.command import main
from bench.figures.planes import classified, embedded, rectangles
from bench.figures.stored_runs import read
from bench.stored.groups import labels_of
from bench.sweep import command as sweep
from leaderboards.board import leaderboard, with_seeds
from leaderboards.numbers import NUMBERS
from leaderboards.rows.schema import WHEN_DIVERGED
from leaderboards.tables.over_cells import pooled_against
from search_spaces import Setting

pytest.importorskip(
    "vl_convert", reason="figures need vl-convert-python: pip install fedkd-bench[report]"
)

SVG = "{http://www.w3.org/2000/svg}"
SETTING = {"dataset": "digits", "rounds": 4, "num_clients": 3}


def pair(
    algorithm: str = "fedavg",
    seed: int = 0,
    final: float = 0.5,
    a_round: int = 1,
    hyperparameters: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    **columns: Any,
) -> Pair:
    """A finished run whose accuracy rises straight to `final`.

    `a_round`: its communications in each round.
    """
    setting = SETTING | (fields or {})
    accuracies = ("best_accuracy", "final_accuracy", "selected_accuracy", "best_val_accuracy")
    defaults = {"partition_hash": None, **dict.fromkeys(accuracies, final)}
    row = make_row(algorithm, hyperparameters, setting, seed, **(defaults | columns))
    points: list[tuple[int, str, float]] = []
    for at in range(1, row["rounds"] + 1):
        points += [
            (at, "accuracy", final * at / row["rounds"]),
            (at, "communications", a_round * at),
        ]
        points += [(at, "train_steps", 10.0 * at * (1 + seed)), (at, "train_loss", 1 / at)]
    return row, points


def of(out: Path, figure: str, *others: Path, **where: list[Any]) -> dict[str, dict[str, Any]]:
    """Name -> specification of a figure's pictures."""
    runs = read([out, *others], where)
    return {name: drawing() for name, drawing in FIGURES[figure].find(runs).items()}


def panels(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [row["hconcat"] for row in spec["vconcat"]]


def rows(panel: dict[str, Any]) -> list[dict[str, Any]]:
    return list(panel["data"]["values"])


def line(panel: dict[str, Any], algorithm: str) -> list[tuple[float, float]]:
    return [(row["x"], row["mean"]) for row in rows(panel) if row["algorithm"] == algorithm]


def headings(spec: dict[str, Any]) -> list[list[str]]:
    """What stands above each panel."""
    marks = [
        [[layer.get("encoding", {}).get("text", {}) for layer in p["layer"]] for p in row]
        for row in panels(spec)
    ]
    return [
        [next((text["value"] for text in own if "value" in text), "") for own in row]
        for row in marks
    ]


def words(spec: dict[str, Any]) -> str:
    return " ".join([*spec["title"]["text"], *spec["title"]["subtitle"]]).replace("\u00a0", " ")


@pytest.fixture(scope="module")
def runs_of_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs with everything tracked: two algorithms, two alphas, two shares of participants."""
    out = tmp_path_factory.mktemp("digits")
    asked = "--algo fedavg,fedgkd --dataset digits --alpha 0.1 1 --participation 0.3 0.5 --rounds 2 --seeds 2"
    asked += " --set local_epochs=1 buffer=1 gamma=0.2 local_test_fraction=0.2 --executor inline -q"
    assert (
        sweep.main([*asked.split(), "--track", "local,classes,features,models", "--out", str(out)])
        == 0
    )
    return out


@pytest.fixture(scope="module")
def runs_of_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs in the plane, with their models; FedBN's, whose clients have their own, among them."""
    out = tmp_path_factory.mktemp("toy")
    asked = (
        "--algo fedavg,fedbn --dataset toy2d --rounds 2 --executor inline -q --track models --out"
    )
    assert sweep.main([*asked.split(), str(out)]) == 0
    return out


# Curves


def test_a_line_is_the_mean_of_its_seeds_and_a_band_goes_to_the_outermost(tmp_path):
    seeds = [pair(seed=seed, final=final) for seed, final in enumerate((0.4, 0.5, 0.9))]
    write(tmp_path, [*seeds, pair("fedgkd")])
    (spec,) = of(tmp_path, "fedgkd-4").values()
    ((panel,),) = panels(spec)
    last = {row["algorithm"]: (row["low"], row["high"], row["n"]) for row in rows(panel)}
    assert np.array(line(panel, "fedavg")) == pytest.approx(
        np.array([(1, 0.15), (2, 0.3), (3, 0.45), (4, 0.6)])
    )
    assert last == {"fedavg": (0.4, 0.9, 3), "fedgkd": (None, None, 1)}
    (steps,) = of(tmp_path, "feddkd-3").values()  # 10, 20 and 30 local steps a round
    assert [x for x, _ in line(panels(steps)[0][0], "fedavg")][:2] == [20, 40]


@pytest.mark.parametrize("count", [8, 9])
def test_bands_are_drawn_of_up_to_eight_algorithms(tmp_path, count):
    """More bands hide the lines."""
    names = list(ALGORITHMS)[:count]
    pairs = [pair(name, seed=0) for name in names]
    write(tmp_path, pairs + [pair(name, seed=1) for name in names])
    (spec,) = of(tmp_path, "fedgkd-4").values()
    marks = [layer["mark"]["type"] for layer in panels(spec)[0][0]["layer"]]
    assert ("area" in marks) == (count == 8)
    assert ("band from the lowest to the highest" in words(spec)) == (count == 8)


def test_axes_do_not_round(tmp_path):
    out = write(tmp_path, [pair(final=0.096, fields={"rounds": 1})])
    assert (
        ">9.6</text>" in drawn(out, tmp_path / "to", "fedgkd-4", "--format", "svg")[0].read_text()
    )


def test_only_rounds_that_all_seeds_have_are_drawn(tmp_path):
    first, second = pair(seed=0, final=0.4), pair(seed=1, final=0.8)
    write(tmp_path, [first, (second[0], [point for point in second[1] if point[0] != 3])])
    ((panel,),) = panels(next(iter(of(tmp_path, "fedgkd-4").values())))
    assert [x for x, _ in line(panel, "fedavg")] == [1, 2, 4]


def test_panels_are_alphas_and_pictures_are_participations(tmp_path):
    cells = [(alpha, share) for alpha in (1.0, 0.1, 0.5) for share in (0.2, 0.5)]
    write(tmp_path, [pair(final=a * c, fields={"alpha": a, "participation": c}) for a, c in cells])
    found = of(tmp_path, "fedgkd-4")
    assert list(found) == ["fedgkd-4-digits-participation0.2", "fedgkd-4-digits-participation0.5"]
    for share, spec in zip((0.2, 0.5), found.values(), strict=True):
        assert headings(spec) == [["α = 0.1", "α = 0.5", "α = 1"]]
        assert [rows(panel)[-1]["mean"] for panel in panels(spec)[0]] == pytest.approx(
            [a * share for a in (0.1, 0.5, 1)]
        )
        assert (
            f"digits · mlp · lda, 3 clients · 4 rounds × 10 local epochs · participation {share}"
            in words(spec)
        )


def test_pictures_of_unlike_settings_have_unlike_names_and_say_what_differs(tmp_path):
    write(
        tmp_path,
        [
            pair(fields={"lr": lr, "local_epochs": epochs})
            for lr in (0.1, 0.01)
            for epochs in (1, 5)
        ],
    )
    found = of(tmp_path, "fedcad-3") | of(tmp_path, "feddkd-7")
    assert sorted(found) == [
        f"feddkd-7-digits-alpha0.5-participation1-local_epochs{epochs}-lr{lr}"
        for epochs in (1, 5)
        for lr in (0.01, 0.1)
    ]
    for name, spec in found.items():
        assert f"lr {name.rpartition('lr')[2]}" in words(spec)


def test_a_later_field_at_its_default_is_told_where_it_matters(tmp_path):
    """Stored settings leave it out; `lda` has no classes of a client, `k_classes` has two."""
    fields = (
        {"partition": "lda"},
        {"partition": "k_classes"},
        {"partition": "k_classes", "classes_per_client": 3},
        {"partition": "lda", "public": "mnist:100", "finetune_steps": 5},
    )
    write(tmp_path, [pair(fields=each) for each in fields])
    pictures = of(tmp_path, "feddkd-7")
    named = [name.partition("-participation1-")[2] for name in sorted(pictures)]
    assert named == [
        "classes_per_client2-finetune_steps0-partitionk_classes",
        "classes_per_client3-finetune_steps0-partitionk_classes",
        "finetune_steps0-partitionlda",
        "finetune_steps5-partitionlda-publicmnist_100",
    ]
    for name, spec in pictures.items():
        assert ("classes_per_client 2" in words(spec)) == ("client2" in name)
        assert not re.search(r"\bno (classes|public|finetune)", words(spec))


def test_equal_communication_ends_where_the_cheapest_does(tmp_path):
    pairs = [pair(), pair("feddkd", a_round=3), pair("local", a_round=0)]
    write(tmp_path, pairs)
    (spec,) = of(tmp_path, "feddkd-2").values()
    ((panel,),) = panels(spec)
    assert [x for x, _ in line(panel, "fedavg")] == [1, 2, 3, 4]
    assert line(panel, "feddkd") == [(3, 0.125)]
    assert line(panel, "local") == []
    assert "Not shown: local " in words(spec)


def test_the_second_half_of_feddkd_is_of_15_local_epochs(tmp_path):
    write(
        tmp_path,
        [pair(fields={"local_epochs": e, "weight_decay": e * 1e-4, "alpha": 0.1}) for e in (5, 15)],
    )
    assert len(of(tmp_path, "feddkd-2")) == 2
    for figure in ("feddkd-4", "feddkd-5"):
        (spec,) = of(tmp_path, figure).values()
        assert "15 local epochs" in words(spec)
    (spec,) = of(tmp_path, "feddkd-6").values()
    assert headings(spec) == [["E = 5, weight_decay = 0.0005", "E = 15, weight_decay = 0.0015"]]
    write(tmp_path / "one", [pair()])
    assert not of(tmp_path / "one", "feddkd-6")


def test_local_accuracy_stands_beside_the_global_one(tmp_path):
    row, points = pair(final=0.8)
    points += [(at, "local_accuracy", 0.1 * at) for at in range(1, 5)]
    write(tmp_path, [(row, points), pair("fedgkd")])
    (spec,) = of(tmp_path, "fedcad-4").values()
    ((left, right),) = panels(spec)
    assert [y for _, y in line(left, "fedavg")] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert [y for _, y in line(right, "fedavg")] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert line(left, "fedgkd")
    assert not line(right, "fedgkd")


def test_a_panel_alone_is_wider(tmp_path):
    row, points = pair()
    points += [(at, "local_accuracy", 0.1 * at) for at in range(1, 5)]
    write(tmp_path, [(row, points)])
    ((alone,),) = panels(*of(tmp_path, "fedgkd-4").values())
    ((left, right),) = panels(*of(tmp_path, "fedcad-4").values())
    assert left["width"] == right["width"] < alone["width"] < 2 * left["width"]


def test_what_must_be_known_of_the_lines_is_said(tmp_path):
    failed = failed_row("moon", {}, SETTING, 0), []
    untold = [pair("fedgkd", hyperparameters={"gamma": g}, selected_on="none") for g in (0.1, 0.2)]
    shown = [pair(shortened=True), pair("fedprox", diverged=True)]
    (spec,) = of(write(tmp_path, [*shown, *untold, failed]), "fedgkd-4").values()
    text = words(spec)
    assert "DIVERGED: fedprox" in text
    assert WHEN_DIVERGED not in text, "the documentation defines it once"
    assert "fedgkd (" in text
    assert "moon (" in text


def test_the_selected_configuration_is_drawn(tmp_path):
    tried = [(0.1, 0.3), (0.2, 0.6), (0.5, 0.4)]
    write(
        tmp_path,
        [pair("fedgkd", final=final, hyperparameters={"gamma": gamma}) for gamma, final in tried],
    )
    ((panel,),) = panels(next(iter(of(tmp_path, "fedgkd-4").values())))
    assert line(panel, "fedgkd")[-1] == (4, 0.6)


def colours_of(spec: dict[str, Any]) -> dict[str, str]:
    """The colour of each algorithm in the legend of a picture's first panel."""
    colour = panels(spec)[0][0]["encoding"]["color"]
    place = {name: at for at, name in enumerate(colour["scale"]["domain"])}
    return {name: LIGHT[place[name] % len(LIGHT)] for name in colour["legend"]["values"]}


def test_colours_are_those_of_the_report_whatever_is_left_out(tmp_path):
    out = write(tmp_path, [pair(name) for name in ("fedavg", "fedprox", "fedgkd", "fedcad")])
    (spec,) = of(out, "fedgkd-4", algorithm=["fedcad", "fedgkd"]).values()
    order = list(labels_of(read([out], {}).results.records))
    expected = {name: LIGHT[order.index(name)] for name in ("fedgkd", "fedcad")}
    assert colours_of(spec) == expected
    svg = drawn(out, tmp_path / "to", "fedgkd-4", "--algo", "fedcad,fedgkd")[0].read_text()
    assert expected["fedcad"] in svg
    assert LIGHT[order.index("fedprox")] not in svg


def test_up_to_eight_algorithms_have_colours_of_their_own(tmp_path):
    """Of twelve algorithms those in places 0 and 8, 1 and 9 and so on share colours of the page."""
    names = ["fedavg", "fedprox", "feddistill", "fedgen", "fedgkd", "fedgkd_vote", "fedmax"]
    names += ["fedntd", "fedlc", "fedrs", "qffl", "feddkd"]
    out = write(tmp_path, [pair(name) for name in names])
    order = list(labels_of(read([out], {}).results.records))
    assert order == names
    shown = ["fedavg", "fedprox", "fedgkd", "fedlc", "fedrs", "qffl", "feddistill", "feddkd"]
    (spec,) = of(out, "fedgkd-4", algorithm=shown).values()
    colours = colours_of(spec)
    assert colours.keys() == set(shown)
    assert len(set(colours.values())) == 8
    assert all(colours[name] == LIGHT[order.index(name)] for name in shown if name in order[:8])
    layers = panels(spec)[0][0]["layer"]
    shapes = next(layer["encoding"]["shape"] for layer in layers if "shape" in layer["encoding"])
    shapes = shapes["scale"]
    kept = dict(zip(shapes["domain"], shapes["range"], strict=True))
    assert all(kept[name] == SHAPES[order.index(name) % len(SHAPES)] for name in shown)
    assert len(set(colours_of(next(iter(of(out, "fedgkd-4").values()))).values())) == 8


# Boards


@pytest.mark.parametrize("validated", [True, False])
def test_differences_are_means_over_the_cells_that_both_have(tmp_path, validated):
    finals = {"fedavg": (0.5, 0.2), "fedprox": (0.6, 0.4), "fedgkd": (0.7, 0.3)}
    pairs = []
    for name, own in finals.items():
        for alpha, final in zip((0.1, 1.0), own, strict=True):
            pairs.append(
                pair(name, final=final, fields={"alpha": alpha}, bytes_up=10, bytes_down=10)
            )
    costly = {"final": 0.9, "fields": {"alpha": 1.0}, "bytes_up": 15, "bytes_down": 25}
    pairs += [pair("fednova", **costly), pair("local", **costly)]
    pairs.append(pair("scaffold", final=0.1, fields={"alpha": 0.1}, diverged=True))
    pairs.append(pair("fedlc", final=0.9, fields={"alpha": 5.0}))  # no run of fedavg there
    if not validated:
        pairs = [(row | {"selected_accuracy": None}, curve) for row, curve in pairs]
    write(tmp_path, pairs)
    ((name, spec),) = of(tmp_path, "board-differences").items()
    assert name == "board-differences-digits-participation1"
    assert words(spec).startswith("digits")
    assert ("round of the best validation accuracy" in words(spec)) == validated
    drawn_rows = rows(panels(spec)[0][0])
    found = {row["algorithm"]: row["difference"] for row in drawn_rows}
    expected = {"fednova": 70, "fedgkd": 15, "fedprox": 15, "scaffold": -40}
    assert found == pytest.approx(expected)
    assert next(iter(found)) == "fednova"
    assert list(found)[-1] == "scaffold"
    told = {row["algorithm"]: (row["traffic"], row["diverged"]) for row in drawn_rows}
    assert told == {
        "fednova": ("2.00x", "0/1"),
        "fedgkd": ("1.00x", "0/2"),
        "fedprox": ("1.00x", "0/2"),
        "scaffold": ("–", "1/1"),
    }
    assert all(row["low"] is None for row in drawn_rows), "two partitions bound nothing"
    assert "no intervals" in words(spec)


def test_intervals_are_those_that_compare_prints(tmp_path):
    pairs = [
        pair(name, seed=seed, final=0.5 + gain + seed * (1 + 5 * gain) / 100)
        for name, gain in (("fedavg", 0.0), ("fedgkd", 0.1))
        for seed in range(8)
    ]
    write(tmp_path, pairs)
    (spec,) = of(tmp_path, "board-differences").values()
    (row,) = rows(panels(spec)[0][0])
    runs = pd.DataFrame(row for row, _ in pairs)
    metric = NUMBERS["selected_accuracy"]
    board = with_seeds(leaderboard(runs), runs, [metric])
    sheet = pooled_against(tables_of(board, [metric]), metric, "fedavg")
    assert sheet is not None
    (record,) = sheet.records
    printed = [100 * record[name] for name in ("difference", "low", "high")]
    assert [row["difference"], row["low"], row["high"]] == pytest.approx(printed)
    assert row["told"] is record["separable"] is True


def test_a_board_of_the_package_is_drawn_with_its_own_options(tmp_path, capsys):
    assert (
        main(
            [
                "board-costs",
                "--board",
                "reference",
                "--alpha",
                "0.1",
                "--participation",
                "0.2",
                "--dry-run",
            ]
        )
        == 0
    )
    assert "board-costs-cifar10-alpha0.1-participation0.2.svg" in capsys.readouterr().out, (
        "whatever lr was chosen"
    )
    assert main(["board-costs", "--board", "refrence"]) == 2
    assert "reference" in capsys.readouterr().err


def test_without_fedavg_differences_are_from_local(tmp_path):
    """Over partitions of two kinds, in one picture."""
    gains = {"local": 0.0, "fd": 0.1, "fml": -0.2}
    kinds = ({"alpha": 0.1, "partition": "lda"}, {"alpha": None, "partition": "k_classes"})
    pairs = []
    for name, gain in gains.items():
        for fields in kinds:
            for seed in range(3):
                sent = 0 if name == "local" else 1_500_000
                costs = {"bytes_up": sent, "bytes_down": 0}
                final = 0.5 + gain + seed / 100
                pairs.append(pair(name, seed=seed, final=final, fields=fields, **costs))
    (spec,) = of(write(tmp_path, pairs), "board-differences").values()
    drawn_rows = rows(panels(spec)[0][0])
    assert [row["algorithm"] for row in drawn_rows] == ["fd", "fml"]
    assert [row["difference"] for row in drawn_rows] == pytest.approx([10, -20])
    assert all(row["low"] is not None for row in drawn_rows), "six partitions"
    assert {row["traffic"] for row in drawn_rows} == {"1.50 MB"}
    assert "Traffic in MB" in words(spec)
    assert "Traffic of a run in multiples" not in words(spec)
    assert "from local over the cells that both have, 2 at most" in words(spec)
    assert "3 clients" in words(spec)


def test_a_baselines_diverged_runs_are_said(tmp_path):
    pairs = []
    for seed in range(3):
        pairs.append(pair("fedavg", seed, final=0.1, diverged=seed == 0))
        pairs.append(pair("ditto", seed, final=0.5, personal=True))
    (spec,) = of(write(tmp_path, pairs), "board-differences").values()
    assert "(of fedavg 1 of 3)" in words(spec)
    assert "count with the accuracy of their last model" in words(spec)
    assert "(ditto: of each client's own) on the test set" in words(spec)


def test_without_a_baseline_there_is_nothing_to_draw(tmp_path):
    assert not of(write(tmp_path, [pair("fedprox"), pair("fedgkd")]), "board-differences")


def test_the_front_goes_through_what_none_surpasses_at_no_more_cost(tmp_path):
    costs = {"fedavg": (10, 0.5), "fedprox": (10, 0.6), "scaffold": (20, 0.55), "fedgkd": (30, 0.7)}
    pairs = [
        pair(
            name,
            seed=seed,
            final=final + seed / 100,
            bytes_down=cost * 10**6,
            bytes_up=0,
            seconds=float(cost + seed),
        )
        for name, (cost, final) in costs.items()
        for seed in (0, 1)
    ]
    (spec,) = of(write(tmp_path, pairs), "board-costs").values()
    for (panel,) in panels(spec):
        assert {row["algorithm"]: row["x"] for row in rows(panel)} == {
            name: cost for name, (cost, _) in costs.items()
        }
        front = [row["algorithm"] for row in panel["layer"][0]["data"]["values"]]
        assert front == ["fedprox", "fedgkd", "fedgkd"]


def replicated(finals: tuple[float, ...]) -> list[Pair]:
    """Replicates of partition 101, which differ in time, and a run of fedprox."""
    pairs = [pair("fedprox", 101, 0.5, seconds=5.0)]
    for number, final in enumerate(finals):
        fields = {"partition_seed": 101} if number else {}
        seed = 101 + 1000 * number
        pairs.append(pair("fedavg", seed, final, fields=fields, seconds=4.0 + 30 * number))
    return pairs


def test_curves_are_means_over_replicates(tmp_path):
    (spec,) = of(write(tmp_path, replicated((0.6, 0.4))), "fedgkd-4").values()
    ((panel,),) = panels(spec)
    rounds = SETTING["rounds"]
    points = dict(line(panel, "fedavg"))
    assert points == pytest.approx({at: 0.5 * at / rounds for at in range(1, rounds + 1)})


def test_times_are_compared_in_one_environment(tmp_path):
    pairs = [pair(name, seconds=float(at)) for at, name in enumerate(("fedavg", "fedgkd"), 4)]
    pairs += [pair("fedprox", seconds=1.0, cpu="a faster one"), pair("moon", seconds=9.0, seed=1)]
    pairs += [pair("moon", seconds=2.0, cpu="a faster one")]
    (spec,) = of(write(tmp_path, pairs), "board-costs").values()
    traffic, time = (panel for (panel,) in panels(spec))
    assert {row["algorithm"] for row in rows(traffic)} == {"fedavg", "fedgkd", "fedprox", "moon"}
    times = {row["algorithm"]: row["x"] for row in rows(time)}
    assert times == {"fedavg": 4.0, "fedgkd": 5.0, "moon": 9.0}
    assert "ran in another environment than most: fedprox" in words(spec)


def test_costs_are_of_the_shortest_replicate(tmp_path):
    (spec,) = of(write(tmp_path, replicated((0.6, 0.4))), "board-costs").values()
    panel = panels(spec)[-1][0]
    assert {row["algorithm"]: row["x"] for row in rows(panel)} == {"fedavg": 4.0, "fedprox": 5.0}


@pytest.mark.parametrize(("values", "low", "high"), [((0.3, 0.5), 0.3, 0.5), ((0.4,), None, None)])
def test_one_seed_has_no_spread(values: tuple[float, ...], low: float | None, high: float | None):
    spread = mean_and_spread(values)
    assert spread == {"mean": pytest.approx(0.4), "low": low, "high": high, "n": len(values)}


# Partitions, and accuracy over them


def test_accuracy_over_participation_stands_below_the_partition_of_each_alpha(tmp_path):
    cells = [(alpha, share) for alpha in (0.1, 0.5) for share in (0.5, 0.75, 1.0)]
    pairs = [pair(final=a * c, fields={"alpha": a, "participation": c}) for a, c in cells]
    write(tmp_path, pairs)
    keep_counts(tmp_path, pairs[0][0], [[1, 0], [0, 2], [3, 0]])
    keep_counts(tmp_path, pairs[4][0], [[0, 4], [5, 0], [0, 6]])
    ((name, spec),) = of(tmp_path, "fedgkd-3").items()
    assert name == "fedgkd-3-digits"
    above, below = panels(spec)
    assert headings(spec) == [["α = 0.1", "α = 0.5"]] * 2
    assert [[row["samples"] for row in rows(panel)] for panel in above] == [[1, 2, 3], [4, 5, 6]]
    assert line(below[1], "fedavg") == [(0.5, 0.25), (0.75, 0.375), (1.0, 0.5)]
    svg = drawn(tmp_path, tmp_path / "to", "fedgkd-3")[0].read_text()
    assert ">0.75</text>" in svg  # not rounded


def test_accuracy_over_alpha_where_there_is_one_participation(tmp_path):
    write(tmp_path, [pair(final=a, fields={"alpha": a}) for a in (0.1, 0.5)])
    (spec,) = of(tmp_path, "fedgkd-3").values()
    ((panel,),) = panels(spec)
    assert line(panel, "fedavg") == [(0.1, 0.1), (0.5, 0.5)]
    assert panel["encoding"]["x"]["scale"]["type"] == "log"
    assert not of(write(tmp_path / "one", [pair()]), "fedgkd-3")


def keep_counts(out: Path, row: dict[str, Any], counts: list[list[int]]) -> None:
    artifacts.write_arrays(out, row["run_key"], {"classes/counts": np.array(counts)})


@pytest.mark.parametrize(("figure", "mark"), [("fedkf-2", "circle"), ("fedcad-3", "rect")])
def test_a_partition_is_that_of_the_lowest_seed(tmp_path, figure, mark):
    pairs = [pair(seed=1), pair(seed=0), pair(seed=0, fields={"participation": 0.5, "lr": 0.5})]
    write(tmp_path, pairs)
    for (row, _), samples in zip(pairs, (5, 7, 7), strict=True):
        keep_counts(tmp_path, row, [[samples, 0], [0, 2], [0, 0]])
    ((name, spec),) = of(tmp_path, figure).items()  # one: neither participation nor lr move samples
    assert name == f"{figure}-digits-alpha0.5"
    ((panel,),) = panels(spec)
    assert rows(panel) == [
        {"client": 0, "class": 0, "samples": 7},
        {"client": 1, "class": 1, "samples": 2},
    ]
    kind = panel["layer"][0]["mark"]
    assert (kind if isinstance(kind, str) else kind["type"]) == mark
    assert panel["encoding"]["x"]["scale"]["domain"] == [0, 1, 2]
    assert panel["encoding"]["y"]["scale"]["domain"] == [1, 0]
    if figure == "fedkf-2":  # the largest bubble fills its field
        field = min(panel["width"] // 3, panel["height"] // 2)
        size = panel["layer"][0]["encoding"]["size"]["scale"]
        assert size == {"domain": [0, 7], "range": [0, pytest.approx(0.95 * field**2)]}


def test_a_partition_that_was_not_tracked_is_counted_if_it_is_the_runs(tmp_path):
    setting = Setting(**(SETTING | {"validation_fraction": 0.1}))
    labels = data.load("digits").train_y
    shares = split(setting, labels, 0)
    ((panel,),) = panels(
        next(iter(of(write(tmp_path, [pair(partition_hash=shares.hash)]), "fedkf-2").values()))
    )
    found = np.zeros((3, 10), int)
    for row in rows(panel):
        found[row["client"], row["class"]] = row["samples"]
    np.testing.assert_array_equal(
        found, [np.bincount(labels[index], minlength=10) for index in shares.clients]
    )
    write(tmp_path / "other", [pair(partition_hash="another")])
    assert not of(tmp_path / "other", "fedkf-2")


# What is tracked


def keep_classes(out: Path, row: dict[str, Any], **changed: Any) -> None:
    arrays = {
        "rounds": [2, 3, 4],
        "global": [[0.1, 0.2], [0.3, np.nan], [0.5, 0.6]],
        "counts": [[4, 0], [0, 1200], [1, 1]],
        "clients": [1, 2],
        "local": [[0.0, 0.876], [0.4, 0.4]],
    }
    named = {f"classes/{name}": np.array(value) for name, value in (arrays | changed).items()}
    artifacts.write_arrays(out, row["run_key"], named)


def test_classes_are_of_the_models_before_and_after_local_training(tmp_path):
    pairs = [pair(), pair("fedbn")]
    write(tmp_path, pairs)
    keep_classes(tmp_path, pairs[0][0])
    # The round before the last was not evaluated.
    keep_classes(tmp_path, pairs[1][0], rounds=[1, 2, 4], personal=True)
    (spec,) = of(tmp_path, "fedcad-1").values()
    ((held,), (accuracies,)) = panels(spec)
    assert [(row["name"], row["value"], row["print"]) for row in rows(held)] == [
        ("samples of client 1", 0, "0"),
        ("samples of client 1", 1200, "1,200"),
    ]
    found = [(row["name"], row["class"], row["print"]) for row in rows(accuracies)]
    assert found == [
        ("fedavg, global, round 3", 0, "30"),
        ("fedavg, global, round 3", 1, ""),
        ("fedavg, local, round 4", 0, "0"),
        ("fedavg, local, round 4", 1, "88"),
        ("fedbn, mean of clients, round 4", 0, "50"),
        ("fedbn, mean of clients, round 4", 1, "60"),
        ("fedbn, local, round 4", 0, "0"),
        ("fedbn, local, round 4", 1, "88"),
    ]
    shade = accuracies["layer"][0]["encoding"]["color"]["scale"]
    assert shade["domain"] == [0, 100]


def test_features_are_embedded_alike_each_time_and_by_their_distances():
    features = np.random.default_rng(0).normal(size=(60, 8)) + 20 * (np.arange(60) % 2)[:, None]
    places = embedded(features)
    np.testing.assert_array_equal(places, embedded(features))
    groups = [places[np.arange(60) % 2 == kind] for kind in (0, 1)]
    apart = np.linalg.norm(groups[0].mean(0) - groups[1].mean(0))
    assert apart > max(np.linalg.norm(group - group.mean(0), axis=1).max() for group in groups)


@pytest.mark.slow
def test_features_say_the_accuracy_of_the_models_that_they_are_of(runs_of_digits):
    where = {"alpha": [0.1], "participation": [0.5]}
    (spec,) = of(runs_of_digits, "fedgkd-2", **where).values()
    runs = read([runs_of_digits], where)
    expected: list[list[str]] = [[], []]
    for record in sorted(runs.records, key=lambda record: record["algorithm"]):
        run = record["run_of_seed"][0]
        found = artifacts.arrays(runs_of_digits, run["run_key"])
        assert found["local/clients"][-1][0] == found["features/client"]
        for row, which, value in zip(
            expected,
            ("global", "local"),
            (run["final_accuracy"], found["local/accuracy"][-1][0]),
            strict=True,
        ):
            row.append(f"{run['algorithm']}, {which}: {100 * value:.2f} %")
    assert headings(spec) == expected
    labels = [row["class"] for row in rows(panels(spec)[1][1])]
    assert labels == artifacts.arrays(runs_of_digits, run["run_key"])["features/labels"].tolist()


def test_rectangles_are_the_grid():
    grid = np.random.default_rng(0).integers(0, 3, (7, 9))
    xs, ys = np.linspace(-4, 4, 10), np.linspace(0, 1, 8)
    made = list(rectangles(grid, xs, ys))
    again = np.full_like(grid, -1)
    for one in made:
        columns = (xs[:-1] >= one["x"] - 1e-3) & (xs[1:] <= one["x2"] + 1e-3)
        lines_ = (ys[:-1] >= one["y"] - 1e-3) & (ys[1:] <= one["y2"] + 1e-3)
        again[np.ix_(lines_, columns)] = one["class"]
    np.testing.assert_array_equal(again, grid)
    assert len(made) == grid.shape[0] + int((np.diff(grid) != 0).sum())


def test_regions_are_what_the_kept_model_answers(runs_of_toy):
    runs = read([runs_of_toy], {"algorithm": ["fedavg"]})
    run = runs.records[0]["run_of_seed"][0]
    module = models.make("mlp_vectors", (2,), 4)
    module.load_state_dict(load_model(runs_of_toy, run["run_key"]))
    xs, ys = np.array([-3.0, -1.0, 2.0]), np.array([-4.0, 0.0, 1.0, 3.0])
    grid = classified(runs, run, xs, ys)
    for row, y in enumerate((-2.0, 0.5, 2.0)):
        for column, x in enumerate((-2.0, 0.5)):
            with torch.no_grad():
                assert grid[row, column] == int(
                    module.eval()(torch.tensor([[x, y]])).logits.argmax()
                )
    (spec,) = of(runs_of_toy, "fedgkd-5").values()
    assert headings(spec) == [[f"fedavg: {100 * run['final_accuracy']:.2f} %"]]
    assert "Not shown: fedbn (+bn)" in words(spec)


# Files


def drawn(out: Path, to: Path, *arguments: str) -> list[Path]:
    """The pictures of a command, in the order of their names."""
    assert main([*arguments, "--out", str(out), "--to", str(to)]) == 0
    return sorted(to.glob("*.svg"))


def shapes(svg: Path, kind: str) -> int:
    """How many marks of a kind a picture has, such as `mark-line`."""
    groups = ElementTree.parse(svg).getroot().iter(f"{SVG}g")
    return sum(len(list(group)) for group in groups if kind in group.get("class", "").split())


@pytest.fixture(scope="module")
def drawn_of_digits(runs_of_digits: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = ("--alpha", "0.1", "--participation", "0.3", "0.5")
    return drawn(runs_of_digits, tmp_path_factory.mktemp("drawn"), "--all", *where)


@pytest.mark.slow
def test_all_is_drawn_whole_in_both_forms(drawn_of_digits):
    names = [path.stem for path in drawn_of_digits]
    cell = [f"digits-alpha0.1-participation{share}" for share in (0.3, 0.5)]
    both = ("board-costs", "fedcad-1", "fedcad-4", "feddkd-7", "fedgkd-2", "fedgkd-4", "fedkf-3")
    expected = [f"{figure}-{own}" for figure in both for own in cell]
    by_share = ("board-differences", "fedcad-3", "feddkd-2", "feddkd-3", "fedgkd-3", "fedkf-2")
    expected += [f"{figure}-digits-alpha0.1" for figure in by_share]
    assert names == sorted(expected)
    for svg in drawn_of_digits:
        root = ElementTree.parse(svg).getroot()
        assert "digits" in "".join(
            piece for element in root.iter(f"{SVG}text") for piece in element.itertext()
        )
        assert root.find(f"{SVG}title").text.startswith("digits · ")
        assert (
            next(root.iter(f"{SVG}rect")).get("fill") == print_config()["background"] == "#FFFFFF"
        )
        with Image.open(svg.with_suffix(".png")) as image:
            assert image.size == tuple(
                2 * round(float(root.get(side))) for side in ("width", "height")
            )
            assert image.convert("RGB").getpixel((2, 2)) == (255, 255, 255)
            assert len(image.convert("RGB").getcolors(1 << 20)) > 10


@pytest.mark.slow
def test_pictures_have_as_many_marks_as_there_are_numbers(drawn_of_digits):
    counts = {
        "fedgkd-4": ("mark-line", 2),  # two algorithms
        "fedcad-4": ("mark-line", 4),  # global and local
        "fedkf-3": ("mark-line", 6),  # three measures
        "fedgkd-2": (
            "mark-symbol",
            4 * 359 + 10,
        ),  # two algorithms, global and local, all test samples; the legend
        "fedcad-1": (
            "mark-rect",
            10 + 4 * 10,
        ),  # the client's data, and two models of two algorithms
    }
    found = {
        svg.stem.partition("-digits")[0]: svg
        for svg in drawn_of_digits
        if svg.stem.endswith("participation0.5")
    }
    assert {name: (kind, shapes(found[name], kind)) for name, (kind, _) in counts.items()} == counts


def test_the_toy_example_is_drawn(runs_of_toy, tmp_path):
    (svg,) = drawn(runs_of_toy, tmp_path, "fedgkd-5")
    assert svg.stem == "fedgkd-5-toy2d-alpha0.1-participation1"
    assert shapes(svg, "mark-symbol") == 400
    assert shapes(svg, "mark-rect") > 160


def test_wicked_names_and_values_do_no_harm(tmp_path):
    name = "mine:'\"<script>&\\\n"
    pairs = [pair(name, fields={"dataset": "../a b:<c>"}), pair(final=float("1e-9"))]
    write(tmp_path / "out", pairs)
    found = drawn(tmp_path / "out", tmp_path / "to", "fedgkd-4", "feddkd-7")
    assert {path.parent for path in found} == {tmp_path / "to"}
    assert "fedgkd-4-.._a_b__c_-alpha0.5-participation1" in [path.stem for path in found]
    for path in found:
        assert ElementTree.parse(path).getroot().tag == f"{SVG}svg"
        assert "<script>" not in path.read_text()


# The command


def test_the_list_says_what_can_be_drawn_and_what_makes_the_others(tmp_path, capsys):
    out = write(tmp_path, [pair()])
    assert main(["--out", str(out)]) == 0
    said = capsys.readouterr().out
    able, _, lacking = said.partition("the other figures lack runs")
    assert able.startswith(f"4 of 17 figures can be drawn from {out}\n")
    assert "fedgkd-4-digits-alpha0.5-participation1" in able
    assert (
        f"python -m bench.sweep --paper fedgkd --table fig2 --track local,features --out {out}"
        in lacking
    )
    assert "--track classes" in lacking
    assert "local_test_fraction is 0 in all" in lacking


@pytest.mark.parametrize("arguments", sorted({figure.arguments for figure in FIGURES.values()}))
def test_the_commands_that_are_named_can_be_given(arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKD_DATA", str(tmp_path))
    assert sweep.main([*shlex.split(arguments), "--dry-run", "--out", str(tmp_path)]) == 0


def test_the_page_has_every_figure_with_its_command():
    page = (ROOT / "docs" / "figures.md").read_text()
    for figure in FIGURES.values():
        assert f"`{figure.name}`" in page
        assert f"`{figure.arguments}`" in page


def test_paths_are_printed_and_a_dry_run_writes_nothing(tmp_path, capsys):
    out, to = write(tmp_path / "out", [pair()]), tmp_path / "to"
    asked = ["fedgkd-4,feddkd-7", "--out", str(out), "--to", str(to), "--format", "svg"]
    assert main([*asked, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert not to.exists()
    assert main(asked) == 0
    assert capsys.readouterr().out == said
    assert [Path(line) for line in said.splitlines()] == sorted(to.iterdir(), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fedcat-1"], "known: board-costs"),
        (["fedgkd-4", "--all"], "--all"),
        (["fedgkd-4", "--where", "lrr=1"], "--where"),
        (["fedgkd-4", "--alpha", "0.7"], "0.7 in {out}"),
        (["fedgkd-4", "--algo", "fedgdk"], "fedgdk in {out}"),
    ],
)
def test_requests_that_cannot_be_met(tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.setenv("FEDKD_OUT", str(write(tmp_path, [pair()])))
    assert main(arguments) == 2
    assert said.format(out=tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ("fedgkd-2", "--track local,features"),
        ("fedcad-3", "--track classes"),
        ("fedkf-3", "local_test_fraction is 0 in all"),
        ("feddkd-4", "15 local epochs"),
    ],
)
def test_what_runs_lack_is_said_with_the_command_that_makes_it(tmp_path, capsys, figure, said):
    out, to = write(tmp_path / "out", [pair()]), tmp_path / "to"
    assert main([figure, "feddkd-7", "--out", str(out), "--to", str(to)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert FIGURES[figure].command(out) in error
    assert "feddkd-7" not in error
    assert not to.exists()  # nothing of a request that cannot be met


def test_folders_without_runs(tmp_path, capsys):
    assert main(["--out", str(tmp_path)]) == 2
    assert f"no results in {tmp_path}" in capsys.readouterr().err
    failed = failed_row("fedavg", {}, SETTING, 0), []
    assert main(["--all", "--out", str(write(tmp_path / "failed", [failed]))]) == 2


def test_places_that_cannot_be_written(tmp_path, capsys):
    out, file = write(tmp_path / "out", [pair()]), tmp_path / "file"
    file.write_text("mine")
    assert main(["fedgkd-4", "--out", str(out), "--to", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert main(["fedgkd-4", "--out", str(out), "--to", str(file / "below")]) == 3
    assert file.read_text() == "mine"


def test_a_missing_renderer_is_said_before_anything_is_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["fedgkd-4", "--out", str(tmp_path)]) == 3
    assert 'pip install "fedkd-bench[report]"' in capsys.readouterr().err
    assert main(["--out", str(write(tmp_path, [pair()]))]) == 0  # the list needs none
