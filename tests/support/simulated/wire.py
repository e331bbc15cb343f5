"""The wire of a game: messages that are late, lost, doubled or overtaken, and lines that break."""

import asyncio
import pickle
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.base.lines.line import Address, LineClosedError
from tests.support.simulated.fibers import PLACE, Clock, Event, Fibers

# Messages that a process may send twice, or whose connection may deliver a copy after a retry.
DOUBLED = ("dbfs_end_turn", "dbfs_note_runs", "dbfs_enter_update", "dbfs_abort_run", "dbfs_drop_rank_labels")

# Messages whose arrival a story tells.
TOLD = (
    "dbfs_begin_turn",
    "dbfs_end_turn",
    "dbfs_enqueue",
    "dbfs_enqueue_update",
    "dbfs_enter_update",
    "dbfs_cancel_run",
)

# Seconds after which a line breaks that is cut.
_SILENCE = 2.0

Handlers = dict[str, Callable[..., Any]]


class Wire:
    """Everything that travels between the processes of a game.

    Attributes:
        story: what happened, a line each.
        late: share of the messages that take long.
        cut: pairs of places that do not reach each other.
        traps: by place, after how many messages something befalls the process, and what.
    """

    def __init__(self, dice: random.Random, loop: Clock, fibers: Fibers) -> None:
        self.dice, self.loop, self.fibers = dice, loop, fibers
        self.handlers: dict[str, Handlers] = {}
        self.doors: dict[str, Door] = {}
        self.story: list[str] = []
        self.late = 0.0
        self.cut: set[frozenset[str]] = set()
        self._stopped: dict[str, asyncio.Event] = {}
        self.gone: set[str] = set()
        # Runs that wait for a late rank keep other graphs' runs from no worker.
        self.recently_stopped = False
        self.watch: Callable[[str, bytes], None] = lambda *_: None
        self.answered: Callable[[str, str, bytes], None] = lambda *_: None
        self.traps: dict[str, tuple[int, Callable[[], None]]] = {}
        fibers.frozen, fibers.killed = self.is_stopped, self.gone.__contains__

    @property
    def disturbed(self) -> bool:
        """Whether processes may have answered late until now."""
        return self.late > 0 or self.recently_stopped or bool(self.gone) or bool(self.cut)

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.loop.now - 1e6:9.4f} {PLACE.get() or 'scheduler'}: {what}")

    def delay(self) -> float:
        """Return how long the next message takes."""
        if self.dice.random() < self.late:
            return self.dice.random() * 3
        return self.dice.random() * self.dice.choice((0.0005, 0.0005, 0.02))

    def is_stopped(self, place: str) -> bool:
        """Return whether a process is stopped."""
        return place in self._stopped

    def stop(self, place: str) -> None:
        """Stop a process."""
        self._stopped.setdefault(place, asyncio.Event())
        self.recently_stopped = True

    def trap(self, place: str, messages: int, befalls: Callable[[], None]) -> None:
        """Have something befall a process when it has got so many messages more."""
        self.traps[place] = messages, befalls

    def arrives(self, place: str) -> None:
        """Count a message that arrives at a process."""
        if place in self.traps and place not in self.gone:
            left, befalls = self.traps.pop(place)
            if left > 1:
                self.traps[place] = left - 1, befalls
            else:
                befalls()

    def stop_for(self, place: str, seconds: float) -> None:
        """Stop a process for some seconds."""
        self.tell(f"{place} is stopped for {seconds:g} s")
        self.stop(place)
        self.loop.call_later(seconds, self.go_on, place)

    def cut_off(self, one: str, other: str, seconds: float) -> None:
        """Have two processes not reach each other for some seconds."""
        self.tell(f"{one} and {other} do not reach each other for {seconds:g} s")
        pair = frozenset((one, other))
        self.cut.add(pair)
        self.loop.call_later(seconds, self.cut.discard, pair)

    def go_on(self, place: str) -> None:
        """Have a stopped process go on."""
        event = self._stopped.pop(place, None)
        if event is not None:
            event.set()
            self.fibers.thaw()

    def kill(self, place: str) -> None:
        """End a process: what waits for it meets a broken connection."""
        self.gone.add(place)
        self.go_on(place)
        self.handlers.pop(place, None)
        door = self.doors.pop(place, None)
        if door is not None:
            door.close()
        self.fibers.end(place)

    async def _passes(self, place: str) -> None:
        """Wait while a process is stopped."""
        while place in self._stopped:
            await self._stopped[place].wait()

    async def send(self, target: str, operation: str, message: bytes) -> Any:
        """Send a message, and return the answer."""
        sender = PLACE.get()
        self.require(sender, target)
        self.watch(operation, message)
        if operation in DOUBLED and self.dice.random() < 0.1:
            copy = asyncio.ensure_future(self._deliver(target, operation, message))
            copy.add_done_callback(lambda done: done.cancelled() or done.exception())
        # The receiver carries out what its sender waits for no longer.
        return await asyncio.shield(asyncio.ensure_future(self._deliver(target, operation, message)))

    def require(self, sender: str, target: str) -> None:
        """Check that one process reaches another."""
        if target in self.gone or sender in self.gone or frozenset((sender, target)) in self.cut:
            raise OSError(f"{target} can't be reached")

    async def _deliver(self, target: str, operation: str, message: bytes) -> Any:
        sender = PLACE.get()
        await self._passes(sender)
        await asyncio.sleep(self.delay())
        self.arrives(target)
        await self._passes(target)
        self.require(sender, target)
        PLACE.set(target)
        if operation in TOLD:
            self.tell(f"{pickle.loads(message)}"[:300])
        try:
            answer = await self.handlers[target][operation](message=message)
        except asyncio.CancelledError:
            # The process was killed, and its threads with it.
            self.require(sender, target)
            raise
        await self._passes(target)
        await asyncio.sleep(self.delay())
        PLACE.set(sender)
        self.answered(target, operation, message)
        await self._passes(sender)
        self.require(sender, target)
        return answer

    def rpc(self, target: str) -> Any:
        """Return what Dask's ``rpc`` of a process is."""
        wire = self

        class Server:
            address = target

            def __getattr__(self, operation: str) -> Callable[..., Any]:
                return lambda message: wire.send(target, operation, message)

        return Server()


