"""What traversals and the partitions tell of a graph: components, bounds on its diameter, its degrees.

Each file holds one function of a graph and what it returns; ``Graph`` has a method for each.
"""

from dbfs.analytics.components import Components
from dbfs.analytics.diameter import DiameterBounds

__all__ = ["Components", "DiameterBounds"]
