"""A stack: clients of one run, or of several, trained as one program. Every tensor of a client has a leading axis.

The forward pass is vmapped and the sum of the clients' losses differentiated by ordinary autograd: clients share
nothing that is trained, so the gradient of the sum is the stack of their gradients. Convolutions become grouped ones,
as Wang et al. 2021 ("Horizontally Fused Training Array", HFTA) propose for training many small models on one
accelerator. Clients are sorted by their number of steps; finished ones leave, and the others are the first entries of
every tensor.

If several runs share a stack, everything that a run's clients have in common (message, learning rate, hyper-parameters)
has the leading axis, too: runs may differ in their clients, in how many those are and in how long they train.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from algorithms.base import Algorithm, Batch, Local, Memory, Message, Outputs, Params, Plan
from bench.engine.client_round import ClientResult, ClientWork, RoundWork, finish
from bench.engine.loop import masked_mean
from bench.engine.pytree import axes, detached_copy, each, moves, shapes, stack, tree_map, unstack
from bench.engine.stacked.batched_hparams import Differences, packable_numbers, with_numbers
from bench.engine.stacked.step_executors import NotCapturable, StepExecutor
from bench.engine.stacked.steps import Steps

Entry = tuple[RoundWork, ClientWork]
HIDDEN_FROM_AUTOCAST = frozenset(  # autocast does not see them, or not their biases, under vmap
    (
        *(F.linear, torch.conv1d, torch.conv2d, torch.conv3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        *(torch.prelu, Tensor.prelu, F.scaled_dot_product_attention),
    )
)


class Stack:
    """One round of some clients, those with most steps first; their runs' messages and states have one structure.

    Attributes:
        local: the trees that are trained.
        common: trees that are only read: memory, steps, and of several runs the message and the numbers in which they
            differ.
        lr: the common learning rate; a scalar tensor for a captured step, because it changes between rounds.
        teachers: by name, each that has no table: its parameters, and whether all clients share that one model.
        total: (n,) sums of the losses.
        clock: (1,) int64, finished steps; `taken` counts them, too, while steps are executed one by one.
    """

    def __init__(self, entries: Sequence[Entry], apart: Differences, executor: StepExecutor) -> None:
        self.entries, self.several, self.executor = list(entries), apart.several, executor
        self.job = entries[0][0]
        self.problem = self.job.problem
        # A captured step has to read what changes from round to round, and reads all numbers in the run's precision.
        captures = executor.captures
        self.places = tuple(packable_numbers(self.problem.algorithm)) if captures else apart.places
        place = executor.place
        self.local: Local = place("local", stack([work.local for _, work in entries]))
        self.common: dict[str, Any] = place("common", self._common(apart))
        self.message: Message = {} if self.several else place("message", self.job.message, axes=0)
        self.lr = place("lr", self._tensor(self.job.lr), axes=0) if captures else self.job.lr
        self.round = place("round", self._tensor(self.job.round), axes=0) if captures else self.job.round
        self.teachers = {
            name: (place(f"teacher {name}", params, axes=0 if shared else 1), shared)
            for name, params, shared in self._teachers()
        }
        self.steps = Steps.of(self.entries, executor)
        trained = [self.local["params"][name] for name in self.problem.net.trainable]
        self.state = place("state", self.problem.optimizer.init(trained))
        self.total = place("total", self._tensor([0.0] * len(self.entries)))
        self.clock = place("clock", self._tensor([0]).long())
        self.taken = 0

    def run(self) -> list[tuple[RoundWork, ClientResult]]:
        """Train all clients to their end."""
        done, taken = list[tuple[RoundWork, ClientResult]](), 0
        shared = tuple((name, is_shared) for name, (_, is_shared) in self.teachers.items())
        size = len(self.entries)
        while size:
            end = self.entries[size - 1][1].steps
            staying = sum(work.steps > end for _, work in self.entries)
            # A captured stack has few sizes, the powers of 2, because each is captured by itself. Finished clients
            # train on zero-weight samples; their results are ignored.
            width = min(len(self.entries), 1 << (size - 1).bit_length()) if self.executor.captures else size
            self.executor.run((width, shared), _Active(self, width).step, end - taken, self.problem)
            done += self._finish(staying, size)
            size, taken = staying, end
        return done

    def _tensor(self, value: Any) -> Tensor:
        return torch.tensor(value, device=self.problem.federation.device, dtype=self.problem.net.dtype)

    def _common(self, apart: Differences) -> dict[str, Any]:
        jobs, works = [job for job, _ in self.entries], [work for _, work in self.entries]
        common: dict[str, Any] = {
            "memory": stack([work.memory for work in works]),
            "num_steps": self._tensor([float(work.steps) for work in works]),
        }
        if self.several:
            common["message"] = stack([job.message for job in jobs])
        if self.places:
            numbers = [packable_numbers(job.problem.algorithm) for job in jobs]
            common["numbers"] = self._tensor([[values[place] for place in self.places] for values in numbers])
        if apart.lr:
            common["lr"] = self._tensor([job.lr for job in jobs])
        return common

    def _teachers(self) -> Iterator[tuple[str, Params, bool]]:
        works = [work for _, work in self.entries]
        for name, first in works[0].teachers.items():
            if name in works[0].tables:
                continue
            models = [work.teachers[name] for work in works]
            shared = not self.several and all(model[key] is first[key] for model in models for key in first)
            yield name, first if shared else stack(models), shared

    def _finish(self, begin: int, end: int) -> list[tuple[RoundWork, ClientResult]]:
        """Upload what these clients trained: copies, because others train on in the same memory."""
        kept = {"local": self.local, "loss": self.total, "steps": self.common["num_steps"]}
        copied = tree_map(lambda tensor: tensor[begin:end].detach().clone(), kept)
        copied["loss"] /= copied["steps"]
        done = []
        for (job, work), result in zip(self.entries[begin:end], unstack(copied), strict=True):
            plan = job.plan(result["steps"])
            done.append((job, finish(job.problem, work, result["local"], result["loss"], job.message, plan)))
        return done


class _Active:
    """The clients of a stack that still train: views of the first `size` entries of every tensor."""

    def __init__(self, whole: Stack, size: int) -> None:
        def first(tree: Any) -> Any:
            return tree_map(lambda tensor: tensor[:size], tree)

        self.whole, self.size, self.problem = whole, size, whole.problem
        self.local: Local = first(whole.local)
        params: Params = {name: value.detach() for name, value in self.local["params"].items()}
        self.leaves = [params[name].requires_grad_() for name in self.problem.net.trainable]
        self.local = {**self.local, "params": params}
        self.common = first(whole.common)
        self.state = first(whole.state)
        self.total: Tensor = whole.total[:size]
        self.teachers = {
            name: (params if shared else first(params), shared) for name, (params, shared) in whole.teachers.items()
        }
        net = self.problem.net
        self.layers = BatchedLayers() if net.convolutional or net.autocasts else nullcontext()
        self.axes: Any = None  # of a step's parts, which have one structure once the first `before_step` is over
        self.lr = self.common.get("lr", whole.lr)

    def step(self) -> None:
        """Take one optimiser step of every client."""
        whole = self.whole
        with self.layers:
            losses = self._losses()
        grads = torch.autograd.grad(losses.sum(), self.leaves, allow_unused=True, materialize_grads=True)
        # In double precision, because Adam's 1 - 0.999 ** 1 in float32 is off by 1e-5.
        count = (whole.clock[0] + 1).double() if whole.executor.captures else whole.taken + 1
        self.problem.optimizer.step(self.leaves, grads, self.state, self.lr, count, stacked=True)
        self.total += losses.detach()
        whole.clock += 1
        whole.taken += 1

    def _losses(self) -> Tensor:
        """(n,) of the next batches, after what the algorithm does before a step."""
        now, key = self._batch()
        parts = {**self.common, "local": self.local, "batch": now, "key": key}
        if self.problem.acts_before_steps:
            self._keep(each(self._before_step, parts))
            parts["local"] = self.local
        self.axes = self.axes or axes(parts)
        losses: Tensor = each(self._loss, parts, self.axes)
        return losses

    def _keep(self, local: Local) -> None:
        """Keep the result of `before_step`, in the place of what was there if it can. The model stays the leaves."""
        beside = {name: tree_map(Tensor.detach, tree) for name, tree in local.items() if name != "params"}
        before = {name: tree for name, tree in self.local.items() if name != "params"}
        if shapes(beside) == shapes(before):
            for kept, new in moves(before, beside):
                kept.copy_(new)
            return
        if self.whole.executor.captures:
            raise NotCapturable("before_step gives its state another structure than it was given")
        beside = detached_copy(beside)  # what is new may be another part's tensor, or one for all clients
        self.local = {**self.local, **beside}
        self.whole.local = {**self.whole.local, **beside}

    def _batch(self) -> tuple[tuple[Any, ...], Tensor | None]:
        """The step's `Batch`, its fields in order and each with the leading axis, and the keys of its dropout."""
        whole, train = self.whole, self.problem.federation.train
        now = whole.steps.at(whole.clock, self.size)
        draws = None if now.draws is None else now.draws.flatten(0, 1)
        width = None if now.widths is None else now.widths[whole.taken]
        x = train.batch(now.index.flatten(), draws, width)
        x = x.view(*now.index.shape, *x.shape[1:])
        batch = (x, train.labels[now.index], now.weight, now.noise, {**now.stored, **self._ask_teachers(x)})
        return batch, now.keys

    @torch.no_grad()
    def _ask_teachers(self, x: Tensor) -> dict[str, Outputs]:
        answers, ask = {}, self.problem.net.eval
        for name, (params, shared) in self.teachers.items():
            if shared:  # one model: one large batch
                out = ask(params, x.flatten(0, 1))
                answers[name] = Outputs(*(part.view(*x.shape[:2], -1) for part in out))
            else:
                answers[name] = each(ask, {"params": params, "x": x})
        return answers

    def _before_step(self, local: Local, batch: tuple[Any, ...], **parts: Any) -> Local:
        net, message, plan = self.problem.net, parts.get("message", self.whole.message), self._plan(**parts)
        return self._algorithm(**parts).before_step(net, local, Batch(*batch), message, plan)

    def _loss(self, local: Local, batch: tuple[Any, ...], memory: Memory, key: Tensor | None, **parts: Any) -> Tensor:
        """One client's objective, a scalar: the function that is vmapped."""
        net, message, plan = self.problem.net, parts.get("message", self.whole.message), self._plan(**parts)
        given, algorithm = Batch(*batch), self._algorithm(**parts)
        with net.dropout(key):
            loss = algorithm.local_loss(net, local, given, message, memory, plan)
        return masked_mean(loss, given.weight)

    def _algorithm(self, numbers: Tensor | None = None, **_: Any) -> Algorithm:
        algorithm = self.problem.algorithm
        return algorithm if numbers is None else with_numbers(algorithm, self.whole.places, numbers)

    def _plan(self, num_steps: Tensor, **parts: Any) -> Plan:
        return replace(self.whole.job.plan(num_steps), round=self.whole.round, lr=parts.get("lr", self.lr))


