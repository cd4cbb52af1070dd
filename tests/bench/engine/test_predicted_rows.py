"""Rows that the hook `predict` classifies, each against a plain computation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import identical, resumed, simulate
from torch import Tensor

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
    Plugin,
    Server,
    Upload,
)
from bench.engine.simulation import Simulation


@dataclass(frozen=True)
class Prototypes(Algorithm):
    """FedAvg with a second row: the class of the nearest mean feature."""

    rows = ("", "_proto")
    predicted = ("_proto",)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Begin with prototypes of zero."""
        shape = (fed.net.num_classes, fed.net.feature_dim)
        prototypes = torch.zeros(shape, dtype=next(iter(params.values())).dtype)
        return Server(params, extra={"prototypes": prototypes})

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Upload sums of features by class beside the model."""
        features = net.eval(local["params"], data.x).features
        hot = torch.nn.functional.one_hot(data.y, net.num_classes).to(features)
        return {"params": local["params"], "sums": hot.T @ features}, memory

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Average models; scale the sums, which keeps them unlike each other."""
        return server.next(cohort.mean(uploads["params"]), prototypes=uploads["sums"].mean(0) / 5)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return the same model for both rows."""
        return {"": server.params, "_proto": server.params}

    def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
        """Return minus the distances to the prototypes."""
        return -torch.cdist(net.eval(params, x).features, server.extra["prototypes"])


@dataclass(frozen=True)
class Around(Plugin):
    """A plug-in that changes nothing."""


def last(run: Simulation, suffix: str, metric: str) -> float:
    return [value for _, name, value in run.progress.curves[suffix] if name == metric][-1]


def test_a_row_is_classified_by_the_hook() -> None:
    run = simulate(Prototypes())
    run.advance(3)
    federation = run.federation
    x = federation.test.at(slice(None))
    features = run.net.eval(run.server.params, x).features
    distances = (features[:, None] - run.server.extra["prototypes"][None]).square().sum(2).sqrt()
    right = (distances.argmin(1) == federation.test.labels).double().mean()
    assert last(run, "_proto", "accuracy") == pytest.approx(float(right))
    loss = torch.nn.functional.cross_entropy(-distances, federation.test.labels)
    assert last(run, "_proto", "loss") == pytest.approx(float(loss))
    held_out = federation.data(federation.validation)
    own = run.net.eval(run.server.params, held_out.x).features
    nearest = torch.cdist(own, run.server.extra["prototypes"]).argmin(1)
    expected = (nearest == held_out.y).double().mean()
    assert last(run, "_proto", "val_accuracy") == pytest.approx(float(expected))


def test_the_other_row_is_that_of_a_run_without_it() -> None:
    run = simulate(Prototypes())
    run.advance(3)
    plain = simulate("fedavg")
    plain.advance(3)
    accuracies = [point for point in plain.progress.curves[""] if point[1] in ("accuracy", "loss")]
    assert accuracies == [p for p in run.progress.curves[""] if p[1] in ("accuracy", "loss")]


def test_it_resumes_and_a_plugin_forwards_it(tmp_path: Path) -> None:
    whole = simulate(Prototypes())
    whole.advance(4)
    assert identical(whole, resumed(tmp_path, Prototypes()))
    wrapped = simulate(Around(Prototypes()))
    wrapped.advance(4)
    assert wrapped.progress.curves == whole.progress.curves


def test_personal_rows_are_predicted_anew_each_round() -> None:
    @dataclass(frozen=True)
    class Alone(Plugin):
        rows = ("", "_turned")  # type: ignore[assignment]
        predicted = ("_turned",)  # type: ignore[assignment]

        def evaluated(self, server: Server) -> dict[str, Params]:
            return {"": {}, "_turned": {}}

        def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
            return net.eval(params, x).logits.roll(server.round, 1)

    from algorithms.references import LocalOnly

    run = simulate(Alone(LocalOnly()), participation=0.25, rounds=6)
    run.advance(6)
    by_hook = [value for _, name, value in run.progress.curves["_turned"] if name == "accuracy"]
    plain = [value for _, name, value in run.progress.curves[""] if name == "accuracy"]
    assert by_hook[2] == plain[2]  # three classes, turned three times
    assert by_hook[5] == plain[5]
    assert by_hook[3] != plain[3]


@pytest.mark.parametrize("shape", [(slice(None), 0), (slice(1, None), slice(None))])
def test_scores_of_another_shape_are_refused(shape: Any) -> None:
    @dataclass(frozen=True)
    class Wrong(Prototypes):
        def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
            return net.eval(params, x).logits[shape]

    with pytest.raises(ValueError, match="predict must return scores"):
        simulate(Wrong()).advance(1)


def test_a_predicted_row_is_one_of_the_rows() -> None:
    @dataclass(frozen=True)
    class Unlisted(Prototypes):
        predicted = ("_nearest",)

    with pytest.raises(ValueError, match="_nearest"):
        simulate(Unlisted())
