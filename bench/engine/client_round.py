"""One client's round, ready for either backend: schedule, teachers, noise, starting point."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Local,
    LocalPlan,
    Memory,
    Message,
    Outputs,
    Params,
    Plugin,
    Upload,
    layers,
)
from algorithms.forward import joined
from bench.engine.federation import ClientInputs, Federation
from bench.engine.hook_results import form, typed
from bench.engine.network import Network
from bench.engine.optimizers import Optimizer
from bench.engine.process import float32_products
from bench.engine.pytree import detached_copy, has_nan, num_bytes, shapes, tensors, without
from bench.engine.rng import nothing_drawn, seeded, stream
from bench.engine.run_models import RunModel
from bench.engine.samples import draw_crops
from bench.engine.server_context import FedView
from leaderboards.numbers import check_own
from search_spaces.setting import Setting

LOSS = ""  # among means over steps: that of the loss itself, beside those of its terms


@dataclass(frozen=True)
class RunContext:
    """The parts of a run that do not change, as its rounds and clients have them.

    Args:
        model: name of the network's model.
        draws: the layer by which a model of the run draws from global generators
            (`bench.engine.own_draws`); empty for none.
        from_outside: whether a model of the run is none of this suite's.
        of_clients: the context with the network of each model that is dealt to the clients; empty
            if all have the server's.
    """

    algorithm: Algorithm
    setting: Setting
    seed: int
    model: str
    net: Network
    fed: FedView
    federation: Federation
    optimizer: Optimizer
    draws: str
    from_outside: bool
    of_clients: tuple[RunContext, ...] = ()

    @property
    def unlike(self) -> bool:
        """Return whether clients have models of their own."""
        return bool(self.setting.client_models)

    def of(self, client: int) -> RunContext:
        """Return the context with a client's own network."""
        return self.of_clients[client % len(self.of_clients)] if self.of_clients else self

    def places_by_model(self, clients: Iterable[int]) -> dict[str, list[int]]:
        """Return, by name of the model, the places among `clients` of those that have it."""
        places: dict[str, list[int]] = {}
        for place, client in enumerate(clients):
            places.setdefault(self.of(client).model, []).append(place)
        return places

    def with_model(self, model: RunModel) -> RunContext:
        """Return the context of clients that have a model of their own."""
        net = model.net
        fed = replace(self.fed, net=net, initialise=model.draw)
        optimizer = Optimizer.of(self.setting, net)
        return replace(self, model=model.name, net=net, fed=fed, optimizer=optimizer)

    def received(self, message: Message) -> Message:
        """Return a message as a client of this model receives it: of `by_model` its own."""
        own = {
            name: message[name][self.model] for name in self.algorithm.by_model if name in message
        }
        return {**message, **own} if own else message

    def own_draws(self, *keys: str | int) -> AbstractContextManager[None]:
        """Seed what the model draws by itself, in a block, from the run's stream of these keys.

        A model from outside that was found to draw nothing is held to it.
        """
        if self.draws:
            return seeded(stream(self.seed, "own draws", *keys))
        return nothing_drawn() if self.from_outside else nullcontext()

    def products(self) -> AbstractContextManager[None]:
        """Compute float32 products, in a block, in the run's precision."""
        return float32_products(self.federation.device, self.setting.precision)

    @cached_property
    def clients_fed(self) -> FedView:
        """The `fed` of the clients' hooks."""
        return self.fed.for_clients()

    def fed_of(self, client: int) -> FedView:
        """Return the `fed` of a client's own hooks, with the client's number and sample counts."""
        member = partial(self.federation.client, client)
        return replace(self.of(client).clients_fed, member=member)

    def noise(self, generator: torch.Generator) -> Any:
        """Return the algorithm's draws for a step with a full batch, on the generator's device."""
        return self.algorithm.noise(self.clients_fed, generator, self.setting.batch_size)

    @cached_property
    def acts_before_steps(self) -> bool:
        """Return whether the algorithm does anything in `before_step`.

        The default is not worth a call in each step.
        """
        idle = (Algorithm.before_step, Plugin.before_step)
        return any(type(layer).before_step not in idle for layer in layers(self.algorithm))


@dataclass(frozen=True)
class Schedule:
    """The samples that each local step takes.

    Args:
        positions: (steps, B) int32 into the client's own samples. A short last batch of an epoch is
            filled up with other samples of the client, because BatchNorm would see copies of one
            sample as a constant batch. Without BatchNorm the loop leaves this padding out.
        weight: (steps, B) bool, False for padding.
        sizes: number of samples of each step, without padding.
    """

    positions: Tensor
    weight: Tensor
    sizes: tuple[int, ...]

    def on(self, device: torch.device, dtype: torch.dtype) -> Schedule:
        """Move the tensors to a device, and the weights to that type."""
        return Schedule(self.positions.to(device), self.weight.to(device, dtype), self.sizes)


