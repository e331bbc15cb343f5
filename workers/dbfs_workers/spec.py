"""The description of a traversal that clients, the scheduler and workers share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

DIRECTIONS: Final = ("auto", "top-down", "bottom-up")


@dataclass(frozen=True)
class TraversalSpec:
    """One traversal: where it starts, what it records, and where it stops.

    Attributes:
        run_id: id of this attempt, which every message carries.
        sources: vertices of distance 0. On the ranks: positions, if the graph is ordered by degree; see ``renumbered``.
        predecessors: whether parents are recorded as well as distances.
        backend: name of the backend that runs the phases (``backends.BACKENDS``).
        direction: one of ``DIRECTIONS``.
        max_depth: largest distance to label; None for no bound.
        targets: vertices, numbered as the sources; the traversal stops as soon as all of them are labelled. Empty for
            no such stop.
        strategy: a strategy of the laboratory with its options (``dbfs_workers.lab.strategies``); empty for the engine.
        repairs: run id and index of an earlier traversal with the same options, whose labels are repaired; None for
            a new traversal.
    """

    run_id: str
    sources: tuple[int, ...]
    predecessors: bool
    backend: str
    direction: str = "auto"
    max_depth: int | None = None
    targets: tuple[int, ...] = ()
    strategy: str = ""
    repairs: tuple[str, int] | None = None


def renumbered(
    specs: Sequence[TraversalSpec], positions: Callable[[Sequence[int]], Sequence[int]]
) -> list[TraversalSpec]:
    """Return specs with each vertex replaced by its position in the order by degree.

    Args:
        specs: the specs, of vertices.
        positions: returns the positions of vertices. Called once.
    """
    found = iter(positions([vertex for spec in specs for vertex in (*spec.sources, *spec.targets)]))
    return [
        replace(
            spec,
            sources=tuple(next(found) for _ in spec.sources),
            targets=tuple(next(found) for _ in spec.targets),
        )
        for spec in specs
    ]


def direction_name(bottom_up: bool) -> str:
    """Return ``top-down`` or ``bottom-up``."""
    return DIRECTIONS[1 + bottom_up]
