"""Analytics of a graph by traversals and by queries of its partitions: components, diameter bounds, degrees.

In: a ``Graph``. Out: ``Components``, ``DiameterBounds``, arrays of degrees. Each file has a function behind one method
of ``Graph``, and the type that it returns.
"""

from dbfs.analytics.components import Components
from dbfs.analytics.diameter import DiameterBounds

__all__ = ["Components", "DiameterBounds"]
