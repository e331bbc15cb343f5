"""The tasks of a build on GPUs. What they hand on lies in the memory of the worker's GPU and stays with the worker.

Every task leaves its GPU idle: what it made can be read from any stream, thread or process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

from dbfs_workers.storage.ordering import DegreeOrder
from dbfs_workers.storage.partition import Csr, InputEdges, Partition, PartitionInfo
from dbfs_workers.storage.partition import describe as partition_info
from dbfs_workers.storage.pieces import Edges, GeneratedPiece, Piece
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.tasks.build_on_cpu import UnitedIds, count, read, summarise_ids

if TYPE_CHECKING:
    from dbfs_workers.cuda.building import Binned, CsrSlice

__all__ = ["count", "read", "summarise_ids"]

EdgeSource = Piece | Edges | InputEdges
"""A piece, or what was read of it, on the host or on the GPU."""


class _Resident:
    """Memory of this worker's GPU, which Dask shall neither send nor spill nor count as the host's."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} stays with its GPU")

    def __sizeof__(self) -> int:
        return 256


class DeviceEdges(tuple[Any, Any]):
    """``InputEdges`` on the GPU."""


# Dask weighs a tuple, whatever it says of itself, by its arrays, a GPU's among them.
sizeof.register(DeviceEdges, lambda _: 256)


@dataclass
class DegreeCounts(_Resident):
    """The degrees of a rank's edges: uint64[n], none once they are no longer wanted."""

    degrees: list[Any]


@dataclass(frozen=True)
class Ordered(_Resident):
    """A degree order: see ``ordering.DegreeOrder``.

    Attributes:
        rows: the rows that each turn takes.
    """

    position: Any
    vertex: Any
    rows: list[tuple[int, int]]


@dataclass
class Bins(_Resident):
    """A rank's edges by owner, and their reverses where in-edges are wanted: a ``Binned`` each, none once it is let go.

    Attributes:
        read: input edges.
        rows: the owners' rows whose edges these are.
    """

    read: int
    rows: tuple[int, int]
    out: list[Binned] = field(default_factory=list)
    into: list[Binned] = field(default_factory=list)


@dataclass
class Collected(_Resident):
    """An owner's edges, as keys (``cuda.building``): one array each, none once it is taken.

    Attributes:
        read: input edges of all ranks.
        rows: whose edges these are.
    """

    read: int
    rows: tuple[int, int]
    out: list[Any]
    into: list[Any]


@dataclass
class Sorted(_Resident):
    """Some rows of an owner: a ``CsrSlice`` each of edges and of in-edges, none once it is taken.

    Attributes:
        read: input edges of all ranks.
    """

    read: int
    out: list[CsrSlice]
    into: list[CsrSlice]


@dataclass(frozen=True)
class Offer:
    """What a peer copies from: an IPC handle of all owners' keys, or the peer's own on the host.

    Attributes:
        memory: the handle, or the array.
        starts: where each owner's part starts in it.
    """

    memory: bytes | NDArray[np.uint64]
    starts: NDArray[np.int64]

    def part(self, owner: int) -> slice:
        """Where an owner's part is."""
        return slice(int(self.starts[owner]), int(self.starts[owner + 1]))


@dataclass(frozen=True)
class BinOffer:
    """A rank's ``Bins`` for its peers."""

    read: int
    out: Offer
    into: Offer | None


def distinct(read: Edges, wanted: bool) -> UnitedIds:
    """As on the CPU (``build_tasks``), but sorted on the GPU."""
    src, dst = read
    if not wanted:
        return np.empty(0, np.int64), src.size
    return _unique([src, dst]), src.size


def unite(parts: list[UnitedIds]) -> UnitedIds:
    """As on the CPU, but sorted on the GPU."""
    return _unique([ids for ids, _ in parts]), sum(count for _, count in parts)


def keep(source: EdgeSource, n: int, name: str, united: UnitedIds | None) -> InputEdges:
    """A piece's edges between vertices, as they are kept on the GPU."""
    from dbfs_workers.cuda.building import check_ids

    with _on_gpu(f"keeping edges of {name}"):
        src, dst = _vertices(source, united)
        check_ids(src, dst, n, name)
        return DeviceEdges((src.astype(np.uint32), dst.astype(np.uint32)))


