"""Entry points of a build: estimate a graph's memory, check that it fits, build it on the workers' CPUs or GPUs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import distributed

from dbfs.base.integers import whole_count
from dbfs.base.records import BuildProgress
from dbfs.building.builder import (
    AUTO,
    BY_DISTANCE,
    IDS,
    ORDERS,
    STRIPES,
    Builder,
    BuildOptions,
    BuildSize,
    BuiltGraph,
    LayoutChoice,
    PartitionMaker,
)
from dbfs.building.built_before import BuiltEdges
from dbfs.building.memory import Estimate, assumed_ids, hosts_of, usable_bytes
from dbfs.building.on_cpu import HostBuilder
from dbfs.building.on_gpu import CudaBuilder
from dbfs.building.reverses import find_missing
from dbfs.building.standing import Standing
from dbfs.cluster.gang import Gang, joined_workers, release
from dbfs.cluster.local import shares
from dbfs.edges.edge_list import DistinctIds, EdgeList
from dbfs.errors import (
    EdgeInputError,
    ExchangeUnavailableError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidOptionTypeError,
)
from dbfs.service.client import ServiceClient
from dbfs.service.messages import CountBuildTasks, Stage
from dbfs_workers.base import gpus
from dbfs_workers.building.symmetry import MODULUS
from dbfs_workers.search.exchange.hosts import Hosts

__all__ = ["AUTO", "IDS", "ORDERS", "STRIPES", "BuildOptions", "BuiltGraph", "build", "estimate_as"]

logger = logging.getLogger(__name__)

_BUILDERS: dict[str, type[Builder]] = {"cpu": HostBuilder, "cuda": CudaBuilder}


def estimate_as(
    listed: EdgeList,
    ranks: int | None,
    options: BuildOptions,
    *,
    backend: str,
    memory: int | str | None,
    vertices: int | None,
    hosts: int,
    mutable: bool,
) -> Estimate:
    """Estimate the bytes that a graph will take on each rank; arguments and errors as for ``dbfs.estimate``."""
    if not isinstance(options, BuildOptions):
        raise InvalidOptionTypeError(f"options must be dbfs.BuildOptions(...), not {options!r}")
    m = listed.sampled_edges() if listed.m is None else listed.m
    ids = _ids_to_number(listed, m, vertices)
    n = listed.n if ids is None else ids.count
    if n is None or m is None:
        way = "convert it to a file with a header first (dbfs convert IN OUT.mtx)"
        if m is not None:
            way = "give the number of its distinct ids, vertices="
        raise EdgeInputError(
            f"{listed.name}: an estimate needs the numbers of vertices and edges, which are known only after reading "
            f"it; {way}"
        )
    if backend not in _BUILDERS:
        raise InvalidOptionError(f"unknown backend {backend!r}; choose one of {', '.join(_BUILDERS)}")
    if memory is not None:
        usable: int | None = usable_bytes(memory, backend)
    else:
        usable = min(gpus.memory_bytes(), default=None) if backend == "cuda" else None
    stripe = options.stripe(n, _ranks_here(backend) if ranks is None else whole_count(ranks, "ranks", 1))
    of_ranks = Hosts.even(stripe.p, whole_count(hosts, "hosts", 1))

    def of(name: str) -> Estimate:
        laid_out = replace(options, layout=name)
        require_changeable(listed, laid_out, mutable)
        if isinstance(listed, BuiltEdges):
            laid_out = listed.settled(laid_out)
        size = BuildSize(listed, stripe, m, laid_out, usable, of_ranks, ids)
        needed = _estimate(size, backend)
        require_storage(listed, laid_out, stripe.p, backend, mutable=mutable)
        if mutable:
            needed = _changeable(needed, size, backend)
        sampled = m if listed.m is None else None
        return replace(needed, layout=laid_out.layout, ranks=stripe.p, sampled_edges=sampled)

    if options.layout != AUTO:
        return of(options.layout)
    assert options.layouts is not None
    chosen = options.layouts.choose(
        listed, options, backend, of_ranks, lambda name: of(name).fits is not False, mutable=mutable
    )
    return replace(of(chosen.layout), why=chosen.why)


def _ranks_here(backend: str) -> int:
    """Return the number of ranks of an estimate that names none: see ``estimate``."""
    try:
        return max(1, len(joined_workers(distributed.Client.current())))
    except ValueError:
        return max(1, len(gpus.visible_gpus())) if backend == "cuda" else shares(None, None)[0]


def _estimate(size: BuildSize, backend: str) -> Estimate:
    """Return the estimate of a build, or of a load of what was built before."""
    if isinstance(size.edges, BuiltEdges):
        as_it_was = size.edges.estimate_as_it_was(size, backend)
        if as_it_was is not None:
            return as_it_was
    return _builder(backend, size.options).estimate(size)


def _changeable(needed: Estimate, size: BuildSize, backend: str) -> Estimate:
    """Return an estimate with the memory that updates need."""
    copies, stored = 2 if HostBuilder.stores_twice(size.edges, size.options) else 1, size.options.row_storage
    if stored is None:
        return needed
    return stored.with_updates(needed, size.stripe, size.directed_edges, copies, backend)


def _ids_to_number(edges: EdgeList, m: int | None, vertices: int | None) -> DistinctIds | None:
    """Return the ids that a build of ``m`` edges numbers; None if there are none, or if too little is known.

    Errors as for ``estimate``.
    """
    found = edges.distinct_ids()
    if vertices is None:
        return found
    if found is not None or edges.n is not None:
        raise InvalidOptionError(
            f"vertices= is for edges that are read by the workers; {edges.name} has its own number"
        )
    counted = whole_count(vertices, "vertices", 0)
    return None if m is None else assumed_ids(edges, m, counted)


def check_fit(edges: EdgeList, n: int, m: int, gang: Gang, options: BuildOptions, backend: str) -> None:
    """Refuse a graph of ``n`` vertices and ``m`` input edges that won't fit a gang's workers or their GPUs.

    Errors as for ``build``.
    """
    _builder(backend, options)(edges, gang, options).require_fit(n, m)


def choose_layout(edges: EdgeList, gang: Gang, options: BuildOptions, backend: str, *, mutable: bool) -> LayoutChoice:
    """Return the layout that ``layout="auto"`` takes for a gang's workers."""

    def fits(layout: str) -> bool:
        assert edges.n is not None
        assert edges.m is not None
        try:
            check_fit(edges, edges.n, edges.m, gang, replace(options, layout=layout), backend)
        except GraphTooLargeError:
            return False
        return True

    assert options.layouts is not None
    return options.layouts.choose(edges, options, backend, hosts_of(gang), fits, mutable=mutable)


