"""Finite-element stencils, the KKT pattern and meshes against constructions from their definitions."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.mesh import mesh
from dbfs.edges.generate.stencil import kkt, stencil27


def adjacency(edges: EdgeList) -> np.ndarray:
    """The symmetric matrix of the edges; an entry above 1 would be an edge listed twice."""
    sources, targets = zip(*(piece.read() for piece in edges.cut(50)), strict=True)
    ends = np.concatenate(sources), np.concatenate(targets)
    assert ends[0].size == edges.m
    matrix = sp.coo_array((np.ones(edges.m), ends), shape=(edges.n, edges.n)).toarray()
    return matrix + matrix.T


def band(side: int) -> np.ndarray:
    """Ones on three diagonals: the neighbourhood along one axis."""
    return sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side)).toarray()


@pytest.mark.parametrize("unknowns", [1, 2, 3])
@pytest.mark.parametrize("sides", [(1, 1, 1), (2, 1, 3), (3, 3, 3), (4, 2, 3)])
@pytest.mark.parametrize("first", [0, 5])
def test_stencil(sides: tuple[int, int, int], unknowns: int, first: int) -> None:
    around = np.kron(np.kron(band(sides[2]), band(sides[1])), band(sides[0]))
    expected = np.kron(around, np.ones((unknowns, unknowns)))
    expected = np.roll(expected, -first * unknowns, axis=(0, 1))
    np.testing.assert_array_equal(adjacency(stencil27("", sides, unknowns, first)), expected - np.eye(len(expected)))


@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_kkt(side: int) -> None:
    edges = kkt("", side)
    nodes = list(product(range(side), repeat=3))
    assert edges.n == 2 * side**3 + 6 * side**2
    assert 2 * edges.m == 2 * (3 * side - 2) ** 3 + 12 * (3 * side - 2) ** 2
    found = adjacency(edges)
    assert found.max() == 1
    states, multipliers = slice(0, side**3), slice(edges.n - side**3, edges.n)
    np.testing.assert_array_equal(found[states, multipliers], np.kron(np.kron(band(side), band(side)), band(side)))
    # A face's block joins its controls to the layer of multipliers that has the face's coordinate.
    controls = found[side**3 : -(side**3), multipliers].reshape(6, side**2, side**3)
    for face, (axis, layer) in enumerate(product(range(3), (0, side - 1))):
        # Ids run with x fastest, so the axis that counts 0 is the last of a node's coordinates here.
        on_layer = np.array([node[2 - axis] == layer for node in nodes])
        assert not controls[face][:, ~on_layer].any()
        block = controls[face][:, on_layer]
        order = np.lexsort(np.array([[n[2 - (axis + 1) % 3], n[2 - (axis + 2) % 3]] for n in nodes])[on_layer].T)
        np.testing.assert_array_equal(block[:, order], np.kron(band(side), band(side)))
    # Nothing else: no edges among states and controls, none among multipliers.
    assert found[: -(side**3), : -(side**3)].sum() == found[multipliers, multipliers].sum() == 0


def triangulation_dual(rows: int, columns: int, rises: np.ndarray) -> set[tuple[int, int]]:
    """Pairs of triangles that share a side, from the triangles' corners."""
    sides: dict[frozenset[tuple[int, int]], list[int]] = {}
    for square, up in enumerate(rises):
        row, column = divmod(square, columns)
        low_left, low_right = (column, row), (column + 1, row)
        up_left, up_right = (column, row + 1), (column + 1, row + 1)
        lower = (low_left, low_right, up_right if up else up_left)
        upper = (up_left, up_right, low_left if up else low_right)
        for triangle, (a, b, c) in ((2 * square, lower), (2 * square + 1, upper)):
            for side in ((a, b), (b, c), (c, a)):
                sides.setdefault(frozenset(side), []).append(triangle)
    assert rows * columns == len(rises)
    return {(min(pair), max(pair)) for pair in sides.values() if len(pair) == 2}


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (5, 1), (6, 7)])
def test_mesh_is_the_dual_of_a_triangulation(rows: int, columns: int) -> None:
    edges = mesh("", rows, columns)
    rises = edges.cut(2**40)[0]._rises(np, np.arange(rows * columns))
    assert rows * columns < 40 or 0.3 < rises.mean() < 0.7
    found = {(int(v), int(w)) for v, w in zip(*np.triu(adjacency(edges)).nonzero(), strict=True)}
    assert found == triangulation_dual(rows, columns, rises)


@pytest.mark.parametrize("streets", [(1, 0, 0), (0, 2, 0), (0, 0, 1), (5, 5, 4)])
def test_streets_subdivide_the_dual(streets: tuple[int, int, int]) -> None:
    """Cutting the dead ends off and joining the streets' ends gives the dual again."""
    rows, columns = 4, 5
    edges = mesh("", rows, columns, streets)
    assert edges.n == rows * columns * (2 + sum(streets))
    matrix = adjacency(edges)
    assert matrix.max() == 1
    assert connected_components(matrix)[0] == 1
    square, local = np.divmod(np.arange(edges.n), 2 + sum(streets))
    junctions = np.flatnonzero(local < 2)
    assert (matrix.sum(axis=1)[local >= 2] <= 2).all()
    found = set()
    for junction in junctions:
        for neighbour in np.flatnonzero(matrix[junction]):
            before, at = junction, neighbour
            while local[at] >= 2 and (onward := [v for v in np.flatnonzero(matrix[at]) if v != before]):
                before, at = at, onward[0]
            if local[at] < 2:
                ends = [2 * square[v] + local[v] for v in (junction, at)]
                found.add((int(min(ends)), int(max(ends))))
    rises = edges.cut(2**40)[0]._rises(np, np.arange(rows * columns))
    assert found == triangulation_dual(rows, columns, rises)
