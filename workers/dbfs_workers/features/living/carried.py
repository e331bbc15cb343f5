"""Data beside a rank's partition that updates change with it, such as the columns of its edges.

What the data are is another feature's. A rank prepares them with the next version, and commits both at once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import Partition, RankEdges

if TYPE_CHECKING:
    import pyarrow as pa

Keys = NDArray[np.uint64]
"""Edges in one direction, ascending: see ``pages.Order.keys``."""


@dataclass(frozen=True)
class BatchRows:
    """The edges to insert that start in a rank's rows, with their columns. Of equal keys the first came first.

    Attributes:
        keys: uint64, ascending, one for each row of ``table``.
        table: the columns, those of the graph.
        in_keys, in_table: the same of the edges that end in the rank's rows; None if the partition has no in-edges.
    """

    keys: Keys
    table: pa.Table
    in_keys: Keys | None = None
    in_table: pa.Table | None = None

    @property
    def stores(self) -> tuple[Keys, ...]:
        """The keys, as ``Updates.prepare`` takes an update's edges."""
        return (self.keys,) if self.in_keys is None else (self.keys, self.in_keys)

    def __sizeof__(self) -> int:
        tables = [int(table.nbytes) for table in (self.table, self.in_table) if table is not None]
        return sum(tables) + sum(keys.nbytes for keys in self.stores)


@dataclass(frozen=True)
class Made:
    """What tasks have made of a rank, to take the place of its partition and of the data beside it.

    Attributes:
        partition: the partition.
        beside: the data beside it, in the order of ``UpdateChange.beside``.
    """

    partition: RankEdges
    beside: tuple[Any, ...]

    def __sizeof__(self) -> int:
        return sum(map(sys.getsizeof, (self.partition, *self.beside)))


@dataclass(frozen=True)
class Step:
    """What an update does to a rank.

    Attributes:
        kind: as of ``UpdateSpec``.
        before, after: the versions.
        hub_first: as of ``UpdateSpec``.
        keys: of the edges inserted or deleted, each once.
        in_keys: of their reverses, if the partition has in-edges.
        vertices: int64, the vertices inserted or deleted, on all ranks.
        batch: what the tasks or the client sent for the rank, such as ``BatchRows``; None for nothing.
        replaces: whether an edge to insert that is there takes its values from the batch.
    """

    kind: str
    before: Partition
    after: Partition
    hub_first: bool
    keys: Keys | None
    in_keys: Keys | None
    vertices: NDArray[np.int64]
    batch: Any
    replaces: bool


class Carried(Protocol):
    """Data beside a partition."""

    @property
    def facts(self) -> Any:
        """What the graph's record says of the data; see ``Beside.changed``."""

    def following(self, step: Step) -> Carried:
        """Return the data of the version that follows. These stay as they are."""
