"""The network as hooks see it: a function of its parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from algorithms.base import Outputs, Params
from bench.engine.dropout import replace_dropout
from bench.engine.rng import seeded, stream
from bench.models.module_state import checksum, of_tensor, state_of, tensors_of

NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm2d)


class Network:
    """A module without values of its own, called with `{name: tensor}`.

    Implements `algorithms.base.Net`.

    Frozen parameters (`requires_grad=False`) are constants of the network: no client trains them,
    and no message or mean has them. So are the floating-point buffers of layers that stay in
    evaluation mode when the module is set to train, as a frozen BatchNorm does whose `train` method
    keeps it there, and the buffers that the module names in `still_buffers`, because training does
    not change them: a mean over clients would, by rounding.

    All other floating-point buffers (BatchNorm's running statistics) are part of the parameters, so
    that servers average them; in training mode they are updated in place in the tensors that were
    passed. Calls are strict: a missing or unknown name is an error, never the module's own value.

    Dropout layers take their masks from a key (`bench.engine.dropout`), which the backends set for
    the duration of a client's `local_loss`, and of the loss of `cohort.gradients`. Elsewhere, on
    the server and in other hooks, training mode drops nothing, because masks there could not be
    repeated.

    Args:
        module: returns `Outputs`; `head`, its last linear layer or a sequence that begins with one,
            gives logits.
        input_shape: of one example.
        num_classes: C.
        precision: `fp32`, `tf32`, `bf16` (autocast, float32 parameters) or `fp64`.
        pixel_mean: per channel, in units of pixel / scale.
        pixel_std: per channel, likewise.

    Attributes:
        shared: the network of the setting's `model`, if this one is of a client with another.
        constants: the values of frozen parameters and buffers, by name.
        tied: by further name of a tensor that several layers share, the name of it in `names` or
            `constants`.
        batch_statistics: whether a layer takes the statistics of its batch in training mode.
    """

    def __init__(
        self,
        module: nn.Module,
        input_shape: tuple[int, ...],
        num_classes: int,
        precision: str = "fp32",
        pixel_mean: tuple[float, ...] = (0.0,),
        pixel_std: tuple[float, ...] = (1.0,),
    ) -> None:
        self.num_classes = num_classes
        self.input_shape = input_shape
        self.shared: Network | None = None
        of_head: nn.Module = module.head  # type: ignore[assignment]
        first = next(part for part in of_head.modules() if isinstance(part, nn.Linear))
        self.feature_dim = first.in_features
        self.dtype = torch.float64 if precision == "fp64" else torch.float32
        fixed = constant_names(module)
        training = copy.deepcopy(module).train()
        parameters = [name for name, _ in module.named_parameters() if name not in fixed]
        buffers = [name for name in _float_buffers(module) if name not in fixed]
        self.trainable = tuple(parameters)
        self.names = (*parameters, *buffers)
        values = tensors_of(module)
        self.constants = {
            name: values[name].detach().to(self.dtype, copy=True) for name in sorted(fixed)
        }
        self.tied = _further_names(module, (*self.names, *self.constants))
        self.batchnorm = frozenset(_names_of(module, (_BatchNorm,))) & set(self.names)
        self.batch_statistics = any(
            isinstance(part, _BatchNorm) and part.training for part in training.modules()
        )
        self._statistics = self.batchnorm - set(self.trainable)
        self.norms = frozenset(_names_of(module, NORMS)) & set(self.names)
        self.convolutional = any(isinstance(part, nn.Conv2d) for part in module.modules())
        # Of layers that compute with their weights as they are.
        self.conv_weights = frozenset(
            f"{name}.weight" for name, part in module.named_modules() if type(part) is nn.Conv2d
        )
        self._pads = any(_has_padding_row(part) for part in module.modules())
        self.autocasts = precision == "bf16"
        self._pixel_mean = torch.tensor(pixel_mean, dtype=self.dtype).view(-1, 1, 1)
        self._pixel_std = torch.tensor(pixel_std, dtype=self.dtype).view(-1, 1, 1)
        self.checksum = self._checksum(module)
        # Of texts, which are padded batch by batch.
        longest = input_shape[0] if len(input_shape) == 1 else 0
        self._masks = replace_dropout(training, longest)
        self._train = _Stateless(training, self.constants)
        self._eval = _Stateless(copy.deepcopy(module).eval(), self.constants)
        self._head = _Stateless(copy.deepcopy(of_head), _of_head(self.constants))

    def _checksum(self, module: nn.Module) -> int:
        """Return a checksum of constants and of what the module keeps beside tensors of `names`.

        Networks of one model with one checksum compute the same with the same parameters.
        """
        kept = state_of(module)
        for name, value in self.constants.items():
            kept[f"constant {name}"] = of_tensor(value)
        return checksum(kept)

    def to(self, device: torch.device) -> Network:
        """Move constants and buffers of whole numbers to a device; return the network."""
        self.constants = {name: value.to(device) for name, value in self.constants.items()}
        self._train.to(device, self.constants)
        self._eval.to(device, self.constants)
        self._head.to(device, _of_head(self.constants))
        self._pixel_mean = self._pixel_mean.to(device)
        self._pixel_std = self._pixel_std.to(device)
        return self

    def __call__(self, params: Params, x: Tensor) -> Outputs:
        """Run in training mode: BatchNorm uses the batch and updates `params` in place."""
        return self._call(self._train, params, x)

    def check_constants(self) -> None:
        """Raise RuntimeError if a training pass has changed a constant."""
        name = self._train.changed_constant()
        if name:
            raise RuntimeError(
                f"a training pass changed {name}, which it did not do in the trial pass before the "
                "run: let the model change it in every training pass, or in none"
            )

    def is_whole(self, params: Params) -> bool:
        """Return whether these are all tensors of a model; personal rows have only some."""
        return set(params) == set(self.names)

    @property
    def common(self) -> Network:
        """The network of the setting's `model`."""
        return self.shared or self

    @property
    def fills_batches(self) -> bool:
        """Return whether short batches are filled up, because statistics are taken of them.

        A client may train the common network beside its own, on the same batches.
        """
        return self.batch_statistics or self.common.batch_statistics

    @property
    def has_batched_layers(self) -> bool:
        """Return whether a stack needs `BatchedLayers`."""
        return self.convolutional or self._pads or self.autocasts

    @property
    def has_dropout(self) -> bool:
        """Return whether a local step needs a key."""
        return self._masks is not None

    def dropout(self, key: Tensor | None) -> AbstractContextManager[None]:
        """Let training mode drop by `key`, in a block; None for nothing.

        `key`: (2,) of `step_keys`, perhaps vmapped.
        """
        return nullcontext() if self._masks is None else self._masks.under(key)

    def eval(self, params: Params, x: Tensor) -> Outputs:
        """Run in evaluation mode; gradients flow."""
        if self._statistics and torch.is_grad_enabled():
            # The backward pass reads the running statistics again, and a training pass may have
            # moved them by then.
            params = {
                name: value.clone() if name in self._statistics else value
                for name, value in params.items()
            }
        return self._call(self._eval, params, x)

    def head(self, params: Params, features: Tensor) -> Tensor:
        """Return the logits (B, C) of features (B, D)."""
        logits: Tensor = self._head(_of_head(params), features)
        return logits

    def normalise(self, x: Tensor) -> Tensor:
        """Convert images (..., C, H, W) in [0, 1] to inputs of the network."""
        return (x - self._pixel_mean.to(x.dtype)) / self._pixel_std.to(x.dtype)

    def _call(self, module: _Stateless, params: Params, x: Tensor) -> Outputs:
        if not self.autocasts:
            out: Outputs = module(params, x)
            return out
        with torch.autocast(x.device.type, torch.bfloat16):
            out = module(params, x)
        return Outputs(out.logits.float(), out.features.float())


class _Stateless:
    """A module that is called with the tensors to use, beside its constants.

    `torch.func.functional_call` does the same with checks that cost about 0.1 ms a call, a third of
    a small model's step; here the places are looked up once.
    """

    def __init__(self, module: nn.Module, constants: Params) -> None:
        self._module = module
        places = list(_places(module))
        self._places = [place for place in places if place[2] not in constants]
        self._fixed = [place for place in places if place[2] in constants]
        self._names = frozenset(name for _, _, name in self._places)
        for table, key, _ in places:
            table[key] = None  # a large model's own values would only fill memory
        self._keep(constants)

    def to(self, device: torch.device, constants: Params) -> None:
        """Move the module's own buffers, and take constants that are on the device."""
        for table, key, _ in self._fixed:
            table[key] = None
        self._module.to(device)
        self._keep(constants)

    def _keep(self, constants: Params) -> None:
        for table, key, name in self._fixed:
            table[key] = constants[name]
        self._kept = {name: (value, value._version) for name, value in constants.items()}

    def changed_constant(self) -> str:
        """Return the name of a constant that was changed or replaced; empty for none."""
        for table, key, name in self._fixed:
            value, version = self._kept[name]
            if table[key] is not value or value._version != version:
                return name
        return ""

    def __call__(self, params: Params, x: Tensor) -> Any:
        """Call the module; raises KeyError if a name is missing, or unknown to the module."""
        try:
            for table, key, name in self._places:
                table[key] = params[name]
        except KeyError as error:
            raise KeyError(f"the parameters lack {error.args[0]!r}") from None
        if len(params) != len(self._names):
            unknown = sorted(set(params) - self._names)
            raise KeyError(f"the network has no parameter {unknown[0]!r}")
        return self._module(x)


def _of_head(params: Params) -> Params:
    """Select the tensors of the head, by their names within it."""
    return {
        name.removeprefix("head."): value
        for name, value in params.items()
        if name.startswith("head.")
    }


def constant_names(module: nn.Module) -> frozenset[str]:
    """Return the names of a module's constants, as `Network` describes them."""
    modes = {part: part.training for part in module.modules()}
    module.train()
    resting: set[int] = set()
    for part in modes:
        if not part.training:
            resting |= set(map(id, part.buffers(recurse=False)))
    for part, training in modes.items():
        part.training = training
    frozen = {name for name, value in module.named_parameters() if not value.requires_grad}
    buffers = {name for name, value in _float_buffers(module).items() if id(value) in resting}
    still: frozenset[str] = getattr(module, "still_buffers", frozenset())
    return frozenset(frozen | buffers | still)


def _further_names(module: nn.Module, names: Sequence[str]) -> dict[str, str]:
    """Return each further name of a tensor that layers share -> its name among `names`."""
    state = module.state_dict(keep_vars=True)
    listed = {id(state[name]): name for name in names if name in state}
    further = {}
    for name, value in state.items():
        if name not in names and id(value) in listed:
            further[name] = listed[id(value)]
    return further


def _float_buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in module.named_buffers() if value.is_floating_point()}


