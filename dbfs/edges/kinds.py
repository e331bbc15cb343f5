"""The kinds of ids, and the memory that the distinct ids of an edge list take."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

IdKind: TypeAlias = Literal["integer", "string"]
"""What an id, or a part of an id that is a tuple, can be."""


@dataclass(frozen=True)
class DistinctIds:
    """The distinct ids of an edge list whose ids a build numbers.

    Attributes:
        count: number of distinct ids.
        nbytes: bytes of all of them in memory, each once.
        dense: whether they are the integers from 0 on, so that no rank keeps a table of them.
    """

    count: int
    nbytes: int
    dense: bool = False
