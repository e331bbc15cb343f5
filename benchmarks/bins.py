"""Levels of the taskgraph engine over each of Dask's protocols: the ranks send each other their bins and bitmaps."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import distributed
import numpy as np
from numpy.typing import NDArray

import dbfs
from dbfs.errors import DbfsError


@dataclass(frozen=True)
class BinsCost:
    """A level over one protocol; its time is the median of several traversals.

    Attributes:
        protocol: protocol of the workers' addresses.
        direction: the traversal's direction; ``auto`` chooses that of each level.
        level: number of the level.
        way: the level's own direction.
        frontier: vertices of the frontier.
        edges: edges that the level looked at.
        megabytes: millions of bytes that the ranks sent each other.
        milliseconds: time of the level.
    """

    protocol: str
    direction: str
    level: int
    way: str
    frontier: int
    edges: int
    megabytes: float
    milliseconds: float


def bench_bins(
    connect: Callable[[str], distributed.Client],
    protocols: Sequence[str],
    directions: Sequence[str],
    graph: str,
    ranks: int,
    rounds: int,
) -> Iterator[BinsCost]:
    """Traverse a graph from the same source over each protocol, one cluster after another.

    Args:
        connect: starts a cluster whose workers have the given protocol, and returns its client.
        protocols: the protocols.
        directions: directions of the traversals.
        graph: the graph.
        ranks: number of ranks.
        rounds: traversals for each protocol and direction, after one to warm up.

    Raises:
        DbfsError: the engine and the resident one disagree about a distance.
    """
    for protocol in protocols:
        with connect(protocol) as client, dbfs.load(graph, client=client, ranks=ranks) as loaded:
            (source,) = loaded.sample_sources(1, seed=1)
            right = loaded.bfs(source).distances()
            for direction in directions:
                yield from _levels(loaded, source, right, protocol, direction, rounds)


def _levels(
    graph: dbfs.Graph, source: int, right: NDArray[np.int32], protocol: str, direction: str, rounds: int
) -> list[BinsCost]:
    """Return the levels of traversals in one direction; ``right`` has the right distances."""
    seconds = list[list[float]]()
    for turn in range(rounds + 1):
        result = graph.bfs(source, direction=direction, engine="taskgraph")
        levels = result.reports
        if turn:
            seconds.append([level.seconds for level in levels])
        elif not np.array_equal(result.distances(), right):
            raise DbfsError(f"{protocol}, {direction}: distances differ from those of the resident engine")
    medians = [statistics.median(times) for times in zip(*seconds, strict=True)]
    return [
        BinsCost(
            protocol,
            direction,
            level.level,
            level.direction,
            level.frontier,
            level.edges,
            level.bytes_sent / 1e6,
            median * 1e3,
        )
        for level, median in zip(levels, medians, strict=True)
    ]
