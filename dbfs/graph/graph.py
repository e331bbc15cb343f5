"""Graph: a graph striped over a gang of workers, which traverses it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from dbfs.base.calls import part_of
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.base.units import format_bytes
from dbfs.cluster.deadline import bounded
from dbfs.errors import (
    GraphNotFoundError,
    InvalidVertexError,
    LateError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.graph.counts import edges_in_words, vertices_in_words
from dbfs.graph.degrees import DegreeCounts, degree_counts, neighbours, sample_sources
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import stream, traverse
from dbfs.service.client import ServiceClient
from dbfs.service.messages import UnloadGraph
from dbfs_workers.base.spec import Purpose
from dbfs_workers.base.text import counted

R = TypeVar("R", bound=BFSResult, covariant=True)


@part_of("Graph")
class Graph(StripedGraph, Generic[R]):
    """The core's part of ``dbfs.Graph``: traversals, degrees, and unloading. Features add theirs in subclasses.

    Attributes:
        result_type: the class of its results.
    """

    _inner = StripedGraph._inner | {"result_type", "search"}

    result_type: type[R]

    def search(
        self,
        source: Any,
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        targets: Any = None,
        direction: str = "auto",
        engine: str = "auto",
        chosen: Callable[[tuple[int, ...], tuple[int, ...]], Purpose | None] | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> R:
        """Run a traversal; arguments and errors as of ``Graph.bfs``, which adds options of features.

        ``chosen`` returns what is made instead of a plain traversal, given the vertices of the sources and the targets.
        The first engine makes that, whatever ``dbfs.engine`` says.
        """
        sources = self.vertices_named(source, "source")
        if not sources:
            raise InvalidVertexError("bfs needs at least one source")
        wanted = () if targets is None else self.vertices_named(targets, "target", present=True)
        return traverse(
            self,
            self.result_type,
            [sources],
            targets=wanted,
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine if chosen is None else next(iter(self.engines)),
            purpose=None if chosen is None else chosen(sources, wanted),
            progress=progress,
        )[0]

    @bounded()
    def bfs_many(
        self,
        sources: Any,
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        engine: str = "auto",
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> list[R]:
        """Run a traversal from each source, one after another in one run of the gang; labels stay on the workers.

        Each result has levels, times and predecessors of its own. On a large graph the traversals take as long as calls
        of ``bfs`` in a loop: a run spares the call, and not the levels. ``bfs_batch`` makes counts or distances of many
        sources several times as fast, on graphs whose sources share levels.

        Arguments and errors as for ``bfs``. The deadline is for all traversals together, and their labels must fit at
        once. ``bfs_stream`` makes any number of traversals.
        """
        each = self.vertices_named(sources, "source")
        if not each:
            return []
        return traverse(
            self,
            self.result_type,
            [(source,) for source in each],
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            progress=progress,
        )

    def bfs_stream(
        self,
        sources: Any,
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        engine: str = "auto",
        deadline: float | str | None = None,
    ) -> Iterator[R]:
        """Run a traversal from each source, and yield the results in order, for any number of sources.

        At most 16 traversals are made before the caller takes their results. The labels of a result are freed when the
        caller drops it, so the workers keep few at a time. Dropping the iterator ends the traversals.

        Arguments and errors as for ``bfs``. An iterator of sources is read as sources are needed. The deadline is for
        each run of a few traversals.
        """

        def run(some: list[Any]) -> list[R]:
            return self.bfs_many(
                some,
                predecessors=predecessors,
                max_depth=max_depth,
                direction=direction,
                engine=engine,
                deadline=deadline,
            )

        return stream([sources] if self.lookup.is_one(sources) else sources, run)

    @bounded()
    def sample_sources(self, count: int, seed: int = 1) -> list[Any]:
        """Return the ids of distinct random vertices of degree at least 1, self-loops not counted.

        The vertices are the same for any number of ranks.

        Raises:
            InvalidOptionError: the graph has fewer such vertices than ``count``, or ``count`` is below 0.
            InvalidOptionTypeError: ``count`` is not an integer.
        """
        return self.python_ids(sample_sources(self, count, seed))

    @bounded()
    def degree_counts(self) -> DegreeCounts:
        """Return the degrees that occur, ascending, and the number of vertices of each: two int64 arrays, and a table.

        A degree is the number of edges stored at a vertex: duplicates count, a self-loop counts once. In a directed
        graph it is the out-degree. The workers count. Errors as for ``components``.
        """
        return degree_counts(self)

    @bounded()
    def neighbors(self, id: Any) -> list[Any]:  # noqa: A002 - the word users expect
        """Return the ids to which edges lead from an id, ascending and each once; the id itself if it has a self-loop.

        Raises:
            InvalidVertexError: the id is not in the graph, or its vertex was deleted.
            InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        self.refresh()
        return self.python_ids(np.unique(neighbours(self, self.vertex(id))).tolist())

    @bounded()
    def degree(self, id: Any) -> int:  # noqa: A002 - the word users expect
        """Return the number of edges stored at an id, counted as by ``degree_counts``. Errors as for ``neighbors``."""
        self.refresh()
        return neighbours(self, self.vertex(id)).size

    @bounded()
    def __contains__(self, id: Any) -> bool:  # noqa: A002 - the word users expect
        """Return whether the graph has an id, whose vertex was not deleted.

        Raises:
            InvalidVertexTypeError: it is not of the type of the graph's ids. Other errors as for ``neighbors``.
        """
        self.refresh()
        if not self.lookup.has(id):
            return False
        try:
            if self.deleted:
                neighbours(self, self.vertex(id))
        except InvalidVertexError:
            return False
        return True

    @bounded()
    def unload(self, *, deadline: float | str | None = None) -> None:
        """Free the graph's memory on the workers, for all clients. The results of this object keep their labels.

        Args:
            deadline: seconds (or a Dask duration) that the call may wait; ``dbfs.deadline`` if None. Workers that
                answer later free their memory then.
        """
        if not self._unloaded:
            # Unloading frees the labels that ranks keep, so that they are published first.
            for result in list(self.results):
                # Labels on a lost or late worker, or of a graph that another client unloaded, are lost. The graph is
                # unloaded all the same.
                with contextlib.suppress(WorkerLostError, GraphNotFoundError, ResultReleasedError, LateError):
                    result.publish()
            self._unloaded = True
            self.numbering.release()
            client = self.gang.client
            ServiceClient.of(client).call(UnloadGraph(self.record.graph_id, client.id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unload()

    def __repr__(self) -> str:
        state = " (unloaded)" if self._unloaded else ""
        layout = self.record.layout
        shape = "" if layout is None else f" in {layout.in_words}"
        return (
            f"<dbfs.Graph {self.name}: {vertices_in_words(self)}, {edges_in_words(self)}, "
            f"{counted(self.ranks, 'rank')}{shape}, "
            f"{format_bytes(sum(self.nbytes))}{state}>"
        )
