"""The frontier of one run by level, for a plot: of a run under way where it was looked at, else of the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.spmd import COUNT_FIELDS

if TYPE_CHECKING:
    from dbfs.catalog import CatalogPlugin
    from dbfs.catalog_entries import RunEntry
    from dbfs.history import History

# Points of a plot.
_MOST = 2000


@dataclass(frozen=True, eq=False)
class Trail:
    """One traversal.

    Attributes:
        key: tells it from another state of it, or another.
        title: the graph, and which run.
        level: int64[points].
        frontier: int64[points], vertices that the level expands.
        reached: int64[points], vertices reached before it.
        bottom_up: bool[points].
    """

    key: tuple[str, int]
    title: str
    level: NDArray[np.int64]
    frontier: NDArray[np.int64]
    reached: NDArray[np.int64]
    bottom_up: NDArray[np.bool_]


def trail_of(catalog: CatalogPlugin, drawn: Trail | None = None) -> Trail | None:
    """What is best to be seen now: the run under way that began first, else the last that ended.

    Returns:
        ``drawn`` where there is nothing newer; None where no run was seen yet.
    """
    for run in catalog.runs:
        # A look may find all ranks before their first level.
        if any(seen.frontier for seen in run.trail):
            key = (run.run_id, len(run.trail))
            return drawn if drawn is not None and drawn.key == key else _under_way(run, key)
    if not catalog.history.finished:
        return drawn
    key = (catalog.history.finished[-1].run_id, -1)
    return drawn if drawn is not None and drawn.key == key else _finished(catalog.history, key)


def _under_way(run: RunEntry, key: tuple[str, int]) -> Trail:
    looks = list(run.trail)[-_MOST:]
    number = f", traversal {looks[-1].finished + 1} of {run.traversals}" if run.traversals > 1 else ""
    return Trail(
        key=key,
        title=f"{run.graph.record.name}, under way{number}",
        level=np.array([look.level for look in looks]),
        frontier=np.array([look.frontier for look in looks]),
        reached=np.array([look.reached for look in looks]),
        bottom_up=np.array([look.direction == "bottom-up" for look in looks]),
    )


def _finished(history: History, key: tuple[str, int]) -> Trail:
    run = history.finished[-1]
    counts = np.sum([rank.counts for rank in history.last], axis=0)
    fields = {name: counts[:, COUNT_FIELDS.index(name)] for name in ("frontier", "discovered", "bottom_up")}
    # The sources are in no level's discoveries.
    before = np.cumsum(fields["discovered"]) - fields["discovered"] + (run.reached - fields["discovered"].sum())
    every = slice(None, None, -(-max(1, len(counts)) // _MOST))
    return Trail(
        key=key,
        title=f"{run.graph}, run {run.run_id[:8]}, over",
        level=np.arange(len(counts))[every],
        frontier=fields["frontier"][every],
        reached=before[every],
        bottom_up=fields["bottom_up"][every] > 0,
    )
