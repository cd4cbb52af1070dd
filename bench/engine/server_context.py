"""The server's knowledge of the federation as hooks see it, and the steps of a server that trains something."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Client, Data, Net, Params, ServerStep
from bench.engine.network import Network
from bench.engine.process import give_back_gpu_memory
from bench.engine.pytree import detached_copy, leaves, moves, shapes, tensors, tree_map, unstack
from bench.engine.rng import stream
from bench.errors import Slower

if TYPE_CHECKING:
    from bench.engine.stacked.step_executors import StepExecutor


class ServerSteps:
    """Executes the steps of one run's server; if `capture` gives a maker of executors, captured once and replayed."""

    def __init__(
        self,
        net: Net,
        device: torch.device,
        dtype: torch.dtype,
        capture: Callable[[], Callable[[], StepExecutor] | None],
    ) -> None:
        self._net, self._device, self._dtype, self._capture = net, device, dtype, capture
        self._executors: dict[ServerStep, StepExecutor | None] = {}

    def repeat(self, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
        """As `algorithms.base.Fed.repeat` says."""
        _refuse_what_is_of_one_round(step)
        state, inputs, given = (tensors(tree, self._device, self._dtype) for tree in (state, inputs, given))
        lengths = {len(tensor) if tensor.dim() else None for tensor in leaves(inputs)}
        if len(lengths) != 1 or None in lengths:
            raise ValueError(
                "a server's steps are as many as the leading axis of their inputs is long: give tensors of one common "
                f"length, got shapes {[tuple(tensor.shape) for tensor in leaves(inputs)]}"
            )
        count = lengths.pop() or 0
        make, reason = self._capture() if count else None, ""
        if make is not None and step not in self._executors:
            self._executors[step] = make()
        if make is not None and (executor := self._executors[step]) is not None:
            from bench.engine.stacked.step_executors import NotCapturable

            try:
                return self._replayed(executor, step, state, inputs, given, count)
            except (NotCapturable, torch.OutOfMemoryError) as problem:
                reason = str(problem)
            # Outside the handler, whose traceback would keep what the attempt took.
            self._executors[step] = executor = None
            give_back_gpu_memory()
        state = detached_copy(state)  # a network in training mode writes its running statistics into what it is given
        for one_input in unstack(inputs) if count else ():
            state = tree_map(Tensor.detach, _checked(self._net, step, state, one_input, given))
        if reason:  # after the steps: one that is wrong whether captured or not has raised its own error
            warnings.warn(
                f"{step.__qualname__}: the server's steps are not captured, which makes them slower: {reason}",
                Slower,
                stacklevel=2,
            )
        return detached_copy(state)  # a part of the inputs would keep them whole

    def _replayed(
        self, executor: StepExecutor, step: ServerStep, state: Any, inputs: Any, given: Any, count: int
    ) -> Any:
        place, net = executor.place, self._net
        state, inputs, given = place("state", state, axes=0), place("inputs", inputs), place("given", given, axes=0)
        clock = place("clock", torch.zeros(1, dtype=torch.int64, device=self._device), axes=0)

        def act() -> None:
            """Read the inputs at the clock, and move the state on in its place."""
            one_input = tree_map(lambda tensor: tensor.index_select(0, clock)[0], inputs)
            after = _checked(net, step, tree_map(Tensor.detach, state), one_input, given)
            if moved := moves(state, tree_map(Tensor.detach, after)):
                places, values = zip(*moved, strict=True)
                torch._foreach_copy_(places, values)
            clock.add_(1)

        executor.run((), act, count, None)
        return detached_copy(state)


@dataclass(frozen=True)
class FedView:
    """Implements `algorithms.base.Fed`.

    `steps` executes the server's training steps, `initialise` gives a new network's parameters drawn from a generator,
    and `member` the client whose hook is called; it is None in the server's hooks.
    """

    net: Network
    num_clients: int
    batch_size: int
    seed: int
    auxiliary: Data
    validation: Data
    steps: ServerSteps
    initialise: Callable[[torch.Generator], Params]
    member: Callable[[], Client] | None = None

    @property
    def num_classes(self) -> int:
        """C."""
        return self.net.num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return self.net.input_shape

    @property
    def feature_dim(self) -> int:
        """D."""
        return self.net.feature_dim

    @property
    def client(self) -> Client:
        """The client whose hook is called."""
        if self.member is None:
            raise AttributeError(
                "fed.client is known in init_client and start alone: let clients upload what the server needs of them"
            )
        return self.member()

    def initialised(self, *keys: str | int) -> Params:
        """A new network's parameters and floating-point buffers."""
        return self.initialise(self.stream("initialised", *keys))

    def stream(self, *keys: str | int) -> torch.Generator:
        """The server's generator for these keys."""
        return stream(self.seed, "server", *keys)

    def repeat(self, step: ServerStep, state: Any, inputs: Any, given: Any) -> Any:
        """Take one step for each of `inputs`, on a GPU captured once and replayed; gives the last state."""
        return self.steps.repeat(step, state, inputs, given)


def _refuse_what_is_of_one_round(step: ServerStep) -> None:
    """Refuse a step that would be captured with something that belongs to one round."""
    code, name = getattr(step, "__code__", None), getattr(step, "__qualname__", repr(step))
    whose = getattr(step, "__self__", None)
    if code is None or not (isinstance(whose, Algorithm) or (whose is None and "<" not in name)):
        raise TypeError(f"a server's step must be a method of the algorithm, or a function of a module, got {name}")
    if closed_over := sorted(set(code.co_freevars) - {"__class__"}):  # which a method that says `super()` closes over
        raise TypeError(
            f"{name} closes over {', '.join(closed_over)}: pass it in `state`, `inputs` or `given`, so that a captured "
            "step reads each round's; a decorator closes over what it wraps"
        )


def _checked(net: Net, step: ServerStep, state: Any, one_input: Any, given: Any) -> Any:
    """Execute a step once; raises ValueError if it writes into its input, or its state has another structure."""
    expected = shapes(state)
    read = [(tensor, tensor._version) for tree in (one_input, given) for tensor in leaves(tree)]
    after = step(net, state, one_input, given)
    if any(tensor._version != version for tensor, version in read):
        raise ValueError(
            f"{step.__qualname__} writes into what it is given: what a server's step changes belongs in its state"
        )
    if shapes(after) != expected:
        raise ValueError(
            f"{step.__qualname__} must give back its state with the names, shapes and types it had: was {expected}, "
            f"got {shapes(after)}"
        )
    return after
