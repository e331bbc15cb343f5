"""Progress of long work: a bar in a notebook (HTML) or a terminal (rich), or calls of the user's own function.

An argument ``progress=`` is one of

- ``None``: the value of ``dbfs.progress`` in the configuration. The default is ``auto``: a bar in a notebook, and if
  stderr is a terminal;
- ``True`` or ``False``: a bar, or none, wherever the program runs;
- a function, called in the caller's thread at intervals during the work, with a ``RunProgress`` or a ``BuildProgress``
  (``dbfs.base.records``). An exception that it raises ends the work.

Other loops can show the same bars, which may be nested::

    for root in progress.track(roots, "roots"): ...

    with progress.bar("validating", total=64) as bar:
        bar.advance()
        bar.set(10, note="rule 3")
"""

from __future__ import annotations

import contextlib
import html
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from dbfs import config
from dbfs.base.records import BuildProgress, RunProgress
from dbfs.base.units import format_bytes, format_seconds
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.text import printable

if TYPE_CHECKING:
    import rich.progress

Item = TypeVar("Item")
Snapshot = TypeVar("Snapshot")
ProgressOption = bool | Callable[[Snapshot], None] | None
"""Type of an argument ``progress=``: see the module."""
Reporter = contextlib.AbstractContextManager[Callable[[Snapshot], None] | None]

# A short call takes no new context, if it shows no progress.
_NOTHING: Final = contextlib.nullcontext(None)

# Pieces by rank are shown for no more ranks than this, so that the bar keeps to a line.
_RANKS_SHOWN = 8

# Characters before a bar in a narrow terminal.
_LEAST_WORDS = 28

# Seconds before a bar appears. The bar of shorter work would only flicker.
_DELAY_SECONDS = 0.4
# Seconds between two pictures of a notebook's bar.
_REDRAW_SECONDS = 0.1


class Bar(Protocol):
    """One line of progress."""

    def set(self, done: float, note: str = "") -> None:
        """Set the amount done, out of the bar's total, and the note beside the bar."""

    def advance(self, step: float = 1) -> None:
        """Add ``step`` to the amount done."""

    def close(self) -> None:
        """Remove the bar."""


@contextlib.contextmanager
def bar(what: str, total: float | None = None, progress: bool | None = None) -> Iterator[Bar]:
    """Show a bar while the block runs.

    Args:
        what: the text before the bar.
        total: the value of ``Bar.set`` at the end; None if it is not known.
        progress: whether to show the bar: see the module.

    Raises:
        InvalidOptionError: ``dbfs.progress`` is not ``auto``, true or false.
    """
    shown = _new_bar(what, total, progress)
    try:
        yield shown
    finally:
        shown.close()


def track(items: Sequence[Item], what: str, progress: bool | None = None) -> Iterator[Item]:
    """Iterate over items and show a bar that counts them."""
    with bar(what, len(items), progress) as shown:
        for index, item in enumerate(items):
            shown.set(index, f"{index:,} of {len(items):,}")
            yield item


def run_reporter(
    option: ProgressOption[RunProgress], name: str, n: int, traversals: int, what: str = "bfs"
) -> Reporter[RunProgress]:
    """Return a context of the function that an engine calls with a run's progress, or of None if none is shown.

    Args:
        option: the caller's ``progress=``.
        n: number of vertices of the graph.
        what: what the traversals are made for.
    """
    first: tuple[float, int] | None = None

    def show(bar: Bar, run: RunProgress) -> None:
        nonlocal first
        level = f"level {run.level:,} {run.direction}, frontier {run.frontier:,}, reached {run.reached:,}"
        if run.waits_for:
            # Of a run that waits, the figures are old, or there are none.
            bar.set(run.reached if traversals == 1 else run.finished, run.waits_for)
            return
        if traversals == 1:
            bar.set(run.reached, level)
            return
        now = time.monotonic()
        # A measure with a checkpoint may begin with finished sources.
        first = first or (now, run.finished)
        begun, before = first
        note = f"{run.finished:,} of {traversals:,}"
        if run.finished > before:
            left = (now - begun) * (traversals - run.finished) / (run.finished - before)
            note += f", about {format_seconds(left)} left"
        # Between its levels and its end a batch sweeps, or traverses from one source after another.
        bar.set(run.finished, f"{note}: {level}" if run.frontier else note)

    return _reporter(option, f"{what} of {name}", n if traversals == 1 else traversals, show)


def build_reporter(option: ProgressOption[BuildProgress], name: str) -> Reporter[BuildProgress]:
    """Return a context of the function that a build calls with its progress, or of None if none is shown."""

    def show(bar: Bar, build: BuildProgress) -> None:
        size = f", {format_bytes(build.bytes_read)}" if build.bytes_read else ""
        ranks = f"; by rank {', '.join(map(str, build.binned))}" if 1 < len(build.binned) <= _RANKS_SHOWN else ""
        read = f"{build.pieces_read:,} of {build.pieces:,} pieces read{size}{ranks}"
        # GPUs that generate the edges themselves read no pieces.
        so_far = read if build.pieces else f"{build.done:,} of {build.tasks:,} tasks"
        bar.set(build.done / max(1, build.tasks), f"{build.stage}: {so_far}")

    return _reporter(option, f"building {name}", 1, show)


