"""What `bench.compare` does beyond its plain tables: several folders, layouts, metrics off curves, statistics, diff."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from rows import CURVE, failed_row, make_row

from bench.compare import choice
from bench.compare.command import main
from bench.stored.results import read
from bench.sweep.reproduce import main as reproduce
from leaderboards import Store
from leaderboards.rows.store import Folders
from leaderboards.selection import Selection

# Test accuracy in percent by seed 0, 1, 2 (best round; final is one less):
#
#   algorithm    alpha 0.1      alpha 0.5      alpha 1
#   fedavg       50 52 54       60 62 64       70 72 74
#   fedprox      51 53 55       61 63 66       70 72 74
#   fedgkd       60 61 65       59 62 62       80 82 85
#
# Differences from fedavg at alpha 0.1: fedprox 1 1 1 (constant), fedgkd 10 9 11; at alpha 1: fedgkd
# 10 10 11.
VALUES = {
    ("fedavg", 0.1): (50, 52, 54),
    ("fedavg", 0.5): (60, 62, 64),
    ("fedavg", 1.0): (70, 72, 74),
    ("fedprox", 0.1): (51, 53, 55),
    ("fedprox", 0.5): (61, 63, 66),
    ("fedprox", 1.0): (70, 72, 74),
    ("fedgkd", 0.1): (60, 61, 65),
    ("fedgkd", 0.5): (59, 62, 62),
    ("fedgkd", 1.0): (80, 82, 85),
}


def curve_to(percent: float) -> list[tuple[int, str, float]]:
    """Ten rounds that end at `percent`, one more each; an exchange and 1 MB a round."""
    points = []
    for at in range(1, 11):
        points += [(at, "accuracy", (percent - 10 + at) / 100), (at, "communications", float(at))]
        points += [(at, "bytes_up", 1e6 * at), (at, "train_steps", 50.0 * at)]
    return points


def fill(folder: Path, names: tuple[str, ...] = ("fedavg", "fedprox", "fedgkd")) -> Path:
    store = Store(folder)
    for (algorithm, alpha), values in VALUES.items():
        if algorithm in names:
            for seed, value in enumerate(values):
                setting = {"dataset": "cifar10", "model": "cnn_cifar", "alpha": alpha, "rounds": 10}
                results = {"best_accuracy": value / 100, "final_accuracy": value / 100 - 0.01}
                store.write(make_row(algorithm, {}, setting, seed, **results), curve_to(value))
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("results"))


def csv_of(out: Path | list[Path], capsys, *arguments: str) -> list[dict[str, str]]:
    folders = [str(folder) for folder in (out if isinstance(out, list) else [out])]
    assert main(["--out", *folders, "--format", "csv", *arguments]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def refused(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


# --- several folders


@pytest.mark.slow
def test_two_folders_are_one_leaderboard(out, tmp_path, capsys):
    here, there = (
        fill(tmp_path / "here", ("fedavg", "fedprox")),
        fill(tmp_path / "there", ("fedgkd", "fedavg")),
    )
    assert csv_of([here, there], capsys) == csv_of(out, capsys)
    both = csv_of([there, here], capsys, "--metric", "rounds@50")
    assert both == csv_of(out, capsys, "--metric", "rounds@50")
    assert {row["n"] for row in both} == {"3"}


def test_across_folders_a_finished_row_counts(tmp_path):
    setting = {"dataset": "cifar10", "alpha": 0.1}
    Store(tmp_path / "a").write(failed_row("fedavg", {}, setting), [])
    Store(tmp_path / "b").write(make_row("fedavg", {}, setting), curve_to(50))
    for order in ("ab", "ba"):
        found = Folders([tmp_path / name for name in order])
        assert found.runs()["status"].tolist() == ["finished"]
        assert found.curves().index.tolist() == list(range(len(curve_to(50))))
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert len(list((folder / "runs").glob("*.parquet"))) == 1, "reading changes nothing"
    Store(tmp_path / "c").write(
        make_row("fedavg", {}, setting, best_accuracy=0.75), curve_to(50), replace=True
    )
    for order in ("bc", "cb"):
        runs = Folders([tmp_path / name for name in order]).runs()
        assert runs["best_accuracy"].tolist() == [0.75], (
            "as --force asks, although it did not finish first"
        )


# --- metrics


@pytest.mark.parametrize("names", ["new_client_std", "new_client_std,new_client_mean"])
def test_numbers_that_no_run_has_are_refused(out, capsys, names):
    error = refused(capsys, "--out", str(out), "--metric", names)
    wanted = names.replace(",", " or ")
    assert f"no run here has {wanted}; they have: best, " in " ".join(error.split())


@pytest.mark.parametrize("names", ["new_client_std,best", "new_client_std,rounds@99"])
def test_lacking_numbers_stand_beside_others(out, capsys, names):
    assert main(["--out", str(out), "--metric", *names.split(",")]) == 0
    assert "new_client_std" in capsys.readouterr().out


@pytest.mark.parametrize(("metric", "tested"), [("best", True), ("up", False)])
def test_costs_are_compared_without_tests(out, capsys, metric, tested):
    request = ("--metric", metric, "--reference", "fedavg")
    rows = csv_of(out, capsys, *request)
    assert rows
    assert any(row["p"] for row in rows) is tested
    assert main(["--out", str(out), *request]) == 0
    ranked, _, differences = " ".join(capsys.readouterr().out.split()).partition("difference from")
    assert ("paired t test" in ranked) is tested
    assert ("paired t test" in differences) is tested


def test_client_variance_is_ranked_over_seeds(tmp_path, capsys):
    store = Store(tmp_path)
    for algorithm, seeds in (("fedavg", 1), ("fedprox", 3), ("fedgkd", 3)):
        for seed in range(seeds):
            store.write(
                make_row(algorithm, {}, {"dataset": "cifar10"}, seed, fm=0.008 + 0.001 * seed),
                curve_to(50),
            )
    ranks = {row["algorithm"]: row["rank"] for row in csv_of(tmp_path, capsys, "--metric", "fm")}
    assert ranks["fedavg"] == "", "one seed stands beside three"
    assert set(ranks.values()) == {"", "1"}


# --- layouts and filters


def test_other_fields_stand_side_by_side(tmp_path, capsys):
    store = Store(tmp_path)
    for epochs in (1, 5):
        for seed in (0, 1):
            setting = {"dataset": "cifar10", "local_epochs": epochs, "alpha": 0.1}
            store.write(
                make_row("fedavg", {}, setting, seed, best_accuracy=epochs / 10), curve_to(50)
            )
    assert main(["--out", str(tmp_path), "--by", "local_epochs", "--metric", "best"]) == 0
    shown = capsys.readouterr().out
    assert "E = 1" in shown
    assert "E = 5" in shown
    assert shown.count("Configurations tried") == 1, "one table"
    assert "10.00 ± 0.00 (2)" in shown
    assert "α = 0.1" in shown.splitlines()[0]


def test_a_field_at_its_default_heads_its_column(tmp_path, capsys):
    """Stored settings leave it out; so does a partition that does not use it."""
    for partition, classes in (("k_classes", {}), ("k_classes", {"classes_per_client": 1})):
        setting = {"partition": partition, "alpha": None, **classes}
        Store(tmp_path).write(make_row("fedavg", {}, setting), curve_to(50))
    assert main(["--out", str(tmp_path), "--by", "classes_per_client"]) == 0
    heads = re.findall(r"\S* classes_per_client(?: = \d)?", f" {capsys.readouterr().out}")
    assert [head.strip() for head in heads] == ["classes_per_client = 1", "classes_per_client = 2"]
    Store(tmp_path).write(make_row("fedavg", {}, {"partition": "lda"}), curve_to(50))
    arguments = ("--by", "partition", "classes_per_client", "--metric", "best")
    rows = csv_of(tmp_path, capsys, *arguments)
    places = {(row["partition"], row["classes_per_client"]) for row in rows}
    assert places == {("k_classes", "1"), ("k_classes", "2"), ("lda", "")}
    Store(tmp_path).write(make_row("fedavg", {}, {"finetune_steps": 5}), curve_to(50))
    rows = csv_of(tmp_path, capsys, "--by", "finetune_steps", "--metric", "best")
    assert {row["finetune_steps"] for row in rows} == {"0", "5"}


def test_models_side_by_side_share_rows(tmp_path, capsys):
    models = {"cnn": 0.5, "cnn+head": 0.6, "mlp": 0.7, "mlp+head": 0.8}
    for model, value in models.items():
        Store(tmp_path).write(
            make_row("fedavg", {}, {"model": model}, best_accuracy=value), curve_to(50)
        )
    rows = csv_of(tmp_path, capsys, "--by", "model", "--metric", "best")
    assert {row["variant"]: float(row["mean"]) for row in rows} == models
    assert len(rows) == len(models), "none is missing"
    Store(tmp_path).write(make_row("fedprox", {}, {"model": "cnn"}), curve_to(50))
    rows = csv_of(
        tmp_path, capsys, "--by", "model", "--metric", "best", "--algo", "fedprox", "fedavg"
    )
    (missing,) = [row for row in rows if row["state"] == "missing"]
    assert (missing["algorithm"], missing["variant"]) == ("fedprox", "mlp")
    rows = csv_of(tmp_path, capsys, "--where", "model=cnn", "--metric", "best")
    assert {row["variant"] for row in rows} == {"cnn", "cnn+head"}
    (row,) = csv_of(tmp_path, capsys, "--where", "model=cnn+head", "--metric", "best")
    assert row["variant"] == "cnn+head"


def test_stopped_runs_have_a_table(tmp_path, capsys):
    for mu in (0.1, 1.0):
        Store(tmp_path).write(failed_row("fedprox", {"mu": mu}, status="stopped", error=None), [])
    assert main(["--out", str(tmp_path)]) == 0
    assert "stopped" in capsys.readouterr().out


def test_where_filters_by_any_field(out, capsys):
    rows = csv_of(out, capsys, "--where", "alpha=0.1,1", "rounds=10", "--metric", "best")
    assert {row["alpha"] for row in rows} == {"0.1", "1.0"}
    assert "no rounds 7 in" in refused(capsys, "--out", str(out), "--where", "rounds=7")
    assert "alpha?" in refused(capsys, "--out", str(out), "--by", "alhpa")


# --- metrics off curves


def test_accuracies_at_rounds_costs_until_targets(out, capsys):
    # Seeds end at 50, 52 and 54 %, one more a round: at round 4 they are at 44, 46 and 48, at 50 %
    # in rounds 10, 8, 6.
    expected = {"accuracy@4": 0.46, "rounds@50": 8, "comms@50": 8, "up@50": 8e6, "steps@50": 400}
    rows = csv_of(out, capsys, "--alpha", "0.1", "--metric", *expected, "--algo", "fedavg")
    assert {row["metric"]: float(row["mean"]) for row in rows} == pytest.approx(expected)


def test_a_missed_target_has_no_mean(out, capsys):
    (row,) = csv_of(out, capsys, "--alpha", "0.1", "--algo", "fedavg", "--metric", "rounds@52")
    assert (row["state"], row["mean"], row["n"]) == ("unreached", "", "3")
    assert (
        main(["--out", str(out), "--alpha", "0.1", "--algo", "fedavg", "--metric", "rounds@52"])
        == 0
    )
    shown = capsys.readouterr().out
    assert "2 of 3" in shown


# --- statistics


def test_a_large_spread_raises_no_rank(tmp_path, capsys):
    """Rows stand by their means, although no test tells the one whose seeds differ most from the best."""
    store = Store(tmp_path)
    values = {
        "fedgkd": (0.60, 0.61, 0.62),
        "fedprox": (0.50, 0.505, 0.51),
        "fedavg": (0.20, 0.65, 0.40),
    }
    for alpha in (0.1, 0.5):
        for algorithm, bests in values.items():
            for seed, best in enumerate(bests):
                store.write(
                    make_row(algorithm, {}, {"alpha": alpha}, seed, best_accuracy=best),
                    curve_to(10),
                )
    rows = csv_of(tmp_path, capsys, "--metric", "best")
    assert {row["algorithm"]: row["rank"] for row in rows} == {
        "fedgkd": "1",
        "fedprox": "2",
        "fedavg": "3",
    }
    assert {row["algorithm"]: row["excluded"] for row in rows} == {
        "fedgkd": "False",
        "fedprox": "True",
        "fedavg": "False",
    }
    assert list(dict.fromkeys(row["algorithm"] for row in rows)) == ["fedgkd", "fedprox", "fedavg"]


def test_means_over_unlike_seeds_are_pointed_at(tmp_path, capsys):
    fill(tmp_path, ("fedavg", "fedprox"))
    assert main(["--out", str(tmp_path)]) == 0
    assert "different seeds" not in capsys.readouterr().out
    Store(tmp_path).write(
        make_row("fedgkd", {}, json.loads(Store(tmp_path).runs().setting_json[0])), curve_to(50)
    )
    assert main(["--out", str(tmp_path)]) == 0
    assert "different seeds" in capsys.readouterr().out


def test_differences_from_a_reference_by_hand(out, capsys):
    rows = csv_of(out, capsys, "--metric", "best", "--reference", "fedavg")
    found = {(row["algorithm"], row["alpha"]): row for row in rows}
    assert len(found) == 6
    gkd = found["fedgkd", "0.1"]
    # Mean 10, standard deviation 1: t = 10 sqrt(3) = 17.32, 2 degrees of freedom; the interval is
    # 10 -+ 4.303 / sqrt 3.
    limits = (float(gkd["difference"]), float(gkd["low"]), float(gkd["high"]))
    assert limits == pytest.approx((0.10, 0.10 - 0.024841, 0.10 + 0.024841), abs=1e-6)
    # Six comparisons; the smallest p (alpha 1: mean 31/3, t = 31) is multiplied by 6, the next by
    # 5.
    assert float(found["fedgkd", "1.0"]["p_holm"]) == pytest.approx(6 * 0.00103896, abs=1e-6)
    assert (float(gkd["p"]), float(gkd["p_holm"])) == pytest.approx(
        (0.003316, 5 * 0.003316), abs=1e-5
    )
    assert (gkd["separable"], found["fedgkd", "0.5"]["separable"]) == ("True", "False")


def test_pooled_over_cells_by_hand(out, capsys):
    rows = csv_of(out, capsys, "--metric", "best", "--over-cells", "--reference", "fedavg")
    found = {row["algorithm"]: row for row in rows}
    # Means 52 62 72, 53 63.33 72, 62 61 82.33: ranks fedavg 3 2 2.5, fedprox 2 1 2.5, fedgkd 1 3 1.
    ranks = {name: float(row["average_rank"]) for name, row in found.items()}
    assert ranks == pytest.approx({"fedgkd": 5 / 3, "fedprox": 5.5 / 3, "fedavg": 2.5})
    assert [float(row["win_rate"]) for row in rows] == pytest.approx([2 / 3, 1 / 3, 0])
    assert found["fedavg"]["score"] == "", "without local and centralized nothing is normalised"
    # fedgkd beats fedavg in 9 of 9 pairs at 0.1 and at 1; at 0.5, of 59 62 62 against 60 62 64: 2
    # wins, 2 ties of 9.
    assert float(found["fedgkd"]["probability_of_improvement"]) == pytest.approx(
        (1 + 3 / 9 + 1) / 3
    )
    assert found["fedavg"]["probability_of_improvement"] == ""


def test_references_normalise_scores_over_cells(tmp_path, capsys):
    """In each cell local is 0 and centralized 1, however hard the cell is."""
    ends = {0.1: (0.10, 0.50), 1.0: (0.60, 0.80)}  # of local and centralized, by alpha
    for alpha, (low, high) in ends.items():
        shares = {"local": 0.0, "centralized": 1.0, "fedavg": 0.5, "fedgkd": 0.75}
        for name, share in shares.items():
            for seed in range(3):
                value = low + share * (high - low) + (seed - 1) / 1000
                row = make_row(name, {}, {"alpha": alpha}, seed, best_accuracy=value)
                Store(tmp_path).write(row, curve_to(50))
    rows = csv_of(tmp_path, capsys, "--metric", "best", "--over-cells")
    scores = {row["algorithm"]: float(row["score"]) for row in rows}
    assert scores == pytest.approx({"fedavg": 0.5, "fedgkd": 0.75})
    arguments = ["--metric", "best", "--over-cells", "--reference", "fedavg"]
    assert main(["--out", str(tmp_path), *arguments]) == 0
    shown = capsys.readouterr().out
    assert "simultaneous" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("fedgkd") and "0/6" in line]
    assert line.split()[-3:] == ["1.00x", "1.00x", "0/6"], "traffic, time, diverged"


def test_a_row_of_csv_has_ranks_and_pooled_differences(out, capsys):
    """A file of CSV has one kind of rows."""
    words = ("--metric", "best", "final", "--over-cells", "--reference", "fedavg")
    rows = csv_of(out, capsys, *words)
    best = {row["algorithm"]: row for row in rows if row["metric"] == "best_accuracy"}
    assert len(rows) == 2 * len(best) == 6
    assert set(best) == {"fedgkd", "fedprox", "fedavg"}
    # Means 52 62 72, 53 63.33 72, 62 61 82.33 of fedavg, fedprox, fedgkd.
    assert float(best["fedgkd"]["difference"]) == pytest.approx((10 - 1 + 31 / 3) / 300)
    assert float(best["fedgkd"]["average_rank"]) == pytest.approx(5 / 3)
    assert (best["fedavg"]["difference"], best["fedavg"]["reference"]) == ("", "")
    assert main(["--out", str(out), *words, "--format", "json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    kinds: set[str] = set()
    for table in tables:
        kinds |= table["cells"][0].keys()
    assert {"partitions", "average_rank", "p_holm"} <= kinds


def test_a_difference_keeps_a_reference_that_is_not_ranked(tmp_path, capsys):
    """It lacks a cell, so it has no rank."""
    for alpha in (0.1, 0.5, 1.0):
        for name in ("fedavg", "fedprox", "fedgkd"):
            for seed in range(3):
                if (name, alpha) != ("fedgkd", 1.0):
                    row = make_row(name, {}, {"alpha": alpha}, seed, best_accuracy=0.5 + seed / 100)
                    Store(tmp_path).write(row, curve_to(50))
    rows = csv_of(tmp_path, capsys, "--metric", "best", "--over-cells", "--reference", "fedgkd")
    assert {row["algorithm"]: row["reference"] for row in rows} == {
        "fedavg": "fedgkd",
        "fedprox": "fedgkd",
    }


def test_untitled_differences_make_several_cells(tmp_path, capsys):
    for lr in (0.01, 0.1):
        for name in ("fedavg", "fedprox"):
            for seed in range(3):
                row = make_row(name, {}, {"lr": lr}, seed, best_accuracy=0.5 + seed / 100 + lr)
                Store(tmp_path).write(row, curve_to(50))
    rows = csv_of(tmp_path, capsys, "--metric", "best", "--over-cells")
    assert [row["n"] for row in rows] == ["6", "6"]


def test_variants_of_a_model_are_kept_apart(tmp_path, capsys):
    for alpha in (0.1, 1.0):
        for model, value in (("cnn", 0.51), ("cnn+head", 0.61)):
            for seed in range(3):
                setting = {"model": model, "alpha": alpha}
                Store(tmp_path).write(
                    make_row("fedavg", {}, setting, seed, best_accuracy=value), curve_to(50)
                )
    rows = csv_of(tmp_path, capsys, "--metric", "best", "--over-cells", "--reference", "fedavg")
    assert {row["algorithm"]: float(row["average_rank"]) for row in rows} == {
        "fedavg": 2,
        "fedavg (+head)": 1,
    }
    assert {row["reference"] for row in rows} == {"", "fedavg"}
    (row, _) = csv_of(tmp_path, capsys, "--metric", "best", "--reference", "fedavg")
    assert (row["algorithm"], row["reference"]) == ("fedavg (+head)", "fedavg")


def test_only_selected_configurations_are_compared(tmp_path, capsys):
    store = Store(tmp_path)
    for seed in range(3):
        store.write(make_row("fedavg", {}, {"alpha": 0.1}, seed, best_accuracy=0.5), curve_to(50))
        for mu, validation, test in ((0.1, 0.9, 0.8), (1.0, 0.1, 0.2)):
            row = make_row(
                "fedprox",
                {"mu": mu},
                {"alpha": 0.1},
                seed,
                best_val_accuracy=validation,
                best_accuracy=test,
            )
            store.write(row, curve_to(50))
    for more in ([], ["--all-configurations"]):
        (row,) = csv_of(tmp_path, capsys, "--metric", "best", "--reference", "fedavg", *more)
        assert float(row["difference"]) == pytest.approx(0.3)


def test_targets_are_exact(tmp_path, capsys):
    Store(tmp_path).write(
        make_row("fedavg", {}, {"alpha": 0.1}), [(1, "accuracy", 0.579), (2, "accuracy", 0.6)]
    )
    (row,) = csv_of(tmp_path, capsys, "--metric", "rounds@57.9")
    assert float(row["mean"]) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--tuned", "model"], "'model'"),
        (["--tuned", "lr", "--by", "lr"], "lr"),
        (["--where", "lr="], "FIELD=VALUE"),
        (["--alpha", "0.1", "--where", "alpha=1"], "--alpha and --where alpha= are the same thing"),
        (["--metric", "acuracy@5"], "rounds@PERCENT"),
        (["--reference", "moon"], "fedavg, fedgkd, fedprox"),
        (["--alpha", "0.1", "--over-cells"], "--over-cells"),
    ],
)
def test_what_makes_no_sense_is_refused(out, capsys, arguments, problem):
    assert problem in refused(capsys, "--out", str(out), *arguments)


def test_intervals_instead_of_deviations(out, capsys):
    assert main(["--out", str(out), "--alpha", "0.1", "--metric", "best", "--intervals"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    # 52 -+ 4.303 * 2 / sqrt 3
    assert "52.00 [47.03, 56.97] (3)" in shown


# --- diff


def test_two_runs_are_held_against_each_other(out, capsys, tmp_path):
    runs = Store(out).runs()
    chosen = runs[(runs["alpha"] == 0.1) & (runs["seed"] == 0)].set_index("algorithm")["run_key"]
    assert (
        main(
            [
                "diff",
                chosen["fedavg"][:12],
                chosen["fedgkd"][:12],
                "--out",
                str(tmp_path),
                str(out),
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["identity"]["algorithm"] == ["fedavg", "fedgkd"]
    assert found["results"]["best_accuracy"] == [0.5, 0.6]
    assert "setting" not in found
    assert main(["diff", chosen["fedavg"][:12], chosen["fedgkd"][:12], "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "+0.1" in shown


def test_diff_reads_a_papers_setting(out, capsys):
    key = Store(out).runs()["run_key"].iloc[0]
    assert main(["diff", key, "fedcad/cifar10", "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"setting"}
    assert found["setting"]["rounds"] == [10, 100]
    assert found["setting"]["augmentation"] == ["none", "flip_crop_reflect"]
    assert "dataset" not in found["setting"]


@pytest.mark.parametrize("start", ["xyz", ""])
def test_diff_and_reproduce_find_runs_alike(out, capsys, start):
    said = refused(capsys, "diff", start, "fedcad/cifar10", "--out", str(out))
    assert reproduce([start, "--out", str(out)]) == 2
    assert capsys.readouterr().err == said
    assert repr(start) in said


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_papers_table_needs_no_runs(folder, tmp_path, capsys):
    table = [
        "--paper",
        "fedgkd",
        "--table",
        "3",
        "--dataset",
        "cifar10",
        "--out",
        str(tmp_path / folder),
    ]
    assert main([*table, "--format", "csv"]) == 0
    shown = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert (str(tmp_path / folder) in shown.err) == bool(folder)
    assert rows
    assert all(not row["ours"] for row in rows)


def test_a_folder_that_is_not_there_is_named_beside_print(tmp_path, capsys):
    missing = tmp_path / "missing"
    assert main(["--paper", "fedgkd", "--table", "3", "--out", str(missing)]) == 0
    printed = capsys.readouterr()
    assert f"nothing is in {missing}, which does not exist" in printed.err
    assert "`python -m bench.sweep --paper fedgkd --table 3` makes them" in printed.err
    assert "not run" in printed.out


def test_runs_of_several_folders_are_numbered(tmp_path):
    for name, algorithm in (("a", "fedavg"), ("b", "fedprox")):
        Store(tmp_path / name).write(make_row(algorithm), curve_to(50))
    folders = Folders([tmp_path / "a", tmp_path / "b"])
    assert folders.runs().index.tolist() == [0, 1]
    assert folders.curves().index.tolist() == list(range(2 * len(curve_to(50))))


def test_runs_of_local_models_are_tracked(tmp_path, capsys):
    assert main(["--paper", "fedgkd", "--table", "fig2", "--out", str(tmp_path)]) == 0
    command = "python -m bench.sweep --paper fedgkd --table fig2 --track local"
    assert f"none of its runs is stored: `{command}` makes them" in capsys.readouterr().err


def test_a_boards_options_are_not_told(tmp_path, capsys):
    """They are not typed, so that the board alone is to be left out."""
    Store(tmp_path).write(make_row(), CURVE)
    (tmp_path / "board.toml").write_text('options = ["--tuned=lr"]')
    assert main(["--board", str(tmp_path), "--paper", "fedgkd", "--table", "3"]) == 2
    assert capsys.readouterr().err.endswith("beside ours: leave out --board\n")


def test_diff_prints_letters_as_they_are(tmp_path, capsys):
    Store(tmp_path).write(make_row(host="Zürich"), CURVE)
    Store(tmp_path).write(make_row(seed=1, host="Genève"), CURVE)
    keys = [make_row(seed=seed)["run_key"] for seed in (0, 1)]
    assert main(["diff", *keys, "--out", str(tmp_path), "--json"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["provenance"]["host"] == ["Zürich", "Genève"]
    assert '"Zürich"' in text


def test_a_filter_leaves_no_time_of_shared_runs(tmp_path, capsys):
    """Runs of FedAvg that yield FedAvg-T1's row, too, take longer than FedAvg alone."""
    store = Store(tmp_path)
    for seed in range(3):
        accuracy = {"final_accuracy": 0.5 + seed / 100}
        first = make_row("fedavg", seed=seed, **accuracy)
        store.write(first, CURVE)
        store.write(make_row("fedavg_t1", seed=seed, started=first["started"], **accuracy), CURVE)
        prox = make_row("fedprox", {"mu": 0.1}, seed=seed, seconds=5.0, **accuracy)
        later = prox["started"] + timedelta(minutes=1)
        store.write({**prox, "started": later, "finished": later}, CURVE)
    arguments = ("--reference", "fedavg", "--over-cells", "--metric", "final")
    for names in (["fedavg", "fedprox"], ["fedavg", "fedprox", "fedavg_t1"]):
        by_name = {}
        for record in csv_of(tmp_path, capsys, *arguments, "--algo", *names):
            by_name[record["algorithm"]] = record["time_ratio"]
        assert by_name["fedprox"] == ""


def test_a_later_field_is_tuned_at_its_default(tmp_path, capsys, monkeypatch):
    """Stored settings leave out such a field at its default."""
    monkeypatch.setattr(choice, "TUNABLE", (*choice.TUNABLE, "finetune_steps"))
    store = Store(tmp_path)
    for steps, accuracy in ((0, 0.6), (5, 0.5)):
        setting = {"finetune_steps": steps}
        store.write(make_row("fedavg", {}, setting, best_val_accuracy=accuracy), CURVE)
    arguments = ("--out", str(tmp_path), "--tuned", "finetune_steps")
    assert main([*arguments, "--all-configurations"]) == 0
    shown = capsys.readouterr().out
    assert "finetune_steps=0" in shown
    assert "finetune_steps=5" in shown
    results = read([tmp_path], Selection(tuned=("finetune_steps",)))
    tried = [json.loads(record["hp_json"])["finetune_steps"] for record in results.records]
    assert sorted(tried) == [0, 5]
