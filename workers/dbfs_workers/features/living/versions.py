"""A living partition: a rank's rows on pages, of one version of a graph whose edges come and go."""

import functools
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError
from dbfs_workers.base.text import counted
from dbfs_workers.building.bin_store import BinStore
from dbfs_workers.features.living.pages import NO_CHANGES, Changes, FreeBytes, Order, Pages
from dbfs_workers.features.living.update_spec import NumberedBeforeError, UpdateSpec
from dbfs_workers.ids.table import ABSENT, LaterIds
from dbfs_workers.search.partition.partition import Csr, Partition, Rows, no_vertices, require_present
from dbfs_workers.search.partition.stripe import Stripe

UpdateEdges = BinStore | NDArray[np.uint64] | None
"""Edges of an update on their rank: bins, or keys (see ``pages.Order.keys``)."""


# Bytes of an edge of an update while its version is prepared: a key (8), a column (4), whether the edge changes its row
# (1); and the row's first key, new degree and new place (24).
_EDGE_BYTES: Final = 37


class LivingPartition(Partition):
    """The rows of one rank, on pages. CPU kernels read ``rows`` and ``parent_rows``, the pages themselves.

    Parts that need a CSR (a save, a validation, the taskgraph engine) get a copy, made once for each version that they
    read.

    Args:
        base: the version before.
        out: the edges that start in the rank's rows.
        into: the edges that end there; None if the graph has no in-edges.
        hub_first: whether a row's columns are sorted by falling degree.
        changes: the effects of the update on the rows.
        stripe: the stripe, if vertices were added.
        deleted: the deleted vertices, if the update changed them.
        later: the ids that came after the load, if the update has the first of them.
        step: 1 for a new version; 0 if only the pages are new.

    Attributes:
        out_pages, in_pages: ``out`` and ``into``.
        hub_first: whether a row's columns are sorted by falling degree.
    """

    out_pages: Pages
    in_pages: Pages | None
    hub_first: bool

    def __init__(
        self,
        base: Partition,
        out: Pages,
        into: Pages | None,
        hub_first: bool,
        *,
        changes: Changes = NO_CHANGES,
        stripe: Stripe | None = None,
        deleted: NDArray[np.int64] | None = None,
        later: LaterIds | None = None,
        step: int = 0,
    ) -> None:
        fields = {
            "stripe": stripe or base.stripe,
            "rank": base.rank,
            "self_loops": base.self_loops + changes.self_loops,
            "duplicates": base.duplicates + changes.duplicates,
            "input_edges": base.input_edges,
            "directed": base.directed,
            "version": base.version + step,
            "deleted": base.deleted if deleted is None else deleted,
            "later": later or base.later,
            "out_pages": out,
            "in_pages": into,
            "hub_first": hub_first,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> Rows:
        return self.out_pages.rows

    @property
    def parent_rows(self) -> Rows | None:
        if not self.directed:
            return self.out_pages.rows
        return None if self.in_pages is None else self.in_pages.rows

    @property
    def has_parents(self) -> bool:
        return not self.directed or self.in_pages is not None

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of their pages."""
        return self.out_pages.nbytes + (0 if self.in_pages is None else self.in_pages.nbytes)

    @property
    def m_local(self) -> int:
        return self.out_pages.m_local

    @property
    def max_degree(self) -> int:
        return self.out_pages.max_degree

    @property
    def free_pages(self) -> int:
        """Pages without a row."""
        return self.out_pages.free_pages + (0 if self.in_pages is None else self.in_pages.free_pages)

    @functools.cached_property
    def _csrs(self) -> tuple[Csr, Csr | None]:
        return self.out_pages.csr(), None if self.in_pages is None else self.in_pages.csr()

    @property
    def row_offsets(self) -> NDArray[np.int64]:
        """See ``Partition``; of a copy."""
        return self._csrs[0].row_offsets

    @property
    def columns(self) -> NDArray[np.uint32]:
        """See ``Partition``; of a copy."""
        return self._csrs[0].columns

    @property
    def in_edges(self) -> Csr | None:
        """See ``Partition``; a copy."""
        return self._csrs[1]

    def on(self, xp: ModuleType) -> Partition:
        """Return the partition itself for NumPy, and a CSR on the device for CuPy."""
        return self if xp is np else self.frozen().on(xp)

    def __sizeof__(self) -> int:
        return self.nbytes

    def frozen(self) -> Partition:
        """Return the partition as a CSR."""
        out, into = self.out_pages.csr(), None if self.in_pages is None else self.in_pages.csr()
        return Partition(
            self.stripe,
            self.rank,
            out.row_offsets,
            out.columns,
            self.self_loops,
            self.duplicates,
            self.input_edges,
            self.directed,
            into,
            self.version,
            self.deleted,
            later=self.later,
        )


@dataclass(frozen=True)
class NextVersion:
    """A rank's next version, and the effects of the update.

    Attributes:
        partition: the version.
        changes: changes of the rank's rows.
        vertices: int64, the vertices inserted or deleted; the same on all ranks.
        absent: vertices to delete that were deleted before.
        facts: what the engines of a GPU need of the version (``cuda.device_graph.DeviceGraph``); None elsewhere.
        in_keys: the keys of the reversed edges that changed, if the partition has in-edges and is on CPU cores.
    """

    partition: Partition
    changes: Changes = NO_CHANGES
    vertices: NDArray[np.int64] = field(default_factory=no_vertices)
    absent: int = 0
    facts: Any | None = None
    in_keys: NDArray[np.uint64] | None = None


def updated(
    partition: Partition, spec: UpdateSpec, edges: UpdateEdges, in_edges: UpdateEdges, free_bytes: FreeBytes
) -> NextVersion:
    """Return a partition's next version. The partition stays as it is.

    Args:
        partition: this version, a CSR or on pages.
        edges: the update's edges that start in the rank's rows; for an update of edges that are not in the spec, or one
            that deletes vertices.
        in_edges: the reversed edges, if the partition has in-edges.
        free_bytes: the memory that pages may take.

    Raises:
        GraphTooLargeError: the pages do not fit, or the stripe has no room for the new vertices.
        InvalidVertexError: an edge to insert has an end that was deleted.
        NumberedBeforeError: see ``with_ids``.
    """
    if spec.kind == "freeze":
        return NextVersion(partition.frozen() if isinstance(partition, LivingPartition) else partition)
    living = _on_pages(partition, spec.hub_first, free_bytes)
    out, into = living.out_pages, living.in_pages
    if spec.kind == "thaw":
        return NextVersion(living)
    if spec.kind == "compact":
        tight = None if into is None else Pages.of(into.rows, free_bytes, spare=False)
        return NextVersion(LivingPartition(living, Pages.of(out.rows, free_bytes, spare=False), tight, spec.hub_first))
    if spec.kind == "insert-vertices":
        stripe, vertices = with_vertices(living, spec.count)
        deleted = np.setdiff1d(living.deleted, vertices, assume_unique=True)
        grown = LivingPartition(living, out, into, spec.hub_first, stripe=stripe, deleted=deleted, step=1)
        return NextVersion(grown, vertices=vertices)
    stripe, later, fresh = with_ids(living, spec)
    living = LivingPartition(living, out, into, spec.hub_first, stripe=stripe, later=later)
    order, delete = Order(living.stripe, living.rank, spec.hub_first), spec.kind != "insert-edges"
    keys = _keys(order, spec, edges, reverse=False)
    if not delete and living.deleted.size:
        require_present(living, np.concatenate(order.ends(keys)))
    out, changes = out.changed(keys, order, directed=living.directed, delete=delete, free_bytes=free_bytes)
    in_keys = None
    if into is not None:
        in_keys = _keys(order, spec, in_edges, reverse=True)
        into, turned = into.changed(in_keys, order, directed=True, delete=delete, free_bytes=free_bytes)
        in_keys = turned.keys
    vertices = np.setdiff1d(spec.vertices, living.deleted)
    deleted = np.union1d(living.deleted, vertices) if vertices.size else living.deleted
    following = LivingPartition(living, out, into, spec.hub_first, changes=changes, deleted=deleted, step=1)
    absent = np.unique(spec.vertices).size - vertices.size
    return NextVersion(following, changes, vertices if delete else fresh, absent, in_keys=in_keys)


def update_keys(
    partition: Partition,
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    *,
    symmetrise: bool,
    free_bytes: FreeBytes,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
    """Return the keys of an update's edges and, if the partition has in-edges, those of their reverses.

    Args:
        partition: the rank's rows, not ordered by degree.
        src: sources of all edges of the update, uint32 vertices.
        dst: their targets.
        symmetrise: whether each edge's reverse belongs to the update too.
        free_bytes: the memory that the keys, and the version made from them, may take.

    Raise ``GraphTooLargeError`` if the update may not fit.
    """
    order, directions = Order(partition.stripe, partition.rank, hub_first=False), 2 if symmetrise else 1
    has_in_edges = partition.directed and partition.parent_rows is not None
    # The most that the update takes: if all of its edges start in this rank's rows.
    needed = _EDGE_BYTES * src.size * directions * (1 + has_in_edges)
    if needed > (free := free_bytes()):
        raise GraphTooLargeError(
            f"a batch of {src.size:,} edges needs up to {needed:,} bytes, {max(0, free):,} bytes are free; change the "
            "graph in smaller batches"
        )
    keys = order.keys_of_update(src, dst, symmetrise=symmetrise)
    return keys, order.keys_of_update(dst, src, symmetrise=symmetrise) if has_in_edges else None


def incident_edges(partition: Partition, vertices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges stored on a rank that start or end at one of some vertices, as vertices: sources and targets.

    For an undirected graph these are the edges that start there: other ranks have their reverses. A partition on a GPU
    is copied to the host.
    """
    partition = partition.on(np)
    stripe, rows = partition.stripe, partition.rows
    own = np.unique(stripe.row(vertices[stripe.owner(vertices) == partition.rank]))
    degrees = rows.ends[own] - rows.starts[own]
    # The index of each edge within its row, and then in the columns.
    within = np.arange(degrees.sum()) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    targets = stripe.vertex(rows.columns[np.repeat(rows.starts[own], degrees) + within].astype(np.int64))
    sources = np.repeat(own * stripe.p + partition.rank, degrees)
    if not partition.directed:
        return sources, targets
    csr = partition.out_edges
    ends = np.flatnonzero(np.isin(csr.columns, stripe.internal(vertices).astype(np.uint32)))
    starts = (np.searchsorted(csr.row_offsets, ends, side="right") - 1) * stripe.p + partition.rank
    return np.concatenate([sources, starts]), np.concatenate(
        [targets, stripe.vertex(csr.columns[ends].astype(np.int64))]
    )


def _keys(order: Order, spec: UpdateSpec, edges: UpdateEdges, *, reverse: bool) -> NDArray[np.uint64]:
    """Return the keys of an update's edges, or of their reverses; the spec itself may have the edges."""
    if spec.edges is not None:
        src, dst = spec.edges
        return order.keys_of(dst, src) if reverse else order.keys_of(src, dst)
    assert edges is not None
    return order.keys(edges) if isinstance(edges, BinStore) else edges


def _on_pages(partition: Partition, hub_first: bool, free_bytes: FreeBytes) -> LivingPartition:
    """Return a partition on pages: itself, or a copy of the same version. Errors as for ``Pages.of``."""
    if isinstance(partition, LivingPartition):
        return partition

    def paged(csr: Csr) -> Pages:
        return Pages.of(csr.rows, free_bytes, spare=True)

    into = None if partition.in_edges is None else paged(partition.in_edges)
    return LivingPartition(partition, paged(partition.out_edges), into, hub_first)


def with_ids(partition: Partition, spec: UpdateSpec) -> tuple[Stripe, LaterIds | None, NDArray[np.int64]]:
    """Return the stripe with a vertex for each new id of an update, the ids that came later, and the new vertices.

    Raises:
        GraphTooLargeError: the stripe has no room for so many.
        NumberedBeforeError: the graph has got more vertices since the ids were numbered, or has one of the ids.
    """
    stripe, count = partition.stripe, len(spec.ids)
    if not count:
        return stripe, partition.later, no_vertices()
    if stripe.n != spec.n:
        raise NumberedBeforeError(f"{count:,} new ids follow {spec.n:,} vertices, and the graph has {stripe.n:,}")
    if count > stripe.room:
        raise GraphTooLargeError(f"{count:,} new ids, room for {stripe.room:,} vertices")
    later = partition.later or LaterIds(stripe.n)
    if any(vertex >= 0 for vertex in later.vertices(spec.ids, stripe.n, ABSENT)):
        # The client has asked for these ids a rank that had yet to commit their version.
        raise NumberedBeforeError(f"an id among {count:,} new ones is in the graph")
    later.extend(spec.ids, stripe.n)
    return stripe.grown(count), later, np.arange(stripe.n, stripe.n + count)


def with_vertices(partition: Partition, count: int) -> tuple[Stripe, NDArray[np.int64]]:
    """Return the stripe with more vertices, and the vertices: deleted ones first, then new ones.

    Raise ``GraphTooLargeError`` if the stripe has no room for so many.
    """
    stripe, again = partition.stripe, partition.deleted[:count]
    fresh = count - again.size
    if fresh > stripe.room:
        raise GraphTooLargeError(
            f"{counted(count, 'vertex', 'vertices')} to insert, room for {stripe.room + again.size:,}; load the graph "
            "with a larger room="
        )
    return stripe.grown(fresh), np.concatenate([again, np.arange(stripe.n, stripe.n + fresh)])
