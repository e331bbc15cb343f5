"""The interface of the sweeps over the shortest paths from a block of sources: ``BatchOperators.path_sums``.

``path_sums_cpu`` and ``path_sums_cuda`` implement the interface, and ``path_sweeps`` calls it. Arrays are of the
device's module.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class PathSums(Protocol):
    """The sweeps on one kind of device, over rows given by internal id.

    Attributes:
        lanes: sources of a block.
        sums: float64[rows * 3], by row the sums over the sources swept for of their dependencies on the row (Brandes
            2001), the sum of the squares, and the number of sources that reach the row, itself left out.
        edge_sums: float64[edges * 2], by edge the sums of the dependencies on the edge, and of their squares; empty if
            they are not wanted.
    """

    lanes: int
    sums: NDArray[np.float64]
    edge_sums: NDArray[np.float64]

    def sweep(self, distances: NDArray[Any]) -> bool:
        """Sweep over the paths from a block of sources.

        Args:
            distances: [rows, sources] of a type of ``storage.distance_type``, of at most ``lanes`` sources.

        Returns:
            Whether a number of paths is beyond the largest float64; the sums are not complete then.
        """