class Line:
    """One end of a line: see ``lines.line.Line``."""

    awake_seconds = 0.0

    def __init__(self, wire: Wire, place: str) -> None:
        self.place = place
        self.other: Line
        self._wire = wire
        self._inbox: deque[bytes] = deque()
        self._arrived = Event()
        self._next = 0.0
        self.closed = self.hung_up = False

    @classmethod
    def pair(cls, wire: Wire, one: str, other: str) -> "tuple[Line, Line]":
        """Return the two ends of a line between two processes."""
        ends = cls(wire, one), cls(wire, other)
        ends[0].other, ends[1].other = ends[1], ends[0]
        return ends

    def send(self, frame: bytes, timeout: float) -> None:
        if self.closed or self.hung_up:
            raise LineClosedError("the line broke")
        if frozenset((self.place, self.other.place)) in self._wire.cut:
            # The system breaks a line over which nothing comes.
            for end in (self, self.other):
                self._wire.loop.call_later(_SILENCE, end._hang_up)
            return
        # TCP keeps the order.
        self._next = max(self._next + 1e-6, self._wire.loop.now + self._wire.delay())
        self._wire.loop.call_at(self._next, self.other._take, frame)

    def _take(self, frame: bytes) -> None:
        if not self.closed:
            self._wire.arrives(self.place)
            self._inbox.append(frame)
            self._arrived.set()

    def receive(self, end: float | None) -> bytes:
        while not self._inbox:
            if self.closed or self.hung_up:
                raise LineClosedError("the line broke")
            self._arrived.clear()
            if not self._arrived.wait(None if end is None else end - self._wire.loop.now):
                raise TimeoutError("no answer in time")
        return self._inbox.popleft()

    def readable(self, seconds: float) -> bool:
        return bool(self._inbox) or self.closed or self.hung_up

    def notice_silence(self) -> None:
        """The wire does so."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._arrived.set()
            self._wire.loop.call_later(self._wire.delay(), self.other._hang_up)

    def _hang_up(self) -> None:
        self.hung_up = True
        self._arrived.set()


class Door:
    """See ``WorkerDoor``."""

    def __init__(self, wire: Wire, place: str) -> None:
        self._wire, self.place = wire, place
        self.tokens: dict[bytes, Callable[[Any], None]] = {}
        self._lines: list[Line] = []
        wire.doors[place] = self

    def admit(self, token: bytes, serve: Callable[[Any], None]) -> Address:
        self.tokens[token] = serve
        return self.place, 1

    def refuse(self, token: bytes) -> None:
        self.tokens.pop(token, None)

    def opener(self) -> Callable[[Address, bytes, float], Line]:
        return self._wire_opens

    def _wire_opens(self, address: Address, token: bytes, timeout: float) -> Line:
        return open_line(self._wire, self.place, address, token, timeout)

    def enter(self, token: bytes, place: str) -> Line:
        """Serve a line that shows a token; return the other end."""
        serve = self.tokens.get(token)
        if serve is None:
            raise LineClosedError("the token is not valid there")
        mine, other = Line.pair(self._wire, self.place, place)
        self._lines += [mine, other]
        self._wire.fibers.spawn(lambda: serve(mine), self.place)
        return other

    def close(self) -> None:
        for line in self._lines:
            line.close()


def open_line(wire: Wire, place: str, address: Address, token: bytes, timeout: float) -> Line:
    """Open a line from a fiber of a process: see ``Line.open``."""
    late = Event()
    target = address[0]
    took = wire.delay() + wire.delay()
    late.wait(min(took, timeout))
    stuck = Event()
    while wire.is_stopped(target) and took < timeout:
        took += 0.1
        stuck.wait(0.1)
    if took >= timeout:
        raise ExchangeUnavailableError(f"no line to {target}: timed out")
    try:
        wire.require(place, target)
    except OSError as error:
        raise ExchangeUnavailableError(f"no line to {target}: {error}") from error
    return wire.doors[target].enter(token, place)
