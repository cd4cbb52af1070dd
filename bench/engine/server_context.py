"""The view of the federation that hooks get, and the executor of a server's own training steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    """Executor of one server's training steps.

    They are captured and replayed if `capture` returns a factory of executors.
    """

    def __init__(
        self,
        net: Net,
        device: torch.device,
        dtype: torch.dtype,
        capture: Callable[[], Callable[[], StepExecutor] | None],
    ) -> None:
        self._net = net
        self._device = device
        self._dtype = dtype
        self._capture = capture
        self._executors: dict[tuple[ServerStep, Net], StepExecutor | None] = {}

    def repeat(
        self, step: ServerStep, state: Any, inputs: Any, given: Any, net: Net | None = None
    ) -> Any:
        """Take one step for each of `inputs`, as `algorithms.base.Fed.repeat` describes."""
        _refuse_bound_values(step)
        net = net or self._net
        key = step, net
        state = tensors(state, self._device, self._dtype)
        inputs = tensors(inputs, self._device, self._dtype)
        given = tensors(given, self._device, self._dtype)
        count = _common_length(inputs)
        executor = self._executor(key) if count else None
        reason = ""
        if executor is not None:
            from bench.engine.stacked.step_executors import NotCapturable

            try:
                return self._replayed(executor, net, step, state, inputs, given, count)
            except (NotCapturable, torch.OutOfMemoryError) as error:
                reason = str(error)
            # Outside the handler, whose traceback would keep the attempt's memory.
            self._executors[key] = executor = None
            give_back_gpu_memory()
        # Copied, because a network in training mode writes into its parameters.
        state = detached_copy(state)
        for one_input in unstack(inputs):
            state = tree_map(Tensor.detach, _take_step(net, step, state, one_input, given))
        # After the steps, so that a step that fails uncaptured, too, has raised its own error.
        if reason:
            warnings.warn(
                f"{step.__qualname__}: the server's steps are not captured, which makes them "
                f"slower: {reason}",
                Slower,
                stacklevel=2,
            )
        return detached_copy(state)  # a view of the inputs would keep all of them

    def _executor(self, key: tuple[ServerStep, Net]) -> StepExecutor | None:
        """Return the executor that captures a step, or None if the step is not captured."""
        make = self._capture()
        if make is None:
            return None
        if key not in self._executors:
            self._executors[key] = make()
        return self._executors[key]

    def _replayed(
        self,
        executor: StepExecutor,
        net: Net,
        step: ServerStep,
        state: Any,
        inputs: Any,
        given: Any,
        count: int,
    ) -> Any:
        place = executor.place
        state = place("state", state, axes=0)
        inputs = place("inputs", inputs)
        given = place("given", given, axes=0)
        clock = place("clock", torch.zeros(1, dtype=torch.int64, device=self._device), axes=0)

        def act() -> None:
            """Take the step for the inputs at the clock, and update the state in place."""
            one_input = tree_map(lambda tensor: tensor.index_select(0, clock)[0], inputs)
            after = _take_step(net, step, tree_map(Tensor.detach, state), one_input, given)
            if copies := moves(state, tree_map(Tensor.detach, after)):
                targets, sources = zip(*copies, strict=True)
                torch._foreach_copy_(targets, sources)
            clock.add_(1)

        executor.run((), act, count, None)
        return detached_copy(state)


class ServersOwn(Data):
    """The server's samples as a client's hook finds them: it can read nothing of them.

    Args:
        name: of the field of `fed`.
    """

    _name = ""  # of a copy in the making, which has no attributes yet

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise AttributeError(
            f"a client's hook reads fed.{self._name}.{attribute}, which the server has and the "
            "client has not: send what the client needs in the message of `broadcast`, where it is "
            "counted as traffic"
        )


class PublicData(Data):
    """The public samples.

    Args:
        data: the samples.
        labelled: whether the labels may be read.

    Attributes:
        read: whether anything of them was read.
    """

    def __init__(self, data: Data, labelled: bool) -> None:
        self._data = data
        self._labelled = labelled
        self.read = False

    @property
    def x(self) -> Tensor:
        """(N, ...) inputs."""
        self.read = True
        return self._data.x

    @property
    def y(self) -> Tensor:  # type: ignore[override]
        """(N,) labels; raises AttributeError if the algorithm does not need them."""
        if not self._labelled:
            raise AttributeError(
                "fed.public has no labels here: an algorithm that needs them states "
                'needs = frozenset({"public", "public_labels"})'
            )
        self.read = True
        return self._data.y

    @property
    def sent(self) -> tuple[Tensor, ...]:
        """The tensors that a client is sent."""
        return (self._data.x, self._data.y) if self._labelled else (self._data.x,)


class PublicOfSeveralRuns(AttributeError):
    """Public samples are read where several runs have their own; a pack then trains one by one."""


class ApartInPacks(Data):
    """The public samples of runs that train as one program: each has its own, so none is read."""

    def __init__(self) -> None:
        pass

    def __getattr__(self, attribute: str) -> Any:
        raise PublicOfSeveralRuns(
            f"plan.public.{attribute} is read in a program of several runs, which have public "
            "samples of their own: they train one by one"
        )


@dataclass(frozen=True)
class FedView:
    """Implementation of `algorithms.base.Fed`.

    `clients_public` is `public` as the clients' hooks find it, apart to know that they read it.
    `nets` and `initial` are the clients' networks and their w_0, by name of the model. `steps`
    executes the server's training steps, `initialise` draws a new network's parameters from a
    generator, and `member` returns the client whose hook is called; it is None in the server's
    hooks, and in `noise`.
    """

    net: Network
    nets: Mapping[str, Network]
    initial: Mapping[str, Params]
    num_clients: int
    rounds: int
    batch_size: int
    seed: int
    auxiliary: Data
    validation: Data
    public: PublicData
    clients_public: PublicData
    steps: ServerSteps
    initialise: Callable[[torch.Generator], Params]
    member: Callable[[], Client] | None = None

    @property
    def client(self) -> Client:
        """The client whose hook is called."""
        if self.member is None:
            raise AttributeError(
                "fed.client is known in init_client and start only: let clients upload what the "
                "server needs"
            )
        return self.member()

    def for_clients(self) -> FedView:
        """Return the view of the clients' hooks, without the server's samples."""
        return replace(
            self,
            auxiliary=ServersOwn("auxiliary"),
            validation=ServersOwn("validation"),
            public=self.clients_public,
        )

    def initialised(self, *keys: str | int) -> Params:
        """Draw a new network's parameters and floating-point buffers, by these keys."""
        return self.initialise(self.stream("initialised", *keys))

    def stream(self, *keys: str | int) -> torch.Generator:
        """Make the server's generator for these keys."""
        return stream(self.seed, "server", *keys)

    def repeat(
        self, step: ServerStep, state: Any, inputs: Any, given: Any, net: Net | None = None
    ) -> Any:
        """Take one step for each of `inputs`, on a GPU captured once; returns the last state."""
        return self.steps.repeat(step, state, inputs, given, net)


