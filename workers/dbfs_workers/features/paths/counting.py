"""The numbers of shortest paths from a vertex, counted on one rank of CPU cores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import TooManyPathsError
from dbfs_workers.features.paths.kernels import counts as kernels
from dbfs_workers.features.paths.search import RankSearch, Sides
from dbfs_workers.search.reports.crossings import Most


class CountRun(RankSearch):
    """The numbers of shortest paths from a vertex: see ``RankSearch``."""

    def _found(self) -> NDArray[Any]:
        sides = self._begin(self._spec.sources[0], None)
        exact, word = np.zeros(self._stripe.n_local, np.int64), np.zeros(1, np.int64)
        floats = exact.view(np.float64)
        numbers = kernels.Numbers(exact, floats, word, word.view(np.float64), self._purpose.in_floats)
        begun = sides.both[0].queue[: sides.fronts["end"][0]]
        (floats if self._purpose.in_floats else exact)[begun] = 1
        vertices = 1
        while vertices:
            vertices = self._level(sides, 0).vertices
            if vertices and self._pass_on(sides, numbers):
                raise TooManyPathsError(
                    f"rank {self._partition.rank}: a vertex has more shortest paths from the source than the largest "
                    + ("float64" if self._purpose.in_floats else "int64; count_paths(..., floats=True) counts on")
                )
        sides.forget(self._first_id, sent=self._exchange.p > 1)
        return (floats if self._purpose.in_floats else exact)[: self._stripe.owned(self._partition.rank)]

    def _pass_on(self, sides: Sides, numbers: kernels.Numbers) -> bool:
        """Pass the numbers of the level before to the frontier; return whether one is too large on any rank."""
        side, wanted, over = sides.both[0], int(sides.fronts["depth"][0]), 0
        frontier = self.frontier

        def step(resume: NDArray[np.int64]) -> bool:
            nonlocal over
            over |= kernels.count_level(
                *(self._forward, frontier, resume, side.distances, wanted, self._bins(), self._first_id, numbers)
            )
            return bool(resume[0] < frontier.size)

        for rows, halves in self._rounds(step):
            over |= kernels.take_counts(rows, halves, side.distances, wanted, numbers)
        return bool(self._exchange.cross(self.level, "paths", Most(over), sliced=False).most)
