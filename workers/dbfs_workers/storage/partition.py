"""A rank's slice of the graph: a CSR of its rows with internal ids as columns; and the edge bins it is made of.

A partition built on a GPU has CuPy arrays, one built on a CPU NumPy's.
"""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.stripe import Stripe

BUCKET_BITS = 16

InputEdges = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""Sources and targets of edges as they were read, vertex ids: half of what int64 ids take, for edges that are kept."""


@dataclass(frozen=True)
class EdgeBin:
    """Directed edges bound for one owner, by bucket of ``2**BUCKET_BITS`` rows: a row's place in its bucket is short.

    A quarter less to send and to hold than whole local ids: the bins are what a build's memory peaks with.

    Attributes:
        rows: uint16, the sources' local ids modulo ``2**BUCKET_BITS``.
        columns: uint32, the targets' internal ids; as long as ``rows``.
        starts: int64[buckets + 1], where each bucket's edges start.
        read: input edges of the piece that this bin was cut from, whoever owns them.
    """

    rows: NDArray[np.uint16]
    columns: NDArray[np.uint32]
    starts: NDArray[np.int64]
    read: int

    def __sizeof__(self) -> int:
        return self.rows.nbytes + self.columns.nbytes + self.starts.nbytes


@dataclass(frozen=True)
class Csr:
    """Adjacency lists of one rank's rows.

    Attributes:
        row_offsets: int64[n_local + 1], where each row's columns start.
        columns: uint32[edges], internal ids of the neighbours.
    """

    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.row_offsets.nbytes + self.columns.nbytes


@dataclass(frozen=True)
class Partition:
    """The rows of one rank.

    Attributes:
        stripe: how the graph lies on the ranks.
        rank: whose rows these are.
        row_offsets: int64[n_local + 1], where each row's columns start.
        columns: uint32[m_local], internal ids of the neighbours, ascending within a row (in a hub-first partition, by
            falling degree); duplicates are kept.
        self_loops: edges from a vertex to itself.
        duplicates: edges that repeat the one before them in their row.
        input_edges: edges read for the whole graph, before symmetrising.
        directed: whether an edge may lack its reverse.
        in_edges: of a directed graph, the edges that end in this rank's rows, where they were asked for.
    """

    stripe: Stripe
    rank: int
    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]
    self_loops: int
    duplicates: int
    input_edges: int
    directed: bool = True
    in_edges: Csr | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.out_edges.nbytes + (0 if self.in_edges is None else self.in_edges.nbytes)

    @property
    def out_edges(self) -> Csr:
        """The edges that start in this rank's rows."""
        return Csr(self.row_offsets, self.columns)

    @property
    def parents(self) -> Csr | None:
        """Each row's possible parents, which bottom-up levels look through; None where they are not known."""
        return self.in_edges if self.directed else self.out_edges

    def on(self, xp: ModuleType) -> "Partition":
        """The partition in the memory of an array module (NumPy, CuPy); what lies there already is not copied."""
        into = self.in_edges
        return replace(
            self,
            row_offsets=on(xp, self.row_offsets),
            columns=on(xp, self.columns),
            in_edges=None if into is None else Csr(on(xp, into.row_offsets), on(xp, into.columns)),
        )

    @property
    def m_local(self) -> int:
        """Directed edges stored on this rank."""
        return self.columns.size

    def __sizeof__(self) -> int:
        # Dask weighs the host's memory; what is on a GPU it must not think of moving.
        return self.nbytes if isinstance(self.columns, np.ndarray) else 256


@dataclass(frozen=True)
class PartitionInfo:
    """What a client knows of a partition without fetching it. Counts as in ``Partition``."""

    rank: int
    m_local: int
    nbytes: int
    self_loops: int
    duplicates: int
    input_edges: int
    max_degree: int


def describe(partition: Partition) -> PartitionInfo:
    """The partition's counts."""
    offsets = partition.row_offsets
    return PartitionInfo(
        rank=partition.rank,
        m_local=partition.m_local,
        nbytes=partition.nbytes,
        self_loops=partition.self_loops,
        duplicates=partition.duplicates,
        input_edges=partition.input_edges,
        max_degree=int((offsets[1:] - offsets[:-1]).max()),
    )


def on_host(array: Any) -> Any:
    """A partition's array as NumPy's."""
    return array if isinstance(array, np.ndarray) else array.get()


def array_module(array: Any) -> Any:
    """NumPy or CuPy, whichever an array is of."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def on(xp: ModuleType, array: Any) -> Any:
    """An array in the memory of an array module; what lies there already is not copied."""
    return on_host(array) if xp is np else xp.asarray(array)


def host_bytes(*arrays: Any) -> int:
    """Bytes of those that are NumPy's: what Dask shall weigh them with, since it must not think of moving a GPU's."""
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
