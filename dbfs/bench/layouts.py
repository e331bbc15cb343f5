"""The 1-D and the 2-D partition beside each other: bytes sent and time of a traversal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median

import distributed

import dbfs
from dbfs.building.build import LAYOUTS
from dbfs_workers.storage.grid import Grid


@dataclass(frozen=True)
class LayoutCost:
    """What a traversal costs in one layout.

    Attributes:
        layout: ``1d`` or ``2d``.
        predecessors: whether predecessors are recorded.
        ranks: number of ranks.
        peers: number of ranks that a rank exchanges bins and bitmaps with.
        bytes_sent: mean bytes that all ranks together send in a traversal.
        ratio: ``bytes_sent`` divided by those of ``1d``.
        milliseconds: median time of a traversal's levels.
        bytes_per_rank: mean bytes of a rank's partition.
    """

    layout: str
    predecessors: bool
    ranks: int
    peers: int
    bytes_sent: float
    ratio: float
    milliseconds: float
    bytes_per_rank: float


def bench_layouts(
    client: distributed.Client, graph: str, ranks: int, sources: int, order: str = "given"
) -> Iterator[LayoutCost]:
    """Measure the same traversals in each layout, with and without predecessors. The ranks exchange in shared memory.

    Args:
        client: client of a cluster with at least ``ranks`` workers on one host.
        graph: a generator or a file.
        ranks: number of ranks.
        sources: number of random sources.
        order: order of the vertices.
    """
    striped: dict[bool, float] = {}
    for layout in LAYOUTS:
        with dbfs.load(graph, client=client, ranks=ranks, order=order, layout=layout, backend="cpu") as loaded:
            chosen = loaded.sample_sources(sources)
            for predecessors in (False, True):
                loaded.bfs(chosen[0], predecessors=predecessors).release()
                results = loaded.bfs_many(chosen, predecessors=predecessors)
                sent = mean(int(result.levels["bytes_sent"].sum()) for result in results)
                yield LayoutCost(
                    layout,
                    predecessors,
                    ranks,
                    _peers(layout, ranks),
                    sent,
                    sent / striped.setdefault(predecessors, sent) if sent else 1.0,
                    median(result.seconds for result in results) * 1e3,
                    mean(loaded.nbytes),
                )


def _peers(layout: str, ranks: int) -> int:
    """Return the number of ranks that a rank exchanges bins and bitmaps with."""
    grid = Grid.of(ranks)
    return ranks - 1 if layout == "1d" else grid.rows + grid.columns - 2
