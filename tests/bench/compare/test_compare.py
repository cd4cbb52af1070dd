"""The compare command: what it prints in each format, what it leaves out, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from rows import CURVE, failed_row, make_row

from bench.compare import boards as board_folders
from bench.compare.command import main
from bench.figures.command import main as draw
from bench.terminal.formats import lines
from leaderboards import Store
from leaderboards.tables.sheets import p_text

#                    alpha 0.1                     alpha 0.5
#   algorithm        test accuracy in percent
#   fedavg           60 62 64 = 62 ± 2             70
#   fedgkd           65 65 65 = 65 ± 0, best       69
#   fedcad_x         50 51 49 = 50 ± 1             failed
#   moon             (not run)                     71, on cnn+head
#   centralized      90, not ranked                (not run)
ACCURACIES = {
    ("fedavg", 0.1): (0.60, 0.62, 0.64),
    ("fedavg", 0.5): (0.70,),
    ("fedgkd", 0.1): (0.65, 0.65, 0.65),
    ("fedgkd", 0.5): (0.69,),
    ("fedcad_x", 0.1): (0.50, 0.51, 0.49),
    ("moon", 0.5): (0.71,),
    ("centralized", 0.1): (0.90,),
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    store = Store(folder)
    for (algorithm, alpha), values in ACCURACIES.items():
        setting = {
            "dataset": "cifar10",
            "model": "cnn+head" if algorithm == "moon" else "cnn",
            "alpha": alpha,
        }
        hyperparameters = {"gamma": 0.5, "buffer": 7} if algorithm == "fedgkd" else {}
        for seed, value in enumerate(values):
            results = {"best_accuracy": value, "final_accuracy": value - 0.01}
            store.write(make_row(algorithm, hyperparameters, setting, seed, **results), CURVE)
    store.write(
        failed_row("fedcad_x", {}, {"dataset": "cifar10", "model": "cnn", "alpha": 0.5}), []
    )
    store.write(make_row("fedavg", {}, {"dataset": "digits"}), CURVE)
    return folder


def compare(out: Path, *arguments: str) -> int:
    return main(["--out", str(out), *arguments])


DASH = "–"


@pytest.fixture
def terminal(monkeypatch):
    """A function that prints to a terminal of some width and gives what arrived there."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def show(out: Path, width: int = 200) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("sys.stdout", stream := io.StringIO())
        monkeypatch.setattr(stream, "isatty", lambda: True)
        assert compare(out, "--dataset", "cifar10") == 0
        return stream.getvalue()

    return show


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.lstrip("| ").startswith(start))


def test_the_plain_table(out, capsys):
    assert compare(out, "--dataset", "cifar10", "--metric", "best") == 0
    shown = capsys.readouterr()
    assert shown.out == (
        "cifar10 · cnn · lda, 10 clients · 100 rounds × 10 local epochs · participation 1\n"
        "Accuracy of the global model on the test set, %, mean ± std (n seeds); best: best round by the test set\n"
        "Local training: sgd, lr 0.01, batch size 64\n"
        "One configuration of each algorithm, nothing to select from\n"
        "Configurations tried: centralized 1, fedavg 1, fedcad_x 0-1, fedgkd 1, moon (+head) 1\n"
        "\n"
        "                                    α = 0.1             α = 0.5\n"
        "algorithm      hyper-parameters     best                best\n"
        f"{'─' * 66}\n"
        "fedgkd         buffer=7 gamma=0.5   65.00 ± 0.00 (3)*   69.00 (1)\n"
        "fedavg                              62.00 ± 2.00 (3)    70.00 (1)\n"
        f"moon (+head)                        {DASH}                   71.00 (1)*\n"
        "fedcad_x                            50.00 ± 1.00 (3)×   failed\n"
        f"centralized                         90.00 (1)           {DASH}\n"
        "\n"
        "* best mean\n"
        "× excluded from being best: another algorithm is better (paired t tests over common seeds, "
        "Bonferroni, 5 % over the column)\n"
        "(1) a single seed, no spread\n"
        "best by mean alone: a test needs 3 seeds\n"
        "columns are of different seeds\n"
        f"{DASH} not run, or not measured\n"
        "failed: no run finished, and some failed\n"
        "hyper-parameters that have their default in all configurations tried are not shown\n"
        "(+head): the model has a projection head\n"
        "complete rows first, by average place of their means over all columns\n"
        "centralized (last): bounds to compare with, not ranked\n"
    )
    assert shown.err == f"15 runs in {out}: 14 finished, 1 failed\n"


