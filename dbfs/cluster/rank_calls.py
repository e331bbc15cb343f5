"""Calls from a client straight to the workers of a gang; through the scheduler where a worker can't be reached."""

import asyncio
import concurrent.futures
import functools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

import distributed

from dbfs.cluster.awaiting import begin, check_cancelled, outcome, require_open, require_other_thread
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Gang
from dbfs.errors import WorkerLostError
from dbfs_workers.serving import rpc
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.rpc import A, Envelope

# Seconds that opening a connection to a worker may take.
_OPEN_SECONDS = 2.0
# Seconds after which a worker that could not be reached is tried again. A firewall stays, a busy moment passes.
_AVOID_SECONDS = 60.0

_reached: weakref.WeakKeyDictionary[distributed.Client, dict[str, float]] = weakref.WeakKeyDictionary()
"""By client, the workers called so far: until when each is called through the scheduler (``time.monotonic()``)."""


class RankCalls(Generic[A]):
    """A message to each of some ranks, sent at once, and the wait for the answers.

    Args:
        messages: the messages by rank.
        doing: the operation, named in errors.

    Raise ``ClientError`` if the client is closed.
    """

    def __init__(self, gang: Gang, messages: Mapping[int, WorkerMessage[A]], deadline: Deadline, doing: str) -> None:
        client = gang.client
        require_other_thread(client)
        require_open(client)
        self._gang = gang
        self._messages = messages
        self._deadline = deadline
        self._doing = doing
        to_each = [(gang.addresses[rank], message) for rank, message in messages.items()]
        self._waiting = begin(functools.partial(_call_all, client, to_each, deadline.last), client.loop.asyncio_loop)

    def answers(self, watch: Callable[[], None] | None = None) -> dict[int, A]:
        """Wait, and return the answers by rank; ``watch`` is called at intervals during the wait.

        Errors as for ``Gang.gather``, and that of a worker's handler.
        """
        gang, doing, lookout = self._gang, self._doing, of_call().lookout
        try:
            # Also before the wait: the answers of a traversal's levels may each come at once.
            check_cancelled()
            with lookout.over([gang.addresses[rank] for rank in self._messages]):
                while not concurrent.futures.wait([self._waiting], self._deadline.interval()).done:
                    check_cancelled()
                    gang.check(doing)
                    lookout.look(gang.client)
                    self._deadline.enforce(doing)
                    if watch is not None:
                        watch()
        finally:
            self._waiting.cancel()
        answers, received = {}, outcome(self._waiting, gang.client)
        for (rank, message), answer in zip(self._messages.items(), received, strict=True):
            address = gang.addresses[rank]
            if isinstance(answer, BaseException):
                gang.check(doing, answer)
                raise WorkerLostError(f"{doing}: rank {rank} ({address}) does not answer: {answer}") from answer
            answers[rank] = rpc.unpack(address, message, answer)
        return answers


async def _call_all(
    client: distributed.Client, messages: Sequence[tuple[str, WorkerMessage[Any]]], seconds: float
) -> list[Envelope | BaseException | None]:
    # Errors are results: see ``Gang._done``.
    calls = (_call(client, address, message, seconds) for address, message in messages)
    return await asyncio.gather(*calls, return_exceptions=True)


async def _call(
    client: distributed.Client, address: str, message: WorkerMessage[Any], seconds: float
) -> Envelope | None:
    reached = _reached.setdefault(client, {})
    if reached.get(address, 0.0) < time.monotonic():
        try:
            if address not in reached:
                connection = await asyncio.wait_for(client.rpc.connect(address), _OPEN_SECONDS)
                client.rpc.reuse(address, connection)
                reached[address] = 0.0
            return await rpc.send(client.rpc(address), message, seconds)
        except TimeoutError:
            if address in reached:
                # The worker is late, which it is through the scheduler as well.
                raise
            reached[address] = time.monotonic() + _AVOID_SECONDS
        except OSError:
            reached[address] = time.monotonic() + _AVOID_SECONDS
    return await rpc.send(_Proxy(client, address), message, seconds)


class _Proxy:
    """A worker as Dask's rpc object, reached through the scheduler."""

    def __init__(self, client: distributed.Client, address: str) -> None:
        self._client = client
        self._address = address

    def __getattr__(self, operation: str) -> Any:
        async def call(**arguments: Any) -> Any:
            return await self._client.scheduler.proxy(msg={"op": operation, **arguments}, worker=self._address)

        return call
