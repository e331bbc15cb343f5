"""The counts and times of a level. Each count is declared once, in ``Row``, with the rule by which counts are joined.

Counts of several ranks, or of several levels in a row of sums, become one by ``join``.
"""

import ctypes
import enum
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)

_TYPES: Final[dict[type, Any]] = {int: ctypes.c_int64, float: ctypes.c_double, bool: ctypes.c_bool}


class Rule(enum.Enum):
    """How a count of several ranks, or of several levels, is made of theirs."""

    TOTAL = enum.auto()
    LARGEST = enum.auto()


Total = Annotated[int, Rule.TOTAL]
Largest = Annotated[int, Rule.LARGEST]


def rules(record: type) -> dict[str, Rule]:
    """Return the rules of a record's counts by name, in the order of their fields."""
    hints = get_type_hints(record, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def largest(record: type) -> tuple[int, ...]:
    """Return the places of those counts of a record that are joined by ``Rule.LARGEST``."""
    return tuple(place for place, rule in enumerate(rules(record).values()) if rule is Rule.LARGEST)


def structured(record: type[ctypes.Structure]) -> np.dtype[Any]:
    """Give a record the fields that its annotations name; return its type as NumPy's."""
    hints = get_type_hints(record)
    record._fields_ = [(name, _TYPES[kind]) for name, kind in hints.items() if kind in _TYPES]
    return np.dtype(record)


class Row(ctypes.Structure):
    """One rank's counts and times of a level, or of several in a row of sums. All zero at the beginning of a level.

    ``edges == filtered + own + sent``. In a top-down level the vertices discovered are those of the own bin and of the
    received bins, less ``culled``. In a bottom-up level they are the ``own`` ones. The fields from ``received`` on are
    not reported.

    Attributes:
        bottom_up: 1 if the level is bottom-up.
        frontier: vertices expanded.
        edges: edges inspected.
        filtered: neighbours dropped by this rank's visited bitmap: visited before, or duplicates within the level.
        own: vertices kept for the rank itself.
        sent: vertices sent to other ranks.
        culled: received vertices that had been visited already, by this rank or by another's bin.
        discovered: vertices labelled.
        bytes_sent: bytes of the bins, or of the bitmap slices, for other ranks.
        largest_frontier: the largest ``frontier`` of a level and a rank: over the mean, how uneven the work is, but for
            levels that one rank leads: on CPU cores that rank has all of the frontier, on GPUs its own part.
        search, exchange, contract: seconds: see ``TIME_FIELDS``.
        received: vertices that peers binned for this rank.
        levels: number of levels.
        led: how many of these were led.
    """

    bottom_up: Total
    frontier: Total
    edges: Total
    filtered: Total
    own: Total
    sent: Total
    culled: Total
    discovered: Total
    bytes_sent: Total
    largest_frontier: Largest
    search: float
    exchange: float
    contract: float
    received: int
    levels: int
    led: int


ROW: Final = structured(Row)
"""``Row`` as NumPy's."""

COUNT_FIELDS: Final = tuple(rules(Row))
"""Columns of the counts. A bottom-up level's ``edges`` are the edges that it looked at. Its ``own`` equals its
``discovered``, and its ``bytes_sent`` are bitmap slices."""

TIME_FIELDS: Final = tuple(name for name, kind in get_type_hints(Row).items() if kind is float)
"""Columns of the times: seconds of a level's work on its own edges (expand, filter + partition and the contraction of
the own bin; or the bottom-up search), of sending to peers and waiting for them, and of the contraction of the peers'
bins. The host waits once a level for a GPU's batch, so that ``contract`` has most of its search."""

LARGEST: Final = largest(Row)
"""Columns of the counts that are joined by ``Rule.LARGEST``."""

NEXT_FRONTIER: Final = "next frontier"
"""Name of an extra column for ``EXPECTED``: the frontier of the next level."""

EXPECTED: Final = {
    "discovered": {NEXT_FRONTIER: 1},
    "own": {"discovered": 1, "culled": 1, "sent": -1},
    "filtered": {"edges": 1, "own": -1, "sent": -1},
    "bytes_sent": {"sent": 4},
    "largest_frontier": {"frontier": 1},
}
"""Expected value of a count: a sum of others, each times a factor. As expected, it takes no room in a report.

Unpacking goes from top to bottom, so a count may depend on keys above its own only. An expectation need not hold: a
bottom-up level sends slices, and a CPU drops received vertices that it had visited."""

_COUNTED: Final = len(COUNT_FIELDS)
_TIMED: Final = _COUNTED + len(TIME_FIELDS)

Tables = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Counts int64[rows, len(COUNT_FIELDS)] and seconds float64[rows, len(TIME_FIELDS)]."""


def tables(rows: NDArray[Any]) -> Tables:
    """Return views of ROW[rows] as the tables of a report."""
    words = rows.view(np.int64).reshape(-1, ROW.itemsize // 8)
    return words[:, :_COUNTED], words[:, _COUNTED:_TIMED].view(np.float64)


def join(rows: NDArray[N], firsts: Sequence[int] | NDArray[np.int64], places: Sequence[int]) -> NDArray[N]:
    """Join stretches of rows, or of tables, along their first axis.

    Args:
        rows: [rows, ..., fields]; at least one row.
        firsts: the first row of each stretch, ascending.
        places: the fields that are joined by ``Rule.LARGEST``: ``LARGEST`` of ``Row``'s counts, else what ``largest``
            returned. Sums are made of the others.

    Returns:
        [stretches, ..., fields].
    """
    joined: NDArray[N] = np.add.reduceat(rows, firsts)
    for place in places:
        joined[..., place] = np.maximum.reduceat(rows[..., place], firsts)
    return joined
