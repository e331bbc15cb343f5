"""Progress of long work: a bar in a notebook (tqdm) or a terminal (rich), or calls of the user's own function.

Whatever takes ``progress=`` takes one of

- ``None``: what ``dbfs.progress`` in the configuration says; ``auto``, the default, is a bar in a notebook and where
  stderr is a terminal, and nothing elsewhere;
- ``True`` or ``False``: a bar, or none, wherever the program runs;
- a function, called in the caller's thread with a ``RunProgress`` or a ``BuildProgress`` (``dbfs.records``) now and
  then while the work lasts. What it raises ends the work.

Loops over anything else get the same bars, which may be nested::

    for root in progress.track(roots, "roots"): ...

    with progress.bar("validating", total=64) as bar:
        bar.advance()
        bar.set(10, note="rule 3")
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dask.utils import format_bytes

from dbfs import config
from dbfs.errors import InvalidOptionError
from dbfs.records import BuildProgress, RunProgress

if TYPE_CHECKING:
    import rich.progress

Item = TypeVar("Item")
Report = TypeVar("Report")
Option = bool | Callable[[Report], None] | None
"""What ``progress=`` takes: see the module."""

# Seconds. A bar of work that is over sooner would only flicker.
_DELAY = 0.4


class Bar(Protocol):
    """One line of progress."""

    def set(self, done: float, note: str = "") -> None:
        """Say how much is done, of the bar's total, and what is worth reading beside it."""
        ...

    def advance(self, step: float = 1) -> None:
        """So much more is done."""
        ...

    def close(self) -> None:
        """Take it away."""
        ...


@contextlib.contextmanager
def bar(what: str, total: float | None = None, progress: bool | None = None) -> Iterator[Bar]:
    """A bar while the block lasts.

    Args:
        what: the words before it.
        total: what ``Bar.set`` counts up to; None where nobody knows.
        progress: whether to show it: see the module.

    Raises:
        InvalidOptionError: ``dbfs.progress`` is not ``auto``, true or false.
    """
    made = _make(what, total, progress)
    try:
        yield made
    finally:
        made.close()


def track(items: Sequence[Item], what: str, progress: bool | None = None) -> Iterator[Item]:
    """Go through items with a bar that counts them."""
    with bar(what, len(items), progress) as shown:
        for index, item in enumerate(items):
            shown.set(index, f"{index:,} of {len(items):,}")
            yield item


@contextlib.contextmanager
def of_run(
    option: Option[RunProgress], name: str, n: int, traversals: int
) -> Iterator[Callable[[RunProgress], None] | None]:
    """What an engine tells of a run on a graph of ``n`` vertices, or None where nobody wants to know."""

    def show(bar: Bar, run: RunProgress) -> None:
        level = f"level {run.level:,} {run.direction}, frontier {run.frontier:,}, reached {run.reached:,}"
        if traversals == 1:
            bar.set(run.reached, level)
        else:
            bar.set(run.finished, f"{run.finished:,} of {traversals:,}: {level}")

    with _telling(option, f"bfs of {name}", n if traversals == 1 else traversals, show) as tell:
        yield tell


@contextlib.contextmanager
def of_build(option: Option[BuildProgress], name: str) -> Iterator[Callable[[BuildProgress], None] | None]:
    """What a build tells, or None where nobody wants to know."""

    def show(bar: Bar, build: BuildProgress) -> None:
        read = f"{build.pieces_read:,} of {build.pieces:,} pieces read, {format_bytes(build.bytes_read)}"
        # Where GPUs make the edges there is nothing to read.
        so_far = read if build.pieces else f"{build.done:,} of {build.tasks:,} tasks"
        bar.set(build.done / max(1, build.tasks), f"{build.stage}: {so_far}")

    with _telling(option, f"building {name}", 1, show) as tell:
        yield tell


@contextlib.contextmanager
def _telling(
    option: Option[Report], what: str, total: float, show: Callable[[Bar, Report], None]
) -> Iterator[Callable[[Report], None] | None]:
    if callable(option):
        yield option
        return
    if not _shown(option):
        yield None
        return
    began = time.monotonic()
    made: list[Bar] = []

    def tell(report: Report) -> None:
        if not made:
            if time.monotonic() - began < _DELAY:
                return
            made.append(_make(what, total, True))
        show(made[0], report)

    try:
        yield tell
    finally:
        for shown in made:
            shown.close()


def _shown(option: bool | None) -> bool:
    wanted = config.get("progress") if option is None else option
    if wanted == "auto":
        return _in_notebook() or sys.stderr.isatty()
    if not isinstance(wanted, bool):
        raise InvalidOptionError(f"dbfs.progress: {wanted!r} is not one of auto, true, false")
    return wanted


def _in_notebook() -> bool:
    # Where IPython was not imported nobody is in a notebook; importing it would take half a second.
    ipython = sys.modules.get("IPython")
    shell: Any = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _make(what: str, total: float | None, option: bool | None) -> Bar:
    if not _shown(option):
        return _Nothing()
    return _NotebookBar(what, total) if _in_notebook() else _TerminalBar(what, total)


class _Nothing:
    def set(self, done: float, note: str = "") -> None:
        pass

    def advance(self, step: float = 1) -> None:
        pass

    def close(self) -> None:
        pass


class _NotebookBar:
    def __init__(self, what: str, total: float | None) -> None:
        from tqdm.auto import tqdm

        form = "{desc} {percentage:3.0f}% |{bar}| {postfix} [{elapsed}]" if total else "{desc} {postfix} [{elapsed}]"
        self._bar = tqdm(total=total, desc=what, leave=False, bar_format=form)

    def set(self, done: float, note: str = "") -> None:
        self._bar.n = done
        self._bar.set_postfix_str(note)

    def advance(self, step: float = 1) -> None:
        self._bar.update(step)

    def close(self) -> None:
        self._bar.close()


class _TerminalBar:
    """A line of the process's one rich display, which lasts from the first bar's start to the last one's end."""

    _lock = threading.Lock()
    _display: rich.progress.Progress | None = None
    _bars = 0

    def __init__(self, what: str, total: float | None) -> None:
        cls = _TerminalBar
        with cls._lock:
            if cls._display is None:
                cls._display = _display()
                cls._display.start()
            cls._bars += 1
            self._on = cls._display
            self._task = self._on.add_task(what, total=total, note="")
        self._bare = True

    def set(self, done: float, note: str = "") -> None:
        # The first note at once: adding the task has drawn it without one, and it may be over before the next drawing.
        self._on.update(self._task, completed=done, note=note, refresh=self._bare)
        self._bare = False

    def advance(self, step: float = 1) -> None:
        self._on.advance(self._task, step)

    def close(self) -> None:
        cls = _TerminalBar
        with cls._lock:
            self._on.remove_task(self._task)
            cls._bars -= 1
            if cls._bars == 0:
                self._on.stop()
                cls._display = None


def _display() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # On stderr, so that stdout can be piped.
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        # What is printed meanwhile scrolls by above, but would end up on stderr.
        redirect_stdout=sys.stdout.isatty(),
        transient=True,
        refresh_per_second=5,
    )
