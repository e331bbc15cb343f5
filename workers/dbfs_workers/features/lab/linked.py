"""A living graph on linked pages, in the memory of one rank's GPU (Tödling 2019, section 7).

An update changes the pages in place, and strategies with ``storage=pages`` traverse them. All other parts read a CSR: a
copy, made once for each version that they read.

``updated`` compares an update with the pages, and ``commit`` changes the pages. An update that is refused, or
fails on its way, is forgotten without undoing.
"""

import threading
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from dbfs_workers.base.errors import InvalidOptionError, StaleRunError
from dbfs_workers.features.lab.device import Gpu
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.pages import PAGE_BYTES, LinkedPages, PlannedUpdate, copy_bytes, pages_of
from dbfs_workers.features.lab.strategies import Policy
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.features.living.cuda_versions import MOST_LOGGED, keys_of_update
from dbfs_workers.features.living.pages import NO_CHANGES, Changes, Order
from dbfs_workers.features.living.row_versions import SPARE
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import LivingPartition, NextVersion, with_ids, with_vertices
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.partition.partition import Csr, Partition, require_present

# Bytes of an edge of an update: keys, a second buffer, counts, and sums of these.
_EDGE_BYTES = 80


def here() -> Gpu:
    """Return the GPU of the calling thread, for the kernels of the pages."""
    return Gpu(Tuning().threads, policy_constants(Policy("degree-classes")))


@dataclass
class LatestPages:
    """The pages, which have one version.

    Attributes:
        version: their version.
        lock: held while the pages change or are copied.
    """

    pages: LinkedPages
    version: int
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class LinkedRows:
    """One version of a rank's rows; in the place of ``living.pages.Pages``.

    Attributes:
        latest: the pages, which may have another version by now.
        m_local: columns of all rows.
        max_degree: columns of the longest row.
        free_pages: pages without a row.
    """

    latest: LatestPages
    version: int
    m_local: int
    max_degree: int
    free_pages: int

    @property
    def nbytes(self) -> int:
        """Bytes of the pages."""
        return self.latest.pages.nbytes

    def csr(self) -> Csr:
        """Return a copy of the rows, on the GPU.

        Raises:
            StaleRunError: an update has changed the pages since.
            GraphTooLargeError: the copy does not fit.
        """
        with self.latest.lock:
            if self.latest.version != self.version:
                raise StaleRunError(f"version {self.version} is gone: its pages have version {self.latest.version} now")
            pages = self.latest.pages
            needed = copy_bytes(pages.rows, pages.edges)
            device_memory.require(needed, f"copying version {self.version} from linked pages")
            pages.device = here()
            return Csr(*pages.csr())


class LinkedPartition(LivingPartition):
    """The rows of one rank, on linked pages. ``rows``, ``row_offsets`` and ``columns`` are those of a copy."""

    out_pages: Any

    @property
    def rows(self) -> Any:
        return self.out_edges.rows

    @property
    def parent_rows(self) -> Any:
        return None if self.directed else self.rows

    @property
    def in_edges(self) -> None:
        """See ``Partition``: none."""
        return

    def on(self, xp: ModuleType) -> Partition:
        """Return the partition itself for CuPy, and a CSR on the host for NumPy."""
        return self.frozen().on(xp) if xp is np else self

    def __sizeof__(self) -> int:
        # See ``Partition``.
        return 256


@dataclass(frozen=True)
class PreparedPages:
    """What the commit of a version takes; in the place of ``cuda.device_graph.DeviceGraph``.

    Attributes:
        update: the update; None if the edges stay as they are.
        delete: whether its edges are deleted.
        connected: rows that have a neighbour afterwards.
    """

    update: PlannedUpdate | None
    delete: bool
    connected: int


