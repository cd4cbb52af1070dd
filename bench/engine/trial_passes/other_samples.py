"""A search for results of a sample that depend on the samples beside it in a batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from algorithms.base import Params
from bench.data.dataset import PAD
from bench.engine.dropout import step_keys
from bench.engine.network import Network
from bench.engine.pytree import tree_map
from bench.engine.rng import seeded
from bench.engine.trial_passes.passes import (
    SAMPLES,
    as_type,
    close,
    differing_name,
    largest_value,
    network_of,
    same_draws,
    seeded_features,
    sure_gradients,
)


def depends_on_others(
    model: str, module: nn.Module, x: Tensor, values: Params, training: bool
) -> bool:
    """Return whether a sample's features depend on other samples.

    In training, gradients of its own loss and the tensors that the pass changes are compared, too.
    What float32 tells apart may be rounding that a steep function has enlarged. Float64 then
    decides, unless the module computes in float32 alone.
    """
    if not _depends_in(torch.float32, model, module, x, values, training):
        return False
    try:
        return _depends_in(torch.float64, model, module, x, values, training)
    except Exception:
        return True


@torch.no_grad()
def _depends_in(
    dtype: torch.dtype,
    model: str,
    module: nn.Module,
    x: Tensor,
    values: Params,
    training: bool,
) -> bool:
    """Compare a batch without each of its samples with the whole, as `depends_on_others`."""
    net = network_of(module, dtype)
    x = as_type(dtype, x)
    values = {name: value.to(dtype) for name, value in values.items()}
    whole = None if training else seeded_features(net.eval, values, x)
    for left_out in range(SAMPLES):
        part = [place for place in range(SAMPLES) if place != left_out]
        if whole is None:
            depends = _mixes_in_training(model, net, values, x, part)
        else:
            alone = seeded_features(net.eval, values, _cut(x[part]))
            depends = not close(whole[part], alone)
        if depends:
            return True
    return False


def _mixes_in_training(
    model: str, net: Network, values: Params, x: Tensor, part: list[int]
) -> bool:
    of_all = tree_map(torch.clone, values)
    of_some = tree_map(torch.clone, values)
    features, gradients = of_samples(model, net, of_all, x, part)
    alone, gradients_alone = of_samples(model, net, of_some, _cut(x[part]), slice(None))
    if not close(features, alone) or differing_name(of_all, of_some):
        return True
    largest = max(map(largest_value, gradients.values()), default=0.0)
    for name, gradient in gradients.items():
        if not close(gradient, gradients_alone[name], 1e-4 * largest):
            return True
    return False


def _cut(x: Tensor) -> Tensor:
    """Cut texts to the longest of them, as batches are; other samples stay as they are."""
    if x.is_floating_point():
        return x
    used = int((x != PAD).any(0).nonzero().max()) + 1
    return x[:, :used]


def of_samples(
    model: str, net: Network, params: Params, x: Tensor, part: slice | list[int]
) -> tuple[Tensor, Params]:
    """Return features in training and gradients of a loss, both of some samples."""

    def loss(params: Params, x: Tensor) -> Tensor:
        with net.dropout(step_keys(same_draws(), 1)[0]):
            outputs = net(params, x)
        features.append(outputs.features[part].detach())
        return outputs.logits[part].square()

    features: list[Tensor] = []
    with torch.enable_grad(), seeded(same_draws()):
        gradients = sure_gradients(model, net, loss, params, x)
    return features[0], gradients
