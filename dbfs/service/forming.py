"""Forming a graph's gang: the choice of the backend and the exchange, the best that all ranks have, and its set-up."""

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dbfs.cluster.gang import host_of
from dbfs.errors import BackendUnavailableError, ExchangeUnavailableError
from dbfs.records import Formed, GraphRecord
from dbfs.service.worker_calls import WorkerCall
from dbfs_workers.exchange.hosts import Hosts
from dbfs_workers.exchange.segment import SegmentHandle
from dbfs_workers.lines.line import new_token
from dbfs_workers.messages import (
    ConnectByNccl,
    ConnectGpus,
    ConnectHosts,
    DetachGpus,
    GetGpu,
    GetHost,
    JoinGpuGang,
    JoinHostGang,
    LeaveGang,
    NameCommunicator,
    OfferGpuMemory,
    OpenToHosts,
    RecoverGpu,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

EPOCHS = itertools.count(1)
"""Numbers the attempts to form a gang, or to set up the connections between its ranks anew.

A worker refuses messages of an attempt before the latest: they come late, from a time before the worker was stopped.
"""


async def form(record: GraphRecord, call: WorkerCall) -> Formed:
    """Form the gang of a graph with the requested exchange; ``auto`` takes the fastest that all ranks have.

    On CPUs that is shared memory within each host, and streams between hosts. On GPUs it is GPU memory mapped by the
    peers, else NCCL, else the same as on CPUs, through the host. A 2-D partition on GPUs has no NCCL.

    Raises:
        BackendUnavailableError: the graph is on GPUs, and a worker has no GPU any more.
        ExchangeUnavailableError: the ranks can't exchange as requested.
        GraphTooLargeError: a rank's part does not fit in its GPU.
    """
    if record.backend == "cuda" and record.layout == "1d":
        return await _form_on_gpus(record, call)
    if record.backend == "cuda":
        return await _form_grid_on_gpus(record, call)
    return await _form_on_hosts(record, call)


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
    gpus = await _all([call(address, GetGpu()) for address in addresses])
    found = []
    for rank, (address, gpu) in enumerate(zip(addresses, gpus, strict=True)):
        if gpu is None:
            raise BackendUnavailableError(f"rank {rank} ({address}) has no GPU, or CuPy is not installed there")
        found.append(gpu)
    return found


async def recover(record: GraphRecord, formed: Formed, call: WorkerCall) -> None:
    """Make a gang usable after a failed run: its kernels, streams or communicator.

    Raises:
        LateError: a rank did not answer.
        ExchangeUnavailableError: a host can't be reached any more.
    """
    if formed.hosts:
        await _connect_hosts(record, Hosts(formed.hosts), call)
        return
    if formed.exchange == "nccl":
        await _connect_by_nccl(record, call)
        return
    # All kernels must have ended before any rank clears its state: a running kernel would write to cleared memory.
    for clear in (False, True):
        await _all([call(address, RecoverGpu(record.graph_id, clear)) for address in record.addresses])


async def _form_on_gpus(record: GraphRecord, call: WorkerCall) -> Formed:
    shared = _shared_gpu(record.addresses, await require_gpus(record.addresses, call))
    slower = ""
    # Two kernels that wait for each other can't share a GPU.
    for exchange, join in (("cuda_ipc", _join_gpus), ("nccl", _join_by_nccl)):
        if record.exchange not in ("auto", exchange):
            continue
        try:
            if shared:
                raise ExchangeUnavailableError(shared)
            await join(record, call)
            return Formed("cuda", exchange)
        except ExchangeUnavailableError as error:
            if record.exchange == exchange:
                raise
            slower = slower if str(error) in slower else "; ".join(filter(None, (slower, str(error))))
            logger.info("dbfs: %s does not exchange by %s: %s", record.name, exchange, error)
    return replace(await _form_on_hosts(record, call), slower=slower)


async def _join_by_nccl(record: GraphRecord, call: WorkerCall) -> None:
    """Have every rank make its part on its GPU, and then connect all ranks by one communicator."""
    if record.exchange == "auto" and any(address.startswith("tls://") for address in record.addresses):
        raise ExchangeUnavailableError("NCCL does not encrypt, and the workers use TLS; dbfs.exchange: nccl allows it")
    try:
        hosts, epoch = Hosts.apart(record.stripe.p), next(EPOCHS)
        await _all([_join(record, call, rank, "nccl", hosts, None, epoch) for rank in range(record.stripe.p)])
        await _connect_by_nccl(record, call)
    except BaseException:
        await _leave(record, call)
        raise


async def _connect_by_nccl(record: GraphRecord, call: WorkerCall) -> None:
    """Have all ranks form a communicator, which replaces the one before."""
    graph_id, addresses, epoch = record.graph_id, record.addresses, next(EPOCHS)
    unique_id = await call(addresses[0], NameCommunicator(graph_id, epoch))
    await _all([call(address, ConnectByNccl(graph_id, unique_id, epoch)) for address in addresses])


async def _join_gpus(record: GraphRecord, call: WorkerCall) -> None:
    """Have every rank make its engines, and then have every rank map the memory of all peers."""
    addresses, graph_id, epoch = record.addresses, record.graph_id, next(EPOCHS)
    joins = [
        call(address, JoinGpuGang(graph_id, rank, key, epoch))
        for rank, (address, key) in enumerate(zip(addresses, record.partition_keys, strict=True))
    ]
    try:
        infos = tuple(await _all(joins))
        await _all([call(address, ConnectGpus(graph_id, infos)) for address in addresses])
    except BaseException:
        # Some ranks may have mapped memory that others are about to free.
        detaching = (call(address, DetachGpus(graph_id)) for address in addresses)
        await asyncio.gather(*detaching, return_exceptions=True)
        await _leave(record, call)
        raise


async def _form_grid_on_gpus(record: GraphRecord, call: WorkerCall) -> Formed:
    """Form the gang as on CPUs, and then have every rank map the messages of its peers. No kernel waits for a peer."""
    await require_gpus(record.addresses, call)
    wanted = record.exchange
    formed = await _form_on_hosts(record, call)
    if wanted == "shared_memory" or record.stripe.p == 1:
        return formed
    try:
        if formed.hosts:
            raise ExchangeUnavailableError(f"{record.name} has ranks on several hosts, which map no GPU memory")
        await _map_messages(record, call)
        return replace(formed, exchange="cuda_ipc")
    except ExchangeUnavailableError as error:
        if wanted == "cuda_ipc":
            await _leave(record, call)
            raise
        logger.info("dbfs: %s does not exchange by cuda_ipc: %s", record.name, error)
        return replace(formed, slower=str(error))
    except BaseException:
        await _leave(record, call)
        raise


async def _map_messages(record: GraphRecord, call: WorkerCall) -> None:
    """Have every rank of a 2-D partition map the messages of its peers, or none of them."""
    addresses, graph_id = record.addresses, record.graph_id
    try:
        offers = tuple(await _all([call(address, OfferGpuMemory(graph_id)) for address in addresses]))
        await _all([call(address, ConnectGpus(graph_id, offers)) for address in addresses])
    except BaseException:
        detaching = (call(address, DetachGpus(graph_id)) for address in addresses)
        await asyncio.gather(*detaching, return_exceptions=True)
        raise


async def _form_on_hosts(record: GraphRecord, call: WorkerCall) -> Formed:
    """Join the ranks of each host by shared memory, and the hosts by streams."""
    p, wanted = record.stripe.p, record.exchange
    hosts = Hosts.apart(p)
    if wanted != "tcp":
        hosts = Hosts.by_identity(await _all([call(address, GetHost()) for address in record.addresses]))
    if wanted == "shared_memory" and hosts.count > 1:
        rank = hosts.envoys[1]
        raise ExchangeUnavailableError(
            f"{record.name}: rank {rank} ({record.addresses[rank]}) is on another host than rank 0 "
            f"({record.addresses[0]}), so they share no memory; set dbfs.exchange to auto"
        )
    try:
        try:
            await _join_hosts(record, hosts, call)
        except ExchangeUnavailableError as error:
            if wanted == "shared_memory" or hosts.count == p:
                raise
            # Processes of one host that can't open each other's memory: in two containers, for example.
            logger.info("dbfs: %s shares no memory: %s", record.name, error)
            hosts = Hosts.apart(p)
            await _join_hosts(record, hosts, call)
        if hosts.count > 1:
            await _connect_hosts(record, hosts, call)
    except BaseException:
        await _leave(record, call)
        raise
    if hosts.count == 1 and wanted != "tcp":
        return Formed(record.backend, "shared_memory")
    return Formed(record.backend, "tcp" if hosts.count == p else "shared_memory+tcp", hosts=hosts.of_ranks)


async def _join_hosts(record: GraphRecord, hosts: Hosts, call: WorkerCall) -> None:
    """Have the lowest rank of each host make shared memory, and the other ranks of the host attach."""
    epoch = next(EPOCHS)

    async def join(host: int) -> None:
        envoy, *others = hosts.ranks(host)
        handle = await _join(record, call, envoy, "shared_memory", hosts, None, epoch)
        await _all([_join(record, call, rank, "shared_memory", hosts, handle, epoch) for rank in others])

    await _all([join(host) for host in range(hosts.count)])


async def _connect_hosts(record: GraphRecord, hosts: Hosts, call: WorkerCall) -> None:
    """Have the lowest ranks of all hosts make streams to each other, in place of the streams they had."""
    token, envoys, epoch = new_token(), [record.addresses[rank] for rank in hosts.envoys], next(EPOCHS)
    doors = tuple(await _all([call(address, OpenToHosts(record.graph_id, token, epoch)) for address in envoys]))
    await _all([call(address, ConnectHosts(record.graph_id, doors, token, epoch)) for address in envoys])


async def _join(
    record: GraphRecord,
    call: WorkerCall,
    rank: int,
    exchange: str,
    hosts: Hosts,
    handle: SegmentHandle | None,
    epoch: int,
) -> SegmentHandle | None:
    return await call(
        record.addresses[rank],
        JoinHostGang(
            graph_id=record.graph_id,
            rank=rank,
            partition_key=record.partition_keys[rank],
            stripe=record.stripe,
            addresses=record.addresses,
            backend=record.backend,
            exchange=exchange,
            layout=record.layout,
            hosts=hosts.of_ranks,
            handle=handle,
            epoch=epoch,
            mutable=record.mutable,
        ),
    )


async def _leave(record: GraphRecord, call: WorkerCall) -> None:
    """Free the memory that ranks took for a gang that could not be formed."""
    epoch = next(EPOCHS)
    leaving = (call(address, LeaveGang(record.graph_id, epoch)) for address in record.addresses)
    await asyncio.gather(*leaving, return_exceptions=True)


async def _all(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all answers, or raise the first error once all calls are over.

    So after an error no rank is still entering the gang while the others leave it.
    """
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


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
