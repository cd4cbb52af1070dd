"""The report: what the page says, that nothing in results can break it, its size, and how it behaves in a browser."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser, browser
from rows import START, Pair, failed_row, make_row, write

from algorithms import ALGORITHMS
from bench.charts.theme import DASHES, LIGHT, SHAPES
from bench.planning.tables import places_of
from bench.report.command import main
from bench.report.page import TITLE
from leaderboards import Store, identity_columns

TIME = re.compile("on [0-9: -]+ UTC")
vl_convert = pytest.importorskip(
    "vl_convert", reason="the page needs vl-convert-python: pip install fedkd-bench[report]"
)


#               cell (alpha, C):   0.1, 0.5            0.5, 0.5            0.5, 1.0
#   test accuracy in percent of the selected configuration, seeds 0 1 2
#   fedavg                         60 61 62            70 71 72            80
#   fedgkd, gamma 0.2              65 66.1 67          70.5 70.7 72.6      81
#   fedgkd, gamma 1 (lower val.)   50 50 50            50 50 50            -
#   scaffold                       DIVERGED            failed, 55, 56      failed
#   moon (+head)                   -                   60 61 62            -
#   centralized                    -                   90                  -
SETTING = {"dataset": "cifar10", "model": "cnn_cifar", "rounds": 4}
ACCURACIES: dict[tuple[str, float, float, float], tuple[float | None, ...]] = {
    ("fedavg", 0, 0.1, 0.5): (60, 61, 62),
    ("fedavg", 0, 0.5, 0.5): (70, 71, 72),
    ("fedavg", 0, 0.5, 1.0): (80,),
    ("fedgkd", 0.2, 0.1, 0.5): (65, 66.1, 67),
    ("fedgkd", 0.2, 0.5, 0.5): (70.5, 70.7, 72.6),
    ("fedgkd", 0.2, 0.5, 1.0): (81,),
    ("fedgkd", 1.0, 0.1, 0.5): (50, 50, 50),
    ("fedgkd", 1.0, 0.5, 0.5): (50, 50, 50),
    ("scaffold", 0, 0.1, 0.5): (10, 10, 10),
    ("scaffold", 0, 0.5, 0.5): (None, 55, 56),
    ("scaffold", 0, 0.5, 1.0): (None,),
    ("moon", 0, 0.5, 0.5): (60, 61, 62),
    ("centralized", 0, 0.5, 0.5): (90,),
}


def curve(final: float, rounds: int = 4) -> list[tuple[int, str, float]]:
    """A straight rise to `final`, with its costs."""
    points = []
    for at in range(1, rounds + 1):
        points += [
            (at, "accuracy", final * at / rounds),
            (at, "bytes_down", 1e6 * at),
            (at, "bytes_up", 1e6 * at),
        ]
        points += [(at, "train_steps", 10.0 * at)]
    return points


def run(
    algorithm: str, gamma: float, setting: dict[str, Any], seed: int, percent: float | None
) -> Pair:
    hyperparameters = {"gamma": gamma, "buffer": 5} if gamma else {}
    if percent is None:
        return failed_row(algorithm, hyperparameters, setting, seed, error="CUDA out of memory"), []
    value = percent / 100
    results = dict.fromkeys(("best_accuracy", "final_accuracy", "selected_accuracy"), value)
    results |= {"best_val_accuracy": value, "diverged": algorithm == "scaffold" and percent == 10}
    return make_row(algorithm, hyperparameters, setting, seed, **results), curve(
        value, setting["rounds"]
    )


def fixture() -> list[Pair]:
    pairs = []
    for (algorithm, gamma, alpha, share), values in ACCURACIES.items():
        setting = {**SETTING, "alpha": alpha, "participation": share}
        setting["model"] += "+head" * (algorithm == "moon")
        pairs += [run(algorithm, gamma, setting, seed, value) for seed, value in enumerate(values)]
    return pairs


def report(page: Path, *folders: Path, title: str | None = None) -> str:
    arguments = ["--out", *map(str, folders), "--to", str(page)]
    assert main([*arguments, *(["--title", title] if title else [])]) == 0
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the fixture."""
    folder = tmp_path_factory.mktemp("report")
    report(folder / "page.html", write(folder / "out", fixture()), title="A <small> report")
    return folder / "page.html"


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


