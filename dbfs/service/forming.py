"""Forming a graph's gang: the choice of the backend and the exchange, the best that all ranks have, and its set-up."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from dbfs.base.records import Formation, GraphIds, GraphRecord
from dbfs.cluster.gang import host_of
from dbfs.errors import BackendUnavailableError, ExchangeUnavailableError
from dbfs.service.worker_calls import WorkerCall, all_answers
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.messages import (
    ConnectExchange,
    DisconnectExchange,
    GetGpu,
    GetHost,
    JoinGang,
    LeaveGang,
    OfferExchange,
    WorkerMessage,
)
from dbfs_workers.serving.rpc import NAME

logger = logging.getLogger(__name__)

T = TypeVar("T")

EPOCHS = itertools.count(1)
"""Numbers the attempts to form a gang, or to set up the connections between its ranks anew.

A worker refuses messages of an attempt before the latest: they come late, from a time before the worker was stopped.
"""


async def form(record: GraphRecord, call: WorkerCall) -> Formation:
    """Form the gang of a graph with the requested exchange; ``auto`` takes the fastest that all ranks have.

    On CPUs that is shared memory within each host, and streams between hosts. On GPUs it is GPU memory mapped by the
    peers, else NCCL, else the same as on CPUs, through the host. A ``Layout`` may lack some of these.

    Raises:
        BackendUnavailableError: the graph is on GPUs, and a worker has no GPU any more.
        ExchangeUnavailableError: the ranks can't exchange as requested.
        GraphTooLargeError: a rank's part does not fit in its GPU.
    """
    p, wanted, layout = record.stripe.p, record.exchange, record.layout
    gpus = await require_gpus(record.addresses, call) if record.backend == "cuda" else []
    hosts = Hosts.apart(p)
    if wanted not in ("tcp", "nccl"):
        hosts = Hosts.by_identity(await all_answers(call, record.addresses, itertools.repeat(GetHost())))
    slower, between_gpus = "", ("cuda_ipc", "nccl") if layout is None else layout.between_gpus()
    for exchange in between_gpus if gpus else ():
        if wanted not in ("auto", exchange):
            continue
        try:
            if lacking := _lacking(record, exchange, hosts, gpus):
                raise ExchangeUnavailableError(lacking)
            await _join(record, exchange, hosts, call)
            return Formation("cuda", exchange)
        except ExchangeUnavailableError as error:
            if wanted == exchange:
                raise
            slower = slower if str(error) in slower else "; ".join(filter(None, (slower, str(error))))
            logger.info("dbfs: %s does not exchange by %s: %s", record.name, exchange, error)
    return replace(await _form_through_hosts(record, hosts, call), slower=slower)


async def attempt(addresses: Sequence[str], exchange: str, call: WorkerCall) -> Formation:
    """Form a gang without a graph, and have its ranks leave; arguments and errors as for ``TryGang``."""
    p, backend = len(addresses), await choose_backend(addresses, "auto", exchange, call)
    record = GraphRecord(
        graph_id=uuid.uuid4().hex,
        name="a gang without a graph",
        named=False,
        client=NAME,
        source="no edges",
        directed=False,
        stripe=Stripe(p, p),
        addresses=tuple(addresses),
        partition_keys=("",) * p,
        ids=GraphIds(),
        order_key=None,
        input_edge_keys=(),
        infos=(),
        backend="cpu",
        exchange=exchange,
        layout=None,
        created=0.0,
        read_seconds=0.0,
        build_seconds=0.0,
    )
    hosts = Hosts.apart(p)
    if exchange not in ("tcp", "nccl"):
        hosts = Hosts.by_identity(await all_answers(call, addresses, itertools.repeat(GetHost())))
    gpus = await require_gpus(addresses, call) if backend == "cuda" else []
    for between_gpus in ("cuda_ipc", "nccl") if gpus else ():
        if exchange in ("auto", between_gpus) and not _lacking(record, between_gpus, hosts, gpus):
            return Formation(backend, between_gpus)
    formed = await _form_through_hosts(record, hosts, call)
    await _send_all(record, call, LeaveGang(record.graph_id, next(EPOCHS)))
    return replace(formed, backend=backend)


async def choose_backend(addresses: Sequence[str], backend: str, exchange: str, call: WorkerCall) -> str:
    """Return the backend that will build and traverse a graph, ``cpu`` or ``cuda``.

    ``auto`` takes ``cuda`` if every worker has CuPy and a GPU of its own.

    Raises:
        BackendUnavailableError: GPUs were requested, by ``backend`` or by ``exchange``, and a worker has none.
    """
    if backend == "cpu":
        return "cpu"
    try:
        shared = _shared_gpu(addresses, await require_gpus(addresses, call))
        if shared and backend == "auto":
            raise BackendUnavailableError(shared)
    except BackendUnavailableError as error:
        if backend == "cuda" or exchange in ("cuda_ipc", "nccl"):
            raise
        # Only for debugging: on a cluster of CPUs this is as expected.
        logger.debug("dbfs: on the CPU: %s", error)
        return "cpu"
    return "cuda"


async def require_gpus(addresses: Sequence[str], call: WorkerCall) -> list[str]:
    """Check that every worker has CuPy and a GPU; return the GPUs by rank, as their machines name them.

    Raises:
        BackendUnavailableError: a worker has no GPU, or no CuPy.
    """
    gpus = await all_answers(call, addresses, itertools.repeat(GetGpu()))
    found = []
    for rank, (address, gpu) in enumerate(zip(addresses, gpus, strict=True)):
        if gpu is None:
            raise BackendUnavailableError(f"rank {rank} ({address}) has no GPU, or CuPy is not installed there")
        found.append(gpu)
    return found


async def connect(record: GraphRecord, call: WorkerCall) -> None:
    """Connect the ranks of a gang, or make it usable after a failed run: its kernels, streams or communicator.

    Raises:
        LateError: a rank did not answer.
        ExchangeUnavailableError: a peer can't be reached, or its memory can't be mapped.
    """
    graph_id, addresses, epoch = record.graph_id, record.addresses, next(EPOCHS)
    offers = tuple(await all_answers(call, addresses, itertools.repeat(OfferExchange(graph_id, epoch))))
    await all_answers(call, addresses, itertools.repeat(ConnectExchange(graph_id, offers, epoch)))


def _lacking(record: GraphRecord, exchange: str, hosts: Hosts, gpus: Sequence[str]) -> str:
    """Return why GPUs can't exchange in a way; an empty string if they may try."""
    # Two kernels that wait for each other can't share a GPU: resident ones, and NCCL's.
    if (record.layout is None or exchange == "nccl") and (shared := _shared_gpu(record.addresses, gpus)):
        return shared
    if exchange == "cuda_ipc" and hosts.count > 1:
        return f"{record.name} has ranks on several hosts, which map no GPU memory"
    if exchange == "nccl" and record.exchange == "auto" and any(a.startswith("tls://") for a in record.addresses):
        return "NCCL does not encrypt, and the workers use TLS; dbfs.exchange: nccl allows it"
    return ""