def build(
    edges: EdgeList,
    gang: Gang,
    options: BuildOptions,
    backend: str = "cpu",
    progress: Callable[[BuildProgress], None] | None = None,
    standing: Standing | None = None,
    near: Sequence[distributed.Future] = (),
) -> BuiltGraph:
    """Read, stripe and build a graph. After an error no data of the graph stays on the workers.

    With ``cuda``, bins go through the host if the ranks' GPUs can't map each other's memory. A graph that was built
    before, and has the ranks and the layout already, is not built: the ranks take their partitions as they were. Edges
    that the edge list has in both directions are checked to be so, and completed if the edge list says that they may
    not be.

    Args:
        gang: the workers that hold its ranks.
        options: its layout.
        backend: ``cuda`` to build on the workers' GPUs and leave the partitions there; else ``cpu``.
        progress: called with the build's progress, as often as ``dbfs.liveness-interval`` says.
        standing: what is left of the graph, in ``1d`` on CPUs, to build the lost ranks alone; None to build all ranks.
        near: what ``order="bfs"`` orders by, released here (see ``Builder``); if empty, another build finds it.

    Raises:
        FormatError: an edge lacks its reverse, though the edge list says that all edges have theirs.
        TruncatedFileError: the pieces hold another number of edges than the edge list says.
        GraphTooLargeError: the graph won't fit the workers or their GPUs, beside what they hold already.
        InvalidOptionError: the cluster's workers do not read URLs of the file's scheme.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        DbfsError: reading a piece raised it.
    """
    if options.order == BY_DISTANCE and not near and not (standing and standing.order):
        near = options.nearness(edges, gang, backend)
    try:
        return _whole(edges, gang, options, backend, progress, standing, near)
    finally:
        release(near)