def count_degrees(
    sources: Sequence[EdgeSource], rank: int, n: int, symmetrise: bool, name: str, united: UnitedIds | None
) -> DegreeCounts:
    """The degrees of all of a rank's pieces."""
    from dbfs_workers.cuda import building, device_memory

    where = f"rank {rank}, counting degrees of {name}"
    with _on_gpu(where):
        device_memory.require(8 * n, where)
        degrees = device_memory.alone(n, np.uint64)
        degrees.fill(0)
        for source in sources:
            src, dst = _vertices(source, united)
            building.count_degrees(src, dst, n, symmetrise=symmetrise, name=name, degrees=degrees)
        return DegreeCounts([degrees])


def offer_counts(counts: DegreeCounts, peer: int | None) -> Offer:
    """Degrees for a peer, through the host; for all of them (None), to be mapped."""
    degrees = counts.degrees[0]
    # A peer takes all of them.
    return _offer(degrees, np.array([0, degrees.size]), None if peer is None else 0)


def order(own: DegreeCounts, offers: Sequence[Offer], stripe: Stripe, turns: int, rank: int, name: str) -> Ordered:
    """The order by all ranks' degrees."""
    import cupy

    from dbfs_workers.cuda import building, device_memory

    where = f"rank {rank}, ordering {name}"
    with _on_gpu(where):
        # The sum, beside it a peer's degrees or the second buffer of a sort, and the keys sorted.
        device_memory.require(2 * 8 * stripe.n + building.sort_bytes(8 * stripe.n), where)
        degrees = own.degrees[0].copy()
        peers = cupy.empty_like(degrees)
        for offer in offers:
            _copy(offer, 0, peers)
            degrees += peers
        del peers
        position, vertex = building.degree_order(degrees)
        rows = [(0, stripe.n_local)]
        if turns > 1:
            # By position; those by vertex make room for the running sums.
            degrees = degrees[vertex]
            rows = building.rows_by_degree(stripe, turns, degrees)
        return Ordered(position, vertex, rows)


def counted(ordered: Ordered) -> int:
    """Tells that the peers' degrees were read."""
    return int(ordered.position.size)


def degree_order(ordered: Ordered) -> DegreeOrder:
    """The order as clients fetch it."""
    import cupy

    return DegreeOrder(cupy.asnumpy(ordered.position), cupy.asnumpy(ordered.vertex))


def bin_edges(
    sources: Sequence[EdgeSource],
    stripe: Stripe,
    rank: int,
    symmetrise: bool,
    in_edges: bool,
    name: str,
    united: UnitedIds | None,
    ordered: Ordered | None,
    turn: int,
    turns: int,
    _before: object,
) -> Bins:
    """All of a rank's pieces by owner: the edges of one turn's rows. ``_before`` only orders tasks."""
    from dbfs_workers.cuda import building

    where = f"rank {rank}, binning {name}"
    position = None if ordered is None else ordered.position
    bins = Bins(0, (building.even_rows(stripe, turns) if ordered is None else ordered.rows)[turn])
    bin_of = partial(
        building.bin_edges,
        stripe=stripe,
        symmetrise=symmetrise,
        name=name,
        where=where,
        rows=bins.rows,
        position=position,
    )
    with _on_gpu(where):
        for source in sources:
            src, dst = _vertices(source, united)
            bins.read += src.size
            bins.out.append(bin_of(src, dst))
            if in_edges:
                bins.into.append(bin_of(dst, src))
            del src, dst
        bins.out = [building.merge(bins.out, stripe.p, where)]
        bins.into = [building.merge(bins.into, stripe.p, where)] if in_edges else []
    return bins


def offer_bins(bins: Bins, peer: int | None) -> BinOffer:
    """Bins for a peer, through the host; for all of them (None), to be mapped."""
    out, *into = (_offer(made.keys, made.starts, peer) for made in (*bins.out, *bins.into))
    return BinOffer(bins.read, out, into[0] if into else None)


def collect(own: Bins, offers: Sequence[BinOffer], rank: int, name: str, spent: DegreeCounts | None) -> Collected:
    """Copy the keys of an owner from all ranks' bins; ``spent`` degrees are let go of."""
    if spent is not None:
        spent.degrees.clear()
    where = f"rank {rank}, collecting {name}"
    with _on_gpu(where):
        out = [_collect(made, [offer.out for offer in offers], rank, where) for made in own.out]
        from_peers = [offer.into for offer in offers if offer.into is not None]
        into = [_collect(made, from_peers, rank, where) for made in own.into]
        return Collected(own.read + sum(offer.read for offer in offers), own.rows, out, into)


def copied(collected: Collected) -> int:
    """Tells the others that their bins were read."""
    return collected.read


