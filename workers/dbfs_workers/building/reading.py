"""A read of a file under way: its limits, and its end if no client waits for it any more.

A file decides how much text and how many edges come out of it, so a read looks at its limits between blocks of text.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import distributed

from dbfs_workers.base.errors import DeadlineExceededError, FormatError, RunCancelledError
from dbfs_workers.base.memory_room import MemoryRoom
from dbfs_workers.base.text import counted

IDLE_BYTES = 1 << 24
"""Bytes of text that a read accepts before the first edge: blank lines, comments, blanks."""

EDGE_TEXT_BYTES = 1 << 12
"""Bytes of text that a read accepts for each edge and each row, on average, beyond ``IDLE_BYTES``."""

T = TypeVar("T")
R = TypeVar("R")

# The task for which a thread of ``read_ahead`` reads: ``_current_task`` of the thread that started the read.
_reads_for = threading.local()

# Bytes that an edge takes beyond the two ids that were read: the ids again as one array, and the data that the build
# makes from them (bins of both directions, or the sorted distinct ids).
_EDGE_BYTES = 48


@dataclass(frozen=True)
class ReadLimits:
    """Limits of each read of a file. Pieces carry them to the workers.

    Attributes:
        edges: edges that the file's header promises; None if unknown.
        memory_share: share of the worker's memory limit that the worker's process may reach.
        seconds: longest time of one read.
    """

    edges: int | None
    memory_share: float
    seconds: float


class Reading:
    """One read of a file.

    Args:
        path: the file, for messages.
        expansion: bytes of memory that parsing takes for a byte of text.
    """

    def __init__(self, path: str, limits: ReadLimits, expansion: int) -> None:
        self._path = path
        self._limits = limits
        self._expansion = expansion
        self._end = time.monotonic() + limits.seconds
        self._text = 0
        self._edges = 0
        self._rows = 0
        self._worker, self._key = _current_task()

    def look(self) -> None:
        """Raise an error if no client waits for the read any more, or the read takes too long.

        Raises:
            RunCancelledError: the task was cancelled, or its client is gone.
            DeadlineExceededError: the longest time of a read is over.
        """
        _require_wanted(self._worker, self._key, f"reading {self._path}")
        if time.monotonic() > self._end:
            raise DeadlineExceededError(f"reading {self._path}: not done after {self._limits.seconds:g} s")

    def take_text(self, size: int, pending: int) -> None:
        """Count ``size`` more bytes of text, of which ``pending`` are to be parsed together.

        Raises:
            FormatError: much text has held few edges so far.
            GraphTooLargeError: the worker has too little memory left to parse the text.
            RunCancelledError, DeadlineExceededError: see ``look``.
        """
        self.look()
        self._text += size
        if self._text - pending > IDLE_BYTES + EDGE_TEXT_BYTES * (self._edges + self._rows):
            raise FormatError(
                f"{self._path}: {self._text:,} bytes of text hold {counted(self._edges, 'edge')}; "
                f"expected an edge in {EDGE_TEXT_BYTES:,} bytes on average. Are these blank lines or comments?"
            )
        needed = self._expansion * pending + _EDGE_BYTES * self._edges
        done = f"{self._path}, after {counted(self._edges, 'edge')} in {self._text:,} bytes of text: the next step"
        require_room(needed, self._limits.memory_share, done)

    def take_edges(self, edges: int, rows: int = 0) -> None:
        """Count the edges, and the lines of vertices, that were parsed.

        Raise ``FormatError`` if there are more than the file's header promises.
        """
        self._edges += edges
        self._rows += rows
        if self._limits.edges is not None and self._edges > self._limits.edges:
            raise FormatError(f"{self._path} holds more edges than the {self._limits.edges:,} that its header promises")


def require_room(needed: int, memory_share: float, what: str) -> None:
    """Refuse to take ``needed`` bytes that this process does not have.

    Errors as for ``MemoryRoom.require``.
    """
    room_of_task(memory_share).require(needed, what)


def room_of_task(memory_share: float) -> MemoryRoom:
    """Return the memory that the worker of the task in this thread may take."""
    return MemoryRoom.of(_current_task()[0], memory_share)


def require_wanted(doing: str) -> None:
    """Raise ``RunCancelledError`` if the task that runs in this thread was cancelled, or its client is gone.

    Args:
        doing: what the task does, for the message.
    """
    _require_wanted(*_current_task(), doing)


def _require_wanted(worker: Any, key: str, doing: str) -> None:
    task = None if worker is None else worker.state.tasks.get(key)
    if worker is not None and (task is None or task.state == "cancelled"):
        raise RunCancelledError(f"{doing} was cancelled")


def read_ahead(items: Iterable[T], read: Callable[[T], R], threads: int) -> Iterator[R]:
    """Yield what ``read`` makes of each item, in order, while threads read the next items.

    The reads have the limits of the task that calls this: its worker's memory, and its end.

    Args:
        items: what to read.
        read: reads an item.
        threads: number of threads, and of items that are held beside the one yielded last.

    Raise ``RunCancelledError`` if the task was cancelled, and the error of the first item that ``read`` raised one for.
    """
    task = _current_task()

    def adopt() -> None:
        _reads_for.task = task

    with ThreadPoolExecutor(threads, thread_name_prefix="dbfs-read", initializer=adopt) as pool:
        left = iter(items)
        ahead: deque[Future[R]] = deque(pool.submit(read, item) for item in islice(left, threads))
        try:
            while ahead:
                found = ahead.popleft().result()
                ahead.extend(pool.submit(read, item) for item in islice(left, 1))
                yield found
                del found
        finally:
            for waiting in ahead:
                waiting.cancel()


def _current_task() -> tuple[Any, str]:
    """Return the worker whose task runs in this thread, and the task's key; None and an empty key outside a task.

    A thread of ``read_ahead`` belongs to the task that it reads for.
    """
    adopted: tuple[Any, str] | None = getattr(_reads_for, "task", None)
    return _task_of_thread() if adopted is None else adopted


def _task_of_thread() -> tuple[Any, str]:
    """Return the task that Dask runs in this thread; see ``_current_task``."""
    try:
        worker = distributed.get_worker()
        return worker, worker.get_current_task()
    except (ValueError, KeyError):
        return None, ""
