"""What a rank reports of its part in a run, and how that travels.

A road network has thousands of levels with a dozen numbers each: as they are computed they would take longer to move
than the run took. Most follow from others, or hardly differ from one level to the next.
"""

import functools
import pickle
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.labels import RankLabels

COUNT_FIELDS: Final = (
    "bottom_up",
    "frontier",
    "edges",
    "filtered",
    "own",
    "sent",
    "culled",
    "discovered",
    "bytes_sent",
)
TIME_FIELDS: Final = ("search", "exchange", "contract")

# Shorter tables are sent as they are.
_LEAST_LEVELS: Final = 64

# The frontier of the next level.
_NEXT: Final = "next"
# What a column of counts should be: a sum of others, times factors, that are not listed here or stand above it. How far
# it is off is what travels, so that this may be wrong: a bottom-up level sends slices, a CPU culls what it received.
_EXPECTED: Final = {
    "discovered": {_NEXT: 1},
    "own": {"discovered": 1, "culled": 1, "sent": -1},
    "filtered": {"edges": 1, "own": -1, "sent": -1},
    "bytes_sent": {"sent": 4},
}


class Position(NamedTuple):
    """Where one rank is in a run, as another thread sees it: fields read one after another.

    Attributes:
        traversal: index of the traversal under way.
        level: the level under way.
        bottom_up: whether it is bottom-up.
        frontier: vertices of this rank that it expands.
        reached: vertices of this rank reached so far.
    """

    traversal: int
    level: int
    bottom_up: bool
    frontier: int
    reached: int


@dataclass(frozen=True)
class RankRun:
    """One traversal on one rank.

    Attributes:
        labels: distances and predecessors.
        counts: int64[levels, len(COUNT_FIELDS)], as in ``traversal.LevelCounts``; ``bottom_up`` is 1 or 0. A bottom-up
            level's ``edges`` are those it looked at, ``own`` and ``discovered`` are the same; it sends bitmap slices.
        seconds: float64[levels, len(TIME_FIELDS)]: the phase's work (expand, filter + partition and the contraction of
            the own bin; or the bottom-up search), waiting for and sending to peers, the contraction of their bins.
        reached: vertices labelled on this rank, the sources included.
        edges: the sum of their degrees.
        depth: the largest distance on this rank, 0 where nothing was reached.
        elapsed: seconds from the first crossing, after which all ranks are ready, to the last.
        setup: seconds before it: clearing the state, taking memory for labels, waiting for the others.
    """

    labels: RankLabels
    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    reached: int
    edges: int
    depth: int
    elapsed: float
    setup: float


@dataclass(frozen=True)
class RankReport:
    """One traversal on one rank, without its labels. Fields as in ``RankRun``, whose tables are unpacked when
    they are asked for; seconds of long ones come in single precision.
    """

    reached: int
    edges: int
    depth: int
    elapsed: float
    setup: float
    packed: bytes

    @classmethod
    def of(cls, run: RankRun) -> "RankReport":
        """The report of a traversal."""
        short = len(run.counts) < _LEAST_LEVELS
        # Protocol 5 copies no array before it is written.
        packed = pickle.dumps((run.counts, run.seconds) if short else _Packed.of(run), protocol=5)
        return cls(run.reached, run.edges, run.depth, run.elapsed, run.setup, packed)

    @functools.cached_property
    def _tables(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        sent = pickle.loads(self.packed)
        return (sent.counts(), sent.seconds()) if isinstance(sent, _Packed) else sent

    @property
    def counts(self) -> NDArray[np.int64]:
        """One row a level."""
        return self._tables[0]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """One row a level."""
        return self._tables[1]


@dataclass(frozen=True)
class _Packed:
    """A long run's tables by columns.

    Attributes:
        levels: how many there are.
        steps: by column of counts, how much farther each level is off than the level before.
        times: columns of seconds.
    """

    levels: int
    steps: dict[str, NDArray[Any]]
    times: list[NDArray[Any]]

    @classmethod
    def of(cls, run: RankRun) -> "_Packed":
        levels = len(run.counts)
        counts = dict(zip(COUNT_FIELDS, run.counts.T, strict=True))
        counts[_NEXT] = _next(counts["frontier"])
        # In place where it can be: Dask has workers give freed memory back at once, to get it again page by page.
        off, step = np.empty((2, levels), np.int64)
        steps = {}
        for name in COUNT_FIELDS:
            off[:] = counts[name]
            for other, factor in _EXPECTED.get(name, {}).items():
                off -= counts[other] if factor == 1 else np.multiply(counts[other], factor, out=step)
            step[0] = off[0]
            np.subtract(off[1:], off[:-1], out=step[1:])
            steps[name] = _narrow(step)
        return cls(levels, steps, [_narrow(column) for column in run.seconds.T])

    def counts(self) -> NDArray[np.int64]:
        steps = {name: np.broadcast_to(step, self.levels) for name, step in self.steps.items()}
        counts = {name: np.cumsum(step, dtype=np.int64) for name, step in steps.items()}
        counts[_NEXT] = _next(counts["frontier"])
        for name, others in _EXPECTED.items():
            for other, factor in others.items():
                counts[name] += factor * counts[other]
        return np.stack([counts[name] for name in COUNT_FIELDS], axis=1)

    def seconds(self) -> NDArray[np.float64]:
        return np.stack([np.broadcast_to(times, self.levels).astype(np.float64) for times in self.times], axis=1)


def _next(frontier: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(frontier[1:], 0)


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    """The column in its smallest type, and one number where all are equal."""
    low, high = column.min(), column.max()
    if low == high:
        return column[:1].copy()
    if column.dtype.kind == "f":
        return column.astype(np.float32)
    # Beside a negative number a type must have room for the sign: that of -high - 1 has, and for high.
    return column.astype(np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high if low >= 0 else -high - 1)))
