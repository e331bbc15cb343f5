"""dbfs: distributed breadth-first search on Dask workers.

import dbfs

client = dbfs.connect(n_workers=4)
graph = dbfs.load(dbfs.kronecker(scale=16), client=client)
result = graph.bfs(0, predecessors=True)
result.distances()
"""

from importlib.metadata import version

from dbfs import config, errors
from dbfs.arrays import from_arrays, from_scipy
from dbfs.build import BuildOptions, estimate
from dbfs.cluster import connect
from dbfs.edges import EdgeList
from dbfs.generate import (
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
from dbfs.graph import Graph
from dbfs.graph500 import Graph500Result, graph500
from dbfs.load import Run, graphs, load, open, runs  # noqa: A004 - dbfs.open reads well
from dbfs.memory import Estimate
from dbfs.result import BFSResult
from dbfs.service import install
from dbfs.state import ClusterState, cluster_state
from dbfs.validate import Labels, Validation, validate

__version__ = version("dbfs")

__all__ = [
    "BFSResult",
    "BuildOptions",
    "ClusterState",
    "EdgeList",
    "Estimate",
    "Graph",
    "Graph500Result",
    "Labels",
    "Run",
    "Validation",
    "__version__",
    "cluster_state",
    "complete",
    "config",
    "connect",
    "corpus",
    "errors",
    "estimate",
    "from_arrays",
    "from_scipy",
    "geometric",
    "graph500",
    "graphs",
    "grid2d",
    "grid3d",
    "install",
    "kronecker",
    "load",
    "open",
    "path",
    "random_tree",
    "rmat",
    "runs",
    "star",
    "tree",
    "uniform",
    "validate",
]
