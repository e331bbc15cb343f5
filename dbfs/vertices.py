"""Vertices as callers pass them, checked; and those that workers pick out, as vertex ids."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs.errors import InvalidOptionError, InvalidVertexTypeError

if TYPE_CHECKING:
    from dbfs_workers.ordering import DegreeOrder


def whole_number(value: Any, what: str) -> int:
    """The value as an int.

    Raises:
        InvalidVertexTypeError: not an integer (a float, a bool).
    """
    # A bool is an int to Python, and 1.0 would do as an index to some; neither is meant as a vertex.
    if not isinstance(value, bool | np.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise InvalidVertexTypeError(f"{what} must be an integer, not {value!r} ({type(value).__name__})")


def whole_count(value: Any, what: str, least: int = 0) -> int:
    """The value as an int of at least ``least``.

    Raises:
        InvalidVertexTypeError: not an integer.
        InvalidOptionError: below.
    """
    count = whole_number(value, what)
    if count < least:
        raise InvalidOptionError(f"{what} must be at least {least}, not {count}")
    return count


def joined(rows: Sequence[NDArray[np.int64]], order: DegreeOrder | None) -> NDArray[np.int64]:
    """Vertex ids, ascending, of local ids by rank."""
    p = len(rows)
    ids = np.concatenate([mine * p + rank for rank, mine in enumerate(rows)])
    if order is not None:
        ids = order.vertex[ids].astype(np.int64)
    ids.sort()
    return ids
