"""Calls with an asynchronous client: each runs in a thread of its own, and its caller awaits it.

The calls of dbfs are synchronous functions. An asynchronous client lives in the event loop of its caller's thread,
which must not block. In any other thread the same client is synchronous (``distributed.Client.asynchronous``). So a
call runs unchanged in a thread that ends with the call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

import distributed

from dbfs.cluster.deadline import of_call
from dbfs.cluster.own_process import StaysHere, require_own
from dbfs.errors import ClientError, LateError

P = ParamSpec("P")
S = TypeVar("S", bound=StaysHere, covariant=True)
T = TypeVar("T")
A = TypeVar("A")

MOST_THREADS: Final = 256
"""Largest number of calls of one client that run at once; further calls wait. As many runs may wait in the queue."""

# Seconds between two looks whether an event loop still runs.
_LOOK_SECONDS: Final = 0.5

_LOOP_ENDED: Final = "the distributed.Client of this call was closed; connect and load again"

_rooms: weakref.WeakKeyDictionary[distributed.Client, asyncio.Semaphore] = weakref.WeakKeyDictionary()


class _Call:
    """A call that runs in a thread of its own, and that can be cancelled from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._wait: concurrent.futures.Future[Any] | None = None

    def cancel(self) -> None:
        """End the wait of the call's thread, and refuse all further waits."""
        with self._lock:
            self._cancelled = True
            wait = self._wait
        if wait is not None:
            wait.cancel()

    def check(self) -> None:
        """Raise ``asyncio.CancelledError`` if the call was cancelled."""
        if self._cancelled:
            raise asyncio.CancelledError

    def wait_for(self, client: distributed.Client, function: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function in a client's event loop, and wait for its result."""
        loop = client.loop.asyncio_loop
        with self._lock:
            self.check()
            self._wait = wait = begin(function, loop)
        try:
            return outcome(wait, client)
        except ClientError:
            # ``check`` raises the error of a cancelled call. It is no Exception, so no handler takes it for a failure.
            self.check()
            raise
        finally:
            self._wait = None


_current: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("dbfs_call", default=None)


def require_other_thread(client: distributed.Client) -> None:
    """Raise ``ClientError`` if this thread runs the client's event loop, which a synchronous call would block.

    So it does in a forked child, where no thread runs the loop.
    """
    require_own(client)
    if client.asynchronous:
        raise ClientError(
            "a synchronous call in the thread of the client's event loop, which the call would block; "
            "await the call of an AsyncGraph or an AsyncBFSResult instead, or make the call in another thread"
        )


def require_open(client: distributed.Client) -> None:
    """Raise ``ClientError`` if a client is closed, or of another process.

    Dask closes a client that can't reach its scheduler.
    """
    require_own(client)
    if client.status in ("closing", "closed"):
        raise ClientError(
            f"the distributed.Client of this call is {client.status}; connect and load again. "
            "A client that can't reach its scheduler closes by itself"
        )


def scheduler_of(client: distributed.Client) -> Any:
    """Return a client's connection to its scheduler; raise ``ClientError`` if another thread has closed the client."""
    require_open(client)
    scheduler = client.scheduler
    if scheduler is None:
        raise ClientError(_LOOP_ENDED)
    return scheduler


def sync(client: distributed.Client, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Run a coroutine function in a client's event loop, and wait for its result; a cancelled call stops waiting.

    Raises:
        LateError: ``deadline.GRACE_SECONDS`` after the deadline of the call there was no result.
        asyncio.CancelledError: the call was cancelled.
        ClientError: this thread runs the client's event loop, or another thread closed the client meanwhile.
        Exception: the coroutine raised it.
    """
    require_other_thread(client)
    call = _current.get()
    run = functools.partial(function, *arguments)
    return outcome(begin(run, client.loop.asyncio_loop), client) if call is None else call.wait_for(client, run)


def sync_to_end(client: distributed.Client, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Run a coroutine function as ``sync``, but to its end, even if the call is cancelled meanwhile.

    A change on the cluster must not be abandoned halfway.
    """
    require_other_thread(client)
    return outcome(begin(functools.partial(function, *arguments), client.loop.asyncio_loop), client)


def begin(function: Callable[[], Awaitable[T]], loop: asyncio.AbstractEventLoop) -> concurrent.futures.Future[T]:
    """Run a coroutine function in the event loop of another thread; ``outcome`` waits for its result.

    Errors as for ``outcome``.
    """

    async def run() -> T:
        return await function()

    coroutine = run()
    try:
        wait = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        # The loop is closed. A coroutine that never runs is closed, or Python would warn of it.
        coroutine.close()
        raise ClientError(_LOOP_ENDED) from None

    def close(_wait: concurrent.futures.Future[T]) -> None:
        # The loop ended after it took the coroutine, and before it ran it.
        if not loop.is_running() and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()

    wait.add_done_callback(close)
    return wait


def outcome(wait: concurrent.futures.Future[T], client: distributed.Client) -> T:
    """Wait for the result of a coroutine that runs in a client's event loop, as long as the call's deadline allows.

    ``Client.sync`` waits for ever if another thread closes the client meanwhile: nothing ends in a loop that has ended.

    Raises:
        ClientError: the loop has ended, or ends meanwhile.
        Exception: the coroutine raised it.
    """
    deadline, loop, scheduler = of_call(), client.loop.asyncio_loop, client.scheduler
    try:
        while True:
            ended = not loop.is_running()
            try:
                return wait.result(min(_LOOK_SECONDS, deadline.last))
            except TimeoutError:
                if wait.done():
                    # The coroutine itself raised it, or ended just now.
                    return wait.result()
                if ended:
                    raise ClientError(_LOOP_ENDED) from None
                if deadline.over:
                    raise late(scheduler.address if scheduler else "its address", deadline.seconds) from None
                deadline.lookout.look(client)
            except concurrent.futures.CancelledError:
                # A client that closes cancels all that runs in its loop. The coroutine's own error may have this type.
                if wait.cancelled():
                    raise ClientError(_LOOP_ENDED) from None
                raise
    except BaseException:
        # Ctrl-C ends the coroutine as well as the wait.
        wait.cancel()
        raise


def late(scheduler: str, seconds: float) -> LateError:
    """Return the error for a scheduler that has not answered ``seconds`` after a call."""
    return LateError(f"no answer from the scheduler at {scheduler} within {seconds:g} s; it may answer later")


def check_cancelled() -> None:
    """Raise ``asyncio.CancelledError`` if this thread makes a call that was cancelled."""
    call = _current.get()
    if call is not None:
        call.check()


async def in_thread(
    client: distributed.Client, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
) -> T:
    """Run a synchronous function in a thread of its own, and return its result.

    If the caller is cancelled, so is the function: its wait for a run or for labels ends, and the run with it.
    ``CancelledError`` leaves here when the thread has ended.

    Raises:
        Exception: the function raised it.
    """
    loop, call = asyncio.get_running_loop(), _Call()
    context = contextvars.copy_context()
    context.run(_current.set, call)
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    # A running future can't be cancelled: its outcome is that of the thread.
    outcome.set_running_or_notify_cancel()

    def run(outcome: concurrent.futures.Future[T]) -> None:
        try:
            outcome.set_result(context.run(function, *arguments, **options))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            # The outcome holds the error, and the error's traceback this frame: a circle that would keep results alive.
            del outcome

    async with _rooms.setdefault(client, asyncio.Semaphore(MOST_THREADS)):
        name = f"dbfs-call-{getattr(function, '__name__', 'function')}"
        threading.Thread(target=run, args=(outcome,), name=name, daemon=True).start()
        try:
            return await asyncio.wrap_future(outcome, loop=loop)
        except asyncio.CancelledError:
            call.cancel()
            ended = asyncio.wrap_future(outcome, loop=loop)
            await asyncio.wait({ended})
            # Reads the error, which asyncio would log as never read.
            if not ended.cancelled():
                ended.exception()
            raise
        finally:
            del outcome


def _client_of_this_loop(client: Any) -> distributed.Client | None:
    """Return the client of a call (Dask's current one if None) if this thread runs its event loop."""
    if client is None:
        try:
            client = distributed.Client.current()
        except ValueError:
            return None
    return client if isinstance(client, distributed.Client) and client.asynchronous else None


def awaitable(view: Callable[[T], A]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function with the argument ``client``, so that it returns an awaitable for an asynchronous client.

    Type checkers see the type for synchronous clients; ``dbfs.asynchronous`` has the other.

    Args:
        view: makes the awaitable's result of the function's.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            bound = signature.bind(*arguments, **options)
            client = _client_of_this_loop(bound.arguments.get("client"))
            if client is None:
                return function(*arguments, **options)
            bound.arguments["client"] = client

            async def awaited() -> A:
                return view(await in_thread(client, function, *bound.args, **bound.kwargs))

            return cast(T, awaited())

        return call

    return decorate


def unchanged(value: T) -> T:
    """Return the value: the view of results that need no cluster."""
    return value


class AsyncView(StaysHere, Generic[S]):
    """Base of the objects that an asynchronous client's calls return: methods of a synchronous object as awaitables.

    Attributes:
        synchronous: the object whose methods run in threads. Its own methods block, and work in other threads only.
    """

    def __init__(self, synchronous: S, client: distributed.Client) -> None:
        self.synchronous = synchronous
        self._client = client

    @property
    def elsewhere(self) -> str:
        return self.synchronous.elsewhere

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.synchronous!r}>"

    def _repr_html_(self) -> str | None:
        # No HTML makes a call to the cluster. Notebooks show the plain representation of what has none.
        html: str | None = getattr(self.synchronous, "_repr_html_", lambda: None)()
        return html


def awaited(
    method: Callable[Concatenate[Any, P], T], view: Callable[[T], A]
) -> Callable[Concatenate[AsyncView[Any], P], Coroutine[Any, Any, A]]:
    """Return a method of a view that runs a method of the synchronous object in a thread.

    Args:
        method: the synchronous method.
        view: makes the awaitable's result of the method's.
    """

    @functools.wraps(method)
    async def call(self: AsyncView[Any], /, *arguments: P.args, **options: P.kwargs) -> A:
        return view(await in_thread(self._client, method, self.synchronous, *arguments, **options))

    return call


def forwarded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[AsyncView[Any], P], T]:
    """Return a method of a view that calls a method of the synchronous object, which needs no cluster."""

    @functools.wraps(method)
    def call(self: AsyncView[Any], /, *arguments: P.args, **options: P.kwargs) -> T:
        return method(self.synchronous, *arguments, **options)

    return call
