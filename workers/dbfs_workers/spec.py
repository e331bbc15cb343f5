"""The description of a traversal that clients, the scheduler and workers share."""

from dataclasses import dataclass
from typing import Final

DIRECTIONS: Final = ("auto", "top-down", "bottom-up")


@dataclass(frozen=True)
class TraversalSpec:
    """One traversal: where it starts, what it records, and where it stops.

    Attributes:
        run_id: id of this attempt, which every message carries.
        sources: vertex ids of distance 0.
        predecessors: whether parents are recorded beside distances.
        backend: name of the backend that runs the phases (``backends.BACKENDS``).
        direction: one of ``DIRECTIONS``.
        max_depth: largest distance to label; None for no bound.
        targets: vertex ids; the traversal stops as soon as all of them are labelled. Empty for no such stop.
    """

    run_id: str
    sources: tuple[int, ...]
    predecessors: bool
    backend: str
    direction: str = "auto"
    max_depth: int | None = None
    targets: tuple[int, ...] = ()


def direction_name(bottom_up: bool) -> str:
    """Return ``top-down`` or ``bottom-up``."""
    return DIRECTIONS[1 + bottom_up]
