"""Conversion of rows on the ranks to vertex ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dbfs.graph.naming import NamedVertices


def vertices_of_rows(rows: Sequence[NDArray[np.int64]], graph: NamedVertices) -> NDArray[np.int64]:
    """Return the vertex ids, ascending, of the given rows (local ids) by rank.

    Args:
        rows: by rank, int64 local ids.
        graph: the graph; an order by degree travels to the client only if the rows are many.
    """
    p = len(rows)
    ids = np.concatenate([mine * p + rank for rank, mine in enumerate(rows)])
    return np.sort(graph.vertices_by_position(ids))
