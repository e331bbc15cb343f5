"""Merrill 2012's corpus: stand-ins for the thirteen graphs of its Table 1, at any size.

Two stand-ins are the paper's graphs themselves, and three are drawn from the same models. The others have nearly the
paper's numbers of vertices and edges, mean degree and search depth. ``CORPUS`` has the paper's figures of each graph,
the model of its stand-in, and the law by which the depth falls when the stand-in is scaled down. ``TODLING`` has the
graphs that Tödling 2019 takes beside, with the counts and the depths from vertex 0 of Tödling's table 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log, log2, pow, prod, sqrt  # noqa: A004 - the built-in's type is Any

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.communities import communities, power_law
from dbfs.edges.generate.geometric import geometric
from dbfs.edges.generate.kronecker import kronecker
from dbfs.edges.generate.lattice import grid2d, grid3d, lattice
from dbfs.edges.generate.mesh import mesh
from dbfs.edges.generate.ranges import integer
from dbfs.edges.generate.rmat import rmat
from dbfs.edges.generate.stencil import kkt, stencil27
from dbfs.edges.generate.uniform import uniform
from dbfs.errors import InvalidOptionError
from dbfs_workers.base.text import did_you_mean

# The smallest graph then has 1,700 vertices. Smaller communities would not hold their hubs.
_MAX_SCALE_DOWN = 256
_FULL_SIDES = (2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 22)
_STREETS = (5, 5, 4)


@dataclass(frozen=True)
class CorpusGraph:
    """A graph of a paper and its stand-in.

    Attributes:
        name: the paper's name.
        description: the paper's description.
        n, m, degree: vertices and directed edges in millions, and the mean degree, as printed in the paper.
        depth: the average search depth in Merrill 2012, the depth from vertex 0 in Tödling 2019.
        made_of: model of the stand-in.
        shrink: exponent x of the law depth / (scale down)^x; 0 if depth falls by a logarithm or not at all.
        make: function of scale down that returns the stand-in, with about 1 / (scale down) of the vertices.
    """

    name: str
    description: str
    n: float
    m: float
    degree: float
    depth: float
    made_of: str
    shrink: float
    make: Callable[[int], EdgeList]


def _side(full: int, scale_down: int, axes: int) -> int:
    return max(1, round(full / pow(scale_down, 1 / axes)))


def _europe(scale_down: int) -> EdgeList:
    # Streets with 14 vertices along the 3 edges of each pair of junctions: a mean degree of 17 / 8.
    squares = 50_912_018 / (2 + sum(_STREETS)) / scale_down
    return mesh("", round(sqrt(squares)), round(sqrt(squares)), _STREETS)


def _hugebubbles(scale_down: int) -> EdgeList:
    side = round(sqrt(21_198_119 / 2 / scale_down))
    return mesh("", side, side)


def _audikw(scale_down: int) -> EdgeList:
    side = _side(68, scale_down, 3)
    return stencil27("", (side, side, side), 3)


def _msdoor(scale_down: int) -> EdgeList:
    # From 100 nodes along each side, the farthest border is 127 nodes away.
    side = _side(228, scale_down, 2)
    start = round(side * 100 / 228)
    return stencil27("", (side, side, 4), 2, start + side * start)


def _af_shell(scale_down: int) -> EdgeList:
    return stencil27("", (_side(473, scale_down, 2), _side(267, scale_down, 2), 1), 4)


def _rgg(scale_down: int) -> EdgeList:
    n = 2**21 // scale_down
    return geometric(n, 0.55 * sqrt(log(n) / n))


def _cage(scale_down: int) -> EdgeList:
    # 13 axes give the degree. All except one are short, which bounds the vertices; the long one gives the depth. To
    # scale down, the axis that is longest by then is shortened, again and again.
    sides = sorted(_FULL_SIDES)
    while prod(sides) * scale_down > prod(_FULL_SIDES):
        sides[-1] -= 1
        sides.sort()
    return lattice("", tuple(sides))


def _chain(count: int, n: int, mean: float, least: int, most: int, *, directed: bool) -> Callable[[int], EdgeList]:
    """Return a maker of ``count`` communities; scaling down shrinks the communities, not their number."""

    def make(scale_down: int) -> EdgeList:
        classes = power_law(round(n / count / scale_down), mean, least, most)
        return communities("", count, classes, directed=directed)

    return make


def _rmat(scale_down: int) -> EdgeList:
    n = 2_000_000 // scale_down
    return rmat(ceil(log2(n)), a=0.45, b=0.15, c=0.15, directed=True, n=n, m=64 * n)


CORPUS = (
    CorpusGraph(
        "europe.osm", "European road network", 50.9, 108.1, 2.1, 19314,
        "dual of a random triangulation, 5, 5 or 4 vertices along each edge", 1 / 2, _europe,
    ),
    CorpusGraph(
        "grid5pt.5000", "5-point Poisson stencil (2D grid lattice)", 25.0, 125.0, 5.0, 7500,
        "itself: a square lattice with self-loops", 1 / 2,
        lambda scale_down: grid2d(_side(5000, scale_down, 2), loops=True),
    ),
    CorpusGraph(
        "hugebubbles-00020", "Adaptive numerical simulation mesh", 21.2, 63.6, 3.0, 6151,
        "dual of a random triangulation", 1 / 2, _hugebubbles,
    ),
    CorpusGraph(
        "grid7pt.300", "7-point Poisson stencil (3D grid lattice)", 27.0, 188.5, 7.0, 679,
        "itself: a cubic lattice with self-loops", 1 / 3,
        lambda scale_down: grid3d(_side(300, scale_down, 3), loops=True),
    ),
    CorpusGraph(
        "nlpkkt160", "3D PDE-constrained optimization", 8.3, 221.2, 26.5, 142,
        "the KKT pattern with the matrix's counts", 1 / 3, lambda scale_down: kkt("", _side(160, scale_down, 3)),
    ),
    CorpusGraph(
        "audikw1", "Automotive finite element analysis", 0.9, 76.7, 81.3, 62,
        "27-point stencil on a cube, 3 unknowns a node", 1 / 3, _audikw,
    ),
    CorpusGraph(
        "cage15", "Electrophoresis transition probabilities", 5.2, 94.0, 18.2, 37,
        "lattice of 13 axes: 2 of side 2, 10 of side 3, 1 of side 22", 0, _cage,
    ),
    CorpusGraph(
        "kkt_power", "Nonlinear optimization (KKT)", 2.1, 13.0, 6.3, 37,
        "random graph with power-law degrees in a chain of 42 communities", 0,
        _chain(42, 2_063_494, 3.15, 1, 48, directed=False),
    ),
    CorpusGraph(
        "coPapersCiteseer", "Citation network", 0.4, 32.1, 73.9, 26,
        "random graph with power-law degrees in a chain of 32 communities", 0,
        _chain(32, 434_102, 36.95, 4, 600, directed=False),
    ),
    CorpusGraph(
        "wikipedia-20070206", "Links between Wikipedia pages", 3.6, 45.0, 12.6, 20,
        "random directed graph with power-law degrees in a chain of 21 communities", 0,
        _chain(21, 3_566_907, 12.62, 1, 4096, directed=True),
    ),
    CorpusGraph(
        "kron_g500-logn20", "Graph500 R-MAT (A=0.57, B=0.19, C=0.19)", 1.0, 100.7, 96.0, 6,
        "the same model: Graph500's generator, scale 20, edge factor 48", 0,
        lambda scale_down: kronecker(max(1, 20 - round(log2(scale_down))), 48),
    ),
    CorpusGraph(
        "random.2Mv.128Me", "G(n, M) uniform random", 2.0, 128.0, 64.0, 6,
        "the same model: uniform ends", 0,
        lambda scale_down: uniform(2_000_000 // scale_down, 64 * (2_000_000 // scale_down), directed=True),
    ),
    CorpusGraph(
        "rmat.2Mv.128Me", "R-MAT (A=0.45, B=0.15, C=0.15)", 2.0, 128.0, 64.0, 6,
        "the same model, drawn from 2^21 ids folded onto 2 million", 0, _rmat,
    ),
)  # fmt: skip
"""Table 1 of Merrill 2012, from the deepest graph to the shallowest."""

TODLING = (
    CorpusGraph(
        "msdoor", "Finite elements: a door", 0.416, 19.17, 46.1, 127,
        "27-point stencil on a square plate of 4 layers, 2 unknowns a node", 1 / 2, _msdoor,
    ),
    CorpusGraph(
        "af_shell9", "Finite elements: sheet metal forming", 0.505, 17.59, 34.8, 472,
        "9-point stencil on a sheet, 4 unknowns a node", 1 / 2, _af_shell,
    ),
    CorpusGraph(
        "in-2004", "Crawl of web pages", 1.326, 16.92, 12.8, 47,
        "random directed graph with power-law degrees in a chain of 43 communities", 0,
        _chain(43, 1_325_741, 12.76, 1, 512, directed=True),
    ),
    CorpusGraph(
        "rgg_n_2_21", "Random geometric graph", 2.097, 28.98, 13.8, 1147,
        "the same model: points in a square, joined up to 0.55 sqrt(ln n / n)", 1 / 2, _rgg,
    ),
)  # fmt: skip
"""Table 1 of Tödling 2019, without the six graphs that Merrill 2012 has too. The stand-ins of those have Merrill's
average depths; Tödling's, from vertex 0, differ most for wikipedia (460) and cage15 (500)."""

_BY_NAME = {graph.name: graph for graph in (*CORPUS, *TODLING)}


@public
def corpus(name: str, scale_down: int = 1) -> EdgeList:
    """Return the stand-in for a graph of Merrill 2012's Table 1, or of Tödling 2019.

    Args:
        name: name in the paper, such as ``europe.osm``; ``CORPUS`` and ``TODLING`` list them.
        scale_down: shrink the graph to about 1/scale_down of the vertices and of the edges.

    Raises:
        InvalidOptionError: the name is unknown (the message lists the names), or scale_down is not an integer in
            1..256.
    """
    graph = _BY_NAME.get(name)
    if graph is None:
        hint = did_you_mean(name, _BY_NAME)
        raise InvalidOptionError(f"corpus: unknown graph {name!r}{hint} The graphs: {', '.join(_BY_NAME)}")
    scale_down = integer("corpus", "scale_down", scale_down, 1, _MAX_SCALE_DOWN)
    suffix = "" if scale_down == 1 else f",scale-down={scale_down}"
    return replace(graph.make(scale_down), name=f"corpus:{name}{suffix}")
