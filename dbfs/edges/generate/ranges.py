"""What the generators share: checked parameters, and equal ranges to cut into."""

from operator import index
from typing import SupportsFloat, SupportsIndex

from dbfs.errors import InvalidOptionError

# Ids stay exact as float64 and leave an int64 room for padding and ranks.
MAX_VERTICES = 2**40
# Both directions of this many edges can still be counted in an int64.
MAX_EDGES = 2**60
MAX_SEED = 2**64 - 1


def integer(generator: str, parameter: str, value: SupportsIndex, low: int, high: int) -> int:
    """The value as an int.

    Raises:
        InvalidOptionError: it is not an integer (a bool is none), or not in low..high.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidOptionError(f"{generator}: {parameter} must be an integer in {low}..{high}, not {value!r}")
    if not low <= (number := index(value)) <= high:
        raise InvalidOptionError(f"{generator}: {parameter} must be in {low}..{high}, not {number}")
    return number


def number(generator: str, parameter: str, value: object, low: float, high: float) -> float:
    """The value as a float.

    Raises:
        InvalidOptionError: it is not a number (a bool is none), or not in low..high.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsFloat) or isinstance(value, str):
        raise InvalidOptionError(f"{generator}: {parameter} must be a number in {low}..{high}, not {value!r}")
    if not low <= (found := float(value)) <= high:
        raise InvalidOptionError(f"{generator}: {parameter} must be in {low}..{high}, not {found!r}")
    return found


def boolean(generator: str, parameter: str, value: object) -> bool:
    """The value, a bool.

    Raises:
        InvalidOptionError: it is not a bool.
    """
    if not isinstance(value, bool):
        raise InvalidOptionError(f"{generator}: {parameter} must be true or false, not {value!r}")
    return value


def even_ranges(total: int, at_most: int) -> list[tuple[int, int]]:
    """Cut 0..total-1 into ranges [start, stop) of about equal length.

    As few ranges as hold at most ``at_most`` (1 or more) each, and one empty range where total is 0.
    """
    pieces = max(1, -(-total // at_most))
    return [(total * i // pieces, total * (i + 1) // pieces) for i in range(pieces)]
