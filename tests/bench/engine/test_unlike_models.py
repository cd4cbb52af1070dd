"""Clients with models of their own: what each trains, what the server sees, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import apart, identical, largest_gap, resumed, simulate
from outside_world import place, world

from algorithms.base import (
    Algorithm,
    Cohort,
    Data,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
    Server,
    Upload,
)
from bench import models
from bench.engine.pytree import equal, num_bytes
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.step_executors import Captured, traced
from bench.engine.together import advance_together
from bench.errors import UsageError
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.sweep.command import main as sweep
from leaderboards import Store, canonical_json
from leaderboards.problems import cell_of, model_words, setting_of
from search_spaces import Setting

__all__ = ["place", "world"]
UNLIKE = "mlp/cnn_digits"


@dataclass(frozen=True)
class Together(Algorithm):
    """Average the models of each architecture; count what the server sees."""

    unlike_models = True
    by_model = ("params",)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Keep w_0 of each architecture."""
        return Server({}, extra={"models": dict(fed.initial)})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Send each client its architecture's model."""
        return {"params": server.extra["models"]}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Average within groups; keep the others' models."""
        new = dict(server.extra["models"])
        for name, group in cohort.groups.items():
            new[name] = group.mean(uploads["params"][name])
        return server.next({}, models=new)


