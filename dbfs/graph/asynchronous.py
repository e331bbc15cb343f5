"""AsyncGraph and AsyncBFSResult: graphs and results of an asynchronous client, whose methods return awaitables."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import distributed

from dbfs.cluster.awaiting import AsyncView, awaited, forwarded, in_thread, unchanged
from dbfs.cluster.own_process import StaysHere
from dbfs.features.batches import Components, Landmarks
from dbfs.features.batches.batch import BatchResult
from dbfs.features.living.living import LOOK_SECONDS, Change, Watch
from dbfs.features.subgraphs.subgraph import Neighbourhood
from dbfs.graph.counts import GraphCounts
from dbfs.graph.distances import Nearest
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult
from dbfs.graph.tabular import Tabular

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dbfs.base.records import GraphRecord
    from dbfs.engines import LevelReport
    from dbfs_workers.search.partition.ordering import DegreeOrder

P = ParamSpec("P")
S = TypeVar("S", bound=StaysHere)


def _to_arrow(result: Tabular) -> pa.Table:
    """Return the table of a result of any class."""
    return result.to_arrow()


class AsyncTabular(AsyncView[S]):
    """Base of results whose tables need the cluster: the methods of ``Tabular`` return awaitables.

    ``await result.to_arrow()`` is a table that has Arrow's stream.
    """

    to_arrow = awaited(_to_arrow, unchanged)
    to_pandas = awaited(Tabular.to_pandas, unchanged)
    to_polars = awaited(Tabular.to_polars, unchanged)
    to_parquet = awaited(Tabular.to_parquet, unchanged)


class AsyncNearest(AsyncTabular[Any]):
    """The pair of arrays ``Nearest`` of an asynchronous client's graph."""

    def __init__(self, nearest: Nearest) -> None:
        super().__init__(nearest, nearest.graph.gang.client)

    __len__ = forwarded(Nearest.__len__)
    __getitem__ = forwarded(Nearest.__getitem__)
    __iter__ = forwarded(Nearest.__iter__)

    @property
    def elsewhere(self) -> str:
        """See ``StaysHere``."""
        return "send its two arrays instead"


class AsyncBFSResult(AsyncView[BFSResult]):
    """The result of ``AsyncGraph.bfs``.

    ``distances``, ``predecessors``, ``path_to``, ``vertices_at``, ``vertices``, ``tree``, ``to_arrow``,
    ``to_pandas``, ``to_polars``, ``to_dict``, ``to_parquet``, ``to_dask_dataframe``, ``to_dask_array``, ``nearest``,
    ``validate``, ``update``, ``changed``, ``publish`` and ``release`` take the arguments of ``BFSResult``'s methods,
    and return awaitables. ``levels``, ``reports`` and ``summary`` need no cluster, and are those of ``BFSResult``.

    Attributes:
        graph: the graph that was traversed.
        synchronous: the ``BFSResult``. Its methods block: call them in other threads only.

    All other attributes are those of ``BFSResult``.
    """

    def __init__(self, result: BFSResult) -> None:
        super().__init__(result, result.graph.gang.client)
        self.graph = AsyncGraph(result.graph)
        self.sources = result.sources
        self.run_id = result.run_id
        self.engine = result.engine
        self.depth = result.depth
        self.reached = result.reached
        self.unreached = result.unreached
        self.edges = result.edges
        self.seconds = result.seconds
        self.setup_seconds = result.setup_seconds
        self.mteps = result.mteps
        self.version = result.version
        self.counters = result.counters

    distances = awaited(BFSResult.distances, unchanged)
    predecessors = awaited(BFSResult.predecessors, unchanged)
    path_to = awaited(BFSResult.path_to, unchanged)
    vertices_at = awaited(BFSResult.vertices_at, unchanged)
    vertices = awaited(BFSResult.vertices, unchanged)
    tree = awaited(BFSResult.tree, unchanged)
    to_arrow = awaited(BFSResult.to_arrow, unchanged)
    to_pandas = awaited(BFSResult.to_pandas, unchanged)
    to_polars = awaited(BFSResult.to_polars, unchanged)
    to_dict = awaited(BFSResult.to_dict, unchanged)
    to_parquet = awaited(BFSResult.to_parquet, unchanged)
    to_dask_dataframe = awaited(BFSResult.to_dask_dataframe, unchanged)
    to_dask_array = awaited(BFSResult.to_dask_array, unchanged)
    nearest = awaited(BFSResult.nearest, AsyncNearest)
    validate = awaited(BFSResult.validate, unchanged)
    changed = awaited(BFSResult.changed, unchanged)
    update = awaited(BFSResult.update, lambda result: AsyncBFSResult(result))
    publish = awaited(BFSResult.publish, unchanged)
    release = awaited(BFSResult.release, unchanged)

    @property
    def farthest(self) -> int | None:
        """Distance beyond which the traversal left vertices unreached; None if it reached all it could."""
        return self.synchronous.farthest

    @property
    def reports(self) -> tuple[LevelReport, ...]:
        """One report for each level."""
        return self.synchronous.reports

    @property
    def levels(self) -> pd.DataFrame:
        """One row for each level: see ``BFSResult.levels``."""
        return self.synchronous.levels

    summary = forwarded(BFSResult.summary)


