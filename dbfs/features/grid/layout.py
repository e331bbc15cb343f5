"""Which layout ``layout="auto"`` takes: the one whose traversals take less time by a model, if it fits.

On one host, where bytes are copies in memory, the 1-D partition was faster on every number of ranks measured
(docs/performance/scaling.md): a level of the 2-D partition has one more crossing, and a bottom-up level looks at more
edges. So the 2-D partition is taken there only if the 1-D partition does not fit and the 2-D partition does.

Between hosts a traversal's time is that of its crossings, of the bytes that leave a host and of the edges looked at, as
in docs/design/scale.md. The bytes are those of graphs whose edges are spread evenly:

- 1-D, bottom-up: a host sends the bitmaps of its ranks once to each other host.
- 1-D, top-down: a vertex of degree d has neighbours of about ``p (1 - (1 - 1/p)^d)`` ranks, each of which sends it.
- 2-D: a rank sends a bitmap at most to each rank of its column, and one along its row, two in a bottom-up level.

A graph of a small mean degree may have thousands of levels, such as a road network. Crossings decide there: 1-D.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dbfs import config
from dbfs.base.records import EXCHANGES
from dbfs.building.builder import AUTO, STRIPES, BuildOptions, LayoutChoice, Layouts
from dbfs.building.built_before import BuiltEdges
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError
from dbfs.features.grid.building import GridBuilder, GridOnGpuBuilder, grid_of, is_shape
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.search.exchange.hosts import Hosts

LAYOUTS = (STRIPES, GridLayout.name)

# Roads have 2.4 edges a vertex, meshes 4 to 6, Kronecker graphs 32.
_LEAST_DEGREE = 8.0
# Bottom-up levels of Kronecker graphs: 2.5 to 2.75. Their bitmaps are most of the bytes.
_LARGE_LEVELS = 3
# Share of the edges that a traversal with bottom-up levels looks at: 0.07 to 0.08 of Kronecker 16 and 18 on 1 to 16
# ranks. In 2, 3 and 4 columns it was 1.4, 1.7 and 2.0 times as much, about the root of the columns.
_SEARCHED_SHARE = 0.08
# Seconds: of a crossing between hosts (``dbfs bench hosts``, 0.12 ms), of a byte at 10 Gb/s, and of an edge.
_CROSSING, _BYTE, _EDGE = 1.2e-4, 0.8e-9, 0.8e-9
# The model's median error is 22 % on the points that it was fitted to.
_LARGEST_SHARE = 0.75


def traversal_seconds(n: int, directed_edges: int, hosts: Hosts, *, bottom_up: bool) -> dict[str, float]:
    """Return the seconds of a traversal between hosts by layout, ``1d`` and ``2d``, by the model.

    Args:
        n: number of vertices, above 0.
        directed_edges: number of edges stored; an undirected edge counts twice. Above ``n``.
        bottom_up: whether levels may be bottom-up.
    """
    p, grid, degree = len(hosts.of_ranks), Grid.of(len(hosts.of_ranks)), directed_edges / n
    levels = math.ceil(math.log(max(n, 2)) / math.log(degree)) + 1
    bitmap = n / (8 * p)
    ranks = p / hosts.count
    apart = [
        [sum(hosts.of_ranks[peer] != hosts.of_ranks[rank] for peer in peers(rank)) for rank in range(p)]
        for peers in (grid.column_of, grid.row_of)
    ]
    in_column, in_row = (sum(numbers) / p for numbers in apart)
    if bottom_up:
        striped, searched = _LARGE_LEVELS * bitmap * (hosts.count - 1), _SEARCHED_SHARE * directed_edges / p
        in_grid, more = _LARGE_LEVELS * bitmap * (in_column + 2 * in_row), math.sqrt(grid.columns)
    else:
        striped, searched = 4 * n / p * (p - ranks) * (1 - float((1 - 1 / p) ** degree)), directed_edges / p
        in_grid, more = _LARGE_LEVELS * bitmap * (in_column + in_row), 1.0
    return {
        "1d": levels * _CROSSING + ranks * striped * _BYTE + searched * _EDGE,
        "2d": 2 * levels * _CROSSING + ranks * in_grid * _BYTE + more * searched * _EDGE,
    }


def faster_layout(n: int, directed_edges: int, hosts: Hosts, *, bottom_up: bool) -> LayoutChoice:
    """Return the layout whose traversals take less time, whatever fits; arguments as of ``traversal_seconds``."""
    if hosts.count == 1:
        return LayoutChoice("1d", "all ranks share the memory of one host, where 1-D is faster")
    if directed_edges < _LEAST_DEGREE * max(n, 1):
        return LayoutChoice("1d", f"fewer than {_LEAST_DEGREE:g} edges a vertex may make many levels")
    seconds = traversal_seconds(n, directed_edges, hosts, bottom_up=bottom_up)
    times = f"a traversal takes about {seconds['1d'] * 1e3:.3g} ms in 1-D and {seconds['2d'] * 1e3:.3g} ms in 2-D"
    return LayoutChoice("2d" if seconds["2d"] <= _LARGEST_SHARE * seconds["1d"] else "1d", times)


def settled_layout(edges: EdgeList, backend: str, *, mutable: bool) -> LayoutChoice | None:
    """Return what ``layout="auto"`` takes of a graph that has no choice; None for all others."""
    reasons = {
        "on GPUs 1-D has resident kernels, and 2-D has none": backend != "cpu",
        "blocks of the 2-D partition have no pages for updates": mutable,
        "saved graphs are in 1-D": isinstance(edges, BuiltEdges),
        "the numbers of vertices and edges are known only after reading": edges.n is None or edges.m is None,
        "the 2-D partition lacks the exchange that dbfs.exchange names": (
            config.choice("exchange", EXCHANGES) not in ("auto", "shared_memory")
        ),
    }
    return next((LayoutChoice("1d", reason) for reason, holds in reasons.items() if holds), None)


def fitting_layout(faster: LayoutChoice, fits: Callable[[str], bool]) -> LayoutChoice:
    """Return the faster layout, or the other one if only that fits.

    Args:
        faster: see ``faster_layout``.
        fits: returns whether a layout fits the workers.
    """
    first, other = faster.layout, "1d" if faster.layout == "2d" else "2d"
    if fits(first) or not fits(other):
        return faster
    return LayoutChoice(other, f"{first[0]}-D does not fit the workers' memory, and {other[0]}-D does")


def has_bottom_up(edges: EdgeList, options: BuildOptions) -> bool:
    """Return whether a graph built with these options has bottom-up levels."""
    return options.in_edges or not edges.directed


def count_stored(edges: EdgeList, m: int) -> int:
    """Return the directed edges of ``m`` input edges."""
    return m * (2 if edges.symmetrise else 1)


class Grids(Layouts):
    """Grids of ranks: ``2d``, or one by its rows and columns."""

    def require(self, name: str) -> None:
        if name not in (*LAYOUTS, AUTO) and not is_shape(name):
            raise InvalidOptionError(
                f"unknown layout {name!r}; choose one of {', '.join((*LAYOUTS, AUTO))}, or the rows and columns of a "
                "grid, such as 2d:1x4"
            )

    def of(self, name: str, p: int) -> GridLayout:
        return grid_of(name, p)

    def builder(self, backend: str) -> type[GridBuilder]:
        return GridOnGpuBuilder if backend == "cuda" else GridBuilder

    def choose(
        self,
        edges: EdgeList,
        options: BuildOptions,
        backend: str,
        hosts: Hosts,
        fits: Callable[[str], bool],
        *,
        mutable: bool,
    ) -> LayoutChoice:
        settled = settled_layout(edges, backend, mutable=mutable)
        if settled is not None:
            return settled
        n, m = edges.n, edges.m
        assert n is not None
        assert m is not None
        bottom_up = has_bottom_up(edges, options)
        return fitting_layout(faster_layout(n, count_stored(edges, m), hosts, bottom_up=bottom_up), fits)
