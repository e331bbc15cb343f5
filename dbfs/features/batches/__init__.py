"""Analytics of a graph by traversals and by queries of its partitions: diameter, degrees,
landmarks, measures.

In: a ``Graph``. Out: ``DiameterBounds``, arrays of degrees, ``VertexMeasure``, ``EdgeMeasure`` and
others. Each file has methods of ``Graph``, and the types that they return.
"""

from dbfs.features.batches.betweenness import EdgeMeasure
from dbfs.features.batches.diameter import DiameterBounds
from dbfs.features.batches.landmarks import Landmarks
from dbfs.features.batches.measures import MeanDistance, NeighbourhoodFunction, VertexMeasure

__all__ = [
    "DiameterBounds",
    "EdgeMeasure",
    "Landmarks",
    "MeanDistance",
    "NeighbourhoodFunction",
    "VertexMeasure",
]
