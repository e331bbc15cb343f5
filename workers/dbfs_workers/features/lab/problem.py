"""The problem: a graph's arrays, the labels, and the memory of a strategy, all on one device."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.features.lab.device import Device
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.partition.labels import UNREACHED
from dbfs_workers.search.partition.stripe import NO_VERTEX


@dataclass(frozen=True)
class Queue:
    """Room for vertices, or for edges' targets with their parents.

    Attributes:
        ids: uint32[capacity], rows.
        parents: uint32[capacity], rows; None in a vertex queue, and if no parents are recorded.
    """

    ids: Any
    parents: Any | None

    @property
    def capacity(self) -> int:
        """Entries that fit."""
        return int(self.ids.size)


class Problem:
    """A graph of one rank, and one traversal's labels.

    Args:
        device: where the arrays are.
        offsets: int64[rows + 1]; None on pages, as are the columns.
        columns: uint32, rows of the neighbours.
        in_edges: offsets and columns of the in-edges; None if the graph has none.
        predecessors: whether parents are recorded.
        tuning: sizes of the queues.
        pages: the rows on linked pages, which the strategy then reads; None for ``columns``.

    Attributes:
        degrees: int64[rows], the neighbours of each row.
        edges: neighbours of all rows.
        labels: int32[rows], -1 unreached.
        parents: uint32[rows], ``NO_VERTEX`` unreached; None without predecessors.
        bitmask: uint8, bits of visited rows in whole words of 32; those of Merrill 2012 are best-effort.
        tile_sums: uint64, a word for each tile of a queue, zero.
        nbytes: bytes of the arrays that the strategy took so far, labels and parents included.
    """

    def __init__(
        self,
        device: Device,
        offsets: Any,
        columns: Any,
        *,
        in_edges: tuple[Any, Any] | None,
        predecessors: bool,
        tuning: Tuning,
        pages: LinkedPages | None = None,
    ) -> None:
        self._xp: Any = device.xp
        self.offsets, self.columns = offsets, columns
        self.pages = pages
        self.degrees = offsets[1:] - offsets[:-1] if pages is None else pages.degrees()
        self.edges = int(columns.size) if pages is None else pages.edges
        self._in_edges = in_edges
        self.rows = int(self.degrees.size)
        self.tuning = tuning
        self.nbytes = 0
        self.labels = self._counted(self._xp.full(self.rows, UNREACHED, np.int32))
        self.parents = self._counted(self._xp.full(self.rows, NO_VERTEX, np.uint32)) if predecessors else None
        self.bitmask = self._counted(self._xp.zeros(4 * (self.rows // 32 + 1), np.uint8))
        # A tile has as many entries as a block has threads, or there are at most as many tiles as blocks.
        longest = max(self._room(tuning.vertex_queue, self.rows), self._room(tuning.edge_queue, self.edges))
        self.tile_sums = self._counted(self._xp.zeros(tuning.most_blocks + longest // tuning.threads + 1, np.uint64))

    def in_edges(self) -> tuple[Any, Any]:
        """Return offsets and columns of the in-edges.

        Raise ``InvalidOptionError`` if a directed graph was loaded without them.
        """
        if self._in_edges is None:
            raise InvalidOptionError("the strategy needs the in-edges of a directed graph: load it with in_edges=True")
        return self._in_edges

    def vertex_queue(self) -> Queue:
        """Return a new queue of vertices."""
        return Queue(self._counted(self._xp.empty(self._room(self.tuning.vertex_queue, self.rows), np.uint32)), None)

    def edge_queue(self) -> Queue:
        """Return a new queue of edges."""
        room = self._room(self.tuning.edge_queue, self.edges)
        parents = None if self.parents is None else self._counted(self._xp.empty(room, np.uint32))
        return Queue(self._counted(self._xp.empty(room, np.uint32)), parents)

    def class_queues(self, classes: int) -> Any:
        """Return a new queue for each class of vertices: uint32[classes, rows]. No vertex is in two."""
        return self._counted(self._xp.empty((classes, self.rows), np.uint32))

    def bitmaps(self) -> Any:
        """Return new bits of the rows, uint32[2, rows / 32 + 1], zero: the frontier of this level, and of the next."""
        return self._counted(self._xp.zeros((2, self.rows // 32 + 1), np.uint32))

    def flags(self) -> Any:
        """Return new bytes, uint8[2, rows], zero: the frontier of this level and of the next, or classes."""
        return self._counted(self._xp.zeros((2, self.rows), np.uint8))

    def start(self, source: int) -> None:
        """Label the source."""
        self.labels[source] = 0
        if self.parents is not None:
            self.parents[source] = source
        self.bitmask[source // 8] = 1 << source % 8

    def _counted(self, array: Any) -> Any:
        self.nbytes += int(array.nbytes)
        return array

    def _room(self, factor: float, entries: int) -> int:
        return int(factor * entries) + self.tuning.spare
