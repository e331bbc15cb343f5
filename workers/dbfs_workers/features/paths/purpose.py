"""Searches between vertices as the purpose of a run; and what a rank answers."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import Purpose, RunBytes, RunSpec
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import WORD_BITS
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun

DISTANCES: Final = "distances"
BETWEEN: Final = "between"
COUNTS: Final = "counts"

# Bytes of a row for a side: a place in its queue, and a distance. What else a row takes, by what is wanted.
_QUEUE: Final = 4
_SIDE: Final = _QUEUE + 4
_MORE: Final = {DISTANCES: 0, BETWEEN: 5 + 16, COUNTS: 8}


@dataclass(frozen=True)
class PairSearch(Purpose):
    """A run of searches by the ranks, from the sources of its specs.

    Attributes:
        wants: ``DISTANCES`` of any number of pairs, a source and a target beside each other; the edges ``BETWEEN`` one
            such pair on shortest paths; or the ``COUNTS`` of shortest paths from one source.
        in_floats: whether paths are counted in float64.
    """

    wants: str
    in_floats: bool = False

    def nbytes(self, specs: RunSpec, traversals: int, ranks: int, rows: int) -> RunBytes:
        # A GPU takes what one block needs at least, and more for further blocks where it is free.
        side = _SIDE if specs.options.backend == "cpu" else _QUEUE
        sides = 2 * (4 * ranks * rows // WORD_BITS + side * rows)
        answers = _MORE[self.wants] * rows * traversals
        return RunBytes(sides + answers, "searches between vertices", "search for less at a time")


class PairAnswer(RankLabels):
    """What a rank has found out: it travels with the report, and is no label.

    Args:
        answer: int32[pairs] distances; uint32[2, edges] positions of the ends of edges; int64 or float64[rows] counts.
    """

    def __init__(self, answer: NDArray[Any]) -> None:
        super().__init__(np.empty(0, np.int32), None)
        self._answer = answer

    @property
    def by_source(self) -> NDArray[Any]:
        return self._answer


def report(answer: NDArray[Any], elapsed: float, setup: float, version: int) -> RankRun:
    """Return the report of an answer, without labels and levels; the other arguments are those of ``RankRun``."""
    return RankRun(
        labels=PairAnswer(answer),
        levels=CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS)))),
        reached=0,
        edges=0,
        depth=0,
        elapsed=elapsed,
        setup=setup,
        version=version,
    )