class Elements(HTMLParser):
    """Every element of a document: name, attributes, and the text inside it."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, list[str]]] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside: list[str] = []
        self.found.append((tag, dict(attrs), inside))
        if tag not in ("meta", "input", "br", "col", "link"):
            self._open.append((tag, inside))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1][0] == tag, f"</{tag}> closes <{self._open[-1][0]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for _, inside in self._open:
            inside.append(data)

    def of(self, name: str, **attributes: str) -> list[tuple[dict[str, str | None], str]]:
        """Attributes and text of the elements with a name and some attributes."""
        return [
            (own, "".join(inside))
            for tag_, own, inside in self.found
            if tag_ == name
            and all(
                own.get(key.rstrip("_").replace("_", "-")) == value
                for key, value in attributes.items()
            )
        ]


def embedded(document: str) -> dict[str, Any]:
    """The charts of a page."""
    ((_, data),) = Elements(document).of("script", id="charts")
    return dict(json.loads(data))


def rows_of(charts: dict[str, Any], chart: dict[str, Any]) -> list[dict[str, Any]]:
    """A chart's rows, unpacked as the page does it."""
    columns = dict(charts["data"][chart["data"]])
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def chart_of(document: str, start: str) -> list[dict[str, Any]]:
    """The rows of the chart whose description starts so."""
    charts = embedded(document)
    return rows_of(
        charts, next(one for one in charts["charts"] if one["description"].startswith(start))
    )


def board_row(document: str, **where: str) -> str:
    """The text of a row of the leaderboard."""
    ((_, text),) = Elements(document).of(
        "tr", **{f"data_{name}": value for name, value in where.items()}
    )
    return " ".join(text.split())


# What the page says


def test_a_boards_page_is_headed_by_its_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", fixture()[:4])
    (folder / "board.toml").write_text('options = ["--tuned=lr"]\n')
    assert main(["--board", str(folder), "--to", str(tmp_path / "page.html")]) == 0
    assert ": board own</h1>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        ("nope", "the primary metric here is nope, but pictures and the page compare one of"),
        ("rounds@70", "here is rounds@70, but"),
        ("client_last10", "the primary metric here is client_last10, which no run has"),
    ],
)
def test_a_board_without_its_primary_metric_is_refused(
    metric: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "own", fixture()[:4])
    (folder / "board.toml").write_text(f'metrics = ["{metric}", "final"]\n')
    page = tmp_path / "page.html"
    assert main(["--board", str(folder), "--to", str(page)]) == 2
    assert error in " ".join(capsys.readouterr().err.split())
    assert not page.exists()


