"""Virtual time, and threads that are greenlets: what waits gives the control back to the event loop.

The code under test keeps its threads, locks and sleeps. ``simulated_time`` gives it others of the same names, which
wait on the loop's clock. So a game is the same whenever it is played from the same seed.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import heapq
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from greenlet import greenlet

Wake = Callable[[], None]

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="")
"""The process that runs: the address of a worker, the name of a client, or empty for the scheduler."""


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next event."""

    now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready:
            # The base class would wait, by the clock of the machine, for what comes behind timers that were cancelled.
            while loop._scheduled and loop._scheduled[0]._cancelled:
                heapq.heappop(loop._scheduled)._scheduled = False
                loop._timer_cancelled_count -= 1
            if loop._scheduled:
                self.now = max(self.now, loop._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


class FiberEndedError(BaseException):
    """Raised in a fiber that is to end, since its process was killed or the game is over."""


class Fiber:
    """A thread of a simulated process."""

    def __init__(self, fibers: "Fibers", work: Callable[[], Any], place: str) -> None:
        self.fibers, self.place = fibers, place
        self.future: Future[Any] = SimulatedFuture()
        self.scheduled = False
        self._work = work
        self._greenlet = greenlet(self._main)
        context = contextvars.copy_context()
        context.run(PLACE.set, place)
        self._greenlet.gr_context = context

    def wake(self) -> None:
        """Have the fiber go on soon; any number of calls until then count as one."""
        if not self.scheduled and not self.future.done():
            self.scheduled = True
            self.fibers.loop.call_soon(self.fibers.resume, self)

    def run(self) -> None:
        """Run until the fiber waits or ends. Called by the loop."""
        self._greenlet.switch()

    def wait(self) -> None:
        """Give the control back to the loop until the fiber is resumed. Called in the fiber."""
        loop = self._greenlet.parent
        assert loop is not None
        loop.switch()
        if self.fibers.ends(self):
            raise FiberEndedError

    def where(self) -> str:
        """Return where the fiber waits, in words."""
        return f"{self.place}:\n{''.join(traceback.format_stack(self._greenlet.gr_frame))}"

    def _main(self) -> None:
        try:
            result = self._work()
        except FiberEndedError:
            self.future.cancel()
        except BaseException as error:  # the future has it
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Fibers:
    """All fibers of a game.

    Attributes:
        loop: the clock.
        current: the fiber that runs; None while the loop does.
        frozen: returns whether a process is stopped, so that its fibers wait.
        killed: returns whether a process is gone, so that its fibers end.
    """

    def __init__(self, loop: Clock) -> None:
        self.loop = loop
        self.current: Fiber | None = None
        self.all: set[Fiber] = set()
        self.over = False
        self.frozen: Callable[[str], bool] = lambda _: False
        self.killed: Callable[[str], bool] = lambda _: False
        self._thawing: list[Fiber] = []

    def spawn(self, work: Callable[[], Any], place: str | None = None) -> Fiber:
        """Start a fiber, of the process that runs if no place is given."""
        fiber = Fiber(self, work, PLACE.get() if place is None else place)
        self.all.add(fiber)
        fiber.future.add_done_callback(lambda _: self.all.discard(fiber))
        fiber.wake()
        return fiber

    def resume(self, fiber: Fiber) -> None:
        """Let a fiber go on, unless its process is stopped. Called by the loop."""
        fiber.scheduled = False
        if fiber.future.done():
            return
        if self.frozen(fiber.place) and not self.ends(fiber):
            self._thawing.append(fiber)
            return
        self.current = fiber
        fiber.run()
        self.current = None

    def thaw(self) -> None:
        """Have the fibers of processes that were stopped go on."""
        thawing, self._thawing = self._thawing, []
        for fiber in thawing:
            fiber.wake()

    def ends(self, fiber: Fiber) -> bool:
        """Return whether a fiber is to end."""
        return self.over or self.killed(fiber.place)

    def end(self, place: str) -> None:
        """End the fibers of a process."""
        for fiber in list(self.all):
            if fiber.place == place:
                fiber.wake()

    def end_all(self) -> None:
        """End all fibers."""
        self.over = True
        self.thaw()
        while self.all:
            self.resume(next(iter(self.all)))

    def block(self, register: Callable[[Wake], None], timeout: float | None, ready: Callable[[], bool]) -> bool:
        """Wait in a fiber until something is ready; return False if that takes longer than ``timeout``.

        ``register`` is called with what to call when it may be ready.
        """
        fiber = self.current
        assert fiber is not None, "the event loop's thread must not wait"
        end = None if timeout is None else self.loop.now + max(0.0, timeout)
        while not ready():
            if end is not None and self.loop.now >= end:
                return False
            timer = None if end is None else self.loop.call_at(end, fiber.wake)
            register(fiber.wake)
            fiber.wait()
            if timer is not None:
                timer.cancel()
        return True


_FIBERS: Fibers


class Lock:
    """See ``threading.Lock``."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Wake] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held and not blocking:
            return False
        if self._held and not _FIBERS.block(
            self._waiting.append, None if timeout < 0 else timeout, lambda: not self._held
        ):
            return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            self._waiting.popleft()()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    """See ``threading.Event``."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Wake] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return _FIBERS.block(self._waiting.append, timeout, lambda: self._set)


class Thread:
    """See ``threading.Thread``."""

    def __init__(self, target: Callable[[], None], name: str = "", daemon: bool = True) -> None:
        self._target = target

    def start(self) -> None:
        _FIBERS.spawn(self._target)


class SimulatedFuture(Future[Any]):
    """A future whose waits are those of fibers."""

    def result(self, timeout: float | None = None) -> Any:
        wait([self], timeout)
        return super().result(0)


class Executor:
    """See ``ThreadPoolExecutor``, of one thread."""

    def __init__(self, threads: int, thread_name_prefix: str = "") -> None:
        assert threads == 1
        self._work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = False

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = SimulatedFuture()
        self._work.append((future, lambda: work(*arguments)))
        if not self._running:
            self._running = True
            _FIBERS.spawn(self._serve)
        return future

    def _serve(self) -> None:
        while self._work:
            future, work = self._work.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:  # the future has it
                    future.set_exception(error)
        self._running = False

    def shutdown(self, wait: bool = True) -> None:
        """Do nothing: what was submitted is still carried out."""


def wait(futures: Iterable[Future[Any]], timeout: float | None = None) -> Any:
    """See ``concurrent.futures.wait``."""
    waited = list(futures)

    def register(wake: Wake) -> None:
        for future in waited:
            if not future.done():
                future.add_done_callback(lambda _: wake())

    if not all(future.done() for future in waited):
        _FIBERS.block(register, timeout, lambda: all(future.done() for future in waited))
    done = {future for future in waited if future.done()}
    return SimpleNamespace(done=done, not_done=set(waited) - done)


async def to_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """See ``asyncio.to_thread``."""
    return await asyncio.wrap_future(_FIBERS.spawn(lambda: work(*arguments)).future)


def run_coroutine_threadsafe(work: Coroutine[Any, Any, Any], loop: Clock) -> Future[Any]:
    """See ``asyncio.run_coroutine_threadsafe``."""
    future = SimulatedFuture()

    def ended(task: asyncio.Task[Any]) -> None:
        if future.done():
            return
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def start() -> None:
        loop.create_task(work).add_done_callback(ended)

    # A fiber has no running loop; its context has the place.
    loop.call_soon(start, context=contextvars.copy_context())
    return future


class Periodic:
    """See ``tornado.ioloop.PeriodicCallback``."""

    def __init__(self, call: Callable[[], None], milliseconds: float) -> None:
        self._call, self._seconds = call, milliseconds * 1e-3

    def start(self) -> None:
        _FIBERS.loop.call_later(self._seconds, self._again)

    def _again(self) -> None:
        if not _FIBERS.over:
            self._call()
            self.start()


THREADING = SimpleNamespace(Lock=Lock, Event=Event, Thread=Thread)


@contextlib.contextmanager
def simulated_time(monkeypatch: pytest.MonkeyPatch, loop: Clock) -> Iterator[Fibers]:
    """Replace the clock, the sleeps and the waits of the standard library for the length of the context."""
    global _FIBERS
    fibers = _FIBERS = Fibers(loop)

    def sleep(seconds: float) -> None:
        fibers.block(lambda _: None, seconds, lambda: False)

    with monkeypatch.context() as patched:
        for name in ("time", "monotonic", "perf_counter"):
            patched.setattr(time, name, loop.time)
        patched.setattr(time, "sleep", sleep)
        patched.setattr(asyncio, "to_thread", to_thread)
        patched.setattr(asyncio, "run_coroutine_threadsafe", run_coroutine_threadsafe)
        patched.setattr(concurrent.futures, "wait", wait)
        try:
            yield fibers
        finally:
            fibers.end_all()
