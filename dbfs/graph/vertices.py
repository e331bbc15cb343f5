"""Vertices that workers pick out by row, as vertex ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dbfs_workers.storage.ordering import DegreeOrder


def joined(rows: Sequence[NDArray[np.int64]], order: DegreeOrder | None) -> NDArray[np.int64]:
    """Vertex ids, ascending, of local ids by rank."""
    p = len(rows)
    ids = np.concatenate([mine * p + rank for rank, mine in enumerate(rows)])
    if order is not None:
        ids = order.vertex[ids].astype(np.int64)
    ids.sort()
    return ids