def test_the_document_is_well_formed_and_its_links_lead_somewhere(text):
    elements = Elements(text)
    ids = [own["id"] for _, own, _ in elements.found if own.get("id")]
    assert max(Counter(ids).values()) == 1
    links = [own["href"] for _, own, _ in elements.found if own.get("href")]
    assert len(links) > 30
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_nothing_is_fetched_from_anywhere(text):
    for _, own, _ in Elements(text).found:
        assert not {"src", "srcset", "data", "action"} & set(own)
        assert not any(name.startswith("on") for name in own)
    ((policy, _),) = Elements(text).of("meta", http_equiv="Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy["content"]


def test_the_head_says_what_was_run(text):
    (facts,) = (inside for _, inside in Elements(text).of("dl", class_="facts"))
    ((_, head),) = Elements(text).of("header")
    failed = sum(value is None for values in ACCURACIES.values() for value in values)
    total = sum(map(len, ACCURACIES.values()))
    assert f"{total} runs: {failed} failed, {total - failed} finished, 3 of all DIVERGED" in head
    assert "fedavg, moon (+head), fedgkd, scaffold, centralized" in facts
    assert "torch 2.9.0" in facts
    assert "0000000000" in facts
    assert "2026-01-02 03:04" in facts


@pytest.mark.parametrize(
    ("where", "rank", "words"),
    [
        (
            {"alpha": "0.1", "algorithm": "fedavg"},
            "222",
            ["61.00 ± 1.00 (3)×", "58.52 – 63.48"],
        ),  # 61 ± 4.303 / √3
        ({"alpha": "0.5", "c": "0.5", "algorithm": "fedavg"}, "222", ["71.00 ± 1.00 (3)7"]),
        ({"alpha": "0.5", "c": "1", "algorithm": "fedavg"}, "222", ["80.00 (1)", "1 seed"]),
        ({"alpha": "0.1", "algorithm": "scaffold"}, "333", ["DIVERGED 3/3"]),
        ({"algorithm": "centralized"}, "–––", ["90.00 (1)"]),
        (
            {"alpha": "0.5", "c": "0.5", "algorithm": "scaffold"},
            "",
            ["55.50 ± 0.71 (2)", "1 failed"],
        ),
    ],
)
def test_a_row_has_its_rank_mean_spread_and_failures(where, rank, words, text):
    row = board_row(text, **where)
    assert row.startswith(rank)
    assert all(word in row for word in words), row


def test_what_failed_or_diverged_has_a_word_and_no_number(text):
    every = board_row(text, alpha="0.5", c="1", algorithm="scaffold")
    assert ("failed" in every, "%" in every) == (True, False)
    diverged = board_row(text, alpha="0.1", algorithm="scaffold")
    assert ("DIVERGED 3/3" in diverged, "10.00" in diverged) == (True, False)
    failed = [
        inside
        for own, inside in Elements(text).of("details", class_="run")
        if own.get("data-state") == "failed"
    ]
    assert len(failed) == 2
    assert all("CUDA out of memory" in inside for inside in failed)


def test_winners_have_a_margin_and_a_verdict(text):
    rows = [row for row in chart_of(text, "Best algorithm") if row["metric"] == "best_accuracy"]
    found = {(row["alpha"], row["participation"]): row for row in rows}
    assert len(found) == 3
    clear, close, single = (
        found[place] for place in (("0.1", "0.5"), ("0.5", "0.5"), ("0.5", "1"))
    )
    assert (clear["algorithm"], clear["separable"]) == ("fedgkd", True)
    assert clear["numbers"] == "66.03 %, +5.03 points"
    assert not close["separable"]
    assert not single["separable"]


def test_a_winner_that_was_tested_against_all_is_separable_whatever_the_others_share(tmp_path):
    """Its rivals have no three seeds in common with each other."""
    means = {"fedavg": (80, range(5)), "fedprox": (50, (0, 1, 2)), "fedgkd": (40, (2, 3, 4))}
    pairs = [
        run(name, 0, SETTING, s, m + s**2 / m) for name, (m, seeds) in means.items() for s in seeds
    ]
    (row, *_) = chart_of(
        report(tmp_path / "page.html", write(tmp_path / "out", pairs)), "Best algorithm"
    )
    assert (row["algorithm"], row["separable"]) == ("fedavg", True)
    assert row["verdict"] == "all others excluded; other seeds"


def test_many_seeds_are_folded_into_spans(tmp_path):
    seeds = (0, *range(101, 113))
    pairs = [run("fedavg", 0, SETTING, seed, 60) for seed in seeds]
    text = report(tmp_path / "page.html", write(tmp_path / "out", pairs))
    assert text.count("<summary>0, 101–112</summary>") == 1
    assert text.count('aria-label="run of seed ') == len(seeds)


def test_the_page_begins_with_differences_and_a_matrix(text):
    elements = Elements(text)
    ((root, _),) = elements.of("html")
    assert root["data-metric"] == "selected_accuracy", "of the round that validation selects"
    tables = [own.get("class") for own, _ in elements.of("table")]
    accuracies = tables.index("matrix")
    assert tables[: accuracies + 6] == ["forest"] * accuracies + ["matrix"] * 6
    assert accuracies == 4, "one for each accuracy that fedavg and another have"
    assert "board" in [own.get("id") for own, _ in elements.of("table")][accuracies + 6 :]
    forest = elements.of("table", class_="forest")[0][1]
    # fedgkd: cells of 5.0333, 0.2667 and 1 points over fedavg; moon has one cell, 10 points below.
    assert "+2.10" in forest
    assert "-10.00" in forest
    assert "centralized" not in forest
    matrix = elements.of("table", class_="matrix")[0][1]
    assert all(words in matrix for words in ("66.03", "61.00×", "DIVERGED 3/3", "centralized"))


def test_the_accuracy_of_a_page_without_validation_is_the_best(tmp_path):
    pairs = [run("fedavg", 0, SETTING, seed, 50 + seed) for seed in range(2)]
    pairs = [(row | {"selected_accuracy": None}, curve) for row, curve in pairs]
    text = report(tmp_path / "page.html", write(tmp_path / "out", pairs))
    ((root, _),) = Elements(text).of("html")
    assert root["data-metric"] == "best_accuracy"
    assert 'class="forest"' not in text, "nothing stands beside fedavg"


def test_curves_have_the_mean_and_a_band_from_lowest_to_highest(text):
    rows = chart_of(text, "Learning curves, cifar10 · cnn_cifar, α = 0.1, C = 0.5")
    (last,) = (row for row in rows if row["algorithm"] == "fedavg" and row["round"] == 4)
    assert (last["mean"], last["low"], last["high"], last["n"]) == (0.61, 0.6, 0.62, 3)
    assert (last["bytes"], last["steps"]) == (8e6, 40)


def test_the_first_row_of_each_cell_begins_a_block(text):
    """Then come the others of the cell, and configurations that were not selected."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for found, _ in Elements(text).of("tr"):
        if "data-algorithm" in found:
            place = (found["data-alpha"], found["data-c"])
            kinds.setdefault(place, []).append(found.get("class", ""))
    assert len(kinds) > 1
    for classes in kinds.values():
        assert [kind == "first" for kind in classes] == [True] + [False] * (len(classes) - 1)


def test_a_partitions_curve_is_the_mean_of_its_replicates(tmp_path):
    pairs = [run("fedavg", 0, SETTING, 5, 40), run("fedavg", 0, SETTING, 6, 90)]
    pairs.append(run("fedavg", 0, SETTING | {"partition_seed": 5}, 1005, 60))
    rows = chart_of(
        report(tmp_path / "page.html", write(tmp_path / "out", pairs)), "Learning curves"
    )
    last = rows[-1]
    assert (last["mean"], last["low"], last["high"]) == pytest.approx((0.7, 0.5, 0.9))
    assert (last["n"], last["bytes"], last["steps"]) == (2, 2e6 * last["round"], 10 * last["round"])


def test_only_common_rounds_of_all_seeds_are_averaged(tmp_path):
    pairs = [run("fedavg", 0, SETTING, seed, 50) for seed in range(2)]
    pairs[1] = (pairs[1][0], curve(0.5)[:8])
    rows = chart_of(
        report(tmp_path / "page.html", write(tmp_path / "out", pairs)), "Learning curves"
    )
    assert [row["round"] for row in rows] == [1, 2]


def test_hyperparameters_are_drawn_against_validation(text):
    rows = chart_of(text, "Validation accuracy of fedgkd against gamma")
    assert {
        (row["value"], row["alpha"], row["accuracy"]) for row in rows if row["alpha"] == "0.1"
    } == {
        ("0.2", "0.1", 0.66033),
        ("1", "0.1", 0.5),
    }


def test_hyperparameters_are_drawn_by_the_selecting_accuracy(tmp_path):
    pairs = []
    for gamma, best, recent in ((0.2, 70, 60), (1.0, 65, 62)):
        row, points = run("fedgkd", gamma, SETTING, 0, best)
        pairs.append((row | {"mean_last10_val_accuracy": recent / 100}, points))
    folder = write(tmp_path / "out", pairs)
    for rule, expected in (("last10", (0.6, 0.62)), ("best", (0.7, 0.65))):
        to = tmp_path / f"{rule}.html"
        assert main(["--out", str(folder), "--to", str(to), "--chosen-by", rule]) == 0
        rows = chart_of(to.read_text(encoding="utf-8"), "Validation accuracy of fedgkd")
        assert tuple(row["accuracy"] for row in rows) == expected


def test_a_run_has_everything_to_run_it_again(page, text):
    row, _ = run("fedavg", 0, {**SETTING, "alpha": 0.1, "participation": 0.5}, 0, 60)
    ((_, inside),) = Elements(text).of("details", id=f"run-{row['run_key'][:16]}")
    assert row["run_key"] in inside
    assert (
        f"python -m bench.sweep reproduce {row['run_key'][:16]} --out {page.parent / 'out'}"
        in inside
    )
    assert f"git checkout {'0' * 40}" in inside
    runs = [
        inside
        for own, inside in Elements(text).of("details")
        if (own.get("id") or "").startswith("run-")
    ]
    assert {"failed" in inside: " reproduce " in inside for inside in runs} == {
        False: True,
        True: False,
    }
    settings = [
        inside
        for own, inside in Elements(text).of("details")
        if (own.get("id") or "").startswith("setting-")
    ]
    assert len(settings) == 4  # three cells, and moon's model
    assert all("weight_decay" in inside for inside in settings)


def test_printed_numbers_stand_beside_ours(tmp_path):
    cell = next(cell for cell in places_of("fedgkd", "3") if cell.printed.rule == "best")
    run_spec = cell.run_specs[0]
    row = make_row(
        run_spec.algorithm,
        run_spec.hyperparameters,
        run_spec.setting.as_dict(),
        0,
        best_accuracy=0.4321,
    )
    text = report(
        tmp_path / "page.html", write(tmp_path / "out", [(row, [(1, "accuracy", 0.4321)])])
    )
    ((_, table),) = Elements(text).of("details", class_="printed")
    assert "43.21 (1)" in table
    assert f"{100 * cell.printed.value:.2f}" in table


def test_the_same_results_give_the_same_page(page, text, tmp_path):
    again = report(tmp_path / "again.html", page.parent / "out", title="A <small> report")
    assert TIME.sub("", again) == TIME.sub("", text)


def test_filters_give_the_page_of_those_runs(tmp_path):
    pairs = [(row, points) for row, points in fixture() if row["algorithm"] != "fedgkd"]
    of_these = report(tmp_path / "page.html", write(tmp_path / "part", pairs))
    whole = write(tmp_path / "full", fixture())
    others = sorted({row["algorithm"] for row, _ in pairs})
    options = ["--algo", ",".join(others), "--to", str(tmp_path / "filtered.html")]
    assert main(["--out", str(whole), *options]) == 0
    filtered = (tmp_path / "filtered.html").read_text(encoding="utf-8")
    assert f"{TITLE}, in part</h1>" in filtered
    filtered = filtered.replace(f"{TITLE}, in part", TITLE).replace("/full", "/part")
    assert TIME.sub("", filtered) == TIME.sub("", of_these)


def test_filters_keep_shared_runs_untimed(tmp_path):
    pairs = []
    for alpha, seed in product((0.1, 0.5), range(3)):
        setting = {**SETTING, "alpha": alpha}
        fedavg = make_row("fedavg", {}, setting, seed)
        shared = make_row("fedavg_t1", {}, setting, seed, started=fedavg["started"])
        alone = make_row("fedprox", {}, setting, seed, started=START, finished=START)
        pairs += [(row, curve(0.5 + seed / 10)) for row in (fedavg, shared, alone)]
    out = write(tmp_path / "out", pairs)
    page = tmp_path / "page.html"
    assert main(["--out", str(out), "--algo", "fedavg,fedprox", "--to", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    rows = re.findall('<th scope="row">fedprox</th><td class="plotted">.*?</tr>', text)
    assert rows
    for row in rows:
        _, traffic, time, *_ = re.findall('<td class="number">([^<]*)</td>', row)
        assert (traffic, time) == ("1.00x", "–")


def test_filters_that_leave_nothing_are_refused(tmp_path, capsys):
    out = write(tmp_path / "out", fixture())
    assert main(["--out", str(out), "--algo", "fedkf", "--to", str(tmp_path / "page.html")]) == 2
    assert "no algorithm fedkf in" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


# Safety

WICKED = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>"\'&'


def wicked_pairs() -> list[Pair]:
    setting = {**SETTING, "dataset": WICKED, "model": WICKED, "alpha": 0.1}
    pairs = [run(WICKED, 0, setting, seed, 50 + seed) for seed in range(3)]
    pairs += [run("fedavg", 0, setting, seed, 55 + seed) for seed in range(3)]
    row, _ = run("fedprox", 0, setting, 0, None)
    words = {
        "error": WICKED,
        "command": WICKED,
        "cpu": WICKED,
        "versions": {WICKED: WICKED},
        "git_commit": WICKED,
    }
    row = {**row, **words}
    hyperparameters = {"x": WICKED}
    return [*pairs, (row, []), (make_row("fedcad", hyperparameters, setting, 0), curve(0.5))]


@pytest.fixture(scope="module")
def wicked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of results that try to break out."""
    folder = tmp_path_factory.mktemp("wicked")
    report(folder / "page.html", write(folder / "out", wicked_pairs()), title=WICKED)
    return folder / "page.html"


def test_nothing_in_results_becomes_markup(wicked, text):
    hostile, benign = Elements(wicked.read_text(encoding="utf-8")), Elements(text)
    names = Counter(name for name, _, _ in hostile.found)
    assert names["img"] == 0
    assert names["script"] == Counter(name for name, _, _ in benign.found)["script"]
    assert WICKED in "".join(inside for _, inside in hostile.of("pre", class_="error"))
    charts = json.loads(hostile.of("script", id="charts")[0][1])
    assert any(WICKED in one["description"] for one in charts["charts"])


# Looks


def test_algorithms_look_different_each():
    looks = {
        (LIGHT[i % len(LIGHT)], DASHES[i % len(DASHES)], SHAPES[i % len(SHAPES)])
        for i in range(len(ALGORITHMS))
    }
    assert len(looks) == len(ALGORITHMS)
    assert len(DASHES) == len(set(DASHES)) >= 5


def test_every_chart_is_drawn_without_a_browser(text):
    charts = embedded(text)
    assert {len(charts["themes"][name]["range"]["category"]) for name in ("light", "dark")} == {8}
    for position, spec in enumerate(charts["specs"]):
        chart = next(one for one in charts["charts"] if one["spec"] == position)
        values = {"values": rows_of(charts, chart)}
        drawn = vl_convert.vegalite_to_svg(
            {**spec, "data": values, "config": charts["themes"]["light"]}
        )
        assert drawn.count("<path") > 3, chart["description"]


# How the command ends


def test_a_broken_file_is_named_and_the_page_of_yesterday_stays(tmp_path, capsys):
    broken, old = tmp_path / "runs" / "broken.parquet", tmp_path / "page.html"
    broken.parent.mkdir()
    broken.write_bytes(b"PAR1")
    old.write_text("the page of yesterday")
    assert main(["--out", str(tmp_path), "--to", str(old)]) == 3
    assert str(broken) in capsys.readouterr().err
    assert old.read_text() == "the page of yesterday"


def test_without_the_package_it_says_which(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["--out", str(tmp_path), "--to", str(tmp_path / "page.html")]) == 3, (
        "before any folder is read"
    )
    assert 'pip install "fedkd-bench[report]"' in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_an_error_and_a_new_folder_is_none(tmp_path):
    folder = write(tmp_path / "out", fixture()[:1])
    (tmp_path / "file").touch()
    for place, status in ((".", 2), ("file/page.html", 2), ("n" * 300, 3), ("new/page.html", 0)):
        assert main(["--out", str(folder), "--to", str(tmp_path / place)]) == status
    assert (tmp_path / "new" / "page.html").exists()


def test_failures_alone_make_a_page_too(tmp_path):
    folder = tmp_path / "out"
    Store(folder).write(failed_row("fedavg", {}, SETTING, finished=START), [])
    text = report(tmp_path / "page.html", folder)
    assert "1 failed" in board_row(text, algorithm="fedavg")


# In a browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests."""
    if not CHROMIUM:
        pytest.skip("no Chromium here: apt-get install chromium")
    with browser() as found:
        yield found


VISIBLE = "[...document.querySelectorAll('#board tbody tr')].filter(row => !row.hidden)"


def cells(chromium: Browser, column: str) -> list[str]:
    """The texts of a column of the visible rows."""
    return list(chromium.run(f"{VISIBLE}.map(row => row.querySelector('{column}').innerText)"))


@pytest.fixture
def opened(chromium: Browser, page: Path) -> Browser:
    """The page of the fixture, freshly loaded."""
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.open(page)
    return chromium


def quiet(chromium: Browser) -> None:
    assert chromium.complaints == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in chromium.requests)


