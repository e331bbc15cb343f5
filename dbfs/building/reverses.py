"""Edges that should be listed in both directions, and are not: refused with an example, or completed.

A build adds up the imbalance of its edges at its own speed. What follows an imbalance other than 0 is slow: the edges
are built again as those of a directed graph, whose ranks compare the edges into their rows with those out of them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import distributed
import numpy as np

from dbfs import config
from dbfs.building.builder import BuildOptions
from dbfs.building.on_cpu import HostBuilder
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release
from dbfs.edges.arrays import ArrayPiece
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.one_sided import OneSided
from dbfs.errors import FormatError, GraphTooLargeError
from dbfs_workers.building.reading import require_room
from dbfs_workers.building.symmetry import MISSING_BYTES, missing_of
from dbfs_workers.search.partition.partition import Partition


@dataclass(frozen=True)
class MissingReverses:
    """The reverses that an edge list lacks.

    Attributes:
        pieces: futures of the ranks, each of a piece.
        count: number of edges in all pieces.
    """

    pieces: tuple[distributed.Future, ...]
    count: int


def find_missing(edges: EdgeList, gang: Gang) -> MissingReverses:
    """Find the reverses that an edge list lacks, unless it has to be refused. The caller releases the pieces.

    Raise ``FormatError``, which names an edge, if missing reverses are not to be added. Other errors as for ``build``.
    """
    builder = HostBuilder(replace(edges, directed=True), gang, BuildOptions(in_edges=True))
    futures: dict[Key, distributed.Future] = {}
    try:
        built = builder.run()
        graph, token = TaskGraph(), uuid.uuid4().hex
        keys: list[Key] = [(f"missing-{token}", rank) for rank in range(gang.p)]
        first_keys: list[Key] = [(f"first-missing-{token}", rank) for rank in range(gang.p)]
        share = float(config.get("build.memory-share"))
        for rank, partition in enumerate(built.partitions):
            missing = graph.add(rank, keys[rank], missing_piece, Ref(partition.key), edges.name, share)
            graph.add(rank, first_keys[rank], first_of, Ref(partition.key), missing)
        futures = gang.submit(graph, [*keys, *first_keys])
        release(built.futures)
        doing = f"comparing the edges of {edges.name}"
        found = gang.gather([futures[key] for key in first_keys], builder.deadline, doing)
        count = sum(each for each, _ in found)
        if not edges.completes:
            raise min(first for _, first in found if first is not None).error(edges, count)
    except BaseException as error:
        release(futures.values())
        if isinstance(error, GraphTooLargeError) and not edges.completes:
            raise FormatError(f"{edges.name}: an edge is listed at one end only. To find it: {error}") from error
        raise
    finally:
        release(builder.held)
    release(futures[key] for key in first_keys)
    return MissingReverses(tuple(futures[key] for key in keys), count)


def missing_piece(partition: Partition, name: str, share: float) -> ArrayPiece:
    """Return the edges of a rank's rows that are missing as reverses of its in-edges.

    Errors as for ``require_room``.
    """
    require_room(MISSING_BYTES * partition.m_local, share, f"{name}: comparing the edges of rank {partition.rank}")
    return ArrayPiece(*missing_of(partition))


def first_of(partition: Partition, missing: ArrayPiece) -> tuple[int, OneSided | None]:
    """Return the number of missing edges, and the edge of the lowest vertex whose reverse is missing."""
    if not missing.src.size:
        return 0, None
    assert partition.in_edges is not None
    stripe, source, target = partition.stripe, int(missing.dst[0]), int(missing.src[0])
    rows = [
        csr.columns[slice(*csr.row_offsets[stripe.row(target) :][:2])]
        for csr in (partition.in_edges, partition.out_edges)
    ]
    times, back = (int(np.count_nonzero(row == stripe.internal(source))) for row in rows)
    return missing.src.size, OneSided(source, target, times, back)