class AsyncBatchResult(AsyncTabular[BatchResult]):
    """The result of ``AsyncGraph.bfs_batch``: ``BatchResult``, whose methods return awaitables.

    Attributes:
        graph: the graph that was traversed.
        synchronous: the ``BatchResult``. Its methods block: call them in other threads only.

    All other attributes are those of ``BatchResult``.
    """

    def __init__(self, result: BatchResult) -> None:
        super().__init__(result, result.graph.gang.client)
        self.graph = AsyncGraph(result.graph)
        self.sources = result.sources
        self.source_vertices = result.source_vertices
        self.targets = result.targets
        self.target_vertices = result.target_vertices
        self.keep = result.keep
        self.counts = result.counts
        self.reached = result.reached
        self.depth = result.depth
        self.edges = result.edges
        self.seconds = result.seconds
        self.groups = result.groups
        self.version = result.version
        self.run_id = result.run_id

    distances = awaited(BatchResult.distances, unchanged)
    reached_bits = awaited(BatchResult.reached_bits, unchanged)
    target_distances = awaited(BatchResult.target_distances, unchanged)
    nearest = awaited(BatchResult.nearest, AsyncNearest)
    to_dask_array = awaited(BatchResult.to_dask_array, unchanged)
    validate = awaited(BatchResult.validate, unchanged)
    release = awaited(BatchResult.release, unchanged)


def _views(results: list[BFSResult]) -> list[AsyncBFSResult]:
    return [AsyncBFSResult(result) for result in results]


def _streaming(
    method: Callable[Concatenate[Graph, P], Iterator[BFSResult]],
) -> Callable[Concatenate[AsyncGraph, P], AsyncIterator[AsyncBFSResult]]:
    """Return a method that yields results as they finish."""

    @functools.wraps(method)
    async def call(self: AsyncGraph, /, *arguments: P.args, **options: P.kwargs) -> AsyncIterator[AsyncBFSResult]:
        results = method(self.synchronous, *arguments, **options)
        while (result := await in_thread(self.gang.client, next, results, None)) is not None:
            view = AsyncBFSResult(result)
            # No reference stays here: the labels are dropped with the caller's last reference to the result.
            del result
            yield view
            del view

    return call


