"""Loading graphs into a cluster, and opening graphs that are loaded."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import distributed

from dbfs import config
from dbfs.base.progress import ProgressOption, build_reporter
from dbfs.base.records import BACKENDS, EXCHANGES, EXCHANGES_OF, BuildProgress, Formation, GraphRecord
from dbfs.base.units import format_bytes
from dbfs.building.build import (
    AUTO,
    BuildOptions,
    BuiltGraph,
    build,
    choose_layout,
    require_changeable,
    require_storage,
)
from dbfs.cluster.connect import connect, current_client, roster
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, release
from dbfs.cluster.kernels import compile_now, of_build
from dbfs.cluster.local import ends_with_process
from dbfs.edges.edge_list import EdgeList, tell_left_out
from dbfs.edges.resolve import edge_list
from dbfs.errors import DbfsError, GraphTooLargeError, InvalidOptionError, MissingFileError
from dbfs.graph.graph import Graph
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.service.client import ServiceClient, error_words
from dbfs.service.messages import AddGraph, ChooseBackend, EndLoad, ListGraphs, OpenGraph, Reserve
from dbfs_workers.base.received import require
from dbfs_workers.base.text import GraphName, printable

if TYPE_CHECKING:
    from dbfs.edges.resolve import EdgeSource
    from dbfs.service.messages import Reports

logger = logging.getLogger(__name__)

# Up to so many edges nothing is worth compiling.
_FEW_EDGES: Final = 1 << 11


G = TypeVar("G", bound=Graph[BFSResult])

Made: TypeAlias = Callable[[GraphRecord, Formation, distributed.Client], G]
"""What makes a graph of its record, such as ``dbfs.Graph``."""


@dataclass(frozen=True)
class Building(Generic[G]):
    """What a load builds, and on which workers. ``made`` makes a graph of its record."""

    made: Made[G]
    edges: EdgeList
    gang: Gang
    backend: str
    report: Callable[[BuildProgress], None] | None = None

    def build(self, options: BuildOptions, near: Sequence[distributed.Future] = ()) -> BuiltGraph:
        """Build the edges. Arguments and errors as for ``build``."""
        return build(self.edges, self.gang, options, self.backend, self.report, near=near)

    @contextlib.contextmanager
    def graph(self, built: BuiltGraph, options: BuildOptions) -> Iterator[G]:
        """Yield a graph without a name over what was built, and unload it at the end; the caller releases ``built``."""
        record = record_of(built, self.edges, self.gang, self.backend)
        record = replaced(record, layout=options.laid_out(self.gang.p))
        message = AddGraph(record, of_call("build-deadline").remaining)
        with self.made(record, ServiceClient.of(self.gang.client).call(message), self.gang.client) as graph:
            yield graph


class LoadOption:
    """What a feature's option of ``load`` does. Each method does nothing, unless a feature says more."""

    def take_edges(self, edges: EdgeList, *, shared: bool) -> EdgeList:
        """Return the edges to load; ``shared`` says whether other programs may use the cluster."""
        return edges

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        """Check the option beside the others, before anything is built. Errors as for ``load``."""

    def built_again(self, built: BuiltGraph, building: Building[Any], options: BuildOptions) -> BuiltGraph:
        """Return the graph's data as they were built, or of another build. After an error none of them stay."""
        return built

    def add_data(self, record: GraphRecord, gang: Gang) -> tuple[GraphRecord, list[distributed.Future]]:
        """Return the record with the data that the option adds to a graph that was built, and futures of the data."""
        return record, []

    def reports(self, record: GraphRecord) -> Reports:
        """Return what clients are told that made changes of the graph before, and send them again."""
        return ()

    def finish(self, graph: StripedGraph) -> None:
        """Change the graph when it is whole. After an error ``load`` unloads it."""


