"""Betweenness of vertices and edges: the share of all shortest paths that pass through them.

In: a ``Graph``. Out: tables in the caller's ids, with NetworkX's definitions. The ranks sum the dependencies of the
sources (Brandes, "A faster algorithm for betweenness centrality", 2001); see ``path_sweeps`` on the workers. A
sample of the sources gives an estimate with standard errors, as for other measures (Brandes and Pich, "Centrality
estimation in large networks", 2007).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.base.memory import require_room
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Ref
from dbfs.edges.tables.about import About, of_graph
from dbfs.errors import InvalidOptionError
from dbfs.features.batches.checkpoint import folded
from dbfs.features.batches.measures import (
    Floats,
    Options,
    VertexMeasure,
    chosen_vertices,
    error_of_mean,
    facts_of,
    sources_of,
)
from dbfs.features.batches.sweeps import near_together
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs_workers.features.batches.purpose import OF_ROWS
from dbfs_workers.features.batches.storage import SWEPT_SOURCES
from dbfs_workers.ids.label_table import whole_table
from dbfs_workers.serving import queries

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds

# Bytes that the client takes for a stored edge: ends, numbers and sums, and what sorts them.
_EDGE_BYTES: Final = 80


@public
@dataclass(frozen=True)
class EdgeMeasure(Tabular):
    """A measure of all edges. Parallel edges are one, and so is an undirected edge.

    Attributes:
        name: the measure's name, as that of the method of ``Graph``.
        source_ids, target_ids: ids of the ends, ascending by the source's vertex, then by the target's. The source of
            an undirected edge is its smaller vertex.
        values: float64, the measure of each edge.
        errors: float64, the standard error of each value; None if the values are exact.
        sources: number of vertices that were traversed from.
        about: the graph's direction, and its vertices without edges.
    """

    name: str
    source_ids: CallerIds = field(repr=False)
    target_ids: CallerIds = field(repr=False)
    values: Floats = field(repr=False)
    errors: Floats | None = field(repr=False)
    sources: int
    about: About = field(repr=False)
    _holds_edges: ClassVar[bool] = True

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table: ``source`` and ``target`` (ids), the measure by its name, errors if sampled.

        The metadata of its schema are those of ``Subgraph.to_arrow``.
        """
        return self.about.put_on(self._rows(slice(None)))

    def _rows(self, rows: slice) -> pa.Table:
        errors = {} if self.errors is None else {"standard_error": self.errors[rows]}
        ends = {"source": self.source_ids[rows], "target": self.target_ids[rows]}
        return whole_table(**ends, **{self.name: self.values[rows]}, **errors)

    def _card(self) -> Card:
        facts = {"Edges": f"{self.values.size:,}", **facts_of(self.values, self.errors, self.sources)}
        return Card(self.name, facts, self._rows(SHOWN))

    def to_dict(self) -> dict[tuple[Any, Any], float]:
        """Return the value of each edge by its ends' ids, (source, target)."""
        ends = zip(self.source_ids.tolist(), self.target_ids.tolist(), strict=True)
        return dict(zip(ends, self.values.tolist(), strict=True))


