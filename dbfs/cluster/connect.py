"""Clusters and clients: starting a local cluster, and choosing the workers that will be a graph's ranks."""

import importlib.util
import logging
from typing import Any

import distributed
from distributed.comm.addressing import parse_address

from dbfs import config
from dbfs.cluster.kernels import warm_up
from dbfs.errors import (
    BackendUnavailableError,
    ClientError,
    ExchangeUnavailableError,
    InvalidOptionError,
    NoWorkersError,
)
from dbfs.integers import whole_count
from dbfs.records import BACKENDS
from dbfs_workers.gpus import visible_gpus

logger = logging.getLogger(__name__)

PROTOCOLS = ("auto", "tcp", "ucx")


def connect(
    address: str | None = None,
    *,
    n_workers: int | None = None,
    backend: str = "auto",
    timeout: float | str | None = None,
    **cluster: Any,
) -> distributed.Client:
    """A client of the scheduler at ``address``, or of a new local cluster with one thread a worker.

    A local cluster has a worker for each GPU (``dask_cuda.LocalCUDACluster``) where there are GPUs and dask-cuda, else
    a worker for each CPU core. Closing the client closes the local cluster. Any other ``distributed.Client`` serves as
    well.

    Args:
        address: scheduler address, such as ``tcp://host:8786``.
        n_workers: workers to start; one per GPU or CPU core if None. With an address: workers to wait for, at least 1.
        backend: of a local cluster: ``cuda`` for workers with a GPU each, ``cpu`` for none, ``auto`` for GPUs where
            there are enough of them.
        timeout: seconds (or a Dask duration) to wait for workers; ``dbfs.workers-timeout`` if None.
        cluster: further arguments of ``distributed.LocalCluster`` (or ``dask_cuda.LocalCUDACluster``); ``protocol`` is
            ``dbfs.cluster.protocol`` where it is not among them.

    Raises:
        NoWorkersError: the scheduler can't be reached, or too few workers came in time.
        InvalidOptionError: ``n_workers`` is not above zero, the backend is none, cluster arguments came with an
            address, or Dask's configuration has no certificates for it.
        BackendUnavailableError: ``backend="cuda"``, and there are too few GPUs, or no dask-cuda.
        ExchangeUnavailableError: the address or the protocol is of UCX, and distributed-ucxx is not installed.
    """
    if backend not in BACKENDS:
        raise InvalidOptionError(f"unknown backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    if n_workers is not None and n_workers < 1:
        raise InvalidOptionError(f"n_workers must be at least 1, not {n_workers}")
    seconds = config.seconds("workers-timeout", timeout)
    if address is not None:
        if cluster:
            raise InvalidOptionError(f"{', '.join(cluster)}: only for a new local cluster, not with an address")
        _require_ucx(address)
        _require_certificates(address)
        try:
            client = distributed.Client(address, timeout=seconds)
        except (OSError, ValueError) as error:
            raise NoWorkersError(f"no scheduler answered at {address} within {seconds:g} s: {error}") from error
    else:
        protocol = config.choice("cluster.protocol", PROTOCOLS)
        cluster = {"threads_per_worker": 1, **({} if protocol == "auto" else {"protocol": protocol}), **cluster}
        _require_ucx(cluster.get("protocol"))
        warm_up()
        client = _local_client(n_workers, backend, cluster)
    try:
        roster(client, n_workers, timeout=timeout)
    except NoWorkersError:
        client.close()
        raise
    return client


def _require_ucx(address: str | None) -> None:
    # Dask's own words are that it knows no such scheme. "ucxx" is an older name of it.
    if address is not None and address.startswith("ucx") and importlib.util.find_spec("distributed_ucxx") is None:
        raise ExchangeUnavailableError(
            f"{address}: UCX needs distributed-ucxx, which is not installed; pip install dbfs[ucx-cu13], or [ucx-cu12]"
        )


class _GpuClient(distributed.Client):  # type: ignore[misc]  # distributed is untyped
    """Closes its cluster with itself, as Dask does only for clusters that a client has made."""

    def close(self, *arguments: Any, **keywords: Any) -> Any:
        """Close the client, then the cluster."""
        done = super().close(*arguments, **keywords)
        if self.cluster is not None:
            self.cluster.close()
        return done


def _local_client(n_workers: int | None, backend: str, cluster: dict[str, Any]) -> distributed.Client:
    gpus = visible_gpus()
    if backend == "cpu":
        if gpus and cluster.get("processes", True):
            # A graph of one rank would take the GPU that all workers see.
            cluster = {"env": {"CUDA_VISIBLE_DEVICES": ""}, **cluster}
        return distributed.Client(n_workers=n_workers, **cluster)
    if lacking := _lacking(gpus, n_workers):
        if backend == "cuda":
            raise BackendUnavailableError(f"no local cluster on GPUs: {lacking}")
        logger.info("a local cluster on CPU cores: %s", lacking)
        return distributed.Client(n_workers=n_workers, **cluster)
    from dask_cuda import LocalCUDACluster

    logger.info("a local cluster on GPUs: %s", ", ".join(gpus[:n_workers]))
    return _GpuClient(LocalCUDACluster(CUDA_VISIBLE_DEVICES=gpus[:n_workers], **cluster))


def _require_certificates(address: str) -> None:
    # Before the client is made: one that fails in this never closes.
    security = distributed.Security()
    settings = "distributed.comm.tls in Dask's configuration"
    try:
        context = security.get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise InvalidOptionError(f"{address}: the certificates of {settings} can't be read: {error}") from error
    encrypted = parse_address(address)[0] in ("tls", "wss")
    if encrypted and context is None:
        raise InvalidOptionError(f"{address}: TLS needs certificates, which {settings} names")
    if security.require_encryption and not encrypted:
        raise InvalidOptionError(f"{address}: Dask's configuration wants encryption; expected tls://...")


def _lacking(gpus: list[str], n_workers: int | None) -> str:
    """What a cluster on GPUs would need and is not there; empty where nothing is."""
    if len(gpus) < (n_workers or 1):
        return f"{n_workers or 1} GPUs wanted, {len(gpus)} there" if gpus else "there is no GPU"
    missing = [name for name in ("cupy", "dask_cuda") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed; pip install dbfs[cu13], or [cu12]" if missing else ""


def current_client(client: distributed.Client | None) -> distributed.Client:
    """The client given, else the one Dask has as current.

    Raises:
        ClientError: there is none, it is closed or asynchronous, or the object is no client.
    """
    if client is None:
        try:
            client = distributed.Client.current()
        except ValueError:
            raise ClientError(
                "no Dask client: pass client=, or make one with dbfs.connect() or distributed.Client()"
            ) from None
    if not isinstance(client, distributed.Client):
        raise ClientError(f"client must be a distributed.Client, not {type(client).__name__}")
    if client.asynchronous:
        raise ClientError("client is asynchronous; dbfs needs one made without asynchronous=True")
    if client.status != "running":
        raise ClientError(f"client is {client.status}; dbfs needs a running one")
    return client


def roster(client: distributed.Client, ranks: int | None, *, timeout: float | str | None = None) -> tuple[str, ...]:
    """Addresses of the workers that become ranks 0..p-1: the first ``ranks`` in order, or all there are.

    Raises:
        NoWorkersError: fewer than ``ranks`` workers (or none) came within the timeout.
        InvalidOptionError: ``ranks`` is below 1.
        InvalidOptionTypeError: it is no integer.
    """
    wanted = 1 if ranks is None else whole_count(ranks, "ranks", 1)
    seconds = config.seconds("workers-timeout", timeout)
    workers = _addresses(client)
    if len(workers) < wanted:
        try:
            client.wait_for_workers(wanted, timeout=seconds)
        except TimeoutError:
            there = len(_addresses(client))
            raise NoWorkersError(
                f"{wanted} worker{'s' * (wanted > 1)} wanted, {there} there after {seconds:g} s "
                f"(scheduler {client.scheduler.address})"
            ) from None
        workers = _addresses(client)
    return tuple(workers[:ranks])


def _addresses(client: distributed.Client) -> list[str]:
    # n_workers=-1: Dask lists only five workers otherwise.
    return sorted(client.scheduler_info(n_workers=-1)["workers"], key=lambda address: (len(address), address))
