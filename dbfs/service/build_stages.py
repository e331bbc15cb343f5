"""Counts of a build's tasks by name, as the scheduler keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import distributed

Stage = tuple[int, int, int, int]
"""Counts of the tasks of one name: tasks under way, tasks that are over, all tasks, bytes of the results so far."""

BIN_TASKS = "bin-edges"
"""Name of the tasks that bin a piece on CPUs: task i is of rank i % p."""

_UNFINISHED_STATES = ("waiting", "no-worker", "queued", "processing", "erred")


def stages(scheduler: distributed.Scheduler, token: str) -> dict[str, Stage]:
    """Return the counts of the tasks whose keys end in a build's token, by the tasks' names.

    Dask forgets a name when all its tasks are over and their results are no longer needed.
    """
    return {
        name.removesuffix(f"-{token}"): (
            group.states["processing"],
            len(group) - sum(group.states[state] for state in _UNFINISHED_STATES),
            len(group),
            group.nbytes_total,
        )
        for name, group in scheduler.task_groups.items()
        if name.endswith(f"-{token}")
    }


def binned_by_rank(scheduler: distributed.Scheduler, token: str, ranks: int) -> tuple[int, ...]:
    """Return the number of pieces that each rank has binned; empty if Dask has no such tasks (any more)."""
    group = scheduler.task_groups.get(f"{BIN_TASKS}-{token}")
    if group is None:
        return ()
    counts = [0] * ranks
    for index in range(len(group)):
        task = scheduler.tasks.get((group.name, index))
        counts[index % ranks] += task is None or task.state not in _UNFINISHED_STATES
    return tuple(counts)
