"""The tasks of a build, counted on the scheduler by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import distributed

Stage = tuple[int, int, int, int]
"""Of the tasks of one name: those under way, those that are over, all of them, and the bytes of the results so far."""

_AHEAD = ("waiting", "no-worker", "queued", "processing", "erred")


def stages(scheduler: distributed.Scheduler, token: str) -> dict[str, Stage]:
    """The tasks whose keys end in a build's token, by name.

    Dask forgets a name when all its tasks are over and nothing needs them any more.
    """
    return {
        name.removesuffix(f"-{token}"): (
            group.states["processing"],
            len(group) - sum(group.states[state] for state in _AHEAD),
            len(group),
            group.nbytes_total,
        )
        for name, group in scheduler.task_groups.items()
        if name.endswith(f"-{token}")
    }
