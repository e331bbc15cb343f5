"""One small edge list of every generator."""

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import (
    complete,
    corpus,
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

ONE_OF_EACH: list[EdgeList] = [
    kronecker(6),
    rmat(7, 6),
    uniform(10, 777),
    grid2d(16),
    grid3d(9),
    path(778),
    star(778),
    complete(40),
    tree(778),
    random_tree(778),
    geometric(5000, 0.01),
    corpus("kkt_power", 256),
]
