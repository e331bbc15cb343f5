"""Merrill 2012's Table 1: each stand-in's vertices, edges, mean degree and search depth against the paper's.

The paper prints n and m in millions to one decimal, so half of that is allowed beside a share of each. n, m and
degree are checked at full size here, from counts that the tests of the generators prove. Depths are checked on graphs
scaled down, with the law by which they shrink, and at full size by ``make corpus``.
"""

import os
from math import log

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import CORPUS, TODLING, CorpusGraph, corpus, parse
from dbfs.edges.generate.geometric import Geometric
from dbfs.edges.generate.lattice import LatticePiece
from dbfs.edges.generate.ranges import GeneratedEdges
from dbfs.errors import InvalidOptionError

BY_NAME = {graph.name: graph for graph in CORPUS}
GRAPHS = pytest.mark.parametrize("graph", CORPUS, ids=lambda graph: graph.name)

# Shares of the paper's n, m and mean degree by which a stand-in may differ; 0 if it must have the printed figure.
TOLERANCE = dict.fromkeys(BY_NAME, 0.01) | {
    "grid5pt.5000": 0.0,
    "grid7pt.300": 0.0,
    "nlpkkt160": 0.0,
    "kron_g500-logn20": 0.0,
    "random.2Mv.128Me": 0.0,
    "rmat.2Mv.128Me": 0.0,
    # The car's nodes have more neighbours than a cube's; no lattice of 13 axes meets both the degree and n.
    "audikw1": 0.05,
    "cage15": 0.055,
}
PRINTED = 0.05
# Share of the depth, besides one level: the paper averages 100 sources, these tests fewer, and depths vary by 15 %.
DEPTH_TOLERANCE = 0.1
SCALED = {"europe.osm": 256, "hugebubbles-00020": 256, "nlpkkt160": 64, "audikw1": 16, "kron_g500-logn20": 32}


def directed_edges(graph: CorpusGraph) -> int:
    """Entries of the adjacency matrix: a self-loop is one, another undirected edge two."""
    edges = corpus(graph.name)
    assert edges.m is not None
    lattice = lattice_of(edges)
    loops = edges.n if lattice is not None and lattice.loops else 0
    return edges.m if edges.directed else 2 * edges.m - loops


@GRAPHS
def test_counts_at_full_size(graph: CorpusGraph) -> None:
    edges, share = corpus(graph.name), TOLERANCE[graph.name]
    assert edges.n / 1e6 == pytest.approx(graph.n, abs=PRINTED + share * graph.n)
    m = directed_edges(graph)
    assert m / 1e6 == pytest.approx(graph.m, abs=PRINTED + share * graph.m)
    assert m / edges.n == pytest.approx(graph.degree, abs=PRINTED + share * graph.degree)


@pytest.mark.parametrize("graph", TODLING, ids=lambda graph: graph.name)
def test_graphs_of_todling(graph: CorpusGraph) -> None:
    """Counts at full size where they are known before the edges are made, and all of them at 1/64."""
    full, small = corpus(graph.name), corpus(graph.name, 64)
    assert full.n / 1e6 == pytest.approx(graph.n, rel=0.01)
    if full.m is not None:
        assert full.m * (1 if full.directed else 2) / full.n == pytest.approx(graph.degree, rel=0.06)
    assert small.n * 64 == pytest.approx(full.n, rel=0.05)
    edges = sum(piece.read()[0].size for piece in small.cut(2**20)) * (1 if small.directed else 2)
    # Of a smaller sheet more nodes lie at the border, and a smaller square of points has a smaller radius.
    assert 0.65 < edges / small.n / graph.degree < 1.05
    assert parse(f"corpus:{graph.name},scale-down=64") == small


@pytest.mark.parametrize("graph", TODLING, ids=lambda graph: graph.name)
def test_depths_of_todling_scaled_down(graph: CorpusGraph) -> None:
    """From vertex 0. The radius of the points' graph shrinks by a little less than its law says."""
    full, small = corpus(graph.name), corpus(graph.name, 64)
    law = 64**graph.shrink
    if isinstance(small, Geometric) and isinstance(full, Geometric):
        law = small.radius / full.radius
    assert depth(matrix_of(small), 0)[0] == pytest.approx(graph.depth / law, abs=1, rel=0.05)


def test_counts_are_those_of_public_descriptions() -> None:
    """Numbers that public descriptions of the graphs give to the last edge."""
    counts = {name: (corpus(name).n, directed_edges(BY_NAME[name])) for name in BY_NAME}
    assert counts["grid5pt.5000"] == (25_000_000, 124_980_000)
    assert counts["grid7pt.300"] == (27_000_000, 188_460_000)
    assert counts["nlpkkt160"] == (8_345_600, 221_172_512)
    assert counts["kron_g500-logn20"] == (2**20, 2 * 48 * 2**20)
    assert counts["random.2Mv.128Me"] == counts["rmat.2Mv.128Me"] == (2_000_000, 128_000_000)


def matrix_of(edges: dbfs.EdgeList) -> sp.csr_array:
    parts = [piece.read() for piece in edges.cut(2**20)]
    ends = tuple(np.concatenate([part[side] for part in parts]) for side in (0, 1))
    if not edges.directed:
        ends = (np.concatenate(ends), np.concatenate(ends[::-1]))
    return sp.coo_array((np.ones(ends[0].size, np.int32), ends), shape=(edges.n, edges.n)).tocsr()


