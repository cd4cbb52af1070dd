"""FedLC and FedRS: local losses that know how many samples of each class a client holds.

B batch, C classes. Client 3 lacks two of the classes, which its batches still ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.builders import TWO, Past, drive, look, mean_check
from bench.selftest.equations.checks import Check, Limit, Make
from bench.selftest.equations.formulas import cross_entropy
from bench.selftest.equations.lab import CLASSES, forward
from bench.selftest.equations.run import Run

FEDLC, FEDRS = "Zhang et al. 2022, section 4", "Li and Zhan 2021, section 4"
LACKING = 3
Calibrated = Callable[[Tensor, list[int]], Tensor]  # logits (B, C) and samples of each class


def margins(tau: float) -> Calibrated:
    """FedLC: z_c - tau n_c^(-1/4), a class without samples counting 1e-8."""

    def calibrate(logits: Tensor, counts: list[int]) -> Tensor:
        lowered = [logits[:, c] - tau / max(n, 1e-8) ** 0.25 for c, n in enumerate(counts)]
        return torch.stack(lowered, 1)

    return calibrate


def restricted(alpha: float) -> Calibrated:
    """FedRS: z_c of a class that the client holds, alpha z_c of another."""

    def calibrate(logits: Tensor, counts: list[int]) -> Tensor:
        return torch.stack([logits[:, c] if n > 0 else alpha * logits[:, c] for c, n in enumerate(counts)], 1)

    return calibrate


def count_check(title: str, source: str, form: Calibrated, options: Mapping[str, Any]) -> Check:
    """Loss and gradient of two clients in round 1, and in round 3 after others have trained."""

    def check(make: Make) -> float:
        gaps = []
        for cohorts in ((), TWO):
            run = Run(make, options)
            held = run.clients[LACKING].y
            held.remainder_(CLASSES // 2)  # the first half of the classes alone
            past = drive(run, cohorts)
            gaps += [look(run, past, client, _loss(run, client, form)) for client in (2, LACKING)]
        return max(gaps)

    return Check(title, source, check)


def _loss(run: Run, client: int, form: Calibrated) -> Callable[..., Tensor]:
    """The printed loss of a client, whose samples are counted one by one."""
    data = run.clients[client]
    labels = [label for label, weight in zip(data.y.tolist(), data.weight.tolist(), strict=True) if weight > 0]
    counts = [labels.count(c) for c in range(CLASSES)]

    def loss(w: Params, given: Any, past: Past) -> Tensor:
        return cross_entropy(form(forward(w, given.x).logits, counts), given.y)

    return loss


CHECKS: dict[str, tuple[Check, ...]] = {
    "fedlc": (
        count_check("loss and gradient, tau=1", FEDLC, margins(1.0), {"tau": 1.0}),
        count_check("loss and gradient, tau=0.3", FEDLC, margins(0.3), {"tau": 0.3}),
        mean_check(tau=1.0),
    ),
    "fedrs": (
        count_check("loss and gradient, alpha=0.5", FEDRS, restricted(0.5), {"missing_scale": 0.5}),
        count_check("loss and gradient, alpha=0", FEDRS, restricted(0.0), {"missing_scale": 0.0}),
        mean_check(missing_scale=0.5),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedlc": (Limit({"tau": 0.0}),),
    "fedrs": (Limit({"missing_scale": 1.0}),),
}
