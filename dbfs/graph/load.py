"""Loading graphs into a cluster, and opening graphs that are loaded."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, Final

import distributed

from dbfs import config
from dbfs.base.calls import public
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption, build_reporter
from dbfs.base.records import BACKENDS, EXCHANGES, EXCHANGES_OF, BuildProgress, GraphRecord
from dbfs.base.units import format_bytes
from dbfs.building.build import AUTO, IDS, build, choose_layout, require_changeable
from dbfs.cluster.awaiting import awaitable
from dbfs.cluster.connect import connect, current_client, roster
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Gang, release
from dbfs.cluster.kernels import compile_now, of_build
from dbfs.cluster.local import ends_with_process
from dbfs.edges.edge_list import EdgeList, tell_left_out
from dbfs.edges.resolve import edge_list
from dbfs.errors import DbfsError, GraphTooLargeError, InvalidOptionError, MissingFileError
from dbfs.features.grid.layout import BuildOptions
from dbfs.features.living.living import Updates
from dbfs.features.saved.building import with_mapping
from dbfs.graph.asynchronous import AsyncGraph
from dbfs.graph.graph import Graph
from dbfs.lab import CHOICES
from dbfs.service.client import ServiceClient, error_words
from dbfs.service.messages import AddGraph, ChooseBackend, EndLoad, ListGraphs, OpenGraph, Reserve
from dbfs_workers.base.received import require
from dbfs_workers.base.text import GraphName, printable

if TYPE_CHECKING:
    from dbfs.edges.resolve import EdgeSource
    from dbfs.edges.tables.ends import ColumnNames

logger = logging.getLogger(__name__)

# Up to so many edges nothing is worth compiling.
_FEW_EDGES: Final = 1 << 11


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
    sep: str | None = None,
    missing: Sequence[str] | None = None,
    skip_rows: int | None = None,
    name: str | None = None,
    replace: bool | str = False,
    in_edges: bool = False,
    order: str | None = None,
    ids: str = "given",
    keep_edges: bool = False,
    mutable: bool = False,
    room: int = 0,
    storage: str = "csr",
    layout: str = "1d",
    backend: str = "auto",
    deadline: float | str | None = None,
    mapped: bool | None = None,
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
        sep, missing, skip_rows: what separates columns of a text, which words stand for missing ids, and how many lines
            at its top are passed over: see ``dbfs.from_file``.
        name: keeps the graph in the cluster under this name until it is unloaded; any client can ``open`` it. A name is
            printable text of at most 255 characters. A graph without a name is unloaded when this client closes or the
            last reference to the ``Graph`` ends.
        replace: unload the graph that has the name, which also cancels its runs, when this graph is whole. Until then
            the old graph keeps the name, and both must fit at once. ``first`` unloads the old graph before this one is
            built; if the build fails, both are gone.
        in_edges: also keep the in-edges of a directed graph, for bottom-up levels.
        order: ``given``, or ``degree`` for an internal numbering by falling degree with hub-first adjacency lists,
            which is faster on graphs with hubs. Callers' ids do not change. None for the order of a saved
            graph, and ``given`` for all others. A saved graph also keeps its in-edges and its input edges.
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
            another number of ranks; or ``mapped`` is given for
            edges that are no saved graph, or true for a saved graph in a store.
        InvalidOptionTypeError: ``ranks`` or ``room`` is not an integer.
    """
    _require_replacement(name, replace)
    if ids not in (*IDS, "string"):
        raise InvalidOptionError(f"unknown ids {ids!r}; choose one of {', '.join(IDS)}, string")
    reading: dict[str, Any] = {"format": format, "source": source, "target": target}
    reading |= {"sep": sep, "missing": missing, "skip_rows": skip_rows, "ids": "string" if ids == "string" else None}
    client = _client_of_load(client, ranks, backend)
    with _loading(client, edges if name is None else name) as graph_id:
        listed = _listed(edges, client, directed=directed, **reading)
        tell_left_out(listed)
        listed = with_mapping(listed, mapped, shared=client.cluster is None)
        given = "given" if ids == "string" else ids
        options = BuildOptions(in_edges, order, keep_edges, given, whole_count(room, "room"), layout)
        gang = Gang(client, roster(client, ranks, timeout=deadline))
        chosen = choose_backend(gang, backend)
        options = _laid_out(listed, gang, options, chosen, mutable=mutable)
        _require_storage(storage, gang.p, chosen, mutable=mutable)
        shown = listed.name if name is None else name
        with _reserved(gang, graph_id, name, replace):
            if chosen == "cpu" and ends_with_process(client) and not listed.is_small(_FEW_EDGES):
                compile_now(of_build(listed, gang.p))
            with build_reporter(progress, shown) as report:
                built = build(listed, gang, options, chosen, report)
            record = GraphRecord(
                graph_id=graph_id,
                name=shown,
                named=name is not None,
                client=client.id,
                source=listed.name,
                directed=listed.directed,
                stripe=built.stripe,
                addresses=gang.addresses,
                partition_keys=tuple(future.key for future in built.partitions),
                ids=built.ids,
                order_key=None if built.order is None else built.order.key,
                input_edge_keys=tuple(future.key for future in built.input_edges),
                infos=built.infos,
                backend=chosen,
                exchange=config.choice("exchange", EXCHANGES),
                layout=options.laid_out(gang.p),
                created=time.time(),
                read_seconds=built.read_seconds,
                build_seconds=built.seconds,
                mutable=mutable,
            )
            try:
                formed = ServiceClient.of(client).call(AddGraph(record, of_call("build-deadline").remaining))
            finally:
                # The service holds the data from here on. If the call failed, the data must be freed.
                release(built.futures)
    if formed.slower:
        words = "%s: its GPUs exchange through the host (%s), which is slower: %s"
        logger.warning(words, record.name, formed.exchange, formed.slower)
    graph = Graph(record, formed, client)
    if storage == "pages":
        try:
            Updates(graph).change("link")
        except BaseException:
            graph.unload()
            raise
    return graph


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

    Raises:
        GraphNotFoundError: no graph has the name; the message lists the names in use.
        InvalidOptionError: no graph can have the name, which is not printable text of at most 255 characters.
        ClientError: there is no usable client.
    """
    client = current_client(client)
    record, formed = ServiceClient.of(client).call(OpenGraph(name))
    return Graph(record, formed, client)


def _require_replacement(name: str | None, replace: bool | str) -> None:
    if replace not in (False, True, "first"):
        raise InvalidOptionError(f"replace must be True, False or 'first', not {replace!r}")
    if replace and name is None:
        raise InvalidOptionError(f"replace={replace!r} needs name=, the name of the graph to replace")
    if name is not None:
        require(name, GraphName, "name")


def _client_of_load(client: distributed.Client | None, ranks: int | None, backend: str) -> distributed.Client:
    """Return the client of a load; arguments as for ``load``, errors as for ``connect`` and ``current_client``."""
    if client is not None or backend == "cuda":
        return current_client(client)
    # A task without a client must not start a cluster within its worker.
    for find in (distributed.Client.current, distributed.get_worker):
        with contextlib.suppress(ValueError):
            find()
            return current_client(None)
    logger.warning(
        "there is no Dask client: dbfs.load starts a cluster within this process, on CPU cores. dbfs.connect() starts "
        "one of processes, or on GPUs, or connects to a scheduler"
    )
    return connect(n_workers=ranks, backend="cpu", processes=False, dashboard_address=None)


def _listed(edges: EdgeSource, client: distributed.Client, **reading: Any) -> EdgeList:
    """Return the edge list of a load. A name that is no file may be that of a loaded graph, which the error then says.

    ``reading`` are the arguments of ``edge_list``.
    """
    try:
        return edge_list(edges, **reading)
    except MissingFileError as error:
        loaded = {status.name for status in ServiceClient.of(client).call(ListGraphs())}
        if not isinstance(edges, str) or edges not in loaded:
            raise
        raise MissingFileError(f"{error}; the graph of that name is loaded: dbfs.open({edges!r})") from error


def choose_backend(gang: Gang, backend: str) -> str:
    """Return the backend that a gang will use, ``cpu`` or ``cuda``; arguments and errors as for ``load``."""
    exchange = config.choice("exchange", EXCHANGES)
    if backend not in BACKENDS:
        raise InvalidOptionError(f"unknown backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    if backend != "auto":
        _require_exchange(f"backend={backend!r}", EXCHANGES_OF[backend], exchange)
    chosen = ServiceClient.of(gang.client).call(
        ChooseBackend(gang.addresses, backend, exchange, of_call("build-deadline").remaining)
    )
    _require_exchange(f"backend={chosen!r}", EXCHANGES_OF[chosen], exchange)
    return chosen


def _laid_out(edges: EdgeList, gang: Gang, options: BuildOptions, backend: str, *, mutable: bool) -> BuildOptions:
    """Return the options with the layout that ``auto`` takes; refuse options that do not go together."""
    if options.layout == AUTO:
        taken = choose_layout(edges, gang, options, backend, mutable=mutable)
        logger.info("%s: layout %s, since %s", edges.name, taken.layout, taken.why)
        options = replaced(options, layout=taken.layout)
    require_changeable(edges, options, mutable)
    laid_out = options.laid_out(gang.p)
    if laid_out is not None:
        words = f"layout={options.layout!r} with backend={backend!r}"
        _require_exchange(words, laid_out.exchanges(backend), config.choice("exchange", EXCHANGES))
    return options


def _require_storage(storage: str, p: int, backend: str, *, mutable: bool) -> None:
    """Refuse a storage that the other options do not go with. Errors as for ``load``."""
    if storage not in CHOICES["storage"]:
        raise InvalidOptionError(f"unknown storage {storage!r}; choose one of {', '.join(CHOICES['storage'])}")
    if storage == "csr":
        return
    if not mutable:
        raise InvalidOptionError(
            "storage='pages' is for graphs that updates may change: it needs mutable=True. A strategy with "
            "storage=pages copies other graphs to pages itself"
        )
    if (p, backend) != (1, "cuda"):
        here = f"{p} rank{'s' if p > 1 else ''} with backend={backend!r}"
        raise InvalidOptionError(
            f"storage='pages' needs one GPU, dbfs.load(..., ranks=1, backend='cuda'), not {here}; mutable=True alone "
            "takes updates on any ranks"
        )
    _require_exchange("storage='pages'", ("auto", "cuda_ipc"), config.choice("exchange", EXCHANGES))


@contextlib.contextmanager
def _loading(client: distributed.Client, edges: object) -> Iterator[str]:
    """Yield an id for a graph that the block loads. If the block fails, the scheduler's log says why.

    ``edges`` is the graph's name, or what was to be loaded.
    """
    service, graph_id = ServiceClient.of(client), uuid.uuid4().hex
    try:
        yield graph_id
    except BaseException as error:
        shown = edges if isinstance(edges, str) else edges.name if isinstance(edges, EdgeList) else type(edges).__name__
        words = error_words(error)
        service.tell(EndLoad(graph_id, client.id, printable(shown).strip() or "a graph", words))
        raise


@contextlib.contextmanager
def _reserved(gang: Gang, graph_id: str, name: str | None, replace: bool | str) -> Iterator[None]:
    """Reserve the name and the workers of a graph while the block builds it."""
    service = ServiceClient.of(gang.client)
    service.call(Reserve(graph_id, gang.client.id, gang.addresses, name, bool(replace), replace == "first"))
    try:
        yield
    except GraphTooLargeError as error:
        if name is not None and replace:
            _name_replaced(error, name, service, gang)
        raise


def _name_replaced(error: GraphTooLargeError, name: str, service: ServiceClient, gang: Gang) -> None:
    """Raise the error of a graph that does not fit beside the one that it replaces, if that one is there."""
    try:
        old, _ = service.call(OpenGraph(name))
    except DbfsError:
        return
    if set(old.addresses) & set(gang.addresses):
        taken = format_bytes(max(info.nbytes for info in old.infos))
        raise GraphTooLargeError(
            f"{error}. Part of the memory is that of the graph to replace, {taken} per rank; replace='first' "
            "(--replace-first) unloads that graph first"
        ) from error


def _require_exchange(what: str, supported: Sequence[str], exchange: str) -> None:
    """Check that the ranks of a backend, or of a layout there, can be asked to exchange in that way."""
    *first, last = supported
    if exchange not in supported:
        raise InvalidOptionError(
            f"{what} does not support the exchange {exchange}; set dbfs.exchange to {', '.join(first)} or {last}"
        )
