"""Ids that came later: those of the vertices that updates added to a graph whose ranks have tables of ids."""

from collections.abc import Sequence
from typing import Any


class LaterIds:
    """The ids of the vertices from ``first`` on, in the order in which they came; the same on all ranks.

    One object serves all versions of a graph. A version with ``n`` vertices has those of the ids that belong to
    vertices below ``n``. So an update that was prepared and then forgotten leaves ids that no version has, until the
    next update with new ids replaces them.

    Args:
        first: the first vertex that has no id in a table.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._ids: list[Any] = []
        self._vertices: dict[Any, int] = {}

    def extend(self, ids: Sequence[Any], n: int) -> None:
        """Add the ids of the vertices from ``n`` on."""
        for one in self._ids[n - self._first :]:
            del self._vertices[one]
        del self._ids[n - self._first :]
        self._ids += ids
        self._vertices.update((one, n + at) for at, one in enumerate(ids))

    def vertices(self, ids: Sequence[Any], n: int, absent: int) -> list[int]:
        """Return the vertex of each id in the version with ``n`` vertices; ``absent`` for other ids."""
        found = (self._vertices.get(one, n) for one in ids)
        return [vertex if vertex < n else absent for vertex in found]

    def ids(self, vertices: Sequence[int]) -> list[Any]:
        """Return the ids of vertices."""
        return [self._ids[vertex - self._first] for vertex in vertices]
