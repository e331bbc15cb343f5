"""What a rank reports of its part in a run, and how that travels.

A road network has thousands of levels with a dozen numbers each, most of them small: as they are computed they would
take longer to move than the run took.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Shorter tables are sent before they are packed.
_LEAST_LEVELS = 64


@dataclass(frozen=True)
class RankReport:
    """One traversal on one rank, without its labels. Fields as in ``spmd.RankRun``."""

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    reached: int
    edges: int
    depth: int
    elapsed: float
    setup: float


class Brief(NamedTuple):
    """What the scheduler keeps of a traversal on one rank. Fields as in ``RankReport``."""

    reached: int
    edges: int
    depth: int
    elapsed: float


class RankAnswer(NamedTuple):
    """A rank's reports of a run, one a traversal: packed for the client, and in brief for the scheduler."""

    packed: bytes
    briefs: list[Brief]


@dataclass(frozen=True)
class _Narrow:
    """A table by columns: each of its smallest type, and one number where all are equal."""

    shape: tuple[int, int]
    columns: list[NDArray[Any]]


def pack_reports(reports: Sequence[RankReport]) -> bytes:
    """Bytes for ``unpack_reports``. Seconds of long tables are rounded to single precision."""
    return pickle.dumps([replace(r, counts=_narrow(r.counts), seconds=_narrow(r.seconds)) for r in reports])


def unpack_reports(packed: bytes) -> list[RankReport]:
    """One report a traversal."""
    reports: list[RankReport] = pickle.loads(packed)
    return [
        replace(report, counts=_widen(report.counts, np.int64), seconds=_widen(report.seconds, np.float64))
        for report in reports
    ]


def _narrow(table: NDArray[Any]) -> Any:
    return table if len(table) < _LEAST_LEVELS else _Narrow(table.shape, [_narrow_column(column) for column in table.T])


def _narrow_column(column: NDArray[Any]) -> NDArray[Any]:
    low, high = column.min(), column.max()
    if low == high:
        return column[:1].copy()
    if column.dtype.kind == "f":
        return column.astype(np.float32)
    # Beside a negative number a type must have room for the sign: that of -high - 1 has, and for high.
    return column.astype(np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high if low >= 0 else -high - 1)))


def _widen(sent: Any, dtype: type[np.generic]) -> Any:
    if not isinstance(sent, _Narrow):
        return sent
    table = np.empty(sent.shape, dtype)
    for at, column in enumerate(sent.columns):
        table[:, at] = column
    return table