def _places(module: nn.Module) -> Iterator[tuple[Any, Any, str]]:
    """Yield each floating-point parameter and buffer.

    It is yielded as its table, its key there, and its name as torch lists it.

    A tensor that layers share is listed once, by its first name, and has several places.
    """
    parameters = {id(value): name for name, value in module.named_parameters()}
    buffers = {id(value): name for name, value in module.named_buffers()}
    for part in module.modules():
        tables: list[tuple[dict[str, Any], dict[int, str]]] = [
            (part._parameters, parameters),
            (part._buffers, buffers),
        ]
        for table, names in tables:
            for key, value in table.items():
                if value is not None and value.is_floating_point():
                    yield table, key, names[id(value)]
        if isinstance(part, nn.RNNBase):
            for place, value in enumerate(part._flat_weights):
                if id(value) in parameters:  # `weight_norm` sets others before each pass
                    yield _RecurrentWeights(part), place, parameters[id(value)]


class _RecurrentWeights:
    """The list from which a recurrent layer reads its weights, beside its parameters."""

    def __init__(self, layer: nn.RNNBase) -> None:
        self._layer = layer

    def __setitem__(self, place: int, value: Tensor | None) -> None:
        self._layer._flat_weights[place] = value


def _has_padding_row(part: nn.Module) -> bool:
    return isinstance(part, nn.Embedding) and part.padding_idx is not None


