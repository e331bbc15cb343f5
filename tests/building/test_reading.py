"""Reads ahead of what takes the edges: in order, by threads, within the limits of the task that reads."""

import threading
import time
from types import SimpleNamespace

import pytest

from dbfs_workers.base.errors import FormatError, RunCancelledError
from dbfs_workers.building import reading
from dbfs_workers.building.reading import read_ahead, require_wanted


@pytest.mark.parametrize("threads", [1, 3, 20])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_items_come_in_order_and_few_are_held(threads: int, count: int) -> None:
    started: list[int] = []

    def read(item: int) -> int:
        started.append(item)
        time.sleep(0.001 * (item % 3))
        return item**2

    for taken, found in enumerate(read_ahead(range(count), read, threads)):
        assert found == taken**2
        # The one yielded and those of the threads.
        assert len(started) <= taken + 1 + threads
    assert sorted(started) == list(range(count))


def test_the_first_error_ends_the_reads() -> None:
    started: list[int] = []

    def read(item: int) -> int:
        started.append(item)
        if item == 2:
            raise FormatError("broken")
        return item

    found = []
    with pytest.raises(FormatError, match="broken"):
        found.extend(read_ahead(range(1000), read, 2))
    assert max(started) < 8
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dbfs-read")]


def test_a_thread_has_the_limits_of_the_task_that_it_reads_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = SimpleNamespace(state=SimpleNamespace(tasks={"mine": SimpleNamespace(state="cancelled")}))
    main = threading.current_thread()

    def task_of_thread() -> tuple[object, str]:
        return (cancelled, "mine") if threading.current_thread() is main else (None, "")

    monkeypatch.setattr(reading, "_task_of_thread", task_of_thread)
    with pytest.raises(RunCancelledError, match="reading was cancelled"):
        list(read_ahead([1], lambda _: require_wanted("reading"), 1))
