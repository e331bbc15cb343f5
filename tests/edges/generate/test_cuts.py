"""Every generator: the edges and their order do not depend on the cut, and pieces travel to workers."""

import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import (
    GENERATORS,
    complete,
    geometric,
    grid2d,
    grid3d,
    kronecker,
    path,
    random_tree,
    rmat,
    star,
    tree,
    uniform,
)
from dbfs.edges.generate.communities import communities, power_law
from dbfs.edges.generate.lattice import lattice
from dbfs.edges.generate.mesh import mesh
from dbfs.edges.generate.stencil import kkt, stencil27
from dbfs_workers.building.pieces import GeneratedPiece
from tests.support.generators import ONE_OF_EACH

SEEDS = st.integers(0, 2**64 - 1)
SIDES = st.tuples(*[st.integers(1, 6)] * 3)
GRAPHS = st.one_of(
    st.builds(kronecker, st.integers(1, 7), st.integers(1, 20), SEEDS, SEEDS),
    st.builds(rmat, st.integers(1, 40), a=st.sampled_from([0, 0.3, 0.62]), seed=SEEDS, m=st.integers(0, 999)),
    st.builds(uniform, st.integers(1, 2**40), st.integers(0, 1000), SEEDS, st.booleans()),
    st.builds(grid2d, st.integers(1, 20), st.booleans()),
    st.builds(grid3d, st.integers(1, 8), st.booleans()),
    st.builds(path, st.integers(1, 1000)),
    st.builds(star, st.integers(1, 1000)),
    st.builds(complete, st.integers(1, 60)),
    st.builds(tree, st.integers(1, 1000), st.integers(1, 1000)),
    st.builds(random_tree, st.integers(1, 1000), SEEDS),
    st.builds(geometric, st.integers(0, 5000), st.floats(0, 0.03), SEEDS),
    st.builds(
        lattice, st.just("lattice"), st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple), st.booleans()
    ),
    st.builds(stencil27, st.just("stencil"), SIDES, st.integers(1, 3)),
    st.builds(kkt, st.just("kkt"), st.integers(1, 6)),
    st.builds(
        mesh, st.just("mesh"), st.integers(1, 12), st.integers(1, 12), st.tuples(*[st.integers(0, 3)] * 3), SEEDS
    ),
    st.builds(
        lambda count, vertices, mean, seed: communities(
            "communities", count, power_law(vertices, mean, 1, 16), directed=False, seed=seed
        ),
        st.integers(1, 9),
        st.integers(20, 90),
        st.floats(1.5, 5),
        SEEDS,
    ),
)
NOT_ARRAY_CODE = ("kronecker", "geometric")


class NotNumPy(ModuleType):
    """NumPy under another name, as a stand-in for CuPy: generators skip what they do for NumPy alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def read(edges: EdgeList, piece_edges: int) -> np.ndarray:
    return np.concatenate([np.stack(piece.read()) for piece in edges.cut(piece_edges)], axis=1)


def test_every_generator_is_tested() -> None:
    assert [edges.name.partition(":")[0] for edges in ONE_OF_EACH] == [generator.name for generator in GENERATORS]


# No deadline: the first Kronecker graph waits for its kernel.
@settings(max_examples=60, deadline=None)
@given(GRAPHS, st.integers(20, 3000))
def test_any_cut_gives_the_same_edges(edges: EdgeList, piece_edges: int) -> None:
    whole = read(edges, 2**40)
    assert edges.m in (None, whole.shape[1])
    assert whole.size == 0 or (whole.min() >= 0 and whole.max() < edges.n)
    np.testing.assert_array_equal(read(edges, piece_edges), whole)


@pytest.mark.parametrize("edges", ONE_OF_EACH[:-1], ids=lambda edges: edges.name)
def test_pieces_of_one_edge_give_the_same_edges(edges: EdgeList) -> None:
    np.testing.assert_array_equal(read(edges, 1), read(edges, 2**40))


@settings(max_examples=60, deadline=None)
@given(GRAPHS, st.integers(20, 3000))
def test_array_code_gives_the_same_edges(edges: EdgeList, piece_edges: int) -> None:
    if not edges.name.startswith(NOT_ARRAY_CODE):
        for piece in edges.cut(piece_edges):
            np.testing.assert_array_equal(np.stack(piece.read_on(NotNumPy("xp"))), np.stack(piece.read()))


@pytest.mark.gpu
@pytest.mark.parametrize("edges", ONE_OF_EACH, ids=lambda edges: edges.name)
def test_gpus_make_the_same_edges(edges: EdgeList) -> None:
    cupy = pytest.importorskip("cupy")
    for piece in edges.cut(100):
        if isinstance(piece, GeneratedPiece):
            made = [cupy.asnumpy(ends) for ends in piece.read_on(cupy)]
            assert [ends.dtype for ends in made] == [np.int64] * 2
            np.testing.assert_array_equal(np.stack(made), np.stack(piece.read()))


def test_seeds_change_the_edges() -> None:
    for make in (
        lambda seed: uniform(10**6, 100, seed),
        lambda seed: rmat(20, m=100, seed=seed),
        lambda seed: random_tree(500, seed),
        lambda seed: geometric(2000, 0.02, seed),
        lambda seed: mesh("", 20, 20, seed=seed),
        lambda seed: communities("", 3, power_law(50, 2, 1, 8), directed=False, seed=seed),
    ):
        made = [read(make(seed), 2**40) for seed in (0, 1, 2, 2**63, 2**64 - 1)]
        for seed, edges in enumerate(made):
            assert not any(np.array_equal(edges, other) for other in made[:seed])


@pytest.mark.parametrize("edges", [e for e in ONE_OF_EACH if e.m is not None], ids=lambda edges: edges.name)
def test_pieces_are_about_equal(edges: EdgeList) -> None:
    sizes = [piece.read()[0].size for piece in edges.cut(100)]
    assert max(sizes) <= 100
    assert min(sizes) >= 50


@pytest.mark.parametrize(
    "edges",
    [uniform(5, 0), uniform(0, 0), rmat(3, m=0), grid2d(1), grid3d(1), path(1), star(1), complete(1), tree(1)],
    ids=lambda e: e.name,
)
def test_no_edges_are_one_empty_piece(edges: EdgeList) -> None:
    (piece,) = edges.cut(10)
    assert [ends.size for ends in piece.read()] == [0, 0]


@pytest.mark.parametrize("edges", ONE_OF_EACH, ids=lambda edges: edges.name)
def test_edge_lists_and_pieces_travel(edges: EdgeList) -> None:
    assert pickle.loads(pickle.dumps(edges)) == edges
    piece = edges.cut(100)[1]
    copy = pickle.loads(pickle.dumps(piece))
    assert copy == piece
    np.testing.assert_array_equal(np.stack(copy.read()), np.stack(piece.read()))
