"""The kinds of ids, and the memory that the distinct ids of an edge list take."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

IdKind: TypeAlias = Literal["integer", "string"]
"""What an id, or a part of an id that is a tuple, can be."""


@dataclass(frozen=True)
class DistinctIds:
    """The distinct ids of an edge list whose ids a build numbers.

    Attributes:
        count: number of distinct ids.
        nbytes: bytes of all of them in memory, each once.
        dense: whether they are the integers from 0 or from 1 on, so that no rank keeps a table of them.
    """

    count: int
    nbytes: int
    dense: bool = False


def are_dense(ids: NDArray[np.int64]) -> bool:
    """Return whether distinct integers, in any order, are those from 0 or from 1 on."""
    return ids.size == 0 or from_0_or_1(ids.size, int(ids.min()), int(ids.max()))


def from_0_or_1(count: int, smallest: int, largest: int) -> bool:
    """Return whether so many distinct integers, at least one, are those from 0 or from 1 on."""
    return 0 <= smallest <= 1 and largest - smallest == count - 1
