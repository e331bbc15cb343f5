"""Measures of vertices and of whole graphs by the distances of many sources, exact or from a sample of the sources.

In: a ``Graph``. Out: tables in the caller's ids, and numbers. Names and definitions are NetworkX's.

A sample has distinct vertices, each vertex with the same chance (Eppstein and Wang, "Fast approximation of centrality",
2004). The standard errors are those of a mean, and of a ratio of means by linearisation, of a sample without
replacement (Cochran, "Sampling Techniques", 1977).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded
from dbfs.errors import DisconnectedGraphError, InvalidOptionError, InvalidVertexError
from dbfs.features.batches.batch import BatchResult
from dbfs.features.batches.checkpoint import folded
from dbfs.features.batches.sweeps import Progress, batches_of, counts_of, disconnected, near_together
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs_workers.features.batches.storage import distance_terms
from dbfs_workers.ids.label_table import whole_table

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds

Floats = NDArray[np.float64]

# A vertex that is in the sample has two other sampled vertices then, which a standard error needs.
_LEAST_SAMPLE: Final = 3
# Vertices whose measure is computed at a time. Their arrays stay in a core's cache.
_BLOCK: Final = 1 << 14


@public
@dataclass(frozen=True)
class VertexMeasure(Tabular):
    """A measure of some vertices, or of all.

    Attributes:
        name: the measure's name, as that of the method of ``Graph``.
        ids: ids of the vertices, as ``Graph.ids_of`` returns them: in the order of the call, ascending for all.
        values: int64 or float64, the measure of each vertex.
        errors: float64, the standard error of each value; None if the values are exact.
        sources: number of vertices that were traversed from.
    """

    name: str
    ids: CallerIds = field(repr=False)
    values: NDArray[Any] = field(repr=False)
    errors: Floats | None = field(repr=False)
    sources: int

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table: ``vertex`` (the id), the measure by its name, ``standard_error`` if it is sampled."""
        return self._rows(slice(None))

    def _rows(self, rows: slice) -> pa.Table:
        errors = {} if self.errors is None else {"standard_error": self.errors[rows]}
        return whole_table(vertex=self.ids[rows], **{self.name: self.values[rows]}, **errors)

    def _card(self) -> Card:
        facts = {"Vertices": f"{len(self.ids):,}", **facts_of(self.values, self.errors, self.sources)}
        return Card(self.name, facts, self._rows(SHOWN))

    def to_dict(self) -> dict[Any, Any]:
        """Return the value of each vertex by its id."""
        return dict(zip(self.ids.tolist(), self.values.tolist(), strict=True))


