"""The methods of graphs that batches bring: traversals from many vertices at once, and measures made of them."""

from dbfs.features.batches.batch import BatchGraph
from dbfs.features.batches.betweenness import BetweennessGraph
from dbfs.features.batches.diameter import DiameterGraph
from dbfs.features.batches.landmarks import LandmarksGraph
from dbfs.features.batches.measures import MeasuredGraph
from dbfs.features.batches.sweeps import DistancesGraph
from dbfs.graph.graph import R


class BatchesGraph(
    BatchGraph[R], MeasuredGraph[R], BetweennessGraph[R], DiameterGraph[R], DistancesGraph[R], LandmarksGraph[R]
):
    """All of them."""
