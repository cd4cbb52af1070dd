"""Local optimisers as in-place steps on lists of tensors, for one model or for a stack of models.

They compute what `torch.optim.SGD` and `torch.optim.Adam` compute (a test holds them to that) and differ in two ways: a
stack of clients shares one call, gradient clipping then taking each client's own norm, and the state can be cut down
when clients finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from search_spaces.setting import Setting

State = dict[str, Any]


@dataclass(frozen=True)
class Optimizer:
    """The local optimiser of a setting.

    Args:
        setting: its `optimizer`, momentum, decay, clipping and Adam fields are read.
        decayed: for each trainable tensor, whether weight decay applies.
    """

    setting: Setting
    decayed: tuple[bool, ...]

    def init(self, params: Sequence[Tensor]) -> State:
        """Fresh state: optimisers are made anew each round."""
        if self.setting.optimizer == "adam":
            zeros = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
            return {"step": 0, "first": zeros[0], "second": zeros[1]}
        return {"step": 0, "momentum": [torch.zeros_like(p) for p in params] if self.setting.momentum else []}

    def shrink(self, state: State, size: int) -> State:
        """The state of the first `size` clients of a stack."""
        return {key: value if key == "step" else [t[:size].clone() for t in value] for key, value in state.items()}

    @torch.no_grad()
    def step(self, params: list[Tensor], grads: Sequence[Tensor], state: State, lr: float, stacked: bool) -> None:
        """One update in place.

        Args:
            params: trainable tensors, with a leading client axis if `stacked`.
            grads: their gradients, which may be overwritten.
            state: of `init`; updated in place.
            lr: this round's learning rate.
            stacked: whether clients are stacked.
        """
        grads = list(grads)
        if self.setting.clip_norm:
            clip(grads, self.setting.clip_norm, stacked)
        if self.setting.weight_decay:
            chosen = [i for i, decays in enumerate(self.decayed) if decays]
            decayed = torch._foreach_add(
                [grads[i] for i in chosen], [params[i] for i in chosen], alpha=self.setting.weight_decay
            )
            for i, grad in zip(chosen, decayed, strict=True):
                grads[i] = grad
        state["step"] += 1
        (self._adam if self.setting.optimizer == "adam" else self._sgd)(params, grads, state, lr)

    def _sgd(self, params: list[Tensor], grads: list[Tensor], state: State, lr: float) -> None:
        if self.setting.momentum:
            velocity = state["momentum"]
            torch._foreach_mul_(velocity, self.setting.momentum)
            torch._foreach_add_(velocity, grads)
            if self.setting.nesterov:
                grads = list(torch._foreach_add(grads, velocity, alpha=self.setting.momentum))
            else:
                grads = velocity
        torch._foreach_add_(params, grads, alpha=-lr)

    def _adam(self, params: list[Tensor], grads: list[Tensor], state: State, lr: float) -> None:
        beta1, beta2 = self.setting.adam_beta1, self.setting.adam_beta2
        torch._foreach_lerp_(state["first"], grads, 1 - beta1)
        torch._foreach_mul_(state["second"], beta2)
        torch._foreach_addcmul_(state["second"], grads, grads, 1 - beta2)
        correction1, correction2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
        denominator = torch._foreach_sqrt(state["second"])
        torch._foreach_div_(denominator, correction2**0.5)
        torch._foreach_add_(denominator, self.setting.adam_eps)
        torch._foreach_addcdiv_(params, state["first"], denominator, -lr / correction1)


def clip(grads: list[Tensor], limit: float, stacked: bool) -> None:
    """Scale the gradients of a model to norm `limit` at most, in place; of each client by itself if stacked."""
    axis = 1 if stacked else 0
    norms = torch.stack([g.flatten(axis).norm(dim=-1) if g.dim() > axis else g.abs() for g in grads])
    # The 1e-6 is that of torch.nn.utils.clip_grad_norm_, which the papers' codes call.
    scale = (limit / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)) if stacked else scale)


def decays(setting: Setting, names: Sequence[str], norms: frozenset[str]) -> tuple[bool, ...]:
    """Which trainable tensors weight decay applies to, by `setting.decay_exempt`.

    `norm_but_shortcut` exempts normalisation layers save those of residual shortcuts, as FedGKD's code does.
    """
    if setting.decay_exempt == "none":
        return tuple(True for _ in names)
    keep_shortcut = setting.decay_exempt == "norm_but_shortcut"
    return tuple(name not in norms or (keep_shortcut and "shortcut" in name) for name in names)
