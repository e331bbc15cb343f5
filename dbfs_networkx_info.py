"""What NetworkX reads of the backend ``dbfs`` whenever NetworkX is imported: a summary, the functions and the settings.

This module stands outside of the package ``dbfs``, whose import takes hundreds of times as long. It imports nothing.
"""

WEIGHTS = "Edges have no weights here: a call that names an edge attribute is refused."
DIJKSTRA = "Weights are finite integers and floats of at least 0; a function as weight is refused. On CPU cores."
ORDER = "Nodes come in NetworkX's own order."
PATHS = "Paths are those that NetworkX finds."
ANY_PATH = "If there are several shortest paths, the path may be another one than NetworkX's."
ONCE = "Each path is listed once, also where edges weigh 0."
BOUNDS = "In an undirected graph each traversal bounds all eccentricities, so that few may be needed."
ONE_TRAVERSAL = "One traversal; only counts leave the workers."
SWEEPS = "Two sweeps over the shortest paths from 16 nodes at a time, on CPU cores; only sums leave the workers."
PER_NODE = "One traversal for each node, hundreds at once on CPU cores; only counts leave the workers."

NO_ATTRIBUTES = "Edges have no attributes here: a call that would give them some is refused, and so are multigraphs."

FUNCTIONS = {
    "all_pairs_all_shortest_paths": f"{DIJKSTRA} {ONCE}",
    "all_pairs_dijkstra": f"{DIJKSTRA} {PATHS}",
    "all_pairs_dijkstra_path": f"{DIJKSTRA} {PATHS}",
    "all_pairs_dijkstra_path_length": DIJKSTRA,
    "all_pairs_shortest_path": PATHS,
    "all_pairs_shortest_path_length": "",
    "all_shortest_paths": f"{DIJKSTRA} {ONCE}",
    "ancestors": "",
    "average_shortest_path_length": f"{WEIGHTS} {PER_NODE}",
    "barycenter": f"{WEIGHTS} {PER_NODE} The parameters attr and sp are refused.",
    "betweenness_centrality": f"{WEIGHTS} {SWEEPS}",
    "bfs_edges": f"{ORDER} The parameter sort_neighbors is refused.",
    "bfs_layers": ORDER,
    "bfs_predecessors": f"{ORDER} The parameter sort_neighbors is refused.",
    "bfs_successors": f"{ORDER} The parameter sort_neighbors is refused.",
    "bfs_tree": f"{ORDER} The parameter sort_neighbors is refused.",
    "bidirectional_dijkstra": f"{DIJKSTRA} {ANY_PATH}",
    "bidirectional_shortest_path": ANY_PATH,
    "center": f"{WEIGHTS} {BOUNDS} The parameter e is refused.",
    "closeness_centrality": f"{WEIGHTS} {PER_NODE}",
    "color": "Bipartite graphs.",
    "connected_components": "",
    "descendants": "",
    "descendants_at_distance": "",
    "dijkstra_path": f"{DIJKSTRA} {ANY_PATH}",
    "dijkstra_path_length": DIJKSTRA,
    "dijkstra_predecessor_and_distance": DIJKSTRA,
    "diameter": f"{WEIGHTS} {BOUNDS} The parameter e is refused.",
    "eccentricity": f"{WEIGHTS} {BOUNDS} The parameter sp is refused.",
    "efficiency": ONE_TRAVERSAL,
    "edge_betweenness_centrality": f"{WEIGHTS} {SWEEPS}",
    "ego_graph": f"{WEIGHTS} The result is a NetworkX graph with its attributes.",
    "from_edgelist": f"{NO_ATTRIBUTES} An iterator is refused, since it can be read only once.",
    "from_numpy_array": f"{NO_ATTRIBUTES} Without edge_attr=None, entries other than 0 and 1 are refused.",
    "from_pandas_edgelist": f"{NO_ATTRIBUTES} The parameters edge_attr and edge_key are refused.",
    "from_scipy_sparse_array": f"{NO_ATTRIBUTES} Stored entries other than 1 are refused.",
    "generic_bfs_edges": f"{ORDER} The parameter neighbors is refused.",
    "global_efficiency": PER_NODE,
    "global_reaching_centrality": f"{WEIGHTS} {PER_NODE}",
    "group_closeness_centrality": f"{WEIGHTS} {ONE_TRAVERSAL}",
    "gutman_index": WEIGHTS,
    "harmonic_centrality": f"{WEIGHTS} {PER_NODE}",
    "harmonic_diameter": f"{WEIGHTS} {PER_NODE} The parameter sp is refused.",
    "has_path": ONE_TRAVERSAL,
    "hyper_wiener_index": f"{WEIGHTS} {PER_NODE}",
    "is_arborescence": "",
    "is_bipartite": "",
    "is_bipartite_node_set": "",
    "is_branching": "",
    "is_connected": ONE_TRAVERSAL,
    "is_forest": "",
    "is_strongly_connected": "Two traversals, with the edges and against them.",
    "is_tree": "",
    "is_weakly_connected": "",
    "local_reaching_centrality": f"{WEIGHTS} {ONE_TRAVERSAL} The parameter paths is refused.",
    "multi_source_dijkstra": f"{DIJKSTRA} {PATHS} From one node to one target: {ANY_PATH}",
    "multi_source_dijkstra_path": f"{DIJKSTRA} {PATHS}",
    "multi_source_dijkstra_path_length": DIJKSTRA,
    "node_connected_component": "",
    "number_connected_components": "",
    "number_weakly_connected_components": "",
    "parse_edgelist": f"{NO_ATTRIBUTES} Give data=False.",
    "periphery": f"{WEIGHTS} {BOUNDS} The parameter e is refused.",
    "predecessor": ORDER,
    "radius": f"{WEIGHTS} {BOUNDS} The parameter e is refused.",
    "read_edgelist": f"{NO_ATTRIBUTES} Give data=False.",
    "schultz_index": WEIGHTS,
    "sets": "Bipartite graphs.",
    "shortest_path": f"{DIJKSTRA} {PATHS} Between two nodes: {ANY_PATH} By weight only the method dijkstra is taken.",
    "shortest_path_length": f"{DIJKSTRA} By weight only the method dijkstra is taken.",
    "single_source_all_shortest_paths": f"{DIJKSTRA} {ONCE}",
    "single_source_dijkstra": f"{DIJKSTRA} {PATHS} To one target: {ANY_PATH}",
    "single_source_dijkstra_path": f"{DIJKSTRA} {PATHS}",
    "single_source_dijkstra_path_length": DIJKSTRA,
    "single_source_shortest_path": PATHS,
    "single_source_shortest_path_length": "",
    "single_target_shortest_path": PATHS,
    "single_target_shortest_path_length": "",
    "weakly_connected_components": "",
    "wiener_index": f"{WEIGHTS} {PER_NODE}",
}
"""Names of the functions that the backend offers, with remarks for their documentation."""

SETTINGS: dict[str, object] = {
    # Address of the scheduler to use; None for Dask's current client, or else for a cluster within this process.
    "scheduler": None,
    # Number of ranks of a graph; None for all workers, of which a cluster within this process has one.
    "ranks": None,
    # Nodes and edges of a graph from which on NetworkX may choose dbfs by itself (nx.config.backend_priority).
    "min_size": 10_000,
}
"""Defaults of ``nx.config.backends.dbfs``."""


def info() -> dict[str, object]:
    """Return the metadata of the backend: the entry point ``networkx.backend_info``."""
    return {
        "backend_name": "dbfs",
        "project": "dbfs",
        "package": "dbfs.networkx",
        "short_summary": "Breadth-first search and shortest paths by weight on CPU cores, GPUs or a Dask cluster.",
        "functions": {name: {"additional_docs": remarks} for name, remarks in FUNCTIONS.items()},
        "default_config": dict(SETTINGS),
    }
