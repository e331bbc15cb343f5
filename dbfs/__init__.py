"""dbfs: distributed breadth-first search on Dask workers.

- ``load(edges)`` returns a ``Graph``: of a file, a table, pairs, a NetworkX graph, or a generator's spec.
- ``connect(n_workers=4)`` starts a local cluster, and ``connect("tcp://host:8786")`` takes a running one.
- ``Graph`` has the calls: ``bfs``, ``bfs_many``, ``bfs_batch``, ``khop``, ``components``, ``distance_matrix``,
  ``diameter``, centralities, ``subgraph``, ``save``. ``help(dbfs.Graph)`` lists them.
- ``BFSResult`` is what ``Graph.bfs`` returns: ``to_pandas``, ``to_dict``, ``distances``, ``path_to`` and others.

An example::

    import dbfs

    client = dbfs.connect(n_workers=4)
    graph = dbfs.load(dbfs.kronecker(scale=16), client=client)
    result = graph.bfs(0, predecessors=True)
    result.to_pandas()

The other names read files and arrays (``from_file``, ``from_arrays``, ``from_scipy``), generate edges (``kronecker``
and others), list and open graphs (``graphs``, ``open``), check and measure (``estimate``, ``validate``, ``graph500``).
This package is the side of the client and the scheduler; the workers' side is the package ``dbfs_workers``.
"""

from importlib.metadata import version

from dbfs import assembly, config, errors, lab
from dbfs.assembly import (
    AsyncBFSResult,
    AsyncGraph,
    BFSResult,
    BuildOptions,
    Graph,
    estimate,
    load,
    open,  # noqa: A004 - dbfs.open reads well
)
from dbfs.base import progress as progress
from dbfs.building.memory import Estimate
from dbfs.cluster.connect import connect
from dbfs.display.state import ClusterState, cluster_state
from dbfs.edges.arrays import from_arrays, from_scipy
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
from dbfs.edges.readers import from_file
from dbfs.edges.readers.folders import FolderReader
from dbfs.features.batches.batch import BatchResult
from dbfs.features.living.living import Update
from dbfs.features.validation.validate import Labels, Validation, validate
from dbfs.graph500.benchmark import Graph500Result, graph500
from dbfs.service.client import ServiceClient, install
from dbfs.service.listing import AsyncRun, Run, graphs, runs

__version__ = version("dbfs")

ServiceClient.scheduler_half = staticmethod(assembly.scheduler_service)
FolderReader.known = assembly.FOLDER_READERS

# The first names are those that a reader looks for first; the others are in order.
__all__ = [  # noqa: RUF022
    "load",
    "connect",
    "Graph",
    "BFSResult",
    "AsyncBFSResult",
    "AsyncGraph",
    "AsyncRun",
    "BatchResult",
    "BuildOptions",
    "ClusterState",
    "EdgeList",
    "Estimate",
    "Graph500Result",
    "Labels",
    "Run",
    "Update",
    "Validation",
    "__version__",
    "cluster_state",
    "complete",
    "config",
    "corpus",
    "errors",
    "estimate",
    "from_arrays",
    "from_file",
    "from_scipy",
    "geometric",
    "graph500",
    "graphs",
    "grid2d",
    "grid3d",
    "install",
    "kronecker",
    "lab",
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
