"""A stack: clients of one run, or of several, trained as one program.

Every client tensor has a leading client axis.

The forward pass is vmapped and the sum of the clients' losses differentiated by ordinary autograd:
clients share nothing that is trained, so the gradient of the sum is the stack of their gradients.
Convolutions become grouped ones, as Wang et al. 2021 ("Horizontally Fused Training Array", HFTA)
propose for training many small models on one accelerator. Clients are sorted by their number of
steps; finished ones leave, and the others are the first entries of every tensor.

If several runs share a stack, everything that a run's clients have in common (message, learning
rate, hyper-parameters) has the leading axis, too: runs may differ in their clients, in the number
of clients and in the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Batch, Local, LocalPlan, Memory, Message, Outputs, Params
from bench.engine.client_round import (
    LOSS,
    ClientResult,
    ClientWork,
    RoundWork,
    finish,
    loss_gradients,
    state_before_step,
    step_means,
)
from bench.engine.pytree import (
    axes,
    detached_copy,
    each,
    moves,
    shapes,
    stack,
    tree_map,
    unstack,
    without,
)
from bench.engine.server_context import ApartInPacks
from bench.engine.stacked.batched_hparams import Differences, packable_numbers, with_numbers
from bench.engine.stacked.layers import layers_of
from bench.engine.stacked.step_executors import NotCapturable, StepExecutor
from bench.engine.stacked.steps import Steps

StackEntry = tuple[RoundWork, ClientWork]


class Stack:
    """One round of some clients, those with most steps first.

    Messages and states of their runs have one structure.

    Attributes:
        local: the trees that are trained.
        common: trees that are only read: memories and numbers of steps; of several runs also their
            messages and the numbers in which they differ.
        lr: the common learning rate; a scalar tensor for a captured step, because it changes
            between rounds.
        teachers: by name, for each without a table: its parameters, and whether all clients share
            that model.
        totals: (n,) sums over the steps of the losses (`LOSS`), and of the terms that the algorithm
            reports.
        clock: (1,) int64, finished steps; `taken` counts them on the host, while steps are executed
            one by one.
    """

    def __init__(
        self, entries: Sequence[StackEntry], apart: Differences, executor: StepExecutor
    ) -> None:
        self.entries = list(entries)
        self.several = apart.several
        self.executor = executor
        self.job = entries[0][0]
        self.context = self.job.context
        # A captured step reads all values that may change between rounds from tensors, in the run's
        # precision.
        captures = executor.captures
        place = executor.place
        self.places = apart.places
        self.lr: Any = self.job.lr
        self.round: Any = self.job.round
        if captures:
            self.places = tuple(packable_numbers(self.context.algorithm))
            self.lr = place("lr", self._tensor(self.job.lr), axes=0)
            self.round = place("round", self._tensor(self.job.round), axes=0)
        self.local: Local = place("local", stack([work.local for _, work in entries]))
        self.common: dict[str, Any] = place("common", self._common(apart))
        self.message: Message = {}
        if not self.several:
            self.message = place("message", self.job.message, axes=0)
        self.teachers: dict[str, tuple[Params, bool]] = {}
        for name, params, is_shared in self._teachers():
            placed = place(f"teacher {name}", params, axes=0 if is_shared else 1)
            self.teachers[name] = (placed, is_shared)
        self.steps = Steps.of(self.entries, executor)
        trained = [self.local["params"][name] for name in self.context.net.trainable]
        self.state = place("state", self.context.optimizer.init(trained))
        names = (LOSS, *self.context.algorithm.terms)
        zeros = {name: self._tensor([0.0] * len(self.entries)) for name in names}
        self.totals = place("totals", zeros)
        self.clock = place("clock", self._tensor([0]).long())
        self.taken = 0

    def run(self) -> list[tuple[RoundWork, ClientResult]]:
        """Train all clients to the end of their round."""
        done: list[tuple[RoundWork, ClientResult]] = []
        taken = 0
        shared = tuple((name, is_shared) for name, (_, is_shared) in self.teachers.items())
        size = len(self.entries)
        while size:
            end = self.entries[size - 1][1].steps
            staying = sum(work.steps > end for _, work in self.entries)
            width = size
            if self.executor.captures:
                # A captured stack has few sizes, the powers of 2, because each is captured by
                # itself. Finished clients train on zero-weight samples; their results are ignored.
                width = min(len(self.entries), 1 << (size - 1).bit_length())
            self.executor.run((width, shared), _Active(self, width).step, end - taken, self.context)
            done += self._finish(staying, size)
            size = staying
            taken = end
        return done

    def _tensor(self, value: Any) -> Tensor:
        device = self.context.federation.device
        return torch.tensor(value, device=device, dtype=self.context.net.dtype)

    def _common(self, apart: Differences) -> dict[str, Any]:
        jobs = [job for job, _ in self.entries]
        works = [work for _, work in self.entries]
        common: dict[str, Any] = {
            "memory": stack([work.memory for work in works]),
            "num_steps": self._tensor([float(work.steps) for work in works]),
        }
        if self.several:
            common["message"] = stack([job.message for job in jobs])
        if self.places:
            numbers = []
            for job in jobs:
                values = packable_numbers(job.context.algorithm)
                numbers.append([values[place] for place in self.places])
            common["numbers"] = self._tensor(numbers)
        if apart.lr:
            common["lr"] = self._tensor([job.lr for job in jobs])
        return common

    def _teachers(self) -> Iterator[tuple[str, Params, bool]]:
        works = [work for _, work in self.entries]
        for name, first in works[0].teachers.items():
            if name in works[0].tables:
                continue
            models = [work.teachers[name] for work in works]
            if not self.several and all(map(partial(_is_same, first), models)):
                yield name, first, True
            else:
                yield name, stack(models), False

    def _finish(self, begin: int, end: int) -> list[tuple[RoundWork, ClientResult]]:
        """Make the results of these clients.

        They are made of copies, because other clients train on in the same memory.
        """
        trees = {"local": self.local, "means": self.totals, "steps": self.common["num_steps"]}
        copied = tree_map(lambda tensor: tensor[begin:end].detach().clone(), trees)
        for total in copied["means"].values():
            total /= copied["steps"]
        done = []
        for (job, work), result in zip(self.entries[begin:end], unstack(copied), strict=True):
            plan = job.plan(result["steps"])
            local = result["local"]
            means = result["means"]
            done.append((job, finish(job.context, work, local, means, job.message, plan)))
        return done


def _is_same(first: Params, second: Params) -> bool:
    """Return whether two models have the same tensors, which are in memory once."""
    return all(second[name] is value for name, value in first.items())


class _Active:
    """The clients of a stack that still train, as views of the first `size` entries."""

    def __init__(self, parent: Stack, size: int) -> None:
        def first(tree: Any) -> Any:
            return tree_map(lambda tensor: tensor[:size], tree)

        self.parent = parent
        self.size = size
        self.context = parent.context
        self.local: Local = first(parent.local)
        params: Params = {name: value.detach() for name, value in self.local["params"].items()}
        self.leaves = [params[name].requires_grad_() for name in self.context.net.trainable]
        self.local = {**self.local, "params": params}
        self.common = first(parent.common)
        self.state = first(parent.state)
        self.totals: dict[str, Tensor] = first(parent.totals)
        self.teachers: dict[str, tuple[Params, bool]] = {}
        for name, (teacher, is_shared) in parent.teachers.items():
            self.teachers[name] = (teacher if is_shared else first(teacher), is_shared)
        self.layers = layers_of(self.context.net)
        # `axes` of a step's parts, whose structure is fixed after the first `before_step`.
        self.axes: Any = None
        self.lr = self.common.get("lr", parent.lr)

    def step(self) -> None:
        """Take one optimiser step of every client."""
        parent = self.parent
        with self.layers:
            means = self._means()
        grads = loss_gradients(means[LOSS].sum(), self.leaves)
        # In double precision, because Adam's 1 - 0.999 ** 1 in float32 is off by 1e-5.
        count = (parent.clock[0] + 1).double() if parent.executor.captures else parent.taken + 1
        self.context.optimizer.step(self.leaves, grads, self.state, self.lr, count, stacked=True)
        for name, total in self.totals.items():
            total += means[name].detach()
        parent.clock += 1
        parent.taken += 1

    def _means(self) -> dict[str, Tensor]:
        """Compute the losses (n,) of the next batches, and their terms, after `before_step`."""
        batch, key = self._batch()
        parts = {**self.common, "local": self.local, "batch": batch, "key": key}
        if self.context.acts_before_steps:
            self._keep(each(self._before_step, parts))
            parts["local"] = self.local
        self.axes = self.axes or axes(parts)
        means: dict[str, Tensor] = each(self._loss, parts, self.axes)
        return means

    def _keep(self, local: Local) -> None:
        """Keep the result of `before_step`, in place if its structure is the same.

        The leaves stay the model.
        """
        extras = tree_map(Tensor.detach, without(local, "params"))
        previous = without(self.local, "params")
        if shapes(extras) == shapes(previous):
            for target, source in moves(previous, extras):
                target.copy_(source)
            return
        if self.parent.executor.captures:
            raise NotCapturable("before_step returns a state of another structure than it got")
        extras = detached_copy(extras)  # a new tensor may be another part's, or one for all clients
        self.local = {**self.local, **extras}
        self.parent.local = {**self.parent.local, **extras}

    def _batch(self) -> tuple[tuple[Any, ...], Tensor | None]:
        """Return the fields of the step's `Batch` in order, and its dropout keys.

        Each has the leading axis.
        """
        parent = self.parent
        train = self.context.federation.train
        step = parent.steps.at(parent.clock, self.size)
        draws = None if step.draws is None else step.draws.flatten(0, 1)
        width = None if step.widths is None else step.widths[parent.taken]
        index = step.index.flatten()
        x = train.batch(index, draws, width)
        x = x.view(*step.index.shape, *x.shape[1:])
        labels = train.labels.index_select(0, index).view_as(step.index)
        teacher = {**step.stored, **self._ask_teachers(x)}
        return (x, labels, step.weight, step.noise, teacher), step.keys

    @torch.no_grad()
    def _ask_teachers(self, x: Tensor) -> dict[str, Outputs]:
        ask = self.context.net.eval
        answers = {}
        for name, (params, is_shared) in self.teachers.items():
            if is_shared:  # one model: one large batch
                logits, features = ask(params, x.flatten(0, 1))
                of_client = x.shape[:2]
                answers[name] = Outputs(logits.view(*of_client, -1), features.view(*of_client, -1))
            else:
                answers[name] = each(ask, {"params": params, "x": x})
        return answers

    def _before_step(self, local: Local, batch: tuple[Any, ...], **parts: Any) -> Local:
        net = self.context.net
        message = parts.get("message", self.parent.message)
        plan = self._plan(**parts)
        client_batch = Batch(*batch)
        algorithm = self._algorithm(**parts)
        result = algorithm.before_step(net, local, client_batch, message, plan)
        return state_before_step(result, client_batch)

    def _loss(
        self, local: Local, batch: tuple[Any, ...], memory: Memory, key: Tensor | None, **parts: Any
    ) -> dict[str, Tensor]:
        """Compute one client's objective and its terms, scalars; this function is vmapped."""
        net = self.context.net
        message = parts.get("message", self.parent.message)
        plan = self._plan(**parts)
        client_batch = Batch(*batch)
        algorithm = self._algorithm(**parts)
        with net.dropout(key):
            loss = algorithm.local_loss(net, local, client_batch, message, memory, plan)
        return step_means(algorithm, client_batch, loss)

    def _algorithm(self, numbers: Tensor | None = None, **_: Any) -> Algorithm:
        algorithm = self.context.algorithm
        if numbers is None:
            return algorithm
        return with_numbers(algorithm, self.parent.places, numbers)

    def _plan(self, num_steps: Tensor, **parts: Any) -> LocalPlan:
        plan = self.parent.job.plan(num_steps)
        plan = replace(plan, round=self.parent.round, lr=parts.get("lr", self.lr))
        return replace(plan, public=ApartInPacks()) if self.parent.several else plan
