"""Graphs and results of an asynchronous client, whose methods return awaitables: the core's parts of the classes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from dbfs.cluster.awaiting import AsyncView, awaited, forwarded, in_thread, unchanged
from dbfs.cluster.own_process import StaysHere
from dbfs.graph.counts import GraphCounts
from dbfs.graph.distances import Nearest
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult
from dbfs.graph.tabular import Tabular

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dbfs.base.records import GraphRecord
    from dbfs.cluster.gang import Gang
    from dbfs.engines import LevelReport
    from dbfs_workers.search.partition.ordering import DegreeOrder

P = ParamSpec("P")
S = TypeVar("S", bound=StaysHere)
T = TypeVar("T")
A = TypeVar("A")


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
        return "send its two arrays instead"


class AsyncBFSResult(AsyncView[BFSResult]):
    """The core's part of ``dbfs.AsyncBFSResult``. Features add theirs in subclasses."""

    def __init__(self, result: BFSResult) -> None:
        super().__init__(result, result.graph.gang.client)
        self.graph = result.graph.view()
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
        self.attempts = result.attempts

    distances = awaited(BFSResult.distances, unchanged)
    predecessors = awaited(BFSResult.predecessors, unchanged)
    path_to = awaited(BFSResult.path_to, unchanged)
    vertices_at = awaited(BFSResult.vertices_at, unchanged)
    vertices = awaited(BFSResult.vertices, unchanged)
    to_arrow = awaited(BFSResult.to_arrow, unchanged)
    to_pandas = awaited(BFSResult.to_pandas, unchanged)
    to_polars = awaited(BFSResult.to_polars, unchanged)
    to_dict = awaited(BFSResult.to_dict, unchanged)
    to_parquet = awaited(BFSResult.to_parquet, unchanged)
    to_dask_dataframe = awaited(BFSResult.to_dask_dataframe, unchanged)
    to_dask_array = awaited(BFSResult.to_dask_array, unchanged)
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


def streamed(
    method: Callable[Concatenate[Any, P], Iterator[T]], view: Callable[[T], A]
) -> Callable[Concatenate[AsyncGraph, P], AsyncIterator[A]]:
    """Return a method of a view that yields results as they finish; arguments as of ``awaited``."""

    @functools.wraps(method)
    async def call(self: AsyncGraph, /, *arguments: P.args, **options: P.kwargs) -> AsyncIterator[A]:
        results = method(self.synchronous, *arguments, **options)
        while (result := await in_thread(self.gang.client, next, results, None)) is not None:
            made = view(result)
            # No reference stays here: the labels are dropped with the caller's last reference to the result.
            del result
            yield made
            del made

    return call


class AsyncGraph(AsyncView[Graph[BFSResult]], GraphCounts):
    """The core's part of ``dbfs.AsyncGraph``. Features add theirs in subclasses."""

    def __init__(self, graph: Graph[BFSResult]) -> None:
        AsyncView.__init__(self, graph, graph.gang.client)
        GraphCounts.__init__(self, graph.record, graph.formed)
        self.id_type = graph.id_type

    contains = awaited(Graph.__contains__, unchanged)
    degree = awaited(Graph.degree, unchanged)
    neighbors = awaited(Graph.neighbors, unchanged)
    degree_counts = awaited(Graph.degree_counts, unchanged)
    sample_sources = awaited(Graph.sample_sources, unchanged)
    vertex = awaited(Graph.vertex, unchanged)
    vertices_of = awaited(Graph.vertices_of, unchanged)
    id_of = awaited(Graph.id_of, unchanged)
    ids_of = awaited(Graph.ids_of, unchanged)
    ids = awaited(Graph.ids, unchanged)
    refresh = awaited(Graph.refresh, unchanged)
    unload = awaited(Graph.unload, unchanged)

    @property
    def gang(self) -> Gang:
        """The workers that hold the graph."""
        return self.synchronous.gang

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
