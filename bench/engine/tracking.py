"""Data that `--track` keeps of a run besides its curve.

They are measured at evaluated rounds, and written when the run ends. `bench.artifacts` lists the
arrays and reads them. A final model is loaded by its run key and used as any other:

    params = load_model("leaderboards", run_key)  # for FedBN and `local`, with client=3
    module = models.make("resnet8", (3, 32, 32), 10)
    module.load_state_dict(params)
    logits = module.eval()(images).logits  # images (B, ...) normalised as the run's were
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Params
from algorithms.forward import chunk_size
from algorithms.losses import cross_entropy
from bench import artifacts
from bench.engine.client_round import ClientResult, RoundWork, leaves_of
from bench.engine.evaluate import Score, mean_measures, on_test
from bench.engine.federation import Federation
from bench.engine.network import Network
from bench.engine.pytree import gradients_of
from bench.engine.rng import stream
from leaderboards.rows.files import is_regular

FEATURE_SAMPLES = 1000
_Arrays = dict[str, Any]  # names of `bench.artifacts` -> list or tensor


class Tracker:
    """Observer of one run's evaluations. It changes nothing that the run computes.

    Attributes:
        what: names of `TRACKS`; after `load` also those that the saved run tracked, so that their
            curves go on.
        seconds: spent here, over all sessions of the run; not counted in the run's own.
    """

    def __init__(
        self,
        what: Collection[str],
        net: Network,
        federation: Federation,
        complete: Callable[[Params, int], Params],
        net_of: Callable[[int], Network],
    ) -> None:
        self.what = frozenset(what)
        self.seconds = 0.0
        self._net = net
        self._federation = federation
        self._complete = complete
        self._net_of = net_of
        self._shared: _Arrays = {}
        self._rows: dict[str, _Arrays] = {}

    def clients(self, job: RoundWork, trained: list[ClientResult], last: bool) -> dict[str, float]:
        """Measure the clients' own models after an evaluated round, and keep their message.

        Returns:
            Values for every row's curve: `local_accuracy`, the unweighted mean over these clients,
            if it is tracked.
        """
        local = "local" in self.what
        classes = last and "classes" in self.what
        with self._clock():
            if "message" in self.what:
                entries: _Arrays = {"message/rounds": job.round}
                for name in job.context.algorithm.tracked:
                    entries[f"message/{name}"] = job.message[name].tolist()
                _append(self._shared, entries)
            if "drift" in self.what:
                measures = drift(self._net, self._federation, job, trained)
                _append(self._shared, {f"drift/{name}": value for name, value in measures.items()})
            if last and "features" in self.what:
                client = trained[0].client
                features = self._features(self._net_of(client), trained[0].params)
                self._shared["features/client"] = client
                self._shared["features/local"] = features
            if not local and not classes:
                return {}
            scores = {}
            for result in trained:
                net = self._net_of(result.client)
                scores[result.client] = on_test(net, self._federation, result.params)
            if classes:
                self._shared["classes/clients"] = list(scores)
                self._shared["classes/local"] = [self._by_class(parts) for parts in scores.values()]
            if not local:
                return {}
            accuracy = [mean_measures(parts)["accuracy"] for parts in scores.values()]
            values = {"rounds": job.round, "clients": list(scores), "accuracy": accuracy}
            _append(self._shared, {f"local/{name}": value for name, value in values.items()})
            return {"local_accuracy": math.fsum(accuracy) / len(accuracy)}

    def evaluated(
        self, round: int, suffix: str, model: Params, scores: list[Score], last: bool
    ) -> None:
        """Keep the tracked values of a row's model, whose accuracy is the mean over `scores`."""
        arrays = self._rows.setdefault(suffix, {})
        with self._clock():
            if "classes" in self.what:
                _append(arrays, {"classes/rounds": round, "classes/global": self._by_class(scores)})
                arrays["classes/personal"] = not self._net.is_whole(model)
            if not (last and "features" in self.what):
                return
            if self._net.is_whole(model):
                arrays["features/global"] = self._features(self._net, model)
            elif len(self._federation.clients) == 1:
                whole = self._complete(model, 0)
                arrays["features/global"] = self._features(self._net_of(0), whole)

    def state(self) -> dict[str, Any]:
        """Return the state to save, which is the argument of `load`."""
        return {
            "what": sorted(self.what),
            "seconds": self.seconds,
            "shared": self._shared,
            "rows": self._rows,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved run, which may have tracked other data, or none."""
        self.what |= frozenset(state.get("what", ()))
        self.seconds = state.get("seconds", 0.0)
        self._shared = state.get("shared", {})
        self._rows = state.get("rows", {})

    def arrays(self, suffix: str) -> dict[str, Any]:
        """Return all that was tracked for a row, by the names of `bench.artifacts`."""
        arrays = {**self._shared, **self._rows.get(suffix, {})}
        if "classes" in self.what:
            labels = self._federation.train.labels
            counts = [self._counts(labels[index]) for index in self._federation.clients]
            arrays["classes/counts"] = torch.stack(counts)
        if "features" in self.what:
            index = self._feature_samples()
            arrays["features/samples"] = index
            arrays["features/labels"] = self._federation.test.labels[index]
        return {
            name: value.cpu().numpy() if isinstance(value, Tensor) else value
            for name, value in arrays.items()
        }

    @contextmanager
    def _clock(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    def _by_class(self, scores: list[Score]) -> list[float]:
        """Return each class's accuracy (C,): the mean over the scores that have samples of it."""
        labels = self._federation.test.labels
        counts = []
        for part in self._federation.test_parts:
            counts.append(self._counts(labels if part is None else labels[part]))
        shares = [score.right.double() / counts[score.part] for score in scores]
        values: list[float] = torch.stack(shares).nanmean(0).tolist()
        return values

    def _counts(self, labels: Tensor) -> Tensor:
        return torch.bincount(labels, minlength=self._net.num_classes).cpu()

    @torch.no_grad()
    def _features(self, net: Network, params: Params) -> Tensor:
        parts = torch.split(self._feature_samples(), chunk_size(self._federation.device))
        outputs = [net.eval(params, self._federation.test.at(index)).features for index in parts]
        return torch.cat(outputs).float().cpu()

    def _feature_samples(self) -> Tensor:
        """Draw test samples, the same for every run on a data set, whatever its seed."""
        labels = self._federation.test.labels
        drawn = torch.randperm(len(labels), generator=stream(0, "tracked features"))
        return drawn[:FEATURE_SAMPLES].sort().values.to(labels.device)


def drift(
    net: Network, federation: Federation, job: RoundWork, trained: list[ClientResult]
) -> dict[str, Any]:
    """Measure how much the clients of a round differ, and how far they move.

    FedGKD's section 4.1 assumes bounds on both.

    In symbols: w_t is the model that the clients of a round receive, w_{t+1}^k is client k's after
    training, F_k(w) the mean cross entropy of w on k's n_k training samples, in evaluation mode,
    and p_k = n_k / sum_j n_j over the round's clients.

    Returns:
        Values for m clients. Norms are Euclidean, over trainable parameters, in double precision.
        If clients begin with models of their own (FedBN, `local`), w_t is client k's own in every
        term of client k.

        rounds: the round's number.
        clients: (m,) the round's clients.
        shares: (m,) p_k.
        gradients: (m,) ||grad F_k(w_t)||, the bound on a local solution's error in Assumption 2
            (Eq. 6).
        mean_gradient: ||sum_k p_k grad F_k(w_t)||, which stands for ||grad f(w_t)||.
        dissimilarity: sum_k p_k ||grad F_k(w_t)||^2 / mean_gradient^2, at least 1: the smallest B^2
            with which Assumption 1.2 holds at w_t among these clients.
        distances: (m,) ||w_{t+1}^k - w_t||, the norm of Eq. 6's second term without its factor.
        distance: sum_k p_k ||w_{t+1}^k - w_t||.
    """
    clients = [work.client for work in job.clients]
    sizes = torch.tensor([federation.sizes[client] for client in clients], dtype=torch.float64)
    shares = sizes / sizes.sum()
    batch_size = job.context.setting.batch_size
    mean = torch.zeros((), dtype=torch.float64, device=federation.device)
    norms = []
    moves = []
    for work, result, share in zip(job.clients, trained, shares.tolist(), strict=True):
        received = work.local["params"]
        gradient = _gradient(net, federation, received, work.client, batch_size)
        mean = mean + share * gradient
        norms.append(gradient.norm())
        moves.append((_flat(net, result.params) - _flat(net, received)).norm())
    gradients = torch.stack(norms).cpu()
    distances = torch.stack(moves).cpu()
    mean_gradient = mean.norm().cpu()
    return {
        "rounds": job.round,
        "clients": clients,
        "shares": shares.tolist(),
        "gradients": gradients.tolist(),
        "mean_gradient": mean_gradient.item(),
        "dissimilarity": ((shares * gradients**2).sum() / mean_gradient**2).item(),
        "distances": distances.tolist(),
        "distance": (shares * distances).sum().item(),
    }


def _gradient(
    net: Network, federation: Federation, params: Params, client: int, batch_size: int
) -> Tensor:
    """Compute grad F_k (d,) in float64.

    Batches have the size of local training's, whose gradients fit into memory.
    """
    params = leaves_of(net, params)
    index = federation.clients[client]
    leaves = {name: params[name] for name in net.trainable}
    total = torch.zeros((), dtype=torch.float64, device=federation.device)
    for x, y in federation.chunks(federation.train, index, batch_size):
        loss = cross_entropy(net.eval(params, x).logits, y).sum() / len(index)
        total = total + _flat(net, gradients_of(loss, leaves))
    return total


def _flat(net: Network, params: Params) -> Tensor:
    """Concatenate all trainable entries, (d,) float64."""
    return torch.cat([params[name].detach().double().reshape(-1) for name in net.trainable])


def load_model(out: Path | str, key: str, client: int | None = None) -> Params:
    """Load the final model of a row that was run with `--track models`.

    Args:
        out: results folder.
        key: run key of the row, or its first 16 characters.
        client: needed if each client has its own model (FedBN, `local`); of a run with
            `client_models` its architecture is the client's.

    Returns:
        Parameters and floating-point buffers by all names that a module has for them, in the run's
        precision, on the CPU.

    Raises:
        FileNotFoundError: no model of that row was kept.
        ValueError: each client has its own, and `client` is not one of them.
    """
    from safetensors.torch import load_file

    path = artifacts.path_of(out, key, "safetensors")
    if not is_regular(path):
        raise FileNotFoundError(
            f"{path}: run {key[:16]} has no stored model; run it with --track models --force"
        )
    tensors = load_file(path)
    shared = {name: value for name, value in tensors.items() if "/" not in name}
    owners = sorted({int(name.partition("/")[0]) for name in tensors if "/" in name})
    if not owners:
        return shared
    if client is None and len(owners) == 1:
        client = owners[0]
    if client not in owners:
        raise ValueError(
            f"run {key[:16]} has a model for each of the clients 0 to {owners[-1]}, got "
            f"client={client}"
        )
    prefix = f"{client}/"
    model = dict(shared)
    for name, value in tensors.items():
        if name.startswith(prefix):
            model[name.removeprefix(prefix)] = value
    return model


def fingerprint(params: Params) -> str:
    """Return 16 hexadecimal digits, equal for models of equal names and values, to the last bit."""
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode() + params[name].numpy().tobytes())
    return digest.hexdigest()[:16]


def _append(arrays: _Arrays, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        arrays.setdefault(name, []).append(value)
