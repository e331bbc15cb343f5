"""The frontier of one traversal by level, for a plot: of the run under way, or of the last run if there is none.

A run that finished has every level. A run under way, or one that ended early, has the levels that the service saw when
it sampled the run's progress (``RunProgress``). A run of many short traversals is sampled once or twice in each: such
samples do not make a plot, and the plot before stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import RunProgress, short_name
from dbfs_workers.search.reports import COUNT_FIELDS, levels_of_rows

if TYPE_CHECKING:
    from dbfs.base.records import EarlyEnd, FinishedRun
    from dbfs.service.entries import RunEntry
    from dbfs.service.feature import Records
    from dbfs_workers.search.reports import RankReport

# Largest number of points of a plot, and of letters of a graph's name in its title.
_MOST, _NAME = 2000, 60
# Smallest number of samples that make a plot.
_FEWEST_SAMPLES = 3

# The run id, and the last sample of a run under way. The number of samples would not do as a key: another traversal may
# have as many, and only the last samples of a long one are kept.
TrailKey = tuple[str, RunProgress | None]


@dataclass(frozen=True, eq=False)
class Trail:
    """One traversal as points of a plot.

    Attributes:
        key: identifies the traversal and its state.
        title: the graph, and that the run is under way, or its outcome and its id.
        level: int64[points], the level.
        frontier: int64[points], number of vertices that the level expands.
        reached: int64[points], number of vertices reached before the level.
        bottom_up: bool[points], whether the level is bottom-up.
    """

    key: TrailKey
    title: str
    level: NDArray[np.int64]
    frontier: NDArray[np.int64]
    reached: NDArray[np.int64]
    bottom_up: NDArray[np.bool_]


def trail_of(records: Records, drawn: Trail | None = None) -> Trail | None:
    """Return the trail to draw now: of the oldest run under way that has samples enough, else of the last that ended.

    Args:
        records: the service's records.
        drawn: the trail that the page shows; None if it shows none.

    Returns:
        ``drawn`` itself if nothing changed since, or while the next traversal of its run has too few samples. None if
        there was no run so far.
    """
    key: TrailKey
    for run in records.runs:
        if len(run.trail) >= _FEWEST_SAMPLES:
            key = (run.run_id, run.trail[-1])
            return drawn if drawn is not None and drawn.key == key else _under_way(run, key)
        if drawn is not None and drawn.key[0] == run.run_id:
            return drawn
    history, early = records.history, records.history.early
    if early is not None and len(early.looks) >= _FEWEST_SAMPLES:
        key = (early.run.run_id, None)
        return drawn if drawn is not None and drawn.key == key else _ended_early(early, key)
    # Updates of a graph are runs without traversals.
    finished = next((run for run in reversed(history.finished) if run.traversals), None)
    if finished is None:
        return drawn
    key = (finished.run_id, None)
    return drawn if drawn is not None and drawn.key == key else _finished(finished, history.last, key)


def _under_way(run: RunEntry, key: TrailKey) -> Trail:
    looks = list(run.trail)
    return _seen(looks, key, f"{short_name(run.graph.record.name, _NAME)}, under way{_traversal(looks, ', ')}")


def _ended_early(early: EarlyEnd, key: TrailKey) -> Trail:
    return _seen(early.looks, key, _title(early.run, f"{early.outcome}{_traversal(early.looks, ' in ')}"))


def _title(run: FinishedRun, how: str) -> str:
    # A table of its own has the error.
    return f"{short_name(run.graph, _NAME)}, {how}, run {run.run_id[:8]}"


def _traversal(looks: Sequence[RunProgress], before: str) -> str:
    """Return the number of the traversal if the run makes several; else an empty string."""
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


def _finished(run: FinishedRun, reports: Sequence[RankReport], key: TrailKey) -> Trail:
    counts = np.sum([rank.counts for rank in reports], axis=0)
    levels, covered = reports[0].levels, levels_of_rows(reports[0].levels)
    fields = {name: counts[:, COUNT_FIELDS.index(name)] for name in ("frontier", "discovered", "bottom_up")}
    # Discoveries do not include the sources, which the total does.
    before = np.cumsum(fields["discovered"]) - fields["discovered"] + (run.reached - fields["discovered"].sum())
    # Targets or max_depth stopped the traversal if its last level discovered vertices. A repair has no levels.
    stopped = levels <= run.depth
    how = "repaired" if run.depth and not levels else "stopped at its limit" if stopped else "finished"
    every = slice(None, None, -(-max(1, len(counts)) // _MOST))
    return Trail(
        key=key,
        title=_title(run, how),
        level=(np.cumsum(covered) - covered)[every],
        # Of a row that sums up several levels, their mean.
        frontier=(fields["frontier"] // np.maximum(1, covered))[every],
        reached=before[every],
        bottom_up=fields["bottom_up"][every] > 0,
    )
