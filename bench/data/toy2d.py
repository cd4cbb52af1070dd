"""Four classes in the plane: a problem whose decision boundaries can be drawn, after FedGKD's Figure 5.

Yao et al. (2021) draw points "in (-4, 4)" with four classes and do not say how many, nor what the classes are. Here
1,000 points of either part are uniform in the square, and a class is a quadrant.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dataset import Dataset, Embedded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Labels

REACH = 4.0
COUNT = 1_000  # of either part


class Toy2d(Embedded):
    """The `Source` of toy2d. The points are the same for every seed."""

    def read(self, folder: Path) -> Dataset:
        """The data set; `folder` is not looked at."""
        rng = np.random.RandomState(0)
        train, test = (rng.uniform(-REACH, REACH, (COUNT, 2)).astype(np.float32) for _ in range(2))
        return Dataset.of("toy2d", (train, _quadrants(train)), (test, _quadrants(test)))


TOY2D = Toy2d()


def _quadrants(points: NDArray[np.float32]) -> Labels:
    """(N,) 0 to 3, counter-clockwise from the upper right."""
    right, upper = points[:, 0] > 0, points[:, 1] > 0
    return np.where(upper, np.where(right, 0, 1), np.where(right, 3, 2)).astype(np.int64)