def _names_of(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> set[str]:
    """Return the full names of the parameters and buffers that belong to modules of these types."""
    names = set()
    for prefix, part in module.named_modules():
        if isinstance(part, kinds):
            own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
            names |= {f"{prefix}.{name}" for name, _ in own}
    return names


def make_module(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Make a module, initialised from the run's `init` stream."""
    return drawn_module(factory, stream(seed, "init"))


def drawn_module(factory: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """Make a module, initialised from an unused generator.

    Numpy's and Python's generators are seeded as well, because a model from outside may draw its
    weights with them. All global states are as before afterwards. The first weights are drawn in
    float32, whatever torch's default type is. BatchNorm's batch counters are removed: they are
    integers, which no server can average.
    """
    default = torch.get_default_dtype()
    seed = generator.initial_seed()
    with seeded(torch.Generator().manual_seed(seed)):
        torch.manual_seed(seed)  # `seeded` draws another one, and stored runs began from this one
        torch.set_default_dtype(torch.float32)
        try:
            module = factory()
        finally:
            torch.set_default_dtype(default)
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.num_batches_tracked = None
    return module


def initial_params(module: nn.Module, dtype: torch.dtype, device: torch.device) -> Params:
    """Return w_0: copies of a module's parameters and floating-point buffers, but its constants."""
    fixed = constant_names(module)
    values = {**dict(module.named_parameters()), **_float_buffers(module)}
    return {
        name: value.detach().to(device=device, dtype=dtype, copy=True)
        for name, value in values.items()
        if name not in fixed
    }


@torch.no_grad()
def take_constants(module: nn.Module, params: Params) -> None:
    """Replace a module's constants by those among `params`, in place."""
    values = tensors_of(module)
    for name in constant_names(module) & params.keys():
        values[name].copy_(params[name])
