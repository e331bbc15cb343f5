"""Runs of more levels than the ring has records, whose own thread takes none: without a GPU, on the emulated kernel.

There a launch lasts as long as the run. So does a call of CUDA on a GPU that waits for the kernels under way.
"""

import numpy as np
import pytest

from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.search.cuda import attendant, records, resident
from dbfs_workers.search.cuda.run import AHEAD
from dbfs_workers.search.cuda.summary import MOST_BINS
from dbfs_workers.search.members import resident as runner
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner
from tests.support import oracle
from tests.support.cuda_on_cpu import resident as emulated
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gang import PATIENCE, partitions

pytestmark = needs_compiler
CAPACITY = 64


@pytest.fixture(autouse=True)
def small_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated.install(monkeypatch)
    monkeypatch.setattr(runner, "ResidentKernel", resident.ResidentKernel)
    for module in (records, resident):
        monkeypatch.setattr(module, "CAPACITY", CAPACITY)
    monkeypatch.setattr(attendant, "MANY_RECORDS", CAPACITY // 16)


def make(n: int, sources: list[int], *, predecessors: bool) -> None:
    """Traverse a path from one source after another, and check labels and counts."""
    src, dst = np.arange(n - 1), np.arange(1, n)
    matrix = oracle.adjacency(n, src, dst, directed=False)
    (part,) = partitions(n, src, dst, 1, directed=False)
    member = Member(0, "partition", ResidentRunner("graph"), [])
    member.make(part)
    member.connect([member.offer()])
    specs = RunSpec(TraversalSpec("run", (), predecessors=predecessors, backend="cuda"), tuple((s,) for s in sources))
    try:
        reports = list(member.make_burst(part, Burst(1, 1, "client", specs, 0, 0, PATIENCE, (), 0)))
        for index, (source, report) in enumerate(zip(sources, reports, strict=True)):
            expected = oracle.distances(matrix, [source])
            np.testing.assert_array_equal(member.kept["run", index].labels.distances[:n], expected)
            assert (report.levels, report.reached, report.edges) == (1 + expected.max(), n, matrix.nnz)
        assert not resident.ATTENDANT._slots
    finally:
        member.disconnect()
        member.close().result(PATIENCE)


@pytest.mark.parametrize("predecessors", [False, True])
@pytest.mark.parametrize("n", [CAPACITY // 2, CAPACITY, 2 * CAPACITY, 2 * MOST_BINS])
def test_runs_of_few_and_many_levels(n: int, predecessors: bool) -> None:
    # Some runs have few levels, and begin behind one of many, or before.
    sources = [0, n - 1, n // 2, 3, 0, n // 2 - 1, n - 2]
    assert len(sources) > 1 + AHEAD
    make(n, sources, predecessors=predecessors)


def test_an_attendant_takes_no_records_of_runs_that_others_wait_for() -> None:
    slot = records.Slot(emulated.Cupy(), alone=True)
    attendant.ATTENDANT.begin(slot)
    attendant.ATTENDANT.begin(slot)
    attendant.ATTENDANT.end(slot)
    assert slot not in attendant.ATTENDANT._slots
    attendant.ATTENDANT.end(slot)
    slot.host.free()