def test_headings_sort_with_mouse_and_keyboard(opened):
    button = "[...document.querySelectorAll('#board thead button')].find(b => b.textContent === '{}' && b.offsetParent)"
    accuracy = button.format("accuracy, %")
    opened.run(f"{accuracy}.click()")
    assert opened.run(f"{accuracy}.closest('th').getAttribute('aria-sort')") == "descending"
    values = opened.run(
        f"{VISIBLE}.map(row => row.querySelectorAll('td.best_accuracy.number')[1].dataset.v ?? null)"
    )
    known = [float(value) for value in values if value is not None]
    assert known == sorted(known, reverse=True)
    assert values[-1] is None, "what has no number is last"
    opened.run(f"{accuracy}.focus()")
    opened.press("Enter")
    assert opened.run(f"{accuracy}.closest('th').getAttribute('aria-sort')") == "ascending"
    values = opened.run(
        f"{VISIBLE}.map(row => row.querySelectorAll('td.best_accuracy.number')[1].dataset.v ?? null)"
    )
    assert [float(value) for value in values if value is not None] == sorted(known)
    assert values[-1] is None
    opened.run(button.format("algorithm") + ".click()")
    names = cells(opened, "th[scope=row]")
    assert names == sorted(names)
    assert opened.run("document.querySelectorAll('[aria-sort]').length") == 1
    quiet(opened)


