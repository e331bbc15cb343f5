"""Searches between two vertices as the purpose of a run, and what a rank answers."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import Purpose, RunBytes, RunSpec
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import WORD_BITS

DISTANCES: Final = "distances"
PATH: Final = "path"
BETWEEN: Final = "between"
# Bytes of a row for a side (a place in its queue, and a distance), for the marks, and for an answer of ``BETWEEN``.
_SIDE, _MARKS, _ANSWER = 4 + 4, 4 + 4, 2 * 8


@dataclass(frozen=True)
class PairSearch(Purpose):
    """A run whose specs have pairs of sources: a source and a target, beside each other.

    Attributes:
        wants: ``DISTANCES`` of any number of pairs; of one pair the ``PATH``, or the vertices ``BETWEEN`` the two on
            shortest paths.
        ordered: whether the ranks need the order by degree of the graph: see ``worker``.
    """

    wants: str
    ordered: bool = False

    def nbytes(self, specs: RunSpec, traversals: int, ranks: int, rows: int) -> RunBytes:  # noqa: ARG002
        words = 4 * ranks * rows // WORD_BITS
        sides = 2 * (words + _SIDE * rows)
        marks = 0 if self.wants == DISTANCES else _MARKS * rows
        answer = _ANSWER * rows if self.wants == BETWEEN else 0
        return RunBytes(
            sides + marks + answer, "searches from both ends", "traverse with graph.bfs(source, targets=target)"
        )


class PairAnswer(RankLabels):
    """What a rank has found out: it travels with the report, and is no label.

    Args:
        answer: int32[pairs] distances; or int64 positions of a path; or int64[2, vertices] positions and distances from
            the source. Of the first two all ranks find the same, and rank 0 answers.
    """

    def __init__(self, answer: NDArray[Any]) -> None:
        super().__init__(np.empty(0, np.int32), None)
        self._answer = answer

    @property
    def by_source(self) -> NDArray[Any]:
        return self._answer
