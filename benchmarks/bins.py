"""Levels of the taskgraph engine over each of Dask's protocols: the ranks send each other their bins and bitmaps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import click
import distributed
import numpy as np
from numpy.typing import NDArray

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, milliseconds
from dbfs.cluster.connect import PROTOCOLS
from dbfs.errors import DbfsError
from dbfs_workers.base.spec import DIRECTIONS


@dataclass(frozen=True)
class BinsCost:
    """A level over one protocol, with the traversal's direction and the level's own; the time is a median."""

    protocol: Annotated[str, Column()]
    direction: Annotated[str, Column()]
    level: Annotated[int, Column()]
    way: Annotated[str, Column("its direction")]
    frontier: Annotated[int, Column(form=",")]
    edges: Annotated[int, Column(form=",")]
    megabytes: Annotated[float, Column("MB sent", ".2f")]
    milliseconds: Annotated[float, Column("ms", ".2f")]


@click.command()
@options.graph
@options.ranks(2)
@options.backend
@options.choices("--protocol", ("tcp",), "Protocol of the workers", [name for name in PROTOCOLS if name != "auto"])
@options.choices("--direction", ("top-down", "auto"), "Direction of the levels", DIRECTIONS)
@options.count("--rounds", 9, "Traversals of each kind.")
@options.json
def bins(graph: str, ranks: int, backend: str, file: str | None, rounds: int, **choices: Any) -> None:
    """Measure the taskgraph engine's levels over Dask's protocols.

    The ranks send each other bins and bitmaps over Dask's connections. The times are medians. The distances must equal
    those of the resident engine.

    Example: dbfs bench bins --backend cuda --protocol tcp --protocol ucx
    """

    def connect(protocol: str) -> distributed.Client:
        return dbfs.connect(n_workers=ranks, backend=backend, protocol=protocol, dashboard_address=None)

    with Results("bins", file) as results:
        costs = bench_bins(connect, choices["protocol"], choices["direction"], graph, ranks, rounds)
        results.take("costs", costs, f"{graph}, {ranks} ranks on {backend}")


def bench_bins(
    connect: Callable[[str], distributed.Client],
    protocols: Sequence[str],
    directions: Sequence[str],
    graph: str,
    ranks: int,
    rounds: int,
) -> Iterator[BinsCost]:
    """Traverse a graph from the same source over each protocol, one cluster after another.

    ``connect`` starts a cluster whose workers have the given protocol.

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
) -> Iterator[BinsCost]:
    """Yield the levels of traversals in one direction; ``right`` has the right distances."""
    if not np.array_equal(graph.bfs(source, direction=direction, engine="taskgraph").distances(), right):
        raise DbfsError(f"{protocol}, {direction}: distances differ from those of the resident engine")
    runs = [graph.bfs(source, direction=direction, engine="taskgraph").reports for _ in range(rounds)]
    for same in zip(*runs, strict=True):
        level = same[0]
        sent, taken = level.bytes_sent / 1e6, milliseconds([one.seconds for one in same])
        yield BinsCost(protocol, direction, level.level, level.direction, level.frontier, level.edges, sent, taken)
