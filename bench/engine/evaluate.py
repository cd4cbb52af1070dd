"""Accuracy of models on the test set, on validation samples, on clients' own; and divergence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from algorithms.base import Message, Params
from bench.engine.client_round import ClientResult
from bench.engine.client_scores import OwnSamples, OwnScore, Predict, by_logits
from bench.engine.federation import Federation
from bench.engine.model_stacks import WIDTH, filled, logits_together, samples_of_pass
from bench.engine.network import Network
from bench.engine.pytree import equal, has_nan, stack, total, without
from bench.errors import Interrupted

ModelMaker = Callable[[Sequence[int]], list[Params]]  # the whole models of some clients


GRACE_SECONDS = 5.0  # of evaluation once the sweep is stopping, in which most rounds end
ASK_SECONDS = 0.5  # at least, between two looks at the stop file


class StopCheck:
    """A check, called between the chunks of an evaluation, whether the sweep is stopping."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._asked = -math.inf
        self._noticed: float | None = None

    def __call__(self) -> None:
        """Raise Interrupted if the sweep has been stopping for `GRACE_SECONDS` of evaluation."""
        now = time.monotonic()
        if now < self._asked + ASK_SECONDS:
            return
        self._asked = now
        if not self._stopping():
            return
        if self._noticed is None:
            self._noticed = now
        if now >= self._noticed + GRACE_SECONDS:
            raise Interrupted("the sweep is stopping, and this round's evaluation takes long")


@dataclass(frozen=True)
class Score:
    """A model's score on samples.

    Args:
        right: (C,) int64 on the CPU, number of correctly classified samples of each class.
        samples: number of samples.
        loss: mean cross entropy, nats.
        part: index of the part of the test set.
        val_accuracy: share of validation samples classified correctly; None if none are held out,
            or not measured.
    """

    right: Tensor
    samples: int
    loss: float
    part: int = 0
    val_accuracy: float | None = None

    @property
    def accuracy(self) -> float:
        """Share of the samples classified correctly."""
        return int(self.right.sum()) / self.samples

    @property
    def measures(self) -> dict[str, float]:
        """The measures, by their names in the curve."""
        measures = {"accuracy": self.accuracy, "loss": self.loss}
        if self.val_accuracy is not None:
            measures["val_accuracy"] = self.val_accuracy
        return measures


@dataclass
class ClientScores:
    """The scores of one client's own model.

    Args:
        parts: by part of the test set; empty until the model is measured there.
        own: on the client's own samples; None if it keeps none, or until it is measured.
    """

    parts: dict[int, Score] = field(default_factory=dict)
    own: OwnScore | None = None


@dataclass(frozen=True)
class Evaluation:
    """The scores of a row's model, or of each client's own.

    Args:
        scores: on each part of the test set, or of each client there; empty if left out.
        own: by client that keeps tests of its own, ascending.
    """

    scores: list[Score]
    own: dict[int, OwnScore]


Scores = dict[int, ClientScores]  # by client


@torch.no_grad()
def score(
    net: Network,
    params: Params,
    chunks: Iterable[tuple[Tensor, Tensor]],
    part: int = 0,
    predict: Predict = by_logits,
) -> Score:
    """Score a whole model on all (inputs, labels) of `chunks`; `predict` gives (B, C) scores."""
    device = next(iter(params.values())).device
    right = torch.zeros(net.num_classes, dtype=torch.int64, device=device)
    samples = 0
    # Read once, because reading it would hold up the next chunk.
    loss = torch.zeros((), dtype=torch.float64, device=device)
    for x, y in chunks:
        logits = predict(net, params, x)
        right.index_add_(0, y, (logits.argmax(1) == y).long())
        loss += torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        samples += len(y)
    return Score(right.cpu(), samples, float(loss) / samples, part)


def on_part(
    net: Network,
    federation: Federation,
    params: Params,
    part: int,
    predict: Predict = by_logits,
) -> Score:
    """Score a whole model on one part of the test set."""
    chunks = federation.chunks(federation.test, federation.test_parts[part])
    return score(net, params, chunks, part, predict)


def on_test(net: Network, federation: Federation, params: Params) -> list[Score]:
    """Score a whole model on each part of the test set; `mean_measures` averages these scores."""
    return [on_part(net, federation, params, part) for part in range(len(federation.test_parts))]


def mean_measures(scores: list[Score]) -> dict[str, float]:
    """Compute the unweighted mean of each measure, over the scores that have it."""
    measures: dict[str, list[float]] = {}
    for each in scores:
        for name, value in each.measures.items():
            measures.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in measures.items()}


