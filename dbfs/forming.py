"""Forming a graph's gang: what its ranks compute on and how they exchange, the best that all of them have."""

import asyncio
import logging
import pickle
from collections.abc import Callable, Coroutine
from typing import Any

from dbfs.errors import BackendUnavailableError, ExchangeUnavailableError
from dbfs.records import Formed, GraphRecord

logger = logging.getLogger(__name__)

Ask = Callable[..., Coroutine[Any, Any, Any]]
"""``await ask(address, operation, **message)`` calls a worker's handler."""


async def form(record: GraphRecord, ask: Ask) -> Formed:
    """Join the workers as was asked for, or by the best that all of them have: GPUs, shared memory, comms.

    Raises:
        BackendUnavailableError: GPUs were asked for, and a worker has none of its own.
        ExchangeUnavailableError: the ranks can't exchange as was asked.
        GraphTooLargeError: a GPU does not hold its part.
    """
    if record.backend != "cpu" and record.exchange in ("auto", "cuda_ipc"):
        try:
            await require_gpus(record.addresses, ask)
            await _join_gpus(record, ask)
            return Formed("cuda", "cuda_ipc")
        except (BackendUnavailableError, ExchangeUnavailableError) as error:
            if record.backend == "cuda" or record.exchange == "cuda_ipc":
                raise
            # That CPUs have no GPU is no news.
            level = logging.WARNING if isinstance(error, ExchangeUnavailableError) else logging.DEBUG
            logger.log(level, "dbfs: %s runs on the CPU: %s", record.name, error)
    if record.exchange != "comm":
        try:
            handle = await _join(record, ask, 0, None)
            await asyncio.gather(*(_join(record, ask, rank, handle) for rank in range(1, record.stripe.p)))
            return Formed("cpu", "shared_memory")
        except ExchangeUnavailableError as error:
            if record.exchange == "shared_memory":
                raise
            logger.info("dbfs: %s exchanges over comms: %s", record.name, error)
    await asyncio.gather(*(_join(record, ask, rank, b"") for rank in range(record.stripe.p)))
    return Formed("cpu", "comm")


async def require_gpus(addresses: tuple[str, ...], ask: Ask) -> None:
    """Make sure that every worker has CuPy and a GPU that no other of them computes on.

    Raises:
        BackendUnavailableError: one has not. Two kernels that wait for each other can't share a GPU.
    """
    gpus = await asyncio.gather(*(ask(address, "dbfs_gpu") for address in addresses))
    taken: dict[tuple[str, str], int] = {}
    for rank, (address, gpu) in enumerate(zip(addresses, gpus, strict=True)):
        if gpu is None:
            raise BackendUnavailableError(f"rank {rank} ({address}) has no GPU, or no CuPy to use it by")
        other = taken.setdefault((_host(address), gpu), rank)
        if other != rank:
            raise BackendUnavailableError(
                f"ranks {other} and {rank} ({address}) are on one GPU ({gpu}); "
                "start one worker a GPU, as dask-cuda does"
            )


async def recover(record: GraphRecord, ask: Ask, timeout: float) -> None:
    """Make a gang on GPUs usable after a failed run.

    Raises:
        TimeoutError: a rank did not answer.
    """
    # First all kernels have to be over: one that still leaves would write to what a peer has cleared.
    for clear in (False, True):
        calls = (ask(address, "dbfs_recover", graph_id=record.graph_id, clear=clear) for address in record.addresses)
        await asyncio.wait_for(asyncio.gather(*calls), timeout)


async def _join_gpus(record: GraphRecord, ask: Ask) -> None:
    """Everybody makes its engines, then everybody maps all others."""
    addresses, graph_id = record.addresses, record.graph_id
    made = [
        ask(address, "dbfs_join_cuda", graph_id=graph_id, rank=rank, partition_key=key)
        for rank, (address, key) in enumerate(zip(addresses, record.partition_keys, strict=True))
    ]
    try:
        infos = await _all(made)
        await _all([ask(address, "dbfs_connect", graph_id=graph_id, infos=infos) for address in addresses])
    except BaseException:
        await asyncio.gather(
            *(ask(address, "dbfs_leave", graph_id=graph_id) for address in addresses), return_exceptions=True
        )
        raise


async def _all(calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """All answers; raises the first error once all calls are over, so that nobody enters what the others leave."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


async def _join(record: GraphRecord, ask: Ask, rank: int, handle: bytes | None) -> Any:
    return await ask(
        record.addresses[rank],
        "dbfs_join",
        graph_id=record.graph_id,
        rank=rank,
        partition_key=record.partition_keys[rank],
        stripe=pickle.dumps(record.stripe),
        addresses=list(record.addresses),
        handle=handle,
    )


def _host(address: str) -> str:
    return address.rpartition(":")[0]