def _reporter(
    option: ProgressOption[Snapshot], what: str, total: float, show: Callable[[Bar, Snapshot], None]
) -> Reporter[Snapshot]:
    """Return a context of the caller's own function, or of a function that draws a bar by ``show``, or of None."""
    if callable(option):
        return contextlib.nullcontext(option)
    return _drawn(what, total, show) if _shown(option) else _NOTHING


@contextlib.contextmanager
def _drawn(what: str, total: float, show: Callable[[Bar, Snapshot], None]) -> Iterator[Callable[[Snapshot], None]]:
    began = time.monotonic()
    bars: list[Bar] = []

    def report(snapshot: Snapshot) -> None:
        if not bars:
            if time.monotonic() - began < _DELAY_SECONDS:
                return
            bars.append(_new_bar(what, total, True))
        show(bars[0], snapshot)

    try:
        yield report
    finally:
        for shown in bars:
            shown.close()


def _shown(option: bool | None) -> bool:
    choice = config.get("progress") if option is None else option
    if choice == "auto":
        return _in_notebook() or sys.stderr.isatty()
    if not isinstance(choice, bool):
        raise InvalidOptionError(f"dbfs.progress: {choice!r} is not one of auto, true, false")
    return choice


def _in_notebook() -> bool:
    # A notebook has imported IPython already. Importing it here would take half a second.
    ipython = sys.modules.get("IPython")
    shell: Any = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _new_bar(what: str, total: float | None, option: bool | None) -> Bar:
    if not _shown(option):
        return _NoBar()
    what = printable(what)
    return _NotebookBar(what, total) if _in_notebook() else _TerminalBar(what, total)


class _NoBar:
    """A bar that shows nothing."""

    def set(self, done: float, note: str = "") -> None:
        pass

    def advance(self, step: float = 1) -> None:
        pass

    def close(self) -> None:
        pass


class _NotebookBar:
    """A bar below the cell: one output, which IPython replaces in place and empties at the end.

    A saved notebook or an export keeps no line of it. A bar of tqdm leaves one line for each change there, or with
    ipywidgets its first state, and warns on stderr without ipywidgets.
    """

    def __init__(self, what: str, total: float | None) -> None:
        from IPython.display import display

        self._what = what
        self._total = total
        self._done = 0.0
        self._note = ""
        self._began = time.monotonic()
        self._drawn = -math.inf
        self._output: Any = display(self._bundle(), raw=True, display_id=True)

    def set(self, done: float, note: str = "") -> None:
        self._done, self._note = done, note
        self._draw()

    def advance(self, step: float = 1) -> None:
        self._done += step
        self._draw()

    def close(self) -> None:
        self._output.update({"text/plain": "", "text/html": ""}, raw=True)

    def _draw(self) -> None:
        # Each update is a message to the browser, and short steps make thousands.
        now = time.monotonic()
        if now - self._drawn >= _REDRAW_SECONDS:
            self._drawn = now
            self._output.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        """Return the bar by MIME type."""
        share = None if not self._total else min(1.0, self._done / self._total)
        after = [] if share is None else [f"{share:.0%}"]
        after += [self._note] if self._note else []
        after.append(f"{time.monotonic() - self._began:.0f} s")
        words = html.escape(", ".join(after))
        # Without a value, browsers draw work without a known end.
        value = "" if share is None else f' value="{share:.3f}"'
        return {
            "text/plain": f"{self._what} [{'#' * round(20 * (share or 0)):20}] {', '.join(after)}",
            "text/html": f"<div>{html.escape(self._what)} <progress{value}></progress> {words}</div>",
        }


class _TerminalBar:
    """A line of rich's display. The process has one display, from the start of the first bar to the end of the last."""

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
            self._screen = cls._display
            self._task = self._screen.add_task(what, total=total, note="")
        self._without_note = True

    def set(self, done: float, note: str = "") -> None:
        # The first note is drawn at once: add_task drew the bar without a note, and short work ends before the next
        # refresh.
        self._screen.update(self._task, completed=done, note=note, refresh=self._without_note)
        self._without_note = False

    def advance(self, step: float = 1) -> None:
        self._screen.advance(self._task, step)

    def close(self) -> None:
        cls = _TerminalBar
        with cls._lock:
            self._screen.remove_task(self._task)
            cls._bars -= 1
            if cls._bars == 0:
                self._screen.stop()
                cls._display = None


def _display() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Note(TextColumn):
        def render(self, task: Task) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    # On stderr, because stdout may be piped.
    console = Console(stderr=True)
    words = Column(no_wrap=True, overflow="ellipsis", max_width=max(_LEAST_WORDS, console.width - 80))
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=words),
        BarColumn(20, table_column=Column(no_wrap=True)),
        # In a narrow terminal the note alone is cut.
        Note("{task.fields[note]}", markup=False, table_column=Column()),
        TimeElapsedColumn(),
        console=console,
        # rich prints redirected text above the bars, on stderr: redirect stdout only if it is a terminal.
        redirect_stdout=sys.stdout.isatty(),
        transient=True,
        refresh_per_second=5,
    )