def draw_schedule(
    generator: torch.Generator, setting: Setting, sizes: Sequence[int], client: int
) -> Schedule:
    """Draw a client's schedule: a fresh order for each epoch, cut into batches.

    The setting's step rule decides how many steps there are, and whether an epoch's short last
    batch is left out, unless it is the only one. `sizes` are the sample counts of all clients.
    """
    num_examples = sizes[client]
    batch_size = setting.batch_size
    steps = steps_of(setting, num_examples, sizes)
    whole_batches = setting.step_rule in ("equal", "whole_epochs")
    per_epoch = _batches_per_epoch(num_examples, batch_size, whole_batches)
    epochs = math.ceil(steps / per_epoch)
    draws = []
    for _ in range(epochs):
        draws.append(torch.randperm(num_examples, generator=generator, dtype=torch.int32))
    orders = torch.stack(draws)
    places = torch.arange(per_epoch * batch_size)
    positions = orders.gather(1, (places % num_examples).expand(epochs, -1))
    weight = (places < num_examples).view(per_epoch, batch_size)
    batch_sizes = weight.sum(1).tolist() * epochs
    return Schedule(
        positions.view(-1, batch_size)[:steps],
        weight.repeat(epochs, 1)[:steps],
        tuple(batch_sizes[:steps]),
    )


