"""What stands on every body: MOON's projection head where asked for, and the last linear layer."""

from __future__ import annotations

from torch import Tensor, nn

from algorithms.base import Outputs
from bench.models.rectify import ReLU


class Classifier(nn.Module):
    """A body, an optional projection head, and the linear classifier.

    Args:
        body: inputs (B, ...) to features (B, D).
        features: D.
        num_classes: C.
        projection: output size of Linear(D, D)-ReLU-Linear(D, projection) before the classifier, or None (MOON, section
            3.2: the classifier stands on the projection).
    """

    def __init__(self, body: nn.Module, features: int, num_classes: int, projection: int | None = None) -> None:
        super().__init__()
        self.body = body
        self.projection: nn.Module = nn.Identity()
        if projection is not None:
            self.projection = nn.Sequential(nn.Linear(features, features), ReLU(), nn.Linear(features, projection))
        self.head = nn.Linear(projection or features, num_classes)

    def forward(self, x: Tensor) -> Outputs:
        """Logits (B, C) and the features that the classifier reads."""
        features = self.projection(self.body(x))
        return Outputs(self.head(features), features)