def test_filters_leave_what_is_asked_for(opened):
    shown = len(cells(opened, "th"))
    every = opened.run("document.querySelectorAll('#board tbody tr').length")
    assert shown == every - 2  # the two configurations of fedgkd that were not selected
    choose = "(() => {{ const s = document.querySelector('select[data-field={}]'); s.value = '{}'; \
        s.dispatchEvent(new Event('input', {{bubbles: true}})) }})()"
    opened.run(choose.format("alpha", "0.1"))
    opened.run(choose.format("algorithm", "fedgkd"))
    assert cells(opened, "th") == ["fedgkd"]
    opened.run("document.getElementById('every').click()")
    assert cells(opened, "th") == ["fedgkd", "fedgkd"]
    assert opened.run("document.getElementById('count').textContent") == f"2 of {every} rows shown"
    opened.run("document.getElementById('clear').click()")
    assert len(cells(opened, "th")) == shown
    quiet(opened)


@pytest.mark.parametrize("which", ["page", "wicked"])
def test_no_column_is_cut_off_at_1400_pixels_and_runs_are_folded(chromium, which, request):
    chromium.open(request.getfixturevalue(which), width=1400)
    assert chromium.run(
        "[...document.querySelectorAll('.scroll')].every(box => box.scrollWidth <= box.clientWidth)"
    )
    assert chromium.run("document.querySelector('main section').id") == "leaderboard"
    assert not chromium.run("document.querySelector('details.run').checkVisibility()")