async def _form_through_hosts(record: GraphRecord, hosts: Hosts, call: WorkerCall) -> Formation:
    """Have the ranks of each host share memory, and make streams between the hosts."""
    p, wanted = record.stripe.p, record.exchange
    if wanted == "shared_memory" and hosts.count > 1:
        rank = hosts.envoys[1]
        raise ExchangeUnavailableError(
            f"{record.name}: rank {rank} ({record.addresses[rank]}) is on another host than rank 0 "
            f"({record.addresses[0]}), so they share no memory; set dbfs.exchange to auto"
        )
    try:
        await _join(record, "host", hosts, call)
    except ExchangeUnavailableError as error:
        if wanted == "shared_memory" or hosts.count == p:
            raise
        # Processes of one host that can't open each other's memory: in two containers, for example.
        logger.info("dbfs: %s shares no memory: %s", record.name, error)
        hosts = Hosts.apart(p)
        await _join(record, "host", hosts, call)
    if hosts.count == 1 and wanted != "tcp":
        return Formation(record.backend, "shared_memory")
    return Formation(record.backend, "tcp" if hosts.count == p else "shared_memory+tcp", hosts=hosts.of_ranks)


async def _join(record: GraphRecord, exchange: str, hosts: Hosts, call: WorkerCall) -> None:
    """Have every worker become a rank, and connect the ranks; else have all of them leave. See ``JoinGang``."""
    epoch = next(EPOCHS)
    joins = [
        JoinGang(
            graph_id=record.graph_id,
            rank=rank,
            partition_key=key,
            stripe=record.stripe,
            addresses=record.addresses,
            backend=record.backend,
            exchange=exchange,
            layout=record.layout,
            hosts=hosts.of_ranks,
            epoch=epoch,
            mutable=record.mutable,
            log=record.log,
        )
        for rank, key in enumerate(record.partition_keys)
    ]
    try:
        await all_answers(call, record.addresses, joins)
        await connect(record, call)
    except BaseException:
        if exchange == "cuda_ipc":
            # Some ranks may have mapped memory that others are about to free.
            await _send_all(record, call, DisconnectExchange(record.graph_id))
        await _send_all(record, call, LeaveGang(record.graph_id, next(EPOCHS)))
        raise


async def _send_all(record: GraphRecord, call: WorkerCall, message: WorkerMessage[None]) -> None:
    """Send a message that clears up to all workers of a gang that could not be formed. Errors are ignored."""
    await asyncio.gather(*(call(address, message) for address in record.addresses), return_exceptions=True)


def _shared_gpu(addresses: Sequence[str], gpus: Sequence[str]) -> str:
    """Describe the first two ranks that are on one GPU; an empty string if every rank has its own."""
    taken: dict[tuple[str, str], int] = {}
    for rank, (address, gpu) in enumerate(zip(addresses, gpus, strict=True)):
        other = taken.setdefault((host_of(address), gpu), rank)
        if other != rank:
            return (
                f"ranks {other} and {rank} ({address}) are on one GPU ({gpu}); "
                "start one worker per GPU, as dask-cuda does"
            )
    return ""
