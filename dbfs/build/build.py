"""Building: from an edge list to one partition on each rank, on the workers' CPUs or their GPUs."""

import logging
from collections.abc import Callable

from dbfs.build.builder import ORDERS, Builder, BuildOptions, Built
from dbfs.build.memory import Estimate
from dbfs.build.on_cpu import HostBuilder
from dbfs.build.on_gpu import CudaBuilder
from dbfs.build.watch import BuildWatch
from dbfs.cluster.gang import Gang, release
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import EdgeInputError, ExchangeUnavailableError, InvalidOptionError
from dbfs.integers import whole_count
from dbfs.records import BuildProgress
from dbfs_workers.storage.stripe import Stripe

__all__ = ["ORDERS", "BuildOptions", "Built", "build", "estimate"]

logger = logging.getLogger(__name__)

_AS_GIVEN = BuildOptions()
_BUILDERS: dict[str, type[HostBuilder] | type[CudaBuilder]] = {"cpu": HostBuilder, "cuda": CudaBuilder}


def estimate(edges: EdgeList, ranks: int, options: BuildOptions = _AS_GIVEN, *, backend: str = "cpu") -> Estimate:
    """Bytes per rank that a graph will take, by part: its partition, its build's peak, a traversal.

    Args:
        edges: their numbers have to be known.
        ranks: number of ranks.
        options: how the graph is laid out.
        backend: ``cpu`` for bytes of a worker's memory, ``cuda`` for bytes of its GPU's.

    Raises:
        EdgeInputError: the numbers of vertices and edges are known only after reading.
        GraphTooLargeError: there are more vertices than internal ids.
        InvalidOptionError: no such backend, or ``ranks`` is below 1.
        InvalidOptionTypeError: ``ranks`` is no integer.
    """
    if edges.n is None or edges.m is None:
        raise EdgeInputError(f"{edges.name}: how many vertices and edges it has is known only after reading it")
    if backend not in _BUILDERS:
        raise InvalidOptionError(f"unknown backend {backend!r}; choose one of {', '.join(_BUILDERS)}")
    return _BUILDERS[backend].estimate(edges, Stripe(edges.n, whole_count(ranks, "ranks", 1)), edges.m, options)


def check_fit(edges: EdgeList, n: int, m: int, gang: Gang, options: BuildOptions, backend: str) -> None:
    """Refuse a graph of ``n`` vertices and ``m`` edges read that won't fit a gang's workers, or their GPUs.

    Raises:
        GraphTooLargeError: with the bytes (or internal ids) needed, and those there.
    """
    _BUILDERS[backend](edges, gang, options).require_fit(n, m)


def build(
    edges: EdgeList,
    gang: Gang,
    options: BuildOptions,
    backend: str = "cpu",
    progress: Callable[[BuildProgress], None] | None = None,
) -> Built:
    """Read, stripe and build a graph. After an error nothing stays on the workers.

    Args:
        edges: what to build it of.
        gang: its workers.
        options: its layout.
        backend: ``cuda`` to build on the workers' GPUs, where the partitions then are; else ``cpu``.
        progress: told how far the build is, as often as ``dbfs.liveness-interval`` says.

    Raises:
        TruncatedFileError: the pieces hold another number of edges than the edge list says.
        GraphTooLargeError: it won't fit the workers, or their GPUs.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
        DbfsError: whatever reading a piece raises.
    """
    if backend != "cuda":
        return _finish(HostBuilder(edges, gang, options), progress)
    try:
        return _finish(CudaBuilder(edges, gang, options), progress)
    except ExchangeUnavailableError as error:
        logger.info("building %s through the host: %s", edges.name, error)
        return _finish(CudaBuilder(edges, gang, options, through_host=True), progress)


def _finish(builder: Builder, progress: Callable[[BuildProgress], None] | None) -> Built:
    if progress is not None:
        builder.watch = BuildWatch(builder.gang.client, builder.token, progress).look
    try:
        return builder.run()
    finally:
        release(builder.held)