def test_the_metric_changes_what_the_table_shows(opened):
    count = "[...document.querySelectorAll('#board thead th')].filter(th => th.offsetParent).length"
    before = opened.run(count)
    opened.run("document.querySelector('input[name=metric][value=final_accuracy]').click()")
    assert opened.run("document.documentElement.dataset.metric") == "final_accuracy"
    assert opened.run(count) == before
    assert (
        opened.run("getComputedStyle(document.querySelector('td.best_accuracy')).display") == "none"
    )
    quiet(opened)


def test_a_link_opens_its_run(opened):
    link = "document.querySelector('#board .runs a')"
    key = opened.run(f"{link}.hash.slice(1)")
    opened.run(f"{link}.click()")
    opened.wait(
        f"document.getElementById('{key}').checkVisibility() && document.getElementById('{key}').open"
    )
    opened.wait(f"document.getElementById('{key}').innerText.includes('weight_decay')")
    assert "bench.sweep reproduce" in opened.run(f"document.getElementById('{key}').innerText")
    assert opened.run("document.activeElement.parentElement.id") == key
    quiet(opened)


def test_charts_are_drawn_and_algorithms_switched_off(opened):
    place = "document.querySelector('#curves .plot')"
    opened.run(f"{place}.scrollIntoView()")
    opened.wait(f"{place}.querySelector('svg') !== null")
    lines = f"{place}.querySelectorAll('.mark-line path').length"
    before = opened.run(lines)
    assert before >= 2
    opened.run("document.querySelector('#curves .keys button').click()")
    opened.wait(f"{lines} === {before - 1}")
    assert (
        opened.run("document.querySelector('#costs .keys button').getAttribute('aria-pressed')")
        == "false"
    )
    opened.run("document.querySelector('#curves details.data > summary').click()")
    opened.wait("document.querySelectorAll('#curves details.data table tr').length > 4")
    quiet(opened)


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_nothing_but_tables_and_the_theme_is_the_systems(chromium, page, dark):
    chromium.complaints.clear()
    chromium.open(page, width=375, height=800, dark=dark)
    for section in ("winners", "curves", "tuning"):
        chromium.run(f"document.querySelector('#{section} .plot').scrollIntoView()")
        chromium.wait(f"document.querySelector('#{section} .plot svg') !== null")
    assert chromium.run("document.documentElement.scrollWidth") <= 375
    assert (
        chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    ) != dark
    quiet(chromium)


