"""What a plan refuses, notes and states of the origin of its values: in whole sentences."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from algorithms import ALGORITHMS, entry
from bench.errors import UsageError
from bench.planning import given, run_spec, table_plan, tables
from bench.planning.given import names_of_paths, with_named_data
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, row_names, trained_by
from bench.planning.single_run import run_spec_of
from bench.planning.tables import places_of, table_of
from search_spaces import Grid, Setting

RATES = {"lr": ("0.05", "0.1", "0.2")}
OWN_SAMPLES = {"local_test_fraction": ("0.25",), "local_validation_fraction": ("0.1",)}
NO_VALIDATION = {"validation_fraction": ("0",)}
BUDGET = "--budget draws configurations itself, or has Optuna choose them, and runs all of them: "
STAGES = "--tuning two-stage begins with the learning rates of --lr, at least two and fewer than "
TOO_FEW = (
    "fedavg has only 2 configurations with these learning rates, not 4: lower --budget, give more "
    "values, or leave --lr out so that it is drawn"
)
SMALL_BATCH = (
    "fedbn has BatchNorm (mlp+bn), which takes statistics over a batch: batch_size must be > 1, "
    "got 1"
)
NO_TEST_SET = "selecting on the test set is not supported; set validation_fraction above 0"
KEEP_SAMPLES = (
    "--select-on clients needs clients that keep samples to select on, got "
    "local_validation_fraction=0: --set local_test_fraction=0.25 local_validation_fraction=0.1"
)


def plan(names: str, **options: Any) -> Plan:
    """The plan of some algorithms on the digits, unless options say otherwise."""
    return make_plan(SweepOptions(tuple(names.split(",")), **options))


@pytest.mark.parametrize(
    ("names", "options", "problem"),
    [
        ("all,fedavg", {}, "--algo all stands alone: name the algorithms, or all of them"),
        ("fedavg,fedprox,fedavg", {}, "--algo names an algorithm twice: fedavg"),
        (
            "fedavg",
            {"values": {"dataset": ("mnist",)}},
            "the data set decides whose setting is used: give it as --dataset, not with --set",
        ),
        ("fedavg", {"paper": "fedcat"}, "no paper 'fedcat' (did you mean fedcad?); known: fedcad"),
        ("fedavg", {"budget": 4, "search": "random"}, f"{BUDGET}leave out --search random"),
        ("fedavg", {"budget": 4, "scheduler": "asha"}, f"{BUDGET}leave out --scheduler"),
        (
            "fedavg",
            {"budget": 4, "search": "random", "scheduler": "asha"},
            f"{BUDGET}leave out --search random and --scheduler",
        ),
        (
            "fedavg",
            {"budget": 4, "tuning": "two-stage", "search": "optuna"},
            "--tuning two-stage divides the configurations of --budget: give --budget 6, without ",
        ),
        (
            "fedavg",
            {"budget": 3, "tuning": "two-stage", "values": RATES},
            f"{STAGES}the 3 configurations of --budget; got 3 rates",
        ),
        (
            "fedavg",
            {"budget": 6, "tuning": "two-stage", "values": {"lr": ("0.1",)}},
            f"{STAGES}the 6 configurations of --budget; got 1 rate",
        ),
        (
            "fedavg",
            {"budget": 4, "tuning": "two-stage", "values": {"lr": ("0.1", "0.101")}},
            "--budget 4: fedavg has 1 own configuration, and only 1 other learning rate can be "
            "told apart near one of --lr: give at most --budget 3, or rates that are further apart",
        ),
        ("fedavg", {"budget": 4, "values": {"lr": ("0.1", "0.2")}}, TOO_FEW),
        ("fedavg", {"budget": 4, "search": "optuna", "values": {"lr": ("0.1", "0.2")}}, TOO_FEW),
        (
            "fedavg",
            {"budget": 4, "values": {"lr": ("fast",)}},
            "--lr fast: could not convert string to float: 'fast'",
        ),
        ("fedavg", {"replicates": {"fedprox": 2}}, "no algorithm for --replicates 'fedprox'; "),
        (
            "fedavg",
            {"replicates": {"fedavg": 2}, "seeds": 1001},
            "--replicates needs seeds below 1000, got 1000: they number the partitions",
        ),
        (
            "fedavg",
            {"replicates": {"fedavg": 2}, "search": "optuna"},
            "--replicates are runs of configurations that are known: leave out --search optuna",
        ),
        ("fedprox", {"values": {"mu": ("x",)}}, "fedprox.mu must be a number, got 'x'"),
        (
            "fedprox",
            {"values": {"lr": ("x",)}, "origins": {"lr": "a file"}},
            "lr must be a number, got 'x' (from a file)",
        ),
        (
            "fedcad,fedavg",
            {"values": {"fedcad.gama": ("1",)}},
            "no setting field or hyper-parameter of fedcad, fedavg 'gama' (did you mean gamma?); ",
        ),
        (
            "fedcad,fedavg",
            {"values": {"fedcad.lr": ("1",)}, "origins": {"fedcad.lr": "a file"}},
            "lr is a field of the setting, the same for all algorithms, not a hyper-parameter of "
            "fedcad: give lr alone (from a file)",
        ),
        ("fedbn", {"values": {"batch_size": ("1",)}}, SMALL_BATCH),
        (
            "fedavg,fedbn",
            {"values": {"batch_size": ("1",)}},
            f"{SMALL_BATCH}; leave fedbn out with --algo fedavg",
        ),
        ("fedavg", {"select_on": "clients"}, KEEP_SAMPLES),
        (
            "fedavg",
            {
                "select_on": "clients",
                "values": OWN_SAMPLES | {"local_validation_fraction": ("0", "0.1")},
            },
            KEEP_SAMPLES,
        ),
        (
            "fedavg",
            {"scheduler": "asha", "values": {"evaluate_personal": ("last",)}},
            "--scheduler asha compares runs before their last round, and evaluate_personal=last "
            "measures clients' own models on the server's samples in that alone: select on clients "
            "(local_validation_fraction > 0), or leave out one",
        ),
        (
            "fedavg",
            {"scheduler": "asha", "values": NO_VALIDATION},
            "--scheduler asha compares validation accuracies: set validation_fraction above 0",
        ),
        (
            "fedcad",
            {"values": NO_VALIDATION},
            "fedcad has 8 configurations to choose among and validation_fraction is 0: "
            f"{NO_TEST_SET}, or give one value to each of beta, gamma",
        ),
        (
            "fedprox",
            {"values": {**NO_VALIDATION, "mu": ("0.1", "1")}},
            "fedprox has 2 configurations to choose among and validation_fraction is 0: "
            f"{NO_TEST_SET}, or give one value to each of mu",
        ),
        (
            "fedavg",
            {"dataset": "cifar10", "paper": "fedgkd", "values": NO_VALIDATION},
            "fedavg has 3 configurations to choose among and validation_fraction is 0: "
            f"{NO_TEST_SET}, or give one value to each of lr",
        ),
        (
            "fedavg",
            {"budget": 2, "values": NO_VALIDATION},
            f"--budget 2 chooses among configurations and validation_fraction is 0: {NO_TEST_SET}",
        ),
    ],
)
def test_a_plan_is_refused_in_words(names: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(names, **options)
    assert str(refused.value).startswith(problem)
    assert str(refused.value) == problem or problem.endswith((" ", "known: fedcad"))


@pytest.mark.parametrize(
    ("name", "origin", "ignored"),
    [
        ("fedgkd.gamma", "command line", False),
        ("fedgkd.gamma", "a file", True),
        ("fedgkd.nothing", "a file", False),
        ("nobody.gamma", "a file", False),
        ("nothing", "a file", False),
    ],
)
def test_a_file_may_name_algorithms_left_out(name: str, origin: str, ignored: bool) -> None:
    options = {"values": {name: ("1",)}, "origins": {name: origin}}
    if ignored:
        assert plan("fedcad", **options).run_specs == plan("fedcad").run_specs
    else:
        with pytest.raises(UsageError, match=f"no setting field or .* '{name}'"):
            plan("fedcad", **options)


def test_one_run_has_a_seed() -> None:
    assert run_spec_of("fedavg", {"seed": 0}).seed == 0
    with pytest.raises(UsageError, match=r"^seed must be >= 0, got -1$"):
        run_spec_of("fedavg", {"seed": -1})


def test_rows_after_further_steps_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(entry("fedavg"), rows={"": "fedavg", "_ft": "fedavg_own"})
    monkeypatch.setitem(ALGORITHMS, "fedavg", own)
    assert row_names("fedavg", Setting()) == own.rows
    with pytest.raises(UsageError) as refused:
        row_names("fedavg", Setting(finetune_steps=2))
    assert str(refused.value) == (
        "finetune_steps adds a row _ft, which fedavg has as its own: rename that, or leave out "
        "finetune_steps"
    )


@pytest.mark.parametrize(
    ("versions", "joined"),
    [({}, None), ({"cnn_digits": 7}, "/7"), ({"mlp": 0, "cnn_digits": 7}, "0/7")],
)
def test_versions_of_clients_models_are_joined(
    versions: dict[str, int], joined: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_spec, "_version_of", lambda name, setting: versions.get(name))
    setting = Setting(client_models="mlp/cnn_digits")
    assert run_spec.client_models_version(setting) == joined


@pytest.mark.parametrize(
    ("printed", "values", "varies"),
    [
        ({"a": {5, 10}}, (5,), True),
        ({"a": {5, 10}}, (5, 10), True),
        ({"a": {5, 10}}, (5, 7), False),
        ({"a": {5}}, (5,), False),
        ({"a": {5, 10}, "b": {10}}, (10,), False),
    ],
)
def test_a_table_may_vary_local_epochs(
    printed: dict[str, set[int]], values: tuple[int, ...], varies: bool
) -> None:
    places: list[Any] = []
    for dataset, counts in printed.items():
        for epochs in counts:
            cell = SimpleNamespace(dataset=dataset, local_epochs=epochs)
            places.append(SimpleNamespace(printed=cell))
    assert table_plan._varies_epochs(places, Grid(*values)) == varies


def test_a_printed_number_has_a_setting() -> None:
    place = places_of("fedgkd", "9")[0]
    _, table = table_of("fedgkd", "9")
    foreign: Any = replace(place.printed, alpha=7.0)
    with pytest.raises(LookupError, match=r"^table 9 has no setting of "):
        tables._setting_of(foreign, table)


def test_nothing_to_run_has_its_reasons() -> None:
    options = SweepOptions(("all",), values={"optimizer": ("adam",)})
    others = {name: "more" for name in ALGORITHMS if name != "qffl"}
    with pytest.raises(UsageError) as refused:
        make_plan(options, left_out=others)
    text = str(refused.value)
    assert text.startswith("nothing to run: left out: each of fedavg, fedprox, ")
    assert " local needs more; " in text
    assert text.endswith(
        "; left out: qffl needs SGD, not adam: add --set optimizer=sgd nesterov=false"
    )


CLIENTS = (
    "configurations are selected and ranked on the clients' own samples "
    "(local_validation_fraction > 0); --select-on global selects on the server's"
)


@pytest.mark.parametrize(
    ("names", "options", "notes"),
    [
        ("fedavg", {"values": NO_VALIDATION}, ()),
        ("fedavg", {"values": NO_VALIDATION, "budget": 1}, ()),
        ("fedavg", {"replicates": {"fedavg": 2}, "seeds": 1000}, ()),
        ("fedavg", {"replicates": {"fedavg": 2}, "confirm": (999,)}, ()),
        ("fedavg", {"values": OWN_SAMPLES}, (CLIENTS,)),
        ("fedavg", {"values": OWN_SAMPLES, "select_on": "global"}, ()),
        (
            "fedavg",
            {"values": OWN_SAMPLES | {"evaluate_personal": ("last",)}, "scheduler": "asha"},
            (CLIENTS,),
        ),
        (
            "fedavg",
            {"dataset": "cifar10", "paper": "fedgkd"},
            (
                "fedavg: lr is selected among {0.1, 0.05, 0.01}, as fedgkd tuned it; --set "
                "lr=0.05 runs the value that it reports with",
            ),
        ),
        (
            "fedavg",
            {"budget": 4, "tuning": "two-stage", "values": RATES, "replicates": {"fedavg": 2}},
            ("--replicates are of the runs that --confirm reports; tuning has none",),
        ),
        (
            "fedavg,fedavg_t1",
            {},
            ("fedavg: its runs are part of fedavg_t1's and are not repeated",),
        ),
        (
            "fedprox,fedprox_t1",
            {"values": {"fedprox.mu": ("0.1", "1"), "fedprox_t1.mu": ("0.1",)}},
            ("fedprox: some of its runs are part of fedprox_t1's and are not repeated",),
        ),
        (
            "fedcad",
            {"values": {"beta": ("0", "0.5", "0.9"), "gamma": ("0.3", "0.7")}},
            ("fedcad: 3 of 6 combinations break beta <= gamma: left out",),
        ),
        (
            "fedprox_t1,fedprox",
            {"values": {"fedprox_t1.mu": ("0.5", "0.7")}, "budget": 2},
            (
                "fedprox gets more tries than others: runs of fedprox_t1 are tries of fedprox, "
                "too, and their values are chosen apart",
            ),
        ),
    ],
)
def test_a_plan_says_what_it_did(
    names: str, options: dict[str, Any], notes: tuple[str, ...]
) -> None:
    assert plan(names, **options).notes == notes


def test_replicates_follow_their_runs() -> None:
    made = plan("fedavg", replicates={"fedavg": 2}, seeds=1000).run_specs
    assert [run.seed for run in made[:4]] == [0, 1000, 1, 1001]
    assert len(made) == 2000


@pytest.mark.parametrize(
    ("options", "origins", "rates"),
    [
        ({"budget": 1}, {"lr": "--budget 1, within a factor of 10 of 0.1"}, [0.1]),
        (
            {"budget": 2, "values": {"lr": ("0.2", "0.2", "0.3")}},
            {"lr": "command line"},
            [0.2, 0.3],
        ),
        ({"values": {"lr": ("0.2",)}, "origins": {"lr": "a file"}}, {"lr": "a file"}, [0.2]),
    ],
)
def test_rates_state_their_origin(
    options: dict[str, Any], origins: dict[str, str], rates: list[float]
) -> None:
    made = plan("fedavg", **options)
    assert made.origins == origins
    assert [run.setting.lr for run in made.run_specs] == rates
    assert made.tuned == (("lr",) if "budget" in options else ())


def test_a_search_states_its_source() -> None:
    values = {"lr": ("0.1",), "mu": ("1", "2")}
    made = plan("fedprox,fedcad", search="optuna", values=values, budget=2)
    sources = [search.source for search in made.searches]
    own = "our own choice for the embedded data"
    assert sources == [f"{own}; given: mu", own]
    texts = {name: str(grid) for name, grid in made.searches[0].values.items()}
    assert texts == {"mu": "{1, 2}", "prox_reduction": "{sum}"}
    assert {search.paper for search in made.searches} == {"fedkd"}


def test_shorter_runs_than_the_preset() -> None:
    made = plan("fedavg", values={"rounds": ("19", "20", "21")})
    assert [run.shortened for run in made.run_specs] == [True, False, False]


# Own files


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What is asked of files, which all have names by content."""
    asked: list[tuple[str, ...]] = []

    def name(*words: str) -> str:
        asked.append(words)
        kind, _, path = words[0].partition(":")
        return f"{kind}@{path}"

    monkeypatch.setattr(given.data, "named", name)
    monkeypatch.setattr(given.data, "info", lambda name: INFO)
    return asked


