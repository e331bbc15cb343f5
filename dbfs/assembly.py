"""The public classes and calls, put together: the core's parts, and what each feature adds to them.

A feature is taken away by deleting its lines here, and its folders.
Importing this module needs no Numba and no GPU: what features import is imported where it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import distributed

from dbfs.base.calls import public
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption
from dbfs.base.records import BuildProgress, RunProgress
from dbfs.building.build import IDS, estimate_as
from dbfs.building.builder import BuildOptions as CoreOptions
from dbfs.building.memory import Estimate
from dbfs.cluster.awaiting import awaitable, awaited
from dbfs.cluster.deadline import bounded
from dbfs.display.plots import ShownGraph, ShownResult
from dbfs.edges.resolve import edge_list
from dbfs.engines import Engines
from dbfs.engines.resident import ResidentEngine
from dbfs.errors import InvalidOptionError
from dbfs.features.batches.asynchronous import AsyncBatchesGraph, AsyncBatchesResult
from dbfs.features.batches.batch import BatchesResult
from dbfs.features.batches.graph import BatchesGraph
from dbfs.features.components.asynchronous import AsyncComponentsGraph
from dbfs.features.components.components import ComponentsGraph
from dbfs.features.grid.layout import Grids
from dbfs.features.lab.storage import LinkedRows, Storage
from dbfs.features.lab.strategy import chosen_by
from dbfs.features.living.asynchronous import AsyncLivingGraph, AsyncLivingResult, AsyncWatch
from dbfs.features.living.graph import LivingGraph
from dbfs.features.living.sizes import VersionRows
from dbfs.features.living.watch import LivingResult
from dbfs.features.paths.asynchronous import AsyncPathsGraph, AsyncPathsResult
from dbfs.features.paths.graph import PathsGraph
from dbfs.features.paths.result import PathsResult
from dbfs.features.rebuild.asynchronous import AsyncRebuildGraph
from dbfs.features.rebuild.graph import RebuildGraph, RebuildResult
from dbfs.features.rebuild.option import Rebuild
from dbfs.features.saved.asynchronous import AsyncSavedGraph
from dbfs.features.saved.edges import MappedFiles, SavedFolders
from dbfs.features.saved.graph import SavedGraph
from dbfs.features.subgraphs.asynchronous import AsyncSubgraphsGraph, AsyncSubgraphsResult
from dbfs.features.subgraphs.subgraph import SubgraphsGraph, SubgraphsResult
from dbfs.features.taskgraph.engine import TaskGraphEngine
from dbfs.features.validation.asynchronous import AsyncValidationResult
from dbfs.features.validation.result import ValidationResult
from dbfs.features.views.asynchronous import AsyncViewsGraph
from dbfs.features.views.attributes import Attributes, edge_column_keys
from dbfs.features.views.graph import ViewsGraph
from dbfs.features.views.options import KeptColumns
from dbfs.features.views.room import make_room
from dbfs.features.weights.asynchronous import AsyncWeightsGraph
from dbfs.features.weights.graph import WeightsGraph
from dbfs.graph.asynchronous import streamed
from dbfs.graph.load import load_as, open_as
from dbfs.graph.nearness import nearness
from dbfs.graph.order import Order

if TYPE_CHECKING:
    from dbfs.cluster.gang import Gang
    from dbfs.edges.edge_list import EdgeList
    from dbfs.edges.resolve import EdgeSource
    from dbfs.edges.tables.ends import ColumnNames
    from dbfs.service.scheduler import SchedulerService

FOLDER_READERS: Final = (SavedFolders(),)
"""What opens folders that are more than files of edges."""

ENGINES: Final[Engines] = {
    "resident": ResidentEngine,
    "taskgraph": TaskGraphEngine,
}
"""The engines by name."""


def scheduler_service() -> SchedulerService:
    """Return the scheduler's half of the service, with what features add to it and to the workers."""
    from dbfs.dashboard import Dashboard
    from dbfs.features.living.updates import Updates
    from dbfs.features.rebuild.scheduler import Rebuilds
    from dbfs.service.scheduler import SchedulerService
    from dbfs_workers.assembly import worker_service

    return SchedulerService([Updates, Rebuilds, Dashboard], worker_service)


