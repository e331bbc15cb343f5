"""Processes that are stopped before, in and after each public call: it ends by its deadline, and nothing is lost."""

import ctypes
import itertools
import os
import signal
from collections.abc import Iterator

import dask
import distributed
import pytest

from dbfs.errors import DeadlineExceededError, OutcomeUnknownError
from tests.support.stalls import CALLS, STOPPED, WHEN, Processes, check, made_anew, processes, stall, stopped

pytestmark = [pytest.mark.full, pytest.mark.alone]

DEADLINE = 0.5
# Far more than the deadline and the client's grace, since the machine may be busy. Without deadlines calls hang.
MOST = DEADLINE + 4.0

CELLS = [*itertools.product(STOPPED, WHEN)]
# Each call beside one process, and each process and time beside three calls.
DIAGONAL = [(name, *CELLS[index % len(CELLS)]) for index, name in enumerate(CALLS)]
REST = [cell for cell in ((name, *other) for name in CALLS for other in CELLS) if cell not in DIAGONAL]


@pytest.fixture(scope="module")
def there() -> Iterator[Processes]:
    with processes() as there, dask.config.set({"dbfs.write.folders": ["/"]}):
        yield there


def ends_in_time_and_goes_on(there: Processes, name: str, process: str, when: str) -> None:
    """Stop a process beside a call; check the call's end, and the answers that both clients get afterwards."""
    graph = made_anew(there)
    outcome = stall(there, graph, name, process, when, DEADLINE)
    assert outcome.seconds < MOST
    assert outcome.error is None or isinstance(outcome.error, DeadlineExceededError)
    check(there, graph, name).unload()


@pytest.mark.parametrize(
    ("name", "process", "when"),
    [pytest.param(*row, marks=[pytest.mark.long] * (at % 2)) for at, row in enumerate(DIAGONAL)],
)
def test_a_stopped_process_delays_no_call(there: Processes, name: str, process: str, when: str) -> None:
    ends_in_time_and_goes_on(there, name, process, when)


@pytest.mark.long
@pytest.mark.parametrize(("name", "process", "when"), REST)
def test_no_stopped_process_delays_any_call(there: Processes, name: str, process: str, when: str) -> None:
    ends_in_time_and_goes_on(there, name, process, when)


def test_a_rank_that_is_late_once_leaves_leases_as_they_were(there: Processes) -> None:
    """After a lease whose rank was late, later runs have a lease again, over new lines."""
    graph = made_anew(there)
    graph.bfs_many([0, 1])
    for rank in ("rank 2", "rank 0", "rank 1"):
        with stopped(there.pids[rank]), pytest.raises(DeadlineExceededError):
            graph.bfs(0, deadline=DEADLINE)
        for _ in range(3):
            assert graph.bfs_many([0, 1], deadline=30)[1].reached == graph.n
    assert graph.bfs(0, deadline=30).engine == "resident"
    graph.unload()


def test_a_task_that_holds_the_interpreter_of_a_rank(there: Processes) -> None:
    """The rank answers nothing meanwhile, as a stopped one, but no signal tells of it."""
    graph = made_anew(there)
    graph.bfs_many([0, 1])
    held = there.client.submit(
        lambda: ctypes.PyDLL(None).sleep(2), workers=[graph.gang.addresses[2]], allow_other_workers=False, pure=False
    )
    with pytest.raises(DeadlineExceededError):
        while not held.done():
            graph.bfs(0, deadline=DEADLINE)
    held.result()
    assert graph.bfs_many([0, 1], deadline=30)[1].reached == graph.n
    graph.unload()


@pytest.mark.parametrize("leased", [True, False])
def test_an_update_beside_a_stopped_scheduler_is_made_once_or_not_at_all(there: Processes, leased: bool) -> None:
    graph = made_anew(there)
    if leased:
        graph.bfs_many([0, 1])
    with stopped(there.pids["scheduler"]), pytest.raises(OutcomeUnknownError, match=r"graph\.version shows"):
        graph.insert_edges([(0, 9)], deadline=DEADLINE, batch_id=None if leased else "nine")
    assert graph.bfs(0, deadline=30).version == graph.version <= 1
    # The batch may be sent again.
    graph.insert_edges([(0, 9)], deadline=30, batch_id="nine")
    version = graph.version
    assert graph.insert_edges([(0, 9)], deadline=30, batch_id="nine").version == version == graph.version
    assert graph.bfs(0, deadline=30, predecessors=True, validate=True).distances()[9] == 1
    graph.unload()


def test_a_rank_that_commits_late_holds_up_the_next_run_only(there: Processes) -> None:
    """The version is decided when the rank is stopped: the update has its report, and the rank commits later."""

    def stop_at_commit(dask_worker: distributed.Worker) -> None:
        updates = dask_worker.plugins["dbfs"].changes
        put = updates._put

        def stop_once(*arguments: object) -> None:
            updates._put = put
            os.kill(os.getpid(), signal.SIGSTOP)
            put(*arguments)

        updates._put = stop_once

    graph = made_anew(there)
    there.client.run(stop_at_commit, workers=[graph.gang.addresses[1]])
    assert graph.insert_edges([(0, 9)], deadline=DEADLINE, batch_id="nine").version == 1
    with stopped(there.pids["rank 1"]), pytest.raises(DeadlineExceededError):
        graph.bfs(0, deadline=DEADLINE)
    result = graph.bfs(0, predecessors=True, deadline=30)
    assert result.version == graph.version == 1
    result.validate()
    graph.unload()