@dataclass(frozen=True)
class Features(Algorithm):
    """Upload the mean feature, whose length depends on the architecture."""

    unlike_models = True

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Keep no model."""
        return Server({}, extra={"mean": torch.zeros(())})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Send nothing."""
        return {}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Keep w_0."""
        return {"params": params}

    def start(self, fed: Fed, message: Message, memory: Memory, generator: Any) -> Local:
        """Go on with the own model."""
        return {"params": memory["params"]}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Upload the mean feature."""
        features = net.eval(local["params"], data.x).features
        return {"mean": features.mean(0)}, {"params": local["params"]}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Average them."""
        return server.next({}, mean=cohort.mean(uploads["mean"]))


def run(algorithm: str | Algorithm, rounds: int = 3, **fields: Any) -> Simulation:
    simulation = simulate(algorithm, **fields)
    simulation.advance(rounds)
    return simulation


@pytest.mark.parametrize("algorithm", ["fedavg", "local", "fedgkd", "feddf"])
def test_equal_models_train_as_one_model(algorithm: str) -> None:
    plain = run(algorithm)
    assert identical(plain, run(algorithm, client_models="mlp/mlp"))


def test_each_client_trains_as_under_its_own_model() -> None:
    alone = [run("local", model=name) for name in UNLIKE.split("/")]
    mixed = run("local", client_models=UNLIKE)
    for client, memory in mixed.memories.items():
        assert equal(memory["params"], alone[client % 2].memories[client]["params"])


def test_models_of_one_name_are_averaged_and_sent() -> None:
    mixed = run(Together(), 1, client_models=UNLIKE, participation=1.0)
    message = mixed._message()["params"]
    assert set(message) == {"mlp", "cnn_digits"}
    sizes = [num_bytes(message[name]) for name in UNLIKE.split("/")]
    assert mixed.progress.traffic.bytes_down == 2 * sum(sizes)  # two clients have each
    assert mixed.progress.traffic.bytes_up == 2 * sum(sizes)
    for client in range(4):
        assert equal(mixed.local_model({}, client), message[UNLIKE.split("/")[client % 2]])


def test_models_by_name_are_those_of_one_model() -> None:
    mixed = run(Together(), client_models="mlp/mlp", participation=0.5)
    assert equal(
        mixed.server.extra["models"]["mlp"], run("fedavg", participation=0.5).server.params
    )


def test_clients_receive_nothing_of_other_models() -> None:
    mixed = simulate(Together(), client_models=UNLIKE, participation=1.0)
    job = mixed.begin()
    for work in job.clients:
        own = job.of(work.client)
        assert own.context.net is mixed.fed.nets[UNLIKE.split("/")[work.client % 2]]
        assert set(own.message["params"]) == set(own.context.net.names)


@pytest.mark.parametrize("algorithm", [Together(), "local"])
def test_a_killed_run_goes_on_to_the_bit(algorithm: Any, tmp_path: Path) -> None:
    whole = run(algorithm, 4, client_models=UNLIKE)
    assert identical(whole, resumed(tmp_path, algorithm, client_models=UNLIKE))


def test_uploads_of_unlike_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"'mean'.*mlp.*cnn_digits.*by_model"):
        run(Features(), 1, client_models=UNLIKE, participation=1.0)
    pooled = run(Features(), 1, client_models="mlp/cnn_digits+fd64", participation=1.0)
    assert pooled.server.extra["mean"].shape == (64,)


def test_a_mean_over_unlike_models_is_refused() -> None:
    @dataclass(frozen=True)
    class Mixing(Together):
        def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
            return server.next({}, models=cohort.mean(uploads["params"]))

    with pytest.raises(RuntimeError, match=r"server_step.*mlp, cnn_digits"):
        run(Mixing(), 1, client_models=UNLIKE, participation=1.0)


def test_a_model_of_another_architecture_is_no_start() -> None:
    with pytest.raises(RuntimeError, match=r"start.*cnn_digits"):
        run("fedavg", 1, client_models=UNLIKE)


def test_the_server_has_the_model_of_the_setting() -> None:
    mixed = simulate("local", model="mlp+fd16", client_models=UNLIKE)
    assert mixed.fed.net.feature_dim == 16
    assert list(mixed.fed.nets) == UNLIKE.split("/")
    assert [net.common is mixed.fed.net for net in mixed.fed.nets.values()] == [True, True]
    assert [net.feature_dim for net in mixed.fed.nets.values()] == [64, 128]


# The model form with a number of features.


@pytest.mark.parametrize(("name", "width"), [("cnn_digits", 64), ("cnn_digits", 48), ("mlp", 100)])
def test_features_are_pooled_adaptively(name: str, width: int) -> None:
    module = models.make(f"{name}+fd{width}", (1, 8, 8), 10)
    x = torch.randn(3, 1, 8, 8)
    out = module(x)
    body = module.body(x)
    size = body.shape[1]
    for feature in range(width):
        begin = feature * size // width
        end = -(-(feature + 1) * size // width)
        assert torch.allclose(out.features[:, feature], body[:, begin:end].mean(1), atol=1e-6)
    assert torch.equal(out.logits, module.head(out.features))
    trained = sum(value.numel() for value in module.parameters())
    assert trained == models.num_parameters(f"{name}+fd{width}", (1, 8, 8), 10)
    assert models.num_features(f"{name}+fd{width}", (1, 8, 8)) == width


def test_forms_are_spelt_in_one_order() -> None:
    assert models.parse("mlp+bn+fd64+head").name == "mlp+fd64+head+bn"
    for name in ("mlp+fd", "mlp+fd0", "mlp+fd64+fd32", "mlp+fdx"):
        with pytest.raises(UsageError, match="fd"):
            models.parse(name)


# Planning.


def run_specs(*algorithms: str, **values: str) -> tuple[RunSpec, ...]:
    given = {name: tuple(value.split(",")) for name, value in values.items()}
    return make_plan(SweepOptions(algorithms, values=given)).run_specs


def test_a_setting_without_models_of_clients_keeps_its_key() -> None:
    assert "client_models" not in Setting().as_dict()
    (plain,) = run_specs("local")
    (equal_models,) = run_specs("local", client_models="mlp/mlp")
    assert plain.key == equal_models.key
    (mixed,) = run_specs("local", client_models=UNLIKE)
    (repeated,) = run_specs("local", client_models=f"{UNLIKE}/{UNLIKE}")
    assert mixed.key == repeated.key != plain.key
    assert mixed.setting.model == "mlp"
    (reversed_order,) = run_specs("local", client_models="cnn_digits/mlp")
    assert reversed_order.setting.model == "cnn_digits"
    assert len(run_specs("local", client_models="mlp/cnn_digits,cnn_digits/mlp")) == 2


@pytest.mark.parametrize("algorithm", ["fedavg", "centralized", "moon", "fedbn", "fedgkd"])
def test_averaging_of_all_weights_is_refused(algorithm: str) -> None:
    with pytest.raises(UsageError, match=f"{algorithm}.*{UNLIKE}"):
        run_specs("local", algorithm, client_models=UNLIKE)


def test_heads_that_are_averaged_must_agree() -> None:
    def count(algorithm: str, client_models: str) -> int:
        values = {"client_models": (client_models,)}
        options = SweepOptions((algorithm,), dataset="cifar10", values=values)
        return len(make_plan(options).run_specs)

    with pytest.raises(UsageError, match="lenet5_120"):
        count("lg_fedavg", "cnn_cifar/lenet5_120")
    assert count("fedproto", "cnn_cifar/lenet5_120")
    assert count("lg_fedavg", "cnn_cifar/cnn_femnist")


@pytest.mark.parametrize("algorithm", ["fedproto", "fedtgp", "fedgh", "lg_fedavg"])
def test_the_servers_model_has_the_clients_features(algorithm: str) -> None:
    wider, *_ = run_specs(algorithm, model="cnn_digits", client_models="mlp/mlp+bn")
    assert wider.setting.model == "cnn_digits+fd64"
    assert wider.setting.client_models == "mlp/mlp+bn"
    run = simulate(algorithm, model=wider.setting.model, client_models="mlp/mlp+bn")
    run.advance(1)
    assert run.round == 1
    with pytest.raises(UsageError, match=r"mlp\+head.*256.*64"):
        run_specs(algorithm, client_models="mlp/mlp+head")


@pytest.mark.parametrize("algorithm", ["fedgh", "lg_fedavg"])
def test_the_servers_head_has_the_clients_form(algorithm: str) -> None:
    values = {"model": ("lenet5_120",), "client_models": ("cnn_cifar/cnn_femnist",)}
    with pytest.raises(UsageError, match="lenet5_120"):
        make_plan(SweepOptions((algorithm,), dataset="cifar10", values=values))


@pytest.mark.parametrize(
    "value", ["mlp/", "/mlp", "mlp//cnn_digits", "mlp/resnet", "mlp/cnn_cifar"]
)
def test_bad_models_are_named(value: str) -> None:
    with pytest.raises(UsageError):
        run_specs("local", client_models=value)


def test_a_class_of_ones_own_is_told_its_attribute(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (world / "mine.py").write_text(
        "from algorithms.base import Algorithm\n\n\nclass Mine(Algorithm):\n    pass\n"
    )
    for name, told in (("mine:Mine", True), ("fedavg", False)):
        arguments = ["--algo", name, "--dataset", "digits", "--executor", "inline"]
        arguments += ["--set", f"client_models={UNLIKE}", "--out", str(world / "out")]
        assert sweep(arguments) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert ("say so in its class: unlike_models = True" in error) == told, error


def test_a_sweep_trains_and_shows_unlike_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--algo", "local", "--dataset", "digits", "--rounds", "1", "--out", str(tmp_path)]
    arguments += ["--executor", "inline", "--set", f"client_models={UNLIKE}"]
    assert sweep([*arguments, "--quiet"]) == 0
    assert UNLIKE in capsys.readouterr().out
    (text,) = Store(tmp_path).runs().setting_json
    assert model_words(setting_of(text)).endswith(UNLIKE)
    assert cell_of(text) == cell_of(text.replace("cnn_digits", "cnn_digits+bn"))
    assert sweep([*arguments, "--track", "drift"]) == 2
    assert "drift" in capsys.readouterr().err


def test_stored_models_are_those_of_their_clients(tmp_path: Path) -> None:
    from bench.engine.tracking import load_model
    from bench.trial.results import write_tracked

    mixed = simulate("local", client_models=UNLIKE)
    mixed.tracker.what = frozenset({"models"})
    mixed.advance(4)
    write_tracked(mixed, tmp_path, {"": "a" * 64}, {"": "local"})
    for client in range(4):
        module = models.make(UNLIKE.split("/")[client % 2], (1, 8, 8), 3).double()
        module.load_state_dict(load_model(tmp_path, "a" * 64, client))
        assert equal(dict(module.named_parameters()), mixed.local_model({}, client))


def test_the_largest_gap_sees_every_client() -> None:
    first = run("local", client_models=UNLIKE)
    assert largest_gap(first, run("local", client_models=UNLIKE)) == 0
    assert largest_gap(first, run("local", client_models="cnn_digits/mlp")) == float("inf")


# Stacks: one for each model.


@pytest.mark.parametrize("algorithm", ["fedavg", "local", "fedcad", "feddf"])
def test_a_stack_of_equal_models_is_the_stack_of_one_model(algorithm: str) -> None:
    plain = run(algorithm, backend="stacked")
    dealt = run(algorithm, backend="stacked", client_models="mlp/mlp")
    assert largest_gap(plain, dealt) <= 1e-10
    assert plain.progress.traffic == dealt.progress.traffic


@pytest.mark.parametrize("algorithm", [Together(), "local"])
@pytest.mark.parametrize("value", [UNLIKE, "cnn_digits/mlp+bn/mlp+fd32"])
def test_stacks_of_unlike_models_are_the_loop(algorithm: Any, value: str) -> None:
    loop = run(algorithm, client_models=value)
    stacked = run(algorithm, backend="stacked", client_models=value)
    assert largest_gap(loop, stacked) <= 1e-9
    assert loop.progress.traffic == stacked.progress.traffic
    if isinstance(algorithm, Together):
        for name, model in loop.server.extra["models"].items():
            assert largest(model, stacked.server.extra["models"][name]) <= 1e-9


@pytest.mark.parametrize("algorithm", ["fml", "fedkd"])
def test_batches_suit_the_second_model(algorithm: str) -> None:
    fields = {"client_models": "mlp/cnn_digits", "model": "mlp+bn"}
    loop = run(algorithm, **fields)
    stacked = run(algorithm, backend="stacked", **fields)
    assert largest_gap(loop, stacked) <= 1e-9


def largest(first: Params, second: Params) -> float:
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def test_a_pack_of_runs_on_unlike_models_is_each_alone() -> None:
    members = [simulate(Together(), "stacked", seed=seed, client_models=UNLIKE) for seed in (0, 1)]
    assert not advance_together(members, 3)
    assert apart(members) is None
    for seed, member in enumerate(members):
        alone = run(Together(), backend="stacked", seed=seed, client_models=UNLIKE)
        for name, model in alone.server.extra["models"].items():
            assert largest(model, member.server.extra["models"][name]) <= 1e-10


def test_short_memory_splits_stacks_of_unlike_models() -> None:
    whole = run("local", backend="stacked", client_models=UNLIKE)
    cut = simulate("local", "stacked", client_models=UNLIKE)
    cut.trainer.limit = 1  # type: ignore[union-attr]
    cut.advance(3)
    assert largest_gap(whole, cut) <= 1e-10


@pytest.mark.parametrize("algorithm", ["local", "feddf"])
def test_captured_steps_are_those_of_each_model(algorithm: str) -> None:
    executors = Stacked(
        lambda: Captured(traced, warm_ups=1), server=lambda: Captured(traced, warm_ups=1)
    )
    captured = simulate(algorithm, "stacked", client_models="mlp/cnn_digits/mlp+fd32")
    captured.trainer = executors
    captured.advance(4)
    plain = run(algorithm, 4, backend="stacked", client_models="mlp/cnn_digits/mlp+fd32")
    assert largest_gap(captured, plain) <= 1e-9


def test_methods_on_features_get_models_with_as_many_in_one_cell() -> None:
    values = {"client_models": ("mlp/cnn_digits",)}
    plan = make_plan(SweepOptions(("fd", "fedproto"), "digits", values=values))
    settings = {run_spec.algorithm: run_spec.setting for run_spec in plan.run_specs}
    assert settings["fd"].client_models == UNLIKE
    assert settings["fedproto"].client_models == "mlp+fd64/cnn_digits+fd64"
    cells = {cell_of(canonical_json(run_spec.setting.as_dict())) for run_spec in plan.run_specs}
    assert len(cells) == 1, "they stand in one table"
    even = make_plan(
        SweepOptions(
            ("fedproto",), "digits", values={"client_models": ("mlp+fd64/cnn_digits+fd64",)}
        )
    )
    assert {run_spec.key for run_spec in even.run_specs} <= {
        run_spec.key for run_spec in plan.run_specs
    }, "the same runs"