INFO = given.data.info("digits")


def test_a_label_is_of_tables(named: list[tuple[str, ...]]) -> None:
    both = names_of_paths(["folder:a", "csv:b", "folder:a"], "kind")
    assert both == {"folder:a": "folder@a", "csv:b": "csv@b"}
    assert named == [("folder:a",), ("csv:b", "kind")]
    names_of_paths(["folder:a"], "kind")
    assert named[2:] == [("folder:a", "kind")], "which refuses it"


def test_own_files_are_named_by_content(named: list[tuple[str, ...]]) -> None:
    values = {"label": ("kind",), "public": ("folder:p:5", "mnist:7"), "lr": ("1",)}
    notes: list[str] = []
    options = with_named_data(SweepOptions(dataset="csv:t", values=values), notes)
    assert options.dataset == "csv@t"
    assert options.values == {"public": ("folder@p:5", "mnist:7"), "lr": ("1",)}
    facts = "1,438 training and 359 test samples, images of 1x8x8, 10 classes"
    assert notes == [f"csv@t is csv:t: {facts}", f"folder@p is folder:p: {facts}"]
    assert named == [("csv:t", "kind"), ("folder:p",)]


def test_other_data_keep_their_names(named: list[tuple[str, ...]]) -> None:
    plain = SweepOptions(dataset="digits", values={"label": ("kind",), "public": ("mnist:7",)})
    assert with_named_data(plain, []) is plain
    only_public = SweepOptions(dataset="digits", values={"public": ("folder:p:5",)})
    assert with_named_data(only_public, []).dataset == "digits"
    several = SweepOptions(dataset="csv:t", values={"label": ("a", "b")}, origins={"label": "f"})
    with pytest.raises(UsageError) as refused:
        with_named_data(several, [])
    assert str(refused.value) == "label takes the name of one column, got a, b (from f)"


