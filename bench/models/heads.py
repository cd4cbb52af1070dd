"""The part on every body: MOON's projection head if asked for, and the head that gives logits."""

from __future__ import annotations

from torch import Tensor, nn

from algorithms.base import Outputs


class Classifier(nn.Module):
    """A body, an optional projection head, and the head: the linear classifier, in some models behind a dense layer.

    Args:
        body: inputs (B, ...) to features (B, D).
        features: D.
        num_classes: C.
        projection: output size of Linear(D, D)-ReLU-Linear(D, projection) before the classifier, or None (MOON, section
            3.2: the classifier stands on the projection).
        hidden: units of a dense layer with ReLU between features and classifier; 0 for none.
    """

    def __init__(
        self, body: nn.Module, features: int, num_classes: int, projection: int | None = None, hidden: int = 0
    ) -> None:
        super().__init__()
        self.body = body
        self.projection: nn.Module = nn.Identity()
        if projection is not None:
            dense = nn.Linear(features, features)
            self.projection = nn.Sequential(dense, nn.ReLU(inplace=True), nn.Linear(features, projection))
        width = projection or features
        between = [nn.Linear(width, hidden), nn.ReLU(inplace=True)] if hidden else []
        classifier = nn.Linear(hidden or width, num_classes)
        self.head = nn.Sequential(*between, classifier) if hidden else classifier

    def forward(self, x: Tensor) -> Outputs:
        """Logits (B, C) and the features that the head reads."""
        features = self.projection(self.body(x))
        return Outputs(self.head(features), features)
