"""Searches from one vertex on one rank of CPU cores: what lies near it, and the numbers of shortest paths from it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import TooManyPathsError
from dbfs_workers.features.paths.kernels import counts as kernels
from dbfs_workers.features.paths.search import RankSearch, Sides
from dbfs_workers.search.reports.crossings import Most


class NearRun(RankSearch):
    """Searches from each of some vertices up to a distance: see ``RankSearch``.

    A search takes as long as what it visits, whatever the size of the graph.
    """

    def _found(self) -> NDArray[np.uint32]:
        most = self._spec.max_depth
        assert most is not None
        found = [np.empty((3, 0), np.uint32)]
        for place, source in enumerate(self._spec.sources):
            sides, vertices = self._begin(source, None), 1
            while vertices and sides.fronts["depth"][0] < most:
                vertices = self._level(sides, 0).vertices
            side = sides.both[0]
            rows = side.queue[: sides.fronts["queued"][0]]
            positions = self._stripe.vertex(rows.astype(np.int64) + self._first_id)
            part = np.stack([np.full(rows.size, place), positions, side.distances[rows]])
            found.append(part.astype(np.uint32))
            sides.forget(self._first_id, sent=self._exchange.p > 1)
            self.completed = place + 1
        return np.concatenate(found, axis=1)


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