def updated(partition: Partition, spec: UpdateSpec, edges: Any | None, where: str) -> NextVersion:
    """Return the next version of a graph on linked pages, or the first one, for the kind ``link``.

    Args:
        partition: this version, which stays as it is until ``commit``; for ``link``, a CSR.
        edges: see ``cuda_versions.updated``.
        where: the rank and what it does, for errors.

    Errors as for ``cuda_versions.updated``, and ``InvalidOptionError`` for ``link`` on a graph with in-edges.
    """
    if not isinstance(partition, LinkedPartition):
        partition = _linked(partition, spec, where)
    rows: LinkedRows = partition.out_pages
    pages = rows.latest.pages
    if spec.kind in ("link", "compact", "freeze", "thaw"):
        return NextVersion(partition, facts=_prepared(pages.degrees()))
    if spec.kind == "insert-vertices":
        stripe, vertices = with_vertices(partition, spec.count)
        deleted = np.setdiff1d(partition.deleted, vertices, assume_unique=True)
        grown = _following(partition, stripe=stripe, deleted=deleted)
        return NextVersion(grown, vertices=vertices, facts=_prepared(pages.degrees()))
    stripe, later, fresh = with_ids(partition, spec)
    order, delete = Order(stripe, partition.rank, spec.hub_first), spec.kind != "insert-edges"
    keys = keys_of_update(order, spec, edges, where, reverse=False)
    vertices = np.setdiff1d(spec.vertices, partition.deleted)
    deleted = np.union1d(partition.deleted, vertices) if vertices.size else partition.deleted
    known: dict[str, Any] = {"stripe": stripe, "later": later, "deleted": deleted}
    made, absent = vertices if delete else fresh, np.unique(spec.vertices).size - vertices.size
    if not keys.size:
        return NextVersion(_following(partition, **known), NO_CHANGES, made, absent, _prepared(pages.degrees()))
    if not delete and partition.deleted.size:
        require_present(partition, np.concatenate(order.ends(pages.device.read(keys))))
    with rows.latest.lock:
        pages.device = here()
        device_memory.require(_EDGE_BYTES * keys.size + 24 * pages.rows, where)
        update = pages.plan(keys)
        changes, degrees = _effects(pages, update, order, directed=partition.directed, delete=delete)
        free = pages.free + pages_of(pages.degrees()) - pages_of(degrees)
        if not delete:
            device_memory.require(pages.reserve(update.pages), where)
            pages.grow(update.pages)
            free = pages.free - update.pages
    after = replace(rows, m_local=rows.m_local + changes.columns, max_degree=int(degrees.max()), free_pages=free)
    following = _following(partition, after, changes=changes, **known)
    return NextVersion(following, changes, made, absent, _prepared(degrees, update, delete=delete))


def commit(partition: LinkedPartition, prepared: PreparedPages) -> LinkedPages:
    """Change the pages to a version that ``updated`` has made; return them."""
    latest: LatestPages = partition.out_pages.latest
    with latest.lock:
        latest.pages.device = here()
        if prepared.update is not None:
            latest.pages.change(prepared.update, delete=prepared.delete)
        latest.version = partition.version
    return latest.pages


def _linked(partition: Partition, spec: UpdateSpec, where: str) -> LinkedPartition:
    """Return a CSR's rows on linked pages, of the same version."""
    import cupy

    if partition.in_edges is not None:
        raise InvalidOptionError("linked pages hold out-edges only: load the graph without in_edges=True")
    csr = partition.on(cupy)
    needed = pages_of(csr.row_offsets[1:] - csr.row_offsets[:-1])
    spare = int(SPARE * needed)
    device_memory.require((PAGE_BYTES + 4) * (needed + spare) + 24 * partition.stripe.n_local, where)
    pages = LinkedPages(here(), csr.row_offsets, csr.columns, spare)
    rows = LinkedRows(LatestPages(pages, csr.version), csr.version, pages.edges, int(pages.degrees().max()), spare)
    return LinkedPartition(csr, rows, None, spec.hub_first)  # type: ignore[arg-type]


def _following(partition: LinkedPartition, rows: LinkedRows | None = None, **changed: Any) -> LinkedPartition:
    """Return a partition of the next version; arguments as of ``LivingPartition``."""
    numbered: Any = replace(rows or partition.out_pages, version=partition.version + 1)
    return LinkedPartition(partition, numbered, None, partition.hub_first, step=1, **changed)


def _prepared(degrees: Any, update: PlannedUpdate | None = None, *, delete: bool = False) -> PreparedPages:
    return PreparedPages(update, delete, int((degrees > 0).sum()))


def _effects(
    pages: LinkedPages, update: PlannedUpdate, order: Order, *, directed: bool, delete: bool
) -> tuple[Changes, Any]:
    """Return the effects of an update, and int64[rows], the neighbours of each row after it."""
    xp: Any = pages.device.xp
    keys, there = update.arrays["keys"], update.arrays["tile_sums"].astype(np.int64)
    firsts = update.arrays["in_ids"].astype(np.int64)
    rows, places = (keys >> np.uint64(32)).astype(np.int64), keys.astype(np.uint32).astype(np.int64)
    takes = (there > 0) == delete
    takes[1:] &= keys[1:] != keys[:-1]
    columns = xp.where(takes, there if delete else 1, 0)
    sums = xp.zeros(keys.size + 1, np.int64)
    sums[1:] = xp.cumsum(columns)
    changed, sign = sums[firsts[1:]] - sums[firsts[:-1]], -1 if delete else 1
    degrees = pages.degrees()
    degrees[rows[firsts[:-1]]] += sign * changed
    # On one rank, a row is the vertex, and so is a place in the row.
    counted = takes | True if directed else rows <= places
    refused = xp.flatnonzero(~takes)
    changes = Changes(
        edges=int((takes & counted).sum()),
        refused=int((~takes & counted).sum()),
        columns=sign * int(sums[-1]),
        self_loops=sign * int(columns[rows == places].sum()),
        duplicates=sign * int((columns - takes).sum()),
        rows=int((changed > 0).sum()),
        first_refused=order.edge(pages.device.read(keys[refused[:1]]), 0) if refused.size else None,
        keys=pages.device.read(keys[takes]) if keys.size <= MOST_LOGGED else None,
    )
    return changes, degrees
