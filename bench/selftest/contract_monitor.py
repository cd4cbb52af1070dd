"""A plug-in that changes nothing, and checks every hook's result against the contract."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

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
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
    Plugin,
    Server,
    Upload,
    layers,
)
from bench.engine.hook_results import typed
from bench.engine.pytree import leaves, tree_map
from bench.engine.rng import global_states
from bench.selftest.certify import Finding
from bench.selftest.toy import items, same

AS_TENSORS = (
    "{} fails if plan.round, plan.lr and plan.num_steps are tensors, as they may be when clients "
    "are stacked: use arithmetic and comparisons, such as (plan.round > 1) * term, "
    "instead of `if` or float()"
)
NOT_MAPPED = (
    "{} fails under torch.vmap, as it runs when clients are stacked: take gradients by "
    "torch.func.grad, read no tensor's value, and use no boolean masks"
)
STATISTICS = ("running_mean", "running_var")


@dataclass
class Log:
    """Record of a watched run."""

    # Breaches of the contract.
    finding: Finding = field(default_factory=Finding)
    # Trees not to write to: name, tree, copy.
    protected: list[tuple[str, Any, Any]] = field(default_factory=list)
    # Pure hooks, and the round in which they were mapped.
    mapped: set[tuple[str, Any]] = field(default_factory=set)
    # Of the server's params, which uploads have, too, unless the class states otherwise.
    server_names: tuple[str, ...] = ()

    def protect(self, name: str, tree: Any) -> None:
        """Remember a tree that is passed to a hook, which must not write to it."""
        if all(tree is not other for _, other, _ in self.protected):
            self.protected.append((name, tree, tree_map(torch.clone, tree)))


@dataclass(frozen=True)
class ContractMonitor(Plugin):
    """A plug-in that forwards every hook to `base`, and records breaches of the contract."""

    log: Log = field(default_factory=Log, compare=False)

    def _expect(self, holds: bool, problem: str) -> None:
        self.log.finding.expect(holds, problem)

    def _call(self, hook: str, *arguments: Any) -> Any:
        """Call the base's hook; record writes to protected trees, and global draws."""
        state = global_states()
        result = getattr(self.base, hook)(*arguments)
        place = _source_location(self.base, hook)
        try:
            typed(hook, result)
        except TypeError as error:
            raise TypeError(f"{error}{place}") from None
        for name, tree, before in self.log.protected:
            text = f"{hook} writes to {name}, which it must leave as it is{place}"
            self._expect(same(tree, before), text + _of_statistics(tree, before))
        # A tree that was written to is reported once.
        self.log.protected = [entry for entry in self.log.protected if same(entry[1], entry[2])]
        text = (
            f"{hook} draws from a global generator: "
            f"use the one that `start` and `noise` get, or fed.stream{place}"
        )
        self._expect(state == global_states(), text)
        return result

    def _call_alone(self, trees: Mapping[str, Any], hook: str, *arguments: Any) -> Any:
        """Call a hook of the server, during which these trees alone are protected."""
        self.log.protected.clear()
        for name, tree in trees.items():
            self.log.protect(name, tree)
        result = self._call(hook, *arguments)
        self.log.protected.clear()
        return result

    def _call_pure(self, hook: str, net: Net, local: Local, *arguments: Any) -> Any:
        """Call a pure hook; once a round, call it also as in a stack of one client.

        The plan is the last argument. In the stack its numbers are tensors, and the hook gets
        copies, because a network in training mode writes into its buffers. The result of the stack
        is ignored.
        """
        result = self._call(hook, net, local, *arguments)
        *others, plan = arguments
        if (hook, plan.round) in self.log.mapped:
            return result
        self.log.mapped.add((hook, plan.round))

        def copy_of(tensor: Tensor) -> Tensor:
            return tensor.detach().clone()[None].requires_grad_(tensor.requires_grad)

        stacked = tree_map(copy_of, local)
        others = [
            replace(argument, reported={}) if isinstance(argument, Batch) else argument
            for argument in others
        ]
        numbers = torch.tensor([[plan.round, plan.lr, plan.num_steps]]).to(plan.num_steps)

        def mapped(row: Tensor, own: Local, own_plan: LocalPlan | None = None) -> Tensor:
            round, lr, num_steps = row.unbind()
            as_tensors = replace(plan, round=round, lr=lr, num_steps=num_steps)
            getattr(self.base, hook)(net, own, *others, own_plan or as_tensors)
            return row

        reason = AS_TENSORS
        try:
            vmap(partial(mapped, own_plan=plan), randomness="same")(numbers, stacked)
        except Exception:  # the call below raises it again, and it is recorded there
            reason = NOT_MAPPED
        with self.log.finding.case(reason.format(hook)):
            vmap(mapped, randomness="same")(numbers, stacked)
        return result

    def _expect_detached(self, hook: str, tree: Any) -> None:
        paths = [
            path for path, leaf in items(tree) if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        self._expect(
            not paths, f"{hook} returns a tensor at {paths[:1]} that requires a gradient: detach it"
        )

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Check that the hook leaves w_0 as it is."""
        self.log.protect("w_0", params)
        server: Server = self._call("init_server", fed, params)
        self.log.server_names = tuple(server.params)
        return server

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Check that no tensor of the message has a gradient."""
        message: Message = self._call("broadcast", fed, server)
        self._expect_detached("broadcast", message)
        return message

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Check that the new `Server` has no gradient, and that old one and uploads stay."""
        trees = {"the old server": tree_of(server), "uploads": uploads}
        new: Server = self._call_alone(trees, "server_step", fed, server, uploads, cohort)
        self._expect_detached("server_step", tree_of(new))
        return new

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return the evaluated models by suffix."""
        rows: dict[str, Params] = self._call("evaluated", server)
        return rows

    def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
        """Check that the scores are (B, C), and that the model and the server stay as they were."""
        trees = {"an evaluated model": params, "the server": tree_of(server)}
        scores: Tensor = self._call_alone(trees, "predict", net, params, x, server)
        expected = (len(x), net.num_classes)
        got = tuple(scores.shape)
        self._expect(got == expected, f"predict must return scores {expected}, got {got}")
        text = "predict must return finite scores: the row's loss is their cross entropy"
        self._expect(bool(torch.isfinite(scores).all()), text)
        return scores

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Check that nothing is drawn from a global generator."""
        memory: Memory = self._call("init_client", fed, params)
        return memory

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Check that message and memory stay as they were."""
        self.log.protect("the message", message)
        self.log.protect("a client's memory", memory)
        local: Local = self._call("start", fed, message, memory, generator)
        return local

    def noise(self, fed: Fed, generator: torch.Generator, batch_size: int) -> Any:
        """Check that the noise has a row for each sample of the batch."""
        drawn = self._call("noise", fed, generator, batch_size)
        for tensor in leaves(drawn):
            rows = tensor.dim() > 0 and len(tensor) == batch_size
            self._expect(
                rows,
                f"noise must have {batch_size} rows, the batch's, got shape {tuple(tensor.shape)}",
            )
        return drawn

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Check that all teachers' tensors are tensors of the message or the memory."""
        models: dict[str, Params] = self._call("teachers", message, memory)
        allowed = {id(tensor) for tensor in (*leaves(message), *leaves(memory))}
        for name, model in models.items():
            selected = all(id(tensor) in allowed for tensor in leaves(model))
            self._expect(
                selected,
                f"teacher {name!r} is computed: teachers selects tensors of message and memory",
            )
        return models

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Check that no entry of the local state is dropped, and that the model is as it was."""
        after: Local = self._call_pure("before_step", net, local, batch, message, plan)
        lost = sorted(set(local) - set(after))
        self._expect(not lost, f"before_step drops {lost} of the local it was given")
        model = after["params"]
        received = local["params"].items()
        replaced = [name for name, value in received if model.get(name) is not value]
        self._expect(
            not replaced,
            f"before_step replaces {', '.join(replaced[:1])} of params, which has no effect: only "
            "the optimiser changes params; change a second model, under another name of local",
        )
        return after

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Check that the loss is (B,), and that it does not count padding."""
        before = tree_map(torch.clone, local)
        loss: Tensor = self._call_pure("local_loss", net, local, batch, message, memory, plan)
        expected = tuple(batch.y.shape)
        self._expect(
            loss.shape == expected,
            f"local_loss must be {expected}, got {tuple(loss.shape)}: return a loss for each "
            "sample, without a mean, or one number as loss.expand(len(batch.y))",
        )
        kept = batch.weight > 0
        if loss.shape == expected and not kept.all():
            # Inputs stay as they are, because BatchNorm's statistics are of all samples.
            others = (batch.y + 1) % net.num_classes
            relabelled = replace(batch, y=torch.where(kept, batch.y, others), reported={})
            other = self.base.local_loss(net, before, relabelled, message, memory, plan)
            self._expect(
                torch.allclose(loss[kept], other[kept], equal_nan=True),
                "local_loss counts padding: losses of samples change with labels of weight 0; "
                "take a mean over the batch by masked_mean(values, batch.weight)",
            )
        return loss

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Check that the upload and the new memory hold tensors and numbers only."""
        upload, new_memory = self._call_pure("upload", net, local, data, message, memory, plan)
        if self.base.uploads_model:
            uploaded = upload.get("params", {})
            lacking = [name for name in self.log.server_names if name not in uploaded]
            self._expect(
                not lacking,
                f"upload's params lack {', '.join(lacking[:1])}, which the server's have: state "
                "uploads_model = False",
            )
        return upload, new_memory


def _of_statistics(tree: Any, before: Any) -> str:
    """Return what to do if a network wrote its BatchNorm statistics into a tree, and nothing else.

    It is empty otherwise.
    """
    old = dict(items(before))
    changed = [path for path, leaf in items(tree) if not same(leaf, old.get(path))]
    if changed and all(path.endswith(STATISTICS) for path in changed):
        return (
            ": net(w, x) writes BatchNorm's statistics into w, so pass it clones, or use net.eval"
        )
    return ""


def _source_location(base: Algorithm, hook: str) -> str:
    """Return ` (file.py:12)`, the place of the outermost override of the hook.

    It is empty for FedAvg's own hook.
    """
    kinds = (type(layer) for layer in layers(base) if hook in vars(type(layer)))
    kind = next((kind for kind in kinds if kind is not Algorithm), Algorithm)
    if kind is Algorithm:
        return ""
    code = getattr(inspect.unwrap(getattr(kind, hook)), "__code__", None)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""


def tree_of(server: Server) -> dict[str, Any]:
    """Return the server's params and extra state as one tree."""
    return {"params": server.params, "extra": dict(server.extra)}
