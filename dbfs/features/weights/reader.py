"""How the labels of a traversal by weight are read: rows travel with distances of their own type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs.graph.labels import LabelReader
from dbfs_workers.features.weights.messages import ReadWeighted
from dbfs_workers.features.weights.purpose import Number
from dbfs_workers.search.partition.stripe import NO_VERTEX


class WeightedReader(LabelReader):
    """A ``LabelReader`` of distances by weight."""

    def whole(self, label: str) -> NDArray[Any]:
        if label != "distances":
            return super().whole(label)
        vertices, distances, _ = self.rows(0, None, predecessors=False)
        whole = np.empty_like(distances)
        whole[vertices] = distances
        return whole

    def labels_between(
        self, least: Number, most: Number, *, predecessors: bool
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64] | None]:
        """Return as ``LabelReader`` does; a ``least`` below 0 returns all vertices."""
        vertices, distances, parents = self.rows(least, most if least >= 0 else None, predecessors=predecessors)
        ascending = np.argsort(vertices, kind="stable")
        above = None if parents is None else parents[ascending]
        return vertices[ascending], distances[ascending], above

    def rows(
        self, least: Number, most: Number | None, *, predecessors: bool
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64] | None]:
        """Return the vertices at some distances, all if ``most`` is None, in no order, and their labels."""
        p, numbering = self._gang.p, self._graph.numbering
        found = self._answers(self._calls(range(p), ReadWeighted, least, most, predecessors))
        positions = np.concatenate([rows.astype(np.int64) * p + rank for rank, (rows, *_) in found.items()])
        distances = np.concatenate([columns[1] for columns in found.values()])
        if not predecessors:
            return numbering.vertices(positions), distances, None
        above = np.concatenate([columns[2] for columns in found.values()])
        parents = above.astype(np.int64)
        parents[above == NO_VERTEX] = -1
        parents[parents >= 0] = numbering.vertices(parents[parents >= 0])
        return numbering.vertices(positions), distances, parents
