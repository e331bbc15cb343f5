"""The choice of a level's direction by a client, which reads the counts of all ranks at the end of each level.

The rule is that of the resident loop: ``dbfs_workers.levels.direction``.
"""

from collections.abc import Sequence

from dbfs.errors import InvalidOptionError
from dbfs.records import GraphRecord
from dbfs_workers.levels.bins import RankCounts
from dbfs_workers.levels.direction import bottom_up_pays, expected_search_share
from dbfs_workers.spec import TraversalSpec


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
        self._n = record.stripe.n
        self._unexplored_edges = sum(info.m_local for info in record.infos)
        self._frontier_edges = 0
        self._search_share = expected_search_share()

    def pass_level(self, counts: Sequence[RankCounts]) -> None:
        """Choose the direction of the next level by the ranks' counts."""
        edges = sum(each.edges for each in counts)
        if self.bottom_up:
            before = self._frontier_edges
            searched = sum(each.searched for each in counts)
            self._search_share = expected_search_share(searched, self._unexplored_edges)
        else:
            before = edges
            self._unexplored_edges -= edges
        self._frontier_edges = sum(each.degrees for each in counts)
        if self.adaptive:
            unexplored = self._unexplored_edges - self._frontier_edges
            self.bottom_up = bottom_up_pays(self._frontier_edges, before, unexplored, self._n, self._search_share)
        if self.bottom_up:
            # A top-down level's edges are subtracted at its end.
            self._unexplored_edges -= self._frontier_edges