class BuildOptions(CoreOptions):  # noqa: D101 - it has the words of its base
    __doc__ = CoreOptions.__doc__
    layouts = Grids()
    storages = (
        VersionRows(),
        LinkedRows(),
    )
    keeper = Attributes()
    room_makers = (make_room,)

    def nearness(self, edges: EdgeList, gang: Gang, backend: str) -> list[distributed.Future]:
        return nearness(Graph, edges, gang, self, backend)


_AS_GIVEN: Final = BuildOptions()


class BFSResult(
    BatchesResult,
    LivingResult,
    PathsResult,
    RebuildResult,
    SubgraphsResult,
    ValidationResult,
    ShownResult,
):
    """The result of ``Graph.bfs``.

    Attributes:
        graph: the graph that was traversed.
        sources: ids at distance 0.
        source_vertices: their vertices.
        run_id: id of the run that made the traversal.
        engine: name of the engine that ran.
        spec: options of the traversal, in vertices.
        depth: the largest distance.
        seconds: time from the start of the first level to the end of the last.
        setup_seconds: time before that: clearing the state and (on CPUs) waiting for the slowest rank; None after a
            run of the taskgraph engine, which does not measure it.
        version: version of the graph that was traversed. The labels are of this version, whatever updates follow.
        counters: counters of a strategy of the laboratory, by name (docs/laboratory.md); empty without a strategy.
        attempts: how often the run was made: more than once if it lost a worker, and began again on the graph that was
            built again.
    """

    graph: Graph


