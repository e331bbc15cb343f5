"""A rank's log of the edges that came and went, version by version, from which earlier results are repaired."""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.stripe import Stripe

# A log keeps this many edges, or this part of the rank's columns if that is more. With more changes than these, a new
# traversal takes less time than a repair. An edge takes 8 bytes; a version counts as some more edges.
_LEAST: Final = 1 << 16
_SHARE: Final = 1 / 32
_VERSION: Final = 16


@dataclass(frozen=True)
class EdgeChanges:
    """Edges from a rank's rows that were all inserted, or all deleted.

    Attributes:
        rows: uint32, local ids of the rows.
        columns: uint32, internal ids of the other ends.
    """

    rows: NDArray[np.uint32]
    columns: NDArray[np.uint32]

    @classmethod
    def of(cls, keys: NDArray[np.uint64], stripe: Stripe, *, hub_first: bool) -> "EdgeChanges":
        """Return the edges of keys: see ``pages.Order.keys``."""
        places = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        columns = stripe.internal(places) if hub_first else places
        return cls((keys >> np.uint64(32)).astype(np.uint32), columns.astype(np.uint32))

    @classmethod
    def none(cls) -> "EdgeChanges":
        """Return no edges."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.uint32))


@dataclass(frozen=True)
class VersionChanges:
    """The changes that made a version from the version before it.

    Attributes:
        edges: the edges inserted or deleted; None if there are more than a log keeps.
        delete: whether they were deleted.
    """

    version: int
    edges: EdgeChanges | None
    delete: bool


def most_edges(m_local: int) -> int:
    """Return the most edges that the log of a rank with ``m_local`` columns keeps."""
    return max(_LEAST, int(_SHARE * m_local))


class ChangeLog:
    """The changes of the latest versions; the oldest go when the log has too many edges."""

    def __init__(self) -> None:
        # Of each version its number, its edges, and whether they were deleted.
        self._versions: deque[tuple[int, EdgeChanges, bool]] = deque()
        self._edges = 0

    def add(self, changes: VersionChanges, m_local: int) -> None:
        """Add the changes that made the latest version, in which the rank has ``m_local`` columns."""
        if changes.edges is None:
            self._versions.clear()
            self._edges = 0
            return
        self._versions.append((changes.version, changes.edges, changes.delete))
        self._edges += _VERSION + changes.edges.rows.size
        while self._edges > most_edges(m_local):
            self._edges -= _VERSION + self._versions.popleft()[1].rows.size

    def count(self, before: int, now: int) -> int | None:
        """Return the number of edges that ``between`` reads; None if the log is too short."""
        found = [edges.rows.size for version, edges, _ in self._versions if before < version <= now]
        return sum(found) if len(found) == now - before else None

    def between(self, before: int, now: int) -> tuple[EdgeChanges, EdgeChanges] | None:
        """Return the edges deleted and the edges inserted between two versions; None if the log is too short.

        An edge that was inserted and deleted is returned with its last change only.
        """
        found = [(edges, delete) for version, edges, delete in self._versions if before < version <= now]
        if len(found) != now - before:
            return None
        if not found:
            return EdgeChanges.none(), EdgeChanges.none()
        # The last change first: ``unique`` returns the first of equal keys.
        found.reverse()
        rows = np.concatenate([edges.rows for edges, _ in found])
        columns = np.concatenate([edges.columns for edges, _ in found])
        deleted = np.repeat([delete for _, delete in found], [edges.rows.size for edges, _ in found])
        if len(found) > 1:
            _, last = np.unique(rows.astype(np.uint64) << np.uint64(32) | columns, return_index=True)
            rows, columns, deleted = rows[last], columns[last], deleted[last]
        return EdgeChanges(rows[deleted], columns[deleted]), EdgeChanges(rows[~deleted], columns[~deleted])
