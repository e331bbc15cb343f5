"""The choice of a level's direction by a client, which reads the counts of all ranks at the barrier of each level.

The rule is that of the resident loop: ``dbfs_workers.levels.direction``.
"""

from dbfs.errors import InvalidOptionError
from dbfs.records import GraphRecord
from dbfs_workers.levels.direction import bottom_up_pays, expected_search_share
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.tasks.barriers import Barrier
from dbfs_workers.tasks.windows import SmallLevels


class Directions:
    """The direction of one traversal's next level.

    Args:
        record: the graph.
        spec: the traversal.

    Attributes:
        bottom_up: whether the next level is bottom-up.
        adaptive: whether each level's direction is chosen.

    Raises:
        InvalidOptionError: the spec wants bottom-up levels, and the graph's in-edges are not loaded.
    """

    def __init__(self, record: GraphRecord, spec: TraversalSpec) -> None:
        has_parents = record.infos[0].has_parents
        if spec.direction == "bottom-up" and not has_parents:
            raise InvalidOptionError(
                "bottom-up levels of a directed graph need its in-edges: load it with in_edges=True"
            )
        self.bottom_up = spec.direction == "bottom-up"
        self.adaptive = spec.direction == "auto" and has_parents
        self._targets = bool(spec.targets)
        self._n = record.stripe.n
        self._max_degree = max(info.max_degree for info in record.infos)
        self._unexplored_edges = sum(info.m_local for info in record.infos)
        self._frontier_edges = 0
        self._search_share = expected_search_share()

    def small_levels(self, fuse_below: int) -> SmallLevels:
        """Return the rule for levels that may run in a window, as of the next level."""
        return SmallLevels(
            fuse_below,
            self.adaptive,
            self._targets,
            self._n,
            self._max_degree,
            self._unexplored_edges,
            self._search_share,
        )

    def pass_level(self, barrier: Barrier) -> None:
        """Choose the direction of the next level; after a barrier without an exact count it is top-down."""
        if not barrier.counted:
            self._unexplored_edges -= barrier.edges
            return
        if self.bottom_up:
            before = self._frontier_edges
            self._search_share = expected_search_share(barrier.searched, self._unexplored_edges)
        else:
            before = barrier.edges
            self._unexplored_edges -= barrier.edges
        self._frontier_edges = barrier.degrees
        if self.adaptive:
            unexplored = self._unexplored_edges - self._frontier_edges
            self.bottom_up = bottom_up_pays(self._frontier_edges, before, unexplored, self._n, self._search_share)
        if self.bottom_up:
            # A top-down level's edges are subtracted at its own barrier.
            self._unexplored_edges -= self._frontier_edges