def _whole(
    edges: EdgeList,
    gang: Gang,
    options: BuildOptions,
    backend: str,
    progress: Callable[[BuildProgress], None] | None,
    standing: Standing | None,
    near: Sequence[distributed.Future],
) -> BuiltGraph:
    """Build a graph with all reverses of its edges; ``near`` as of ``Builder``, all else as of ``build``."""
    if isinstance(edges, BuiltEdges):
        options = edges.settled(options)
        as_it_was = edges.as_it_was(gang, options, backend)
        if as_it_was is not None:
            built = _run(as_it_was, progress, standing)
            edges = edges.of_rows()
        else:
            with edges.during_build(gang):
                again = _build(edges, gang, options, backend, progress, standing, near)
                built = edges.as_first_built(again, gang, options)
    else:
        built = _build(edges, gang, options, backend, progress, standing, near)
    rank = 0 if standing is None else standing.lost[0]
    if standing is not None:
        # The ranks that stand may not have been asked for their imbalance. If reverses were missing before, they are.
        before = standing.record.infos[rank].input_edges
        lacks = edges.completes and edges.paired and built.infos[rank].input_edges < before
    else:
        lacks = sum(info.imbalance for info in built.infos) % MODULUS != 0
    if not lacks:
        return built
    release(built.futures)
    missing = find_missing(edges, gang)
    try:
        completed = replace(edges, m=built.infos[rank].input_edges + missing.count)
        return _build(completed, gang, options, backend, progress, standing, near, missing.pieces)
    finally:
        release(missing.pieces)


def _build(
    edges: EdgeList,
    gang: Gang,
    options: BuildOptions,
    backend: str,
    progress: Callable[[BuildProgress], None] | None,
    standing: Standing | None,
    near: Sequence[distributed.Future],
    more: tuple[distributed.Future, ...] = (),
) -> BuiltGraph:
    """Build a graph of the pieces of its edges, and ``more`` pieces; other arguments and errors as of ``_whole``."""
    builder, arguments = _builder(backend, options), (edges, gang, options, more, near)
    if not issubclass(builder, CudaBuilder):
        return _run(builder(*arguments), progress, standing)
    try:
        return _run(builder(*arguments), progress)
    except ExchangeUnavailableError as error:
        logger.info("building %s through the host: %s", edges.name, error)
        return _run(builder(*arguments, through_host=True), progress)


def _builder(backend: str, options: BuildOptions) -> type[Builder]:
    """Return the builder of a backend and a layout."""
    if options.layout == STRIPES:
        return _BUILDERS[backend]
    assert options.layouts is not None
    return options.layouts.builder(backend)


def require_changeable(edges: EdgeList, options: BuildOptions, mutable: bool) -> None:
    """Refuse options of a graph that updates may change which do not go together. Errors as for ``load``."""
    if mutable and isinstance(edges, BuiltEdges):
        options = edges.settled(options)
    if not mutable:
        if options.room:
            raise InvalidOptionError("room= is for graphs that updates may change: it needs mutable=True")
    elif options.layout != STRIPES:
        raise InvalidOptionError(f"mutable=True does not go with layout={options.layout!r}, whose blocks have no pages")
    elif options.keep_edges:
        raise InvalidOptionError("mutable=True does not go with keep_edges=True: updates leave the kept edges behind")
    elif options.room and options.ordered:
        raise InvalidOptionError(f"room= does not go with order={options.order!r}: new vertices have no place in it")