BANDS = """[...document.querySelectorAll('#curves svg .mark-area path')]
    .some((path) => +getComputedStyle(path).opacity * path.getAttribute('opacity') > 0)"""


def test_bands_come_back_when_algorithms_are_switched_off(chromium, tmp_path):
    names = list(ALGORITHMS)[:9]
    pairs = [(make_row(name), curve(0.5)) for name in names]
    pairs += [(make_row(name, seed=1), curve(0.5)) for name in names]
    report(tmp_path / "page.html", write(tmp_path / "out", pairs))
    chromium.open(tmp_path / "page.html")
    chromium.run("document.querySelector('#curves .plot').scrollIntoView()")
    chromium.wait("document.querySelector('#curves .mark-area path') !== null")
    assert not chromium.run(BANDS)
    chromium.run("document.querySelector('#curves .keys button').click()")
    chromium.wait(BANDS)


def test_a_telephone_begins_with_closed_flags_and_whole_captions(chromium, page):
    for width, is_open in ((390, False), (1400, True)):
        chromium.open(page, width=width)
        assert chromium.run("document.getElementById('flags').open") is is_open
        edges = "[...document.querySelectorAll('caption span')].map((one) => one.offsetWidth)"
        assert max(chromium.run(edges)) < width


def test_wicked_results_do_nothing_in_a_browser(chromium, wicked):
    chromium.complaints.clear()
    chromium.open(wicked)
    chromium.run("document.querySelector('#curves .plot').scrollIntoView()")
    chromium.wait("document.querySelector('#curves .plot svg') !== null")
    chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert chromium.run("document.title") == WICKED.replace("\n", " ")
    assert chromium.run("document.images.length") == 0
    quiet(chromium)


def test_what_comes_from_outside_stands_beside_what_does_not(tmp_path):
    """Their settings have fields that the others lack."""
    plain = make_row("fedavg")
    outside = make_row("fedavg", seed=1)
    outside |= identity_columns(
        "fedavg", 1, {}, json.loads(plain["setting_json"]) | {"model_version": 7}, 1
    )
    variant = make_row("fedavg", setting={"model": "mine:NET+head"})
    write(tmp_path, [(row, curve(0.5)) for row in (plain, outside, variant)])
    document = report(tmp_path / "page.html", tmp_path)
    assert "--import mine:NET --out" in document, (
        "the command that runs it again may import what is outside"
    )
    assert "model_version 7" in document
    assert "no model_version" not in document
