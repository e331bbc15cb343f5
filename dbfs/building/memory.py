"""Estimates of the memory that a graph takes on each worker or GPU, and the refusal of graphs that won't fit."""

import html
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import dask
from dask.utils import parse_bytes

from dbfs import config
from dbfs.base.units import format_bytes
from dbfs.cluster.awaiting import sync
from dbfs.cluster.gang import Gang, host_of, joined_workers
from dbfs.cluster.lookout import not_ready_of
from dbfs.edges.edge_list import DistinctIds, EdgeList
from dbfs.errors import EdgeInputError, GraphTooLargeError, InvalidOptionError
from dbfs_workers.base.memory_room import free_bytes, usable_share
from dbfs_workers.base.text import counted
from dbfs_workers.building.layout import Layout
from dbfs_workers.building.pieces import portions_of
from dbfs_workers.ids.codes import MOST_SMALL_IDS
from dbfs_workers.search.cuda import failures, sizes
from dbfs_workers.search.exchange import segment, stream
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.levels import level_table
from dbfs_workers.search.partition import scratch
from dbfs_workers.search.partition.labels import label_bytes
from dbfs_workers.search.partition.stripe import Stripe

# A worker of a local cluster on CPU cores, with the kernels compiled and a small graph loaded.
_PROCESS_BYTES = 200 * 2**20
_RETRY_SECONDS = 0.1
_MOST_RETRIES = 20
# Slots of a hash table for each distinct id, at most, in bytes.
_SLOT_BYTES_PER_ID = 22
# Pieces that edges are cut into at most, to read the first one.
_MOST_PIECES = 1 << 16
# Growth of less than this share of the wanted memory is none.
_LEAST_GROWTH = 1 / 64


@dataclass(frozen=True)
class Estimate:
    """Bytes of one rank's memory, or of its GPU's memory, by part. Assumes that edges are spread evenly over the ranks.

    Attributes:
        partition: the rank's CSR, the CSR of in-edges, the kept input edges and the table of the rank's ids; resident
            until the graph is unloaded.
        build: peak of a build, on top of the partition.
        run: a traversal with predecessors by the resident engine, on top of the partition: the rank's state, its shared
            bins, the table of its levels, the labels of one result, and a validation if edges are kept. ``frames`` is
            what the lowest rank of a host takes for ranks of other hosts.
        bands: number of bands in which a GPU builds its rows, one after the other; a build on CPUs has one.
        passes: number of times that the build generates or reads all edges: once a band, and once more to count degrees
            (``order="degree"``); once in all if edges are kept.
        peaks: ``peak_bytes`` of builds in 1, 2, ... bands; one figure for a build on CPUs.
        memory: bytes that the graph may take; they decide the bands. None if unknown: then the build has one band.
        result: bytes of the labels that the rank keeps of one result with predecessors.
        label_share: share of ``memory`` that may be in use when a traversal starts, labels included.
        process: bytes of the worker's process without any graph.
        numbering: bytes while the ranks number ids, before the build; empty if there is nothing to number. These
            are bytes of the worker's memory; an estimate for GPUs has none.
        sampled_edges: number of edges by samples of a text that does not say it; None if the number is known.
        update: most bytes that the versions of a living graph take, on top of the partition. On CPUs: ``pages`` of the
            version in use, once an update has moved the rows to pages, and ``next pages`` while an update makes all
            rows anew, and ``later ids`` for as many new ids as the graph has room. On GPUs: ``next version``, a second
            partition; with ``storage="pages"`` the linked ``pages``, and ``copy`` while a version is copied for the
            engines. The update's own edges, 37 bytes each, are not among them. Empty for other graphs.
        layout: as of ``BuildOptions``, but never ``auto``.
        why: why ``layout="auto"`` takes that layout; empty if the layout was given.
    """

    partition: dict[str, int]
    build: dict[str, int]
    run: dict[str, int]
    bands: int = 1
    passes: int = 1
    peaks: tuple[int, ...] = ()
    memory: int | None = None
    result: int = 0
    label_share: float = 1.0
    process: int = 0
    numbering: dict[str, int] = field(default_factory=dict)
    sampled_edges: int | None = None
    update: dict[str, int] = field(default_factory=dict)
    layout: str = "1d"
    ranks: int = 1
    why: str = ""

    @property
    def partition_bytes(self) -> int:
        """Bytes of the partition."""
        return sum(self.partition.values())

    @property
    def stages(self) -> dict[str, dict[str, int]]:
        """The parts by stage, without stages that take nothing."""
        stages = {"numbering": self.numbering, "partition": self.partition, "build": self.build, "run": self.run}
        stages["update"] = self.update
        return {name: parts for name, parts in stages.items() if parts}

    @property
    def peak_bytes(self) -> int:
        """Most bytes in use at any time: while ids are numbered, or the partition, and the larger of build and run.

        The state of a run, and the labels of its result, stay while an update is made.
        """
        built = self.partition_bytes + max(sum(self.build.values()), sum(self.run.values()) + sum(self.update.values()))
        return max(sum(self.numbering.values()), built)

    @property
    def fits(self) -> bool | None:
        """Whether the graph fits ``memory``; None if that is unknown."""
        return None if self.memory is None else self.peak_bytes <= self.memory

    @property
    def results(self) -> int | None:
        """Number of results with predecessors that clients can hold at once, about; None if ``memory`` is unknown.

        Results without predecessors take half the memory. See ``dbfs_workers.search.members.label_room`` for the bound.
        """
        if self.memory is None or not self.result:
            return None
        beside = self.process + self.partition_bytes + sum(self.run.values()) - self.run["labels"]
        beside += sum(self.update.values())
        return max(0, int(self.label_share * self.memory) - beside) // self.result

    def __str__(self) -> str:
        parts = [
            f"{name}: {format_bytes(sum(part.values()))} "
            f"({', '.join(f'{what} {format_bytes(size)}' for what, size in part.items())})"
            for name, part in self.stages.items()
        ]
        bands = f", built in {self.bands} bands" if self.bands > 1 else ""
        return "; ".join(parts) + f"; at most {format_bytes(self.peak_bytes)} per rank{bands}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{stage}</td><td>{what}</td><td>{format_bytes(size)}</td></tr>"
            for stage, parts in self.stages.items()
            for what, size in parts.items()
        )
        room = "" if self.memory is None else f", {'fits' if self.fits else 'more than'} {format_bytes(self.memory)}"
        most = f"<tr><th>at most</th><td></td><th>{format_bytes(self.peak_bytes)}{room}</th></tr>"
        return (
            f"<div><strong>dbfs.Estimate</strong>: bytes per rank on {counted(self.ranks, 'rank')}"
            f"<table><tr><th>when</th><th>what</th><th>bytes</th></tr>{rows}{most}</table>"
            f"{html.escape(self.why)}</div>"
        )


