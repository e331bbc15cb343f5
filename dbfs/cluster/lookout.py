"""What a call that lasts tells its caller: which workers it waits for, or that the scheduler does not answer.

A call that waits asks the scheduler from time to time for the states of the workers it waits for. The question is
sent beside the wait, so that no wait lasts longer for it; a call that ends within ``_ASK_SECONDS`` asks nothing.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Final

import distributed

from dbfs import config
from dbfs.base.records import WorkerState, WorkerStatus, waits_for
from dbfs.base.units import format_seconds
from dbfs.cluster.worker_states import ListWorkers
from dbfs_workers.serving import rpc

logger = logging.getLogger(__name__)

# Clients that have installed dbfs on their scheduler.
_served: weakref.WeakSet[distributed.Client] = weakref.WeakSet()

# Seconds that a call waits before it asks, and between two questions.
_ASK_SECONDS: Final = 2.0
# Seconds that a question may take. Whether the scheduler is silent is seen before.
_ANSWER_SECONDS: Final = 60.0
# Seconds after which a wait is told again.
_AGAIN_SECONDS: Final = 60.0


class Lookout:
    """Looks out for the processes that one call waits for.

    Attributes:
        why: whom the call waits for, in words, for its errors and its progress; empty if all are ready.
    """

    def __init__(self) -> None:
        self.why = ""
        self._since = time.monotonic()
        self._whom: Sequence[str] | str = ()
        self._asking: concurrent.futures.Future[list[WorkerStatus]] | None = None
        # By the beginning of its words, when each wait was told last.
        self._told: dict[str, float] = {}

    @contextlib.contextmanager
    def over(self, whom: Sequence[str] | str) -> Iterator[None]:
        """Say for whom the block waits: the addresses of workers, or a graph's id for the workers of its runs."""
        before, self._whom = self._whom, whom
        if whom:
            self.why = ""
        try:
            yield
        finally:
            self._whom = before

    def look(self, client: distributed.Client) -> None:
        """Tell the caller whom the call waits for, if that is known. Waits for nothing; called while the call waits."""
        now, scheduler = time.monotonic(), client.scheduler
        silence = config.seconds("silence")
        pause = min(_ASK_SECONDS, silence / 2)
        if scheduler is None:
            return
        if self._asking is None:
            if now - self._since >= pause:
                asking = not_ready_of(client, self._whom)
                try:
                    self._asking = asyncio.run_coroutine_threadsafe(asking, client.loop.asyncio_loop)
                except RuntimeError:
                    # The loop is closed; the call itself says so.
                    asking.close()
                self._since = now
        elif self._asking.done():
            # Without an answer the scheduler is lost, which the call's own wait notices.
            with contextlib.suppress(OSError, concurrent.futures.CancelledError):
                self.why = waits_for(self._asking.result())
            self._asking, self._since = None, now
            self._tell(self.why, now)
        elif now - self._since >= silence - pause:
            silent = format_seconds(now - self._since)
            self.why = f"waits for the scheduler at {scheduler.address}, silent for {silent}"
            self._tell(self.why, now)

    def close(self) -> None:
        """End the question that is on its way."""
        if self._asking is not None:
            self._asking.cancel()

    def _tell(self, words: str, now: float) -> None:
        # The beginning names the process; what follows changes by the second.
        begin = words.partition(", ")[0]
        if words and now - self._told.get(begin, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._told[begin] = now
            logger.warning("%s", words)


def note_service(client: distributed.Client) -> None:
    """Note that a client's scheduler has the service, and so knows the states of the workers."""
    _served.add(client)


async def not_ready_of(client: distributed.Client, whom: Sequence[str] | str) -> list[WorkerStatus]:
    """Return those workers that are late or paused; ``whom`` as of ``Lookout.over``. ``OSError`` without an answer."""
    scheduler = client.scheduler
    if scheduler is None:
        return []
    if client not in _served:
        # Dask's scheduler logs a traceback for a message that it does not know.
        await asyncio.wait_for(scheduler.identity(n_workers=0), _ANSWER_SECONDS)
        return []
    message = ListWorkers(whom) if isinstance(whom, str) else ListWorkers()
    answer = await rpc.send(scheduler, message, _ANSWER_SECONDS)
    # A scheduler that was started anew has no such handler.
    workers = [] if answer is None else rpc.unpack(scheduler.address, message, answer)
    among = None if isinstance(whom, str) else set(whom)
    return [
        worker
        for worker in workers
        if worker.state is not WorkerState.READY and (among is None or worker.address in among)
    ]