@dataclass(frozen=True)
class MeanDistance(Tabular):
    """The mean distance of all ordered pairs of different vertices, in edges. ``float()`` gives the value.

    Attributes:
        value: the mean, or its estimate.
        error: the standard error of the estimate; 0 if the value is exact.
        sources: number of vertices that were traversed from.
    """

    value: float
    error: float
    sources: int

    def __float__(self) -> float:
        return self.value

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table of one row: ``value`` and ``standard_error`` (float64), ``sources`` (int64)."""
        columns = {"value": self.value, "standard_error": self.error, "sources": self.sources}
        return whole_table(**{name: np.array([number]) for name, number in columns.items()})

    def _card(self) -> Card:
        error = f"{self.error:,.3g}" if self.error else "none, it is exact"
        return Card("", {"Mean": f"{self.value:,.6g}", "Standard error": error, "Sources": f"{self.sources:,}"})


@public
@dataclass(frozen=True)
class NeighbourhoodFunction(Tabular):
    """The number of pairs of vertices within each distance (Palmer, Gibbons and Faloutsos, "ANF", 2002).

    Attributes:
        pairs: float64[depth + 1], by distance d the number of ordered pairs (u, v) such that v is at most d edges away
            from u, pairs (u, u) included: n at distance 0.
        errors: float64[depth + 1], the standard error of each number; 0 if the numbers are exact.
        sources: number of vertices that were traversed from.
    """

    pairs: Floats
    errors: Floats
    sources: int

    def effective_diameter(self, share: float = 0.9) -> float:
        """Return the distance within which a share of all pairs with a path lie, pairs (u, u) included.

        The distance is interpolated: between d and d + 1 the number of pairs grows along a line.

        Raises:
            InvalidOptionError: ``share`` is not above 0, or is above 1.
        """
        if not 0 < share <= 1:
            raise InvalidOptionError(f"share must be above 0 and at most 1, not {share!r}")
        wanted = share * self.pairs[-1]
        after = int(np.searchsorted(self.pairs, wanted))
        if after == 0:
            return 0.0
        before = self.pairs[after - 1]
        return float(after - 1 + (wanted - before) / (self.pairs[after] - before))

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns ``distance`` (int64), ``pairs`` and ``standard_error`` (float64)."""
        return self._rows(slice(None))

    def _rows(self, rows: slice) -> pa.Table:
        distances = np.arange(self.pairs.size)[rows]
        return whole_table(distance=distances, pairs=self.pairs[rows], standard_error=self.errors[rows])

    def _card(self) -> Card:
        effective = f"{self.effective_diameter():,.4g}, within which 90 % of the pairs lie"
        facts = {"Largest distance": f"{self.pairs.size - 1:,}", "Effective diameter": effective}
        return Card("", facts | {"Sources": f"{self.sources:,}"}, self._rows(SHOWN))


def facts_of(values: NDArray[Any], errors: Floats | None, sources: int) -> dict[str, str]:
    """Return what a notebook says of the values of a measure."""
    spread = f"{values.min():,.6g} to {values.max():,.6g}, mean {values.mean():,.6g}" if values.size else "none"
    kind = "exact" if errors is None else "estimates, with standard errors"
    return {"Values": f"{spread} ({kind})", "Sources": f"{sources:,}"}


@dataclass(frozen=True)
class Options:
    """What the calls of all measures take; see ``Graph.closeness_centrality``."""

    sample: int | None = None
    seed: int = 1
    progress: Progress = None
    checkpoint: str | os.PathLike[str] | None = None
    max_depth: int | None = None

    def __post_init__(self) -> None:
        if self.max_depth is not None:
            whole_count(self.max_depth, "max_depth")

    def named(self, measure: str) -> str:
        """Return the name of a measure in a checkpoint."""
        return measure if self.max_depth is None else f"{measure} within {self.max_depth}"

    def batches(
        self, graph: StripedGraph, sources: NDArray[np.int64], what: str, keep: tuple[str, ...], finished: int
    ) -> Iterator[BatchResult]:
        """Yield batches of all sources but the first ``finished``, each until the next one is taken: ``batches_of``."""
        depth = self.max_depth
        return batches_of(graph, sources, self.progress, what=what, keep=keep, finished=finished, max_depth=depth)