@dataclass(frozen=True)
class Evaluator:
    """Evaluation of one row.

    A row that lacks names (FedBN, `local`) is personal: it is completed for each client, and the
    measures on the test set are the unweighted means over clients. If each client holds one source
    of the data, they are the unweighted means over the sources' test samples, and a personal model
    is measured on those of its own source only, as FedBN reports; the validation samples likewise.
    On a client's own tests, its own model is measured, or the global one.

    Args:
        net: the network of whole models.
        clients: number of clients, the first ones, whose models are measured on the test set.
        net_of: the network of a client's own model.
        stacked: whether personal models are evaluated side by side, as one program, which has
            `by_logits` as `predict`. Its shape is the same in every round, so that no number
            depends on which of them are known.
        known: scores of personal models that have not changed; new ones are added to it.
        untrained: clients that have not trained yet: of these models, equal ones, which are usually
            all of one network, are measured once on the test set.
        predict: gives the scores by which a model's classes are chosen.
        width: number of personal models that are evaluated side by side.
        shared: whether the models are one, of pooled data, which is everyone's: it has no source.
    """

    net: Network
    federation: Federation
    clients: int
    net_of: Callable[[int], Network]
    stacked: bool = False
    known: Scores = field(default_factory=dict)
    untrained: Collection[int] = ()
    predict: Predict = by_logits
    width: int = 1
    shared: bool = False

    def whole(self, model: Params) -> Evaluation:
        """Evaluate one model for all clients."""
        parts = range(len(self.federation.test_parts))
        scores = [self._score_whole(model, part) for part in parts]
        return Evaluation(scores, self._own_samples.of_one_model(model))

    def personal(self, models: ModelMaker, on_test_set: bool = True) -> Evaluation:
        """Evaluate each client's own model; `on_test_set`: whether on the test set, too."""
        numbers = range(max(self.clients, len(self.federation.local_tests)))
        of_net: dict[Network, list[int]] = {}
        for client in numbers:
            self.known.setdefault(client, ClientScores())
            of_net.setdefault(self.net_of(client), []).append(client)
        for net, clients in of_net.items():
            width = min(WIDTH, len(clients)) if self.stacked else 1
            missing = [client for client in clients if self._lacks(client, on_test_set)]
            evaluator = replace(self, net=net, width=width)
            evaluator._measure(missing, models, on_test_set)
        evaluation = Evaluation([], {})
        for client in numbers:
            known = self.known[client]
            if on_test_set and client < self.clients:
                evaluation.scores.extend(known.parts[part] for part in self._parts_of(client))
            if known.own is not None:
                evaluation.own[client] = known.own
        return evaluation

    def _measure(self, clients: Sequence[int], models: ModelMaker, on_test_set: bool) -> None:
        """Measure the models of clients with this network, some side by side."""
        # Clients that are measured on unlike parts share no scores.
        alike = Alike(() if self._on_own_source else self.untrained)
        for begin in range(0, len(clients), self.width):
            group = clients[begin : begin + self.width]
            members = dict(zip(group, models(group), strict=True))
            if on_test_set:
                self._measure_on_parts(members, alike)
            self._measure_own(members)

    @property
    def _own_samples(self) -> OwnSamples:
        """The samples that clients keep, to measure models of this network on."""
        return OwnSamples(self.net, self.federation, self.predict)

    @property
    def _on_own_source(self) -> bool:
        """Return whether a client's own model is measured on the tests of its source alone."""
        parts = len(self.federation.test_parts)
        return not self.shared and 1 < parts == len(self.federation.local_tests)

    def _parts_of(self, client: int) -> Collection[int]:
        """Return the parts of the test set that a client's own model is measured on."""
        return (client,) if self._on_own_source else range(len(self.federation.test_parts))

    def _lacks(self, client: int, on_test_set: bool) -> bool:
        """Return whether a score of a client's own model is missing."""
        known = self.known[client]
        if on_test_set and client < self.clients and not known.parts:
            return True
        return known.own is None and self._own_samples.tests_of(client) > 0

    def _measure_on_parts(self, members: Mapping[int, Params], alike: Alike) -> None:
        """Measure models on their parts of the test set; those that are alike once."""
        clients = [client for client in members if client < self.clients]
        leaders = {client: alike.leader(client, members[client]) for client in clients}
        leading = [client for client in clients if leaders[client] == client]
        for part in range(len(self.federation.test_parts)):
            due = [client for client in leading if part in self._parts_of(client)]
            models = [members[client] for client in due]
            for client, result in zip(due, self._score_models(models, part), strict=True):
                self.known[client].parts[part] = result
        for client, leader in leaders.items():
            self.known[client].parts = self.known[leader].parts

    def _score_models(self, models: list[Params], part: int) -> list[Score]:
        """Score whole models on one part of the test set."""
        if not self.stacked:
            return [self._score_whole(model, part) for model in models]
        if not models:
            return []
        federation = self.federation
        stacked = stack(filled(models, self.width))
        size = samples_of_pass(federation.device, self.width)
        on_tests = federation.chunks(federation.test, federation.test_parts[part], size)
        scores = score_together(self.net, stacked, on_tests, part)[: len(models)]
        held_out = federation.validation_parts[part]
        if not len(held_out):
            return scores
        on_validation = federation.chunks(federation.train, held_out, size)
        val_scores = score_together(self.net, stacked, on_validation)[: len(models)]
        pairs = zip(scores, val_scores, strict=True)
        return [replace(result, val_accuracy=val.accuracy) for result, val in pairs]

    def _score_whole(self, params: Params, part: int) -> Score:
        federation = self.federation
        test_score = on_part(self.net, federation, params, part, self.predict)
        held_out = federation.validation_parts[part]
        if not len(held_out):
            return test_score
        chunks = federation.chunks(federation.train, held_out)
        val_score = score(self.net, params, chunks, predict=self.predict)
        return replace(test_score, val_accuracy=val_score.accuracy)

    def _measure_own(self, members: Mapping[int, Params]) -> None:
        """Measure the models of clients on the samples that each keeps for it."""
        own = self._own_samples
        kept = {client: model for client, model in members.items() if own.tests_of(client)}
        scores = own.side_by_side(kept, self.width) if self.stacked else own.one_by_one(kept)
        for client, result in scores.items():
            self.known[client].own = result


