"""The steps of a server that trains something of its own: each as it comes, or captured once and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Net, ServerStep
from bench.engine.memory import give_back
from bench.engine.stacked.probe import Step
from bench.engine.stacked.programs import NotCapturable, Program
from bench.engine.trees import leaves, moves, own, shapes, tensors, tree_map, unstack
from bench.errors import Slower

OWN_CLASS = "__class__"  # what a method that says `super()` closes over


class ServerSteps:
    """Makes the steps of one run's server.

    Args:
        net: the network.
        device: of all tensors.
        dtype: of numbers.
        capture: gives what makes the program of one kind of steps; or None, and each step is made as it comes.
    """

    def __init__(
        self, net: Net, device: torch.device, dtype: torch.dtype, capture: Callable[[], Callable[[], Program] | None]
    ) -> None:
        self._net, self._device, self._dtype, self._capture = net, device, dtype, capture
        self._programs: dict[ServerStep, Program | None] = {}

    def repeat(self, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
        """As `algorithms.base.Fed.repeat` says."""
        _check(step)
        state, inputs, given = (tensors(tree, self._device, self._dtype) for tree in (state, inputs, given))
        program = self._program(step) if (count := _steps_of(inputs)) else None
        if program is None:
            return _one_by_one(self._net, step, state, inputs, given)
        try:
            return self._replayed(program, step, (state, inputs, given), count)
        except (NotCapturable, torch.OutOfMemoryError) as problem:
            reason = str(problem)
        # Outside the handler, whose traceback would keep what the attempt took.
        self._programs[step] = program = None
        give_back()
        made = _one_by_one(self._net, step, state, inputs, given)
        warnings.warn(
            f"{step.__qualname__}: the server's steps are not captured, which makes them slower: {reason}",
            Slower,
            stacklevel=2,
        )
        return made

    def _program(self, step: ServerStep) -> Program | None:
        """That of this step; None where steps are not captured, or this one cannot be."""
        if (make := self._capture()) is None:
            return None
        if step not in self._programs:
            self._programs[step] = make()
        return self._programs[step]

    def _replayed(self, program: Program, step: ServerStep, parts: tuple[Any, Any, Any], count: int) -> Any:
        state, inputs, given = parts
        place = program.room.place
        act = _Act(
            net=self._net,
            step=step,
            state=place("state", state, axes=0),
            inputs=place("inputs", inputs),
            given=place("given", given, axes=0),
            clock=place("clock", torch.zeros(1, dtype=torch.int64, device=self._device), axes=0),
        )
        program.run((), Step(act), count)
        return own(act.state)


def _one_by_one(net: Net, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
    """The state after a step for each of the inputs, all of which are tensors."""
    state = own(state)  # a network in training mode writes its running statistics into what it is given
    for one in unstack(inputs):
        state = tree_map(Tensor.detach, _made(net, step, state, one, given))
    return own(state)  # a part of the inputs would keep them whole


def _check(step: ServerStep) -> None:
    """Refuse a step that would be captured with what belongs to one round."""
    code, name = getattr(step, "__code__", None), getattr(step, "__qualname__", repr(step))
    whose = getattr(step, "__self__", None)
    if code is None or not (isinstance(whose, Algorithm) or (whose is None and "<" not in name)):
        raise TypeError(f"a server's step must be a method of the algorithm, or a function of a module, got {name}")
    if found := sorted(set(code.co_freevars) - {OWN_CLASS}):
        how = "is decorated, and so closes over" if hasattr(step, "__wrapped__") else "closes over"
        raise TypeError(
            f"{name} {how} {', '.join(found)}: what a server's step reads has to reach it in `state`, `inputs` or "
            f"`given`, so that a captured step sees each round's"
        )


class _Act:
    """One step, its tensors where they lie: it reads the inputs at its clock and moves the state on in its place."""

    def __init__(self, net: Net, step: ServerStep, state: Any, inputs: Any, given: Any, clock: Tensor) -> None:
        self.net, self.step, self.state, self.inputs, self.given, self.clock = net, step, state, inputs, given, clock

    def __call__(self, _: str) -> None:
        one = tree_map(lambda tensor: tensor.index_select(0, self.clock)[0], self.inputs)
        made = _made(self.net, self.step, tree_map(Tensor.detach, self.state), one, self.given)
        if moved := moves(self.state, tree_map(Tensor.detach, made)):
            places, values = zip(*moved, strict=True)
            torch._foreach_copy_(places, values)  # few kernels, not one for each tensor
        self.clock += 1


def _made(net: Net, step: ServerStep, state: Any, one: Any, given: Any) -> Any:
    """What a step makes of the state."""
    expected = shapes(state)
    read = [(tensor, tensor._version) for tree in (one, given) for tensor in leaves(tree)]
    made = step(net, state, one, given)
    if any(tensor._version != version for tensor, version in read):
        raise ValueError(
            f"{step.__qualname__} writes into what it is given: what a server's step changes belongs in its state"
        )
    _check_structure(step, expected, shapes(made))
    return made


def _check_structure(step: ServerStep, expected: Any, made: Any) -> None:
    if made != expected:
        raise ValueError(
            f"{step.__qualname__} must give back its state with the names, shapes and types it had: "
            f"{_difference(expected, made, 'state')}"
        )


def _difference(expected: Any, made: Any, place: str) -> str:
    """The first of them, in words."""
    if not (isinstance(expected, dict) and isinstance(made, dict)):
        return f"{place} was {expected}, got {made}"
    if expected.keys() != made.keys():
        return f"{place} had {sorted(expected)}, got {sorted(made)}"
    name = next(name for name in expected if made[name] != expected[name])
    return _difference(expected[name], made[name], f"{place}[{name!r}]")


def _steps_of(inputs: Any) -> int:
    """The length of the inputs' leading axis."""
    lengths = {len(tensor) if tensor.dim() else None for tensor in leaves(inputs)}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "a server's steps are as many as the leading axis of their inputs is long: give tensors of one common "
            f"length, got shapes {[tuple(tensor.shape) for tensor in leaves(inputs)]}"
        )
    return lengths.pop() or 0
