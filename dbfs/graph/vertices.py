"""Conversion of rows on the ranks to vertex ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dbfs_workers.storage.ordering import DegreeOrder


def vertices_of_rows(rows: Sequence[NDArray[np.int64]], order: DegreeOrder | None) -> NDArray[np.int64]:
    """Return the vertex ids, ascending, of the given rows (local ids) by rank.

    Args:
        rows: by rank, int64 local ids.
        order: the order of a graph that is ordered by degree; else None.
    """
    p = len(rows)
    ids = np.concatenate([mine * p + rank for rank, mine in enumerate(rows)])
    if order is not None:
        ids = order.vertex[ids].astype(np.int64)
    ids.sort()
    return ids
