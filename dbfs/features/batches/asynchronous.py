"""Batches, measures and landmarks of an asynchronous client."""

from dbfs.cluster.awaiting import awaited, unchanged
from dbfs.features.batches.batch import BatchesResult, BatchResult
from dbfs.features.batches.graph import BatchesGraph
from dbfs.features.batches.landmarks import Landmarks
from dbfs.graph.asynchronous import AsyncBFSResult, AsyncGraph, AsyncNearest, AsyncTabular


class AsyncBatchResult(AsyncTabular[BatchResult]):
    """The result of ``AsyncGraph.bfs_batch``: ``BatchResult``, whose methods return awaitables.

    Attributes:
        graph: the graph that was traversed.
        synchronous: the ``BatchResult``. Its methods block: call them in other threads only.

    All other attributes are those of ``BatchResult``.
    """

    def __init__(self, result: BatchResult) -> None:
        super().__init__(result, result.graph.gang.client)
        self.graph = result.graph.view()
        self.sources = result.sources
        self.source_vertices = result.source_vertices
        self.targets = result.targets
        self.target_vertices = result.target_vertices
        self.keep = result.keep
        self.counts = result.counts
        self.reached = result.reached
        self.depth = result.depth
        self.edges = result.edges
        self.seconds = result.seconds
        self.groups = result.groups
        self.version = result.version
        self.run_id = result.run_id

    distances = awaited(BatchResult.distances, unchanged)
    reached_bits = awaited(BatchResult.reached_bits, unchanged)
    target_distances = awaited(BatchResult.target_distances, unchanged)
    nearest = awaited(BatchResult.nearest, AsyncNearest)
    to_dask_array = awaited(BatchResult.to_dask_array, unchanged)
    validate = awaited(BatchResult.validate, unchanged)
    recompute = awaited(BatchResult.recompute, lambda result: AsyncBatchResult(result))
    release = awaited(BatchResult.release, unchanged)


class AsyncLandmarks(AsyncTabular[Landmarks]):
    """The landmarks of an asynchronous client's graph: ``Landmarks``, but its methods return awaitables."""

    def __init__(self, landmarks: Landmarks) -> None:
        super().__init__(landmarks, landmarks.graph.gang.client)
        self.ids = landmarks.ids
        self.distances = landmarks.distances
        self.version = landmarks.version

    bounds = awaited(Landmarks.bounds, unchanged)


class AsyncBatchesResult(AsyncBFSResult):
    """See ``BatchesResult``."""

    nearest = awaited(BatchesResult.nearest, AsyncNearest)


class AsyncBatchesGraph(AsyncGraph):
    """See ``BatchesGraph``."""

    bfs_batch = awaited(BatchesGraph.bfs_batch, AsyncBatchResult)
    khop_sizes = awaited(BatchesGraph.khop_sizes, unchanged)
    eccentricity_bound = awaited(BatchesGraph.eccentricity_bound, unchanged)
    diameter = awaited(BatchesGraph.diameter, unchanged)
    radius = awaited(BatchesGraph.radius, unchanged)
    eccentricity = awaited(BatchesGraph.eccentricity, unchanged)
    closeness_centrality = awaited(BatchesGraph.closeness_centrality, unchanged)
    harmonic_centrality = awaited(BatchesGraph.harmonic_centrality, unchanged)
    betweenness_centrality = awaited(BatchesGraph.betweenness_centrality, unchanged)
    edge_betweenness_centrality = awaited(BatchesGraph.edge_betweenness_centrality, unchanged)
    average_shortest_path_length = awaited(BatchesGraph.average_shortest_path_length, unchanged)
    wiener_index = awaited(BatchesGraph.wiener_index, unchanged)
    neighbourhood_function = awaited(BatchesGraph.neighbourhood_function, unchanged)
    distance_matrix = awaited(BatchesGraph.distance_matrix, unchanged)
    landmarks = awaited(BatchesGraph.landmarks, AsyncLandmarks)
