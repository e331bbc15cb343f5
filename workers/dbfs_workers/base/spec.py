"""The description of a traversal, and of a run of several, that clients, the scheduler and workers share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import ClassVar, Final, NamedTuple, overload

from dbfs_workers.base.errors import InvalidOptionError

DIRECTIONS: Final = ("auto", "top-down", "bottom-up")

TraversalPlace = tuple[str, int]
"""Run id of a traversal, and its index in the run."""


class RunBytes(NamedTuple):
    """The memory of a rank for a run whose results are not the labels of traversals.

    Attributes:
        needed: bytes for the work, and for all that is kept.
        what: what needs the bytes, as the subject of a sentence in the plural.
        way: what a caller can do who is refused, as a clause.
    """

    needed: int
    what: str
    way: str


class Purpose:
    """What a run makes in the place of new traversals. Features subclass it, with frozen dataclasses that are pickled.

    The parts of a rank's member make such runs: see ``search.members.part``.

    Attributes:
        by_source: whether each source is traversed from by itself, so that progress counts sources.
    """

    by_source: ClassVar[bool] = False

    @property
    def replaced(self) -> TraversalPlace | None:
        """The earlier traversal whose labels the run replaces; None if it replaces none."""
        return None

    def nbytes(self, specs: "RunSpec", traversals: int, ranks: int, rows: int) -> RunBytes | None:  # noqa: ARG002
        """Return the memory that a rank needs; None if the results are the labels of traversals.

        Args:
            specs: some traversals of the run.
            traversals: number of traversals, those that follow included.
            rows: rows of each rank.
        """
        return None


@dataclass(frozen=True)
class TraversalSpec:
    """One traversal: where it starts, what it records, and where it stops.

    Attributes:
        run_id: id of this attempt, which every message carries.
        sources: vertices of distance 0. On the ranks: positions, if the graph is ordered by degree; see ``RunSpec``.
        predecessors: whether parents are recorded as well as distances.
        backend: name of the backend that runs the phases (``backends.BACKENDS``).
        direction: one of ``DIRECTIONS``.
        max_depth: largest distance to label; None for no bound.
        targets: vertices, numbered as the sources; the traversal stops as soon as all of them are labelled. Empty for
            no such stop.
        purpose: what is made instead; None for a new traversal from all sources at once.
    """

    run_id: str
    sources: tuple[int, ...]
    predecessors: bool
    backend: str
    direction: str = "auto"
    max_depth: int | None = None
    targets: tuple[int, ...] = ()
    purpose: Purpose | None = None


@dataclass(frozen=True)
class RunSpec(Sequence[TraversalSpec]):
    """The traversals of a run, which differ in their sources only. A sequence of their specs, each made when taken.

    A batch of 64 travels as one spec and 64 sources: 64 specs would take longer to send than a traversal takes.

    Attributes:
        options: the spec of every traversal but for the sources.
        sources: the sources of each traversal.
    """

    options: TraversalSpec
    sources: tuple[tuple[int, ...], ...]

    @classmethod
    def single(cls, spec: TraversalSpec) -> "RunSpec":
        """Return a run of one traversal."""
        return cls(spec, (spec.sources,))

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> TraversalSpec: ...

    @overload
    def __getitem__(self, index: slice) -> "RunSpec": ...

    def __getitem__(self, index: int | slice) -> "TraversalSpec | RunSpec":
        if isinstance(index, slice):
            return RunSpec(self.options, self.sources[index])
        return self._spec(self.sources[index])

    def __iter__(self) -> Iterator[TraversalSpec]:
        return map(self._spec, self.sources)

    def _spec(self, sources: tuple[int, ...]) -> TraversalSpec:
        # ``dataclasses.replace`` takes four times as long.
        spec = object.__new__(TraversalSpec)
        vars(spec).update(vars(self.options), sources=sources)
        return spec

    def renumbered(self, positions: Callable[[Sequence[int]], Sequence[int]]) -> "RunSpec":
        """Return the run with each vertex replaced by its position in the order by degree.

        Args:
            positions: returns the positions of vertices. Called once.
        """
        targets = self.options.targets
        found = iter(positions([*chain.from_iterable(self.sources), *targets]))
        sources = tuple(tuple(islice(found, len(each))) for each in self.sources)
        return RunSpec(replace(self.options, targets=tuple(found)), sources)


def direction_name(bottom_up: bool) -> str:
    """Return ``top-down`` or ``bottom-up``."""
    return DIRECTIONS[1 + bottom_up]


def require_direction(spec: TraversalSpec, *, in_edges: bool) -> None:
    """Refuse a direction that a traversal can't have.

    Args:
        in_edges: whether the partition has what bottom-up levels need.

    Raises:
        InvalidOptionError: the direction is unknown, or is bottom-up and ``in_edges`` is False.
    """
    if spec.direction not in DIRECTIONS:
        raise InvalidOptionError(f"unknown direction {spec.direction!r}; choose one of {', '.join(DIRECTIONS)}")
    if spec.direction == "bottom-up" and not in_edges:
        raise InvalidOptionError("bottom-up levels of a directed graph need its in-edges: load it with in_edges=True")
