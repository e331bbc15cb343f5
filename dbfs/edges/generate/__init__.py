"""Generators of graphs: one file a model, and specs (``kronecker:scale=18``) that name a generator and its parameters.

In come a model's parameters. Out goes an EdgeList whose pieces each generate a range of the edges alone, in parallel,
on the worker that needs them; the edges do not depend on the cut.
"""

from dbfs.edges.generate.corpus import CORPUS, TODLING, CorpusGraph, corpus
from dbfs.edges.generate.geometric import geometric
from dbfs.edges.generate.kronecker import kronecker
from dbfs.edges.generate.lattice import grid2d, grid3d
from dbfs.edges.generate.rmat import rmat
from dbfs.edges.generate.shapes import complete, path, random_tree, star, tree
from dbfs.edges.generate.specs import GENERATORS, Generator, describe, is_spec, parse
from dbfs.edges.generate.uniform import uniform

__all__ = [
    "CORPUS",
    "GENERATORS",
    "TODLING",
    "CorpusGraph",
    "Generator",
    "complete",
    "corpus",
    "describe",
    "geometric",
    "grid2d",
    "grid3d",
    "is_spec",
    "kronecker",
    "parse",
    "path",
    "random_tree",
    "rmat",
    "star",
    "tree",
    "uniform",
]
