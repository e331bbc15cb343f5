"""The guard of a traversal's phases: Dask may repeat a task or rebuild a state, which must change no label."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.taskgraph import phases, tasks
from dbfs_workers.features.taskgraph import state as task_state
from dbfs_workers.features.taskgraph.bins import Bin
from dbfs_workers.features.taskgraph.state import TraversalState
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.partitions import build

RUN = "a-run"


@pytest.fixture
def state() -> TraversalState:
    """Rank 0 of 2 on the path 0-1-2-3-4-5, from vertex 0."""
    stripe = Stripe(6, 2)
    path = np.arange(6)
    spec = TraversalSpec(RUN, (0,), predecessors=True, backend="cpu")
    return task_state.start(build(stripe, path[:-1], path[1:], directed=False)[0], spec)


def empty_bin(source: int, at: int, run: str = RUN) -> Bin:
    return Bin(run, at, source, 0, np.empty(0, np.uint32), np.empty(0, np.uint32))


def test_a_repeated_phase_is_refused(state: TraversalState) -> None:
    edges = phases.expand(state, RUN, 0)
    with pytest.raises(StaleRunError, match=r"rank 0: expand of level 0 .* expected filter-partition of level 0"):
        phases.expand(state, RUN, 0)
    phases.filter_partition(state, RUN, 0, edges)
    with pytest.raises(StaleRunError, match="filter-partition of level 0"):
        phases.filter_partition(state, RUN, 0, edges)


@pytest.mark.parametrize(("run", "at"), [("another-run", 0), (RUN, 1), (RUN, -1)])
def test_another_run_or_level_is_refused(state: TraversalState, run: str, at: int) -> None:
    before = state.labels.distances.copy()
    with pytest.raises(StaleRunError):
        phases.expand(state, run, at)
    np.testing.assert_array_equal(state.labels.distances, before)


def test_a_phase_that_failed_half_way_ends_the_run(state: TraversalState) -> None:
    edges = phases.expand(state, RUN, 0)
    with pytest.raises(AttributeError):
        phases.filter_partition(state, RUN, 0, None)  # type: ignore[arg-type]
    with pytest.raises(StaleRunError, match="expected no more"):
        phases.filter_partition(state, RUN, 0, edges)


def bins_of_level_0(state: TraversalState) -> list[Bin]:
    own = phases.filter_partition(state, RUN, 0, phases.expand(state, RUN, 0))[0]
    return [own, empty_bin(1, 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda own, peer: [own],
        lambda own, peer: [own, peer, peer],
        lambda own, peer: [own, replace(peer, run_id="another-run")],
        lambda own, peer: [own, replace(peer, level=1)],
        lambda own, peer: [own, replace(peer, target=1)],
        lambda own, peer: [own, own],
    ],
    ids=["missing", "twice", "run", "level", "target", "own twice"],
)
def test_wrong_bins_are_refused(state: TraversalState, wrong) -> None:  # type: ignore[no-untyped-def]
    own, peer = bins_of_level_0(state)
    with pytest.raises(StaleRunError, match="source, target"):
        phases.contract(state, RUN, 0, wrong(own, peer))


def test_a_state_cannot_be_copied(state: TraversalState) -> None:
    with pytest.raises(StaleRunError, match="can't move"):
        pickle.dumps(state)


def test_a_bin_is_taken_once(state: TraversalState) -> None:
    entries = tasks.filter_partition(state, "a-run", 0, phases.expand(state, "a-run", 0))
    made = [tasks.take_bin(state, "a-run", 0, owner, entries) for owner in range(state.partition.stripe.p)]
    assert sum(one.rows.size for one in made) == entries > 0
    with pytest.raises(StaleRunError, match="no bin for rank 0 of level 0"):
        tasks.take_bin(state, "a-run", 0, 0, entries)
