"""A stack: clients of one run, or of several, trained as one program. Every tensor of a client has a leading axis.

The forward pass is vmapped and the sum of the clients' losses differentiated by ordinary autograd: clients share
nothing that is trained, so the gradient of the sum is the stack of their gradients. Clients are sorted by their number
of steps; those that finish leave, so that the others are the first entries of every tensor.

Where several runs share a stack, what a run's clients have in common (message, learning rate, hyper-parameters) has
the leading axis, too: runs may differ in their clients, in how many those are and in how long they train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Batch, Local, Memory, Message, Outputs, Params, Plan, layers
from bench.engine.loop import masked_mean
from bench.engine.stacked.convolutions import ONE_BY_ONE, WAYS, computed
from bench.engine.stacked.lowered import lowered
from bench.engine.stacked.numbers import RATES, Differences, packable_numbers, values_of, with_numbers
from bench.engine.stacked.probe import Step
from bench.engine.stacked.programs import NotCapturable, Program
from bench.engine.stacked.steps import Steps
from bench.engine.tasks import Job, Task, Trained, finish
from bench.engine.trees import axes, each, moves, own, shapes, stack, tree_map, unstack

Entry = tuple[Job, Task]
SIZES = 8  # equal steps in which a captured stack shrinks; below the last of them it does by powers of 2


class Stack:
    """One round of some clients.

    Args:
        entries: the clients, those with most steps first. What their runs send and keep has one structure.
        apart: in what the runs differ, these and others that use the program in turn.
        program: runs the steps.

    Attributes:
        local: what is trained.
        common: what is only read: memory, steps, and of several runs the message and whatever numbers they differ in.
        lr: the learning rate where all have one; a scalar tensor for a fixed program, for it changes between rounds.
        weight_decay: where all have one: a number, which a fixed program keeps.
        teachers: by name, each that has no table: its parameters, with those in bfloat16 (`low`), and whether all
            clients share that one model.
        steps: what each step takes.
        state: the optimiser's.
        total: (n,) sums of the losses.
        clock: (1,) int64, finished steps.
        made: finished steps, while they are made one by one.
        room: clients that all these tensors hold: of a captured program those of earlier rounds, too.
    """

    def __init__(self, entries: Sequence[Entry], apart: Differences, program: Program) -> None:
        self.entries, self.several, self.rates, self.program = list(entries), apart.several, apart.rates, program
        self.job = entries[0][0]
        self.problem = self.job.problem
        # A captured step has to read what changes from round to round, and reads all numbers in the run's precision.
        self.places = tuple(packable_numbers(self.problem.algorithm)) if program.fixed else apart.places
        place = program.room.place
        self.local: Local = place("local", stack([task.local for _, task in entries]))
        self.common: dict[str, Any] = place("common", self._common())
        self.message: Message = {} if self.several else place("message", self.job.message, axes=0)
        self.lr = place("lr", self._tensor(self.job.lr), axes=0) if program.fixed else self.job.lr
        self.weight_decay = None if "weight_decay" in apart.rates else RATES["weight_decay"](self.job)
        self.round = place("round", self._tensor(self.job.round), axes=0) if program.fixed else self.job.round
        self.teachers = {
            name: (place(f"teacher {name}", tree, axes=0 if shared else 1), shared)
            for name, (tree, shared) in self._teachers()
        }
        self.steps = Steps.of(self.entries, program.room)
        trained = [self.local["params"][name] for name in self.problem.net.trainable]
        self.state = place("state", self.problem.optimizer.init(trained))
        self.total = place("total", self._tensor([0.0] * len(self.entries)))
        self.clock = place("clock", self._tensor([0]).long())
        self.made = 0
        self.room = program.room.clients(len(self.entries))
        self.steps.weight[:, len(self.entries) :] = 0.0  # whoever has left their places trains on nothing

    def run(self) -> list[tuple[Job, Trained]]:
        """All steps of all clients, and what came of each."""
        done, made = list[tuple[Job, Trained]](), 0
        shared = tuple((name, one) for name, (_, one) in self.teachers.items())
        expected = self._expected()
        for size, staying, end in self._spans():
            width = self._width(size)
            steps = expected[_like(width)]
            pieces, work = dict.fromkeys(ONE_BY_ONE, width), self._work(width, steps)
            step = Step(_Active(self, width).step, self._ways(), work, steps, pieces, self.problem)
            self.program.run((width, shared, self.weight_decay), step, end - made)
            done += self._finish(staying, size)
            made = end
        return done

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        """How many clients train, how many of them go on afterwards, and the step at whose end the others are done."""
        size = len(self.entries)
        while size:
            end = self.entries[size - 1][1].steps
            staying = sum(task.steps > end for _, task in self.entries)
            yield size, staying, end
            size = staying

    def _width(self, size: int) -> int:
        """How many clients train where `size` of them have to.

        Of the many sizes that a stack may have a fixed program has few, and the same ones whatever members are left:
        each is prepared by itself, and kept. What those do who are done is of no account: they train on samples of
        weight 0, and what they have learned is copied already.
        """
        apart = -(-self.room // SIZES) if self.program.fixed else 1
        return min(apart, _like(size)) if size < apart else min(self.room, -(-size // apart) * apart)

    def _expected(self) -> Counter[int]:
        """Steps of about so many clients in a whole run whose rounds are like this one."""
        found, made = Counter[int](), 0
        for size, _, end in self._spans():
            found[_like(self._width(size))] += (end - made) * self.problem.setting.rounds
            made = end
        return found

    def _ways(self) -> list[str]:
        return list(WAYS) if self.problem.net.convolutional else list(WAYS)[:1]

    def _work(self, width: int, expected: int) -> str:
        """What decides how long a step takes, and whether to compile it."""
        problem, setting = self.problem, self.problem.setting
        names = [f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in layers(problem.algorithm)]
        inputs = "x".join(map(str, problem.net.input_shape))
        told = [
            " over ".join(names),
            f"{setting.model} of {inputs} to {problem.net.num_classes}",
            *(setting.precision, setting.augmentation, setting.optimizer),
            *(["clipped"] if setting.clip_norm else []),
            f"batches of {setting.batch_size}",
            f"{_like(width)} clients" + (" of several runs" if self.several else ""),
            f"1e{len(str(expected)) - 1} steps",  # a long run may compile what a short one did not
        ]
        return ", ".join(told)

    def _tensor(self, value: Any) -> Tensor:
        return torch.tensor(value, device=self.problem.federation.device, dtype=self.problem.net.dtype)

    def _common(self) -> dict[str, Any]:
        jobs, tasks = [job for job, _ in self.entries], [task for _, task in self.entries]
        found: dict[str, Any] = {
            "memory": stack([task.memory for task in tasks]),
            "num_steps": self._tensor([float(task.steps) for task in tasks]),
        }
        if self.several:
            found["message"] = stack([job.message for job in jobs])
        if self.places:
            found["numbers"] = self._tensor([values_of(job.problem.algorithm, self.places) for job in jobs])
        return found | {name: self._tensor([RATES[name](job) for job in jobs]) for name in sorted(self.rates)}

    def _teachers(self) -> Iterator[tuple[str, tuple[dict[str, Params], bool]]]:
        """Of each its parameters, and those in bfloat16: cast once a round."""
        tasks = [task for _, task in self.entries]
        for name, first in tasks[0].teachers.items():
            if name in tasks[0].tables:
                continue
            models = [task.teachers[name] for task in tasks]
            shared = not self.several and all(model[key] is first[key] for model in models for key in first)
            params = first if shared else stack(models)
            yield name, ({"params": params, "low": lowered(self.problem.net, params)}, shared)

    def _finish(self, begin: int, end: int) -> list[tuple[Job, Trained]]:
        """What the algorithms make of what these clients trained: of copies, for others train on in its place."""
        kept = {"local": self.local, "loss": self.total, "steps": self.common["num_steps"]}
        copied = tree_map(lambda tensor: tensor[begin:end].detach().clone(), kept)
        copied["loss"] /= copied["steps"]
        done = []
        for (job, task), made in zip(self.entries[begin:end], unstack(copied), strict=True):
            plan = job.plan(made["steps"])
            done.append((job, finish(job.problem, task, made["local"], made["loss"], job.message, plan)))
        return done


def _like(width: int) -> int:
    """The power of 2 from `width` on: what is measured for it holds for fewer."""
    return 1 << (width - 1).bit_length()


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
            name: (tree if shared else first(tree), shared) for name, (tree, shared) in whole.teachers.items()
        }
        # Whether convolutions are left to vmap, which is faster than to look at each of a step's functions.
        self.plain = not (self.problem.net.convolutional or self.problem.net.autocasts)
        self.mode: computed | None = None
        self.axes: Any = None  # of a step's parts, which have one structure once the first `before_step` is over
        self.lr = self.common.get("lr", whole.lr)
        self.weight_decay = self.common.pop("weight_decay", whole.weight_decay)

    def step(self, way: str) -> None:
        """One optimiser step of every client, convolutions computed in a way of `WAYS`."""
        whole = self.whole
        mode = self.mode = None if self.plain else computed(way)
        with mode or nullcontext():
            losses = self._losses()
        self.plain = mode is None or (mode.idle and not (whole.program.fixed or self.problem.net.autocasts))
        grads = torch.autograd.grad(losses.sum(), self.leaves, allow_unused=True, materialize_grads=True)
        # In double precision, for Adam's 1 - 0.999 ** 1 in float32 is off by 1e-5.
        count = (whole.clock[0] + 1).double() if whole.program.fixed else whole.made + 1
        self.problem.optimizer.step(
            self.leaves, grads, self.state, self.lr, count, stacked=True, weight_decay=self.weight_decay
        )
        self.total += losses.detach()
        whole.clock += 1
        whole.made += 1

    def _losses(self) -> Tensor:
        """(n,) of the next batches, after what the algorithm does before a step."""
        now, key = self._batch()
        parts = {**self.common, "local": self.local, "batch": now, "key": key}
        if self.problem.acts_before_steps:
            self._keep(each(self._before_step, parts))
            parts["local"] = self.local
        parts["low"] = lowered(self.problem.net, self.local["params"])
        self.axes = self.axes or axes(parts)
        losses: Tensor = each(self._loss, parts, self.axes)
        return losses

    def _keep(self, made: Local) -> None:
        """Keep what `before_step` made, at its own place if it can. The model stays the optimiser's leaves."""
        beside = {name: tree_map(Tensor.detach, tree) for name, tree in made.items() if name != "params"}
        before = {name: tree for name, tree in self.local.items() if name != "params"}
        if shapes(beside) == shapes(before):
            for kept, new in moves(before, beside):
                kept.copy_(new)
            return
        if self.whole.program.fixed:
            raise NotCapturable("before_step gives its state another structure than it was given")
        beside = own(beside)  # what is new may be another part's tensor, or one for all clients
        self.local = {**self.local, **beside}
        self.whole.local = {**self.whole.local, **beside}

    def _batch(self) -> tuple[tuple[Any, ...], Tensor | None]:
        """The step's `Batch`, its fields in order and each with the leading axis, and the keys of its dropout."""
        whole, train = self.whole, self.problem.federation.train
        now = whole.steps.at(whole.clock, self.size)
        draws = None if now.draws is None else now.draws.flatten(0, 1)
        width = None if now.widths is None else now.widths[whole.made]
        x = train.batch(now.index.flatten(), draws, width)
        x = x.view(*now.index.shape, *x.shape[1:])
        batch = (x, train.labels[now.index], now.weight, now.noise, {**now.stored, **self._ask_teachers(x)})
        return batch, now.keys

    @torch.no_grad()
    def _ask_teachers(self, x: Tensor) -> dict[str, Outputs]:
        answers = {}
        for name, (tree, shared) in self.teachers.items():
            if shared:  # one model: one large batch
                out = self._answer(**tree, x=x.flatten(0, 1))
                answers[name] = Outputs(*(part.view(*x.shape[:2], -1) for part in out))
            else:
                answers[name] = each(self._answer, {**tree, "x": x})
        return answers

    def _answer(self, params: Params, low: Params, x: Tensor) -> Outputs:
        with self._lowering(params, low):
            return self.problem.net.eval(params, x)

    def _lowering(self, params: Params, low: Params) -> AbstractContextManager[None]:
        return self.mode.lowering(params, low) if self.mode and low else nullcontext()

    def _before_step(self, local: Local, batch: tuple[Any, ...], **parts: Any) -> Local:
        net, message, plan = self.problem.net, parts.get("message", self.whole.message), self._plan(**parts)
        return self._algorithm(**parts).before_step(net, local, Batch(*batch), message, plan)

    def _loss(
        self, local: Local, batch: tuple[Any, ...], memory: Memory, key: Tensor | None, low: Params, **parts: Any
    ) -> Tensor:
        """One client's objective, a scalar: what is vmapped."""
        net, message, plan = self.problem.net, parts.get("message", self.whole.message), self._plan(**parts)
        given, algorithm = Batch(*batch), self._algorithm(**parts)
        with net.dropout(key), self._lowering(local["params"], low):
            loss = algorithm.local_loss(net, local, given, message, memory, plan)
        return masked_mean(loss, given.weight)

    def _algorithm(self, numbers: Tensor | None = None, **_: Any) -> Algorithm:
        algorithm = self.problem.algorithm
        return algorithm if numbers is None else with_numbers(algorithm, self.whole.places, numbers)

    def _plan(self, num_steps: Tensor, **parts: Any) -> Plan:
        return replace(self.whole.job.plan(num_steps), round=self.whole.round, lr=parts.get("lr", self.lr))
