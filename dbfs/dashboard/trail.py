"""The frontier of one run by level, for a plot: of a run under way where it was looked at, else of the last one.

Of one that ended early there is what the looks at it found; of one that came to its end, every level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.records import RunProgress
from dbfs_workers.reports import COUNT_FIELDS

if TYPE_CHECKING:
    from dbfs.dashboard.view import HistoryView, RunView, ServiceView
    from dbfs.records import EarlyEnd, FinishedRun

# Points of a plot, and letters of a graph's name in its title.
_MOST, _NAME = 2000, 24

# The run, and the last look at it while it is under way. How many looks there were does not tell: another traversal has
# as many, and of a long one only the last are kept.
TrailKey = tuple[str, RunProgress | None]


@dataclass(frozen=True, eq=False)
class Trail:
    """One traversal.

    Attributes:
        key: tells it from another state of it, or another.
        title: the graph, which run, and whether it is under way or how it ended.
        level: int64[points].
        frontier: int64[points], vertices that the level expands.
        reached: int64[points], vertices reached before it.
        bottom_up: bool[points].
    """

    key: TrailKey
    title: str
    level: NDArray[np.int64]
    frontier: NDArray[np.int64]
    reached: NDArray[np.int64]
    bottom_up: NDArray[np.bool_]


def trail_of(service: ServiceView, drawn: Trail | None = None) -> Trail | None:
    """What is best to be seen now: the run under way that began first, else the last that ended.

    Returns:
        ``drawn`` where there is nothing newer; None where no run was seen yet.
    """
    key: TrailKey
    for run in service.runs:
        if run.trail:
            key = (run.run_id, run.trail[-1])
            return drawn if drawn is not None and drawn.key == key else _under_way(run, key)
    history, early = service.history, service.history.early
    if early is None and not history.finished:
        return drawn
    key = ((history.finished[-1] if early is None else early.run).run_id, None)
    if drawn is not None and drawn.key == key:
        return drawn
    return _finished(history, key) if early is None else _ended_early(early, key)


def _under_way(run: RunView, key: TrailKey) -> Trail:
    looks = list(run.trail)
    return _seen(looks, key, f"{_short(run.graph.record.name)}, under way{_traversal(looks, ', ')}")


def _ended_early(early: EarlyEnd, key: TrailKey) -> Trail:
    return _seen(early.looks, key, _title(early.run, f"{early.outcome}{_traversal(early.looks, ' in ')}"))


def _title(run: FinishedRun, how: str) -> str:
    # What is too long for the plot is cut off: how it ended shall not be. Its error has a table of its own.
    return f"{_short(run.graph)}, {how}, run {run.run_id[:8]}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"


def _traversal(looks: Sequence[RunProgress], before: str) -> str:
    """Which one it is, where there are several."""
    last = looks[-1]
    number = min(last.finished + 1, last.traversals)
    return f"{before}traversal {number} of {last.traversals}" if last.traversals > 1 else ""


def _seen(looks: Sequence[RunProgress], key: TrailKey, title: str) -> Trail:
    looks = looks[-_MOST:]
    return Trail(
        key=key,
        title=title,
        level=np.array([look.level for look in looks]),
        frontier=np.array([look.frontier for look in looks]),
        reached=np.array([look.reached for look in looks]),
        bottom_up=np.array([look.direction == "bottom-up" for look in looks]),
    )


def _finished(history: HistoryView, key: TrailKey) -> Trail:
    run = history.finished[-1]
    counts = np.sum([rank.counts for rank in history.last], axis=0)
    fields = {name: counts[:, COUNT_FIELDS.index(name)] for name in ("frontier", "discovered", "bottom_up")}
    # The sources are in no level's discoveries.
    before = np.cumsum(fields["discovered"]) - fields["discovered"] + (run.reached - fields["discovered"].sum())
    # By targets or max_depth: where nothing is left, the last level discovers nothing.
    stopped = not len(counts) or fields["discovered"][-1] > 0
    how = "stopped as asked" if stopped else "over"
    every = slice(None, None, -(-max(1, len(counts)) // _MOST))
    return Trail(
        key=key,
        title=_title(run, how),
        level=np.arange(len(counts))[every],
        frontier=fields["frontier"][every],
        reached=before[every],
        bottom_up=fields["bottom_up"][every] > 0,
    )