class AsyncNeighbourhood(AsyncView[Neighbourhood]):
    """The result of ``AsyncGraph.khop``: that of ``Graph.khop``, whose ``subgraph`` returns an awaitable."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        super().__init__(neighbourhood, neighbourhood.graph.gang.client)
        self.vertices = neighbourhood.vertices
        self.distances = neighbourhood.distances

    _holds_edges = Neighbourhood._holds_edges
    subgraph = awaited(Neighbourhood.subgraph, unchanged)

    to_arrow = forwarded(Neighbourhood.to_arrow)
    to_pandas = forwarded(Neighbourhood.to_pandas)
    to_polars = forwarded(Neighbourhood.to_polars)
    to_parquet = forwarded(Neighbourhood.to_parquet)
    __arrow_c_stream__ = forwarded(Neighbourhood.__arrow_c_stream__)
    tolist = forwarded(Neighbourhood.tolist)
    __len__ = forwarded(Neighbourhood.__len__)
    __contains__ = forwarded(Neighbourhood.__contains__)
    __iter__ = forwarded(Neighbourhood.__iter__)
    __array__ = forwarded(Neighbourhood.__array__)


class AsyncWatch(AsyncView[Watch]):
    """A result that is kept up to date: what ``AsyncGraph.watch`` returns.

    ``async for change in watch:`` waits for batches and yields a ``Change`` after each, until ``timeout`` passes
    without one. No thread is in use between two looks for a batch.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch, watch.result.graph.gang.client)

    update = awaited(Watch.update, unchanged)

    @property
    def result(self) -> AsyncBFSResult:
        """The result, as it is now."""
        return AsyncBFSResult(self.synchronous.result)

    async def __aiter__(self) -> AsyncIterator[Change]:
        last = time.monotonic()
        while self.synchronous.timeout is None or time.monotonic() < last + self.synchronous.timeout:
            change = await self.update()
            if change is None:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                yield change
                last = time.monotonic()


class AsyncComponents(AsyncTabular[Components]):
    """The components of an asynchronous client's graph: ``Components``, but its methods return awaitables."""

    def __init__(self, components: Components, client: distributed.Client) -> None:
        super().__init__(components, client)
        self.graph = components.graph
        self.labels = components.labels
        self.sizes = components.sizes
        self.count = components.count
        self.isolated = components.isolated

    vertices = awaited(Components.vertices, unchanged)


class AsyncLandmarks(AsyncTabular[Landmarks]):
    """The landmarks of an asynchronous client's graph: ``Landmarks``, but its methods return awaitables."""

    def __init__(self, landmarks: Landmarks) -> None:
        super().__init__(landmarks, landmarks.graph.gang.client)
        self.ids = landmarks.ids
        self.distances = landmarks.distances
        self.version = landmarks.version

    bounds = awaited(Landmarks.bounds, unchanged)


