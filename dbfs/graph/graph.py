"""Graph: a graph striped over a gang of workers, which traverses it."""

from __future__ import annotations

import contextlib
import threading
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from types import TracebackType
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs import config, engines
from dbfs.cluster.gang import Deadline, Gang, Ref, TaskGraph, release
from dbfs.display.progress import ProgressOption, run_reporter
from dbfs.errors import (
    GraphNotFoundError,
    InvalidOptionError,
    InvalidVertexError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.graph.counts import GraphCounts, edges_in_words
from dbfs.graph.result import BFSResult
from dbfs.graph.sampling import sample_sources
from dbfs.graph.stream import stream
from dbfs.integers import vertex_number, whole_count
from dbfs.records import Formed, GraphRecord, RunProgress
from dbfs.service.client import ServiceClient
from dbfs.service.messages import UnloadGraph
from dbfs.units import format_bytes
from dbfs_workers.spec import DIRECTIONS, TraversalSpec
from dbfs_workers.tasks import queries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dbfs.analytics import Components, DiameterBounds
    from dbfs_workers.storage.ordering import DegreeOrder


class Graph(GraphCounts):
    """A graph whose vertices are striped over the workers of a gang. ``dbfs.load`` and ``dbfs.open`` return one.

    Vertex ids are 0..n-1. If a file has other ids (an edge list with gaps), ``external_ids`` lists them in order: the
    file's id of vertex ``v`` is ``external_ids[v]``, and ``vertex(external_id)`` is the inverse.

    Attributes:
        name: the name given to ``load``, else the name of the edge list.
        directed: whether edges hold in one direction only.
        read_seconds: time of reading, if reading finished before building (edges kept, external ids); else 0.
        build_seconds: time of reading and building.
        backend: where the graph is traversed: ``cpu`` or ``cuda``.
        exchange: exchange of the resident engine: ``shared_memory``, ``comm`` or ``cuda_ipc``.
        record: the service's record of the graph.
    """

    def __init__(self, record: GraphRecord, formed: Formed, client: distributed.Client) -> None:
        super().__init__(record)
        self.name = record.name
        self.directed = record.directed
        self.read_seconds = record.read_seconds
        self.build_seconds = record.build_seconds
        self.backend = formed.backend
        self.exchange = formed.exchange
        self._gang = Gang(client, record.addresses)
        self._unloaded = False
        self._results: weakref.WeakSet[BFSResult] = weakref.WeakSet()
        self._external: NDArray[np.int64] | None = None
        self._order: DegreeOrder | None = None
        # Copies of the order beside the ranks' kept edges, for validations: futures by rank, none before the first.
        self.placed_orders: list[distributed.Future] = []
        # One of many threads fetches: each copy has n numbers.
        self._fetching = threading.Lock()
        if not record.named:
            # Only this object refers to a nameless graph, which is therefore unloaded with it.
            service, message = ServiceClient.of(client), UnloadGraph(record.graph_id, client.id)
            # Not waited for, since finalizers run in any thread.
            weakref.finalize(self, service.send, message).atexit = False

    @property
    def gang(self) -> Gang:
        """The workers that hold the graph."""
        return self._gang

    @property
    def unloaded(self) -> bool:
        """Whether this object has unloaded the graph."""
        return self._unloaded

    @property
    def partition_keys(self) -> tuple[Hashable, ...]:
        """Dask keys of the ranks' partitions.

        Raises:
            ResultReleasedError: the graph was unloaded.
        """
        self._require_loaded()
        return self.record.partition_keys

    @property
    def external_ids(self) -> NDArray[np.int64] | None:
        """int64[n], the file's ids by vertex, ascending; None if the file's ids are the vertex ids."""
        with self._fetching:
            if self.record.external_ids_key is not None and self._external is None:
                self._external = self._fetch(self.record.external_ids_key, "external ids")[0]
        return self._external

    @property
    def order(self) -> DegreeOrder | None:
        """The internal numbering of a graph loaded with ``order="degree"``; else None."""
        with self._fetching:
            if self.record.order_key is not None and self._order is None:
                self._order = self._fetch(self.record.order_key, "the degree order")
        return self._order

    def vertex(self, external_id: int) -> int:
        """Return the vertex that has the given id in the file.

        Raises:
            InvalidVertexError: the id does not occur in the graph.
            InvalidVertexTypeError: the id is not an integer (a float, a bool).
        """
        number = vertex_number(external_id, "external id")
        ids = self.external_ids
        if ids is None:
            return self.check_vertex(external_id, "external id")
        found = queries.vertex_of_id(ids, number)
        if found is None:
            raise InvalidVertexError(f"{self.name} has no vertex with the id {number}")
        return found

    def check_vertex(self, value: Any, what: str = "vertex") -> int:
        """Return a vertex id as an int; ``what`` is its name in the message.

        Raises:
            InvalidVertexError: the id is outside 0..n-1.
            InvalidVertexTypeError: the id is not an integer (a float, a bool).
        """
        vertex = vertex_number(value, what)
        if not 0 <= vertex < self.n:
            raise InvalidVertexError(self._not_a_vertex(vertex, what))
        return vertex

    def _not_a_vertex(self, number: int, what: str) -> str:
        """Return the message for a number that is not a vertex, which may be an id of the file."""
        valid = f"vertices are 0..{self.n - 1}" if self.n else "the graph has no vertices"
        key = self.record.external_ids_key
        if key is None or self.n == 0:
            return f"{what} {number} is not in {self.name}: {valid}"
        # A worker looks the id up: all ids of a large graph would take seconds to reach the client.
        found: int | None = self._query(f"a vertex of {self.name}", queries.look_up_id, Ref(key), number)
        if found is None:
            return f"{what} {number} is not in {self.name}: {valid}, and no id in the file is {number}"
        return (
            f"{what} {number} is an id in the file, not a vertex of {self.name}: {valid}. Pass graph.vertex({number}), "
            f"which is {found}; on the command line, add --external-ids"
        )

    def bfs(
        self,
        source: int | Sequence[int],
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        targets: int | Sequence[int] | None = None,
        direction: str = "auto",
        engine: str = "auto",
        validate: bool = False,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> BFSResult:
        """Run a breadth-first search from a vertex, or from several at once: distances are to the nearest source.

        Args:
            source: vertex id, or several.
            predecessors: also record a predecessor of each vertex.
            max_depth: largest distance; vertices farther away stay unreached.
            targets: a vertex, or several. The search stops after the level that reaches the last target; vertices
                farther away stay unreached.
            direction: ``top-down``, ``bottom-up``, or ``auto`` to choose for each level. Bottom-up levels of a directed
                graph need its in-edges (``load(..., in_edges=True)``); without them ``auto`` stays top-down.
            engine: one of ``dbfs.engines.ENGINES``.
            validate: check the result on the workers before returning it.
            deadline: seconds (or a Dask duration) that the call may wait for the run, the queue included;
                ``dbfs.deadline`` if None.
            progress: a bar during the run, or a function called with a ``RunProgress``: see ``dbfs.display.progress``.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: a source or a target is not a vertex id.
            InvalidOptionError: an option's value is not one of its choices.
            InvalidOptionTypeError: ``max_depth`` is not an integer.
            QueueFullError: too many runs wait already.
            NoRoomForLabelsError: the labels that clients keep on the workers leave no room for this traversal's.
            WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError, DeviceFailedError,
            StaleRunError: the run ended early.
            ValidationError: ``validate`` found a fault in the result.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        sources = self._several(source, "source")
        if not sources:
            raise InvalidVertexError("bfs needs at least one source")
        results = self._traverse(
            [sources],
            targets=targets,
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            deadline=deadline,
            progress=progress,
        )
        if validate:
            results[0].validate()
        return results[0]

    def bfs_many(
        self,
        sources: int | Sequence[int],
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        engine: str = "auto",
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> list[BFSResult]:
        """Run a traversal from each source, one after another in one run of the gang; labels stay on the workers.

        Arguments and errors as for ``bfs``. The deadline is for all traversals together, and their labels must fit at
        once. ``bfs_stream`` makes any number of traversals.
        """
        each = self._several(sources, "source")
        if not each:
            return []
        return self._traverse(
            [(source,) for source in each],
            targets=None,
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            deadline=deadline,
            progress=progress,
        )

    def bfs_stream(
        self,
        sources: Iterable[int],
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        engine: str = "auto",
        deadline: float | str | None = None,
    ) -> Iterator[BFSResult]:
        """Run a traversal from each source, and yield the results in order, for any number of sources.

        At most ``dbfs.graph.stream.AHEAD`` traversals are made before the caller takes their results. The labels of a
        result are freed when the caller drops it, so the workers keep few at a time. Dropping the iterator ends the
        traversals.

        Arguments and errors as for ``bfs``. The sources are read as they are needed. The deadline is for each run of a
        few traversals.
        """

        def traverse(some: list[int]) -> list[BFSResult]:
            return self.bfs_many(
                some,
                predecessors=predecessors,
                max_depth=max_depth,
                direction=direction,
                engine=engine,
                deadline=deadline,
            )

        return stream(sources, traverse)

    def sample_sources(self, count: int, seed: int = 1) -> list[int]:
        """Return distinct random vertices of degree at least 1, self-loops not counted; the same for any rank count.

        Raises:
            InvalidOptionError: the graph has fewer such vertices than ``count``, or ``count`` is below 0.
            InvalidOptionTypeError: ``count`` is not an integer.
        """
        return sample_sources(self, count, seed)

    def khop(self, vertex: int | Sequence[int], k: int) -> NDArray[np.int64]:
        """Return the vertices at most ``k`` edges away from a vertex (or the nearest of several), ascending, int64.

        The vertex itself is included. In a directed graph edges are followed forwards.

        Raises:
            InvalidOptionError: ``k`` is below 0.
            InvalidOptionTypeError: ``k`` is not an integer.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        result = self.bfs(vertex, max_depth=whole_count(k, "k"))
        found = result.vertices()
        result.release()
        return found

    def components(self) -> Components:
        """Return the connected components; for a directed graph the weak ones, which ignore the direction of edges.

        One traversal from a vertex of the largest degree finds the giant component. Union-find on the workers then
        finds all other components at once, however many there are. A rank takes 4 bytes of memory for each vertex of
        the graph, the client 32.

        Raises:
            WorkerLostError, DeadlineExceededError: see ``bfs``.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        from dbfs.analytics.components import components

        return components(self)

    def eccentricity_bound(self, source: int | None = None) -> DiameterBounds:
        """Bound the largest eccentricity (the diameter) of a vertex's component by four traversals.

        Args:
            source: a vertex of the component; None for a vertex of the largest degree.

        Raises:
            DirectedGraphError: the graph is directed.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        from dbfs.analytics.diameter import eccentricity_bound

        return eccentricity_bound(self, source)

    def degree_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the degrees that occur, ascending, and the number of vertices of each: two int64 arrays.

        A degree is the number of edges stored at a vertex: duplicates count, a self-loop counts once. In a directed
        graph it is the out-degree. The workers count. Errors as for ``components``.
        """
        from dbfs.analytics.degrees import degree_counts

        return degree_counts(self)

    def plot_degrees(self, ax: Axes | None = None) -> Axes:
        """Plot the number of vertices of each degree (``degree_counts``), on logarithmic scales if degrees vary much.

        Args:
            ax: axes to draw on; None for a new figure.

        Raises:
            MissingPackageError: matplotlib is not installed. Other errors as for ``degree_counts``.
        """
        from dbfs.display.plots import plot_degrees

        return plot_degrees(self, ax)

    def unload(self) -> None:
        """Free the graph's memory on the workers, for all clients. The results of this object keep their labels."""
        if not self._unloaded:
            # Unloading frees the labels that ranks keep, so that they are published first.
            for result in list(self._results):
                # Labels on a lost worker, or of a graph that another client unloaded, are lost. The graph is unloaded
                # all the same.
                with contextlib.suppress(WorkerLostError, GraphNotFoundError, ResultReleasedError):
                    result.publish()
            self._unloaded = True
            release(self.placed_orders)
            client = self._gang.client
            ServiceClient.of(client).call(UnloadGraph(self.record.graph_id, client.id))

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unload()

    def __repr__(self) -> str:
        state = " (unloaded)" if self._unloaded else ""
        return (
            f"<dbfs.Graph {self.name}: {self.n:,} vertices, {edges_in_words(self)}, {self.ranks} ranks, "
            f"{format_bytes(sum(self.nbytes))}{state}>"
        )

    def _repr_html_(self) -> str:
        from dbfs.display.notebook.html import graph_html

        return graph_html(self)

    def _traverse(
        self,
        source_sets: Sequence[tuple[int, ...]],
        *,
        targets: int | Sequence[int] | None,
        predecessors: bool,
        max_depth: int | None,
        direction: str,
        engine: str,
        deadline: float | str | None,
        progress: ProgressOption[RunProgress],
    ) -> list[BFSResult]:
        self._require_loaded()
        runner = engines.choose(engine)
        if direction not in DIRECTIONS:
            raise InvalidOptionError(f"unknown direction {direction!r}; choose one of {', '.join(DIRECTIONS)}")
        if max_depth is not None:
            whole_count(max_depth, "max_depth")
        target_ids = () if targets is None else self._several(targets, "target")
        limit = Deadline(config.seconds("deadline", deadline))
        run_id = uuid.uuid4().hex
        specs = [
            TraversalSpec(
                run_id=run_id,
                sources=self.positions(sources),
                predecessors=predecessors,
                backend=self.backend,
                direction=direction,
                max_depth=max_depth,
                targets=self.positions(target_ids),
            )
            for sources in source_sets
        ]
        with run_reporter(progress, self.name, self.n, len(specs)) as report:
            outcomes = runner.traverse(self._gang, self.record, specs, limit, report)
        results = [
            BFSResult(self, sources, spec, runner.name, outcome)
            for sources, spec, outcome in zip(source_sets, specs, outcomes, strict=True)
        ]
        self._results.update(results)
        return results

    def positions(self, vertices: Sequence[int]) -> tuple[int, ...]:
        """Return the vertices' numbers in the internal numbering, which specs and labels on the workers use."""
        order = self.order
        return tuple(vertices if order is None else order.position[list(vertices)].tolist())

    def vertices_at_positions(self, positions: Sequence[int]) -> list[int]:
        """Return the vertex ids of numbers in the internal numbering."""
        order = self.order
        return list(positions) if order is None else order.vertex[list(positions)].tolist()

    def _fetch(self, key: Hashable, what: str) -> Any:
        # A task copies the value, because the service owns the key and this client has no future of it.
        return self._query(f"{what} of {self.name}", queries.same_value, Ref(key))

    def _query(self, what: str, query: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a task on rank 0; ``what`` names it in messages."""
        self._require_loaded()
        graph, key = TaskGraph(), f"fetch-{uuid.uuid4().hex}"
        graph.add(0, key, query, *arguments)
        future = self._gang.submit(graph, [key])[key]
        return self._gang.gather([future], Deadline(config.seconds("deadline")), f"fetching {what}")[0]

    def _require_loaded(self) -> None:
        if self._unloaded:
            raise ResultReleasedError(f"{self.name} was unloaded; load it again")

    def _several(self, given: int | Sequence[int], what: str) -> tuple[int, ...]:
        """Return one vertex id, or several, as checked ints."""
        if hasattr(given, "__array__"):  # a NumPy array or scalar, a pandas series
            array = np.asarray(given)
            return tuple(self.check_vertex(one, what) for one in (array if array.ndim else [given]))
        if isinstance(given, Sequence | Set) and not isinstance(given, str):
            return tuple(self.check_vertex(one, what) for one in given)
        return (self.check_vertex(given, what),)