class BatchedLayers(TorchFunctionMode):
    """Within it the layers of a vmapped function have the precision that autocast gives those of a single client.

    `vmap` by itself hides convolutions from autocast, and turns bfloat16 norms into float32.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in HIDDEN_FROM_AUTOCAST:
            args = tuple(map(_autocast, args))
            kwargs = {name: _autocast(value) for name, value in kwargs.items()}
        return NORMS.get(func, func)(*args, **kwargs)


def _autocast(value: Any) -> Any:
    """A tensor as autocast would have it in a convolution."""
    if not isinstance(value, Tensor) or not value.is_floating_point():  # a mask has no precision
        return value
    if not torch.is_autocast_enabled(value.device.type):
        return value
    return value.to(torch.get_autocast_dtype(value.device.type))


def batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`F.batch_norm`, whose result has the input's type."""
    # On a GPU torch asks whether channels come last, which vmap does not answer.
    x = input.contiguous() if input.is_cuda else input
    # vmap would give torch's kernel bfloat16 weights beside float32 statistics, which it refuses.
    x = x.float() if x.dtype is torch.bfloat16 else x
    return F.batch_norm(x, *args, **kwargs).to(input.dtype)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`F.group_norm`, whose result has the input's type."""
    if weight is None or bias is None:
        return F.group_norm(input, num_groups, weight, bias, eps)
    weight, bias = (value.to(input.dtype).view(-1, *[1] * (input.dim() - 2)) for value in (weight, bias))
    with torch.autocast(input.device.type, enabled=False):  # which would compute and return float32
        return torch.addcmul(bias, F.group_norm(input, num_groups, eps=eps), weight)


NORMS = {F.batch_norm: batch_norm, F.group_norm: group_norm}
