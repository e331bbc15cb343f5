"""Direction switching looks at few edges where the graph is shallow, and never at many more than top-down does."""

from dataclasses import replace

import distributed
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbfs
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.jit import kernel, void
from dbfs_workers.base.spec import TraversalSpec, require_direction
from dbfs_workers.search.direction import ALPHA, bottom_up_pays, bottom_up_pays_batch, expected_search_share
from dbfs_workers.search.levels.record_types import STATES
from dbfs_workers.search.levels.state import State, bound_frontier, choose_direction


@kernel(void, STATES)
def turn_in_kernel(states):  # type: ignore[no-untyped-def]
    choose_direction(states[0])


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("spec", "most"),
    [
        # Shallow graphs: most edges are skipped.
        ("kronecker:scale=12", 0.2),
        ("uniform:n=20000,m=640000", 0.3),
        # Deep graphs: rows far from the frontier would look through their edges in vain at every level.
        ("corpus:nlpkkt160,scale-down=256", 1.0),
        ("corpus:audikw1,scale-down=256", 1.0),
        ("corpus:cage15,scale-down=256", 1.0),
        # The first community of these looks shallow. One bottom-up level in vain shows that the rest is not.
        ("corpus:kkt_power,scale-down=256", 1.8),
        ("corpus:coPapersCiteseer,scale-down=256", 1.8),
    ],
)
def test_edges_looked_at(client: distributed.Client, spec: str, most: float, ranks: int) -> None:
    with dbfs.load(spec, client=client, ranks=ranks) as graph:
        results = [graph.bfs(source) for source in graph.sample_sources(3)]
    looked_at = sum(report.edges for result in results for report in result.reports)
    assert looked_at <= most * sum(result.edges for result in results)


def after_a_level(
    frontier_edges: int, expanded_edges: int, others: int, n: int, share: float = 1 / ALPHA, *, exact: bool = True
) -> State:
    """Return the state after a level: the edges of its frontier and of the next one, and those not reached yet."""
    state = State.of(TraversalSpec("run", (0,), False, "cpu"), n, in_edges=True)
    state.exact, state.search_share, state.level = exact, share, 1
    state.frontier_edges, state.expanded_edges = frontier_edges, expanded_edges
    state.unexplored_edges = others + frontier_edges
    return state


def test_a_level_goes_bottom_up_only_where_the_frontier_reaches_the_rest() -> None:
    # The frontier tripled, so that the next one is expected to have 3,000 edges.
    assert bottom_up_pays(after_a_level(1000, 333, 3900, 100))
    assert not bottom_up_pays(after_a_level(1000, 333, 4100, 100))
    # A scan of all rows is not free.
    assert not bottom_up_pays(after_a_level(1000, 1, 3900, 100_000))
    # A frontier before without edges, that of a source with none beside others, is as one with an edge.
    assert bottom_up_pays(after_a_level(100, 0, 3900, 100)) == bottom_up_pays(after_a_level(100, 1, 3900, 100))


def test_only_bottom_up_levels_need_in_edges() -> None:
    spec = TraversalSpec("run", (0,), False, "cpu")
    for chosen in ("auto", "top-down"):
        require_direction(replace(spec, direction=chosen), in_edges=False)
    require_direction(replace(spec, direction="bottom-up"), in_edges=True)
    with pytest.raises(InvalidOptionError, match="bottom-up levels of a directed graph need its in-edges"):
        require_direction(replace(spec, direction="bottom-up"), in_edges=False)


def test_the_share_of_the_last_bottom_up_level_is_expected_of_the_next() -> None:
    assert expected_search_share() == expected_search_share(5, 10_000) == expected_search_share(0, 0) == 1 / ALPHA
    assert expected_search_share(900, 1000) == 0.9
    assert bottom_up_pays(after_a_level(1000, 1, 2000, 10))
    assert not bottom_up_pays(after_a_level(1000, 1, 2000, 10, expected_search_share(900, 1000)))


def test_a_batch_goes_bottom_up_where_a_third_of_all_edges_is_in_the_frontier() -> None:
    # The frontier does not grow, and what is unexplored does not count.
    state = after_a_level(1100, 1100, 0, 160)
    assert bottom_up_pays_batch(state, 3240, 0)
    assert not bottom_up_pays_batch(state, 3300, 0)
    state.bottom_up = True
    for searched, most in ((100, 110), (1000, 1010), (3000, 1010)):
        for frontier, pays in ((most, False), (most + 1, True)):
            state.frontier_edges = frontier
            assert bottom_up_pays_batch(state, 3000, searched) == pays, (searched, frontier)


@pytest.mark.parametrize("share", [1 / ALPHA, 0.5, 1.0])
def test_where_it_may_not_pay_it_does_not(share: float) -> None:
    n, max_degree = 1000, 8
    for remaining in (0, 10, 500, 8000):
        for found in (0, 1, 10, 100, 1000):
            bounded = after_a_level(0, 1, remaining, n, share)
            bounded.max_degree = max_degree
            bound_frontier(bounded, found)
            choose_direction(bounded)
            for edges in range(0, min(found * max_degree, remaining) + 1, 7):
                if bottom_up_pays(after_a_level(edges, 1, remaining - edges, n, share)):
                    assert bounded.measuring


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 2**33), st.floats(0.05, 1e3))
def test_kernels_choose_as_python_does(edges: int, before: int, others: int, n: int, share: float) -> None:
    for exact in (True, False):
        state, copy = (after_a_level(edges, before, others, n, share, exact=exact) for _ in range(2))
        choose_direction(state)
        turn_in_kernel(copy.record)
        assert state.record.tobytes() == copy.record.tobytes()