def steps_of(setting: Setting, num_examples: int, sizes: Sequence[int]) -> int:
    """Count the local steps of a client of `num_examples` samples.

    A larger client never takes fewer.
    """
    epochs = setting.local_epochs
    batch_size = setting.batch_size
    if setting.step_rule == "batches":
        return epochs
    if setting.step_rule == "equal":
        return epochs * max(1, sum(sizes) // (len(sizes) * batch_size))
    whole_batches = setting.step_rule == "whole_epochs"
    return epochs * _batches_per_epoch(num_examples, batch_size, whole_batches)


def _batches_per_epoch(num_examples: int, batch_size: int, whole_batches: bool) -> int:
    """Count the batches of an epoch."""
    if whole_batches:
        return max(1, num_examples // batch_size)
    return math.ceil(num_examples / batch_size)


@dataclass
class ClientWork:
    """One client's round before training.

    Draws for its steps are on the CPU; a backend moves them all at once.

    `local` is everything that the client trains, `memory` is from its earlier rounds, `teachers`
    are frozen models by name, `tables` their outputs on every sample, if epochs have the same
    inputs. The hook `noise` draws from a copy of `noise`, because a second attempt must see the
    same numbers.
    """

    client: int
    schedule: Schedule
    inputs: ClientInputs
    local: Local
    memory: Memory
    teachers: Mapping[str, Params]
    tables: Mapping[str, Outputs]
    noise: torch.Generator

    @property
    def steps(self) -> int:
        """Number of local steps, tau_k."""
        return len(self.schedule.sizes)


@dataclass(eq=False)
class RoundWork:
    """One run's round, ready to train.

    Args:
        clients: their work.
        message: what all clients receive.
        round: its number, from 1.
        lr: the local learning rate.
    """

    context: RunContext
    clients: list[ClientWork]
    message: Message
    round: int
    lr: float

    def of(self, client: int) -> RoundWork:
        """Return the round as one client has it: its network, the message that it receives."""
        context = self.context.of(client)
        message = context.received(self.message)
        if context is self.context and message is self.message:
            return self
        return replace(self, context=context, message=message)

    def parts(self) -> list[RoundWork]:
        """Return the round's parts, each with the clients of one model, as they have it."""
        by_model = self.context.places_by_model(work.client for work in self.clients)
        parts = []
        for places in by_model.values():
            works = [self.clients[place] for place in places]
            own = self.of(works[0].client)
            parts.append(self if own is self else replace(own, clients=works))
        return parts

    def plan(self, num_steps: Tensor) -> LocalPlan:
        """Make the plan of a client that takes so many steps."""
        momentum = self.context.setting.momentum
        return LocalPlan(self.round, self.lr, momentum, num_steps, self.context.fed.clients_public)


@dataclass
class ClientResult:
    """A client's round after training.

    Args:
        params: its final local model.
        bytes_up: of its upload.
        loss: mean training loss, nats.
        samples: training examples, each epoch counted.
        nan_in: a scalar for each other entry of `local`, by its name: NaN if the entry has a NaN,
            else 0.
        metrics: scalars by name that the algorithm reports for the curve: means over the steps of
            the terms of its loss, and those of its upload, which does not hold them any more.
    """

    client: int
    params: Params
    upload: Upload
    bytes_up: int
    memory: Memory
    loss: Tensor
    steps: int
    samples: int
    nan_in: dict[str, Tensor]
    metrics: dict[str, Tensor] = field(default_factory=dict)


def make_work(
    context: RunContext, client: int, round: int, message: Message, memory: Memory
) -> ClientWork:
    """Draw everything that a client's round needs, each part from a stream of its own.

    `context` and `message` are the client's own (`RoundWork.of`).

    Raises:
        ValueError: `start` returns a model that is not the client's.
    """
    setting = context.setting
    federation = context.federation

    def generator(purpose: str) -> torch.Generator:
        return stream(context.seed, purpose, round, client)

    schedule = draw_schedule(generator("order"), setting, federation.sizes, client)
    draws = None
    if setting.augmentation != "none":
        steps = len(schedule.sizes)
        draws = draw_crops(generator("augment"), steps, setting.batch_size, setting.augmentation)
    start = context.algorithm.start(context.fed_of(client), message, memory, generator("start"))
    _check_start(context, typed("start", start)["params"])
    inputs = federation.inputs(client, schedule.positions, draws)
    teachers = typed("teachers", context.algorithm.teachers(message, memory))
    tables = {}
    if draws is None:  # epochs have the same inputs
        tables = outputs_on(context.net, teachers, inputs)
    return ClientWork(
        client=client,
        schedule=schedule,
        inputs=inputs,
        local=tensors(start, federation.device, federation.dtype),
        memory=memory,
        teachers=teachers,
        tables=tables,
        noise=generator("noise"),
    )


def _check_start(context: RunContext, params: Params) -> None:
    """Raise ValueError unless a client starts from a whole model of its own architecture."""
    if context.model not in context.fed.initial:  # the server's own model takes further steps
        return
    initial = context.fed.initial[context.model]
    expected = shapes(initial)
    got = shapes(params)
    if got == expected:
        return
    names = sorted(expected.keys() ^ got.keys())
    names += [name for name in expected if got.get(name, expected[name]) != expected[name]]
    if not context.unlike:
        name = names[0]
        raise ValueError(
            "start must return a tensor of each parameter's shape and type as params: of "
            f"{name} {form(initial.get(name))} is due, got {form(params.get(name))}"
        )
    raise ValueError(
        f"start returns params of another model than the client's, which is {context.model}: "
        f"{names[0]!r} differs; send each model's by `by_model`, or keep a client's in its memory"
    )


@torch.no_grad()
def outputs_on(
    net: Network, models: Mapping[str, Params], inputs: ClientInputs
) -> dict[str, Outputs]:
    """Compute outputs of frozen models on all of a client's inputs, which are not augmented.

    Returns:
        By the model's name, (n, C) logits and (n, D) features.
    """
    if not models:
        return {}
    parts: dict[str, list[Outputs]] = {name: [] for name in models}
    for x in inputs.chunks():
        for name, params in models.items():
            parts[name].append(net.eval(params, x))
    return {name: joined(of_chunks) for name, of_chunks in parts.items()}


def leaves_of(net: Network, params: Params) -> Params:
    """Copy a model for a client to train.

    Weights of convolutions get channels-last memory, and trainable tensors are leaves.
    """
    copies = {}
    for name, value in params.items():
        is_kernel = name in net.conv_weights
        layout = torch.channels_last if is_kernel else torch.contiguous_format
        copies[name] = value.detach().clone(memory_format=layout)
    for name in net.trainable:
        copies[name].requires_grad_()
    return copies


def finish(
    context: RunContext,
    work: ClientWork,
    local: Local,
    means: Mapping[str, Tensor],
    message: Message,
    plan: LocalPlan,
) -> ClientResult:
    """Ask the algorithm for a client's upload and new memory, and make the client's result.

    `means` are means over the client's steps: `LOSS`, and the terms that the algorithm reports.
    """
    context.net.check_constants()
    federation = context.federation
    data = federation.data(work.inputs.index)
    result = context.algorithm.upload(context.net, local, data, message, work.memory, plan)
    upload, memory = typed("upload", result)
    upload = tensors(upload, federation.device, federation.dtype)
    metrics = joined_metrics(without(means, LOSS), upload.get("metrics", {}))
    sent = without(upload, "metrics")
    bytes_up = sent_bytes(sent, federation.dtype)
    return ClientResult(
        client=work.client,
        params=local["params"],
        # Not copied: the server copies all uploads before the round is over.
        upload=without(sent, "floats"),
        bytes_up=bytes_up,
        memory=detached_copy(tensors(memory, federation.device, federation.dtype)),
        loss=means[LOSS],
        steps=work.steps,
        samples=sum(work.schedule.sizes),
        nan_in={name: has_nan(tree) for name, tree in without(local, "params").items()},
        metrics={name: value.detach() for name, value in metrics.items()},
    )


def sent_bytes(sent: Mapping[str, Any], dtype: torch.dtype) -> int:
    """Count the bytes of a message or an upload: of its `floats`, or else of its tensors.

    Raises:
        ValueError: `floats` is no finite number from 0 on.
    """
    if "floats" not in sent:
        return num_bytes(sent)
    floats = sent["floats"]
    is_number = isinstance(floats, Tensor) and floats.dim() == 0 and not floats.is_complex()
    number = float(floats) if is_number else math.nan
    if not 0 <= number < math.inf:
        got = repr(floats)
        if isinstance(floats, Tensor):
            got = f"{floats.tolist()}"
        raise ValueError(f"`floats`, the size of what is sent, must be a number >= 0, got {got}")
    return math.ceil(number * dtype.itemsize)


def joined_metrics(first: Mapping[str, Tensor], second: Any) -> dict[str, Tensor]:
    """Join metrics that an algorithm reports in two places.

    Raises:
        ValueError: a name is reported in both, or no name for an algorithm's own metric; or a value
            is no scalar.
    """
    if not isinstance(second, Mapping):
        raise ValueError(
            f"`metrics` must be a dict of scalars by name, got {type(second).__name__}"
        )
    for name, value in second.items():
        if name in first:
            raise ValueError(
                f"the metric {name!r} is reported twice: give one of the two another name"
            )
        if not isinstance(value, Tensor) or value.dim():
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise ValueError(f"the metric {name!r} must be a scalar, got {got}")
    joined = {**first, **second}
    for name in joined:
        check_own(name)
    return joined


def state_before_step(result: Any, batch: Batch) -> Local:
    """Return what `before_step` returned.

    Raises:
        TypeError: it is no dict with a model.
        ValueError: the hook has reported terms, which only the loss has.
    """
    state: Local = typed("before_step", result)
    if batch.reported:
        raise ValueError(
            f"before_step reports the terms {sorted(batch.reported)}, which are those of the loss: "
            "keep what they need in the local state, and report them from local_loss"
        )
    return state


def step_means(algorithm: Algorithm, batch: Batch, loss: Tensor) -> dict[str, Tensor]:
    """Average the loss (B,) of a step, and the terms that it reported, over the samples that count.

    Raises:
        TypeError: the loss is no tensor.
        ValueError: the loss or a reported term has another shape, or other terms are reported than
            the algorithm declares.
    """
    typed("local_loss", loss)
    if set(batch.reported) != set(algorithm.terms):
        raise ValueError(
            f"local_loss reports the terms {sorted(batch.reported)}, the algorithm's `terms` "
            f"states {sorted(algorithm.terms)}: make them agree, in every step"
        )
    means = {LOSS: masked_mean(loss, batch.weight)}
    for name, term in batch.reported.items():
        if not isinstance(term, Tensor) or term.shape not in ((), batch.weight.shape):
            got = tuple(term.shape) if isinstance(term, Tensor) else type(term).__name__
            raise ValueError(
                f"local_loss reports {name!r}, which must be a tensor, (B,) or a scalar; got {got}"
            )
        means[name] = masked_mean(term.detach().expand_as(batch.weight), batch.weight)
    return means


def loss_gradients(loss: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Differentiate a step's loss by the trainable tensors; None for what it does not depend on.

    Raises:
        ValueError: it depends on none.
    """
    if not loss.requires_grad:
        raise ValueError(
            "local_loss must depend on local['params']: it is detached, or of other parameters, "
            "such as those of the message"
        )
    return torch.autograd.grad(loss, leaves, allow_unused=True)


def masked_mean(loss: Tensor, weight: Tensor) -> Tensor:
    """Average per-example losses (B,) over the samples that count.

    Raises:
        ValueError: the losses have another shape: a mean would count the padding, any other shape
            would broadcast.
    """
    if loss.shape != weight.shape:
        raise ValueError(
            f"a loss has one value per sample, shape ({len(weight)},), to which a scalar term may "
            f"be added; got shape {tuple(loss.shape)}"
        )
    # 0 for a finished client, which has no samples left in a stack.
    return (loss * weight).sum() / weight.sum().clamp(min=1)
