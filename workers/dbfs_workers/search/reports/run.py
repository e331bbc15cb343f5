"""One rank's part in a traversal: as it stands, as it was computed, and as it is reported."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import packing
from dbfs_workers.search.reports.counts import Tables


class RankProgress(NamedTuple):
    """The place that one rank has reached in a run. Another thread reads the fields one after another, so that they may
    belong to neighbouring levels.

    Attributes:
        traversal: index of the traversal under way.
        level: the level under way.
        bottom_up: whether it is bottom-up.
        frontier: vertices of this rank that it expands.
        reached: vertices of this rank reached so far.
        completed: of a batch, sources over all ranks that are completed before the batch is.
    """

    traversal: int
    level: int
    bottom_up: bool
    frontier: int
    reached: int
    completed: int = 0


@dataclass(slots=True)
class RankRun:
    """One traversal on one rank.

    Attributes:
        labels: distances and predecessors.
        reached: vertices labelled on this rank, the sources included.
        edges: the sum of their degrees.
        depth: the largest distance on this rank, 0 if it reached nothing.
        elapsed: seconds from the first crossing, after which all ranks are ready, to the last.
        setup: seconds before the first crossing ended: clearing the state, taking memory for labels, waiting for the
            other ranks.
        version: version of the graph that was traversed.
        counters: counters of a strategy of the laboratory, by name; none of the engines.
        changed: the rows whose distance an update has changed: uint32, ascending, or ``ChangedRows``; None of a
            traversal.
        traversal_seconds: of a repair, ``elapsed`` of the traversal that made the labels; else 0.
    """

    labels: RankLabels
    levels: packing.LevelRecords
    reached: int
    edges: int
    depth: int
    elapsed: float
    setup: float
    version: int = 0
    counters: tuple[tuple[str, int], ...] = ()
    changed: Any | None = None
    traversal_seconds: float = 0.0

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[rows, len(COUNT_FIELDS)]: see ``packing``, as for the rows."""
        return self.levels.unpack()[0]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """float64[rows, len(TIME_FIELDS)]: see there."""
        return self.levels.unpack()[1]


@dataclass
class RankReport:
    """One traversal on one rank, without its labels. Fields as in ``RankRun``. Making a frozen class takes 0.5 us more.

    The tables are unpacked when they are first read. Seconds of 64 rows and more come in single precision. ``levels``
    is the number of levels.

    Attributes:
        by_source: of a batch, [distances, sources] of an unsigned type: see ``RankBatch.counts``; else None.
    """

    reached: int
    edges: int
    depth: int
    elapsed: float
    setup: float
    packed: bytes
    levels: int
    version: int = 0
    counters: tuple[tuple[str, int], ...] = ()
    by_source: NDArray[Any] | None = None

    @classmethod
    def of(cls, run: RankRun) -> "RankReport":
        """Return the report of a traversal."""
        return cls(
            run.reached,
            run.edges,
            run.depth,
            run.elapsed,
            run.setup,
            packing.pack(run.levels),
            len(run.levels),
            run.version,
            run.counters,
            run.labels.by_source,
        )

    @functools.cached_property
    def _tables(self) -> Tables:
        return packing.unpack(self.packed)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[rows, len(COUNT_FIELDS)]."""
        return self._tables[0]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """float64[rows, len(TIME_FIELDS)]."""
        return self._tables[1]


@dataclass(frozen=True)
class RunSummary:
    """The traversals of a run that were made, summed.

    Attributes:
        traversals: their number.
        edges: directed edges of the components that they traversed.
        seconds: time that they took, of each by the slowest rank.
        last: by rank, the report of the last one, without counts by source.
    """

    traversals: int
    edges: int
    seconds: float
    last: tuple[RankReport, ...]

    @classmethod
    def of(cls, ranks: Sequence[Sequence[RankReport]]) -> Self:
        """Return the summary of one traversal or more. ``ranks`` has by rank a report of each."""
        traversals = list(zip(*ranks, strict=True))
        edges = sum(report.edges for reports in ranks for report in reports)
        seconds = sum(max(report.elapsed for report in reports) for reports in traversals)
        last = (each if each.by_source is None else replace(each, by_source=None) for each in traversals[-1])
        return cls(len(traversals), edges, seconds, tuple(last))