class Alike:
    """The untrained clients of one evaluation whose models equal that of the first of them.

    The first one's model is the only one that is kept: there may be many clients.
    """

    def __init__(self, untrained: Collection[int]) -> None:
        self._model: Params = {}
        self._untrained = untrained
        self._first: int | None = None

    def leader(self, client: int, model: Params) -> int:
        """Return the client whose scores a client's model shares."""
        if client not in self._untrained:
            return client
        if self._first is None:
            self._first = client
            self._model = model
        return self._first if equal(model, self._model) else client


@torch.no_grad()
def score_together(
    net: Network, models: Params, chunks: Iterable[tuple[Tensor, Tensor]], part: int = 0
) -> list[Score]:
    """Score m stacked models on all (inputs, labels) of `chunks`, side by side."""
    first = next(iter(models.values()))
    count = len(first)
    right = torch.zeros(count, net.num_classes, dtype=torch.int64, device=first.device)
    loss = torch.zeros(count, dtype=torch.float64, device=first.device)
    samples = 0
    for x, y in chunks:
        logits = logits_together(net, models, x)
        right.index_add_(1, y, (logits.argmax(2) == y).long())
        losses = -logits.log_softmax(2)
        of_labels = losses.gather(2, y.expand(count, -1).unsqueeze(2))
        loss += of_labels.sum((1, 2))
        samples += len(y)
    values = (loss / samples).tolist()
    rows = zip(right.cpu(), values, strict=True)
    return [Score(of_model, samples, value, part) for of_model, value in rows]


def nonfinite_reason(
    round: int, results: list[ClientResult], models: list[Params], message: Message
) -> str | None:
    """Describe the first value of a round that is not finite, for the row's `error`; else None.

    Losses and models have to be finite; other trees that clients train or the server sends may hold
    infinities on purpose (a mask of -inf), but no NaN. `models` are the server's new model and
    those that are evaluated, `message` is the next round's.
    """
    parts: dict[str, Tensor] = {}
    for result in results:
        for name, value in result.nan_in.items():
            parts[f"client {result.client}: {name!r}, trained beside its model,"] = value
    for result in results:
        parts[f"client {result.client}: the training loss"] = result.loss
    for number, model in enumerate(models, 1):
        parts[f"the server's model {number}"] = total(model)
    for name, tree in without(message, "params").items():
        parts[f"the server's {name}"] = has_nan(tree)
    device = results[0].loss.device
    values = torch.stack([value.to(device) for value in parts.values()])
    for part, number in zip(parts, values.tolist(), strict=True):
        if not math.isfinite(number):
            return f"round {round}, {part} is not finite"
    return None
