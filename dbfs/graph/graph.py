"""Graph: a striped graph that lives on a gang of workers, and is traversed there."""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Hashable, Sequence, Set
from types import TracebackType
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from dbfs import config, engines
from dbfs.cluster.gang import Deadline, Gang, Ref, TaskGraph
from dbfs.display.progress import ProgressOption, run_reporter
from dbfs.errors import (
    GraphNotFoundError,
    InvalidOptionError,
    InvalidVertexError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.graph.counts import GraphCounts
from dbfs.graph.result import BFSResult
from dbfs.graph.sampling import sample_sources
from dbfs.integers import vertex_number, whole_count
from dbfs.records import Formed, GraphRecord, RunProgress
from dbfs.service.client import ServiceClient
from dbfs_workers.spec import DIRECTIONS, TraversalSpec
from dbfs_workers.tasks import queries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dbfs.analytics import Components, DiameterBounds
    from dbfs_workers.storage.ordering import DegreeOrder


class Graph(GraphCounts):
    """A graph whose vertices are striped over the workers of a gang. Made by ``dbfs.load``.

    Vertex ids are 0..n-1. Where a file has ids of its own (an edge list with gaps), ``external_ids`` has them in order:
    vertex ``v`` is ``external_ids[v]``, and ``vertex(external_id)`` is the way back.

    Attributes:
        name: where the edges came from.
        directed: whether edges hold in one direction only.
        read_seconds: how long reading took where it came first (edges kept, external ids), else 0.
        build_seconds: how long reading and building took.
        backend: what it is traversed on: ``cpu`` or ``cuda``.
        exchange: how its ranks exchange in the resident engine: ``shared_memory``, ``comm`` or ``cuda_ipc``.
        record: everything the service knows of it.
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
        if not record.named:
            # Nobody else can reach a nameless graph: it goes with the last object that knows it.
            weakref.finalize(self, _let_go, ServiceClient.of(client), record.graph_id).atexit = False

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
        """int64[n], the file's own ids by vertex, ascending; None where they are the vertex ids."""
        if self.record.external_ids_key is not None and self._external is None:
            self._external = self._fetch(self.record.external_ids_key, "external ids")[0]
        return self._external

    @property
    def order(self) -> DegreeOrder | None:
        """The vertices' internal numbering where the graph was loaded with ``order="degree"``, else None."""
        if self.record.order_key is not None and self._order is None:
            self._order = self._fetch(self.record.order_key, "the degree order")
        return self._order

    def vertex(self, external_id: int) -> int:
        """The vertex of a file's own id.

        Raises:
            InvalidVertexError: the id does not occur in the graph.
            InvalidVertexTypeError: the id is not an integer (a float, a bool).
        """
        wanted = vertex_number(external_id, "external id")
        ids = self.external_ids
        if ids is None:
            return self.check_vertex(external_id, "external id")
        at = int(np.searchsorted(ids, wanted))
        if at == ids.size or ids[at] != wanted:
            raise InvalidVertexError(f"{self.name} has no vertex with the id {wanted}")
        return at

    def check_vertex(self, value: Any, what: str = "vertex") -> int:
        """The vertex id as an int.

        Raises:
            InvalidVertexError: outside 0..n-1.
            InvalidVertexTypeError: not an integer (a float, a bool).
        """
        vertex = vertex_number(value, what)
        if not 0 <= vertex < self.n:
            there = f"vertices are 0..{self.n - 1}" if self.n else "the graph has no vertices"
            raise InvalidVertexError(f"{what} {vertex} is not in {self.name}: {there}")
        return vertex

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
        """Breadth-first search from a vertex, or from several at once (the distance is then to the nearest).

        Args:
            source: vertex id, or several.
            predecessors: record a parent of each vertex beside its distance.
            max_depth: leave vertices farther than this unreached.
            targets: a vertex, or several: stop after the level that reaches the last; farther ones are left unreached.
            direction: ``top-down``, ``bottom-up``, or ``auto`` to choose for each level. Bottom-up levels of a directed
                graph need its in-edges (``load(..., in_edges=True)``); ``auto`` does without them.
            engine: one of ``dbfs.engines.ENGINES``.
            validate: check the result on the workers before returning it.
            deadline: seconds (or a Dask duration) the run may take; ``dbfs.deadline`` if None.
            progress: a bar while the run lasts, or a function told where it is: see ``dbfs.progress``.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: a source or a target is not a vertex id.
            InvalidOptionError: an option's value is not one of its choices.
            InvalidOptionTypeError: ``max_depth`` is not an integer.
            WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError, StaleRunError: the run ended
                early.
            ValidationError: ``validate`` found the result wrong.
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
        """A traversal from each source, one after another in one call of the gang; labels stay on the workers.

        Arguments and errors as for ``bfs``; the deadline is for all of them together.
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

    def sample_sources(self, count: int, seed: int = 1) -> list[int]:
        """Distinct random vertices of degree at least 1, self-loops not counted; the same for any number of ranks.

        Raises:
            InvalidOptionError: there are fewer than ``count``, or it is below 0.
            InvalidOptionTypeError: ``count`` is no integer.
        """
        return sample_sources(self, count, seed)

    def khop(self, vertex: int | Sequence[int], k: int) -> NDArray[np.int64]:
        """int64, the vertices at most ``k`` edges away from a vertex (or from the nearest of several), ascending.

        It is among them itself. In a directed graph edges are followed forwards.

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
        """The connected components; of a directed graph the weak ones, edges being taken both ways.

        One traversal from the vertex of the largest degree finds the giant component. The edges that it left are united
        on the workers (union-find), however many components they make: isolated vertices cost nothing. A rank takes
        4 bytes for each vertex of the graph, the client 32.

        Raises:
            WorkerLostError, DeadlineExceededError: see ``bfs``.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        from dbfs.analytics.components import components

        return components(self)

    def eccentricity_bound(self, source: int | None = None) -> DiameterBounds:
        """Bounds on the largest eccentricity (the diameter) of a vertex's component, by four traversals.

        Args:
            source: a vertex of the component; None for a vertex of the largest degree.

        Raises:
            DirectedGraphError: the graph is directed.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        from dbfs.analytics.diameter import eccentricity_bound

        return eccentricity_bound(self, source)

    def degree_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The degrees that occur, ascending, and how many vertices have each: two int64 arrays of one length.

        A degree counts the edges stored at a vertex: duplicates are counted, a self-loop once; in a directed graph it
        is the out-degree. Counted on the workers. Errors as for ``components``.
        """
        from dbfs.analytics.degrees import degree_counts

        return degree_counts(self)

    def plot_degrees(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices have each degree (``degree_counts``), on logarithmic scales where degrees vary much.

        Args:
            ax: where to draw; None for a figure of its own.

        Raises:
            MissingPackageError: matplotlib is not installed. Other errors as for ``degree_counts``.
        """
        from dbfs.display.plots import plot_degrees

        return plot_degrees(self, ax)

    def unload(self) -> None:
        """Free the graph's memory on the workers, for everybody. Results already made keep their labels."""
        if not self._unloaded:
            # The ranks leave the gang, and take what they keep with them.
            for result in list(self._results):
                # What a lost worker took can't be kept, nor what went when somebody else unloaded the graph. Neither
                # must keep the rest from being freed.
                with contextlib.suppress(WorkerLostError, GraphNotFoundError, ResultReleasedError):
                    result.publish()
            self._unloaded = True
            ServiceClient.of(self._gang.client).call("unload", graph_id=self.record.graph_id)

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unload()

    def __repr__(self) -> str:
        state = " (unloaded)" if self._unloaded else ""
        return (
            f"<dbfs.Graph {self.name}: {self.n} vertices, {self.m} {'directed' if self.directed else 'undirected'} "
            f"edges stored, {self.ranks} ranks, {format_bytes(sum(self.nbytes))}{state}>"
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
        wanted = () if targets is None else self._several(targets, "target")
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
                targets=self.positions(wanted),
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
        """Where vertices stand in the internal numbering: what a run's spec and its labels on the workers go by."""
        order = self.order
        return tuple(vertices if order is None else order.position[list(vertices)].tolist())

    def _fetch(self, key: Hashable, what: str) -> Any:
        self._require_loaded()
        # By a task that hands it on: the key belongs to the service, not to this client.
        graph, copy = TaskGraph(), f"fetch-{uuid.uuid4().hex}"
        graph.add(0, copy, queries.same_value, Ref(key))
        future = self._gang.submit(graph, [copy])[copy]
        deadline = Deadline(config.seconds("deadline"))
        return self._gang.gather([future], deadline, f"fetching {what} of {self.name}")[0]

    def _require_loaded(self) -> None:
        if self._unloaded:
            raise ResultReleasedError(f"{self.name} was unloaded; load it again")

    def _several(self, given: int | Sequence[int], what: str) -> tuple[int, ...]:
        if hasattr(given, "__array__"):  # NumPy's, a pandas series
            array = np.asarray(given)
            return tuple(self.check_vertex(one, what) for one in (array if array.ndim else [given]))
        if isinstance(given, Sequence | Set) and not isinstance(given, str):
            return tuple(self.check_vertex(one, what) for one in given)
        return (self.check_vertex(given, what),)


def _let_go(service: ServiceClient, graph_id: str) -> None:
    service.tell("unload", graph_id=graph_id)
