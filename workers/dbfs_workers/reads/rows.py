"""Reads of a rank's labels for a client: rows, a slot of the client's window, vertices at distances, walks.

A label travels as uint32: a distance, or a predecessor's position in a graph ordered by degree (its vertex id in other
graphs). 0xFFFFFFFF is unreached: -1 as int32, ``NO_VERTEX`` as a position.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.reads.window import LabelWindow
from dbfs_workers.storage.partition import array_module, on_host
from dbfs_workers.storage.stripe import NO_VERTEX, Stripe

STEPS: Final = 512
"""Most vertices that a rank walks in one call, so that no call takes long on a GPU, where each takes a copy."""


@dataclass(frozen=True)
class RankRows:
    """The labels of one rank's rows. Arrays are NumPy's or CuPy's, with or without padding.

    Attributes:
        stripe: how the graph lies on the ranks.
        rank: the rank.
        distances: int32, -1 unreached.
        predecessors: uint32 internal ids, ``NO_VERTEX`` unreached, or int64 positions, -1 unreached; None if the
            traversal records none.
    """

    stripe: Stripe
    rank: int
    distances: Any
    predecessors: Any

    def read(self, label: str, first: int, last: int) -> NDArray[np.uint32]:
        """Return a label (``distances``, ``predecessors``) of rows ``first`` to ``last``, the last excluded."""
        return self._travelling(self._values(label)[first : min(last, self.stripe.owned(self.rank))])

    def write_vertices(self, label: str, window: LabelWindow, slot: int, first: int, count: int) -> None:
        """Write the labels of the rank's vertices among ``first`` to ``first + count`` into a slot, in their order."""
        p, rank = self.stripe.p, self.rank
        start, stop = (max(0, -(-(vertex - rank) // p)) for vertex in (first, first + count))
        window.labels(slot, count)[start * p + rank - first :: p] = self.read(label, start, stop)

    def write_positions(self, label: str, window: LabelWindow, slot: int, count: int) -> None:
        """Write the rank's labels of a slot's vertices, whose positions the client wrote there, in their order."""
        positions, into = window.positions(slot, count), window.labels(slot, count)
        values = self._values(label)
        if isinstance(values, np.ndarray):
            from dbfs_workers.reads import kernels

            n_local = self.stripe.n_local if values.dtype == np.uint32 else 0
            kernels.place(_as_uint32(values), n_local, self.rank, self.stripe.p, positions, into)
            return
        xp = array_module(values)
        there = xp.asarray(positions)
        own = xp.flatnonzero(there % self.stripe.p == self.rank)
        into[on_host(own)] = self._travelling(values[there[own] // self.stripe.p])

    def write_by_vertex(self, label: str, into: NDArray[Any], first: int, order: Any) -> None:
        """Write the rank's labels of consecutive vertices, in their order, from a GPU; all bits of others' labels set.

        Args:
            label: ``distances`` or ``predecessors``; predecessors are written as vertices.
            into: unsigned integers, as many as vertices; the labels' lowest bits.
            first: the first vertex.
            order: the graph's order by degree, of NumPy or CuPy arrays.
        """
        from dbfs_workers.cuda.ordered_labels import write

        write(self.stripe, self.rank, self._values(label), into, first, order, predecessors=label == "predecessors")

    def between(self, least: int, most: int, labels: tuple[str, ...]) -> NDArray[np.uint32]:
        """Return the rows (local ids) at a distance of ``least`` to ``most``, ascending, and labels of these rows.

        Returns:
            uint32[1 + labels, rows]: the rows, and then each label in the form that this file describes.
        """
        distances = self.distances[: self.stripe.owned(self.rank)]
        found = array_module(distances).flatnonzero((distances >= least) & (distances <= most))
        answer = np.empty((1 + len(labels), found.size), np.uint32)
        answer[0] = on_host(found)
        for index, label in enumerate(labels, 1):
            answer[index] = self._travelling(self._values(label)[found])
        return answer

    def walk(self, position: int) -> tuple[list[int], bool]:
        """Follow predecessors from one of the rank's positions while they are the rank's, for at most ``STEPS``.

        Returns:
            The positions passed, the given one first; the last may be another rank's. And whether the walk is over:
            the last is its own predecessor. An unreached position has an empty walk, which is over.
        """
        path = [position]
        while len(path) <= STEPS and self.stripe.owner(position) == self.rank:
            row = self.stripe.row(position)
            parent = int(self._travelling(self.predecessors[row : row + 1])[0])
            if parent == NO_VERTEX:
                return [], True
            if parent == position:
                return path, True
            path.append(parent)
            position = parent
        return path, False

    def _values(self, label: str) -> Any:
        return self.distances if label == "distances" else self.predecessors

    def _travelling(self, values: Any) -> NDArray[np.uint32]:
        """Return values of a label as they travel."""
        # Internal ids alone are uint32.
        if values.dtype != np.uint32:
            return _as_uint32(on_host(values))
        if isinstance(values, np.ndarray):
            from dbfs_workers.reads import kernels

            positions = np.empty(values.size, np.uint32)
            kernels.positions_of(values, self.stripe.n_local, self.stripe.p, positions)
            return positions
        vertices = self.stripe.vertex(values.astype(np.int64)).astype(np.uint32)
        found: NDArray[np.uint32] = on_host(array_module(values).where(values == NO_VERTEX, values, vertices))
        return found


def _as_uint32(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Return int32 or int64 labels modulo 2^32, so that -1 becomes ``NO_VERTEX``."""
    return values.view(np.uint32) if values.dtype.itemsize == 4 else values.astype(np.uint32)
