"""Local optimisers as in-place steps on lists of tensors, for one model or for a stack of models.

They compute the same as `torch.optim.SGD` and `torch.optim.Adam` (a test checks that) and differ in
two ways: a stack of clients shares one call, in which gradients are clipped by each client's own
norm, and the state can be cut down when clients finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor

from bench.engine.network import Network
from bench.engine.pytree import along_first_axis
from search_spaces.setting import Setting

State = dict[str, list[Tensor]]
# A number; a scalar tensor if the step is captured; or (n,), one for each stacked client.
Rate = float | Tensor


@dataclass(frozen=True)
class Optimizer:
    """The local optimiser of a setting, for the trainable tensors of one network.

    Args:
        setting: its `optimizer`, momentum, decay, clipping and Adam fields are read.
        decayed: for each trainable tensor, whether weight decay applies.
    """

    setting: Setting
    decayed: tuple[bool, ...]

    @staticmethod
    def of(setting: Setting, net: Network) -> Optimizer:
        """Make the optimiser for a network."""
        return Optimizer(setting, decays(setting, net.trainable, net.norms))

    def init(self, params: Sequence[Tensor]) -> State:
        """Make a fresh state, as each round begins with one."""
        names: tuple[str, ...] = ()
        if self.setting.optimizer == "adam":
            names = ("first", "second")
        elif self.setting.momentum:
            names = ("momentum",)
        return {name: list(map(torch.zeros_like, params)) for name in names}

    @torch.no_grad()
    def step(
        self,
        params: list[Tensor],
        grads: Sequence[Tensor | None],
        state: State,
        lr: Rate,
        count: int | Tensor,
        stacked: bool,
    ) -> None:
        """Update `params` and `state` in place; gradients may be overwritten.

        A tensor without a gradient (None), which the loss does not use, stays as it is, without
        weight decay or momentum, as in torch. (Adam corrects its bias by the steps of the round,
        also if a tensor had fewer.) `stacked`: all have a client axis first.

        `count` is the number of the step in its round, from 1, a scalar tensor if the step is
        captured.
        """
        is_used = [grad is not None for grad in grads]
        gradients = [grad for grad in grads if grad is not None]
        if not gradients:
            return
        params = [*compress(params, is_used)]
        decayed = compress(self.decayed, is_used)
        state = {name: [*compress(tensors, is_used)] for name, tensors in state.items()}
        if self.setting.clip_norm:
            clip(gradients, self.setting.clip_norm, stacked)
        if decay := self.setting.weight_decay:
            indices = [i for i, decays in enumerate(decayed) if decays]
            decaying = [params[i] for i in indices]
            sums = torch._foreach_add([gradients[i] for i in indices], decaying, alpha=decay)
            for i, grad in zip(indices, sums, strict=True):
                gradients[i] = grad
        if self.setting.optimizer == "adam":
            self._adam(params, gradients, state, lr, count)
        else:
            self._sgd(params, gradients, state, lr)

    def _sgd(self, params: list[Tensor], grads: list[Tensor], state: State, lr: Rate) -> None:
        if self.setting.momentum:
            velocity = state["momentum"]
            torch._foreach_mul_(velocity, self.setting.momentum)
            torch._foreach_add_(velocity, grads)
            if self.setting.nesterov:
                grads = list(torch._foreach_add(grads, velocity, alpha=self.setting.momentum))
            else:
                grads = velocity
        _add(params, grads, -lr)

    def _adam(
        self, params: list[Tensor], grads: list[Tensor], state: State, lr: Rate, count: int | Tensor
    ) -> None:
        beta1 = self.setting.adam_beta1
        beta2 = self.setting.adam_beta2
        torch._foreach_lerp_(state["first"], grads, 1 - beta1)
        torch._foreach_mul_(state["second"], beta2)
        torch._foreach_addcmul_(state["second"], grads, grads, 1 - beta2)
        bias_correction1 = 1 - beta1**count
        bias_correction2 = 1 - beta2**count
        denominator = torch._foreach_sqrt(state["second"])
        torch._foreach_div_(denominator, _scalar(bias_correction2**0.5, denominator[0]))
        torch._foreach_add_(denominator, self.setting.adam_eps)
        if isinstance(lr, Tensor):
            _add(params, torch._foreach_div(state["first"], denominator), -lr / bias_correction1)
        else:
            torch._foreach_addcdiv_(params, state["first"], denominator, -lr / bias_correction1)


def _add(params: list[Tensor], changes: list[Tensor] | tuple[Tensor, ...], factor: Rate) -> None:
    """Add factor * changes in place; a factor (n,) is one for each entry of the leading axis."""
    if not isinstance(factor, Tensor):
        torch._foreach_add_(params, changes, alpha=factor)
    elif factor.dim():
        factors = [along_first_axis(factor, change) for change in changes]
        torch._foreach_add_(params, list(torch._foreach_mul(changes, factors)))
    else:
        torch._foreach_add_(params, list(torch._foreach_mul(changes, _scalar(factor, changes[0]))))


def _scalar(factor: float | Tensor, like: Tensor) -> float | Tensor:
    """Cast a scalar tensor to the type of `like`.

    Otherwise torch would start a kernel for each tensor of a list.
    """
    return factor.to(like.dtype) if isinstance(factor, Tensor) else factor


def clip(grads: list[Tensor], limit: float, stacked: bool) -> None:
    """Scale the gradients of a model to norm `limit` at most, in place.

    If they are stacked, each client's are scaled by their own norm.
    """
    axis = 1 if stacked else 0
    norms = []
    for grad in grads:
        if grad.dim() > axis:
            norms.append(grad.flatten(axis).norm(dim=-1))
        else:
            norms.append(grad.abs())
    norm = torch.stack(norms).norm(dim=0)
    # The 1e-6 is that of torch.nn.utils.clip_grad_norm_, which the papers' code calls.
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(along_first_axis(scale, grad) if stacked else scale)


def decays(setting: Setting, names: Sequence[str], norms: frozenset[str]) -> tuple[bool, ...]:
    """Return for each trainable tensor whether weight decay applies to it.

    `setting.decay_exempt` says so: `norm_but_shortcut` exempts normalisation layers except those of
    residual shortcuts, as FedGKD's code does.
    """
    if setting.decay_exempt == "none":
        return tuple(True for _ in names)
    keep_shortcut = setting.decay_exempt == "norm_but_shortcut"
    return tuple(name not in norms or (keep_shortcut and "shortcut" in name) for name in names)
