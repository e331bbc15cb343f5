"""The numbers of one level on one rank, as the taskgraph engine counts them."""

from dataclasses import dataclass, field
from typing import Final

from dbfs_workers.reports import COUNT_FIELDS

PHASES: Final = ("expand", "filter-partition", "bottom-up", "contract")
"""The phases of levels: a top-down level has the first two and the last, in this order; a bottom-up level has one."""


@dataclass
class LevelCounts:
    """The work of one rank in one level.

    ``edges == filtered + own + sent``. In a top-down level the vertices discovered are those of the own bin and of the
    received bins, less ``culled``. In a bottom-up level they are the ``own`` ones.

    Attributes:
        bottom_up: whether the level is bottom-up.
        frontier: vertices expanded.
        edges: edges inspected.
        filtered: neighbours dropped by this rank's visited bitmap: visited before, or duplicates within the level.
        own: vertices kept for the rank itself.
        sent: vertices sent to other ranks.
        culled: received vertices that had been visited already, by this rank or by another's bin.
        discovered: vertices labelled.
        bytes_sent: bytes of the bins, or of the bitmap slices, for other ranks.
        seconds: time by phase.
    """

    bottom_up: bool = False
    frontier: int = 0
    edges: int = 0
    filtered: int = 0
    own: int = 0
    sent: int = 0
    culled: int = 0
    discovered: int = 0
    bytes_sent: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def row(self) -> tuple[int, ...]:
        """Return the counts in the order of ``COUNT_FIELDS``."""
        return tuple(int(getattr(self, name)) for name in COUNT_FIELDS)

    def times(self) -> tuple[float, float, float]:
        """Return the times in the order of ``TIME_FIELDS``; moving bins is not measured."""
        contract = self.seconds["contract"]
        return sum(self.seconds.values()) - contract, 0.0, contract
