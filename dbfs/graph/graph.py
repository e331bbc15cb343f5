"""Graph: a graph striped over a gang of workers, which traverses it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Hashable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import public
from dbfs.base.integers import vertex_number, whole_count
from dbfs.base.progress import ProgressOption
from dbfs.base.records import Formed, GraphRecord, RunProgress
from dbfs.base.units import format_bytes
from dbfs.cluster.deadline import bounded
from dbfs.cluster.gang import Gang
from dbfs.cluster.own_process import StaysHere
from dbfs.errors import (
    GraphNotFoundError,
    InvalidOptionError,
    InvalidVertexError,
    InvalidVertexTypeError,
    LateError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.features.batches.batch import KEPT, BatchResult, batch
from dbfs.features.living.living import Living, Update, Updates, Watch
from dbfs.features.subgraphs.subgraph import Neighbourhood, Subgraph, chosen_subgraph, neighbours
from dbfs.graph.counts import GraphCounts, edges_in_words, vertices_in_words
from dbfs.graph.degrees import sample_sources
from dbfs.graph.ids import IdLookup
from dbfs.graph.numbering import Numbering
from dbfs.graph.result import BFSResult
from dbfs.graph.traversing import stream, traverse
from dbfs.service.client import ServiceClient
from dbfs.service.messages import GetGraph, UnloadGraph
from dbfs_workers.base.text import counted
from dbfs_workers.ids.sequence import handed_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dbfs.edges.resolve import EdgeSource
    from dbfs.edges.tables.ends import ColumnNames
    from dbfs.features.batches import (
        Components,
        DiameterBounds,
        EdgeMeasure,
        Landmarks,
        MeanDistance,
        NeighbourhoodFunction,
        VertexMeasure,
    )
    from dbfs.graph.degrees import DegreeCounts
    from dbfs.graph.distances import DistanceMatrix
    from dbfs_workers.ids.sequence import CallerIds
    from dbfs_workers.ids.table import IdType
    from dbfs_workers.search.partition.ordering import DegreeOrder


@public
class Graph(StaysHere, GraphCounts):
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
        exchange: exchange of the resident engine: ``shared_memory``, ``tcp``, ``shared_memory+tcp``, ``cuda_ipc``
            or ``nccl``.
        layout: the partition of the edges: ``1d`` or ``2d``.
        grid: the ranks' grid of a 2-D partition, with ``rows`` and ``columns``; None in ``1d``.
        record: the service's record of the graph.
    """

    _inner = StaysHere._inner | {
        "formed",
        "gang",
        "living",
        "lookup",
        "numbering",
        "partition_keys",
        "python_ids",
        "require_loaded",
        "require_version",
        "results",
        "take",
        "vertices_named",
    }

    def __init__(self, record: GraphRecord, formed: Formed, client: distributed.Client) -> None:
        super().__init__(record, formed)
        self.gang = Gang(client, record.addresses)
        self.lookup = IdLookup(self.gang, record)
        self.numbering = Numbering(self.gang, record)
        self.living = Living(self)
        self._unloaded = False
        self.results: weakref.WeakSet[BFSResult] = weakref.WeakSet()
        if not record.named:
            # Only this object refers to a nameless graph, which is therefore unloaded with it.
            service, message = ServiceClient.of(client), UnloadGraph(record.graph_id, client.id)
            # Not waited for, since finalizers run in any thread.
            weakref.finalize(self, service.send, message).atexit = False

    @property
    def elsewhere(self) -> str:
        """See ``StaysHere``."""
        name = repr(self.record.name) if self.record.named else "name"
        before = "" if self.record.named else "load the graph with name=, and "
        in_task = f"dbfs.open({name}, client=distributed.get_client())"
        return f"{before}open the graph there: dbfs.open({name}), in a task {in_task}"

    @property
    def unloaded(self) -> bool:
        """Whether this object has unloaded the graph."""
        return self._unloaded

    @property
    def partition_keys(self) -> tuple[Hashable, ...]:
        """Dask keys of the ranks' partitions."""
        self.require_loaded()
        return self.record.partition_keys

    @property
    def order(self) -> DegreeOrder | None:
        """The internal numbering of a graph loaded with ``order="degree"``; else None."""
        return self.numbering.order

    @property
    def version(self) -> int:
        """Number of the graph's version at this moment: the updates of edges and vertices of all clients."""
        self.refresh()
        return self.record.version

    def require_version(self, version: int, what: object) -> None:
        """Check that a result is of the graph's version at this moment.

        Raises:
            InvalidOptionError: it is not; ``what`` names the result.
            Other errors as for ``refresh``.
        """
        if version != self.version:
            raise InvalidOptionError(
                f"{what} is of version {version} of {self.name}, which is {self.record.version} now; traverse again"
            )

    @bounded()
    def refresh(self) -> None:
        """Read the graph's record anew: other clients may have updated the graph.

        Raises:
            GraphNotFoundError, ResultReleasedError: the graph was unloaded.
        """
        self.require_loaded()
        if self.record.mutable or self.record.version:
            self.take(ServiceClient.of(self.gang.client).call(GetGraph(self.record.graph_id)))

    @property
    def id_type(self) -> IdType:
        """The type of the graph's ids: integers, strings, or tuples of these."""
        return self.lookup.id_type

    def vertex(self, id: Any) -> int:  # noqa: A002 - the word users expect
        """Return the vertex, 0..n-1, of an id: the index of its labels in ``distances()``.

        Raises:
            InvalidVertexError: the graph has no such id; the message names ids near it.
            InvalidVertexTypeError: the id is not of the type ``id_type``.
        """
        self._require_tables()
        return self.lookup.vertex(id)

    def vertices_of(self, ids: Any) -> NDArray[np.int64]:
        """Return the vertices of many ids, int64, in their order.

        Args:
            ids: an id, or several: an iterable, a NumPy array, a series, or an Arrow array.

        Errors as for ``vertex``.
        """
        self._require_tables()
        return self.lookup.vertices_of(ids)

    def id_of(self, vertex: int) -> Any:
        """Return the id of a vertex: an int, a str, or a tuple of these.

        Raises:
            InvalidVertexError: the vertex is outside 0..n-1.
            InvalidVertexTypeError: the vertex is not an integer.
        """
        number = vertex_number(vertex, "vertex")
        if not 0 <= number < self.n:
            raise InvalidVertexError(f"there is no vertex {number} in {self.record.name}: vertices are 0..{self.n - 1}")
        return self.python_ids([number])[0]

    def ids_of(self, vertices: Any) -> CallerIds:
        """Return the ids of many vertices, in their order.

        Integers are an int64 array. Strings and tuples are an ``IdSequence``: Python's values over Arrow's buffers.

        Args:
            vertices: an array of integers, or a sequence.

        Raises:
            InvalidVertexError: a vertex is outside 0..n-1.
            InvalidVertexTypeError: the vertices are not integers.
        """
        self._require_tables()
        array = np.asarray(vertices)
        if array.size and (array.dtype.kind not in "iu" or np.ma.is_masked(vertices)):
            kind = "masked" if np.ma.is_masked(vertices) else array.dtype
            raise InvalidVertexTypeError(f"vertices must be integers, not {kind}")
        return handed_out(self.lookup.ids_of(array.astype(np.int64)))

    def ids(self) -> CallerIds:
        """Return the ids of all vertices, in the order of vertices, as ``ids_of`` does. The client takes n ids."""
        self._require_tables()
        return handed_out(self.lookup.everything())

    def vertices_named(self, given: Any, what: str, *, living: bool = False) -> tuple[int, ...]:
        """Return the vertices of one id, or of several; ``what`` is the name of an id in messages.

        Errors as for ``vertex``, and if ``living`` ``InvalidVertexError`` for a deleted vertex. The ranks refuse
        deleted sources themselves.
        """
        if self.record.mutable:
            # Other clients may have inserted vertices.
            self.refresh()
        self._require_tables()
        found = self.lookup.several(given, what)
        if living:
            self.living.require(found, what)
        return found

    def python_ids(self, vertices: Sequence[int]) -> list[Any]:
        """Return the ids of vertices 0..n-1 as Python's integers, strings or tuples."""
        self._require_tables()
        return self.lookup.python_ids(vertices)

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
            source: id, or several: any iterable of ids, an array. A tuple is one id if ids are tuples.
            predecessors: also record a predecessor of each vertex.
            max_depth: largest distance; vertices farther away stay unreached.
            targets: an id, or several. The search stops after the level that reaches the last target; vertices
                farther away stay unreached.
            direction: ``top-down``, ``bottom-up``, or ``auto`` to choose for each level. Bottom-up levels of a directed
                graph need its in-edges (``load(..., in_edges=True)``); without them ``auto`` stays top-down.
            engine: ``resident`` (fast), ``taskgraph`` (each level is a Dask graph, which Dask's dashboard shows), or
                ``auto``: that of the configuration ``dbfs.engine``.
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
        results = traverse(
            self,
            [sources],
            targets=() if targets is None else self.vertices_named(targets, "target", living=True),
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
            [(source,) for source in each],
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            progress=progress,
        )

    @bounded()
    def bfs_batch(
        self,
        sources: Any,
        *,
        keep: str = "counts",
        targets: Any = None,
        nearest: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> BatchResult:
        """Traverse from many vertices at once, each by itself: one look at an edge serves up to 512 sources.

        Where the sources share few levels (a road network), they are traversed from one after another in the same run.

        Args:
            sources: ids, each once.
            keep: what the workers keep of every vertex, beside the ``counts`` of vertices by distance: ``counts`` for
                no more, ``reached`` for a bit a source, ``distances`` for a byte or more a source.
            targets: an id, or several, whose distances are kept. The search goes on after them.
            nearest: whether the nearest source of each vertex is kept.
            max_depth: largest distance; vertices farther away stay unreached.
            direction: see ``bfs``.
            deadline: seconds (or a Dask duration) that the call may wait, the queue included; ``dbfs.deadline`` if
                None. It is for all sources together.
            progress: see ``bfs``. It counts sources.

        Raises:
            InvalidVertexError: there is no source, one is given twice, or a source or a target is not in the graph.
            InvalidOptionError: an option's value is not one of its choices; or another client updated the graph between
                two groups of sources.
            NoRoomForLabelsError: the batch does not fit in the workers' memory, even in groups of 64 sources.
            Other errors as for ``bfs``.
        """
        if keep not in KEPT:
            raise InvalidOptionError(f"unknown keep={keep!r}; choose one of {', '.join(KEPT)}")
        made = batch(
            self,
            self.vertices_named(sources, "source"),
            keep=() if keep == "counts" else (keep,),
            targets=() if targets is None else self.vertices_named(targets, "target", living=True),
            nearest=nearest,
            max_depth=max_depth,
            direction=direction,
            progress=progress,
        )
        made.targets = tuple(self.python_ids(made.target_vertices))
        return made

    def bfs_stream(
        self,
        sources: Any,
        *,
        predecessors: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        engine: str = "auto",
        deadline: float | str | None = None,
    ) -> Iterator[BFSResult]:
        """Run a traversal from each source, and yield the results in order, for any number of sources.

        At most 16 traversals are made before the caller takes their results. The labels of a result are freed when the
        caller drops it, so the workers keep few at a time. Dropping the iterator ends the traversals.

        Arguments and errors as for ``bfs``. An iterator of sources is read as sources are needed. The deadline is for
        each run of a few traversals.
        """

        def run(some: list[Any]) -> list[BFSResult]:
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
        from dbfs.features.batches import measures

        return measures.khop_sizes(self, k, vertices, measures.Options(progress=progress, checkpoint=checkpoint))

    @bounded()
    def subgraph(self, ids: Any, *, deadline: float | str | None = None) -> Subgraph:
        """Return some vertices with all edges between them, as a table, a SciPy matrix or a NetworkX graph.

        The workers select the edges, and only these travel. The vertices stay in the order of ``ids``; an id that
        occurs again is left out. ``deadline`` is as for ``bfs``. Errors as for ``bfs``.
        """
        return chosen_subgraph(self, ids)

    @bounded()
    def components(self, *, deadline: float | str | None = None) -> Components:
        """Return the connected components; for a directed graph the weak ones, which ignore the direction of edges.

        One traversal from a vertex of the largest degree finds the giant component. Union-find on the workers then
        finds all other components at once, however many there are. A rank takes 4 bytes of memory for each vertex of
        the graph, the client 32. ``deadline`` is as for ``bfs``. Errors as for ``bfs``.
        """
        from dbfs.features.components.components import components

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
        from dbfs.features.batches.diameter import eccentricity_bound

        return eccentricity_bound(self, source)

    @bounded()
    def diameter(
        self,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> int:
        """Return the largest eccentricity, as NetworkX's ``diameter``.

        In an undirected graph every traversal bounds all eccentricities (Takes and Kosters 2013), so that few may do.
        The client takes 40 bytes a vertex. A directed graph takes a traversal from every vertex.

        Args:
            deadline, checkpoint: see ``eccentricity``. For an undirected graph the file keeps bounds of eccentricities,
                12 bytes a vertex, and serves ``diameter`` and ``radius`` alike.
            progress: see ``bfs``; of each traversal.

        Raises:
            InvalidVertexError: the graph has no vertices.
            Other errors as for ``eccentricity``.
        """
        from dbfs.features.batches.diameter import diameter
        from dbfs.features.batches.measures import Options

        return diameter(self, Options(progress=progress, checkpoint=checkpoint))

    @bounded()
    def radius(
        self,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> int:
        """Return the smallest eccentricity, as NetworkX's ``radius``; everything else as for ``diameter``."""
        from dbfs.features.batches.diameter import radius
        from dbfs.features.batches.measures import Options

        return radius(self, Options(progress=progress, checkpoint=checkpoint))

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
        from dbfs.features.batches import measures

        return measures.eccentricity(self, vertices, measures.Options(progress=progress, checkpoint=checkpoint))

    @bounded()
    def closeness_centrality(
        self,
        vertices: Any = None,
        *,
        wf_improved: bool = True,
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
            sample: number of random vertices to traverse from, at least 3; the values are estimates then, with standard
                errors (Eppstein and Wang 2004). A vertex that no other sampled vertex reaches gets the value 0 and the
                error NaN; without ``wf_improved`` one that a single sampled vertex reaches gets the error NaN too.
                Distances from the sample take a byte or more a vertex and source on the workers.
            seed: of the sample, which is the same for any number of ranks.
            deadline, progress, checkpoint: see ``eccentricity``.

        Raises:
            InvalidOptionError: ``sample`` is below 3 or above ``n``, or ``seed`` is below 0.
            InvalidOptionTypeError: ``sample`` or ``seed`` is not an integer.
            Other errors as for ``eccentricity``, but a graph need not be connected.
        """
        from dbfs.features.batches import measures

        return measures.closeness_centrality(
            self, vertices, wf_improved, measures.Options(sample, seed, progress, checkpoint)
        )

    @bounded()
    def harmonic_centrality(
        self,
        vertices: Any = None,
        *,
        sample: int | None = None,
        seed: int = 1,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VertexMeasure:
        """Return the sum of the inverse distances (float64) to some vertices, as NetworkX's ``harmonic_centrality``.

        Directions, arguments and errors as for ``closeness_centrality``.
        """
        from dbfs.features.batches import measures

        return measures.harmonic_centrality(self, vertices, measures.Options(sample, seed, progress, checkpoint))

    @bounded()
    def betweenness_centrality(
        self,
        vertices: Any = None,
        *,
        normalized: bool = True,
        endpoints: bool = False,
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
        from dbfs.features.batches import betweenness, measures

        options = measures.Options(sample, seed, progress, checkpoint)
        return betweenness.betweenness_centrality(self, vertices, normalized, endpoints, options)

    @bounded()
    def edge_betweenness_centrality(
        self,
        *,
        normalized: bool = True,
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
        from dbfs.features.batches import betweenness, measures

        options = measures.Options(sample, seed, progress, checkpoint)
        return betweenness.edge_betweenness_centrality(self, normalized, options)

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
        from dbfs.features.batches import measures

        return measures.average_shortest_path_length(self, measures.Options(sample, seed, progress, checkpoint))

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
        from dbfs.features.batches import measures

        return measures.wiener_index(self, measures.Options(progress=progress, checkpoint=checkpoint))

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
        from dbfs.features.batches import measures

        return measures.neighbourhood_function(self, measures.Options(sample, seed, progress, checkpoint))

    @bounded()
    def distance_matrix(
        self,
        sources: Any,
        targets: Any,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> DistanceMatrix:
        """Return int32[sources, targets]: the distance of each target from each source, -1 unreached.

        The array is a table too, in ids: ``graph.distance_matrix(...).to_pandas()``.

        The traversals are those of ``bfs_batch``, from the sources; in an undirected graph from the targets, if these
        are fewer.

        Args:
            sources, targets: an id, or several; ids may occur again.
            deadline, progress: see ``eccentricity``.

        Raises:
            InvalidVertexError: a source or a target is not in the graph, or was deleted.
            InvalidOptionError: another client updated the graph in between.
            GraphTooLargeError: this machine has no memory for the array.
            Other errors as for ``bfs_batch``.
        """
        from dbfs.features.batches.sweeps import distance_matrix

        return distance_matrix(self, sources, targets, progress)

    @bounded()
    def landmarks(
        self,
        k: int = 16,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Landmarks:
        """Return the distances from ``k`` landmarks, which bound the distance of any two vertices at once.

        The first landmark has the largest degree; each other one is farthest from those before, in the component of the
        first (Goldberg and Harrelson 2005). A component of fewer vertices has fewer landmarks. The client takes 2 bytes
        a vertex and landmark, or 4 where distances exceed 32,767, and 4 while they are made.

        Args:
            k: number of landmarks, and of traversals.
            deadline: see ``bfs``.
            progress: see ``bfs``; of each traversal.
            checkpoint: a file of the client's machine that keeps the landmarks, 4 bytes a vertex and landmark. If the
                file has them, no traversal is made; a larger ``k`` adds to them.

        Raises:
            DirectedGraphError: the graph is directed.
            InvalidOptionError: ``k`` is below 1, another client updated the graph in between, or the checkpoint is that
                of another graph or measure.
            FormatError, UnreadableFileError, OutputError: see ``eccentricity``.
            InvalidOptionTypeError: ``k`` is not an integer.
            InvalidVertexError: the graph has no vertices.
            Other errors as for ``bfs``.
        """
        from dbfs.features.batches.landmarks import landmarks

        return landmarks(self, k, progress, checkpoint)

    @bounded()
    def degree_counts(self) -> DegreeCounts:
        """Return the degrees that occur, ascending, and the number of vertices of each: two int64 arrays, and a table.

        A degree is the number of edges stored at a vertex: duplicates count, a self-loop counts once. In a directed
        graph it is the out-degree. The workers count. Errors as for ``components``.
        """
        from dbfs.graph.degrees import degree_counts

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
                ``dbfs.write.folders`` does not allow the folder; or the graph was loaded with ``room``, or has deleted
                vertices.
            FolderBusyError: another client saved to the folder until the deadline, or took it over because this client
                gave no sign of life for 60 s.
            OutputError: the file system refuses a file, is full, or is not shared by all workers.
            GraphTooLargeError: a worker has no memory for a copy of the partition that is on its GPU, or for the 1-D
                partition that it joins of a graph with ``layout="2d"``.
            WorkerLostError, DeadlineExceededError: a worker was lost, or the deadline has passed.
            ResultReleasedError: the graph was unloaded.
        """
        from dbfs.features.saved.saving import save

        self.refresh()
        return save(self.gang, self.record, path, replace=replace)

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

    @bounded()
    def insert_edges(
        self,
        edges: EdgeSource,
        *,
        format: str | None = None,  # noqa: A002 - the word users expect
        source: ColumnNames = None,
        target: ColumnNames = None,
        strict: bool = False,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Insert edges. An edge that the graph has already is skipped.

        If ids are strings, tuples or integers with gaps, new ids become vertices within the graph's room
        (``load(..., room=)``); ``Update.ids`` has them.

        Args:
            edges: anything that ``load`` takes, between ids of this graph's type. In an undirected graph an edge (u, v)
                is also the edge (v, u).
            format, source, target: see ``load``.
            strict: refuse the whole batch if the graph has an edge already, or an edge occurs twice in the batch.
            batch_id: an id of the caller's choice, with which the batch may be sent again without harm: of the graph's
                last 256 batches none is made a second time. After ``OutcomeUnknownError`` send the batch again with the
                id of the message.
            deadline: seconds (or a Dask duration) that the update may take, the queue included; ``dbfs.deadline`` if
                None.

        Raises:
            InvalidOptionError: the graph was not loaded with ``mutable=True``, or is frozen; or of the graph and the
                batch one is directed and the other undirected.
            InvalidVertexError, InvalidVertexTypeError: an end of an edge was deleted, is no id of the graph's type, or
                is not in a graph whose ids are consecutive integers.
            EdgeInputError: with ``strict``, the graph has an edge already. For this and the errors of files, see also
                ``load``.
            GraphTooLargeError: the edges do not fit in a worker's memory, or the batch has more new ids than the graph
                has room.
            QueueFullError, WorkerLostError, DeadlineExceededError, RunCancelledError: the update ended early, and the
                graph has its version before.
            OutcomeUnknownError: no answer came by the deadline, and the update may have been made.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded.
        """
        updates = Updates(self)
        batch = updates.edge_list(edges, format, source, target)
        return updates.change("insert-edges", batch, strict=strict, batch_id=batch_id)

    @bounded()
    def delete_edges(
        self,
        edges: EdgeSource,
        *,
        format: str | None = None,  # noqa: A002 - the word users expect
        source: ColumnNames = None,
        target: ColumnNames = None,
        strict: bool = False,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Delete edges, with all their duplicates. An edge that the graph lacks is skipped.

        Arguments and errors as for ``insert_edges``; ``strict`` refuses a batch with an edge that the graph lacks.
        """
        updates = Updates(self)
        batch = updates.edge_list(edges, format, source, target)
        return updates.change("delete-edges", batch, strict=strict, batch_id=batch_id)

    @bounded()
    def insert_vertices(
        self,
        count: int,
        *,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Insert vertices without edges; ``Update.ids`` are their ids. Ids of deleted vertices are used again first.

        Raises:
            InvalidOptionError: the graph is ordered by degree, or its ids are not consecutive integers; or as for
                ``insert_edges``.
            InvalidOptionTypeError: ``count`` is not an integer.
            GraphTooLargeError: the graph has room for fewer vertices; see ``load(..., room=)``.
            Other errors as for ``insert_edges``.
        """
        if self.record.ids.keys or self.record.order_key is not None:
            why = "its ids are not consecutive integers" if self.record.ids.keys else "it is ordered by degree"
            raise InvalidOptionError(f"{self.record.name} can't get more vertices: {why}")
        return Updates(self).change("insert-vertices", count=whole_count(count, "count"), batch_id=batch_id)

    @bounded()
    def delete_vertices(
        self,
        ids: Any,
        *,
        strict: bool = False,
        batch_id: str | None = None,
        deadline: float | str | None = None,
    ) -> Update:
        """Delete vertices with all their edges. ``n`` still counts them, until ``insert_vertices`` uses them again.

        A traversal from a deleted vertex raises ``InvalidVertexError``, and measures of all vertices leave it out.
        ``deleted`` is the number of these vertices, and ``id in graph`` is false for each.

        Args:
            ids: an id, or several.
            strict: refuse the whole update if a vertex was deleted before.
            batch_id, deadline: see ``insert_edges``, also for the errors.
        """
        vertices = self.vertices_named(ids, "id")
        return Updates(self).change("delete-vertices", vertices=vertices, strict=strict, batch_id=batch_id)

    @bounded()
    def compact(self, *, deadline: float | str | None = None) -> None:
        """Move all rows to a pool without free pages. Errors as for ``insert_edges``."""
        Updates(self).change("compact")

    @bounded()
    def freeze(self, *, deadline: float | str | None = None) -> None:
        """Move all rows to a CSR, and refuse updates until ``thaw``. Errors as for ``insert_edges``."""
        Updates(self).change("freeze")

    @bounded()
    def thaw(self, *, deadline: float | str | None = None) -> None:
        """Move the rows of a frozen graph to pages, and allow updates again.

        Raises:
            InvalidOptionError: the graph is in the layout ``2d``, or keeps its input edges.
            Other errors as for ``insert_edges``.
        """
        Updates(self).change("thaw")

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

    def __enter__(self) -> Graph:
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

    def _repr_html_(self) -> str:
        from dbfs.display.notebook.html import graph_html

        return graph_html(self)

    def take(self, record: GraphRecord) -> None:
        """Take over a record, unless this object has the record of a later version."""
        if record.version >= self.record.version:
            grown = record.stripe.n != self.n
            self._record = record
            if grown:
                self.lookup = IdLookup(self.gang, record)

    def _require_tables(self) -> None:
        # Ids without tables can be named after the graph was unloaded.
        if self.record.ids.keys:
            self.require_loaded()

    def require_loaded(self) -> None:
        """Raise ``ResultReleasedError`` if this object has unloaded the graph."""
        if self._unloaded:
            raise ResultReleasedError(f"{self.record.name} was unloaded; load it again")
