"""What a call that lasts tells its caller: which workers it waits for, or that the scheduler does not answer.

The calls of a client that wait ask the scheduler from time to time, all in one message, for the states of the workers
they wait for. The message is sent beside the waits, so that no wait lasts longer for it; a call that ends within
``_ASK_SECONDS`` asks nothing.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Final, Self

import distributed

from dbfs import config
from dbfs.base.records import WorkerStatus, waits_for
from dbfs.base.units import format_seconds
from dbfs.cluster.worker_states import ListNotReady
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

# The late and the paused workers by graph id, of all workers under an empty one.
_States = dict[str, tuple[WorkerStatus, ...]]


class Lookout:
    """Looks out for the processes that one call waits for.

    Attributes:
        why: whom the call waits for, in words, for its errors and its progress; empty if all are ready.
        whom: see ``over``.
        since: when the call began, in seconds of ``time.monotonic()``.
        ended: whether the call is over.
    """

    def __init__(self) -> None:
        self.ended = False
        self.why = ""
        self.whom: Sequence[str] | str = ()
        self._before: list[Sequence[str] | str] = []
        self.since = time.monotonic()
        self._questions: _Questions | None = None
        # When the question was sent whose answer ``why`` is.
        self._known = self.since
        # By the beginning of its words, when each wait was told last.
        self._told: dict[str, float] = {}

    def over(self, whom: Sequence[str] | str) -> Self:
        """Say for whom a ``with`` block waits: addresses of workers, or a graph's id for the workers of its runs."""
        self._before.append(self.whom)
        self.whom = whom
        if whom:
            self.why = ""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.whom = self._before.pop()

    def look(self, client: distributed.Client) -> None:
        """Tell the caller whom the call waits for, if that is known. Waits for nothing; called while the call waits."""
        now, scheduler = time.monotonic(), client.scheduler
        if scheduler is None:
            return
        silence = config.seconds("silence")
        pause = min(_ASK_SECONDS, silence / 2)
        self._questions = _of_clients.setdefault(client, _Questions())
        sent, states, waiting = self._questions.look(client, self, now, pause)
        # A question that was on its way already may not have asked for this call's graph.
        if sent > self._known and (not isinstance(self.whom, str) or self.whom in states):
            self.why = waits_for(_among(states, self.whom))
            self._known = sent
            self._tell(self.why, now)
        elif waiting >= silence - pause:
            self.why = f"waits for the scheduler at {scheduler.address}, silent for {format_seconds(waiting)}"
            self._tell(self.why, now)

    def close(self) -> None:
        """End the look: no question is asked for this call any more."""
        self.ended = True
        if self._questions is not None:
            self._questions.leave(self)

    def _tell(self, words: str, now: float) -> None:
        # The beginning names the process; what follows changes by the second.
        begin = words.partition(", ")[0]
        if words and now - self._told.get(begin, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._told[begin] = now
            logger.warning("%s", words)


class _Questions:
    """The questions of one client: one at a time, for all of its calls that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: weakref.WeakSet[Lookout] = weakref.WeakSet()
        self._asking: concurrent.futures.Future[_States] | None = None
        # When the last question was sent, and the one of the last answer; and that answer.
        self._sent = self._answered = 0.0
        self._states: _States = {}

    def look(self, client: distributed.Client, call: Lookout, now: float, pause: float) -> tuple[float, _States, float]:
        """Ask for all calls, if that is due ``pause`` seconds after the last question.

        Returns:
            When the question was sent that was answered last; its answer; and how long a question waits for its answer.
        """
        with self._lock:
            self._calls.add(call)
            if self._asking is not None and self._asking.done():
                # Without an answer the scheduler is lost, which the call's own wait notices.
                with contextlib.suppress(OSError, concurrent.futures.CancelledError):
                    self._states, self._answered = self._asking.result(), self._sent
                self._asking = None
            if self._asking is None and now - max(call.since, self._sent) >= pause:
                graphs = {one.whom for one in self._calls if isinstance(one.whom, str)}
                asking = _ask(client, tuple(sorted(graphs)))
                try:
                    self._asking = asyncio.run_coroutine_threadsafe(asking, client.loop.asyncio_loop)
                except RuntimeError:
                    # The loop is closed; the call itself says so.
                    asking.close()
                self._sent = now
            waiting = 0.0 if self._asking is None else now - self._sent
            return self._answered, self._states, waiting

    def leave(self, call: Lookout) -> None:
        """Forget a call. With the last one, the question that is on its way ends."""
        with self._lock:
            self._calls.discard(call)
            if self._asking is not None and not self._calls:
                self._asking.cancel()


# The questions of each client.
_of_clients: weakref.WeakKeyDictionary[distributed.Client, _Questions] = weakref.WeakKeyDictionary()


def note_service(client: distributed.Client) -> None:
    """Note that a client's scheduler has the service, and so knows the states of the workers."""
    _served.add(client)


async def not_ready_of(client: distributed.Client, addresses: Sequence[str]) -> list[WorkerStatus]:
    """Return those workers at some addresses that are late or paused. ``OSError`` without an answer."""
    return _among(await _ask(client, ()), addresses)


def _among(states: _States, whom: Sequence[str] | str) -> list[WorkerStatus]:
    """Return those workers of an answer for whom a call waits; ``whom`` as of ``Lookout.over``."""
    if isinstance(whom, str):
        return list(states[whom])
    among = set(whom)
    return [worker for worker in states[""] if worker.address in among]


async def _ask(client: distributed.Client, graph_ids: tuple[str, ...]) -> _States:
    """Ask a scheduler as ``ListNotReady``; one without the service has no states. ``OSError`` without an answer."""
    scheduler = client.scheduler
    nothing: _States = dict.fromkeys(("", *graph_ids), ())
    if scheduler is None:
        return nothing
    if client not in _served:
        # Dask's scheduler logs a traceback for a message that it does not know.
        await asyncio.wait_for(scheduler.identity(n_workers=0), _ANSWER_SECONDS)
        return nothing
    message = ListNotReady(graph_ids)
    answer = await rpc.send(scheduler, message, _ANSWER_SECONDS)
    # A scheduler that was started anew has no such handler.
    return nothing if answer is None else rpc.unpack(scheduler.address, message, answer)
