"""Forming a graph's gang: what its ranks compute on and how they exchange, the best that all of them have."""

import asyncio
import logging
import pickle
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from dbfs.cluster.gang import host_of
from dbfs.errors import BackendUnavailableError, ExchangeUnavailableError
from dbfs.records import Formed, GraphRecord

logger = logging.getLogger(__name__)

Ask = Callable[..., Coroutine[Any, Any, Any]]
"""``await ask(address, operation, **message)`` calls a worker's handler."""


async def form(record: GraphRecord, ask: Ask) -> Formed:
    """Join the workers as was asked for, or by the best that all of them have.

    On GPUs: their memory mapped by each other, else through the host; on CPUs: shared memory, else comms.

    Raises:
        BackendUnavailableError: the graph is on GPUs, and a worker has none any more.
        ExchangeUnavailableError: the ranks can't exchange as was asked.
        GraphTooLargeError: a GPU does not hold its part.
    """
    if record.backend == "cuda":
        return await _form_on_gpus(record, ask)
    return Formed("cpu", await _join_through_host(record, "cpu", ask))


async def choose_backend(addresses: Sequence[str], backend: str, exchange: str, ask: Ask) -> str:
    """What a graph is built on and traversed on, ``cpu`` or ``cuda``: chosen before it is built.

    Raises:
        BackendUnavailableError: GPUs were asked for, and a worker has none.
    """
    if backend == "cpu":
        return "cpu"
    try:
        sharing = _sharing(addresses, await require_gpus(addresses, ask))
        if sharing and backend == "auto":
            raise BackendUnavailableError(sharing)
    except BackendUnavailableError as error:
        if backend == "cuda" or exchange == "cuda_ipc":
            raise
        # That CPUs have no GPU is no news.
        logger.debug("dbfs: on the CPU: %s", error)
        return "cpu"
    return "cuda"


async def require_gpus(addresses: Sequence[str], ask: Ask) -> list[str]:
    """Make sure that every worker has CuPy and a GPU; returns which, as their machines name them.

    Raises:
        BackendUnavailableError: one has not.
    """
    gpus = await asyncio.gather(*(ask(address, "dbfs_gpu") for address in addresses))
    for rank, (address, gpu) in enumerate(zip(addresses, gpus, strict=True)):
        if gpu is None:
            raise BackendUnavailableError(f"rank {rank} ({address}) has no GPU, or no CuPy to use it by")
    return gpus


async def recover(record: GraphRecord, ask: Ask, timeout: float) -> None:
    """Make a gang of resident kernels usable after a failed run.

    Raises:
        TimeoutError: a rank did not answer.
    """
    # First all kernels have to be over: one that still leaves would write to what a peer has cleared.
    for clear in (False, True):
        calls = (ask(address, "dbfs_recover", graph_id=record.graph_id, clear=clear) for address in record.addresses)
        await asyncio.wait_for(asyncio.gather(*calls), timeout)


async def _form_on_gpus(record: GraphRecord, ask: Ask) -> Formed:
    sharing = _sharing(record.addresses, await require_gpus(record.addresses, ask))
    slower = ""
    if record.exchange in ("auto", "cuda_ipc"):
        try:
            # Two kernels that wait for each other can't share a GPU.
            await _join_gpus(record, sharing, ask)
            return Formed("cuda", "cuda_ipc")
        except ExchangeUnavailableError as error:
            if record.exchange == "cuda_ipc":
                raise
            slower = str(error)
            logger.info("dbfs: %s exchanges through the host: %s", record.name, error)
    return Formed("cuda", await _join_through_host(record, "cuda", ask), slower)


async def _join_gpus(record: GraphRecord, sharing: str, ask: Ask) -> None:
    """Everybody makes its engines, then everybody maps all others."""
    if sharing:
        raise ExchangeUnavailableError(sharing)
    addresses, graph_id = record.addresses, record.graph_id
    made = [
        ask(address, "dbfs_join_cuda", graph_id=graph_id, rank=rank, partition_key=key)
        for rank, (address, key) in enumerate(zip(addresses, record.partition_keys, strict=True))
    ]
    try:
        infos = await _all(made)
        await _all([ask(address, "dbfs_connect", graph_id=graph_id, infos=infos) for address in addresses])
    except BaseException:
        # Some may have mapped what others are about to free.
        detaching = (ask(address, "dbfs_detach", graph_id=graph_id) for address in addresses)
        await asyncio.gather(*detaching, return_exceptions=True)
        await _leave(record, ask)
        raise


async def _join_through_host(record: GraphRecord, backend: str, ask: Ask) -> str:
    """Rank 0 makes the shared memory and the others attach; where one can't, all exchange over comms. Returns which."""
    others = range(1, record.stripe.p)
    try:
        if record.exchange != "comm":
            try:
                handle = await _join(record, backend, ask, 0, None)
                await _all([_join(record, backend, ask, rank, handle) for rank in others])
                return "shared_memory"
            except ExchangeUnavailableError as error:
                if record.exchange == "shared_memory":
                    raise
                logger.info("dbfs: %s exchanges over comms: %s", record.name, error)
        await _all([_join(record, backend, ask, rank, b"") for rank in (0, *others)])
        return "comm"
    except BaseException:
        await _leave(record, ask)
        raise


async def _join(record: GraphRecord, backend: str, ask: Ask, rank: int, handle: bytes | None) -> Any:
    return await ask(
        record.addresses[rank],
        "dbfs_join",
        graph_id=record.graph_id,
        rank=rank,
        partition_key=record.partition_keys[rank],
        stripe=pickle.dumps(record.stripe),
        addresses=list(record.addresses),
        handle=handle,
        backend=backend,
    )


async def _leave(record: GraphRecord, ask: Ask) -> None:
    """Nobody keeps memory for a gang that is not formed."""
    leaving = (ask(address, "dbfs_leave", graph_id=record.graph_id) for address in record.addresses)
    await asyncio.gather(*leaving, return_exceptions=True)


async def _all(calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """All answers; raises the first error once all calls are over, so that nobody enters what the others leave."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def _sharing(addresses: Sequence[str], gpus: Sequence[str]) -> str:
    """Which two ranks are on one GPU, in words; empty where each has its own."""
    taken: dict[tuple[str, str], int] = {}
    for rank, (address, gpu) in enumerate(zip(addresses, gpus, strict=True)):
        other = taken.setdefault((host_of(address), gpu), rank)
        if other != rank:
            return (
                f"ranks {other} and {rank} ({address}) are on one GPU ({gpu}); "
                "start one worker a GPU, as dask-cuda does"
            )
    return ""
