"""Graph: a graph striped over a gang of workers, which traverses it."""

from __future__ import annotations

import contextlib
import os
import uuid
import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs import engines
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Gang, release
from dbfs.engines import Outcome
from dbfs.errors import (
    GraphNotFoundError,
    InvalidOptionError,
    InvalidVertexError,
    LateError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.graph.counts import edges_in_words, vertices_in_words
from dbfs.graph.living import LivingVertices
from dbfs.graph.neighbourhood import Neighbourhood
from dbfs.graph.neighbours import neighbours
from dbfs.graph.result import BFSResult
from dbfs.graph.sampling import sample_sources
from dbfs.graph.strategies import require_strategy
from dbfs.graph.stream import stream
from dbfs.graph.subgraph import Subgraph, chosen_subgraph
from dbfs.graph.watching import Watch
from dbfs.integers import whole_count
from dbfs.progress import ProgressOption, run_reporter
from dbfs.records import Formed, GraphRecord, RunProgress
from dbfs.service.client import ServiceClient
from dbfs.service.messages import UnloadGraph
from dbfs.units import format_bytes
from dbfs_workers.spec import DIRECTIONS, RunSpec, TraversalSpec
from dbfs_workers.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dbfs.analytics import Components, DiameterBounds


class Graph(LivingVertices):
    """A graph whose vertices are striped over the workers of a gang. ``dbfs.load`` and ``dbfs.open`` return one.

    Callers name vertices by the ids of the file or the table: integers, strings, or tuples of these. The vertices
    themselves are numbered 0..n-1 in ascending order of their ids. Only the arrays ``distances()`` and
    ``predecessors()`` of a result are by vertex: ``ids()`` is their index, and ``vertex(id)`` the place of one id.

    Attributes:
        name: the name given to ``load``, else the name of the edge list.
        directed: whether edges hold in one direction only.
        read_seconds: time of reading, if reading finished before building (edges kept, ids numbered); else 0.
        build_seconds: time of reading and building.
        backend: where the graph is traversed: ``cpu`` or ``cuda``.
        exchange: exchange of the resident engine: ``shared_memory``, ``tcp``, ``shared_memory+tcp``, ``cuda_ipc``,
            ``nccl`` or ``comm``.
        layout: the partition of the edges: ``1d`` or ``2d``.
        record: the service's record of the graph.
    """

    _inner = LivingVertices._inner | {
        "bfs_from_vertices",
        "gang",
        "in_positions",
        "is_ordered",
        "order_on_ranks",
        "partition_keys",
        "placed_orders",
        "positions",
        "python_ids",
        "traverse_again",
        "vertices_at_positions",
        "vertices_by_position",
        "vertices_named",
    }

    def __init__(self, record: GraphRecord, formed: Formed, client: distributed.Client) -> None:
        super().__init__(record, Gang(client, record.addresses))
        self.name = record.name
        self.directed = record.directed
        self.read_seconds = record.read_seconds
        self.build_seconds = record.build_seconds
        self.backend = formed.backend
        self.exchange = formed.exchange
        self.layout = record.layout
        self._results: weakref.WeakSet[BFSResult] = weakref.WeakSet()
        if not record.named:
            # Only this object refers to a nameless graph, which is therefore unloaded with it.
            service, message = ServiceClient.of(client), UnloadGraph(record.graph_id, client.id)
            # Not waited for, since finalizers run in any thread.
            weakref.finalize(self, service.send, message).atexit = False

    @property
    def partition_keys(self) -> tuple[Hashable, ...]:
        """Dask keys of the ranks' partitions.

        Raises:
            ResultReleasedError: the graph was unloaded.
        """
        self._require_loaded()
        return self.record.partition_keys

    @bounded()
    def bfs(
        self,
        source: Any,
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        targets: Any = None,
        direction: str = "auto",
        engine: str = "auto",
        strategy: str | None = None,
        validate: bool = False,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> BFSResult:
        """Run a breadth-first search from a vertex, or from several at once: distances are to the nearest source.

        Args:
            source: id, or several: a list, a set, an array. A tuple is one id if ids are tuples.
            predecessors: also record a predecessor of each vertex.
            max_depth: largest distance; vertices farther away stay unreached.
            targets: an id, or several. The search stops after the level that reaches the last target; vertices
                farther away stay unreached.
            direction: ``top-down``, ``bottom-up``, or ``auto`` to choose for each level. Bottom-up levels of a directed
                graph need its in-edges (``load(..., in_edges=True)``); without them ``auto`` stays top-down.
            engine: one of ``dbfs.engines.ENGINES``.
            strategy: a strategy of the laboratory (``dbfs.lab.STRATEGIES``), with options after a colon:
                ``"two-phase:gathering=scan,culling=none"``. It needs a graph on one rank, and most need a GPU; it takes
                one source, and no bound, targets or direction. ``BFSResult.counters`` has its counters.
            validate: check the result on the workers before returning it.
            deadline: seconds (or a Dask duration) that the call may wait for the run, the queue included;
                ``dbfs.deadline`` if None.
            progress: a bar during the run, or a function called with a ``RunProgress``: see ``dbfs.progress``.

        Raises:
            InvalidVertexError: a source or a target is not in the graph.
            InvalidVertexTypeError: a source or a target is not of the type of the graph's ids.
            InvalidOptionError: an option's value is not one of its choices, or a strategy does not run on this graph.
            InvalidOptionTypeError: ``max_depth`` is not an integer.
            QueueOverflowError: duplicates filled a queue of the strategy.
            QueueFullError: too many runs wait already.
            NoRoomForLabelsError: the labels that clients keep on the workers leave no room for this traversal's.
            WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError, DeviceFailedError,
            StaleRunError: the run ended early.
            ValidationError: ``validate`` found a fault in the result.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        sources = self.vertices_named(source, "source")
        if not sources:
            raise InvalidVertexError("bfs needs at least one source")
        results = self._traverse(
            [sources],
            targets=() if targets is None else self.vertices_named(targets, "target"),
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            strategy=strategy,
            progress=progress,
        )
        if validate:
            results[0].validate()
        return results[0]

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
    ) -> list[BFSResult]:
        """Run a traversal from each source, one after another in one run of the gang; labels stay on the workers.

        Arguments and errors as for ``bfs``. The deadline is for all traversals together, and their labels must fit at
        once. ``bfs_stream`` makes any number of traversals.
        """
        each = self.vertices_named(sources, "source")
        if not each:
            return []
        return self._traverse(
            [(source,) for source in each],
            targets=(),
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            progress=progress,
        )

    def bfs_stream(
        self,
        sources: Iterable[Any],
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

        def traverse(some: list[Any]) -> list[BFSResult]:
            return self.bfs_many(
                some,
                predecessors=predecessors,
                max_depth=max_depth,
                direction=direction,
                engine=engine,
                deadline=deadline,
            )

        return stream(sources, traverse)

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
    def khop(self, source: Any, k: int, *, deadline: float | str | None = None) -> Neighbourhood:
        """Return the ids at most ``k`` edges away from an id, or from the nearest of several, with their distances.

        The source itself is included. In a directed graph edges are followed forwards. ``khop(...).subgraph()`` has all
        edges between these vertices. ``deadline`` is as for ``bfs``.

        Raises:
            InvalidOptionError: ``k`` is below 0.
            InvalidOptionTypeError: ``k`` is not an integer.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        result = self.bfs(source, max_depth=whole_count(k, "k"))
        found = Neighbourhood.of(result)
        result.release()
        return found

    @bounded()
    def subgraph(self, ids: Iterable[Any], *, deadline: float | str | None = None) -> Subgraph:
        """Return some vertices with all edges between them, as a table, a SciPy matrix or a NetworkX graph.

        The workers select the edges, and only these travel. The vertices stay in the order of ``ids``; an id that
        occurs again is left out. ``deadline`` is as for ``bfs``.

        Raises:
            InvalidVertexError, InvalidVertexTypeError: an id is not in the graph.
            WorkerLostError, DeadlineExceededError: see ``bfs``.
            ResultReleasedError: the graph was unloaded.
        """
        return chosen_subgraph(self, ids)

    @bounded()
    def components(self, *, deadline: float | str | None = None) -> Components:
        """Return the connected components; for a directed graph the weak ones, which ignore the direction of edges.

        One traversal from a vertex of the largest degree finds the giant component. Union-find on the workers then
        finds all other components at once, however many there are. A rank takes 4 bytes of memory for each vertex of
        the graph, the client 32. ``deadline`` is as for ``bfs``.

        Raises:
            WorkerLostError, DeadlineExceededError: see ``bfs``.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        from dbfs.analytics.components import components

        return components(self)

    @bounded()
    def eccentricity_bound(self, source: Any = None) -> DiameterBounds:
        """Bound the largest eccentricity (the diameter) of a vertex's component by four traversals.

        Args:
            source: an id in the component; None for a vertex of the largest degree.

        Raises:
            DirectedGraphError: the graph is directed.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        from dbfs.analytics.diameter import eccentricity_bound

        return eccentricity_bound(self, source)

    @bounded()
    def degree_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the degrees that occur, ascending, and the number of vertices of each: two int64 arrays.

        A degree is the number of edges stored at a vertex: duplicates count, a self-loop counts once. In a directed
        graph it is the out-degree. The workers count. Errors as for ``components``.
        """
        from dbfs.analytics.degrees import degree_counts

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
        if not self._lookup.has(id):
            return False
        try:
            if self.record.version:
                neighbours(self, self.vertex(id))
        except InvalidVertexError:
            return False
        return True

    def plot_degrees(self, ax: Axes | None = None) -> Axes:
        """Plot the number of vertices of each degree (``degree_counts``), on logarithmic scales if degrees vary much.

        Args:
            ax: axes to draw on; None for a new figure.

        Raises:
            MissingPackageError: matplotlib is not installed. Other errors as for ``degree_counts``.
        """
        from dbfs.display.plots import plot_degrees

        return plot_degrees(self, ax)

    @bounded("build-deadline")
    def save(
        self,
        path: str | os.PathLike[str],
        *,
        replace: bool = False,
        deadline: float | str | None = None,
    ) -> int:
        """Save the graph in a folder, from which ``dbfs.load(path)`` loads it again on any number of ranks.

        Each rank writes its own files. The folder is a saved graph from the moment when all files are complete; if the
        save fails, the folder keeps what it had before. The message of an error after that moment says so.

        One client at a time saves to a folder; others wait until ``dbfs.build-deadline``. What a dead client left is
        removed.

        Args:
            path: a folder that all workers share, or a URL that fsspec understands. The folder is made if it does not
                exist; it must have no other files.
            replace: replace the graph that is saved in the folder. Workers that have it loaded keep it.
            deadline: seconds (or a Dask duration) that the save may take; ``dbfs.build-deadline`` if None.

        Returns:
            The number of bytes written.

        Raises:
            InvalidOptionError: the folder has a saved graph and ``replace`` is false, or has other files; or
                ``dbfs.write.folders`` does not allow the folder; or the graph was loaded with ``room``.
            FolderBusyError: another client saved to the folder until the deadline, or took it over because this client
                gave no sign of life for 60 s.
            OutputError: the file system refuses a file, is full, or is not shared by all workers.
            GraphTooLargeError: a worker has no memory for a copy of the partition that is on its GPU, or for the 1-D
                partition that it joins of a graph with ``layout="2d"``.
            WorkerLostError, DeadlineExceededError: a worker was lost, or the deadline has passed.
            ResultReleasedError: the graph was unloaded.
        """
        from dbfs.graph.saving import save

        self.refresh()
        return save(self._gang, self.record, path, replace=replace)

    @bounded()
    def unload(self, *, deadline: float | str | None = None) -> None:
        """Free the graph's memory on the workers, for all clients. The results of this object keep their labels.

        Args:
            deadline: seconds (or a Dask duration) that the call may wait; ``dbfs.deadline`` if None. Workers that
                answer later free their memory then.
        """
        if not self._unloaded:
            # Unloading frees the labels that ranks keep, so that they are published first.
            for result in list(self._results):
                # Labels on a lost or late worker, or of a graph that another client unloaded, are lost. The graph is
                # unloaded all the same.
                with contextlib.suppress(WorkerLostError, GraphNotFoundError, ResultReleasedError, LateError):
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
        grid = " in a 2-D partition" if self.layout == "2d" else ""
        return (
            f"<dbfs.Graph {self.name}: {vertices_in_words(self)}, {edges_in_words(self)}, "
            f"{counted(self.ranks, 'rank')}{grid}, "
            f"{format_bytes(sum(self.nbytes))}{state}>"
        )

    def _repr_html_(self) -> str:
        from dbfs.display.notebook.html import graph_html

        return graph_html(self)

    def _traverse(
        self,
        source_sets: Sequence[tuple[int, ...]],
        *,
        targets: tuple[int, ...],
        predecessors: bool,
        max_depth: int | None,
        direction: str,
        engine: str,
        progress: ProgressOption[RunProgress],
        strategy: str | None = None,
    ) -> list[BFSResult]:
        self._require_loaded()
        runner = engines.choose(engine, self.record.layout)
        if direction not in DIRECTIONS:
            raise InvalidOptionError(f"unknown direction {direction!r}; choose one of {', '.join(DIRECTIONS)}")
        if max_depth is not None:
            whole_count(max_depth, "max_depth")
        if strategy is not None:
            plain = max_depth is None and not targets and direction == "auto"
            strategy = require_strategy(
                self, strategy, len(source_sets[0]), predecessors=predecessors, plain=plain, engine=engine
            )
        limit = of_call()
        options = TraversalSpec(
            run_id=uuid.uuid4().hex,
            sources=(),
            predecessors=predecessors,
            backend=self.backend,
            direction=direction,
            max_depth=max_depth,
            targets=targets,
            strategy=strategy or "",
        )
        run = RunSpec(options, tuple(source_sets))
        try:
            with (
                run_reporter(progress, self.name, self.n, len(run)) as report,
                contextlib.closing(
                    runner.traverse(self._gang, self.record, run, limit, report, self.in_positions)
                ) as outcomes,
            ):
                # A result that this list does not get any more, because the run ends early, frees its labels.
                results = [BFSResult(self, spec, runner.name, made) for spec, made in zip(run, outcomes, strict=True)]
        except WorkerLostError as error:
            if why := ServiceClient.of(self._gang.client).why_lost(self.record.graph_id):
                raise WorkerLostError(f"{error}; {why}") from error
            raise
        self._results.update(results)
        if results and results[0].version != self.record.version:
            # Another client has updated the graph.
            self.refresh()
        return results

    @bounded()
    def traverse_again(self, spec: TraversalSpec, *, deadline: float | str | None) -> Outcome:
        """Run the traversal of a spec, whose sources are vertices, with the resident engine; errors as for ``bfs``."""
        self._require_loaded()
        limit = of_call()
        runner = engines.choose("resident", self.record.layout)
        (outcome,) = runner.traverse(self._gang, self.record, RunSpec.single(spec), limit, None, self.in_positions)
        return outcome

    def watch(self, source: Any, *, timeout: float | None = None, deadline: float | str | None = None) -> Watch:
        """Traverse from a vertex, or from several, and keep the result up to date with the batches of all clients.

        ``for change in graph.watch(source):`` waits for batches. After each batch the loop brings the result up to date
        and yields a ``Change``: the version, and the ids whose distance changed.

        Args:
            source: see ``bfs``.
            timeout: seconds after which the iteration ends if no batch has come; None to wait for ever.
            deadline: see ``bfs``; for the traversal, and again for each repair.

        Raises:
            InvalidOptionError: the graph was not loaded with ``mutable=True``. Other errors as for ``bfs``.
        """
        if not self.record.mutable:
            raise InvalidOptionError(f"{self.name} takes no updates: load it with mutable=True, or thaw() it")
        return Watch(self.bfs(source, predecessors=True, deadline=deadline), timeout, deadline)

    @bounded()
    def bfs_from_vertices(self, sources: Sequence[int]) -> BFSResult:
        """Run a traversal from vertices 0..n-1 instead of ids, which must be valid; errors as for ``bfs``."""
        return self._traverse(
            [tuple(sources)],
            targets=(),
            predecessors=False,
            max_depth=None,
            direction="auto",
            engine="auto",
            progress=None,
        )[0]