def test_a_terminal_prints_the_best_bold(out, terminal):
    shown = terminal(out)
    assert "\x1b[1m65.00 ± 0.00 (3)\x1b[0m" in shown
    assert "62.00 ± 2.00 (3) " in shown, "not excluded from being best"
    assert "50.00 ± 1.00 (3)×" in shown
    assert "\x1b[31mfailed\x1b[0m" in shown
    assert "(3)*" not in shown


def test_drawn_numbers_are_rounded_in_tables(tmp_path, capsys):
    mu = 0.12520653814499466
    Store(tmp_path).write(make_row("fedprox", {"mu": mu}), CURVE)
    assert compare(tmp_path) == 0
    assert " mu=0.1252 " in capsys.readouterr().out
    assert compare(tmp_path, "--format", "json") == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert {(cell["hyperparameters"]["mu"], cell["mean"]) for cell in table["cells"]} == {(mu, 0.5)}


@pytest.mark.parametrize("width", [1, 80])
def test_no_width_cuts_a_number(out, terminal, monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert compare(out, "--dataset", "cifar10") == 0
    shown = capsys.readouterr().out
    for texts in (shown, terminal(out, width)):
        for (algorithm, _), values in ACCURACIES.items():
            mean = sum(values) / len(values)
            assert f"{100 * mean:.2f}" in texts, algorithm
            assert f"{100 * mean - 1:.2f}" in texts, algorithm
    table = [line for line in shown.splitlines() if re.search(r"\d\d\.\d\d", line)]
    assert len(table) >= 5
    assert all(re.search(r"\d\d\.\d\d(?: ± \d\.\d\d)? \(\d\)", line) for line in table)
    assert max(map(len, shown.splitlines())) <= max(width, 55)  # the names and one column


def test_markdown(out, capsys):
    assert compare(out, "--format", "md", "--dataset", "cifar10", "--metric", "best") == 0
    shown = capsys.readouterr().out
    assert (
        "| algorithm | hyper-parameters | α = 0.1 best | α = 0.5 best |\n| --- | --- | ---: | ---: |"
        in shown
    )
    assert (
        line_of(shown, "fedgkd ")
        == "| fedgkd | `buffer=7 gamma=0.5` | **65.00 ± 0.00 (3)** | 69.00 (1) |"
    )
    assert line_of(shown, "fedavg ") == "| fedavg |  | 62.00 ± 2.00 (3) | 70.00 (1) |"
    assert line_of(shown, "fedcad_x ") == "| fedcad_x |  | 50.00 ± 1.00 (3)× | failed |"
    assert "\n- **bold** best mean\n- × excluded from being best: " in shown
    assert line_of(shown, "moon ") == f"| moon (+head) |  | {DASH} | **71.00 (1)** |"
    assert line_of(shown, "centralized ") == f"| centralized |  | 90.00 (1) | {DASH} |"
    assert len({line.count("|") for line in shown.splitlines() if line.startswith("|")}) == 1


def test_latex(out, capsys):
    assert compare(out, "--format", "latex", "--dataset", "cifar10") == 0
    shown = capsys.readouterr().out
    assert r"\begin{tabular}{llrrrr}" in shown
    assert (
        r" &  & \multicolumn{2}{c}{$\alpha$ = 0.1} & \multicolumn{2}{c}{$\alpha$ = 0.5} \\" in shown
    )
    assert r"\cmidrule(lr){3-4} \cmidrule(lr){5-6}" in shown
    assert line_of(shown, "fedgkd ").startswith(
        r"fedgkd & buffer=7 gamma=0.5 & \textbf{65.00 $\pm$ 0.00 (3)} & \textbf{64"
    )
    assert r"62.00 $\pm$ 2.00 (3) &" in line_of(shown, "fedavg ")
    assert r"50.00 $\pm$ 1.00 (3)$\times$" in line_of(shown, r"fedcad\_x")
    assert line_of(shown, r"fedcad\_x").endswith(r"& failed & failed \\")
    for rule in ("toprule", "midrule", "bottomrule"):
        assert shown.count("\\" + rule) == 1
    assert shown.isascii()
    assert not re.search(
        r"(?<!\\)[%_#]", shown.split("\n", 1)[1]
    )  # after the comment of the first line


def test_latex_sets_minus_and_degree_signs(tmp_path, capsys):
    store = Store(tmp_path)
    for seed in range(3):
        store.write(make_row("fedavg", seed=seed, best_accuracy=0.5), CURVE)
        worse = 0.4 + seed / 100
        store.write(make_row("ditto", {"lam": 1.5}, seed=seed, best_accuracy=worse), CURVE)
        store.write(make_row("fedbn", seed=seed, best_accuracy=0.5, personal=True), CURVE)
    assert compare(tmp_path, "--format", "latex", "--metric", "best", "--reference", "fedavg") == 0
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert r"50.00 $\pm$ 0.00 (3)$^\circ$" in shown
    assert "$-$9.00 [$-$11.48, $-$6.52] (3)" in shown
    assert "fedavg-" not in shown


def test_latex_sets_many_hyperparameters_below_each_other(tmp_path, capsys):
    Store(tmp_path).write(
        make_row("fedgkd", {"gamma": 0.25, "buffer": 7, "temperature": 3.0, "lr_decay": 0.9}), CURVE
    )
    assert compare(tmp_path, "--format", "latex") == 0
    cell = line_of(capsys.readouterr().out, "fedgkd ").split(" & ")[1]
    assert re.fullmatch(
        r"\\begin\{tabular\}\[t\]\{@\{\}l@\{\}\}buffer=7 [^\\]+ \\\\\{\} .*\\end\{tabular\}", cell
    )
    assert "temperature=3" in cell


def test_csv_has_fractions_and_missing_values(out, capsys):
    assert compare(out, "--format", "csv") == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(records) == 2 * (5 * 2 + 1)
    found = {(r["dataset"], r["algorithm"], r["alpha"], r["metric"]): r for r in records}
    fedavg = found["cifar10", "fedavg", "0.1", "best_accuracy"]
    assert float(fedavg["mean"]) == pytest.approx(0.62)
    assert (fedavg["n"], fedavg["rank"], fedavg["state"]) == ("3", "2", "value")
    assert fedavg["excluded"] == "False"
    assert found["cifar10", "fedcad_x", "0.1", "best_accuracy"]["excluded"] == "True"
    assert found["cifar10", "fedcad_x", "0.5", "best_accuracy"]["state"] == "failed"
    missing = found["cifar10", "moon", "0.1", "best_accuracy"]
    assert (missing["mean"], missing["n"], missing["state"]) == ("", "", "missing")
    assert found["cifar10", "centralized", "0.1", "best_accuracy"]["rank"] == ""
    assert {(record["lr"], record["batch_size"]) for record in records} == {("0.01", "64")}, (
        "the whole setting"
    )


@pytest.mark.parametrize("begin", ["=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1"])
def test_text_in_csv_is_no_formula(begin, tmp_path, capsys):
    setting = {"lr": 1e-05, "partition": f"{begin}p", "alpha": None}
    Store(tmp_path).write(
        make_row(f"{begin}fed", {f"{begin}mu": 0.1}, setting, final_accuracy=0.25), CURVE
    )
    assert compare(tmp_path, "--format", "csv", "--all-configurations") == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert [cell for cell in cells if cell.startswith("'") and cell.endswith("fed")]
    assert "1e-05" in cells


def test_numbers_in_csv_stay_numbers():
    assert (
        lines([{"a": -1.5, "b": "-1.5", "c": -3, "d": None, "+1+1": "+1e5"}])
        == "a,b,c,d,'+1+1\n-1.5,-1.5,-3,,+1e5\n"
    )


def test_markdown_has_no_html_of_names(tmp_path, capsys):
    evil = "<svg onload=x>`<b>`|"
    Store(tmp_path).write(make_row(evil, {evil: 0.1}, {"partition": evil, "alpha": None}), CURVE)
    Store(tmp_path).write(make_row(evil, {evil: 0.2}, {"partition": evil, "alpha": None}), CURVE)
    assert compare(tmp_path, "--format", "md", "--all-configurations") == 0
    printed = capsys.readouterr().out
    text = re.sub("`[^`]*`", "", printed)  # without code
    assert "&lt;svg" in text
    assert re.findall("<[^/>]*>", text) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "finale"], r"no metric 'finale' \(did you mean final\?\); known: best"),
        (
            ["--algo", "fedavgg"],
            r"no algorithm fedavgg .*there are: centralized, fedavg.*did you mean fedavg\?",
        ),
        (["--dataset", "cifar100"], r"no dataset cifar100 .*there are: cifar10, digits"),
        (["--alpha", "0.3"], r"no alpha 0.3 .*there are: 0.1, 0.5"),
        (["--alpha", "none"], r"no alpha none"),
        (["--alpha", "small"], r"alpha must be a number, or none, got 'small'"),
        (
            ["--dataset", "digits", "--alpha", "0.1"],
            r"no results .* with dataset digits, alpha 0.1 together",
        ),
        (["--board", "reference"], r"--board and --out"),
    ],
)
def test_a_wrong_request_ends_with_2(out, capsys, arguments, message):
    assert compare(out, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(message, shown.err)


@pytest.mark.parametrize("shipped", [True, False])
def test_a_board_brings_its_options(
    shipped: bool,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One of the package is known by its name; any other is a folder with a `board.toml`."""
    boards = tmp_path / "boards"
    shutil.copytree(out, boards / "own")
    (boards / "own" / "board.toml").write_text('options = ["--tuned=lr", "--chosen-by=best"]\n')
    if shipped:
        monkeypatch.setattr(board_folders, "BOARDS", boards)
    name = "own" if shipped else str(boards / "own")
    for more in ([], ["--alpha", "0.5"], ["--chosen-by", "last10"]):
        assert main(["--board", name, *more]) == 0
        printed = capsys.readouterr().out
        compare(out, "--tuned", "lr", "--chosen-by", "best", *more)
        assert printed == capsys.readouterr().out


def test_a_board_without_a_file_has_no_options(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(out, tmp_path / "plain")
    monkeypatch.setattr(board_folders, "BOARDS", tmp_path)
    assert main(["--board", "plain"]) == 0
    printed = capsys.readouterr().out
    compare(out)
    assert printed == capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('options = ["--to=/etc/passwd"]', "board.toml: options are of .*, got '--to=/etc/passwd'"),
        ('options = ["--confirm"]', "got '--confirm'"),
        ('options = ["--help"]', "got '--help'"),
        ('options = ["--tuned=lr", "fedgkd-4"]', "got 'fedgkd-4'"),
        ('options = ["--chosen-by=luck"]', "board.toml: argument --chosen-by: invalid choice"),
        ('option = ["--tuned=lr"]', "no entry of .*board.toml 'option' .did you mean options"),
        ('"options,metrics" = ["--tuned=lr"]', "no entry of .*board.toml 'options,metrics'"),
        ('"" = ["--tuned=lr"]', "no entry of .*board.toml ''"),
        ('metrics = "last10"', "board.toml: metrics is a list of texts, got 'last10'"),
        ("metrics = []", r"at least one and each once, got \[\]"),
        ('metrics = ["final", "final"]', "each once"),
        ("metrics = [1]", r"board.toml: metrics is a list of texts, got \[1\]"),
        ('metrics = ["last"]', "no metric 'last'"),
        ("metrics = [", "board.toml is no TOML file"),
        (None, "board.toml is missing"),
    ],
)
def test_a_wrong_board_file_is_refused(
    content: str | None, message: str, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(out, tmp_path / "own")
    if content is not None:
        (tmp_path / "own" / "board.toml").write_text(content)
    assert main(["--board", str(tmp_path / "own")]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_board_file_is_a_small_regular_one(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(out, tmp_path / "own")
    (tmp_path / "elsewhere").write_text('metrics = ["last10"]')
    (tmp_path / "own" / "board.toml").symlink_to(tmp_path / "elsewhere")
    assert main(["--board", str(tmp_path / "own")]) == 3
    assert "board.toml is a link" in capsys.readouterr().err
    (tmp_path / "own" / "board.toml").unlink()
    (tmp_path / "own" / "board.toml").write_text("#" * 70_000)
    assert main(["--board", str(tmp_path / "own")]) == 3
    assert "board.toml has more than 65,536 bytes" in capsys.readouterr().err


def test_a_boards_last_option_takes_no_words(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--confirmed` takes a list, which would go on with the name of the figure."""
    shutil.copytree(out, tmp_path / "own")
    (tmp_path / "own" / "board.toml").write_text('options = ["--confirmed"]\n')
    words = ["board-differences", "--board", str(tmp_path / "own"), "--to", str(tmp_path / "new")]
    assert draw(words) == 0
    assert "board-differences" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("p", "text"), [(0.0496, "0.0496"), (0.0504, "0.0504"), (0.123, "0.12"), (1.0, "1")]
)
def test_p_shows_its_side_of_5_percent(p, text):
    assert p_text(p) == text


def test_a_board_prints_its_own_metrics(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(out, tmp_path / "own")
    (tmp_path / "own" / "board.toml").write_text('metrics = ["last10", "selected"]\n')
    monkeypatch.setattr(board_folders, "BOARDS", tmp_path)
    printed = []
    for arguments in (["--board", "own"], ["--board", "own", "--metric", "best"]):
        assert main([*arguments, "--format", "csv"]) == 0
        rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
        printed.append({row["metric"] for row in rows})
    assert printed == [{"mean_last10_accuracy", "selected_accuracy"}, {"best_accuracy"}]


def test_what_has_no_confirming_run_is_no_unknown_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        Store(tmp_path).write(make_row("fedavg", {}, seed=seed), CURVE)
    Store(tmp_path).write(make_row("fedprox", {"mu": 0.1}), CURVE)
    assert compare(tmp_path, "--confirmed", "--algo", "fedprox") == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"no algorithm fedprox in the confirming runs of {tmp_path}; there are: fedavg" in error


def test_captions_name_the_rule_of_selection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mu in (0.1, 1.0):
        Store(tmp_path).write(make_row("fedprox", {"mu": mu}), CURVE)
    printed = []
    for arguments in ((), ("--chosen-by", "best")):
        assert compare(tmp_path, *arguments) == 0
        printed.append(" ".join(capsys.readouterr().out.split()))
    assert ", by the best round" not in printed[0]
    assert "by their mean over seeds, by the best round" in printed[1]


def test_each_column_is_compared_with_its_best(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dataset", "cifar10", "--metric", "best", "--reference", "best"]
    assert compare(out, *arguments, "--format", "csv") == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    found = {record["algorithm"]: record for record in records if record["alpha"] == "0.1"}
    assert found.keys() == {"fedavg", "fedgkd", "fedcad_x"}, "no reference row"
    differences = {name: float(record["difference"]) for name, record in found.items()}
    expected = {"fedgkd": 0.03, "fedavg": -0.03, "fedcad_x": -0.15}
    assert differences == pytest.approx(expected)
    assert {name for name, record in found.items() if record["excluded"] == "True"} == {"fedcad_x"}
    assert compare(out, *arguments) == 0
    shown = capsys.readouterr().out.partition("difference from the best of the others")[2]
    assert re.search(r"-15\.00 \[-\d+\.\d\d, \+0\.00\]×", line_of(shown, "fedcad_x "))
    assert compare(out, *arguments, "--over-cells", "--algo", "fedavg", "fedgkd") == 0
    assert "Over 2 cells" in capsys.readouterr().out


def test_defaults_stand_beside_what_was_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FedProx's default mu, 0.01, ran at the chosen rate; FedLSD's default weight, 0.3, at another one alone."""
    store = Store(tmp_path)
    runs = [
        ("fedprox", {"mu": 0.01, "prox_reduction": "sum"}, 0.1, 0.61),
        ("fedprox", {"mu": 0.01, "prox_reduction": "sum"}, 0.2, 0.66),
        ("fedprox", {"mu": 0.5, "prox_reduction": "sum"}, 0.1, 0.72),
        ("fedlsd", {"distillation_weight": 0.3}, 0.1, 0.40),
        ("fedlsd", {"distillation_weight": 0.1}, 0.2, 0.50),
        ("fedavg", {}, 0.1, 0.70),
    ]
    for algorithm, hyperparameters, lr, value in runs:
        results = dict.fromkeys(("best_accuracy", "mean_last10_val_accuracy"), value)
        row = make_row(algorithm, hyperparameters, {"lr": lr}, 0, **results)
        store.write(row, CURVE)
    arguments = ("--tuned", "lr", "--metric", "best")
    assert compare(tmp_path, *arguments) == 0
    shown = capsys.readouterr().out
    assert line_of(shown, "algorithm ").split()[-3:] == ["best", "at", "defaults"]
    assert line_of(shown, "fedprox ").split()[-4:] == ["72.00", "(1)*", "61.00", "(1)"]
    assert line_of(shown, "fedlsd ").split()[-3:] == ["50.00", "(1)", DASH]
    assert line_of(shown, "fedavg ").endswith("as chosen")
    assert "at defaults: best with the default hyper-parameters" in shown
    assert compare(tmp_path, *arguments, "--format", "csv") == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    own = [r for r in records if r["at_defaults"] == "True"]
    assert [(r["algorithm"], r["mean"], r["rank"]) for r in own] == [("fedprox", "0.61", "")]
    assert compare(tmp_path, *arguments, "--all-configurations") == 0
    assert "at defaults" not in capsys.readouterr().out, "they have rows of their own"
    assert compare(tmp_path, *arguments, "--reference", "fedavg") == 0
    assert "at defaults" not in capsys.readouterr().out.partition("difference from")[2]
