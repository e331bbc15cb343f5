"""Ways to traverse a graph, and the checks of their answers against SciPy. ``test_parity`` describes the axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import dask
import distributed
import numpy as np

import dbfs
from dbfs.assembly import Graph
from tests.support import oracle
from tests.support.graphs import Arrays, random

RANKS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Way:
    """A way to traverse: backend, exchange, order and layout of the load, engine and direction of the run.

    ``settings`` configure the taskgraph engine.
    """

    engine: str
    exchange: str = "auto"
    backend: str = "auto"
    direction: str = "auto"
    order: str = "given"
    layout: str = "1d"
    settings: dict[str, int] = field(default_factory=dict)


WAYS = {
    "tasks": Way("taskgraph"),
    "tasks, top-down": Way("taskgraph", direction="top-down"),
    "tasks, bottom-up": Way("taskgraph", direction="bottom-up"),
    "tasks, degree order": Way("taskgraph", order="degree"),
    "shared memory": Way("resident", "shared_memory"),
    "shared memory, top-down": Way("resident", "shared_memory", direction="top-down"),
    "shared memory, bottom-up": Way("resident", "shared_memory", direction="bottom-up"),
    "shared memory, degree order": Way("resident", "shared_memory", order="degree"),
    "2-D": Way("resident", "shared_memory", layout="2d"),
    "2-D, top-down": Way("resident", "shared_memory", layout="2d", direction="top-down"),
    "2-D, bottom-up": Way("resident", "shared_memory", layout="2d", direction="bottom-up"),
    "2-D, degree order": Way("resident", "shared_memory", layout="2d", order="degree"),
    "tcp": Way("resident", "tcp"),
    "tcp, top-down": Way("resident", "tcp", direction="top-down"),
    "tcp, bottom-up": Way("resident", "tcp", direction="bottom-up"),
    "tcp, degree order": Way("resident", "tcp", direction="bottom-up", order="degree"),
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
    """Load a graph for a way to traverse it; check that the graph has the way's exchange and backend."""
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
            layout=way.layout,
            backend=way.backend,
        ) as graph,
    ):
        assert way.engine == "taskgraph" or way.exchange in ("auto", graph.exchange)
        assert way.backend in ("auto", graph.backend)
        yield graph


def check(
    graph: Graph, arrays: Arrays, way: Way, sources: list[int], max_depth: int | None = None, validate: bool = True
) -> None:
    """Run one traversal; compare labels, counts and levels with SciPy's."""
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


def _any_graph(generator: np.random.Generator) -> Arrays:
    """Random graph with few or many edges. It may have vertices whose out-degrees are near the lengths at which GPUs
    cut lists, and tails of vertices with in-edges only, out-edges only, or none.
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
    """Load a random graph with random options; run traversals with random options, and compare each with SciPy's."""
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
            # A level expands the vertices at its distance; a top-down level inspects all their edges.
            levels = found.levels
            assert found.depth <= len(levels) <= found.depth + 1
            assert len(levels) == found.depth + 1 or max_depth is not None or targets
            assert levels["frontier"].tolist() == [(expected == level).sum() for level in levels.index]
            edges = [degrees[expected == level].sum() for level in levels.index]
            top_down = levels["direction"] == "top-down"
            np.testing.assert_array_equal(levels["edges"][top_down], np.array(edges)[top_down])
            if predecessors and n <= 3000:
                oracle.assert_valid_parents(matrix, expected, found.predecessors(), sources)