@part_of("Graph")
class BetweennessGraph(Graph[R]):
    """The betweenness of vertices and of edges."""

    @bounded()
    def betweenness_centrality(
        self,
        vertices: Any = None,
        *,
        normalized: bool = True,
        endpoints: bool = False,
        max_depth: int | None = None,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VertexMeasure:
        """Return the betweenness (float64) of some vertices: the share of shortest paths that pass them, as NetworkX's.

        Every vertex of the graph is a source, or each one of the sample, for few vertices too (Brandes 2001). Parallel
        edges count once. Numbers of paths are float64. Each rank sweeps over a share of the sources: 4 bytes
        for each edge of the whole graph (8 if it is directed), about 430 for each vertex (810 on a GPU), and one for
        each vertex and source of its share, of 512 sources at a time.

        Args:
            vertices: see ``eccentricity``.
            normalized: divide by the number of pairs of other vertices; else an undirected pair counts once.
            endpoints: whether the ends of a path count as passed.
            max_depth: edges of the longest path that counts, as igraph's ``cutoff``; None for all paths.
            sample: number of random sources, at least 3; the values are estimates then, with standard errors (Brandes
                and Pich 2007). The estimate of a sampled vertex is made of the other ones. A vertex or an edge that no
                path from the sample passes gets the value 0 and the error NaN.
            seed: see ``closeness_centrality``.
            deadline, progress, checkpoint: see ``eccentricity``.

        Raises:
            TooManyPathsError: there are more than about 1.8e308 shortest paths between two vertices.
            InvalidOptionError: the graph has the layout 2d, or is directed and was loaded without in-edges.
            Other errors as for ``closeness_centrality``.
        """
        options = Options(sample, seed, progress, checkpoint, max_depth)
        chosen, sources = chosen_vertices(self, vertices), _sources(self, options)
        values, errors = of_vertices(self, sources, normalized, endpoints, options)
        if vertices is not None or self.deleted:
            values, errors = values[chosen], None if errors is None else errors[chosen]
        return VertexMeasure("betweenness_centrality", self.ids_of(chosen), values, errors, sources.size)

    @bounded()
    def edge_betweenness_centrality(
        self,
        *,
        normalized: bool = True,
        max_depth: int | None = None,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> EdgeMeasure:
        """Return the betweenness (float64) of all edges: the share of shortest paths along them, as NetworkX's.

        The client takes about 80 bytes for each edge stored, and each rank 16 more. Arguments and errors as
        for ``betweenness_centrality``; the ends of a path always count.

        Raises:
            GraphTooLargeError: this machine has no memory for the edges.
        """
        options = Options(sample, seed, progress, checkpoint, max_depth)
        sources = _sources(self, options)
        (starts, ends), values, errors = of_edges(self, sources, normalized, options)
        ids = self.ids()
        name = "edge_betweenness_centrality"
        lone = np.setdiff1d(self.deletions.others(), np.concatenate([starts, ends]))
        about = of_graph(self.name, directed=self.directed, edges=starts.size, lone=ids[lone])
        return EdgeMeasure(name, ids[starts], ids[ends], values, errors, sources.size, about)


def of_vertices(
    graph: StripedGraph, sources: NDArray[np.int64], normalized: bool, endpoints: bool, options: Options
) -> tuple[Floats, Floats | None]:
    """Return float64[n] and float64[n], by vertex the betweenness and its standard error, from some sources.

    Both are NaN where no source is another vertex, and the error where no path from a source passes. Only a sample has
    errors, or None stands for them. Raises as ``Graph.betweenness_centrality``.
    """
    _require(graph)
    sources = sources[near_together(graph, sources, SWEPT_SOURCES)]
    sampled, path = options.sample is not None, options.checkpoint
    # Each takes 8 bytes a vertex on the way from the ranks.
    wanted = zip(OF_ROWS, (True, sampled, endpoints), strict=True)
    names = [name for name, needed in wanted if needed]
    begin = np.zeros((len(names) + endpoints, graph.n))

    def parts(finished: int, _: NDArray[Any]) -> Iterator[tuple[int, Floats]]:
        for made in options.batches(graph, sources, "betweenness_centrality", tuple(names), finished):
            of_run = np.zeros_like(begin)
            of_run[: len(names)] = made.sums(*names)
            if endpoints:
                of_run[-1, np.array(made.source_vertices)] = made.reached - 1
            yield len(made.sources), of_run

    def add(before: Floats, part: Floats) -> Floats:
        return part if before is begin else np.add(before, part, out=None if path else before)

    name = "betweenness_centrality" + ", sampled" * sampled + ", with endpoints" * endpoints
    sums, *more = folded(graph, options.named(name), (sources,), begin, parts, add, path)
    squares = more[0] if sampled else None
    if endpoints:
        # A path ends at the vertex once for each source that reaches it, and begins there for each vertex it reaches.
        reached, own = more[-2:]
        squares = None if squares is None else squares + 2 * sums + reached + own**2
        return _scaled(graph, sums + reached + own, squares, sources.size, graph.n - graph.deleted, normalized)
    others = graph.n - graph.deleted - 1
    values, errors = _scaled(graph, sums, squares, min(sources.size, others), others, normalized)
    # Of a source's paths to itself none passes a vertex, so a source has one source fewer.
    own_squares = None if squares is None else squares[sources]
    values[sources], own_errors = _scaled(graph, sums[sources], own_squares, sources.size - 1, others, normalized)
    if errors is not None:
        errors[sources] = own_errors
    return values, errors


def of_edges(
    graph: StripedGraph, sources: NDArray[np.int64], normalized: bool, options: Options
) -> tuple[NDArray[np.int64], Floats, Floats | None]:
    """Return int64[2, edges], the vertices of each edge's ends; its betweenness; the standard error, as NaN without any
    source, of a sample, else None. The edges are in the order of ``EdgeMeasure``. Raises as
    ``Graph.edge_betweenness_centrality``.
    """
    _require(graph)
    version = graph.version
    require_room(_EDGE_BYTES * graph.m, f"the edges of {graph.name} take", "sum over fewer edges: take a subgraph")
    (ends, place), listed = _edges(graph), graph.record.graph_id
    sources = sources[near_together(graph, sources, SWEPT_SOURCES)]

    def parts(finished: int, _: NDArray[Any]) -> Iterator[tuple[int, Floats]]:
        nonlocal place, listed
        for made in options.batches(graph, sources, name, ("edge_betweenness",), finished):
            if made.version != version:
                graph.require_version(version, "the list of edges")
            if graph.record.graph_id != listed:
                # Built again, perhaps on other ranks.
                place, listed = _edges(graph)[1], graph.record.graph_id
            columns = [np.bincount(place, column, ends.shape[1]) for column in made.edge_sums().T]
            yield len(made.sources), np.stack(columns)

    begin, name = np.zeros((2, ends.shape[1])), "edge_betweenness_centrality"
    sums, squares = folded(graph, options.named(name), (sources,), begin, parts, np.add, options.checkpoint)
    told = None if options.sample is None else squares
    return ends, *_scaled(graph, sums, told, sources.size, graph.n - graph.deleted, normalized)


def _scaled(
    graph: StripedGraph, sums: Floats, squares: Floats | None, sample: int, population: int, normalized: bool
) -> tuple[Floats, Floats | None]:
    """Return the betweenness and its standard error, NaN where the sample tells nothing.

    Args:
        sums, squares: of the dependencies of the sources, and of their squares; no squares, no errors.
        sample: number of sources that count.
        population: number of vertices that might be such sources.
        normalized: whether to divide by the number of pairs.
    """
    pairs = population * (population - 1) if normalized else 1 if graph.directed else 2
    if population < 2:
        return sums, None if squares is None else np.zeros(sums.size)
    scale = population / pairs
    with np.errstate(invalid="ignore"):
        mean = sums / sample
        if squares is None:
            return mean * scale, None
        variance = squares / sample
    variance -= mean**2
    spread = np.sqrt(np.maximum(0, variance, out=variance), out=variance)
    told = (mean > 0) | (sample == population)
    mean *= scale
    return mean, np.where(told, error_of_mean(spread, sample, population) * scale, np.nan)


def _sources(graph: StripedGraph, options: Options) -> NDArray[np.int64]:
    graph.refresh()
    return sources_of(graph, options) if graph.n > graph.deleted else np.empty(0, np.int64)


def _require(graph: StripedGraph) -> None:
    """Raise ``InvalidOptionError`` if the graph is not loaded as the sweeps need it."""
    if graph.layout != "1d":
        raise InvalidOptionError(f"betweenness needs layout='1d', and {graph.name} has {graph.layout!r}; load it anew")
    if graph.directed and not graph.record.infos[0].has_parents:
        raise InvalidOptionError(
            f"the betweenness of a directed graph needs its in-edges; load {graph.name} with in_edges=True (--in-edges)"
        )


def _edges(graph: StripedGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return int64[2, edges], the ends of each edge, and int64, for each stored edge of the ranks its place there."""
    arguments, doing = [(Ref(key),) for key in graph.partition_keys], f"listing the edges of {graph.name}"
    parts = graph.gang.on_each_rank("edge-ends", queries.edge_ends, arguments, of_call(), doing)
    ends = np.concatenate(parts, axis=1).astype(np.int64)
    if graph.order is not None:
        ends = graph.order.vertex[ends].astype(np.int64)
    if not graph.directed:
        ends.sort(axis=0)
    n = max(1, graph.n)
    once, place = np.unique(ends[0] * n + ends[1], return_inverse=True)
    return np.stack(np.divmod(once, n)), place
