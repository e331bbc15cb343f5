"""The numbers of one level on one rank, as the taskgraph engine counts them."""

from dataclasses import dataclass, field
from typing import Final

PHASES: Final = ("expand", "filter-partition", "contract")
"""The phases of a level, in order."""


@dataclass
class LevelCounts:
    """The work of one rank in one level.

    ``edges == filtered + own + sent``. The vertices discovered are those of the own bin and of the received bins, less
    ``culled``.

    Attributes:
        frontier: vertices expanded.
        edges: edges inspected.
        filtered: neighbours dropped by this rank's visited bitmap: visited before, or duplicates within the level.
        own: vertices kept for the rank itself.
        sent: vertices sent to other ranks.
        culled: received vertices that had been visited already, by this rank or by another's bin.
        discovered: vertices labelled.
        bytes_sent: bytes of the bins for other ranks.
        seconds: time by phase.
    """

    frontier: int = 0
    edges: int = 0
    filtered: int = 0
    own: int = 0
    sent: int = 0
    culled: int = 0
    discovered: int = 0
    bytes_sent: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
