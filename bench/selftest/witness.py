"""A plug-in that changes nothing and watches: every hook's answer is held against the contract while a run goes on."""

from __future__ import annotations

import inspect
import random
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
from bench.selftest.toy import items, same

NUMBERS = (bool, int, float)
AS_TENSORS = (
    "{} fails if plan.round, plan.lr and plan.num_steps are tensors, as they may be where clients are stacked: use "
    "arithmetic and comparisons, such as (plan.round > 1) * term, instead of `if` or float()"
)


@dataclass
class Log:
    """Record of a watched run."""

    finding: Finding = field(default_factory=Finding)  # breaches of the contract
    messages: list[Message] = field(default_factory=list)  # of each round
    uploads: list[Upload] = field(default_factory=list)  # of each client in each round
    servers: list[Server] = field(default_factory=list)  # after each round
    given: list[tuple[str, Any, Any]] = field(default_factory=list)  # what no hook may write to: name, tree, copy
    mapped: set[tuple[str, Any]] = field(default_factory=set)  # pure hooks, and the round that they were mapped in

    def give(self, what: str, tree: Any) -> None:
        """Remember what is handed to a hook, which must not write to it."""
        if all(tree is not other for _, other, _ in self.given):
            self.given.append((what, tree, tree_map(torch.clone, tree)))


@dataclass(frozen=True)
class Witness(Plugin):
    """Forwards every hook to `base` and notes in `log` what the contract does not allow."""

    log: Log = field(default_factory=Log, compare=False)

    def _expect(self, holds: bool, problem: str) -> None:
        self.log.finding.expect(holds, problem)

    def _call(self, hook: str, *arguments: Any) -> Any:
        """Call the base's hook; note what it writes to of all that was given, and draws from a global generator."""
        state = _global_randomness()
        answer = getattr(self.base, hook)(*arguments)
        place = _place(self.base, hook)
        for what, tree, before in self.log.given:
            self._expect(same(tree, before), f"{hook} writes to {what}, which it must leave as it is{place}")
        self.log.given = [given for given in self.log.given if same(given[1], given[2])]
        draws = f"{hook} draws from a global generator: use the one that `start` and `noise` get, or fed.stream{place}"
        self._expect(state == _global_randomness(), draws)
        return answer

    def _call_pure(self, hook: str, net: Net, local: Local, *rest: Any) -> Any:
        """Call a pure hook, once a round also as within a stack of one client whose plan has tensors for numbers.

        The plan comes last. That second result is ignored; the hook is given copies, because a network in training mode
        writes into its buffers.
        """
        answer = self._call(hook, net, local, *rest)
        *others, plan = rest
        if (hook, plan.round) in self.log.mapped:
            return answer
        self.log.mapped.add((hook, plan.round))
        copied = tree_map(lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad), local)
        numbers = torch.tensor([[plan.round, plan.lr, plan.num_steps]]).to(plan.num_steps)

        def mapped(row: Tensor) -> Tensor:
            round, lr, num_steps = row.unbind()
            as_tensors = replace(plan, round=round, lr=lr, num_steps=num_steps)
            getattr(self.base, hook)(net, copied, *others, as_tensors)
            return row

        with self.log.finding.case(AS_TENSORS.format(hook)):
            vmap(mapped, randomness="same")(numbers)
        return answer

    def _tree(self, hook: str, tree: Any) -> None:
        for path, leaf in items(tree):
            allowed = isinstance(leaf, (Tensor, *NUMBERS))
            self._expect(
                allowed, f"{hook} returns {type(leaf).__name__} at {path}: trees hold tensors and numbers only"
            )

    def _detached(self, hook: str, tree: Any) -> None:
        caught = [path for path, leaf in items(tree) if isinstance(leaf, Tensor) and leaf.requires_grad]
        self._expect(not caught, f"{hook} returns a tensor at {caught[:1]} that requires a gradient: detach it")

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Watch it keep w_0."""
        self.log.give("w_0", params)
        server: Server = self._call("init_server", fed, params)
        return server

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Tensors without a gradient, and numbers."""
        message: Message = self._call("broadcast", fed, server)
        self._tree("broadcast", message)
        self._detached("broadcast", message)
        return message

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """A new `Server` without a gradient; the old one stays as it was."""
        self.log.given.clear()
        self.log.give("the old server", tree_of(server))
        self.log.give("uploads", uploads)
        new: Server = self._call("server_step", fed, server, uploads, cohort)
        self._detached("server_step", tree_of(new))
        self.log.given.clear()
        self.log.servers.append(new)
        return new

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Models by suffix."""
        rows: dict[str, Params] = self._call("evaluated", server)
        return rows

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Tensors and numbers."""
        memory: Memory = self._call("init_client", fed, params)
        self._tree("init_client", memory)
        return memory

    def start(self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator) -> Local:
        """Tensors and numbers, made of a message and a memory that stay as they were."""
        self.log.give("the message", message)
        self.log.give("a client's memory", memory)
        if all(message is not other for other in self.log.messages):
            self.log.messages.append(message)
        local: Local = self._call("start", fed, message, memory, generator)
        self._tree("start", local)
        return local

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Rows."""
        drawn = self._call("noise", fed, generator, batch_size)
        for tensor in leaves(drawn):
            rows = tensor.dim() > 0 and len(tensor) == batch_size
            self._expect(rows, f"noise must have {batch_size} rows, the batch's, got shape {tuple(tensor.shape)}")
        return drawn

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Tensors of the message or the memory."""
        models: dict[str, Params] = self._call("teachers", message, memory)
        given = {id(tensor) for tensor in (*leaves(message), *leaves(memory))}
        for name, model in models.items():
            chosen = all(id(tensor) in given for tensor in leaves(model))
            self._expect(chosen, f"teacher {name!r} is computed: teachers selects tensors of message and memory")
        return models

    def before_step(self, net: Net, local: Local, batch: Batch, message: Message, plan: Plan) -> Local:
        """At least what it was given."""
        after: Local = self._call_pure("before_step", net, local, batch, message, plan)
        lost = sorted(set(local) - set(after))
        self._expect(not lost, f"before_step drops {lost} of the local it was given")
        return after

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """(B,) or a scalar."""
        loss: Tensor = self._call_pure("local_loss", net, local, batch, message, memory, plan)
        shapes = ((), tuple(batch.y.shape))
        self._expect(tuple(loss.shape) in shapes, f"local_loss must be {shapes[1]} or (), got {tuple(loss.shape)}")
        return loss

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: Plan
    ) -> tuple[Upload, Memory]:
        """Tensors and numbers."""
        upload, kept = self._call_pure("upload", net, local, data, message, memory, plan)
        self._tree("upload", upload)
        self._tree("upload's memory", kept)
        self.log.uploads.append(upload)
        return upload, kept


def _place(base: Algorithm, hook: str) -> str:
    """` (file.py:12)`, where the outermost layer that overrides the hook does so; empty for FedAvg's own."""
    kinds = (type(layer) for layer in layers(base) if hook in vars(type(layer)))
    kind = next((kind for kind in kinds if kind is not Algorithm), Algorithm)
    code = None if kind is Algorithm else getattr(inspect.unwrap(getattr(kind, hook)), "__code__", None)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""


def _global_randomness() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


def watch(algorithm: Algorithm, finding: Finding | None = None) -> Witness:
    """The algorithm, watched; problems are noted in `finding`."""
    return Witness(algorithm, Log(finding or Finding()))


def tree_of(server: Server) -> dict[str, Any]:
    """All that the server keeps."""
    return {"params": server.params, "extra": dict(server.extra)}