@public
class Graph(
    BatchesGraph[BFSResult],
    ComponentsGraph[BFSResult],
    LivingGraph[BFSResult],
    WeightsGraph[BFSResult],  # above the paths that it extends
    PathsGraph[BFSResult],
    RebuildGraph[BFSResult],
    SavedGraph[BFSResult],
    SubgraphsGraph[BFSResult],
    ViewsGraph[BFSResult],
    ShownGraph[BFSResult],
):
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
        order_name: the internal order: ``given``, ``degree`` or ``bfs``; ``kept`` for that of a saved graph, if it
            has one.
        record: the service's record of the graph.
    """

    result_type = BFSResult
    engines = ENGINES
    keeper = BuildOptions.keeper
    _column_keys = staticmethod(edge_column_keys)

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
        result = self.search(
            source,
            targets=targets,
            predecessors=predecessors,
            max_depth=max_depth,
            direction=direction,
            engine=engine,
            chosen=None if strategy is None else chosen_by(self, strategy, max_depth, direction, engine),
            progress=progress,
        )
        if validate:
            result.validate()
        return result

    def view(self) -> AsyncGraph:
        return AsyncGraph(self)


class AsyncBFSResult(
    AsyncBatchesResult,
    AsyncLivingResult,
    AsyncPathsResult,
    AsyncSubgraphsResult,
    AsyncValidationResult,
):
    """The result of ``AsyncGraph.bfs``.

    ``distances``, ``predecessors``, ``path_to``, ``paths_to``, ``vertices_at``, ``vertices``, ``tree``, ``to_arrow``,
    ``to_pandas``, ``to_polars``, ``to_dict``, ``to_parquet``, ``to_dask_dataframe``, ``to_dask_array``, ``nearest``,
    ``validate``, ``update``, ``changed``, ``recompute``, ``publish`` and ``release`` take the arguments of
    ``BFSResult``'s methods, and return awaitables. ``levels``, ``reports`` and ``summary`` need no cluster, and are
    those of ``BFSResult``.

    Attributes:
        graph: the graph that was traversed.
        synchronous: the ``BFSResult``. Its methods block: call them in other threads only.

    All other attributes are those of ``BFSResult``.
    """

    graph: AsyncGraph
    synchronous: BFSResult

    recompute = awaited(RebuildResult.recompute, lambda result: AsyncBFSResult(result))


class AsyncGraph(
    AsyncBatchesGraph,
    AsyncComponentsGraph,
    AsyncLivingGraph,
    AsyncWeightsGraph,
    AsyncPathsGraph,
    AsyncRebuildGraph,
    AsyncSavedGraph,
    AsyncSubgraphsGraph,
    AsyncViewsGraph,
):
    """A graph of an asynchronous client. ``await dbfs.load(...)`` and ``await dbfs.open(...)`` return one.

    ``bfs``, ``bfs_many``, ``bfs_batch``, ``sssp``, ``distance``, ``path``, ``reachable``, ``pair_distances``,
    ``count_paths``, ``khop``, ``khop_sizes``, ``components``, ``neighbors``, ``degree``, ``degree_counts``,
    ``eccentricity_bound``, ``diameter``, ``radius``, ``eccentricity``, ``closeness_centrality``,
    ``harmonic_centrality``, ``betweenness_centrality``, ``edge_betweenness_centrality``,
    ``average_shortest_path_length``, ``wiener_index``, ``neighbourhood_function``, ``distance_matrix``, ``landmarks``,
    ``sample_sources``, ``vertex``, ``vertices_of``, ``id_of``, ``ids_of``, ``ids``, ``refresh``, ``insert_edges``,
    ``delete_edges``, ``insert_vertices``, ``delete_vertices``, ``compact``, ``freeze``, ``thaw``, ``watch``, ``where``,
    ``views``, ``save``, ``rebalance``, ``state`` and ``unload`` take the arguments of ``Graph``'s methods, and return
    awaitables.
    ``bfs_stream`` and ``paths`` return asynchronous iterators. ``await graph.contains(id)`` stands for ``id in
    graph``. ``async with graph:`` unloads the graph at the end. A call that is cancelled ends its run. Functions given
    as ``progress`` are called in another thread.

    Attributes:
        synchronous: the ``Graph``. Its methods block: call them in other threads only.
        gang: the workers that hold the graph.

    All other attributes are those of ``Graph``.
    """

    synchronous: Graph

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)

    bfs = awaited(Graph.bfs, AsyncBFSResult)
    bfs_many = awaited(Graph.bfs_many, lambda results: [AsyncBFSResult(result) for result in results])
    bfs_stream = streamed(Graph.bfs_stream, AsyncBFSResult)
    watch = awaited(Graph.watch, lambda watch: AsyncWatch(watch, AsyncBFSResult))


@public
@awaitable(AsyncGraph)
@bounded("build-deadline")
def load(
    edges: EdgeSource,
    *,
    client: distributed.Client | None = None,
    ranks: int | None = None,
    directed: bool | None = None,
    format: str | None = None,  # noqa: A002 - the word users expect
    source: ColumnNames = None,
    target: ColumnNames = None,
    edge_columns: ColumnNames = None,
    vertices: Any = None,
    vertex_columns: ColumnNames = None,
    sep: str | None = None,
    missing: Sequence[str] | None = None,
    skip_rows: int | None = None,
    name: str | None = None,
    replace: bool | str = False,
    in_edges: bool = False,
    order: str | None = None,
    traversals: int | None = None,
    ids: str = "given",
    keep_edges: bool = False,
    mutable: bool = False,
    room: int = 0,
    storage: str = "csr",
    layout: str = "1d",
    backend: str = "auto",
    deadline: float | str | None = None,
    mapped: bool | None = None,
    rebuild: str = "lazy",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: ProgressOption[BuildProgress] = None,
) -> Graph:
    """Build a graph on a cluster's workers.

    Args:
        edges: one of

            - a generator's spec such as ``kronecker:scale=18``, or an edge list (``dbfs.kronecker(...)``,
              ``dbfs.from_file(...)``, ``dbfs.from_arrays(...)``, ``dbfs.from_scipy(...)``);
            - the path or URL of a file, of a folder of files, or a pattern such as ``edges/*.parquet``;
            - the path or URL of a graph that ``Graph.save`` saved;
            - a table: a DataFrame of pandas, Polars, cuDF or dask, or anything else with ``__arrow_c_stream__``;
            - a graph of NetworkX, igraph, rustworkx or NetworKit;
            - an iterable of pairs, or an array of shape (m, 2) or (2, m);
            - a pair ``(src, dst)`` of arrays of integers or strings, also of dask arrays;
            - a square SciPy sparse matrix, whose stored entries (i, j) are edges from i to j, zeros included.
        client: any ``distributed.Client``; Dask's current one if None. Without one, ``load`` starts a cluster within
            this process, on CPU cores, and warns of that; its client becomes Dask's current one. With an asynchronous
            client ``load`` returns an awaitable of an ``AsyncGraph``.
        ranks: number of workers that take part, one rank each; all workers if None. ``load`` waits until they have
            joined. If None it waits for the first one, and for those that join within a second after it.
        directed: whether edges can be crossed in one direction only. None takes it from a file's format or header, and
            from a graph; a matrix is undirected if it is symmetric; tables, pairs and arrays are undirected.
        format: the format of a file; None guesses it from the file's name and header.
        source, target: for a table: the names of the columns that hold the ends of an edge, or lists of names for ids
            that are tuples. Columns of well-known names (``source`` and ``target``, ``src`` and ``dst``, ``from`` and
            ``to``, ``u`` and ``v``) and the two columns of a table without others need not be named, unless one of the
            two is named ``vertex``: the other one has values then.
        edge_columns: names of columns of a table, or of attributes of NetworkX's edges, or ``weight`` for the entries
            of a matrix and the weights of a ``.gr``, Matrix Market, METIS or NCOL file: the ranks keep these values
            with the edges, for ``Graph.where``. A generator draws them by the number of the edge: ``weight=1..255``,
            ``length=0.0..1.0``, ``day=2020-01-01..2020-12-31`` or ``kind=road|rail``. A saved graph has its own: None
            takes all of them, and a list some or none.
            Integers, floats, booleans, dates, times and strings are kept, with nulls; of pandas NaN is a null. Parallel
            edges keep a row each. Of a graph on GPUs they stay on the host. It goes with
            ``mutable=True`` on CPUs, without ``checkpoint``.
        vertices: a table in memory with a row for each vertex, or for some: its id in the column ``vertex`` (or
            ``id``, ``node``), or in the only column that ``vertex_columns`` does not name. All others have nulls. It
            takes the place of the columns of vertices that a saved graph has; ``vertex_columns=[]`` leaves those out.
            A graph of NetworkX has its own: ``vertex_columns`` are attributes of its nodes.
        vertex_columns: names of columns of ``vertices`` that the ranks keep, for ``Graph.where``; else as
            ``edge_columns``.
        sep, missing, skip_rows: what separates columns of a text, which words stand for missing ids, and how many lines
            at its top are passed over: see ``dbfs.from_file``.
        name: keeps the graph in the cluster under this name until it is unloaded; any client can ``open`` it. A name is
            printable text of at most 255 characters. A graph without a name is unloaded when this client closes or the
            last reference to the ``Graph`` ends.
        replace: unload the graph that has the name, which also cancels its runs, when this graph is whole. Until then
            the old graph keeps the name, and both must fit at once. ``first`` unloads the old graph before this one is
            built; if the build fails, both are gone.
        in_edges: also keep the in-edges of a directed graph, for bottom-up levels.
        order: ``given``; ``degree`` for an internal numbering by falling degree with hub-first adjacency lists, which
            is faster on graphs with hubs; ``bfs`` for one by the distance from an end of the graph, which is faster on
            meshes and road networks, and takes a second build. ``auto`` builds the graph as given, traverses it from
            its hub, and builds it again in one of these orders only if that pays within ``traversals``. The log
            (``dbfs``, INFO) says why, ``Graph.order_name`` which. Callers' ids do not change. None for the order of a
            saved graph, and ``given`` for all others; a graph saved with ``bfs`` is ordered by degree on other numbers
            of ranks. A saved graph also keeps its in-edges and its input edges.
        traversals: number of traversals that the caller expects to make, for ``order="auto"``.
        ids: ``given``: callers name vertices by the ids of the file or the table. ``dense``: callers name them by the
            numbers 0..n-1, in ascending order of the ids. ``string``: ids of a text, a table, arrays or pairs are the
            strings that are written there, integers of any length and codes such as 007 too.
        keep_edges: also keep the edges on the workers as they were read (8 bytes per edge). Validation then checks
            results against the input, and so also finds a graph that was built wrong.
        mutable: allow updates: ``Graph.insert_edges``, ``delete_edges``, ``insert_vertices``, ``delete_vertices``. Not
            together with ``keep_edges``, because validation would compare results with edges that are gone. On CPUs the
            first update needs memory for a copy of the graph, to move the rows to pages; on GPUs each update does.
        room: vertices that ``Graph.insert_vertices``, or new ids in ``Graph.insert_edges``, may add to those of the
            edges.
        storage: ``pages`` keeps the rows of a graph on one GPU on linked pages, as faimGraph does (Tödling 2019).
            Updates change them in place, and strategies with ``storage=pages`` traverse them. All other calls read a
            CSR, which is copied from the pages once for each version that they read. It needs ``mutable=True`` and
            ``ranks=1``, and goes without ``in_edges``.
        layout: ``1d``: each rank has the edges of its own vertices. ``2d``: the ranks form a grid, and each has the
            edges from the vertices of its column to those of its row. The grid is as square as the number of ranks
            allows; ``2d:1x4`` has one row of 4 columns, ``2d:4x1`` 4 rows, ``2d:1xp`` one row of all ranks, however
            many. So a rank exchanges with the ranks of its row and
            its column only, and fewer bytes are sent with many ranks. It is for the resident engine; each edge is
            stored twice for bottom-up levels. On GPUs the graph is built on the workers' CPU cores, its edges stay in
            their memory too, and ranks map each other's messages or exchange through the host. ``auto``: the one whose
            traversals take less time by a model, or the other one if only that fits the workers. Ranks of one host are
            faster in ``1d``. ``Graph.layout`` says which, ``dbfs.estimate`` says why. It is ``1d`` for
            ``mutable=True``, on GPUs, for saved graphs, and for files that do not say their size.
        backend: where the graph is built and traversed: ``cpu``; ``cuda``, on each worker's GPU; ``auto`` for ``cuda``
            if every worker has CuPy and a GPU of its own, else ``cpu``. GPUs that can't map each other's memory
            exchange through the host, which is slower (a warning says so).
        deadline: seconds (or a Dask duration) that the load may take, the wait for workers included. If None,
            ``dbfs.build-deadline``, and ``dbfs.workers-timeout`` for the wait.
        mapped: for a saved graph: True if ranks on CPUs map its files instead of copying them into their memory, False
            if they copy. A load takes less time then, and graphs that are loaded twice on a host share memory. But a
            program that truncates a mapped file ends the workers (SIGBUS), with all of their graphs. None maps the
            files on a cluster that this program started, and copies them on all others.
        rebuild: what becomes of the graph if it loses a worker. ``lazy``: the next call of any client builds the lost
            ranks again of the source, under the same name, on workers that take the place of the lost ones; calls that
            lost a worker begin again (``dbfs.retries``). ``eager``: this program does so at once. ``never``: calls
            raise ``WorkerLostError``. Edges that came from this program's memory can't be read again.
        checkpoint: a folder, or a URL, in which the graph is saved when it is whole (see ``Graph.save``): lost ranks
            are then read from there, which takes less time than a build, and serves edges of this program's memory too.
            With ``mutable=True``, on CPU cores and a disk that all workers share, each update is kept there before it
            is answered: the graph comes back at its last version, and ``load(folder)`` loads that. With
            ``checkpoint=folder`` once more it goes on from that version, and a graph that used the folder before takes
            no more updates. The folder stays when the graph is unloaded.
        progress: a bar during the build, or a function called with a ``BuildProgress``: see ``dbfs.progress``.

    Raises:
        ClientError, NoWorkersError: there is no usable client, the client left the cluster meanwhile, or there are not
            enough workers.
        FormatError, TruncatedFileError, MissingFileError, UnreadableFileError: the file can't be read.
        EdgeInputError: the table, the arrays or the matrix are malformed, or ``edges`` is of another type. The message
            names the column and the row, or lists the columns.
        NameTakenError: another graph has the name, and ``replace`` is false; or a graph of that name is being built.
        GraphTooLargeError: the workers, or their GPUs, have too little memory for the graph, or for the graph beside
            the one that it replaces.
        BackendUnavailableError: ``backend="cuda"``, and a worker has no GPU, or CuPy is not installed there.
        ExchangeUnavailableError: the ranks do not support the exchange that ``dbfs.exchange`` names.
        InvalidOptionError: an option's value is not one of its choices, or the name is not printable; or
            ``dbfs.exchange`` names an exchange that ``layout="2d"`` on GPUs does not have; or the layout's grid is of
            another number of ranks; or ``checkpoint`` has another graph, or can't keep updates; or ``mapped`` is
            given for edges that are no saved graph, or true for a saved graph in a store; or one of ``order="auto"``
            and ``traversals`` is missing, or they are given for a saved graph or with ``room``.
        InvalidOptionTypeError: ``ranks``, ``room`` or ``traversals`` is not an integer.
        OutputError: ``checkpoint`` can't be written, its disk is full, or another graph has just added updates.
    """
    if ids not in (*IDS, "string"):
        raise InvalidOptionError(f"unknown ids {ids!r}; choose one of {', '.join(IDS)}, string")
    given, strings = ("given", "string") if ids == "string" else (ids, None)
    kept = KeptColumns.of(edge_columns, vertices, vertex_columns, edges, strings=ids == "string")
    reading: dict[str, Any] = {"directed": directed, "format": format, "source": source, "target": target}
    reading |= {"sep": sep, "missing": missing, "skip_rows": skip_rows, "ids": strings, "attributes": kept.names or ()}

    ordered = Order(order, traversals, room)

    def options() -> BuildOptions:
        return BuildOptions(in_edges, ordered.name, keep_edges, given, whole_count(room, "room"), layout, storage)

    return load_as(
        Graph,
        edges,
        reading,
        options,
        [MappedFiles(mapped), Storage(storage), kept, ordered, Rebuild(rebuild, edges, reading, options, checkpoint)],
        client=client,
        ranks=ranks,
        name=name,
        replace=replace,
        mutable=mutable,
        backend=backend,
        deadline=deadline,
        progress=progress,
    )


@public
def estimate(
    edges: EdgeSource,
    ranks: int | None = None,
    options: BuildOptions = _AS_GIVEN,
    *,
    backend: str = "cpu",
    memory: int | str | None = None,
    directed: bool | None = None,
    format: str | None = None,  # noqa: A002 - the word users expect
    source: ColumnNames = None,
    target: ColumnNames = None,
    edge_columns: ColumnNames = None,
    vertices: int | None = None,
    hosts: int = 1,
    mutable: bool = False,
) -> Estimate:
    """Estimate the bytes that a graph will take on each rank: its partition, its build's peak, a traversal.

    A graph that does not fit its GPUs at once is built in two or three bands, which take less memory. Each band
    generates or reads all edges again. The estimate is of the fewest bands that fit ``memory``.

    Args:
        edges: what ``load`` takes, if its numbers of vertices and edges are known before reading. The edges of an
            edge list or a CSV file are counted in samples of its text; of a compressed one, in its first 8 MiB.
        ranks: number of ranks. None for the workers of Dask's current client; without one for those that
            ``dbfs.connect()`` would start, or for ``cuda`` this machine's visible GPUs.
        options: the graph's layout. With ``layout="auto"``, ``Estimate.why`` is the reason for the one chosen.
        backend: ``cpu`` for bytes of a worker's memory, ``cuda`` for bytes of its GPU's memory. A build with
            ``layout="2d"`` for GPUs takes the bytes of ``cpu`` in the workers' memory as well.
        memory: memory limit of a worker, or free memory of a GPU: bytes, or a text such as ``80GB`` or ``139 GiB``. If
            None, and for ``cuda``, the memory of the smallest of this machine's visible GPUs.
        directed: as of ``load``.
        format: as of ``load``.
        source, target, edge_columns: as of ``load``.
        vertices: number of distinct ids of edges that are read by the workers, such as those of a Parquet file. They
            are taken to be as long as the first ones, which are read.
        hosts: number of hosts with ranks on CPUs, as many on each. The lowest rank of each host takes memory for the
            ranks of other hosts, and the estimate is of such a rank.
        mutable: count the memory that updates need as well: see ``Estimate.update``.

    Raises:
        EdgeInputError: the numbers of vertices and edges are known only after reading, or ``edges`` is of a type that
            ``load`` does not take.
        GraphTooLargeError: there are more vertices than internal ids.
        InvalidOptionError: the backend is unknown, ``ranks`` or ``hosts`` is below 1,
            ``vertices`` below 0 or given for edges whose vertices are known, or ``memory`` is not a number of bytes;
            the layout's grid is of another number of ranks; or ``load`` refuses ``mutable=True`` or the storage with
            the other options.
        InvalidOptionTypeError: ``ranks``, ``hosts`` or ``vertices`` is not an integer, or ``options`` are no
            ``BuildOptions``.
        ClientError, SchedulerLostError: ``ranks`` is None, and the current client can't tell its workers.
        FormatError, TruncatedFileError, MissingFileError, UnreadableFileError: the file can't be read.
    """
    reading: dict[str, Any] = {"directed": directed, "format": format, "source": source, "target": target}
    kept = KeptColumns.of(edge_columns, None, None, edges)
    reading["attributes"] = kept.names or ()
    listed = edge_list(edges, **reading)
    listed = kept.take_edges(listed, shared=True)
    kept.require(1, backend, mutable=mutable)
    more: dict[str, Any] = {"vertices": vertices, "hosts": hosts, "mutable": mutable}
    return estimate_as(listed, ranks, options, backend=backend, memory=memory, **more)


@public
@awaitable(AsyncGraph)
@bounded()
def open(  # noqa: A001 - the word users expect
    name: str,
    *,
    client: distributed.Client | None = None,
    deadline: float | str | None = None,
) -> Graph:
    """Open a graph that any client has loaded under a name.

    With an asynchronous client ``open`` returns an awaitable of an ``AsyncGraph``. ``deadline`` is as for ``bfs``.

    A graph that lost a worker and can't be built again is opened too, so that it can be unloaded. Its name is free for
    another graph.

    Raises:
        GraphNotFoundError: no graph has the name; the message lists the names in use.
        InvalidOptionError: no graph can have the name, which is not printable text of at most 255 characters.
        ClientError: there is no usable client.
    """
    return open_as(Graph, name, client)
