"""The numbers of one level on one rank, as the taskgraph engine counts them."""

from typing import Final

from dbfs_workers.search.reports import Row

PHASES: Final = ("expand", "filter-partition", "bottom-up", "contract")
"""The phases of levels: a top-down level has the first two and the last, in this order; a bottom-up level has one."""


class LevelCounts(Row):
    """The row of a level. Moving bins is not measured.

    Attributes:
        seconds: time by phase.
    """

    def __init__(self, frontier: int) -> None:
        super().__init__(frontier=frontier, largest_frontier=frontier, levels=1)
        self.seconds = dict.fromkeys(PHASES, 0.0)
