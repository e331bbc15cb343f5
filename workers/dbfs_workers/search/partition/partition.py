"""A rank's part of the graph: a CSR of its rows with internal ids as columns.

A partition built on a GPU has CuPy arrays, one built on a CPU has NumPy arrays.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import deleted_error
from dbfs_workers.ids.table import LaterIds
from dbfs_workers.search.partition.stripe import Stripe

InputEdges = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""Sources and targets of input edges, as vertex ids: kept in uint32, half the memory of int64."""


class Rows(NamedTuple):
    """Adjacency lists of one rank's rows, as CPU kernels read them from a CSR and from pages alike.

    Attributes:
        starts: int64[n_local], index of each row's first column.
        ends: int64[n_local], index after each row's last column.
        columns: uint32, internal ids of the neighbours.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    columns: NDArray[np.uint32]


@dataclass(frozen=True)
class Csr:
    """Adjacency lists of one rank's rows.

    Attributes:
        row_offsets: int64[n_local + 1], index of each row's first column.
        columns: uint32[edges], internal ids of the neighbours.
    """

    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.row_offsets.nbytes + self.columns.nbytes

    @property
    def rows(self) -> Rows:
        """The same lists, without a copy."""
        return Rows(self.row_offsets[:-1], self.row_offsets[1:], self.columns)


def no_vertices() -> NDArray[np.int64]:
    """Return an empty array of vertices."""
    return np.empty(0, np.int64)


class RankEdges(ABC):
    """What a rank has of a graph's edges, in any layout.

    Attributes:
        striped: whether they are the edges of the rank's own rows, as in the layout 1d.
        stripe: how the vertices lie on the ranks.
        rank: the rank.
        deleted: as in ``Partition``.
    """

    striped: ClassVar[bool] = False
    stripe: Stripe
    rank: int
    deleted: NDArray[np.int64]

    @property
    @abstractmethod
    def version(self) -> int:
        """Number of the graph's version."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays."""

    @property
    @abstractmethod
    def m_local(self) -> int:
        """Directed edges stored on this rank."""

    @property
    @abstractmethod
    def info(self) -> "PartitionInfo":
        """The counts."""

    @abstractmethod
    def parts(self) -> Iterator["Partition"]:
        """Yield the edges as parts of 1-D partitions, without copies. All ranks' parts together are the graph."""

    @abstractmethod
    def out_lists(self) -> "list[OwnedRows]":
        """Return the edges by their starts: adjacency lists, each of the rows of one owner."""

    @abstractmethod
    def in_lists(self) -> "list[OwnedRows] | None":
        """Return the edges by their ends likewise; None if the rank has none so."""

    @abstractmethod
    def with_lists(
        self,
        out: "Sequence[Csr]",
        into: "Sequence[Csr] | None",
        *,
        self_loops: int,
        duplicates: int,
        deleted: NDArray[np.int64],
        version: int,
    ) -> "RankEdges":
        """Return a rank with some of these edges.

        Args:
            out, into: the lists that ``out_lists`` and ``in_lists`` return, with fewer edges.
            self_loops, duplicates: as in ``Partition``.
            deleted: the vertices of the whole graph that have none; see ``Partition``.
            version: see ``Partition``.
        """

    @abstractmethod
    def with_input_edges(self, input_edges: int) -> "RankEdges":
        """Return the same with another number of input edges; see ``Partition``."""

    @abstractmethod
    def degrees_of(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the out-degrees of some of the rank's own rows, the edges on other ranks included; on the host."""


@dataclass(frozen=True)
class OwnedRows:
    """Adjacency lists of the rows of one owner, among the edges of a rank.

    Attributes:
        owner: the rank whose rows they are.
        csr: the lists, as they are stored.
        columns: internal ids of the neighbours, in the order of ``csr.columns``.
    """

    owner: int
    csr: "Csr"
    columns: NDArray[np.uint32]


@dataclass(frozen=True)
class Partition(RankEdges):
    """The rows of one rank.

    Attributes:
        rank: the rank that owns the rows.
        row_offsets: int64[n_local + 1], index of each row's first column.
        columns: uint32[m_local], internal ids of the neighbours, duplicates included. Within a row they ascend; in a
            hub-first partition they are sorted by falling degree.
        self_loops: edges from a vertex to itself.
        duplicates: edges that repeat the one before them in their row.
        input_edges: edges read for the whole graph, before symmetrising.
        directed: whether an edge may lack its reverse.
        in_edges: the edges that end in this rank's rows, if a directed graph was loaded with them; else None.
        version: number of the graph's version; a graph begins with 0, and each update makes the next.
        deleted: int64, ascending: the deleted vertices of the whole graph (positions, if it is ordered by degree). They
            have no edges.
        imbalance: that of the edges (see ``symmetry``), if the edges read must hold their reverses; else 0.
        later: ids that came after the load; None before the first.
    """

    striped = True
    stripe: Stripe
    rank: int
    row_offsets: NDArray[np.int64]
    columns: NDArray[np.uint32]
    self_loops: int
    duplicates: int
    input_edges: int
    directed: bool = True
    in_edges: Csr | None = None
    version: int = 0
    deleted: NDArray[np.int64] = field(default_factory=no_vertices)
    imbalance: int = 0
    later: LaterIds | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.out_edges.nbytes + (0 if self.in_edges is None else self.in_edges.nbytes)

    @property
    def out_edges(self) -> Csr:
        """The edges that start in this rank's rows."""
        return Csr(self.row_offsets, self.columns)

    @property
    def free_pages(self) -> int:
        """Pages without a row: none in a CSR."""
        return 0

    @property
    def parents(self) -> Csr | None:
        """Each row's possible parents, which bottom-up levels search; None for a directed graph without in-edges."""
        return self.in_edges if self.directed else self.out_edges

    @property
    def has_parents(self) -> bool:
        """Whether ``parents`` is not None, without a look at the edges."""
        return not self.directed or self.in_edges is not None

    @property
    def rows(self) -> Rows:
        """The edges that start in this rank's rows, as CPU kernels read them."""
        return self.out_edges.rows

    @property
    def parent_rows(self) -> Rows | None:
        """``parents`` as CPU kernels read them."""
        return None if self.parents is None else self.parents.rows

    def on(self, xp: ModuleType) -> "Partition":
        """Return the partition as arrays of a module (NumPy, CuPy). Arrays of that module are not copied."""
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

    @property
    def max_degree(self) -> int:
        """Columns of the longest row."""
        rows = self.rows
        return int((rows.ends - rows.starts).max())

    @property
    def info(self) -> "PartitionInfo":
        return PartitionInfo(
            rank=self.rank,
            m_local=self.m_local,
            nbytes=self.nbytes,
            self_loops=self.self_loops,
            duplicates=self.duplicates,
            input_edges=self.input_edges,
            max_degree=self.max_degree,
            has_parents=self.has_parents,
            free_pages=self.free_pages,
            imbalance=self.imbalance,
            deleted=self.deleted.size,
        )

    def parts(self) -> Iterator["Partition"]:
        """Yield the partition itself."""
        yield self

    def out_lists(self) -> list[OwnedRows]:
        rows = self.out_edges
        return [OwnedRows(self.rank, rows, rows.columns)]

    def in_lists(self) -> list[OwnedRows] | None:
        into = self.in_edges
        return None if into is None else [OwnedRows(self.rank, into, into.columns)]

    def with_lists(
        self,
        out: "Sequence[Csr]",
        into: "Sequence[Csr] | None",
        *,
        self_loops: int,
        duplicates: int,
        deleted: NDArray[np.int64],
        version: int,
    ) -> "Partition":
        return Partition(
            self.stripe,
            self.rank,
            out[0].row_offsets,
            out[0].columns,
            self_loops,
            duplicates,
            self.input_edges,
            self.directed,
            None if into is None else into[0],
            version,
            deleted,
            later=self.later,
        )

    def with_input_edges(self, input_edges: int) -> "Partition":
        return replace(self, input_edges=input_edges)

    def degrees_of(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        offsets = self.row_offsets
        places = rows if isinstance(rows, slice) else array_module(offsets).asarray(rows)
        degrees: NDArray[np.int64] = on_host(offsets[1:][places] - offsets[:-1][places])
        return degrees

    def __sizeof__(self) -> int:
        # Dask moves and spills data by these bytes of host memory, and must leave data on a GPU alone.
        return self.nbytes if isinstance(self.columns, np.ndarray) else 256


def require_present(partition: RankEdges, vertices: Sequence[int] | NDArray[np.int64]) -> None:
    """Raise ``DeletedVertexError`` if a vertex was deleted."""
    if partition.deleted.size:
        gone = np.intersect1d(np.asarray(vertices, np.int64), partition.deleted)
        if gone.size:
            raise deleted_error(gone.tolist(), partition.version)


@dataclass(frozen=True)
class PartitionInfo:
    """The counts of a partition, which a client gets without the arrays. Attributes as in ``Partition``, and:

    Attributes:
        has_parents: whether ``Partition.parents`` is not None, which bottom-up levels need.
        free_pages: pages without a row, if the rows are on pages; else 0.
        deleted: number of deleted vertices of the whole graph.
    """

    rank: int
    m_local: int
    nbytes: int
    self_loops: int
    duplicates: int
    input_edges: int
    max_degree: int
    has_parents: bool
    free_pages: int = 0
    imbalance: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class GraphTotals:
    """Counts of a version over all ranks, by which the ranks' kernels on GPUs decide alike.

    Attributes:
        edges: directed edges.
        connected: rows that have an edge; see ``DeviceGraph.connected``.
        max_degree: columns of the longest row.
    """

    edges: int
    connected: int
    max_degree: int


def describe(edges: RankEdges) -> PartitionInfo:
    """Return the counts of a rank's edges."""
    return edges.info


def on_host(array: Any) -> Any:
    """Return an array as NumPy's, copied from the GPU if it is CuPy's."""
    return array if isinstance(array, np.ndarray) else array.get()


def array_module(array: Any) -> Any:
    """Return the module of an array, NumPy or CuPy."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def on(xp: ModuleType, array: Any) -> Any:
    """Return an array as a module's (NumPy, CuPy), copied only if it is the other's."""
    return on_host(array) if xp is np else xp.asarray(array)


def host_bytes(*arrays: Any) -> int:
    """Return the bytes of the NumPy arrays among these, the size for Dask, which must leave data on a GPU alone."""
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
