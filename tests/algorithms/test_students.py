"""The training of a student model by its outputs."""

from __future__ import annotations

import torch
from torch import nn

from algorithms.students import student_gradient
from bench.engine.network import Network, initial_params
from bench.models.modules import Classifier


class _Beside(nn.Module):
    """Returns samples as they are, beside a layer that none of them reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_unused_parameters_have_gradients_of_zero() -> None:
    module = Classifier(_Beside(), 3, 2)
    net = Network(module, (3,), 2)
    params = initial_params(module, torch.float32, torch.device("cpu"))
    x = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    _, _, gradient = student_gradient(net, params, x, lambda outputs: outputs.logits.sum(dim=1))
    assert torch.equal(gradient["head.weight"], torch.full((2, 3), 2.0))
    assert torch.equal(gradient["body.unused.weight"], torch.zeros(2, 3))
