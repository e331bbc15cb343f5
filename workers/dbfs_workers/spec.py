"""What is to be traversed: the one description of a traversal that clients, the scheduler and workers share."""

from dataclasses import dataclass
from typing import Final

DIRECTIONS: Final = ("auto", "top-down", "bottom-up")


@dataclass(frozen=True)
class TraversalSpec:
    """What is to be traversed.

    Attributes:
        run_id: names this attempt; every message carries it.
        sources: vertex ids of distance 0.
        predecessors: whether parents are recorded beside distances.
        backend: name of the backend that runs the phases (``backends.BACKENDS``).
        direction: one of ``DIRECTIONS``.
        max_depth: label no vertex farther than this; None for no bound.
        targets: vertex ids; stop as soon as all of them are labelled. None of them: no such stop.
    """

    run_id: str
    sources: tuple[int, ...]
    predecessors: bool
    backend: str
    direction: str = "auto"
    max_depth: int | None = None
    targets: tuple[int, ...] = ()


def direction_name(bottom_up: bool) -> str:
    """``top-down`` or ``bottom-up``."""
    return DIRECTIONS[1 + bottom_up]
