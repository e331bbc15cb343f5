"""Checks of the generators' parameters, and the cut of a number of edges or vertices into equal ranges."""

from operator import index
from typing import SupportsFloat, SupportsIndex

from dbfs.errors import InvalidOptionError

# Ids are exact as float64, and an int64 has room for ids with padding and ranks.
MAX_VERTICES = 2**40
# The number of edges in both directions fits an int64.
MAX_EDGES = 2**60
MAX_SEED = 2**64 - 1


def integer(generator: str, parameter: str, value: SupportsIndex, low: int, high: int) -> int:
    """Return the value as an int.

    Raises:
        InvalidOptionError: the value is not an integer (a bool is not one), or not in low..high.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidOptionError(f"{generator}: {parameter} must be an integer in {low}..{high}, not {value!r}")
    if not low <= (number := index(value)) <= high:
        raise InvalidOptionError(f"{generator}: {parameter} must be in {low}..{high}, not {number}")
    return number


def number(generator: str, parameter: str, value: object, low: float, high: float) -> float:
    """Return the value as a float.

    Raises:
        InvalidOptionError: the value is not a number (a bool is not one), or not in low..high.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsFloat) or isinstance(value, str):
        raise InvalidOptionError(f"{generator}: {parameter} must be a number in {low}..{high}, not {value!r}")
    if not low <= (found := float(value)) <= high:
        raise InvalidOptionError(f"{generator}: {parameter} must be in {low}..{high}, not {found!r}")
    return found


def boolean(generator: str, parameter: str, value: object) -> bool:
    """Return the value, a bool.

    Raises:
        InvalidOptionError: the value is not a bool.
    """
    if not isinstance(value, bool):
        raise InvalidOptionError(f"{generator}: {parameter} must be true or false, not {value!r}")
    return value


def even_ranges(total: int, at_most: int) -> list[tuple[int, int]]:
    """Cut 0..total-1 into the fewest ranges [start, stop) of about equal length and at most ``at_most`` (1 or more).

    If total is 0, the result is one empty range.
    """
    pieces = max(1, -(-total // at_most))
    return [(total * i // pieces, total * (i + 1) // pieces) for i in range(pieces)]
