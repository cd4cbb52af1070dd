"""One federated run: rounds of an algorithm, with its counters, curve and state."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Memory, Message, Params, Server, Upload
from bench.data import Dataset, DatasetInfo
from bench.data.dealing import Positions
from bench.data.splits import PublicSet, Split
from bench.engine.client_round import (
    ClientResult,
    RoundWork,
    RunContext,
    joined_metrics,
    make_work,
    sent_bytes,
)
from bench.engine.client_scores import by_logits, client_measures
from bench.engine.cohort import ClientCohort, gathered
from bench.engine.counters import Progress, progress_of
from bench.engine.evaluate import (
    Evaluation,
    Evaluator,
    ModelMaker,
    Scores,
    StopCheck,
    mean_measures,
    nonfinite_reason,
)
from bench.engine.federation import Federation
from bench.engine.hook_results import check_forms, typed
from bench.engine.loop import Loop
from bench.engine.network import Network
from bench.engine.optimizers import Optimizer
from bench.engine.pytree import num_bytes, shapes, tensors, to
from bench.engine.rng import stream
from bench.engine.run_models import RunModel, run_models
from bench.engine.server_context import FedView, PublicData, ServerSteps
from bench.engine.state import StateFolder
from bench.engine.tracking import Tracker
from bench.errors import Slower, in_a_line, of_hook, with_its_kind
from bench.execution import BACKENDS
from leaderboards.problems import FINETUNED
from search_spaces.setting import Setting

if TYPE_CHECKING:
    from bench.engine.stacked.backend import Stacked


class Simulation:
    """A federated run that can be advanced, saved and loaded.

    Args:
        seed: of every random stream except those of the split and w_0, if the setting has a
            `partition_seed`.
        dataset: pixels and labels, the images of their own size.
        split: `bench.data.splits.split(setting, dataset.train_y, seed)`.
        backend: `loop`, `stacked`, or `auto`: stacked on a GPU, loop on a CPU. A loaded state
            brings its own.
        folder: of the saved state; None for a run that is never saved.
        track: names of `bench.execution.TRACKS`, for `bench.engine.tracking`. A loaded state adds
            what it tracked.
        public: the set of the setting's `public`; None if it names none.
        initial: w_0, with all names of the network; None for weights drawn from the seed.
        stopping: whether the sweep is stopping. A long evaluation then raises Interrupted, and the
            simulation, in the middle of a round, is of no use any more.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        setting: Setting,
        seed: int,
        dataset: Dataset,
        info: DatasetInfo,
        split: Split,
        device: torch.device | str = "cpu",
        backend: str = "auto",
        folder: StateFolder | None = None,
        track: Collection[str] = (),
        initial: Params | None = None,
        stopping: Callable[[], bool] = lambda: False,
        public: PublicSet | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.setting = setting
        self.seed = seed
        self.folder = folder
        # No part of a Simulation may hold a strong reference to it. Its GPU memory is then freed as
        # soon as the last user drops it, not by the garbage collector, which might free captured
        # graphs during another capture.
        weak_self = weakref.proxy(self)
        self.device = torch.device(device)
        self.backend = choose_backend(backend, self.device)
        self.trainer = trainer_of(self.backend, self.device)
        self._data_hash = dataset.hash if public is None else f"{dataset.hash}/{public.hash}"
        info = info.sized(setting.image_size)
        dataset = dataset.sized(setting.image_size)
        models = run_models(setting, seed, info, self.device, self.backend, initial)
        of_clients = [models[name] for name in setting.models_of_clients]
        shared_model = models[setting.model]
        self.net = shared_model.net
        dtype = self.net.dtype
        holders = split.clients  # of training samples, those that never train among them
        new_clients = setting.num_clients - setting.training_clients
        self._training = len(holders) - new_clients  # clients that ever train, the first ones
        split = replace(split, clients=holders[: self._training])
        self._pooled = "pooled" in algorithm.needs
        split = split.pooled() if self._pooled else split
        check = StopCheck(stopping)
        self.federation = Federation(dataset, info, split, setting, self.device, dtype, check)
        public_data = self.federation.public(public, setting.normalization)
        labelled = "public_labels" in algorithm.needs
        self.fed = FedView(
            net=self.net,
            nets={model.name: model.net for model in of_clients},
            initial={model.name: model.initial for model in of_clients},
            num_clients=len(self.federation.clients),
            rounds=setting.rounds,
            batch_size=setting.batch_size,
            seed=seed,
            auxiliary=self.federation.data(self.federation.auxiliary),
            validation=self.federation.data(self.federation.validation),
            public=PublicData(public_data, labelled),
            clients_public=PublicData(public_data, labelled),
            steps=ServerSteps(self.net, self.device, dtype, lambda: weak_self.trainer.server),
            initialise=shared_model.draw,
        )
        self.context = run_context(algorithm, setting, models, self.fed, self.federation)
        self._finetuning = finetuning(self.context, holders)
        with self.context.products(), self.context.own_draws("server", 0):
            first = algorithm.init_server(self.fed, shared_model.initial)
        self.server: Server = typed("init_server", first)
        self._check_forms("init_server", self.server.params)
        if self.server.round:
            raise ValueError(f"init_server must return round 0, got {self.server.round}")
        _check_rows(algorithm, self.server)
        self.memories: dict[int, Memory] = {}
        self.progress = Progress()
        self.tracker = Tracker(
            track,
            self.net,
            self.federation,
            lambda *args: weak_self.local_model(*args),
            lambda client: weak_self.context.of(client).net,
        )
        self._changed: set[int] = set()
        self._scores: dict[str, Scores] = {}
        self._sent: tuple[Server, Message] | None = None

    @property
    def round(self) -> int:
        """Number of finished rounds."""
        return self.server.round

    @property
    def done(self) -> bool:
        """Return whether the run is over: it has made its rounds, or it diverged."""
        return self.round >= self.setting.rounds or self.progress.diverged

    def advance(self, rounds: int = 1) -> None:
        """Run up to `rounds` more rounds."""
        for _ in range(rounds):
            if self.done:
                return
            with self.clock():
                job = self.begin()
                self.end(job, self.trainer.train(job))

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Add the time spent in the block to the run's seconds, without tracking's own."""
        began = time.perf_counter()
        tracked_before = self.tracker.seconds
        yield
        tracking = self.tracker.seconds - tracked_before
        self.progress.seconds += time.perf_counter() - began - tracking

    def save(self) -> None:
        """Write the state: the whole server, and the memories that changed since the last save."""
        assert self.folder is not None, "a simulation without a folder cannot be saved"
        server = {
            "params": self.server.params,
            "extra": dict(self.server.extra),
            "progress": asdict(self.progress),
        }
        server["tracking"] = self.tracker.state()
        changed = {client: self.memories[client] for client in self._changed}
        facts = {"backend": self.backend, "track": sorted(self.tracker.what)}
        facts["data"] = self._data_hash
        self.folder.save(self.round, server, changed, facts)
        self._changed.clear()

    def load(self) -> bool:
        """Load the folder's state to go on from; returns False if there is none.

        A state of a run on another copy of the data is removed, with a warning.
        """
        if self.folder is None or (manifest := self.folder.manifest()) is None:
            return False
        if manifest.get("data", self._data_hash) != self._data_hash:
            reason = f"the saved state {self.folder.path} is of another copy of the data"
            warnings.warn(f"{reason}: its run begins anew", Slower, stacklevel=2)
            self.folder.remove()
            return False
        server, memories = self.folder.load(manifest, self.device)
        try:
            self._take_over(manifest, server, memories)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.folder.unusable(self.folder.path, with_its_kind(error)) from error
        return True

    def _take_over(
        self, manifest: Mapping[str, Any], server: Mapping[str, Any], memories: dict[int, Memory]
    ) -> None:
        """Go on from a loaded state.

        Raises errors of many kinds for one that `save` did not write.
        """
        number = manifest["round"]
        if type(number) is not int or number < 1:
            raise ValueError(f"its round is {number!r}")
        if shapes(server["params"]) != shapes(self.server.params):
            raise ValueError("its model has other tensors than the run's")
        if max(memories, default=0) >= len(self.federation.clients):
            raise ValueError("it has memories of clients that the run has not")
        self.backend = choose_backend(manifest["backend"], self.device)
        self.trainer = trainer_of(self.backend, self.device)
        rows = [*self.algorithm.rows]
        if self.setting.finetune_steps:
            rows += [suffix + FINETUNED for suffix in self.algorithm.rows]
        self.progress = progress_of(server["progress"], rows, number)
        self.tracker.load(dict(server.get("tracking", {})))
        self.server = Server(server["params"], number, dict(server["extra"]))
        self.memories = memories

    def participants(self, round: int) -> list[int]:
        """Draw the clients of a round uniformly without replacement; they are ascending."""
        generator = stream(self.seed, "participation", round)
        order = torch.randperm(self.fed.num_clients, generator=generator)
        return sorted(order[: self.setting.cohort_size].tolist())

    def local_model(self, model: Params, client: int) -> Params:
        """Return a personal model: the tensors of `model`, and else those of the client.

        These are what its memory keeps (`keeps_model`), or what it would start from.

        Raises:
            ValueError: a tensor of the network is in neither.
        """
        if self._pooled:
            client = 0  # pooled data have a single client, whose model serves all
        memory = self._memory(client)
        if self.algorithm.keeps_model:
            return self._whole({**memory["params"], **model}, client)
        generator = stream(self.seed, "start", self.round, client)
        with self.context.products():
            received = self.context.of(client).received(self._message())
            local = self.algorithm.start(self._fed_of(client), received, memory, generator)
        return self._whole({**local["params"], **model}, client)

    def _whole(self, model: Params, client: int) -> Params:
        """Check that a client's model has all tensors of its network, and return it."""
        lacking = [name for name in self.context.of(client).net.names if name not in model]
        if lacking:
            raise ValueError(
                f"evaluated: the model of client {client} lacks {lacking[0]!r}. server_step must "
                "return all tensors of a model, or the client's own params (of start, or of the "
                "memory) must have the missing ones"
            )
        return model

    def finetuned(
        self, models: ModelMaker, context: RunContext, clients: Sequence[int]
    ) -> list[Params]:
        """Train the models of some clients for the setting's further steps, and return them.

        The loss is the cross entropy, whatever the algorithm; the optimiser, the batches and the
        rate are those of the last round; the draws have a stream of their own.

        Raises:
            Interrupted: the sweep is stopping, and evaluation takes long.
        """
        self.federation.before_chunk()
        job = RoundWork(context, [], {}, self.round, self._lr(self.round))
        for client, model in zip(clients, models(clients), strict=True):
            own = job.of(client).context
            job.clients.append(make_work(own, client, self.round, {"params": model}, {}))
        return [result.params for result in self.trainer.train(job)]

    def models_of(self, suffix: str) -> ModelMaker:
        """Return the function that makes clients' whole models of a row, by the row's suffix."""
        model = self._evaluated_model(suffix)
        is_whole = self.net.is_whole(model)

        def models(clients: Sequence[int]) -> list[Params]:
            if is_whole:
                return [model for _ in clients]
            return [self.local_model(model, client) for client in clients]

        if suffix in self.algorithm.rows:
            return models
        context = self._finetuning
        if is_whole:  # a model for all clients goes on in its own network
            alike = replace(context.setting, client_models="")
            context = replace(context, setting=alike, of_clients=())
        return partial(self.finetuned, models, context)

    def net_of(self, suffix: str, client: int) -> Network:
        """Return the network of a client's model of a row."""
        if self.net.is_whole(self._evaluated_model(suffix)):
            return self.net
        return self.context.of(client).net

    def _evaluated_model(self, suffix: str) -> Params:
        """Return a row's model before clients' further steps; a personal one lacks tensors."""
        evaluated = self.algorithm.evaluated(self.server)
        if suffix in evaluated:
            return evaluated[suffix]
        return evaluated[suffix.removesuffix(FINETUNED)]

    @property
    def personal(self) -> frozenset[str]:
        """The suffixes of the rows that are of each client's own model."""
        suffixes: set[str] = set()
        for suffix, model in self.algorithm.evaluated(self.server).items():
            # Of pooled data there is one client, whose model is everyone's.
            if not self._pooled and not self.net.is_whole(model):
                suffixes.add(suffix)
            if self.setting.finetune_steps:
                suffixes.add(suffix + FINETUNED)
        return frozenset(suffixes)

    def _fed_of(self, client: int) -> FedView:
        """Return the `fed` of a client's hooks, also of one that never trains."""
        context = self.context if self._pooled else self._finetuning
        return context.fed_of(client)

    def _lr(self, round: int) -> float:
        """Return the local learning rate of a round."""
        return self.setting.lr * self.setting.lr_decay ** (round - 1)

    def _predict(self, net: Network, params: Params, x: Tensor) -> Tensor:
        """Return the algorithm's scores of samples; ValueError if they are not (B, C)."""
        scores: Tensor = typed("predict", self.algorithm.predict(net, params, x, self.server))
        if tuple(scores.shape) != (len(x), net.num_classes):
            raise ValueError(
                f"predict must return scores ({len(x)}, {net.num_classes}), a row for each sample, "
                f"got shape {tuple(scores.shape)}"
            )
        return scores

    def _message(self) -> Message:
        """Return the current server's message.

        It is made once, because personal models are evaluated with it, too.
        """
        if self._sent is None or self._sent[0] is not self.server:
            sent = typed("broadcast", self.algorithm.broadcast(self.fed, self.server))
            message = tensors(sent, self.device, self.net.dtype)
            self._sent = (self.server, message)
        return self._sent[1]

    def _memory(self, client: int) -> Memory:
        """Return a client's memory, on the device.

        Until the client has trained, it is made anew and not stored.
        """
        if client in self.memories:
            return dict(to(self.memories[client], self.device))
        first = self.fed.initial[self.context.of(client).model]
        memory = self.algorithm.init_client(self._fed_of(client), first)
        memory = typed("init_client", memory)
        return dict(tensors(memory, self.device, self.net.dtype))

    def begin(self) -> RoundWork:
        """Prepare the next round without changing the run."""
        number = self.round + 1
        with self.context.products(), self.context.own_draws("start", number):
            job = RoundWork(self.context, [], self._message(), number, self._lr(number))
            sent_bytes(job.message, self.net.dtype)  # refuses a size before the clients train
            for client in self.participants(number):
                own = job.of(client)
                memory = self._memory(client)
                try:
                    work = make_work(own.context, client, number, own.message, memory)
                except Exception as error:
                    reason = of_hook(error, own.message, memory)
                    raise RuntimeError(f"round {number}, client {client}: {reason}") from error
                job.clients.append(work)
        return job

    def end(self, job: RoundWork, trained: list[ClientResult]) -> None:
        """Finish the round that `begin` prepared, with its clients' results.

        The server and the memories are updated, and the new models evaluated if that is due.
        """
        with self.context.products(), self.context.own_draws("server", job.round):
            self._end(job, trained)

    def _end(self, job: RoundWork, trained: list[ClientResult]) -> None:
        number = job.round
        self._count_traffic(trained, job.message)
        cohort = self._cohort(trained, job.lr)
        uploads = gathered(self.context, trained)
        server = self._server_step(number, uploads, cohort)
        # No later round may depend on its metrics, because a state does not keep them.
        self.server = replace(server, metrics={})
        for result in trained:
            self.memories[result.client] = to(result.memory, "cpu")
            self._changed.add(result.client)
        for scores in self._scores.values():  # drop those of clients that have trained since
            if self._pooled:  # the one client's model is everyone's
                scores.clear()
            for client in cohort.params:
                scores.pop(client, None)
        evaluated = typed("evaluated", self.algorithm.evaluated(server))
        for model in evaluated.values():
            self._check_forms("evaluated", model)
        models = [server.params, *evaluated.values()]
        distinct = {id(model): model for model in models}
        reason = nonfinite_reason(number, trained, list(distinct.values()), self._message())
        self.progress.diverged = reason is not None
        self.progress.complaint = reason or ""
        if number % self.setting.evaluate_every == 0 or self.done:
            self._evaluate(job, trained, server.metrics)

    def _server_step(self, number: int, uploads: Upload, cohort: ClientCohort) -> Server:
        """Return the algorithm's next server."""
        try:
            server = self.algorithm.server_step(self.fed, self.server, uploads, cohort)
        except Exception as error:
            text = in_a_line(error)
            if self.context.unlike:
                names = ", ".join(cohort.groups)
                text += (
                    f"; clients have unlike models here ({names}): if it mixes their uploads, only "
                    "those of one name can be combined, which `by_model` gives by name"
                )
            elif isinstance(error, KeyError) and " " not in text:  # a key, not a sentence
                text += f" is missing (uploads have {', '.join(map(repr, uploads)) or 'nothing'})"
            reason = f"round {number}, server_step: {text}"
            raise RuntimeError(reason) from error
        typed("server_step", server)
        self._check_forms("server_step", server.params)
        if server.round != number:
            raise RuntimeError(
                f"server_step must return server.next(...): round {server.round} after round "
                f"{number}"
            )
        return server

    def _check_forms(self, hook: str, params: Params) -> None:
        """Raise ValueError if a model has tensors of other shapes than the server's network."""
        check_forms(hook, params, self.fed.initial.get(self.context.model, {}))

    def _cohort(self, trained: list[ClientResult], lr: float) -> ClientCohort:
        clients = [result.client for result in trained]
        sizes = [float(self.federation.sizes[client]) for client in clients]
        return ClientCohort(
            context=self.context,
            round=self.round + 1,
            ids=torch.tensor(clients, device=self.device),
            num_examples=torch.tensor(sizes, device=self.device, dtype=self.net.dtype),
            lr=lr,
            params={result.client: result.params for result in trained},
            traffic=self.progress.traffic,
        )

    def _count_traffic(self, trained: list[ClientResult], message: Message) -> None:
        traffic = self.progress.traffic
        sizes: dict[str, int] = {}  # of what a client receives, by its model
        down = 0
        for result in trained:
            own = self.context.of(result.client)
            if own.model not in sizes:
                sizes[own.model] = sent_bytes(own.received(message), self.net.dtype)
            down += sizes[own.model]
        down += self._public_bytes([result.client for result in trained])
        up = sum(result.bytes_up for result in trained)
        if down or up:
            traffic.communications += 1
        traffic.bytes_down += down
        traffic.bytes_up += up
        traffic.train_steps += sum(result.steps for result in trained) / len(trained)
        self.progress.samples += sum(result.samples for result in trained)

    def _public_bytes(self, clients: list[int]) -> int:
        """Count the public samples for those of a round's clients that have not been sent them.

        None has been before a client's hook reads them; the server has them anyway.
        """
        progress = self.progress
        public = self.fed.clients_public
        progress.public_read |= public.read
        if not progress.public_read:
            return 0
        new = sorted(set(clients) - set(progress.public_holders))
        progress.public_holders += new
        return len(new) * num_bytes(public.sent)

    def _own_metrics(
        self, trained: list[ClientResult], of_server: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics that the algorithm reports.

        They are the means over clients, weighted by examples, and the server's.
        """
        sums: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        for result in trained:
            size = float(self.federation.sizes[result.client])
            for name, value in result.metrics.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + size * value
                weights[name] = weights.get(name, 0.0) + size
        means = {name: total / weights[name] for name, total in sums.items()}
        metrics = joined_metrics(means, tensors(dict(of_server), self.device, self.net.dtype))
        if not metrics:
            return {}
        # Of all at once, so that the device is waited for once.
        values = torch.stack([value.double() for value in metrics.values()])
        return dict(zip(metrics, values.tolist(), strict=True))

    def _evaluate(
        self, job: RoundWork, trained: list[ClientResult], of_server: Mapping[str, Any]
    ) -> None:
        loss = float(torch.stack([result.loss for result in trained]).mean())
        local = self.tracker.clients(job, trained, self.done)
        own = self._own_metrics(trained, of_server)
        shared = {"train_loss": loss, **asdict(self.progress.traffic), **local, **own}
        untrained = set(range(self.setting.num_clients)) - self.memories.keys()
        on_test_set = self.done or self.setting.evaluate_personal == "every"
        # On a CPU grouped convolutions take nearly twice the time.
        stacked = self.backend == "stacked" and self.device.type == "cuda"
        for suffix, model in self.algorithm.evaluated(self.server).items():
            is_predicted = suffix in self.algorithm.predicted
            unchanged: Scores = {}
            # A client's kept model is the same until it trains again.
            if self.algorithm.keeps_model and not model and not is_predicted:
                unchanged = self._scores.setdefault(suffix, {})
            evaluator = Evaluator(
                self.net,
                self.federation,
                len(self.federation.clients),
                partial(self.net_of, suffix),
                stacked=stacked and not is_predicted,
                known=unchanged,
                untrained=untrained,
                predict=self._predict if is_predicted else by_logits,
                shared=self._pooled,
            )
            if self.net.is_whole(model):
                evaluation = evaluator.whole(model)
            else:
                # A model of pooled data is everyone's.
                at_all = on_test_set or self._pooled
                evaluation = evaluator.personal(self.models_of(suffix), at_all)
            self._add_points(suffix, model, evaluation, shared)
            if self.setting.finetune_steps:
                name = suffix + FINETUNED
                # After steps of its own, each client's model is its own, also of pooled data.
                tuned = replace(
                    evaluator, clients=self._training, known={}, untrained=(), shared=False
                )
                evaluation = tuned.personal(self.models_of(name), on_test_set)
                self._add_points(name, {}, evaluation, shared)

    def _add_points(
        self, suffix: str, model: Params, evaluation: Evaluation, shared: Mapping[str, float]
    ) -> None:
        """Add what was measured of a row in this round to its curve."""
        scores = evaluation.scores
        if scores:
            self.tracker.evaluated(self.round, suffix, model, scores, self.done)
        own = client_measures(evaluation.own, self._training, self.done)
        measures = {**mean_measures(scores), **own, **shared}
        curve = self.progress.curves.setdefault(suffix, [])
        curve.extend((self.round, name, float(value)) for name, value in measures.items())


def run_context(
    algorithm: Algorithm,
    setting: Setting,
    models: Mapping[str, RunModel],
    fed: FedView,
    federation: Federation,
) -> RunContext:
    """Make the context of a run, whose `models` are by name, and those of clients' own models."""
    context = RunContext(
        algorithm=algorithm,
        setting=setting,
        seed=fed.seed,
        model=setting.model,
        net=fed.net,
        fed=fed,
        federation=federation,
        optimizer=Optimizer.of(setting, fed.net),
        draws=next((model.drawing for model in models.values() if model.drawing), ""),
        from_outside=any(model.from_outside for model in models.values()),
    )
    if not setting.client_models:
        return context
    dealt = tuple(context.with_model(models[name]) for name in setting.models_of_clients)
    return replace(context, of_clients=dealt)


def finetuning(context: RunContext, holders: Sequence[Positions]) -> RunContext:
    """Return the context of clients' further steps: FedAvg's, with draws of its own.

    `holders`: the training samples of each client, also of those that never train.
    """
    setting = context.setting
    steps = max(1, setting.finetune_steps)
    changes: dict[str, Any] = {
        "algorithm": Algorithm(),
        "setting": replace(setting, local_epochs=steps, step_rule="batches"),
        "seed": stream(context.seed, "finetune").initial_seed(),
        "federation": context.federation.among(holders),
    }
    of_clients = tuple(replace(own, **changes) for own in context.of_clients)
    return replace(context, **changes, of_clients=of_clients)


def _check_rows(algorithm: Algorithm, server: Server) -> None:
    """Raise ValueError unless the rows that an algorithm declares are those that it evaluates."""
    declared = algorithm.rows
    rows = tuple(typed("evaluated", algorithm.evaluated(server)))
    if set(declared) != set(rows):
        raise ValueError(
            f"evaluated gives the rows {rows}, the class's `rows` states {declared}: "
            "make them agree"
        )
    unlisted = sorted(set(algorithm.predicted) - set(declared))
    if unlisted:
        raise ValueError(
            f"predicted names the rows {unlisted}, which the class's `rows` {declared} lacks: "
            "add them there"
        )


def trainer_of(backend: str, device: torch.device) -> Loop | Stacked:
    """Make the trainer of a round's clients: `loop` or `stacked`."""
    if backend == "loop":
        return Loop()
    from bench.engine.stacked.backend import Stacked

    return Stacked.on(device)


def choose_backend(backend: str, device: torch.device) -> str:
    """Resolve `auto`: clients are stacked on a GPU; on a CPU convolutions gain nothing from it."""
    if backend == "auto":
        return "stacked" if device.type == "cuda" else "loop"
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return backend
