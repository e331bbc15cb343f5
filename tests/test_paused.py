"""Memory that clients left behind returns to the system, and a worker that Dask pauses is told by name."""

import dask
import distributed
import pytest

import dbfs
from dbfs.errors import NoRoomForLabelsError
from dbfs_workers.storage import memory_room
from dbfs_workers.storage.memory_room import resident_bytes, room_for, usable_share
from tests.support.waiting import eventually

UNSPILLED = {f"distributed.worker.memory.{what}": False for what in ("target", "spill")}
LIMIT = 600 << 20


@pytest.mark.parametrize(
    ("share", "pause", "usable"),
    [(0.9, False, 0.9), (0.9, 0.95, 0.9), (0.9, 0.8, 0.75), (0.5, 0.8, 0.5), (1.0, 1.0, 0.95), (0.9, 0.01, 0.0)],
)
def test_nothing_fills_a_worker_up_to_its_pause(share: float, pause: float | bool, usable: float) -> None:
    assert usable_share(share, pause) == usable


def test_freed_memory_returns_before_a_refusal_and_not_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 5

    def return_freed() -> None:
        nonlocal free
        free += 3

    monkeypatch.setattr(memory_room, "return_freed", return_freed)
    assert [room_for(needed, lambda: free) for needed in (5, 6, 8, 9)] == [5, 8, 8, 11]


@pytest.mark.full
def test_the_memory_of_results_that_a_client_left_returns_to_the_system() -> None:
    with (
        dask.config.set(UNSPILLED),
        dbfs.connect(n_workers=1, backend="cpu", dashboard_address=None, memory_limit=LIMIT) as client,
    ):

        def memory() -> int:
            return next(iter(client.run(resident_bytes).values()))

        # Under a nanny the heap holds labels below 128 KiB; larger ones return to the system by themselves.
        shared = dbfs.load("star:n=30000", client=client, name="shared")
        # Results of a client that stays lie between those of one that leaves, also at the end of the heap.
        kept = []
        with distributed.Client(client.scheduler.address, set_as_default=False) as other:
            graph, held = dbfs.open("shared", client=other), []
            with pytest.raises(NoRoomForLabelsError, match="publish"):
                while True:
                    held += graph.bfs_many(range(100))
                    kept.append(shared.bfs(0))
            full = memory()
            # The fullest that dbfs makes a worker is less than what pauses the worker.
            assert 0.8 * LIMIT < full < 0.95 * LIMIT
            assert client.run(status) == {graph.gang.addresses[0]: "running"}
            del held
        assert eventually(memory, lambda now: now < full - (200 << 20)) < 0.6 * LIMIT
        with dbfs.load("path:n=1000000", client=client) as another:
            assert another.bfs(0).depth == 999_999


def status(dask_worker: distributed.Worker) -> str:
    """Run on a worker: return its state."""
    return str(dask_worker.status.name)
