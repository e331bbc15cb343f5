"""The 1-D and the 2-D partition beside each other: bytes sent and time of a traversal, by graph and number of ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import dask.system
import distributed

import dbfs
from benchmarks.gpu import revision
from dbfs.building.build import LAYOUTS, BuildOptions
from dbfs.errors import EdgeInputError, FormatError, MissingFileError
from dbfs.graph.graph import Graph
from dbfs_workers.storage.grid import Grid

_NAME = "layouts"
# The fastest repeat counts, since other work on the machine only adds time.
_REPEATS = 5


@dataclass(frozen=True)
class LayoutCost:
    """The costs of a graph's traversals in one layout. Counts are means over the sources, of all ranks together.

    Attributes:
        graph: the generator's spec or the file.
        n: number of vertices.
        m: number of directed edges stored.
        layout: ``1d`` or ``2d``.
        predecessors: whether predecessors are recorded.
        ranks: number of ranks.
        cores: CPU cores that the ranks share.
        peers: number of ranks that a rank exchanges bins and bitmaps with.
        levels: number of levels.
        bottom_up_levels: number of bottom-up levels.
        edges: edges that the levels looked at.
        bytes_sent: bytes that the ranks send.
        ratio: ``bytes_sent`` divided by those of ``1d``; 1 if nothing is sent.
        milliseconds: time of a traversal's levels: the median over the sources of the fastest of five.
        bytes_per_rank: mean bytes of a rank's partition.
        state_bytes: bytes of a rank's state and bins in a traversal, by ``dbfs.estimate``; None if the size of the
            graph is known only after reading.
        backend: ``cpu`` or ``cuda``.
        exchange: how the ranks exchanged.
    """

    graph: str
    n: int
    m: int
    layout: str
    predecessors: bool
    ranks: int
    cores: int
    peers: int
    levels: float
    bottom_up_levels: float
    edges: float
    bytes_sent: float
    ratio: float
    milliseconds: float
    bytes_per_rank: float
    state_bytes: int | None
    backend: str = "cpu"
    exchange: str = "shared_memory"


def bench_layouts(
    client: distributed.Client,
    graphs: Sequence[str],
    ranks: Sequence[int],
    sources: int,
    order: str = "given",
    started: Callable[[str], None] | None = None,
    backend: str = "cpu",
) -> Iterator[LayoutCost]:
    """Measure the same traversals in each layout, with and without predecessors.

    Args:
        client: client of a cluster with at least as many workers on one host as the largest number of ranks.
        graphs: generators or files.
        ranks: numbers of ranks; each graph is measured on each of them.
        sources: number of random sources.
        order: order of the vertices.
        started: called with a graph and a number of ranks before they are measured.
        backend: ``cpu`` or ``cuda``.
    """
    for graph in graphs:
        for p in ranks:
            if started is not None:
                started(f"{graph}, {p} rank{'s' * (p > 1)}")
            yield from _compare(client, graph, p, sources, order, backend)


def _compare(
    client: distributed.Client, graph: str, ranks: int, sources: int, order: str, backend: str
) -> Iterator[LayoutCost]:
    """Measure one graph on one number of ranks in each layout."""
    striped: dict[bool, float] = {}
    for layout in LAYOUTS:
        state = _state_bytes(graph, ranks, BuildOptions(order=order, layout=layout), backend)
        options: dict[str, Any] = {"order": order, "layout": layout, "backend": backend, "progress": False}
        with dbfs.load(graph, client=client, ranks=ranks, **options) as loaded:
            chosen = loaded.sample_sources(sources)
            for predecessors in (False, True):
                cost = _cost(loaded, graph, layout, chosen, predecessors, state)
                first = striped.setdefault(predecessors, cost["bytes_sent"])
                yield LayoutCost(**cost, ratio=cost["bytes_sent"] / first if first else 1.0)


def _cost(
    graph: Graph, spec: str, layout: str, sources: Sequence[int], predecessors: bool, state: int | None
) -> dict[str, Any]:
    """Run the traversals; return the fields of a ``LayoutCost`` but the ratio."""
    # The first run allocates the state that the next ones share.
    graph.bfs(sources[0], predecessors=predecessors, progress=False).release()
    runs = [graph.bfs_many(sources, predecessors=predecessors, progress=False) for _ in range(_REPEATS)]
    results = runs[0]
    levels = [result.levels for result in results]
    return {
        "graph": spec,
        "n": graph.n,
        "m": graph.m,
        "layout": layout,
        "predecessors": predecessors,
        "ranks": graph.ranks,
        "cores": int(dask.system.cpu_count()),
        "peers": count_peers(layout, graph.ranks),
        "levels": fmean(len(of) for of in levels),
        "bottom_up_levels": fmean(int((of["direction"] == "bottom-up").sum()) for of in levels),
        "edges": fmean(int(of["edges"].sum()) for of in levels),
        "bytes_sent": fmean(int(of["bytes_sent"].sum()) for of in levels),
        "milliseconds": median(min(result.seconds for result in of) for of in zip(*runs, strict=True)) * 1e3,
        "bytes_per_rank": fmean(graph.nbytes),
        "state_bytes": state,
        "backend": graph.backend,
        "exchange": graph.exchange,
    }


def _state_bytes(graph: str, ranks: int, options: BuildOptions, backend: str) -> int | None:
    """Return the bytes of a rank's state and bins; None if they are known only after reading the graph."""
    try:
        run = dbfs.estimate(graph, ranks, options, backend=backend).run
    except EdgeInputError:
        return None
    return sum(run.values()) - run["labels"]


def count_peers(layout: str, ranks: int) -> int:
    """Return the number of ranks that a rank exchanges bins and bitmaps with."""
    grid = Grid.of(ranks)
    return ranks - 1 if layout == "1d" else grid.rows + grid.columns - 2


def to_json(costs: Sequence[LayoutCost]) -> dict[str, Any]:
    """Return the measurements as a JSON object, with the benchmark's name and the git revision."""
    return {"benchmark": _NAME, "revision": revision(), "costs": [asdict(cost) for cost in costs]}


def read(path: Path) -> list[LayoutCost]:
    """Read the measurements that ``dbfs bench layouts --json`` printed.

    Raises:
        MissingFileError: there is no such file.
        FormatError: the file is not the JSON of that command.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["benchmark"] != _NAME:
            raise ValueError(f"the results of dbfs bench {saved['benchmark']}")
        return [LayoutCost(**cost) for cost in saved["costs"]]
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: not the JSON that dbfs bench layouts --json prints ({type(error).__name__}: {error})"
        ) from error
