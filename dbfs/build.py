"""Building: from an edge list to one partition on each rank, as Dask tasks.

Ranks take turns at the pieces. One task reads a piece where it lies, another bins its edges by owner; each owner
collects its bins round by round and makes its partition of them. The client sees counts only. Where ids are external,
or the number of edges is not known before reading, the pieces are read first and their distinct ids found.
"""

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs import config
from dbfs.edges import EdgeList, Edges, Piece
from dbfs.errors import TruncatedFileError
from dbfs.gang import Deadline, Gang, Key, Ref, TaskGraph
from dbfs.memory import require_fit
from dbfs_workers.partition import EdgeBin, Partition, PartitionInfo
from dbfs_workers.stripe import Stripe

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """A graph's data on the workers.

    Attributes:
        partitions: futures by rank.
        infos: the partitions' counts by rank.
        external_ids: future of int64[n], the ids as they were given, ascending; None where they are 0..n-1.
        seconds: how long building took.
    """

    stripe: Stripe
    partitions: tuple[distributed.Future, ...]
    infos: tuple[PartitionInfo, ...]
    external_ids: distributed.Future | None
    seconds: float


@dataclass(frozen=True)
class _Input:
    """Pieces on their way to the owners, and where they were read to; ``reads`` is None where building will read."""

    n: int
    m: int
    pieces: list[distributed.Future]
    reads: list[distributed.Future] | None
    external_ids: distributed.Future | None


def build(edges: EdgeList, gang: Gang) -> Built:
    """Read, stripe and build a graph. After an error nothing stays on the workers.

    Raises:
        TruncatedFileError: the pieces hold another number of edges than the edge list says.
        GraphTooLargeError: it won't fit the workers.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        DbfsError: whatever reading a piece raises.
    """
    start = time.perf_counter()
    deadline = Deadline(config.seconds("build-deadline"))
    token = uuid.uuid4().hex
    pieces = edges.cut(_piece_edges(edges.m, gang.p))
    if edges.n is not None and edges.m is not None:
        # Before a byte is moved: what is refused must cost nothing.
        _require_fit(edges, Stripe(edges.n, gang.p), edges.m, len(pieces), gang)
        source = _Input(edges.n, edges.m, _scatter(pieces, gang), None, None)
    else:
        source = _scan(edges, _scatter(pieces, gang), gang, token, deadline)
        _require_fit(edges, Stripe(source.n, gang.p), source.m, len(pieces), gang)
    stripe = Stripe(source.n, gang.p)

    graph = TaskGraph()
    collected = _exchange(graph, source, edges, stripe, token)
    keys: list[Key] = [(f"partition-{token}", rank) for rank in range(gang.p)]
    info_keys: list[Key] = [(f"partition-info-{token}", rank) for rank in range(gang.p)]
    for rank in range(gang.p):
        partition = graph.add(rank, keys[rank], _build_partition, stripe, rank, collected[rank])
        graph.add(rank, info_keys[rank], _describe, partition)
    futures = gang.submit(graph, keys + info_keys)
    infos = gang.gather([futures[key] for key in info_keys], deadline, f"building {edges.name}")
    if infos[0].input_edges != source.m:
        raise TruncatedFileError(
            f"{edges.name}: {source.m} edges are promised (by its header), {infos[0].input_edges} are there"
        )
    seconds = time.perf_counter() - start
    logger.info("built %s: %d vertices, %d edges read, %.2f s", edges.name, source.n, source.m, seconds)
    return Built(stripe, tuple(futures[key] for key in keys), tuple(infos), source.external_ids, seconds)


