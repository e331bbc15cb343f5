"""CPU kernels of a team's tasks of a 2-D partition: see ``search.cpu.kernels.team_tasks``."""

from typing import Final

from dbfs_workers.base.intrinsics import from_words
from dbfs_workers.base.jit import INT64, READ_INT64, int64, kernel, void
from dbfs_workers.base.team import CALLS, KIND, RESULTS, Tasks
from dbfs_workers.features.grid.kernels import team as grid_team_kernels
from dbfs_workers.features.grid.kernels.team import (
    GRID_CONTRACTION,
    GRID_EXPANSION,
    GRID_SEARCHING,
    contract,
    expand,
    search,
)
from dbfs_workers.search.cpu.kernels.team_tasks import begin, close, end, leave, next_task

EXPAND: Final = 1
SEARCH: Final = 2
CONTRACT: Final = 3


@kernel(void, int64, READ_INT64, INT64, int64)
def work(kind, task, results, thread):
    """Run a thread's part of a task."""
    at = thread * RESULTS
    if kind == EXPAND:
        results[at] = expand(from_words(task, GRID_EXPANSION), thread)
    elif kind == SEARCH:
        results[at], results[at + 1] = search(from_words(task, GRID_SEARCHING))
    else:
        results[at], results[at + 1] = contract(from_words(task, GRID_CONTRACTION), thread)


@kernel(int64, INT64, READ_INT64, INT64, int64, int64)
def serve(control, task, results, thread, number):
    """Do a helper's part of tasks: see ``team.Helper``."""
    number = next_task(control, number)
    while number >= 0 and control[KIND] != CALLS:
        work(control[KIND], task, results, thread)
        leave(control)
        number = next_task(control, number)
    return number


@kernel(void, INT64, READ_INT64, INT64, int64)
def lead(control, task, results, kind):
    """Run a task: see ``team.Leader``."""
    begin(control, kind)
    work(kind, task, results, 0)
    close(control)


KINDS: Final = {
    grid_team_kernels.GridExpansion: EXPAND,
    grid_team_kernels.GridSearch: SEARCH,
    grid_team_kernels.GridContraction: CONTRACT,
}
TASKS: Final = Tasks(serve, lead, begin, leave, close, end, KINDS)
"""Tasks of large levels of the layout 2d."""
