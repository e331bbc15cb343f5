"""Which layout ``layout="auto"`` takes: the 2-D partition where its ranks send clearly fewer bytes, and it fits.

The bytes are those of a graph whose edges are spread evenly. A vertex of degree d has neighbours of about
``p (1 - (1 - 1/p)^d)`` ranks. So top-down levels of the 1-D partition send it ``(p - 1) (1 - (1 - 1/p)^d)`` times. In a
grid of R x C ranks the frontier goes to R - 1 ranks, and a vertex is found in ``C (1 - (1 - 1/C)^d)`` columns. A
bottom-up level sends p - 1 bitmaps a rank in the one layout, and R - 1 + 2 (C - 1) at most in the other.
"""

from __future__ import annotations

from dataclasses import replace

from dbfs import config
from dbfs.building.builder import BuildOptions
from dbfs.building.memory import hosts_of
from dbfs.building.on_grid import GridBuilder
from dbfs.cluster.gang import Gang
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.saved import SavedEdges
from dbfs.errors import GraphTooLargeError
from dbfs.records import EXCHANGES
from dbfs_workers.storage.grid import Grid

AUTO = "auto"

# A level of the 2-D partition has two or three crossings instead of one, so a few bytes less are not worth it.
_LARGEST_SHARE = 0.75


def bytes_share(n: int, directed_edges: int, ranks: int, *, bottom_up: bool) -> float:
    """Return the bytes that the 2-D partition sends over those of the 1-D partition, about; 1 for one rank.

    Args:
        n: number of vertices.
        directed_edges: number of edges stored; an undirected edge counts twice.
        ranks: number of ranks.
        bottom_up: whether levels may be bottom-up. The larger share of both directions counts then.
    """
    if ranks == 1 or not directed_edges:
        return 1.0
    grid, degree = Grid.of(ranks), directed_edges / n

    def others(of: int) -> float:
        """Return how many of the other ranks, or columns, a vertex is sent to."""
        return (of - 1) * (1.0 - float((1 - 1 / of) ** degree))

    top_down = (grid.rows - 1 + others(grid.columns)) / others(ranks)
    return max(top_down, (grid.rows - 1 + 2 * (grid.columns - 1)) / (ranks - 1)) if bottom_up else top_down


def choose_layout(edges: EdgeList, gang: Gang, options: BuildOptions, backend: str) -> str:
    """Return the layout that ``layout="auto"`` takes, ``1d`` or ``2d``.

    It is ``1d`` for graphs whose size is known only after reading, for saved ones, and on GPUs, which have no 2-D
    partition. It is ``1d`` on several hosts, too, where a grid's times are not measured.
    """
    if (
        backend != "cpu"
        or isinstance(edges, SavedEdges)
        or edges.n is None
        or edges.m is None
        or config.choice("exchange", EXCHANGES) not in ("auto", "shared_memory")
        or hosts_of(gang).count > 1
    ):
        return "1d"
    in_grid = replace(options, layout="2d")
    stored = edges.m * (2 if edges.symmetrise else 1)
    bottom_up = GridBuilder.stores_twice(edges, in_grid)
    if bytes_share(max(edges.n, 1), stored, gang.p, bottom_up=bottom_up) > _LARGEST_SHARE:
        return "1d"
    try:
        GridBuilder(edges, gang, in_grid).require_fit(edges.n, edges.m)
    except GraphTooLargeError:
        return "1d"
    return "2d"
