"""`Stacked`: the clients of a round as one program. Every tensor of a client gets a leading client axis.

The forward pass is vmapped and the sum of the clients' losses differentiated by ordinary autograd: clients share
nothing that is trained, so the gradient of the sum is the stack of their gradients. Clients are sorted by their number
of steps; those that finish leave the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.utils.rnn import pad_sequence

from algorithms.base import Batch, Local, Memory, Message, Outputs, Params, Plan
from bench.engine.loop import dropout_keys, masked_mean
from bench.engine.optimizers import State
from bench.engine.tasks import Problem, Task, Trained, finish
from bench.engine.trees import own, stack, tree_map


class Stacked:
    """Trains the clients of a round side by side; results equal `Loop`'s within float tolerance."""

    name = "stacked"

    def train(self, problem: Problem, tasks: list[Task], message: Message, plan: Plan) -> list[Trained]:
        """Every task to its end; results in the order given.

        Raises:
            RuntimeError: a hook failed; the message names the round.
        """
        by_steps = sorted(tasks, key=lambda task: -task.steps)
        try:
            trained = _Stack(problem, by_steps, message, plan).run()
        except Exception as error:
            raise RuntimeError(f"round {plan.round}, clients {[task.client for task in tasks]}: {error}") from error
        by_client = {result.client: result for result in trained}
        return [by_client[task.client] for task in tasks]


class _Stack:
    """One round's stack. m is the number of clients still training; the first m tasks are theirs."""

    def __init__(self, problem: Problem, tasks: list[Task], message: Message, plan: Plan) -> None:
        self.problem, self.tasks, self.message, self.plan = problem, tasks, message, plan
        self.local: Local = own(stack([task.local for task in tasks]))
        self.memory: Memory = stack([task.memory for task in tasks])
        self.num_steps = torch.stack([task.num_steps(problem.net.dtype) for task in tasks])
        self.total = torch.zeros(len(tasks), device=problem.federation.device, dtype=problem.net.dtype)
        self.leaves = self._leaves()
        self.state: State = problem.optimizer.init(self.leaves)
        self.teachers = self._teachers()
        self.steps = _Steps(tasks)
        self.keys = self._dropout_keys() if problem.net.has_dropout else None
        self.done: list[Trained] = []

    def run(self) -> list[Trained]:
        """All steps of all clients."""
        for step in range(self.tasks[0].steps):
            self._shrink(sum(task.steps > step for task in self.tasks))
            self._step(step)
        self._shrink(0)
        return self.done

    def _leaves(self) -> list[Tensor]:
        params = self.local["params"]
        return [params[name].requires_grad_() for name in self.problem.net.trainable]

    def _teachers(self) -> dict[str, tuple[Params, bool]]:
        """Each teacher that has no table: its tensors, and whether all clients share that one model."""
        found = {}
        for name, first in self.tasks[0].teachers.items():
            if name in self.tasks[0].tables:
                continue
            models = [task.teachers[name] for task in self.tasks]
            shared = all(model[key] is first[key] for model in models for key in first)
            found[name] = (first, True) if shared else (stack(models), False)
        return found

    def _dropout_keys(self) -> Tensor:
        """(steps, m, 2)."""
        return pad_sequence([dropout_keys(self.problem, task, self.plan.round) for task in self.tasks])

    def _step(self, step: int) -> None:
        batch = self._batch(step)
        if self.problem.acts_before_steps:
            made = self._vmap(self._before_step)(self.local, batch, self.num_steps)
            # The model stays the optimiser's own leaves: the hook may change anything beside it.
            self.local = {**tree_map(Tensor.detach, made), "params": self.local["params"]}
        key = () if self.keys is None else (self.keys[step, : len(self.tasks)],)
        losses = self._vmap(self._loss)(self.local, batch, self.memory, self.num_steps, *key)
        grads = torch.autograd.grad(losses.sum(), self.leaves, allow_unused=True, materialize_grads=True)
        self.problem.optimizer.step(self.leaves, grads, self.state, self.plan.lr, stacked=True)
        self.total += losses.detach()

    def _before_step(self, local: Local, batch: tuple[Any, ...], num_steps: Tensor) -> Local:
        net, given, plan = self.problem.net, Batch(*batch), self._plan(num_steps)
        return self.problem.algorithm.before_step(net, local, given, self.message, plan)

    def _loss(
        self, local: Local, batch: tuple[Any, ...], memory: Memory, num_steps: Tensor, key: Tensor | None = None
    ) -> Tensor:
        """One client's objective, a scalar: what is vmapped."""
        given, plan = Batch(*batch), self._plan(num_steps)
        with self.problem.net.dropout(key):
            loss = self.problem.algorithm.local_loss(self.problem.net, local, given, self.message, memory, plan)
        return masked_mean(loss, given.weight)

    def _plan(self, num_steps: Tensor) -> Plan:
        return Plan(self.plan.round, self.plan.lr, self.plan.momentum, self.plan.optimizer, num_steps)

    @staticmethod
    def _vmap(function: Callable[..., Any]) -> Callable[..., Any]:
        return vmap(function, randomness="error")

    def _batch(self, step: int) -> tuple[Any, ...]:
        """x, y, weight, noise and teachers of one step, each with a leading client axis: `Batch`'s fields in order."""
        tasks, problem, steps = self.tasks, self.problem, self.steps
        index = steps.index[step, : len(tasks)]
        draws = None if steps.draws is None else steps.draws[step, : len(tasks)].flatten(0, 1)
        width = None if steps.widths is None else steps.widths[step]
        x = problem.federation.train.batch(index.flatten(), draws, width)
        x = x.view(*index.shape, *x.shape[1:])
        y = problem.federation.train.labels[index]
        noise = stack([problem.noise(task.noise) for task in tasks])
        teacher = {**steps.table(step, len(tasks)), **self._ask_teachers(x)}
        return x, y, steps.weight[step, : len(tasks)], noise, teacher

    @torch.no_grad()
    def _ask_teachers(self, x: Tensor) -> dict[str, Outputs]:
        net, answers = self.problem.net, {}
        for name, (params, shared) in self.teachers.items():
            if shared:  # one model: one large batch
                out = net.eval(params, x.flatten(0, 1))
                answers[name] = Outputs(*(part.view(*x.shape[:2], -1) for part in out))
            else:
                answers[name] = self._vmap(net.eval)(params, x)
        return answers

    def _shrink(self, size: int) -> None:
        """Let the clients beyond the first `size` leave, their training being over."""
        if size == len(self.tasks):
            return
        for position in range(size, len(self.tasks)):
            self.done.append(self._finish(position))
        self.tasks, self.total = self.tasks[:size], self.total[:size]
        if not size:
            return
        self.num_steps = self.num_steps[:size]
        self.local = own(tree_map(lambda tensor: tensor[:size], self.local))
        self.memory = tree_map(lambda tensor: tensor[:size], self.memory)
        self.leaves = self._leaves()
        self.state = self.problem.optimizer.shrink(self.state, size)
        for name, (params, shared) in self.teachers.items():
            if not shared:
                self.teachers[name] = (tree_map(lambda tensor: tensor[:size], params), False)

    def _finish(self, position: int) -> Trained:
        task = self.tasks[position]
        local = own(tree_map(lambda tensor: tensor[position], self.local))
        loss = self.total[position] / task.steps
        return finish(self.problem, task, local, loss, self.message, self._plan(self.num_steps[position]))


