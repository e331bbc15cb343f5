"""Parity: every engine gives SciPy's answers.

The axes: graph x directed x ranks x way, where a way is an engine, how it exchanges (or runs a level), and the
direction of its levels. ``test_gpu`` has the rows of the CUDA backend.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import dask
import distributed
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.graph.graph import Graph
from tests.support import oracle
from tests.support.graphs import GRAPHS, Arrays, random

RANKS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Way:
    """How to traverse: backend, exchange and order are chosen at load, the rest at the run."""

    engine: str
    exchange: str = "auto"
    backend: str = "auto"
    direction: str = "auto"
    order: str = "given"
    settings: dict[str, int] = field(default_factory=dict)


WAYS = {
    "phases": Way("taskgraph", settings={"fuse-below": 0, "levels-per-submission": 1}),
    "fused": Way("taskgraph", settings={"fuse-below": 4096, "levels-per-submission": 1}),
    "windows": Way("taskgraph", settings={"fuse-below": 4096, "levels-per-submission": 4}),
    "mixed": Way("taskgraph", settings={"fuse-below": 4, "levels-per-submission": 2}),
    "shared memory": Way("resident", "shared_memory"),
    "shared memory, top-down": Way("resident", "shared_memory", direction="top-down"),
    "shared memory, bottom-up": Way("resident", "shared_memory", direction="bottom-up"),
    "shared memory, degree order": Way("resident", "shared_memory", order="degree"),
    "comm": Way("resident", "comm"),
    "comm, top-down": Way("resident", "comm", direction="top-down"),
    "comm, bottom-up": Way("resident", "comm", direction="bottom-up"),
    "comm, degree order": Way("resident", "comm", direction="bottom-up", order="degree"),
}


@contextmanager
def loaded(
    client: distributed.Client,
    arrays: Arrays,
    way: Way,
    *,
    directed: bool,
    ranks: int,
    in_edges: bool = True,
) -> Iterator[Graph]:
    n, src, dst = arrays
    wanted = {f"dbfs.taskgraph.{key}": value for key, value in way.settings.items()} | {"dbfs.exchange": way.exchange}
    edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
    with (
        dask.config.set(wanted),
        dbfs.load(
            edges,
            client=client,
            ranks=ranks,
            in_edges=directed and in_edges,
            order=way.order,
            backend=way.backend,
        ) as graph,
    ):
        assert way.engine == "taskgraph" or graph.exchange == way.exchange
        assert way.backend in ("auto", graph.backend)
        yield graph


def check(
    graph: Graph, arrays: Arrays, way: Way, sources: list[int], max_depth: int | None = None, validate: bool = True
) -> None:
    n, src, dst = arrays
    matrix = oracle.adjacency(n, src, dst, directed=graph.directed)
    result = graph.bfs(
        sources, predecessors=True, max_depth=max_depth, engine=way.engine, direction=way.direction, validate=validate
    )
    assert result.engine == way.engine
    expected = oracle.distances(matrix, sources, max_depth)
    np.testing.assert_array_equal(result.distances(), expected)
    oracle.assert_valid_parents(matrix, result.distances(), result.predecessors(), sources)
    assert result.reached == (expected >= 0).sum()
    assert result.depth == expected.max()
    levels = result.levels
    assert levels["discovered"].sum() == result.reached - len(set(sources))
    assert (levels["edges"] - levels["filtered"] - levels["culled"] == levels["discovered"]).all()
    degrees = np.bincount(src, minlength=n) + (0 if graph.directed else np.bincount(dst[src != dst], minlength=n))
    assert result.edges == degrees[expected >= 0].sum()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(client: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    with loaded(client, arrays, WAYS["shared memory"], directed=directed, ranks=ranks) as graph:
        for way in (WAYS["shared memory"], WAYS["shared memory, bottom-up"], WAYS["windows"]):
            check(graph, arrays, way, [0])


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_ways(client: distributed.Client, way: str, directed: bool, ranks: int) -> None:
    for name in ("cycle", "hub", "sparse random", "dense random"):
        arrays = GRAPHS[name]()
        with loaded(client, arrays, WAYS[way], directed=directed, ranks=ranks) as graph:
            check(graph, arrays, WAYS[way], [5])
            check(graph, arrays, WAYS[way], [5, 30, 5], max_depth=2)


@pytest.mark.parametrize("way", ["windows", "shared memory", "shared memory, bottom-up", "comm"])
@pytest.mark.parametrize("max_depth", [0, 1, 7, 68, 69, 1000])
def test_max_depth(client: distributed.Client, max_depth: int, way: str) -> None:
    arrays = GRAPHS["path"]()
    with loaded(client, arrays, WAYS[way], directed=False, ranks=3) as graph:
        check(graph, arrays, WAYS[way], [0], max_depth)


@pytest.mark.parametrize("way", ["phases", "windows", "shared memory", "shared memory, bottom-up", "comm"])
@pytest.mark.parametrize("targets", [[0], [3], [40, 7], [7, 7, 69]])
def test_targets_end_a_run_at_the_level_that_reaches_the_last(
    client: distributed.Client, targets: list[int], way: str
) -> None:
    arrays = GRAPHS["path"]()
    chosen = WAYS[way]
    with loaded(client, arrays, chosen, directed=False, ranks=2) as graph:
        result = graph.bfs(0, targets=targets, engine=chosen.engine, direction=chosen.direction, validate=True)
        farthest = max(targets)
        expected = np.where(np.arange(70) <= farthest, np.arange(70), -1)
        np.testing.assert_array_equal(result.distances(), expected)
        assert result.reached == farthest + 1


@pytest.mark.parametrize("way", ["windows", "shared memory", "comm"])
def test_targets_out_of_reach(client: distributed.Client, way: str) -> None:
    arrays = GRAPHS["two components"]()
    with loaded(client, arrays, WAYS[way], directed=False, ranks=2) as graph:
        result = graph.bfs(0, targets=[5, 40], engine=WAYS[way].engine, validate=True)
        assert (result.reached, result.depth) == (32, 31)


@pytest.mark.parametrize("way", ["windows", "shared memory", "comm"])
def test_many_traversals(client: distributed.Client, way: str) -> None:
    arrays = GRAPHS["sparse random"]()
    matrix = oracle.adjacency(*arrays, directed=False)
    with loaded(client, arrays, WAYS[way], directed=False, ranks=3) as graph:
        sources = [7, 499, 7, 123]
        results = graph.bfs_many(sources, predecessors=True, engine=WAYS[way].engine)
        for source, result in zip(sources, results, strict=True):
            assert result.sources == (source,)
            expected = oracle.distances(matrix, [source])
            np.testing.assert_array_equal(result.distances(), expected)
            oracle.assert_valid_parents(matrix, expected, result.predecessors(), [source])
        assert graph.bfs_many([]) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs(client: distributed.Client, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 80), "n")
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=200), "edges")
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    way = WAYS[data.draw(st.sampled_from(sorted(WAYS)), "way")]
    directed, ranks = data.draw(st.booleans(), "directed"), data.draw(st.sampled_from(RANKS), "ranks")
    with loaded(client, (n, src, dst), way, directed=directed, ranks=ranks) as graph:
        check(graph, (n, src, dst), way, [data.draw(st.integers(0, n - 1), "source")])


def _any_graph(generator: np.random.Generator) -> Arrays:
    """Few or many edges; perhaps vertices whose out-degrees are about the lengths that GPUs cut lists to; tails of
    vertices with edges to them only, from them only, or none.
    """
    n = int(generator.choice([2, 33, 500, 3000, 20_000]))
    _, src, dst = random(n, n * int(generator.choice([1, 3, 15])), int(generator.integers(2**32)))
    if n >= 3000 and generator.random() < 0.5:
        degrees = np.array([256, 257, 512, 513, 1025, 2999])
        src = np.append(src, np.repeat(generator.integers(0, n // 2, degrees.size), degrees))
        dst = np.append(dst, np.concatenate([generator.permutation(n)[:degree] for degree in degrees]))
    src, dst = (ends // int(generator.choice([1, 1, 2])) for ends in (src, dst))
    return n, src, dst


def assert_options_agree(client: distributed.Client, way: Way, ranks: int, seed: int) -> None:
    """A graph of any kind, loaded in any way, and runs of any options after each other, against SciPy."""
    generator = np.random.default_rng(seed)
    directed, in_edges = bool(generator.random() < 0.6), bool(generator.random() < 0.5)
    arrays = n, src, dst = _any_graph(generator)
    way = replace(way, order=str(generator.choice(["given", "degree"])))
    matrix = oracle.adjacency(n, src, dst, directed=directed)
    # A loop is one directed edge.
    ends = src if directed else np.concatenate([src, dst[src != dst]])
    degrees = np.bincount(ends, minlength=n)
    directions = ["auto", "top-down"] + ["bottom-up"] * (not directed or in_edges)
    with loaded(client, arrays, way, directed=directed, ranks=ranks, in_edges=in_edges) as graph:
        for _ in range(8):
            sources = generator.integers(0, n, generator.choice([1, 1, 4, max(1, n // 10)])).tolist()
            targets = generator.integers(0, n, generator.choice([0, 0, 1, 3])).tolist()
            max_depth = [None, None, 0, 1, 3][generator.integers(5)]
            predecessors, direction = bool(generator.random() < 0.5), str(generator.choice(directions))
            expected = oracle.distances(matrix, sources, max_depth)
            if targets and (expected[targets] >= 0).all():
                expected[expected > expected[targets].max()] = -1
            found = graph.bfs(
                sources,
                targets=targets,
                max_depth=max_depth,
                predecessors=predecessors,
                direction=direction,
                engine=way.engine,
                validate=True,
            )
            np.testing.assert_array_equal(found.distances(), expected)
            assert (found.reached, found.depth) == ((expected >= 0).sum(), expected.max())
            at_each = np.bincount(expected[expected > 0])[1:]
            np.testing.assert_array_equal(found.levels["discovered"].tolist()[: found.depth], at_each)
            # Every level expands what is at its distance, and a top-down one all of its edges.
            levels = found.levels
            assert found.depth <= len(levels) <= found.depth + 1
            assert len(levels) == found.depth + 1 or max_depth is not None or targets
            assert levels["frontier"].tolist() == [(expected == level).sum() for level in levels.index]
            edges = [degrees[expected == level].sum() for level in levels.index]
            top_down = levels["direction"] == "top-down"
            np.testing.assert_array_equal(levels["edges"][top_down], np.array(edges)[top_down])
            if predecessors and n <= 3000:
                oracle.assert_valid_parents(matrix, expected, found.predecessors(), sources)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ranks", RANKS)
def test_options_in_any_combination(client: distributed.Client, ranks: int, seed: int) -> None:
    assert_options_agree(client, WAYS["shared memory"], ranks, 10 * seed + ranks)