def _piece_edges(m: int | None, p: int) -> int:
    least = config.count("build.piece-edges")
    return least if m is None else max(least, -(-m // (p * config.count("build.max-rounds"))))


def _require_fit(edges: EdgeList, stripe: Stripe, m: int, pieces: int, gang: Gang) -> None:
    require_fit(gang, stripe, m * (2 if edges.symmetrise else 1), -(-m // pieces), edges.name)


def _scatter(pieces: Sequence[Piece], gang: Gang) -> list[distributed.Future]:
    """Hand piece i to rank i % p. Apart from the graph: a caller's arrays may be large, the scheduler holds graphs."""
    scattered: list[distributed.Future | None] = [None] * len(pieces)
    for rank, address in enumerate(gang.addresses):
        mine = list(pieces[rank :: gang.p])
        if mine:
            scattered[rank :: gang.p] = gang.client.scatter(mine, workers=[address], hash=False)
    return [future for future in scattered if future is not None]


def _scan(edges: EdgeList, pieces: list[distributed.Future], gang: Gang, token: str, deadline: Deadline) -> _Input:
    """Read all pieces, count their edges, and rank their distinct ids where ids are external."""
    graph = TaskGraph()
    keys: list[Key] = [(f"read-edges-{token}", index) for index in range(len(pieces))]
    parts = []
    for index, piece in enumerate(pieces):
        rank = index % gang.p
        read = graph.add(rank, keys[index], _read, Ref(piece.key))
        parts.append(graph.add(rank, (f"distinct-ids-{token}", index), _distinct, read, edges.n is None))
    ids_key, summary_key = (f"vertex-ids-{token}", 0), (f"vertex-ids-summary-{token}", 0)
    ids = graph.add(0, ids_key, _unite, parts)
    graph.add(0, summary_key, _summarise_ids, ids)
    futures = gang.submit(graph, [*keys, ids_key, summary_key])
    n, m, dense = gang.gather([futures[summary_key]], deadline, f"reading {edges.name}")[0]
    return _Input(
        n=n if edges.n is None else edges.n,
        m=m if edges.m is None else edges.m,
        pieces=pieces,
        reads=[futures[key] for key in keys],
        external_ids=None if dense or edges.n is not None else futures[ids_key],
    )


def _exchange(graph: TaskGraph, source: _Input, edges: EdgeList, stripe: Stripe, token: str) -> list[list[Ref]]:
    """Add the tasks that read, bin and collect; returns each owner's collected rounds."""
    collected: list[list[Ref]] = [[] for _ in range(stripe.p)]
    ids = None if source.external_ids is None else Ref(source.external_ids.key)
    for first in range(0, len(source.pieces), stripe.p):
        this_round = first // stripe.p
        binned: list[Ref] = []
        for rank, index in enumerate(range(first, min(first + stripe.p, len(source.pieces)))):
            if source.reads is not None:
                read = Ref(source.reads[index].key)
            else:
                # Reading waits until the round before the last is collected: unread pieces take no memory, bins do.
                before = [collected[rank][-2]] if this_round >= 2 else []
                piece = Ref(source.pieces[index].key)
                read = graph.add(rank, (f"read-edges-{token}", index), _read, piece, before)
            key = (f"bin-edges-{token}", index)
            binned.append(graph.add(rank, key, _bin, read, stripe, edges.symmetrise, edges.name, ids))
        for owner in range(stripe.p):
            parts = [
                graph.add(rank, (f"edge-bin-{token}", first + rank, owner), _edge_bin, bins, owner)
                for rank, bins in enumerate(binned)
            ]
            collected[owner].append(graph.add(owner, (f"collect-{token}", this_round, owner), list, parts))
    return collected


# The tasks. Each imports its kernels on the worker that runs it, so that a client needs none.


def _read(piece: Piece, _before: object = None) -> Edges:
    return piece.read()


def _distinct(read: Edges, wanted: bool) -> tuple[NDArray[np.int64], int]:
    src, dst = read
    return np.unique(np.concatenate([src, dst])) if wanted else np.empty(0, np.int64), src.size


def _unite(parts: list[tuple[NDArray[np.int64], int]]) -> tuple[NDArray[np.int64], int]:
    return np.unique(np.concatenate([ids for ids, _ in parts])), sum(count for _, count in parts)


def _summarise_ids(united: tuple[NDArray[np.int64], int]) -> tuple[int, int, bool]:
    ids, m = united
    return ids.size, m, bool(ids.size == 0 or ids[-1] == ids.size - 1)


def _bin(
    read: Edges, stripe: Stripe, symmetrise: bool, name: str, united: tuple[NDArray[np.int64], int] | None
) -> tuple[EdgeBin, ...]:
    from dbfs_workers.building import bin_edges

    src, dst = read
    if united is not None:
        src, dst = np.searchsorted(united[0], src), np.searchsorted(united[0], dst)
    return bin_edges(src, dst, stripe, symmetrise=symmetrise, name=name)


def _edge_bin(bins: tuple[EdgeBin, ...], owner: int) -> EdgeBin:
    return bins[owner]


def _build_partition(stripe: Stripe, rank: int, rounds: list[list[EdgeBin]]) -> Partition:
    from dbfs_workers.building import build_partition

    return build_partition(stripe, rank, rounds)


def _describe(partition: Partition) -> PartitionInfo:
    from dbfs_workers.building import describe

    return describe(partition)
