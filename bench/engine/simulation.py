"""One federated run: rounds of an algorithm over a federation, with its counters, curve and state."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Memory, Message, Params, Server
from bench import models
from bench.data import Dataset, DatasetInfo
from bench.data.splits import Split
from bench.engine.client_round import ClientResult, Problem, RoundWork, joined_metrics, make_work
from bench.engine.cohort import ClientCohort, Traffic
from bench.engine.evaluate import Evaluator, Scores, StopCheck, nonfinite_reason
from bench.engine.federation import Federation
from bench.engine.loop import Loop
from bench.engine.network import Network, drawn_module, initial_params, make_module, take_constants
from bench.engine.optimizers import Optimizer, decays
from bench.engine.own_draws import drawing_layer, refuse
from bench.engine.pytree import num_bytes, shapes, stack, tensors, to
from bench.engine.rng import stream
from bench.engine.server_context import FedView, ServerSteps
from bench.engine.state import StateFolder
from bench.engine.tracking import Tracker
from bench.errors import Slower, with_its_kind
from bench.execution import BACKENDS
from leaderboards.rows.checks import check_curve
from search_spaces.setting import Setting

if TYPE_CHECKING:
    from bench.engine.stacked.backend import Stacked

Point = tuple[int, str, float]
YEAR_9999 = 253_370_764_800.0  # seconds from 1970 to the last year that Python knows


@dataclass
class Progress:
    """The counters and results of a run so far.

    Args:
        curves: by row suffix, (round, metric, value) of every evaluated round.
        traffic: of all rounds.
        samples: training examples processed, each epoch counted.
        seconds: of computation, over all sessions of the run.
        diverged: whether a loss or a model stopped being finite, which ends the run.
        complaint: the round, client and name of that value.
        started: seconds since 1970 (UTC).
    """

    curves: dict[str, list[Point]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    samples: int = 0
    seconds: float = 0.0
    diverged: bool = False
    complaint: str = ""
    started: float = field(default_factory=time.time)


def progress_of(saved: Mapping[str, Any], rows: Collection[str], rounds: int) -> Progress:
    """Rebuild the progress in a saved state of a run that has made `rounds`.

    `rows` are the suffixes of the run's rows.

    Raises:
        TypeError: it lacks a counter, or has another one.
        ValueError: a counter or a curve has a value that no run gives it.
    """
    traffic = Traffic(**saved["traffic"])
    progress = Progress(**{**saved, "traffic": traffic})
    counters = {**asdict(traffic), "samples": progress.samples, "seconds": progress.seconds}
    for name, value in {**counters, "started": progress.started}.items():
        if type(value) not in (int, float) or not 0 <= value < inf:
            raise ValueError(f"its {name} is {value!r}")
    if progress.started >= YEAR_9999:
        raise ValueError(f"it began {progress.started!r} s after 1970")
    if type(progress.diverged) is not bool or type(progress.complaint) is not str:
        raise ValueError(f"it says of its divergence {progress.diverged!r}: {progress.complaint!r}")
    for suffix, curve in progress.curves.items():
        if suffix not in rows:
            raise ValueError(f"it has a curve of the row {suffix!r}")
        check_curve(curve)
        if max((point[0] for point in curve), default=0) > rounds:
            raise ValueError(f"its curve has later rounds than its {rounds}")
    return progress


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
    ) -> None:
        self.algorithm, self.setting, self.seed, self.folder = algorithm, setting, seed, folder
        # No part of a Simulation may hold a strong reference to it. Its GPU memory is then freed as
        # soon as the last user drops it, not by the garbage collector, which might free captured
        # graphs during another capture.
        weak_self = weakref.proxy(self)
        self.device = torch.device(device)
        self.backend = choose_backend(backend, self.device)
        self.trainer = trainer_of(self.backend, self.device)
        self._data_hash = dataset.hash
        info, dataset = info.sized(setting.image_size), dataset.sized(setting.image_size)
        factory = partial(models.make, setting.model, info.input_shape, info.num_classes)
        module = make_module(factory, setting.partition_seed_of(seed))
        if initial:
            take_constants(module, initial)
        mean, std = info.normalization(setting.normalization)
        self.net = Network(
            module, info.input_shape, info.num_classes, setting.precision, mean, std
        ).to(self.device)
        dtype, run_device = (
            self.net.dtype,
            self.device,
        )  # not `self`, which the lambdas below must not hold
        split = split.pooled() if "pooled" in algorithm.needs else split
        check = StopCheck(stopping)
        self.federation = Federation(dataset, info, split, setting, run_device, dtype, check)
        self.fed = FedView(
            net=self.net,
            num_clients=len(self.federation.clients),
            batch_size=setting.batch_size,
            seed=seed,
            auxiliary=self.federation.data(self.federation.auxiliary),
            validation=self.federation.data(self.federation.validation),
            steps=ServerSteps(self.net, run_device, dtype, lambda: weak_self.trainer.server),
            initialise=lambda generator: initial_params(
                drawn_module(factory, generator), dtype, run_device
            ),
        )
        optimizer = Optimizer(setting, decays(setting, self.net.trainable, self.net.norms))
        draws = drawing_layer(setting.model, info.input_shape)
        if draws and (self.backend != "loop" or self.device.type != "cpu"):
            raise refuse(setting.model, draws, "in a stack or on a GPU")
        self.problem = Problem(
            algorithm, setting, seed, self.net, self.fed, self.federation, optimizer, draws
        )
        drawn = initial_params(module, dtype, run_device)
        self._initial = (
            {name: initial[name].to(value) for name, value in drawn.items()} if initial else drawn
        )
        with self.problem.products(), self.problem.own_draws("server", 0):
            self.server: Server = algorithm.init_server(self.fed, self._initial)
        declared, rows = algorithm.rows, tuple(algorithm.evaluated(self.server))
        if set(declared) != set(rows):
            name = type(algorithm).__name__
            raise ValueError(
                f"{name}.evaluated gives the rows {rows}, its `rows` states {declared}: make them agree"
            )
        self.memories: dict[int, Memory] = {}
        self.progress = Progress()
        self.tracker = Tracker(
            track, self.net, self.federation, lambda *args: weak_self.local_model(*args)
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
        """Add the time spent in the block to the run's seconds, without the time spent on tracking."""
        began, tracking = time.perf_counter(), self.tracker.seconds
        yield
        self.progress.seconds += time.perf_counter() - began - (self.tracker.seconds - tracking)

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
        self._changed.clear()
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
        self.progress = progress_of(server["progress"], self.algorithm.rows, number)
        self.tracker.load(dict(server.get("tracking", {})))
        self.server = Server(server["params"], number, dict(server["extra"]))
        self.memories = memories

    def participants(self, round: int) -> list[int]:
        """Draw the clients of a round uniformly without replacement, and return them in ascending order."""
        order = torch.randperm(
            self.fed.num_clients, generator=stream(self.seed, "participation", round)
        )
        return sorted(order[: self.setting.cohort_size].tolist())

    def local_model(self, row: Params, client: int) -> Params:
        """Return a personal model: the tensors of `row`, and else those that the client would start from."""
        # Pooled data have a single client, whose model serves all.
        client = min(client, self.fed.num_clients - 1)
        fed = self.problem.fed_of(client)
        generator = stream(self.seed, "start", self.round, client)
        with self.problem.products():
            message = self._message()
            local = self.algorithm.start(fed, message, self._memory(client), generator)
        return {**local["params"], **row}

    def _message(self) -> Message:
        """Return the current server's message; made once, because personal models are evaluated with it too."""
        if self._sent is None or self._sent[0] is not self.server:
            message = tensors(
                self.algorithm.broadcast(self.fed, self.server), self.device, self.net.dtype
            )
            self._sent = (self.server, message)
        return self._sent[1]

    def _memory(self, client: int) -> Memory:
        """Return a client's memory, on the device; until the client has trained, it is made anew and not stored."""
        if client in self.memories:
            return dict(to(self.memories[client], self.device))
        memory = self.algorithm.init_client(self.problem.fed_of(client), self._initial)
        return dict(tensors(memory, self.device, self.net.dtype))

    def begin(self) -> RoundWork:
        """Prepare the next round without changing the run."""
        number = self.round + 1
        lr = self.setting.lr * self.setting.lr_decay**self.round
        with self.problem.products(), self.problem.own_draws("start", number):
            message = self._message()
            clients = [
                make_work(self.problem, client, number, message, self._memory(client))
                for client in self.participants(number)
            ]
        return RoundWork(self.problem, clients, message, number, lr)

    def end(self, job: RoundWork, trained: list[ClientResult]) -> None:
        """Finish the round that `begin` prepared: update server and memories with the clients' results, evaluate."""
        with self.problem.products(), self.problem.own_draws("server", job.round):
            self._end(job, trained)

    def _end(self, job: RoundWork, trained: list[ClientResult]) -> None:
        number = job.round
        self._count_traffic(trained, job.message)
        cohort = self._cohort(trained, job.lr)
        uploads = stack([result.upload for result in trained])
        server = self.algorithm.server_step(self.fed, self.server, uploads, cohort)
        if server.round != number:
            raise RuntimeError(
                f"server_step must return server.next(...): round {server.round} after round {number}"
            )
        self.server = replace(
            server, metrics={}
        )  # no later round may depend on them: a state does not keep them
        for result in trained:
            self.memories[result.client] = to(result.memory, "cpu")
            self._changed.add(result.client)
        for (
            suffix,
            scores,
        ) in self._scores.items():  # drop the scores of clients that have trained since
            self._scores[suffix] = {
                case: score for case, score in scores.items() if case[0] not in cohort.params
            }
        distinct = {
            id(model): model
            for model in [server.params, *self.algorithm.evaluated(server).values()]
        }
        reason = nonfinite_reason(number, trained, list(distinct.values()), self._message())
        self.progress.diverged, self.progress.complaint = reason is not None, reason or ""
        if number % self.setting.evaluate_every == 0 or self.done:
            self._evaluate(job, trained, server.metrics)

    def _cohort(self, trained: list[ClientResult], lr: float) -> ClientCohort:
        clients = [result.client for result in trained]
        sizes = [float(self.federation.sizes[client]) for client in clients]
        return ClientCohort(
            problem=self.problem,
            round=self.round + 1,
            ids=torch.tensor(clients, device=self.device),
            num_examples=torch.tensor(sizes, device=self.device, dtype=self.net.dtype),
            lr=lr,
            params={result.client: result.params for result in trained},
            traffic=self.progress.traffic,
        )

    def _count_traffic(self, trained: list[ClientResult], message: Message) -> None:
        traffic = self.progress.traffic
        down, up = len(trained) * num_bytes(message), sum(result.bytes_up for result in trained)
        traffic.communications += bool(down or up)
        traffic.bytes_down += down
        traffic.bytes_up += up
        traffic.train_steps += sum(result.steps for result in trained) / len(trained)
        self.progress.samples += sum(result.samples for result in trained)

    def _own_metrics(
        self, trained: list[ClientResult], of_server: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return the metrics that the algorithm reports: clients' means, weighted by examples, and the server's."""
        sums: dict[str, tuple[Tensor, float]] = {}
        for result in trained:
            size = float(self.federation.sizes[result.client])
            for name, value in result.metrics.items():
                total, weight = sums.get(name, (torch.zeros_like(value), 0.0))
                sums[name] = total + size * value, weight + size
        means = {name: total / weight for name, (total, weight) in sums.items()}
        metrics = joined_metrics(means, tensors(dict(of_server), self.device, self.net.dtype))
        if not metrics:
            return {}
        values = torch.stack(
            [value.double() for value in metrics.values()]
        ).tolist()  # the device is waited for once
        return dict(zip(metrics, values, strict=True))

    def _evaluate(
        self, job: RoundWork, trained: list[ClientResult], of_server: Mapping[str, Any]
    ) -> None:
        nothing_sent = not num_bytes(self._message())
        loss = float(torch.stack([result.loss for result in trained]).mean())
        local = self.tracker.clients(job, trained, self.done)
        own = self._own_metrics(trained, of_server)
        shared = {"train_loss": loss, **asdict(self.progress.traffic), **local, **own}
        untrained = set(range(len(self.federation.clients))) - self.memories.keys()
        for suffix, row in self.algorithm.evaluated(self.server).items():
            # A client that is sent nothing has the same model until it trains again.
            cached = self._scores.setdefault(suffix, {}) if nothing_sent and not row else {}
            evaluator = Evaluator(self.net, self.federation, self.local_model, cached, untrained)
            scores = evaluator.scores(row)
            self.tracker.row(self.round, suffix, row, scores, self.done)
            curve = self.progress.curves.setdefault(suffix, [])
            measures = {**evaluator.measures(row, scores, self.done), **shared}
            curve.extend((self.round, name, float(value)) for name, value in measures.items())


def trainer_of(backend: str, device: torch.device) -> Loop | Stacked:
    """Make the trainer of a round's clients: `loop` or `stacked`."""
    if backend == "loop":
        return Loop()
    from bench.engine.stacked.backend import Stacked

    return Stacked.on(device)


def choose_backend(backend: str, device: torch.device) -> str:
    """Resolve `auto`: stack clients on a GPU, not on a CPU, where convolutions gain nothing from stacking."""
    if backend == "auto":
        return "stacked" if device.type == "cuda" else "loop"
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return backend
