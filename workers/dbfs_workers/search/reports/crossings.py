"""What the ranks tell each other at a crossing: a record each, whose counts have names and rules.

``Exchange.cross`` takes a rank's record, and returns the record of all ranks, joined by the rules of ``counts``. A
record has at most ``COUNTS`` counts. Features declare their own. Kernels find a count by its ``place``.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.reports.counts import Largest, Total, join, largest

COUNTS: Final = 5
"""Words for the counts of a crossing. A record's digest and its counts share a cache line (``exchange.segment``)."""

C = TypeVar("C", bound=NamedTuple)


class Nothing(NamedTuple):
    """No counts: the ranks wait for each other."""


class Sum(NamedTuple):
    """A sum alone."""

    total: Total


class Most(NamedTuple):
    """The largest number of any rank."""

    most: Largest


class Start(NamedTuple):
    """The crossing before the first level.

    Attributes:
        vertices: sources.
        edges: the graph's edges.
        missing: targets without a label.
        max_degree: the largest degree.
        led: most vertices of a led level that the rank wants, 0 if no level can be led; the values of the ranks count,
            one by one. From rank 0 ``STOP``: the run stops before this traversal.
    """

    vertices: Total
    edges: Total
    missing: Total
    max_degree: Largest
    led: Largest


STOP: Final = -1
"""See ``Start.led``."""


class Found(NamedTuple):
    """The crossing with the bins of a top-down level.

    Attributes:
        vertices: vertices found. One that two ranks found counts twice.
        edges: edges inspected.
        knowing: 1 if the rank has visited the witness of the targets.
        unfinished: 1 if a full bin ended the rank's work early.
    """

    vertices: Total
    edges: Total
    knowing: Largest = 0
    unfinished: Largest = 0


class Measured(NamedTuple):
    """The crossing with the exact size of a frontier.

    Attributes:
        vertices: vertices of the frontier.
        edges: the sum of their degrees.
        missing: targets without a label.
        witness: the internal id of a target without a label, plus 1; 0 for none.
        searched: edges that the bottom-up level inspected which has made the frontier.
    """

    vertices: Total
    edges: Total
    missing: Total = 0
    witness: Largest = 0
    searched: Total = 0


class Led(NamedTuple):
    """The crossing at the end of led levels, at which the leader tells all ranks what it has done.

    Attributes:
        levels: levels that were led.
        vertices: from the leader, vertices of the next frontier; before, from each other rank, its part of the first.
        expanded, unexplored, measured: see ``State``.
    """

    levels: Total = 0
    vertices: Total = 0
    expanded: Total = 0
    unexplored: Total = 0
    measured: Largest = 0


def place(kind: type[NamedTuple], name: str) -> int:
    """Return the place of a count among those of its record."""
    return kind._fields.index(name)


@cache
def largest_bits(kind: type[NamedTuple]) -> int:
    """Return the bits of those places of a record whose counts are joined by ``Rule.LARGEST``, for kernels."""
    return sum(1 << at for at in largest(kind))


def of_ranks(kind: type[C], gathered: NDArray[np.int64]) -> list[C]:
    """Return the records of all ranks, given what an exchange gathered at its last crossing."""
    return [kind._make(words) for words in gathered[:, : len(kind._fields)].tolist()]


def joined(kind: type[C], gathered: NDArray[np.int64]) -> C:
    """Return the record of all ranks together, given what an exchange gathered at its last crossing."""
    size = len(kind._fields)
    return kind._make(join(gathered[:, :size], (0,), _places(kind))[0].tolist() if size else ())


@cache
def _places(kind: type[NamedTuple]) -> Sequence[int]:
    return largest(kind)