def _common_length(inputs: Any) -> int:
    """Return the length of the tensors' leading axes; raises ValueError if it is not the same."""
    lengths = {len(tensor) if tensor.dim() else None for tensor in leaves(inputs)}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "a server's steps are as many as the leading axis of their inputs is long: give "
            "tensors of one common length, got shapes "
            f"{[tuple(tensor.shape) for tensor in leaves(inputs)]}"
        )
    return lengths.pop() or 0


def _refuse_bound_values(step: ServerStep) -> None:
    """Refuse a step that binds values, as a closure does: a capture would fix one round's."""
    code = getattr(step, "__code__", None)
    name = getattr(step, "__qualname__", repr(step))
    owner = getattr(step, "__self__", None)
    is_function = owner is None and "<" not in name
    if code is None or not (isinstance(owner, Algorithm) or is_function):
        raise TypeError(
            "a server's step must be a method of the algorithm, or a function of a module, got "
            f"{name}"
        )
    # Methods that call `super()` close over `__class__`.
    closed_over = sorted(set(code.co_freevars) - {"__class__"})
    if closed_over:
        raise TypeError(
            f"{name} closes over {', '.join(closed_over)}: pass it in `state`, `inputs` or "
            "`given`, so that a captured step reads each round's; a decorator closes over what it "
            "wraps"
        )


def _take_step(net: Net, step: ServerStep, state: Any, one_input: Any, given: Any) -> Any:
    """Execute a step once.

    Raises ValueError if it writes into its input, or returns a state of another structure.
    """
    expected = shapes(state)
    versions = [(tensor, tensor._version) for tensor in leaves([one_input, given])]
    after = step(net, state, one_input, given)
    if any(tensor._version != version for tensor, version in versions):
        raise ValueError(
            f"{step.__qualname__} modifies its arguments in place: a server step returns a new "
            "state instead"
        )
    if shapes(after) != expected:
        raise ValueError(
            f"{step.__qualname__} must give back its state with the names, shapes and types it "
            f"had: was {expected}, got {shapes(after)}"
        )
    return after