def require_storage(edges: EdgeList, options: BuildOptions, p: int, backend: str, *, mutable: bool) -> None:
    """Refuse a storage that the other options do not go with. Errors as for ``load``."""
    if options.row_storage is not None:
        options.row_storage.require(edges, options, p, backend, mutable=mutable)


def _run(
    builder: PartitionMaker, progress: Callable[[BuildProgress], None] | None, standing: Standing | None = None
) -> BuiltGraph:
    """Run a builder, and release what it still holds afterwards."""
    builder.standing = standing
    if progress is not None:
        builder.watch = BuildWatch(builder.gang.client, builder.token, builder.gang.p, progress).report
    try:
        return builder.run()
    finally:
        release(builder.held)


# Name of the tasks that read a piece before the build (``builder`` and ``numbering``).
_READ_STAGE = "read-edges"
# Name of the tasks that bin a piece, and read it if it was not read before (``on_cpu``).
_BIN_STAGE = "bin-edges"

# The stage that a task belongs to, by the task's name (``builder``, ``numbering``, ``on_cpu``, ``on_gpu``). All other
# tasks build.
_STAGES = {
    **dict.fromkeys(("read-edges", "keep-edges", "count-edges", "input-edges", "bin-edges"), "reading"),
    **dict.fromkeys(
        (
            *("rank-ids", "summarise-piece", "sample-ids", "id-splitters", "split-ids", "ids-part", "unite-ids"),
            *("count-ids", "id-table", "id-ends", "id-places", "id-vertices", "id-bytes", "number-edges"),
        ),
        "numbering",
    ),
    **dict.fromkeys(
        ("count-degrees", "add-degrees", "offer-degrees", "degrees-read", "degree-order", "kept-order", "order"),
        "ordering",
    ),
    **dict.fromkeys(("open-bins", "bins-open", "offer-bins", "collect", "bins-read", "edges-read"), "exchanging"),
}


class BuildWatch:
    """Reports a build's progress to the client that builds.

    Args:
        client: the client that builds.
        token: the token at the end of the build's keys.
        progress: called with each report.
    """

    def __init__(
        self, client: distributed.Client, token: str, ranks: int, progress: Callable[[BuildProgress], None]
    ) -> None:
        self._service = ServiceClient.of(client)
        self._token = token
        self._ranks = ranks
        self._binned: tuple[int, ...] = ()
        self._progress = progress
        self._stages: dict[str, Stage] = {}
        self._began = time.monotonic()

    def report(self) -> None:
        """Fetch the counts from the scheduler and report them."""
        found, binned = self._service.call(CountBuildTasks(self._token, self._ranks))
        # Likewise the tasks themselves: empty once all pieces are binned.
        self._binned = binned or self._binned
        # The scheduler drops the counts of a stage that is over; its tasks count as done.
        over = {name: (0, tasks, tasks, nbytes) for name, (_, _, tasks, nbytes) in self._stages.items()}
        self._stages = {**over, **found}
        busy = max(self._stages, key=lambda name: self._stages[name][0], default=_READ_STAGE)
        _, read, pieces, bytes_read = self._stages.get(_READ_STAGE, (0, 0, 0, 0))
        if not pieces:
            _, read, pieces, _ = self._stages.get(_BIN_STAGE, (0, 0, 0, 0))
        self._progress(
            BuildProgress(
                # A task of a band has its index in its name: offer-bins-0.
                stage=_STAGES.get(busy.rstrip("-0123456789"), "building"),
                done=sum(done for _, done, _, _ in self._stages.values()),
                tasks=sum(tasks for _, _, tasks, _ in self._stages.values()),
                pieces_read=read,
                pieces=pieces,
                bytes_read=bytes_read,
                binned=self._binned,
                seconds=time.monotonic() - self._began,
            )
        )