class AsyncGraph(AsyncView[Graph], GraphCounts):
    """A graph of an asynchronous client. ``await dbfs.load(...)`` and ``await dbfs.open(...)`` return one.

    ``bfs``, ``bfs_many``, ``bfs_batch``, ``khop``, ``khop_sizes``, ``components``, ``neighbors``, ``degree``,
    ``degree_counts``, ``eccentricity_bound``, ``diameter``, ``radius``, ``eccentricity``, ``closeness_centrality``,
    ``harmonic_centrality``, ``betweenness_centrality``, ``edge_betweenness_centrality``,
    ``average_shortest_path_length``, ``wiener_index``, ``neighbourhood_function``, ``distance_matrix``, ``landmarks``,
    ``sample_sources``, ``vertex``, ``vertices_of``, ``id_of``, ``ids_of``, ``ids``, ``refresh``, ``insert_edges``,
    ``delete_edges``, ``insert_vertices``, ``delete_vertices``, ``compact``, ``freeze``, ``thaw``, ``watch``, ``save``
    and ``unload`` take the arguments of ``Graph``'s methods, and return awaitables.
    ``bfs_stream`` returns an asynchronous iterator. ``await graph.contains(id)`` stands for ``id in graph``. ``async
    with graph:`` unloads the graph at the end. A call that is cancelled ends its run. Functions given as ``progress``
    are called in another thread.

    Attributes:
        synchronous: the ``Graph``. Its methods block: call them in other threads only.
        gang: the workers that hold the graph.

    All other attributes are those of ``Graph``.
    """

    def __init__(self, graph: Graph) -> None:
        AsyncView.__init__(self, graph, graph.gang.client)
        GraphCounts.__init__(self, graph.record, graph.formed)
        self.id_type = graph.id_type
        self.gang = graph.gang

    bfs = awaited(Graph.bfs, AsyncBFSResult)
    bfs_many = awaited(Graph.bfs_many, _views)
    bfs_batch = awaited(Graph.bfs_batch, AsyncBatchResult)
    bfs_stream = _streaming(Graph.bfs_stream)
    khop = awaited(Graph.khop, AsyncNeighbourhood)
    khop_sizes = awaited(Graph.khop_sizes, unchanged)
    subgraph = awaited(Graph.subgraph, unchanged)
    contains = awaited(Graph.__contains__, unchanged)
    degree = awaited(Graph.degree, unchanged)
    neighbors = awaited(Graph.neighbors, unchanged)
    degree_counts = awaited(Graph.degree_counts, unchanged)
    eccentricity_bound = awaited(Graph.eccentricity_bound, unchanged)
    diameter = awaited(Graph.diameter, unchanged)
    radius = awaited(Graph.radius, unchanged)
    eccentricity = awaited(Graph.eccentricity, unchanged)
    closeness_centrality = awaited(Graph.closeness_centrality, unchanged)
    harmonic_centrality = awaited(Graph.harmonic_centrality, unchanged)
    betweenness_centrality = awaited(Graph.betweenness_centrality, unchanged)
    edge_betweenness_centrality = awaited(Graph.edge_betweenness_centrality, unchanged)
    average_shortest_path_length = awaited(Graph.average_shortest_path_length, unchanged)
    wiener_index = awaited(Graph.wiener_index, unchanged)
    neighbourhood_function = awaited(Graph.neighbourhood_function, unchanged)
    distance_matrix = awaited(Graph.distance_matrix, unchanged)
    landmarks = awaited(Graph.landmarks, AsyncLandmarks)
    sample_sources = awaited(Graph.sample_sources, unchanged)
    vertex = awaited(Graph.vertex, unchanged)
    vertices_of = awaited(Graph.vertices_of, unchanged)
    id_of = awaited(Graph.id_of, unchanged)
    ids_of = awaited(Graph.ids_of, unchanged)
    ids = awaited(Graph.ids, unchanged)
    refresh = awaited(Graph.refresh, unchanged)
    insert_edges = awaited(Graph.insert_edges, unchanged)
    delete_edges = awaited(Graph.delete_edges, unchanged)
    insert_vertices = awaited(Graph.insert_vertices, unchanged)
    delete_vertices = awaited(Graph.delete_vertices, unchanged)
    compact = awaited(Graph.compact, unchanged)
    freeze = awaited(Graph.freeze, unchanged)
    thaw = awaited(Graph.thaw, unchanged)
    watch = awaited(Graph.watch, AsyncWatch)
    save = awaited(Graph.save, unchanged)
    unload = awaited(Graph.unload, unchanged)

    @functools.wraps(Graph.components)
    async def components(self, **options: Any) -> AsyncComponents:
        """Return the connected components: see ``Graph.components``."""
        return AsyncComponents(await in_thread(self._client, self.synchronous.components, **options), self._client)

    @property
    def record(self) -> GraphRecord:
        """The service's record of the graph, as ``synchronous`` read it last."""
        return self.synchronous.record

    @property
    def version(self) -> Coroutine[Any, Any, int]:
        """Awaitable of ``Graph.version``."""
        return in_thread(self.gang.client, lambda: self.synchronous.version)

    @property
    def unloaded(self) -> bool:
        """Whether this object has unloaded the graph."""
        return self.synchronous.unloaded

    @property
    def order(self) -> Coroutine[Any, Any, DegreeOrder | None]:
        """Awaitable of ``Graph.order``: the internal numbering of a graph loaded with ``order="degree"``; else None."""
        return in_thread(self.gang.client, lambda: self.synchronous.order)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.unload()