# One run


def test_a_run_has_a_label_and_a_name() -> None:
    values = entry("fedcad").resolve({"beta": 0.0})
    run = RunSpec("fedcad", values, Setting(), 3)
    assert run.label.startswith("fedcad beta=0 gamma=0.7 ")
    assert run.label.endswith(" seed 3")
    assert run.named_by["algorithm"] == "fedcad"
    assert run.named_by["seed"] == 3


@pytest.mark.parametrize(
    ("row", "setting", "algorithm"),
    [
        ("fedavg", "{}", "fedavg"),
        ("fedavg_ft", '{"finetune_steps": 2}', "fedavg"),
        ("fedproto_proto_ft", '{"finetune_steps": 2}', "fedproto"),
        ("fedproto_proto", "{}", "fedproto"),
    ],
)
def test_a_row_is_of_an_algorithms_run(row: str, setting: str, algorithm: str) -> None:
    assert trained_by(row, setting) == algorithm


def test_one_note_names_all_left_out_for_a_reason() -> None:
    values = {"client_models": ("mlp/cnn_digits",)}
    plan = make_plan(SweepOptions(("all",), dataset="digits", values=values))
    notes = [note for note in plan.notes if "combines the weights" in note]
    assert len(notes) == 1
    assert notes[0].startswith("left out: each of fedavg, fedprox, ")


@pytest.mark.parametrize(("algorithm", "has_effect"), [("fedavg", False), ("fedmd", True)])
def test_unused_public_samples_are_noted(algorithm: str, has_effect: bool) -> None:
    values = {"public": ("mnist:200",), "image_size": ("resize32",), "model": ("lenet5",)}
    plan = make_plan(SweepOptions((algorithm,), dataset="digits", values=values))
    note = "public has no effect: none of the algorithms uses public samples"
    assert (note not in plan.notes) == has_effect
