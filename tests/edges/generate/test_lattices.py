"""Lattices and the path against Kronecker sums of paths in SciPy."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import grid2d, grid3d, path
from dbfs.edges.generate.lattice import lattice
from dbfs.errors import InvalidOptionTypeError


def adjacency(edges: EdgeList) -> sp.coo_array:
    """The matrix of the edges as listed, duplicates summed."""
    sources, targets = zip(*(piece.read() for piece in edges.cut(7)), strict=True)
    ends = np.concatenate(sources), np.concatenate(targets)
    assert ends[0].dtype == ends[1].dtype == np.int64
    assert ends[0].size == edges.m
    return sp.coo_array((np.ones(ends[0].size), ends), shape=(edges.n, edges.n))


def product_of_paths(side: int, axes: int) -> sp.coo_array:
    """Upper half of the lattice's adjacency matrix."""
    one_axis = sp.diags_array(np.ones(side - 1), offsets=1, shape=(side, side))
    return reduce(lambda lattice, axis: sp.kronsum(lattice, axis), [one_axis] * axes)


@pytest.mark.parametrize("side", [1, 2, 3, 10])
@pytest.mark.parametrize(("lattice", "axes"), [(grid2d, 2), (grid3d, 3)])
def test_a_lattice_is_a_product_of_paths(lattice, axes: int, side: int) -> None:
    edges = lattice(side)
    assert (edges.n, edges.directed, edges.mirrored) == (side**axes, False, False)
    assert edges.m == axes * side ** (axes - 1) * (side - 1)
    np.testing.assert_array_equal(adjacency(edges).toarray(), product_of_paths(side, axes).toarray())


@pytest.mark.parametrize("side", [1, 2, 5])
@pytest.mark.parametrize("grid", [grid2d, grid3d])
def test_self_loops_are_the_diagonal(grid, side: int) -> None:
    """One entry a vertex, so that the symmetrised pattern is that of the Poisson matrix."""
    edges, without = grid(side, loops=True), grid(side)
    assert edges.m == without.m + edges.n
    expected = np.eye(edges.n) + adjacency(without).toarray()
    np.testing.assert_array_equal(adjacency(edges).toarray(), expected)
    with pytest.raises(InvalidOptionTypeError, match="^loops must be True or False, not 1$"):
        grid(side, loops=1)


@pytest.mark.parametrize("sides", [(4,), (2, 3), (3, 1, 4), (2, 2, 3, 2, 2)])
def test_unequal_sides(sides: tuple[int, ...]) -> None:
    axes = [sp.diags_array(np.ones(side - 1), offsets=1, shape=(side, side)) for side in sides]
    expected = reduce(lambda lower, axis: sp.kronsum(lower, axis), axes)
    np.testing.assert_array_equal(adjacency(lattice("", sides)).toarray(), expected.toarray())


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_path(n: int) -> None:
    edges = path(n)
    assert (edges.n, edges.m, edges.directed, edges.mirrored) == (n, n - 1, False, False)
    np.testing.assert_array_equal(adjacency(edges).toarray(), np.eye(n, k=1))


@pytest.mark.parametrize("edges", [grid2d(2**20), grid3d(10321), path(2**40)], ids=lambda edges: edges.name)
def test_the_last_edges_of_the_largest_graphs(edges: EdgeList) -> None:
    """The largest graphs' last pieces, whose ids need 40 bits."""
    last = edges.cut(2**34)[-1]
    assert last.stop >= edges.n - 1
    tail = replace(last, start=last.stop - 2)
    sources, targets = tail.read()
    assert targets[-1] == edges.n - 1
    assert (sources < targets).all()