def estimate_bytes(
    stripe: Stripe,
    directed_edges: int,
    pieces_edges: int,
    held_bytes: int = 0,
    *,
    in_edges: bool,
    ordered: bool,
    kept_edges: int = 0,
    table_bytes: int = 0,
    hosts: Hosts | None = None,
    layout: Layout | None = None,
) -> Estimate:
    """Estimate the bytes of a rank's host memory for a build and runs on CPUs.

    Args:
        directed_edges: number of edges stored; an undirected edge counts twice.
        pieces_edges: edges of the pieces that a rank reads and bins at once.
        held_bytes: bytes of input data that a rank holds when the build begins; they are freed piece by piece.
        in_edges: whether each edge is stored a second time, by its end: a directed graph's in-edges, and in some
            layouts all edges, for bottom-up levels.
        ordered: whether vertices are numbered by degree.
        kept_edges: number of input edges that are kept as they were read.
        table_bytes: bytes of the tables of ids of all ranks.
        hosts: which ranks are on one host, and so share memory. None for one host.
        layout: how the edges lie on the ranks; None in ``1d``.
    """
    m_local = -(-directed_edges // stripe.p)
    rows, copies = stripe.n_local, 2 if in_edges else 1
    columns = copies * 4 * m_local
    partition = {"row offsets": copies * 8 * (rows + 1), "columns": columns}
    # The ids of an edge.
    edge_bytes = 16
    run = {
        "state": scratch.nbytes(stripe, bottom_up=True),
        "bins": segment.resident_nbytes(stripe, predecessors=True),
    }
    if layout is not None:
        partition = layout.partition_bytes(stripe, m_local, bottom_up=in_edges)
        edge_bytes = layout.binned_bytes
        run = layout.run_bytes(stripe, bottom_up=in_edges)
    if hosts is not None and hosts.count > 1:
        run["frames"] = _envoy_bytes(stripe, hosts, layout)
    run["levels"] = level_table.nbytes(stripe.n)
    # The rank's int32 distances and predecessors, and int64 predecessors as vertex ids for the client.
    run["labels"] = (4 + 4 + 8) * rows
    build = {
        # The input gives way to bins of 6 bytes an edge, and the bins give way to the columns.
        "bins": max(copies * 6 * m_local, held_bytes) - columns,
        # The two directions of an edge take 12 bytes of bins: twice, since as many bins arrive.
        "pieces": pieces_edges * (edge_bytes + copies * 24),
    }
    if ordered:
        # The order itself. Before there are bins, the degrees are sorted: 32 bytes a vertex.
        build["degree order"] = 8 * stripe.n + max(0, 24 * stripe.n - columns)
    if table_bytes:
        partition["ids"] = -(-table_bytes // stripe.p)
    if kept_edges:
        partition["input edges"] = _kept_bytes(stripe, kept_edges)
        shared = hosts is None or hosts.count == 1
        run["validation"] = _shared_validation(stripe) if shared else _validation(stripe)
        if ordered:
            # The first validation places the order on each rank.
            run["placed order"] = 8 * stripe.n
    # As ``LabelRoom.of`` on a worker.
    spill = dask.config.get("distributed.worker.memory.spill") or 1.0
    return Estimate(
        partition,
        build,
        run,
        result=label_bytes(stripe, predecessors=True),
        label_share=min(1.0, spill / max(_worker_share(), spill)),
        process=_PROCESS_BYTES,
    )


def estimate_device_bytes(
    stripe: Stripe,
    directed_edges: int,
    piece_edges: int,
    *,
    directed: bool,
    in_edges: bool,
    ordered: bool,
    kept_edges: int = 0,
    bands: int = 1,
) -> Estimate:
    """Estimate the bytes of a rank's GPU memory; arguments as of ``estimate_bytes``, and:

    Args:
        directed: whether edges can be crossed in one direction only.
        bands: number of bands of the build.
    """
    m_local = -(-directed_edges // stripe.p)
    partition = sizes.partition(stripe, m_local, in_edges=in_edges)
    peak = sizes.build(stripe, m_local, piece_edges, in_edges=in_edges, ordered=ordered, bands=bands)
    build = {"keys": max(0, peak - sum(partition.values()))}
    run = {
        **sizes.member(stripe, m_local, bottom_up=in_edges or not directed),
        "labels": sizes.labels(stripe),
    }
    if kept_edges:
        partition["input edges"] = _kept_bytes(stripe, kept_edges)
        run["validation"] = _validation(stripe)
    share = float(config.get("build.memory-share"))
    return Estimate(partition, build, run, bands, result=label_bytes(stripe, predecessors=True), label_share=share)


def numbering_bytes(edges: EdgeList, m: int, p: int, ids: DistinctIds, portion_edges: int) -> dict[str, int]:
    """Estimate the bytes of a rank while ``building.numbering`` numbers the ids of an edge list, by part.

    Assumes that the edges, and the ranges of ids, are spread evenly over the ranks, and that each rank's pieces have as
    many distinct ids as they can.

    Args:
        m: number of its edges.
        ids: the distinct ids of all ranks.
        batch_edges: edges that a rank reads at once.
    """
    count = -(-m // p)
    size = ids.nbytes / max(ids.count, 1)
    # Distinct ids of a rank, and ids of its range.
    found, owned = min(ids.count, 2 * count), -(-ids.count // p)
    # The ids of a portion as they are decoded, in one array, and their codes. A portion of strings has a quarter of the
    # edges; as much as the rest is held in compressed pages and dictionaries (measured).
    pieces = int(2 * (2 * size + 4) * portion_edges)
    # The hash table beside its ids, which a longer array replaces now and then.
    reading = int(found * (_SLOT_BYTES_PER_ID + 2 * size))
    # The ids, and by range again; the range of each, and their order.
    splitting = found * (2 * size + 14)
    # The parts of all ranks, their codes and the order; of the rank's range a hash table, or the ids while these are
    # sorted.
    uniting = found * (size + 8) + owned * (2 * size + 28)
    # A piece gives way to its codes, which are as large as its edges between vertices.
    parts = {"edges": max(edge_bytes(ids.count) * count, -(-edges.held_bytes // p))}
    if reading + pieces > max(splitting, uniting):
        return parts | {"distinct ids": reading, "pieces": pieces}
    return parts | {"distinct ids": int(max(splitting, uniting))}


def edge_bytes(n: int) -> int:
    """Return the bytes of an edge between two of n vertices whose ids were numbered."""
    return 8 if n <= MOST_SMALL_IDS else 16


def assumed_ids(edges: EdgeList, m: int, vertices: int) -> DistinctIds:
    """Return what ``vertices`` distinct ids take that are as long, on average, as those of the first edges.

    Reads the beginning of the first of many pieces of ``m`` edges.

    Raises:
        EdgeInputError, FormatError: the first edges can't be read.
    """
    src, dst = next(iter(portions_of(edges.cut(max(1, m // _MOST_PIECES))[0])))
    count = len(src) + len(dst)
    if count == 0 and vertices:
        raise EdgeInputError(f"{edges.name} has no edges at its beginning; expected ids whose length counts")
    return DistinctIds(vertices, round(vertices * (int(src.nbytes) + int(dst.nbytes)) / max(count, 1)))


def fewest_bands(by_bands: Sequence[Estimate], memory: int | None) -> Estimate:
    """Return the estimate of the fewest bands that fit, the most bands if none fit.

    Args:
        by_bands: estimates of builds in 1, 2, ... bands.
        memory: bytes that the graph may take; None if unknown, for the estimate of one band.
    """
    peaks = tuple(needed.peak_bytes for needed in by_bands)
    enough = (index for index, peak in enumerate(peaks) if memory is None or peak <= memory)
    return replace(by_bands[next(enough, -1)], peaks=peaks, memory=memory)


def usable_bytes(memory: int | str, backend: str) -> int:
    """Return the bytes that a graph may take of a worker's memory limit, or of a GPU; see ``usable_share``.

    Args:
        memory: bytes of the limit or the GPU, or a text such as ``80GB`` or ``139 GiB``.
        backend: ``cpu`` or ``cuda``.

    Errors as for ``estimate``.
    """
    try:
        # Dask takes a unit alone, such as "GB", as one of it, and an empty text as one byte.
        size = 0 if isinstance(memory, str) and not memory.strip()[:1].isdigit() else int(parse_bytes(memory))
    except (ValueError, AttributeError, TypeError):
        size = 0
    if size <= 0:
        raise InvalidOptionError(f"memory must be bytes, or a text such as '80GB' or '139 GiB', not {memory!r}")
    return size if backend == "cuda" else int(_worker_share() * size)


def _worker_share() -> float:
    """Return the share of its memory limit that a worker with this process's configuration of Dask may take."""
    return usable_share(float(config.get("build.memory-share")), dask.config.get("distributed.worker.memory.pause"))


def hosts_of(gang: Gang) -> Hosts:
    """Return the hosts of a gang's workers, by their addresses."""
    return Hosts.by_identity([host_of(address) for address in gang.addresses])


def _envoy_bytes(stripe: Stripe, hosts: Hosts, layout: Layout | None) -> int:
    """Return the most bytes that the lowest rank of a host takes for the ranks of other hosts.

    They are the bins and slices of those ranks in the host's segment, and a frame to and from each host. Large frames
    are received in the segment, and sent from there.
    """
    if layout is not None:
        remote = layout.remote_bytes(stripe, hosts.of_ranks)
    else:
        owned = [len(hosts.ranks(host)) for host in range(hosts.count)]
        remote = max(segment.remote_nbytes(stripe, own, predecessors=True) for own in owned)
    return remote + stream.nbytes(hosts.count - 1)


def _kept_bytes(stripe: Stripe, edges: int) -> int:
    return 8 * -(-edges // stripe.p)


def _validation(stripe: Stripe) -> int:
    """Return the bytes of a rank for a validation, for which edges are kept, if ranks share no memory."""
    # Per vertex: all ranks' labels as 8-byte words, the table made of them, a flag. Per row: this rank's labels.
    return (8 + 8 + 1) * stripe.n + 16 * stripe.n_local


def _shared_validation(stripe: Stripe) -> int:
    """Return the bytes of a rank for a validation if ranks share a table of words."""
    # Per row: the table, the rank's own words and its labels. Per vertex: a bit.
    return (8 + 8 + 16) * stripe.n_local + 4 * stripe.words


RoomMaker: TypeAlias = Callable[[Gang], bool]
"""See ``require_fit``."""


def require_fit(
    gang: Gang,
    what: str,
    needed: Estimate,
    name: str,
    held: int = 0,
    room_makers: Sequence[RoomMaker] = (),
) -> None:
    """Refuse a graph whose build or run takes more memory than the workers may still take.

    A worker's process may take ``build.memory-share`` of its memory limit, other graphs included, and less if Dask
    would pause the worker before. Workers without a limit divide that share of what their machine has free. Of the
    bytes needed, each rank holds ``held`` already. ``what`` says in the message how large the graph is. A room
    maker frees something of a gang's workers that can be made again, and returns whether there was any. Errors as for
    ``build``.
    """
    workers = joined_workers(gang.client)
    share = float(config.get("build.memory-share"))
    limits = [workers.get(address, {}).get("memory_limit") for address in gang.addresses]
    hosts = Counter(host_of(address) for address, limit in zip(gang.addresses, limits, strict=True) if not limit)

    wanted, shares = needed.peak_bytes - held, [share] * gang.p

    def read() -> list[int]:
        found = gang.run(partial(free_bytes, share, wanted), "reading its free memory")
        shares[:] = [of_limit for _, of_limit in found]
        pairs = zip(found, gang.addresses, limits, strict=True)
        return [free if limit else free // hosts[host_of(address)] for (free, _), address, limit in pairs]

    holds = f", of which it holds {held:,} as edges and ids that were read" if held else ""
    for rank, usable in enumerate(_settled(read, wanted)):
        if wanted > usable:
            if any(make_room(gang) for make_room in room_makers):
                require_fit(gang, what, needed, name, held, room_makers)
                return
            limit, address = limits[rank], gang.addresses[rank]
            not_ready = sync(gang.client, not_ready_of, gang.client, [address])
            worker = str(not_ready[0]) if not_ready else address
            of = f"its limit of {format_bytes(limit)}" if limit else "its machine's memory"
            raise GraphTooLargeError(
                f"{name}: {what} on {counted(gang.p, 'rank')} need about {needed.peak_bytes:,} bytes "
                f"({format_bytes(needed.peak_bytes)}) per rank{holds}; rank {rank} ({worker}) may take "
                f"{max(usable, 0):,} bytes more ({shares[rank]:.0%} of {of}, less what it holds). Released results, "
                f"unloaded graphs, more ranks or larger workers would make room. Needed: {needed}"
            )


def require_fit_gpus(gang: Gang, stripe: Stripe, needed: Estimate, name: str) -> None:
    """Check that a build or load of a graph fits the free memory of each rank's GPU. Errors as for ``build``."""
    free = free_gpu_bytes(gang, needed.peak_bytes)
    if needed.peak_bytes > min(free):
        raise too_large_for_gpus(stripe, needed, free, name)


def free_gpu_bytes(gang: Gang, wanted: int) -> list[int]:
    """Return the bytes that each rank can still allocate on its GPU. Errors as for ``build``."""
    return _settled(lambda: gang.run(failures.free_bytes, "reading its GPU's free memory"), wanted)


def _settled(read: Callable[[], list[int]], wanted: int) -> list[int]:
    """Read how many bytes are free on each rank; again while a rank has less than ``wanted`` and a figure grows.

    Dask frees released results some 10 ms later: those of a graph unloaded just now, or the bins of a build that starts
    again through the host. The free memory of a host also changes by what other processes do.
    """
    free = read()
    for _ in range(_MOST_RETRIES):
        if min(free) >= wanted:
            break
        time.sleep(_RETRY_SECONDS)
        before, free = free, read()
        if all(now <= then + _LEAST_GROWTH * wanted for now, then in zip(free, before, strict=True)):
            break
    return free


def too_large_for_gpus(stripe: Stripe, needed: Estimate, free: Sequence[int], name: str) -> GraphTooLargeError:
    """Return the error for a graph whose build or run needs more than the free memory of the ranks' GPUs."""
    rank = min(range(stripe.p), key=lambda rank: free[rank])
    vertices = counted(stripe.n, "vertex", "vertices")
    bands = f", even in {needed.bands} bands" if needed.bands > 1 else ""
    return GraphTooLargeError(
        f"{name}: {vertices} on {counted(stripe.p, 'rank')} need about {needed.peak_bytes:,} bytes "
        f"({format_bytes(needed.peak_bytes)}) of each GPU{bands}; rank {rank}'s has "
        f"{free[rank]:,} bytes free ({format_bytes(free[rank])}). More ranks or larger GPUs would hold it. "
        f"Needed: {needed}"
    )