def load_as(
    made: Made[G],
    edges: EdgeSource,
    reading: Mapping[str, Any],
    options_of: Callable[[], BuildOptions],
    added: Sequence[LoadOption],
    *,
    client: distributed.Client | None,
    ranks: int | None,
    name: str | None,
    replace: bool | str,
    mutable: bool,
    backend: str,
    deadline: float | str | None,
    progress: ProgressOption[BuildProgress],
) -> G:
    """Build a graph on a cluster's workers, as ``dbfs.load`` does.

    Args:
        made: makes the graph of its record.
        edges: see ``dbfs.load``, as for all other arguments and the errors.
        reading: the arguments of ``edge_list`` that say how the edges are read.
        options_of: returns the build's options, or raises for those that it refuses.
        added: options of features.
    """
    require_replacement(name, replace)
    client = _client_of_load(client, ranks, backend)
    with _loading(client, edges if name is None else name) as graph_id:
        listed = _listed(edges, client, **reading)
        tell_left_out(listed)
        for option in added:
            listed = option.take_edges(listed, shared=client.cluster is None)
        options = options_of()
        gang = Gang(client, roster(client, ranks, timeout=deadline))
        chosen = choose_backend(gang, backend)
        options = _laid_out(listed, gang, options, chosen, mutable=mutable)
        require_storage(listed, options, gang.p, chosen, mutable=mutable)
        for option in added:
            option.require(gang.p, chosen, mutable=mutable)
        shown = listed.name if name is None else name
        with reserved(gang, graph_id, name, replace):
            if chosen == "cpu" and ends_with_process(client) and not listed.is_small(_FEW_EDGES):
                compile_now(of_build(listed, gang.p))
            with build_reporter(progress, shown) as report:
                building = Building(made, listed, gang, chosen, report)
                built = building.build(options)
                for option in added:
                    built = option.built_again(built, building, options)
            record = replaced(
                record_of(built, listed, gang, chosen),
                graph_id=graph_id,
                name=shown,
                named=name is not None,
                layout=options.laid_out(gang.p),
                mutable=mutable,
            )
            held = built.futures
            try:
                for option in added:
                    record, more = option.add_data(record, gang)
                    held += more
                reports = tuple(report for option in added for report in option.reports(record))
                formed = ServiceClient.of(client).call(AddGraph(record, of_call("build-deadline").remaining, reports))
            finally:
                # The service holds the data from here on. If the call failed, the data must be freed.
                release(held)
    if formed.slower:
        words = "%s: its GPUs exchange through the host (%s), which is slower: %s"
        logger.warning(words, record.name, formed.exchange, formed.slower)
    graph = made(record, formed, client)
    try:
        for option in added:
            option.finish(graph)
    except BaseException:
        graph.unload()
        raise
    return graph


def record_of(built: BuiltGraph, edges: EdgeList, gang: Gang, backend: str) -> GraphRecord:
    """Return the record of a graph that was built: in 1d, without a name, and not to be changed."""
    return GraphRecord(
        graph_id=uuid.uuid4().hex,
        name=edges.name,
        named=False,
        client=gang.client.id,
        source=edges.name,
        directed=edges.directed,
        addresses=gang.addresses,
        backend=backend,
        exchange=config.choice("exchange", EXCHANGES),
        layout=None,
        created=time.time(),
        read_seconds=built.read_seconds,
        build_seconds=built.seconds,
        mutable=False,
        **built.recorded,
    )


def open_as(made: Made[G], name: str, client: distributed.Client | None) -> G:
    """Open a graph as ``dbfs.open`` does; ``made`` makes it of its record."""
    client = current_client(client)
    record, formed = ServiceClient.of(client).call(OpenGraph(name))
    return made(record, formed, client)


def require_replacement(name: str | None, replace: bool | str) -> None:
    """Check the options ``name`` and ``replace``. Errors as for ``load``."""
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
        require_exchange(f"backend={backend!r}", EXCHANGES_OF[backend], exchange)
    chosen = ServiceClient.of(gang.client).call(
        ChooseBackend(gang.addresses, backend, exchange, of_call("build-deadline").remaining)
    )
    require_exchange(f"backend={chosen!r}", EXCHANGES_OF[chosen], exchange)
    return chosen


def _laid_out(edges: EdgeList, gang: Gang, options: BuildOptions, backend: str, *, mutable: bool) -> BuildOptions:
    """Return the options with the layout that ``auto`` takes; refuse options that do not go together."""
    if options.layout == AUTO:
        taken = choose_layout(edges, gang, options, backend, mutable=mutable)
        logger.info("%s: layout %s, since %s", edges.name, taken.layout, taken.why)
        options = replaced(options, layout=taken.layout)
    require_changeable(edges, options, mutable)
    return options


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
def reserved(gang: Gang, graph_id: str, name: str | None, replace: bool | str) -> Iterator[None]:
    """Reserve the name and the workers of a graph while the block builds it; arguments and errors as of ``load``."""
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


def require_exchange(what: str, supported: Sequence[str], exchange: str) -> None:
    """Check that the ranks of a backend, or of a layout there, can be asked to exchange in that way."""
    *first, last = supported
    if exchange not in supported:
        raise InvalidOptionError(
            f"{what} does not support the exchange {exchange}; set dbfs.exchange to {', '.join(first)} or {last}"
        )