class _Steps:
    """The schedules of a round's clients side by side, so that a step's batches are one gather.

    Attributes:
        index: (steps, m, B) training samples; whatever stands after a client's last step is never read.
        weight: (steps, m, B).
        draws: (steps, m, B, 4) of `draw_crops`, or None.
        widths: of `Samples.widths` for each step, the largest of the clients'; or None.
    """

    def __init__(self, tasks: list[Task]) -> None:
        self.index = pad_sequence([task.source.rows for task in tasks])
        self.weight = pad_sequence([task.schedule.weight for task in tasks])
        draws = [task.source.draws for task in tasks if task.source.draws is not None]
        self.draws = pad_sequence(draws) if draws else None
        widths = [task.source.widths for task in tasks if task.source.widths is not None]
        self.widths = [max(step) for step in zip_longest(*widths, fillvalue=0)] if widths else None
        # The clients' tables one under another, and the row where each client's begins.
        sizes = torch.tensor([0, *(len(task.source.index) for task in tasks[:-1])]).cumsum(0).tolist()
        self._rows = pad_sequence([task.schedule.positions + first for task, first in zip(tasks, sizes, strict=True)])
        self._tables = {name: _joined([task.tables[name] for task in tasks]) for name in tasks[0].tables}

    def table(self, step: int, clients: int) -> dict[str, Outputs]:
        """The teachers' stored outputs on a step's samples."""
        rows = self._rows[step, :clients]
        return {name: Outputs(out.logits[rows], out.features[rows]) for name, out in self._tables.items()}


def _joined(tables: list[Outputs]) -> Outputs:
    return Outputs(torch.cat([out.logits for out in tables]), torch.cat([out.features for out in tables]))
