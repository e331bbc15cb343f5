"""Several threads share the work of a rank of a 2-D partition: each piece is done once, and labels are SciPy's."""

from collections.abc import Iterator

import numpy as np
import pytest

from dbfs_workers.base.team import Team
from dbfs_workers.features.grid import team as grid_team
from dbfs_workers.features.grid.kernels.team_tasks import TASKS
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.search import backends
from dbfs_workers.search.cpu import team_calls as cpu_team_calls
from dbfs_workers.search.partition.labels import LabelPool, RankLabels
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs, grids
from tests.support.answers import assert_scipys, every_spec


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """Have the threads share all levels, however small; return the kinds of the tasks, as they come."""
    for size in ("LEAST_ROWS", "LEAST_EDGES", "LEAST_ENTRIES"):
        monkeypatch.setattr(cpu_team_calls, size, 1)
    seen: list[type] = []
    original = cpu_team_calls.run
    monkeypatch.setattr(cpu_team_calls, "run", lambda team, task: seen.append(type(task)) or original(team, task))
    return seen


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    team = Team(3, TASKS)
    yield team
    team.close()


@pytest.mark.matrix
@pytest.mark.parametrize("p", [1, 2, 4, 6])
@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("name", ["hub", "dense random", "isolated vertices", "larger random"])
def test_labels_are_scipys(kinds: list[type], name: str, directed: bool, threads: int, p: int) -> None:
    """Every direction, with and without predecessors."""
    arrays = graphs.random(5000, 60_000, 7) if name == "larger random" else graphs.GRAPHS[name]()
    n, src, dst = arrays
    # The edges of "hub" start at 0, that of "isolated vertices" at 10.
    stripe, specs = Stripe(n, p), every_spec([0, 10])
    with grids.gang(grids.build(stripe, src, dst, directed=directed), threads=threads) as gang:
        assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=directed)
    assert set(kinds) == set(TASKS.kinds)


def test_every_vertex_is_found_once_where_lists_are_full(team: Team) -> None:
    """A level finds all rows, so that threads find their lists full, and leave rows over."""
    n_local, m = 1 << 15, 1 << 19
    n = 2 * n_local
    sources = np.arange(0, 4096)
    src, dst = np.random.default_rng(5).integers(0, sources.size, m), np.arange(m) % n
    partition = grids.build(Stripe(n, 2), src, dst, directed=True)[0]
    scratch = GridScratch(partition, LabelPool(n_local, 0))
    scratch.team = team
    frontier = (sources[sources % 2 == 0] // 2).astype(np.uint32)
    csr = partition.blocks.out[0]
    expected = np.unique(csr.columns[: csr.row_offsets[frontier[-1] + 1]])
    for _ in range(5):
        scratch.visited[:] = 0
        scratch.found_ends[:] = 0
        scratch.parents[:] = 0
        edges = grid_team.top_down(team, scratch, csr, frontier, (0, 0), scratch.parents)
        assert edges == csr.row_offsets[frontier[-1] + 1]
        lists = [c * n_local + np.sort(scratch.found[c * n_local :][:end]) for c, end in enumerate(scratch.found_ends)]
        np.testing.assert_array_equal(np.concatenate(lists), expected)
        assert all(
            place in csr.columns[csr.row_offsets[parent] : csr.row_offsets[parent + 1]]
            for place, parent in zip(expected[::97], scratch.parents[expected[::97]], strict=True)
        )


def test_every_entry_is_contracted_once(team: Team) -> None:
    n_local, finder = 1 << 16, 1
    rows = np.random.default_rng(3).integers(0, n_local, 1 << 18).astype(np.uint32)
    distinct = np.unique(rows)
    edges = np.random.default_rng(4).integers(0, 2 * n_local, (2, 1 << 17))
    partition = grids.build(Stripe(2 * n_local, 2), *edges, directed=False)[0]
    scratch = GridScratch(partition, LabelPool(n_local, 0))
    scratch.team = team
    for room in (n_local, distinct.size):
        # With as many places as vertices, threads find the list full, and leave entries over.
        labels, queue = RankLabels(np.full(n_local, -1, np.int32), None), np.zeros(room, np.uint32)
        scratch.visited[:] = 0
        scratch.finders[:] = 0
        size, degrees = grid_team.contract(team, scratch, labels, rows, finder, 7, queue)
        assert (size, degrees) == (distinct.size, partition.degrees[distinct].sum())
        np.testing.assert_array_equal(np.sort(queue[:size]), distinct)
        np.testing.assert_array_equal(np.flatnonzero(labels.distances == 7), distinct)
        np.testing.assert_array_equal(np.flatnonzero(scratch.finders == finder), distinct)


def test_small_levels_stay_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_team_calls, "run", lambda _, task: pytest.fail(f"task {task}"))
    n, src, dst = graphs.GRAPHS["dense random"]()
    specs = every_spec([3])
    with grids.gang(grids.build(Stripe(n, 2), src, dst, directed=False), backends.get("cpu"), threads=2) as gang:
        assert_scipys(specs, gang.run(*specs), (n, src, dst), gang.stripe, directed=False)
