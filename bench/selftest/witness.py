"""A plug-in that changes nothing and watches: every hook's answer is held against the contract while a run goes on."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from algorithms.base import (
    Algorithm,
    Batch,
    Cohort,
    Data,
    Fed,
    Local,
    Memory,
    Message,
    Net,
    Params,
    Plan,
    Plugin,
    Server,
    Upload,
    layers,
)
from bench.engine.pytree import leaves, tree_map
from bench.selftest.certify import Finding

NUMBERS = (bool, int, float)
AS_TENSORS = (
    "{} fails if plan.round, plan.lr and plan.num_steps are tensors, as they may be where clients are stacked: use "
    "arithmetic and comparisons, such as (plan.round > 1) * term, instead of `if` or float()"
)


@dataclass
class Log:
    """Record of a watched run: breaches of the contract, each round's message and server, each client's uploads."""

    finding: Finding = field(default_factory=Finding)
    messages: list[Message] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    _given: list[tuple[str, Any, Any]] = field(default_factory=list)
    _mapped: set[tuple[str, Any]] = field(default_factory=set)

    def give(self, what: str, tree: Any) -> None:
        """Remember what is handed to a hook, which must not write to it."""
        if all(tree is not other for _, other, _ in self._given):
            self._given.append((what, tree, tree_map(torch.clone, tree)))

    def take_back(self) -> None:
        """Forget what was given."""
        self._given.clear()

    @contextmanager
    def innocent(self, hook: str, place: str) -> Iterator[None]:
        """Note what is written to meanwhile of all that was given, and draws from a global generator."""
        state = _global_randomness()
        yield
        for what, tree, before in self._given:
            if not same(tree, before):
                self.finding.expect(False, f"{hook} writes to {what}, which it must leave as it is{place}")
        self._given = [given for given in self._given if same(given[1], given[2])]
        draws = f"{hook} draws from a global generator: use the one that `start` and `noise` get, or fed.stream{place}"
        self.finding.expect(state == _global_randomness(), draws)

    def map_plan(self, hook: str, call: Callable[[Local, Plan], Any], local: Local, plan: Plan) -> None:
        """Call a pure hook, once a round, as within a stack of one client whose plan has tensors for numbers.

        Its result is ignored. It is given copies, because a network in training mode writes into its buffers.
        """
        if (hook, plan.round) in self._mapped:
            return
        self._mapped.add((hook, plan.round))
        copied = tree_map(lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad), local)
        numbers = torch.tensor([[plan.round, plan.lr, plan.num_steps]]).to(plan.num_steps)

        def mapped(row: Tensor) -> Tensor:
            round, lr, num_steps = row.unbind()
            call(copied, replace(plan, round=round, lr=lr, num_steps=num_steps))
            return row

        with self.finding.case(AS_TENSORS.format(hook)):
            vmap(mapped, randomness="same")(numbers)


@dataclass(frozen=True)
class Witness(Plugin):
    """Forwards every hook to `base` and notes in `log` what the contract does not allow."""

    log: Log = field(default_factory=Log, compare=False)

    def _innocent(self, hook: str) -> AbstractContextManager[None]:
        kinds = (type(one) for one in layers(self.base) if hook in vars(type(one)))
        kind = next((kind for kind in kinds if kind is not Algorithm), Algorithm)
        code = None if kind is Algorithm else getattr(inspect.unwrap(getattr(kind, hook)), "__code__", None)
        return self.log.innocent(hook, f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else "")

    def _expect(self, holds: bool, problem: str) -> None:
        self.log.finding.expect(holds, problem)

    def _is(self, kind: type, hook: str, answer: Any) -> None:
        name = "a Server" if kind is Server else f"a {kind.__name__}"
        self._expect(isinstance(answer, kind), f"{hook} must return {name}, got {type(answer).__name__}")

    def _tree(self, hook: str, tree: Any) -> None:
        for path, leaf in items(tree):
            allowed = isinstance(leaf, (Tensor, *NUMBERS))
            self._expect(
                allowed, f"{hook} returns {type(leaf).__name__} at {path}: trees hold tensors and numbers only"
            )

    def _detached(self, hook: str, tree: Any) -> None:
        caught = [path for path, leaf in items(tree) if isinstance(leaf, Tensor) and leaf.requires_grad]
        self._expect(not caught, f"{hook} returns a tensor at {caught[:1]} that requires a gradient: detach it")

    def _model(self, where: str, model: Any, net: Net, whole: bool = False) -> None:
        if not isinstance(model, dict):
            self._expect(False, f"{where} must be a dict of tensors by name, got {type(model).__name__}")
            return
        unknown = sorted(set(model) - set(net.names))
        self._expect(not unknown, f"{where} has {unknown[:1]}, which the network does not: its calls will be refused")
        lacking = sorted(set(net.names) - set(model)) if whole else []
        self._expect(not lacking, f"{where} lacks {lacking[:1]} of the network's names")

    def init_server(self, fed: Fed, params: Params) -> Server:
        """A `Server` in round 0."""
        self.log.give("w_0", params)
        with self._innocent("init_server"):
            server = self.base.init_server(fed, params)
        self._is(Server, "init_server", server)
        self._expect(server.round == 0, f"init_server must return round 0, got {server.round}")
        self._model("server.params", server.params, fed.net)
        return server

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """A dict of tensors and numbers."""
        with self._innocent("broadcast"):
            message = self.base.broadcast(fed, server)
        self._is(dict, "broadcast", message)
        self._tree("broadcast", message)
        self._detached("broadcast", message)
        return message

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """A new `Server`; the old one stays as it was."""
        self.log.take_back()
        self.log.give("the old server", tree_of(server))
        self.log.give("uploads", uploads)
        with self._innocent("server_step"):
            new = self.base.server_step(fed, server, uploads, cohort)
        self._model("server.params", new.params, fed.net)
        self._detached("server_step", tree_of(new))
        self.log.take_back()
        self.log.servers.append(new)
        return new

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Models by suffix."""
        with self._innocent("evaluated"):
            rows = self.base.evaluated(server)
        self._is(dict, "evaluated", rows)
        return rows

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """A dict."""
        with self._innocent("init_client"):
            memory = self.base.init_client(fed, params)
        self._is(dict, "init_client", memory)
        self._tree("init_client", memory)
        return memory

    def start(self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator) -> Local:
        """A whole model, and whatever else is trained."""
        self.log.give("the message", message)
        self.log.give("a client's memory", memory)
        if all(message is not other for other in self.log.messages):
            self.log.messages.append(message)
        with self._innocent("start"):
            local = self.base.start(fed, message, memory, generator)
        self._expect("params" in local, f"start must return `params`, got {', '.join(local) or 'nothing'}")
        self._model("start's params", local.get("params"), fed.net, whole=True)
        self._tree("start", local)
        return local

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Rows."""
        with self._innocent("noise"):
            drawn = self.base.noise(fed, generator, batch_size)
        for tensor in leaves(drawn):
            rows = tensor.dim() > 0 and len(tensor) == batch_size
            self._expect(rows, f"noise must have {batch_size} rows, the batch's, got shape {tuple(tensor.shape)}")
        return drawn

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Tensors of the message or the memory."""
        with self._innocent("teachers"):
            models = self.base.teachers(message, memory)
        self._is(dict, "teachers", models)
        given = {id(tensor) for tensor in (*leaves(message), *leaves(memory))}
        for name, model in models.items():
            chosen = all(id(tensor) in given for tensor in leaves(model))
            self._expect(chosen, f"teacher {name!r} is computed: teachers selects tensors of message and memory")
        return models

    def before_step(self, net: Net, local: Local, batch: Batch, message: Message, plan: Plan) -> Local:
        """At least what it was given."""
        with self._innocent("before_step"):
            after = self.base.before_step(net, local, batch, message, plan)
        self.log.map_plan("before_step", lambda own, p: self.base.before_step(net, own, batch, message, p), local, plan)
        lost = sorted(set(local) - set(after))
        self._expect(not lost, f"before_step drops {lost} of the local it was given")
        return after

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """(B,) or a scalar."""
        with self._innocent("local_loss"):
            loss = self.base.local_loss(net, local, batch, message, memory, plan)
        self.log.map_plan(
            "local_loss", lambda own, p: self.base.local_loss(net, own, batch, message, memory, p), local, plan
        )
        shapes = ((), tuple(batch.y.shape))
        self._expect(tuple(loss.shape) in shapes, f"local_loss must be {shapes[1]} or (), got {tuple(loss.shape)}")
        return loss

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: Plan
    ) -> tuple[Upload, Memory]:
        """Two dicts."""
        with self._innocent("upload"):
            upload, kept = self.base.upload(net, local, data, message, memory, plan)
        self.log.map_plan("upload", lambda own, p: self.base.upload(net, own, data, message, memory, p), local, plan)
        for where, tree in (("upload", upload), ("upload's memory", kept)):
            self._is(dict, where, tree)
            self._tree(where, tree)
        self.log.uploads.append(upload)
        return upload, kept


def _global_randomness() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


def watch(algorithm: Algorithm, finding: Finding | None = None) -> Witness:
    """The algorithm, watched; problems are noted in `finding`."""
    return Witness(algorithm, Log(finding or Finding()))


def tree_of(server: Server) -> dict[str, Any]:
    """All that the server keeps."""
    return {"params": server.params, "extra": dict(server.extra)}


def items(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of every leaf, tensors or not."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from items(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from items(value, f"{path}[{index}]")
    else:
        yield path or "the root", tree


def same(left: Any, right: Any) -> bool:
    """Whether two trees have the same places and the same values, NaN being equal to itself."""
    one, two = dict(items(left)), dict(items(right))
    return list(one) == list(two) and all(_same_leaf(leaf, two[path]) for path, leaf in one.items())


def _same_leaf(left: Any, right: Any) -> bool:
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        return bool(left == right)
    if left.is_floating_point():
        left, right = left.nan_to_num(), right.nan_to_num()
    return torch.equal(left, right)
