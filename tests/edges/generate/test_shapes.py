"""Stars, complete graphs and trees against SciPy and plain Python."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import complete, random_tree, star, tree


def pairs(edges: EdgeList, piece_edges: int = 7) -> list[tuple[int, int]]:
    made = [piece.read() for piece in edges.cut(piece_edges)]
    assert all(ends.dtype == np.int64 for piece in made for ends in piece)
    return [pair for piece in made for pair in zip(*(ends.tolist() for ends in piece), strict=True)]


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_star(n: int) -> None:
    edges = star(n)
    assert (edges.n, edges.m, edges.directed, edges.mirrored) == (n, n - 1, False, False)
    assert pairs(edges) == [(0, v) for v in range(1, n)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 50])
def test_complete(n: int) -> None:
    edges = complete(n)
    assert (edges.n, edges.m, edges.directed, edges.mirrored) == (n, n * (n - 1) // 2, False, False)
    assert sorted(pairs(edges)) == list(combinations(range(n), 2))


def test_largest_complete_graph() -> None:
    """Where the square root that finds an edge's ends has the fewest bits to spare: around the last vertices."""
    edges = complete(2**30)
    piece = edges.cut(2**60)[0]
    for higher in (2**30 - 1, 2**30 - 2, 2**29 + 1, 2**29, 94906267):
        first = higher * (higher - 1) // 2
        sources, targets = replace(piece, start=first - 1, stop=first + 2).read()
        assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == [
            (higher - 2, higher - 1),
            (0, higher),
            (1, higher),
        ]
    sources, targets = replace(piece, start=edges.m - 1).read()
    assert (sources.tolist(), targets.tolist()) == ([2**30 - 2], [2**30 - 1])


@pytest.mark.parametrize("arity", [1, 2, 3, 100])
@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_tree(n: int, arity: int) -> None:
    edges = tree(n, arity)
    assert (edges.n, edges.m, edges.directed, edges.mirrored) == (n, n - 1, False, False)
    # Children are handed out to vertices in turn.
    queue, expected, child = [0], [], 1
    while child < n:
        parent = queue.pop(0)
        for _ in range(min(arity, n - child)):
            expected.append((parent, child))
            queue.append(child)
            child += 1
    assert pairs(edges) == expected


def test_random_trees_are_trees() -> None:
    for seed in range(20):
        edges = random_tree(500, seed)
        parents, children = np.array(pairs(edges)).T
        assert (parents < children).all()
        matrix = sp.coo_array((np.ones(499), (parents, children)), shape=(500, 500))
        assert connected_components(matrix, directed=False)[0] == 1


def test_random_parents_are_uniform() -> None:
    """A uniform parent among v vertices lies at (v - 1) / 2 on average; a quarter lie in each quarter."""
    parents, children = random_tree(200_000).cut(2**40)[0].read()
    place = (parents / children)[1000:]
    np.testing.assert_allclose(np.histogram(place, bins=4, range=(0, 1))[0] / place.size, 0.25, atol=0.005)


@pytest.mark.parametrize("edges", [star(2**40), tree(2**40, 3), random_tree(2**40)], ids=lambda edges: edges.name)
def test_the_last_edges_of_the_largest_graphs(edges: EdgeList) -> None:
    """The largest graphs' last edges, whose ids need 40 bits."""
    last = edges.cut(2**34)[-1]
    sources, targets = replace(last, start=last.stop - 2).read()
    assert targets.tolist() == [2**40 - 2, 2**40 - 1]
    assert ((sources >= 0) & (sources < targets)).all()
