"""Accuracy on samples that clients keep, after further steps, of clients that never train."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make

from algorithms import entry
from algorithms.base import Params
from bench.data.splits import split
from bench.engine.client_round import draw_schedule
from bench.engine.client_scores import spread
from bench.engine.evaluate import Evaluator
from bench.engine.rng import stream
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.engine.together import advance_together
from bench.errors import Interrupted
from bench.selftest.toy import INFO, TINY, gap, identical, supplied, toy_dataset
from search_spaces import Setting

OWN = {"local_test_fraction": 0.25, "local_validation_fraction": 0.2}
CLIENTS = {"partition": "iid", "alpha": None, "num_clients": 5, **OWN}


def simulate(
    algorithm: str,
    backend: str = "loop",
    folder: Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    **fields: Any,
) -> Simulation:
    """A run on the toy data, dealt to clients that keep samples of their own."""
    setting = replace(TINY, **{**CLIENTS, **fields})
    setting = replace(setting, model=supplied(setting.model, entry(algorithm).needs))
    dataset = toy_dataset()
    shares = split(setting, dataset.train_y, seed)
    states = StateFolder(folder) if folder else None
    return Simulation(
        make(algorithm), setting, seed, dataset, INFO, shares, device, backend, folder=states
    )


def trained(algorithm: str, backend: str = "loop", rounds: int = 2, **fields: Any) -> Simulation:
    run = simulate(algorithm, backend, **fields)
    run.advance(rounds)
    return run


def values_at(run: Simulation, round: int, suffix: str = "") -> dict[str, float]:
    points = run.progress.curves[suffix]
    return {name: value for at, name, value in points if at == round}


def own_accuracies(run: Simulation, models: dict[int, Params], parts: Any) -> np.ndarray:
    """Accuracies of models on their clients' samples, one client after another."""
    shares = []
    for client, model in models.items():
        samples = run.federation.data(parts[client])
        right = run.net.eval(model, samples.x).logits.argmax(1) == samples.y
        shares.append(right.double().mean().item())
    return np.array(shares)


# The split


def test_clients_keep_at_least_one_sample_of_each_kind_or_none() -> None:
    labels = np.arange(400) % 4
    setting = Setting(alpha=None, partition="iid", num_clients=7, **OWN)
    shares = split(setting, labels, 0)
    whole = split(replace(setting, **dict.fromkeys(OWN, 0.0)), labels, 0)
    alone = split(replace(setting, local_validation_fraction=0.0), labels, 0)
    for client, samples in enumerate(whole.clients):
        tests = shares.local_tests[client]
        validation = shares.local_validations[client]
        assert len(tests) == math.floor(0.25 * len(samples) + 0.5)
        assert len(validation) == math.floor(0.2 * len(samples) + 0.5)
        together = np.concatenate([shares.clients[client], tests, validation])
        assert np.array_equal(np.sort(together), samples)
        assert np.array_equal(tests, alone.local_tests[client]), "whatever else is kept"
    few = split(replace(setting, num_clients=200), labels, 0)  # two samples each
    assert all(map(len, few.clients))
    assert not any(map(len, few.local_tests + few.local_validations))
    small = split(replace(setting, num_clients=130), labels, 0)  # three or four
    assert {len(kept) for kept in small.local_validations} == {1}
    assert {len(kept) for kept in small.local_tests} == {1}


