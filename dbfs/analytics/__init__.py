"""Analytics of a graph by traversals and by queries of its partitions: components, diameter, degrees,
landmarks, measures.

In: a ``Graph``. Out: ``Components``, ``DiameterBounds``, arrays of degrees, ``VertexMeasure``, ``EdgeMeasure`` and
others. Each file has the functions behind methods of ``Graph``, and the types that they return.
"""

from dbfs.analytics.betweenness import EdgeMeasure
from dbfs.analytics.components import Components
from dbfs.analytics.diameter import DiameterBounds
from dbfs.analytics.landmarks import Landmarks
from dbfs.analytics.measures import MeanDistance, NeighbourhoodFunction, VertexMeasure

__all__ = [
    "Components",
    "DiameterBounds",
    "EdgeMeasure",
    "Landmarks",
    "MeanDistance",
    "NeighbourhoodFunction",
    "VertexMeasure",
]
