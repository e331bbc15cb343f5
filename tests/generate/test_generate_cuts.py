"""Every generator: the edges and their order do not depend on the cut, and pieces travel to workers."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs.edges import EdgeList
from dbfs.generate import GENERATORS, grid2d, grid3d, kronecker, path, uniform

GRAPHS = st.one_of(
    st.builds(kronecker, st.integers(1, 7), st.integers(1, 20), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    st.builds(uniform, st.integers(1, 2**40), st.integers(0, 1000), st.integers(0, 2**64 - 1), st.booleans()),
    st.builds(grid2d, st.integers(1, 20)),
    st.builds(grid3d, st.integers(1, 8)),
    st.builds(path, st.integers(1, 1000)),
)
ONE_OF_EACH = [kronecker(6), uniform(10, 777), grid2d(16), grid3d(9), path(778)]


def read(edges: EdgeList, piece_edges: int) -> np.ndarray:
    return np.concatenate([np.stack(piece.read()) for piece in edges.cut(piece_edges)], axis=1)


def test_every_generator_is_tested() -> None:
    assert [edges.name.partition(":")[0] for edges in ONE_OF_EACH] == [generator.name for generator in GENERATORS]


# No deadline: the first Kronecker graph waits for its kernel.
@settings(max_examples=60, deadline=None)
@given(GRAPHS, st.integers(20, 3000))
def test_any_cut_gives_the_same_edges(edges: EdgeList, piece_edges: int) -> None:
    whole = read(edges, 2**40)
    assert whole.shape == (2, edges.m)
    np.testing.assert_array_equal(read(edges, piece_edges), whole)


@pytest.mark.parametrize("edges", ONE_OF_EACH, ids=lambda edges: edges.name)
def test_single_edges(edges: EdgeList) -> None:
    np.testing.assert_array_equal(read(edges, 1), read(edges, 2**40))


@pytest.mark.parametrize("edges", ONE_OF_EACH, ids=lambda edges: edges.name)
def test_pieces_are_about_equal(edges: EdgeList) -> None:
    sizes = [piece.read()[0].size for piece in edges.cut(100)]
    assert max(sizes) <= 100
    assert min(sizes) >= 50


@pytest.mark.parametrize("edges", [uniform(5, 0), uniform(0, 0), grid2d(1), grid3d(1), path(1)], ids=lambda e: e.name)
def test_no_edges_are_one_empty_piece(edges: EdgeList) -> None:
    (piece,) = edges.cut(10)
    assert [ends.size for ends in piece.read()] == [0, 0]


@pytest.mark.parametrize("edges", ONE_OF_EACH, ids=lambda edges: edges.name)
def test_pickling(edges: EdgeList) -> None:
    assert pickle.loads(pickle.dumps(edges)) == edges
    piece = edges.cut(100)[1]
    copy = pickle.loads(pickle.dumps(piece))
    assert copy == piece
    np.testing.assert_array_equal(np.stack(copy.read()), np.stack(piece.read()))
