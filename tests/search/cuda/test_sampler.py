"""The sampler of a GPU's memory, with made-up readings."""

import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from dbfs_workers.base.errors import DeadlineExceededError, DeviceFailedError, StaleRunError
from dbfs_workers.search.cuda import sampler
from dbfs_workers.search.cuda.sampler import Sampler


class Memory:
    """Made-up memory: the bytes in use, and the number of readings."""

    def __init__(self) -> None:
        self.now = 100
        self.looks = 0
        self.fails = False
        self.takes = 0.0

    def read(self) -> int:
        self.looks += 1
        time.sleep(self.takes)
        if self.fails:
            raise OSError("it fell off the bus")
        return self.now

    def stay(self, nbytes: int) -> None:
        """Have ``nbytes`` in use until a reading saw them."""
        self.now = nbytes
        # The first reading may have begun before the change.
        until(self, self.looks + 2)


def until(memory: Memory, looks: int) -> None:
    end = time.monotonic() + 30
    while memory.looks < looks:
        assert time.monotonic() < end
        time.sleep(1e-4)


def sampling() -> int:
    return sum(thread.name == "dbfs-sampler" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def leaves_no_thread() -> Iterator[None]:
    interval = sys.getswitchinterval()
    yield
    assert sampling() == 0
    assert sys.getswitchinterval() == interval


def test_a_peak_that_is_over_is_remembered() -> None:
    memory = Memory()
    seen = Sampler(memory.read)
    assert sys.getswitchinterval() <= sampler.SWITCH_INTERVAL * 1.01
    for nbytes in (300, 900, 50):
        memory.stay(nbytes)
    assert seen.stop().nbytes == 900


def test_the_first_and_the_last_reading_count() -> None:
    for first, last in ((7, 3), (3, 7)):
        readings = [first, last]
        made = Sampler(lambda readings=readings: readings.pop(0) if readings else 0)  # type: ignore[misc]
        assert made.stop().nbytes == 7


def test_the_gap_is_the_longest_time_between_readings() -> None:
    memory = Memory()
    seen = Sampler(memory.read)
    until(memory, 3)
    memory.takes = 0.2
    until(memory, memory.looks + 2)
    memory.takes = 0.0
    assert 0.2 <= seen.stop().gap < 30


def test_a_sampler_ends_at_its_deadline() -> None:
    memory = Memory()
    seen = Sampler(memory.read, deadline=0.05)
    seen._thread.join(30)
    assert sampling() == 0
    with pytest.raises(
        DeadlineExceededError, match=r"the memory sampler was not stopped within 0\.05 s; its client may be lost"
    ):
        seen.stop()


def test_stop_raises_the_error_of_a_reading() -> None:
    memory = Memory()
    seen = Sampler(memory.read)
    memory.fails = True
    seen._thread.join(30)
    with pytest.raises(OSError, match="it fell off the bus"):
        seen.stop()
    with pytest.raises(OSError, match="it fell off the bus"):
        Sampler(memory.read)


def test_a_worker_has_one_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, worker = Memory(), SimpleNamespace()
    monkeypatch.setattr(sampler, "used", memory.read)
    with pytest.raises(StaleRunError, match="this worker has no memory sampler"):
        sampler.stop(worker)
    memory.now = 1000
    sampler.start(worker)
    memory.now = 10
    # A lost client left the sampler before this one; its peak does not count.
    sampler.start(worker)
    assert sampling() == 1
    assert sampler.stop(worker).nbytes == 10
    with pytest.raises(StaleRunError, match="this worker has no memory sampler"):
        sampler.stop(worker)


def test_a_sampler_that_failed_does_not_block_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, worker = Memory(), SimpleNamespace()
    worker.dbfs_sampler = Sampler(memory.read, deadline=0.0)
    worker.dbfs_sampler._thread.join(30)
    monkeypatch.setattr(sampler, "used", memory.read)
    sampler.start(worker)
    assert sampler.stop(worker).nbytes == 100


def test_used_is_what_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    class CudaRuntimeError(RuntimeError):
        pass

    class OutOfMemoryError(MemoryError):
        pass

    def info() -> tuple[int, int]:
        if broken:
            raise CudaRuntimeError("cudaErrorIllegalAddress")
        return 30, 100

    freed: list[bool] = []
    pool = SimpleNamespace(free_all_blocks=lambda: freed.append(True))
    runtime = SimpleNamespace(CUDARuntimeError=CudaRuntimeError, memGetInfo=info)
    driver = SimpleNamespace(CUDADriverError=CudaRuntimeError)
    cuda = SimpleNamespace(runtime=runtime, driver=driver, memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError))
    cupy = SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    broken = False
    assert (sampler.used(), freed) == (70, [])
    assert (sampler.used_after_release(), freed) == (70, [True])
    broken = True
    with pytest.raises(DeviceFailedError, match="reading a GPU's memory in use: its GPU failed: cudaErrorIllegal"):
        sampler.used()