def let_go(bins: Bins, _copied: list[int]) -> None:
    """Free bins that everybody has read."""
    from dbfs_workers.cuda.device_memory import give_back

    bins.out.clear()
    bins.into.clear()
    give_back()


def sort(collected: Collected, _freed: None, stripe: Stripe, rank: int, by_position: bool, name: str) -> Sorted:
    """Sort what was collected into rows."""
    from dbfs_workers.cuda import building

    where = f"rank {rank}, sorting {name}"
    made = Sorted(collected.read, [], [])
    with _on_gpu(where):
        for keys, slices in ((collected.out, made.out), (collected.into, made.into)):
            if keys:
                made_of = partial(building.make_csr, rows=collected.rows, by_position=by_position, where=where)
                slices.append(made_of(keys.pop(), stripe, rank))
    return made


def make_partition(turns: list[Sorted], stripe: Stripe, rank: int, directed: bool, name: str) -> Partition:
    """The partition of the rows of all turns."""
    from dbfs_workers.cuda import building

    where = f"rank {rank}, joining {name}"
    with _on_gpu(where):
        out = building.join([made.out.pop() for made in turns], where)
        into = building.join([made.into.pop() for made in turns], where) if turns[0].into else None
        return Partition(
            stripe,
            rank,
            out.row_offsets,
            out.columns,
            out.self_loops,
            out.duplicates,
            turns[0].read,
            directed,
            None if into is None else Csr(into.row_offsets, into.columns),
        )


def describe(partition: Partition) -> PartitionInfo:
    """See ``dbfs_workers.partition.describe``."""
    with _on_gpu(f"rank {partition.rank}, describing its partition"):
        return partition_info(partition)


def _collect(own: Binned, offers: Sequence[Offer], rank: int, where: str) -> Any:
    import cupy

    from dbfs_workers.cuda import device_memory
    from dbfs_workers.cuda.building import KEY_BYTES

    mine = own.keys[own.starts[rank] : own.starts[rank + 1]]
    if not offers:
        return mine
    sizes = [mine.size, *(offer.part(rank).stop - offer.part(rank).start for offer in offers)]
    device_memory.require(KEY_BYTES * sum(sizes), where)
    keys = cupy.empty(sum(sizes), np.uint64)
    keys[: mine.size] = mine
    for offer, (start, end) in zip(offers, pairwise(np.cumsum(sizes).tolist()), strict=True):
        _copy(offer, rank, keys[start:end])
    return keys


def _offer(array: Any, starts: NDArray[np.int64], peer: int | None) -> Offer:
    """An array for all peers to map, or one peer's part of it by way of the host."""
    from dbfs_workers.cuda import device_memory

    if peer is None:
        return Offer(device_memory.export(array), starts)
    part = array[starts[peer] : starts[peer + 1]].get()
    return Offer(part, np.where(np.arange(starts.size) > peer, part.size, 0))


def _copy(offer: Offer, owner: int, to: Any) -> None:
    """Fill an array with an owner's part of an offer."""
    from dbfs_workers.cuda import device_memory

    part = offer.part(owner)
    if isinstance(offer.memory, bytes):
        with device_memory.mapped(offer.memory) as address:
            device_memory.copy_from(address + part.start * to.itemsize, to)
    else:
        to.set(offer.memory[part])


def _vertices(source: EdgeSource, united: UnitedIds | None) -> Edges:
    """A piece's edges between vertices, int64 on the GPU: of ids their ranks in ``united``, where that is given."""
    import cupy

    if isinstance(source, GeneratedPiece):
        ends = source.read_on(cupy)
    else:
        ends = source if isinstance(source, tuple) else source.read()
    src, dst = (cupy.ascontiguousarray(cupy.asarray(side), np.int64) for side in ends)
    if united is not None:
        ids = cupy.asarray(united[0])
        src, dst = cupy.searchsorted(ids, src), cupy.searchsorted(ids, dst)
    return src, dst


def _unique(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    import cupy

    with _on_gpu("looking for distinct ids"):
        found: NDArray[np.int64] = cupy.asnumpy(cupy.unique(cupy.concatenate([cupy.asarray(part) for part in parts])))
        return found


@contextmanager
def _on_gpu(where: str) -> Iterator[None]:
    import cupy

    from dbfs_workers.cuda.device_memory import give_back
    from dbfs_workers.cuda.failures import typed_errors

    with typed_errors(where):
        try:
            yield
            cupy.cuda.get_current_stream().synchronize()
        finally:
            # What was in use for a while would be missing from plain allocations, here and on GPUs that ranks share.
            give_back()
