"""What a rank reports of its part in a run, and how that travels.

A road network has thousands of levels with a dozen numbers each, most of them small: as they are computed they would
take longer to move than the run took.
"""

import functools
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    # Importing it loads the kernels.
    from dbfs_workers.spmd import RankRun

# Shorter tables are sent as they are.
_LEAST_LEVELS = 64


@dataclass(frozen=True)
class RankReport:
    """One traversal on one rank, without its labels. Fields as in ``spmd.RankRun``, whose tables are unpacked when
    they are asked for; seconds of long ones come in single precision.
    """

    reached: int
    edges: int
    depth: int
    elapsed: float
    setup: float
    packed: bytes

    @classmethod
    def of(cls, run: "RankRun") -> "RankReport":
        """The report of a traversal."""
        packed = pickle.dumps((_narrow(run.counts), _narrow(run.seconds)))
        return cls(run.reached, run.edges, run.depth, run.elapsed, run.setup, packed)

    @functools.cached_property
    def _tables(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        counts, seconds = pickle.loads(self.packed)
        return _widen(counts, np.int64), _widen(seconds, np.float64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """One row a level."""
        return self._tables[0]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """One row a level."""
        return self._tables[1]


@dataclass(frozen=True)
class _Narrow:
    """A table by columns: each of its smallest type, and one number where all are equal."""

    shape: tuple[int, int]
    columns: list[NDArray[Any]]


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
