"""What ``order="bfs"`` orders the vertices by: how near each is to an end of the graph.

The graph is built with the order given, traversed, and unloaded; then the build proper begins. So neighbours lie side
by side, and the vertices of a level in few cache lines, also from other sources, wherever levels are bands across the
graph: in meshes and road networks.
"""

from __future__ import annotations

from dataclasses import replace

import distributed

from dbfs.building.build import STRIPES, BuildOptions
from dbfs.building.builder import CSR
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Ref, TaskGraph, release
from dbfs.edges.edge_list import EdgeList
from dbfs.graph.degrees import hub
from dbfs.graph.graph import Graph
from dbfs.graph.load import Building, Made
from dbfs.graph.result import BFSResult
from dbfs.graph.traversing import traverse
from dbfs_workers.serving import queries


def nearness(
    made: Made[Graph[BFSResult]], edges: EdgeList, gang: Gang, options: BuildOptions, backend: str
) -> list[distributed.Future]:
    """Return futures by rank of int64[n], whose sum is larger the nearer a vertex is to the end; 0 if unreached.

    The end is the vertex farthest from the hub, the first of several. So a graph that comes back has the same order.

    Args:
        made: makes the graph of its record.
        edges, gang, options, backend: of the build that needs the order. Errors as for ``load``.
    """
    plain = Building(made, replace(edges, attributes=None), gang, backend)
    as_given = replace(options, order="given", in_edges=False, keep_edges=False, room=0, layout=STRIPES, storage=CSR)
    built = plain.build(as_given)
    try:
        with plain.graph(built, as_given) as graph:
            return near(graph, traverse_from(graph, hub(graph))) if graph.n else []
    finally:
        release(built.futures)


def near(graph: Graph[BFSResult], first: BFSResult) -> list[distributed.Future]:
    """Return what ``nearness`` does, of a graph in the order given and a traversal from its hub, which is released."""
    end, gang, tasks, keys = int(first.vertices_between(first.depth, first.depth)[0]), graph.gang, TaskGraph(), []
    first.release()
    found = traverse_from(graph, end)
    for rank, part in enumerate(found.published_labels().distances):
        arguments = (Ref(part.key), found.depth, graph.stripe, rank)
        keys.append(tasks.add(rank, (f"near-{graph.record.graph_id}", rank), queries.near, *arguments).key)
    submitted = gang.submit(tasks, keys)
    futures = [submitted[key] for key in keys]
    try:
        gang.finish(futures, of_call("build-deadline"), f"ordering {graph.name}")
        found.release()
    except BaseException:
        release(futures)
        raise
    return futures


def traverse_from(graph: Graph[BFSResult], vertex: int) -> BFSResult:
    """Traverse a graph from a vertex by the resident engine, whatever the configuration names."""
    return traverse(graph, graph.result_type, [(vertex,)], engine="resident")[0]