def depth(matrix: sp.csr_array, source: int) -> tuple[int, int]:
    """Depth from a source, and the vertices reached."""
    order, parents = breadth_first_order(matrix, source)
    # No vertex is deeper than the last one reached.
    vertex, levels = int(order[-1]), 0
    while vertex != source:
        vertex, levels = int(parents[vertex]), levels + 1
    return levels, order.size


def depths(edges: dbfs.EdgeList, sources: int) -> list[int]:
    """Depths from random sources that reach a tenth of the graph or more."""
    matrix, random, found = matrix_of(edges), np.random.default_rng(1), list[int]()
    while len(found) < sources:
        levels, reached = depth(matrix, int(random.integers(edges.n)))
        if reached >= edges.n / 10:
            found.append(levels)
    return found


@pytest.mark.full
@GRAPHS
def test_depth_scaled_down(graph: CorpusGraph) -> None:
    scale_down = SCALED.get(graph.name, 128)
    edges = corpus(graph.name, scale_down)
    expected, allowed = graph.depth / scale_down**graph.shrink, 1
    lattice = lattice_of(edges)
    if lattice is not None and len(lattice.sides) > 3:
        # Its axes are short, and the farthest vertex is at the farther end of each axis.
        expected = lattice_depth(lattice)
    elif graph.depth < 10:
        # Small worlds: depth falls by the number of levels in which the mean degree multiplies to the scale down.
        expected, allowed = expected - log(scale_down) / log(graph.degree), 2
    assert np.mean(depths(edges, 20)) == pytest.approx(expected, abs=allowed + DEPTH_TOLERANCE * expected)


def lattice_of(edges: EdgeList) -> LatticePiece | None:
    return edges.whole if isinstance(edges, GeneratedEdges) and isinstance(edges.whole, LatticePiece) else None


def lattice_depth(lattice: LatticePiece) -> float:
    return sum(float(np.mean([max(x, side - 1 - x) for x in range(side)])) for side in lattice.sides)


def test_depth_of_the_many_dimensional_lattice_at_full_size() -> None:
    lattice = lattice_of(corpus("cage15"))
    assert lattice is not None
    assert len(lattice.sides) == 13
    assert lattice_depth(lattice) == pytest.approx(BY_NAME["cage15"].depth, rel=DEPTH_TOLERANCE)


@GRAPHS
@pytest.mark.parametrize("scale_down", [2, 7, 64, 256])
def test_a_scaled_down_graph_is_of_the_same_kind(graph: CorpusGraph, scale_down: int) -> None:
    """Vertices fall by the factor, as near as whole sides, scales and communities go."""
    full, edges = corpus(graph.name), corpus(graph.name, scale_down)
    assert 0.6 < edges.n * scale_down / full.n < 1.5
    assert edges.directed == full.directed
    piece = edges.cut(10_000)[-1]
    sources, targets = piece.read()
    assert min(sources.min(), targets.min()) >= 0
    assert max(sources.max(), targets.max()) < edges.n


def test_names_are_specs() -> None:
    for name in BY_NAME:
        assert corpus(name).name == f"corpus:{name}"
        assert parse(f"corpus:{name},scale-down=4") == corpus(name, 4)
        assert parse(corpus(name, 4).name) == corpus(name, 4)


def test_a_wrong_graph_or_scale_is_named() -> None:
    with pytest.raises(
        InvalidOptionError,
        match=r"^corpus: unknown graph 'europe'; did you mean 'europe\.osm'\? The graphs: europe\.osm, ",
    ):
        corpus("europe")
    with pytest.raises(InvalidOptionError, match=r"^corpus: scale_down must be in 1\.\.256, not 0$"):
        corpus("cage15", 0)


@pytest.mark.full
def test_a_stand_in_is_traversed(client) -> None:
    with dbfs.load("corpus:hugebubbles-00020,scale-down=256", client=client) as graph:
        assert graph.bfs(0, validate=True).reached == graph.n


@pytest.mark.skipif("DBFS_FULL_CORPUS" not in os.environ, reason="takes long: make corpus")
@pytest.mark.parametrize("graph", TODLING, ids=lambda graph: graph.name)
def test_depths_of_todling_at_full_size(graph: CorpusGraph) -> None:
    assert depth(matrix_of(corpus(graph.name)), 0)[0] == pytest.approx(graph.depth, rel=0.03)


@pytest.mark.skipif("DBFS_FULL_CORPUS" not in os.environ, reason="takes long: make corpus")
@pytest.mark.timeout(3600)
@GRAPHS
def test_counts_and_depths_at_full_size(graph: CorpusGraph) -> None:
    """All of the table, from the graph as built and traversed on two workers."""
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None, memory_limit=0) as client:
        with dbfs.load(f"corpus:{graph.name}", client=client) as loaded:
            random, found = np.random.default_rng(1), list[int]()
            while len(found) < 10:
                result = loaded.bfs(int(random.integers(loaded.n)))
                if result.reached > loaded.n / 10:
                    found.append(result.depth)
                result.release()
            n, m, depth = loaded.n / 1e6, loaded.m / 1e6, float(np.mean(found))
            print(f"{graph.name:20} n {n:6.1f} m {m:6.1f} degree {m / n:5.1f} depth {depth:8.1f} (paper {graph.depth})")
            share = TOLERANCE[graph.name]
            assert n == pytest.approx(graph.n, abs=PRINTED + share * graph.n)
            assert m == pytest.approx(graph.m, abs=PRINTED + share * graph.m)
            assert m / n == pytest.approx(graph.degree, abs=PRINTED + share * graph.degree)
            assert depth == pytest.approx(graph.depth, abs=1 + DEPTH_TOLERANCE * graph.depth)