def test_a_split_without_own_validation_has_the_hash_it_had() -> None:
    setting = Setting(alpha=None, partition="iid", local_test_fraction=0.25)
    assert split(setting, np.arange(400) % 4, 0).hash == (
        "cf14893376b2a9bd13a9106cacb32ef2909cd44719c6c1a52cc30861f8368d62"
    )
    assert "local_validation_fraction" not in setting.as_dict()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"local_validation_fraction": 0.1}, "local_test_fraction"),
        ({"local_test_fraction": 0.6, "local_validation_fraction": 0.4}, "local_test_fraction"),
        ({"new_clients": 0.2}, "local_test_fraction"),
        ({"new_clients": 0.96, "local_test_fraction": 0.2}, "new_clients"),
        ({"finetune_steps": -1}, "finetune_steps"),
        ({"evaluate_personal": "never"}, "evaluate_personal"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Setting(**fields)


# Every evaluated round


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("algorithm", ["fedavg", "local", "fedbn", "centralized"])
def test_every_round_has_the_accuracies_on_clients_own_samples(
    algorithm: str, backend: str
) -> None:
    run = simulate(algorithm, backend)
    for round in range(1, 4):
        run.advance()
        row = run.algorithm.evaluated(run.server)[""]
        models = {client: run.local_model(row, client) for client in range(5)}
        accuracies = own_accuracies(run, models, run.federation.local_tests)
        validation = own_accuracies(run, models, run.federation.local_validations)
        sizes = np.array(list(map(len, run.federation.local_tests)))
        held_out = np.array(list(map(len, run.federation.local_validations)))
        values = values_at(run, round)
        expected = {
            "amp": accuracies @ sizes / sizes.sum(),
            "client_mean": accuracies.mean(),
            "client_std": accuracies.std(),
            "client_worst10": accuracies.min(),
            "client_val_accuracy": validation @ held_out / held_out.sum(),
        }
        assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_the_worst_tenth_is_rounded_up_to_whole_clients() -> None:
    accuracies = [0.9, 0.1, 0.3, 0.8, 0.7, 0.6, 0.5, 0.4, 0.8, 0.9, 1.0]
    assert spread(accuracies)["worst10"] == pytest.approx(0.2)
    assert spread(accuracies[:10])["worst10"] == pytest.approx(0.1)
    assert spread(accuracies)["std"] == pytest.approx(np.std(accuracies))


@pytest.mark.parametrize("algorithm", ["local", "fedbn"])
@pytest.mark.parametrize("model", ["mlp", "cnn_digits"])
def test_models_side_by_side_score_as_one_by_one(algorithm: str, model: str) -> None:
    run = trained(algorithm, model=model)
    models = run.models_of("")
    evaluator = Evaluator(run.net, run.federation, 5, lambda client: run.net)
    one_by_one = evaluator.personal(models)
    stacked = replace(evaluator, stacked=True, known={})
    together = stacked.personal(models)
    assert together.own == one_by_one.own
    for score, other in zip(together.scores, one_by_one.scores, strict=True):
        assert torch.equal(score.right, other.right)
        assert score.loss == pytest.approx(other.loss, abs=1e-12)
        assert score.val_accuracy == other.val_accuracy
    known = {client: stacked.known[client] for client in (1, 2, 4)}
    again = replace(stacked, known=known).personal(models)
    losses = [score.loss for score in together.scores]
    assert [score.loss for score in again.scores] == losses, "whichever are known, to the last bit"


@pytest.mark.parametrize(
    ("algorithm", "all_again"), [("local", False), ("fd", False), ("lg_fedavg", True)]
)
def test_only_models_that_may_have_changed_are_measured_again(
    algorithm: str, all_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FD's message changes no model; LG-FedAvg's replaces the head of each."""
    measured: list[int] = []
    measure = Evaluator._measure_own

    def noted(self: Evaluator, members: Mapping[int, Params]) -> None:
        measured.extend(members)
        measure(self, members)

    monkeypatch.setattr(Evaluator, "_measure_own", noted)
    run = trained(algorithm, rounds=1, participation=0.4)
    assert sorted(measured) == list(range(5)), "the first round"
    measured.clear()
    run.advance(1)
    assert sorted(measured) == (list(range(5)) if all_again else sorted(run.participants(2)))


def test_the_test_set_may_wait_for_the_last_round() -> None:
    every, last = (trained("local", rounds=4, evaluate_personal=when) for when in ("every", "last"))
    assert [at for at, name, _ in last.progress.curves[""] if name == "accuracy"] == [4]
    assert values_at(every, 4) == values_at(last, 4)
    own = [point for point in every.progress.curves[""] if point[1] == "amp"]
    assert own == [point for point in last.progress.curves[""] if point[1] == "amp"]
    whole = trained("fedavg", rounds=4, evaluate_personal="last")
    assert len([name for _, name, _ in whole.progress.curves[""] if name == "accuracy"]) == 4


# Further local steps


def further_steps(run: Simulation, model: Params, client: int, steps: int) -> Params:
    """SGD on the cross entropy, step by step, on the batches of the stream that is for it."""
    setting = run.setting
    federation = run.federation
    seed = stream(run.seed, "finetune").initial_seed()
    sizes = list(map(len, federation.clients))
    rule = replace(setting, local_epochs=steps, step_rule="batches")
    schedule = draw_schedule(stream(seed, "order", run.round, client), rule, sizes, client)
    samples = federation.data(federation.clients[client])
    params = {name: value.clone().requires_grad_() for name, value in model.items()}
    rate = setting.lr * setting.lr_decay ** (run.round - 1)
    momenta = dict.fromkeys(params, 0.0)
    for positions, size in zip(schedule.positions, schedule.sizes, strict=True):
        batch = positions[:size]
        loss = F.cross_entropy(run.net(params, samples.x[batch]).logits, samples.y[batch])
        grads = torch.autograd.grad(loss, list(params.values()))
        for (name, value), grad in zip(list(params.items()), grads, strict=True):
            momenta[name] = setting.momentum * momenta[name] + grad
            params[name] = (value - rate * momenta[name]).detach().requires_grad_()
    return {name: value.detach() for name, value in params.items()}


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_rows_after_further_steps_are_of_models_trained_so(algorithm: str) -> None:
    fields = {"momentum": 0.5, "lr_decay": 0.9}
    run = trained(algorithm, finetune_steps=3, **fields)
    row = run.algorithm.evaluated(run.server)[""]
    models = {}
    for client in range(5):
        models[client] = further_steps(run, run.local_model(row, client), client, 3)
    accuracies = own_accuracies(run, models, run.federation.local_tests)
    sizes = np.array(list(map(len, run.federation.local_tests)))
    values = values_at(run, 2, "_ft")
    assert values["amp"] == pytest.approx(accuracies @ sizes / sizes.sum(), abs=1e-12)
    losses = []
    test = run.federation.test
    for model in models.values():
        losses.append(
            F.cross_entropy(run.net.eval(model, test.at(slice(0, 30))).logits, test.labels)
        )
    assert values["loss"] == pytest.approx(torch.stack(losses).mean().item(), abs=1e-10)
    before = trained(algorithm, **fields)
    assert run.progress.curves[""] == before.progress.curves[""], "nothing else changes"
    assert run.progress.traffic == before.progress.traffic


@pytest.mark.parametrize("algorithm", ["fedavg", "fedbn", "scaffold", "fedgkd_t1"])
def test_backends_agree_on_rows_after_further_steps(algorithm: str) -> None:
    options = {"finetune_steps": 2, "new_clients": 0.2}
    loop, stacked = (trained(algorithm, backend, **options) for backend in ("loop", "stacked"))
    assert set(loop.progress.curves) == set(stacked.progress.curves)
    for suffix, points in loop.progress.curves.items():
        for (at, name, value), point in zip(points, stacked.progress.curves[suffix], strict=True):
            assert (at, name) == point[:2]
            assert value == pytest.approx(point[2], abs=1e-10)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_run_that_is_resumed_equals_one_that_was_not(backend: str, tmp_path: Path) -> None:
    options = {"finetune_steps": 2, "new_clients": 0.2, "participation": 0.5}
    whole = trained("local", backend, rounds=4, **options)
    first = trained("local", backend, folder=tmp_path, **options)
    first.save()
    again = simulate("local", "auto", tmp_path, **options)
    assert again.load()
    again.advance(2)
    assert identical(again, whole)


def test_members_of_a_pack_have_the_rows_of_lone_runs() -> None:
    options = {"finetune_steps": 2, "new_clients": 0.2}
    alone = [trained("fedavg", seed=seed, **options) for seed in (0, 1)]
    pack = [simulate("fedavg", "loop", seed=seed, **options) for seed in (0, 1)]
    assert not advance_together(pack, 2)
    assert all(identical(one, other) for one, other in zip(alone, pack, strict=True))


def test_further_steps_are_given_up_when_the_sweep_stops() -> None:
    run = simulate("fedavg", finetune_steps=2)
    trained_before: list[int] = []

    def stopping() -> None:
        if trained_before:
            raise Interrupted("stopping")

    run.federation.before_chunk = stopping
    run._finetuning.federation.before_chunk = stopping
    finetuned = run.finetuned

    def counted(models: Any, problem: Any, clients: Any) -> list[Params]:
        result = finetuned(models, problem, clients)
        trained_before.extend(clients)
        return result

    run.finetuned = counted  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        run.advance()
    assert len(trained_before) == 1, "of five"


# Clients that never train


def test_new_clients_never_train_and_start_from_the_message() -> None:
    run = trained("fedbn", rounds=4, new_clients=0.4, finetune_steps=2)
    assert run.fed.num_clients == len(run.federation.clients) == 3
    assert set(run.memories) <= {0, 1, 2}
    row = run.algorithm.evaluated(run.server)[""]
    start = simulate("fedbn", new_clients=0.4)
    (initial,) = start.fed.initial.values()
    models = {client: run.local_model(row, client) for client in (3, 4)}
    for model in models.values():
        assert all(torch.equal(model[name], row[name]) for name in row)
        personal = set(model) - set(row)
        assert personal
        assert all(torch.equal(model[name], initial[name]) for name in personal)
    accuracies = own_accuracies(run, models, run.federation.local_tests)
    values = values_at(run, 4)
    assert values["new_client_mean"] == pytest.approx(accuracies.mean(), abs=1e-12)
    assert [values[f"client_accuracy/{client}"] for client in (3, 4)] == list(accuracies)
    trained_models = {client: run.local_model(row, client) for client in range(3)}
    trained_accuracies = own_accuracies(run, trained_models, run.federation.local_tests)
    assert values["client_mean"] == pytest.approx(trained_accuracies.mean(), abs=1e-12)
    assert {"new_client_accuracy", "client_mean"} <= values_at(run, 4, "_ft").keys()


def test_pooled_data_leave_out_those_of_new_clients() -> None:
    run = trained("centralized", new_clients=0.4, finetune_steps=1)
    all_clients = split(run.setting, toy_dataset().train_y, 0).clients
    assert run.federation.sizes == (sum(map(len, all_clients[:3])),)
    assert {"client_accuracy/4"} <= values_at(trained("centralized", rounds=4), 4).keys()
    assert len(run._finetuning.federation.clients) == 5
    assert "new_client_mean" in values_at(run, 2, "_ft")
    assert run.personal == {"_ft"}, "one model is everyone's"
    last = trained("centralized", rounds=2, evaluate_personal="last")
    assert [at for at, name, _ in last.progress.curves[""] if name == "accuracy"] == [1, 2]


# Clients with models of their own


UNLIKE = {"model": "mlp", "client_models": "mlp/cnn_digits", "precision": "fp64"}


def test_unlike_models_are_measured_on_their_clients_samples() -> None:
    run = trained("local", rounds=2, finetune_steps=2, new_clients=0.4, **UNLIKE)
    values = values_at(run, 2)
    networks = [run.net_of("", client) for client in range(5)]
    assert networks[0] is networks[2] is not networks[1]
    accuracies = []
    for client in range(3):
        model = run.local_model({}, client)
        samples = run.federation.data(run.federation.local_tests[client])
        right = networks[client].eval(model, samples.x).logits.argmax(1) == samples.y
        accuracies.append(right.double().mean().item())
    assert values["client_mean"] == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert "new_client_mean" in values_at(run, 2, "_ft")


@pytest.mark.parametrize("suffix", ["", "_ft"])
def test_unlike_models_are_evaluated_alike_by_both_backends(suffix: str) -> None:
    fields = {**UNLIKE, "finetune_steps": 2}
    one_by_one = trained("local", rounds=2, **fields)
    stacked = trained("local", "stacked", rounds=2, **fields)
    expected = values_at(one_by_one, 2, suffix)
    values = values_at(stacked, 2, suffix)
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_the_servers_own_model_takes_further_steps(backend: str) -> None:
    fields = {**UNLIKE, "client_models": "cnn_digits/mlp+bn", "finetune_steps": 2}
    run = trained("dsfl", backend, **fields)
    (tuned,) = run.models_of("_server_ft")([1])
    assert gap(tuned, further_steps(run, run.server.params, 1, 2)) < 1e-12


def test_a_new_client_counts_its_own_samples() -> None:
    run = trained("fedavg", rounds=1, new_clients=0.2)
    counted = [float(run._fed_of(client).client.num_examples) for client in range(5)]
    assert counted == [6, 6, 6, 5, 5]