@part_of("Graph")
class MeasuredGraph(Graph[R]):
    """Measures by the distances from many sources."""

    @bounded()
    def khop_sizes(
        self,
        k: int,
        vertices: Any = None,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VertexMeasure:
        """Return the number of vertices (int64) at most ``k`` edges away from each of some vertices, as ``khop`` finds.

        The vertex itself is included. Arguments and errors as for ``eccentricity``, but a graph need not be connected.

        Raises:
            InvalidOptionError: ``k`` is below 0.
            InvalidOptionTypeError: ``k`` is not an integer.
        """
        options = Options(progress=progress, checkpoint=checkpoint, max_depth=whole_count(k, "k"))
        chosen = chosen_vertices(self, vertices)
        values = _rows(self, "khop_sizes", chosen, lambda counts: counts.sum(axis=1), options)
        return VertexMeasure("khop_sizes", self.ids_of(chosen), values, None, chosen.size)

    @bounded()
    def eccentricity(
        self,
        vertices: Any = None,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VertexMeasure:
        """Return the largest distance (int64, in edges) from each of some vertices, as NetworkX's ``eccentricity``.

        Args:
            vertices: an id, or several; None for all that were not deleted. An id that occurs again is left out.
            deadline, progress: see ``bfs_batch``; both are for all sources together.
            checkpoint: a file of the client's machine that keeps what is finished, also if the call ends early. The
                same call of the same graph, loaded in the same order, goes on from there, also in another process.

        Raises:
            DisconnectedGraphError: a vertex does not reach all others.
            InvalidVertexError: a vertex is not in the graph, or was deleted.
            InvalidOptionError: another client updated the graph in between, or the checkpoint is that of another graph
                or measure.
            FormatError, UnreadableFileError, OutputError: the checkpoint is none, or can't be read or written.
            Other errors as for ``bfs_batch``.
        """
        options = Options(progress=progress, checkpoint=checkpoint)
        chosen = chosen_vertices(self, vertices)
        values = depths_of(self, chosen, options)
        return VertexMeasure("eccentricity", self.ids_of(chosen), values, None, chosen.size)

    @bounded()
    def closeness_centrality(
        self,
        vertices: Any = None,
        *,
        wf_improved: bool = True,
        max_depth: int | None = None,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VertexMeasure:
        """Return the closeness (float64) of some vertices: the inverse of the mean distance to them, as NetworkX's.

        Distances count towards the vertex. An undirected graph takes a traversal from each of the vertices. A directed
        graph takes one from every vertex of the graph, for few vertices too; of the graph with all edges turned round,
        ``bfs_batch(vertices).counts`` has the same distances for fewer traversals.

        Args:
            vertices: see ``eccentricity``.
            wf_improved: multiply by the share of the other vertices that have a path to the vertex (Wasserman and
                Faust); without paths the closeness is 0.
            max_depth: edges of the longest path that counts, as igraph's ``cutoff``: a vertex farther away counts as
                one without a path. None for all paths.
            sample: number of random vertices to traverse from, at least 3; the values are estimates then, with standard
                errors (Eppstein and Wang 2004). A vertex that no other sampled vertex reaches gets the value 0 and the
                error NaN; without ``wf_improved`` one that a single sampled vertex reaches gets the error NaN too.
            seed: of the sample, which is the same for any number of ranks.
            deadline, progress, checkpoint: see ``eccentricity``.

        Raises:
            InvalidOptionError: ``sample`` is below 3 or above ``n``, or ``seed`` is below 0.
            InvalidOptionTypeError: ``sample`` or ``seed`` is not an integer.
            Other errors as for ``eccentricity``, but a graph need not be connected.
        """
        return closeness(self, vertices, wf_improved, Options(sample, seed, progress, checkpoint, max_depth))

    @bounded()
    def harmonic_centrality(
        self,
        vertices: Any = None,
        *,
        max_depth: int | None = None,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VertexMeasure:
        """Return the sum of the inverse distances (float64) to some vertices, as NetworkX's ``harmonic_centrality``.

        Directions, arguments and errors as for ``closeness_centrality``.
        """
        return harmonic(self, vertices, Options(sample, seed, progress, checkpoint, max_depth))

    @bounded()
    def average_shortest_path_length(
        self,
        *,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> MeanDistance:
        """Return the mean distance of all ordered pairs of different vertices, in edges; 0 for one vertex.

        As NetworkX's. With ``sample`` it is an estimate with a standard error; see ``closeness_centrality``.

        Raises:
            DisconnectedGraphError: a vertex does not reach all others.
            InvalidOptionError: ``sample`` of a directed graph, since a sample does not show whether all vertices reach
                each other.
            InvalidVertexError: the graph has no vertices.
            Other errors as for ``closeness_centrality``.
        """
        options = Options(sample, seed, progress, checkpoint)
        if options.sample is not None and self.directed:
            raise InvalidOptionError(
                f"{self.name} is directed, and a sample does not show whether all vertices reach each other; leave out "
                "sample=, or take neighbourhood_function(sample=)"
            )
        sources = sources_of(self, options)
        sums = _rows(self, "average_shortest_path_length", sources, _sums, options, connected=True)
        n = self.n - self.deleted
        others = max(1, n - 1)
        value = int(sums.sum()) / (sums.size * others)
        return MeanDistance(value, float(error_of_mean(sums.std(), sums.size, n) / others), sums.size)

    @bounded()
    def wiener_index(
        self,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> float:
        """Return the sum of the distances of all pairs, each undirected pair once; infinite if some pair has no path.

        As NetworkX's. Errors as for ``average_shortest_path_length``, but for a disconnected graph.
        """
        options = Options(progress=progress, checkpoint=checkpoint)
        try:
            sums = _rows(self, "wiener_index", sources_of(self, options), _sums, options, connected=True)
        except DisconnectedGraphError:
            return float("inf")
        return float(sums.sum()) if self.directed else int(sums.sum()) / 2

    @bounded()
    def neighbourhood_function(
        self,
        *,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> NeighbourhoodFunction:
        """Return the number of pairs of vertices within each distance, which also gives the effective diameter.

        With ``sample`` the numbers are estimates with standard errors; see ``closeness_centrality``. Source: Palmer,
        Gibbons and Faloutsos, "ANF", KDD 2002. Errors as for ``average_shortest_path_length``, but a graph need not be
        connected.
        """
        options = Options(sample, seed, progress, checkpoint)
        sources = sources_of(self, options)
        sources = sources[near_together(self, sources)]

        def parts(finished: int, _: NDArray[Any]) -> Iterator[tuple[int, Floats]]:
            for counts in counts_of(self, sources, options.progress, what=name, finished=finished):
                within = np.cumsum(counts, axis=1).astype(np.float64)
                yield len(counts), np.stack([within.sum(axis=0), (within**2).sum(axis=0)])

        def add(these: Floats, those: Floats) -> Floats:
            # Beyond the largest distance of a run its sources find nothing more.
            most = max(these.shape[1], those.shape[1])
            these, those = (np.pad(each, ((0, 0), (0, most - each.shape[1])), "edge") for each in (these, those))
            return these + those

        name, begin = "neighbourhood_function", np.zeros((2, 1))
        sums, squares = folded(self, name, (sources,), begin, parts, add, options.checkpoint)
        k, n = sources.size, self.n - self.deleted
        spread = np.sqrt(np.maximum(0, squares / k - (sums / k) ** 2))
        return NeighbourhoodFunction(sums * (n / k), n * error_of_mean(spread, k, n), k)


def closeness(
    graph: StripedGraph, vertices: Any, wf_improved: bool, options: Options, *, turned: bool = False
) -> VertexMeasure:
    """See ``Graph.closeness_centrality``; ``turned``: that of the graph whose edges ``graph`` has turned round."""

    def work(total: Floats, others: int, all_others: int) -> tuple[Floats, ...]:
        # A vertex without a path has only sums of 0. They are divided by 1 then.
        reaching, length = total[0], np.maximum(1, total[1])
        # Divided as NetworkX does, so that values are equal to the last digit.
        values = reaching / length
        if wf_improved:
            values *= reaching / others
        if options.sample is None:
            return (values,)
        # Of a vertex whether it has a path, and its distance or 0: the variance of their means' ratio, linearised.
        variance = total[2] / others / (length / others) ** 2
        variance -= 1 if wf_improved else 1 / (np.maximum(1, reaching) / others)
        # One path tells how long it is, not how much the paths to the vertex differ.
        told = reaching > (0 if wf_improved else 1)
        return values, _errors(values * np.sqrt(np.maximum(0, variance)), told, others, all_others)

    names = ("reaching", "distance_sum", *(() if options.sample is None else ("distance_squares",)))
    return _measured(graph, "closeness_centrality", vertices, names, work, options, turned)


def harmonic(graph: StripedGraph, vertices: Any, options: Options, *, turned: bool = False) -> VertexMeasure:
    """See ``Graph.harmonic_centrality``; ``turned``: see ``closeness_centrality``."""

    def work(total: Floats, others: int, all_others: int) -> tuple[Floats, ...]:
        if options.sample is None:
            return (total[0],)
        mean, squares = total / others
        spread = np.sqrt(np.maximum(0, squares - mean**2))
        return all_others * mean, all_others * _errors(spread, mean > 0, others, all_others)

    names = ("inverse_sum", *(() if options.sample is None else ("inverse_squares",)))
    return _measured(graph, "harmonic_centrality", vertices, names, work, options, turned)


def _measured(
    graph: StripedGraph,
    measure: str,
    vertices: Any,
    names: tuple[str, ...],
    work: Callable[[Floats, int, int], tuple[Floats, ...]],
    options: Options,
    turned: bool,
) -> VertexMeasure:
    """Return a measure of some vertices by their sums, those of ``names``; other arguments as of ``closeness``.

    Args:
        work: returns the values, and of a sample the errors, of some vertices. It takes their sums as ``_totals``
            returns them, the number of sources that are other vertices, and the number of all other vertices.
    """
    chosen, sampled = chosen_vertices(graph, vertices), options.sample is not None
    all_others = max(1, graph.n - graph.deleted - 1)
    total, sources, own = _totals(graph, measure, chosen, names, options, turned)
    others = min(sources, all_others) if sampled else all_others
    made = np.empty((1 + sampled, chosen.size))
    for first in range(0, chosen.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        made[:, block] = work(total[:, block].astype(np.float64), others, all_others)
    # A vertex of the sample has one source fewer among the others.
    made[:, own] = work(total[:, own].astype(np.float64), sources - 1, all_others)
    return VertexMeasure(measure, graph.ids_of(chosen), made[0], made[1] if sampled else None, sources)


def _errors(spread: Floats, told: NDArray[np.bool], others: int, all_others: int) -> Floats:
    """Return the standard errors of means by the deviation of the sample; NaN where the sample tells nothing."""
    return np.where(told | (others == all_others), error_of_mean(spread, others, all_others), np.nan)


def error_of_mean(spread: Any, sample: Any, population: int) -> Any:
    """Return the standard error of the mean of a sample without replacement, whose standard deviation is ``spread``."""
    left_out = 1 - sample / max(1, population)
    return spread * np.sqrt(left_out / np.maximum(1, sample - 1))


def _totals(
    graph: StripedGraph,
    measure: str,
    vertices: NDArray[np.int64],
    names: tuple[str, ...],
    options: Options,
    turned: bool,
) -> tuple[NDArray[Any], int, NDArray[np.int64]]:
    """Return [names, vertices]: sums over the other vertices by their distances to a vertex, those of ``OF_DISTANCES``.

    Also return the number of sources, and int64, the places of the vertices that are in the sample. The sums are of a
    small unsigned type, if they are whole numbers of one run; else float64.

    In an undirected graph the distances from a vertex are those to it, and so they are where the edges are ``turned``.
    Else, and for a sample, the ranks sum over all sources by vertex.
    """
    if options.sample is None and (turned or not graph.directed):

        def row(counts: NDArray[np.int64]) -> Floats:
            sums: Floats = counts @ distance_terms(names, np.arange(counts.shape[1]))
            return sums

        total = _rows(graph, f"{measure} by source", vertices, row, options, what=measure).T
        return total, vertices.size, np.empty(0, np.int64)
    sources, sampled = sources_of(graph, options) if vertices.size else vertices, options.sample is not None
    # An index of all vertices takes as long as the sums' way from the ranks. A slice takes no time.
    every = vertices.size == graph.n and bool((vertices[1:] > vertices[:-1]).all())
    index: Any = slice(vertices.size) if every else vertices

    def parts(finished: int, _: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        for batch in options.batches(graph, sources, measure, names, finished):
            yield len(batch.sources), batch.sums(*names)[:, index]

    def add(before: NDArray[Any], part: NDArray[Any]) -> NDArray[Any]:
        return part if before is begin else np.add(before, part, dtype=np.float64)

    begin, name = np.zeros((len(names), vertices.size)), f"{measure}, rows of sums by vertex" + ", sampled" * sampled
    total = folded(graph, options.named(name), (sources, vertices), begin, parts, add, options.checkpoint)
    among = np.zeros(graph.n, bool)
    among[sources] = sampled
    return total, sources.size, np.flatnonzero(among[index])


def chosen_vertices(graph: StripedGraph, vertices: Any) -> NDArray[np.int64]:
    """Return the vertices of the caller's ids, each once, in their order; all that were not deleted for None.

    Raise ``InvalidVertexError`` for an id whose vertex was deleted; other errors as for ``Graph.vertex``.
    """
    if vertices is None:
        graph.refresh()
        return graph.deletions.others()
    return np.array(list(dict.fromkeys(graph.vertices_named(vertices, "vertex", present=True))), np.int64)


def sources_of(graph: StripedGraph, options: Options) -> NDArray[np.int64]:
    """Return all vertices that were not deleted, or a random sample, ascending; the same for any number of ranks."""
    graph.refresh()
    vertices = graph.deletions.others()
    if not vertices.size:
        raise InvalidVertexError(f"{graph.name} has no vertices, and the measure is not defined then")
    if options.sample is None:
        return vertices
    count = whole_count(options.sample, "sample", _LEAST_SAMPLE)
    if count > vertices.size:
        raise InvalidOptionError(f"sample must be at most {vertices.size}, the vertices of {graph.name}, not {count}")
    generator = np.random.default_rng(whole_count(options.seed, "seed"))
    return vertices[np.sort(generator.choice(vertices.size, count, replace=False))]


def _rows(
    graph: StripedGraph,
    name: str,
    sources: NDArray[np.int64],
    row: Callable[[NDArray[np.int64]], NDArray[Any]],
    options: Options,
    *,
    what: str | None = None,
    connected: bool = False,
) -> NDArray[Any]:
    """Return a row for each source, made of the vertices at each distance; errors as of ``counts_of`` and ``folded``.

    ``name`` says what the rows are made of, and ``what``, if it is another, what is measured.

    Raises:
        DisconnectedGraphError: ``connected``, and a source does not reach all vertices.
    """
    order = near_together(graph, sources)
    ordered = sources[order]

    def parts(finished: int, _: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        of_what, depth = what or name, options.max_depth
        made = counts_of(graph, ordered, options.progress, what=of_what, finished=finished, max_depth=depth)
        for counts in made:
            reached = counts.sum(axis=1)
            if connected and reached.min() < graph.n - graph.deleted:
                short = int(np.argmin(reached))
                raise disconnected(graph, int(ordered[finished + short]), int(reached[short]))
            finished += len(counts)
            yield len(counts), row(counts)

    def add(these: NDArray[Any], those: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([these, those])

    begin = row(np.zeros((0, 1), np.int64))
    rows = folded(graph, options.named(name), (ordered,), begin, parts, add, options.checkpoint)
    found = np.empty_like(rows)
    found[order] = rows
    return found


def depths_of(graph: StripedGraph, vertices: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    """Return the eccentricity of each of some vertices; errors as for ``Graph.eccentricity``."""
    return _rows(graph, "eccentricity", vertices, _depths, options, connected=True)


def _depths(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    depths: NDArray[np.int64] = np.count_nonzero(counts, axis=1) - 1
    return depths


def _sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    sums: NDArray[np.int64] = counts @ np.arange(counts.shape[1])
    return sums
