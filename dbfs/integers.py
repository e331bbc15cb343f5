"""Whole numbers as callers pass them, checked."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from dbfs.errors import InvalidOptionError, InvalidVertexTypeError


def whole_number(value: Any, what: str) -> int:
    """The value as an int.

    Raises:
        InvalidVertexTypeError: not an integer (a float, a bool).
    """
    # A bool is an int to Python, and 1.0 would do as an index to some; neither is meant as a vertex.
    if not isinstance(value, bool | np.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise InvalidVertexTypeError(f"{what} must be an integer, not {value!r} ({type(value).__name__})")


def whole_count(value: Any, what: str, least: int = 0) -> int:
    """The value as an int of at least ``least``.

    Raises:
        InvalidVertexTypeError: not an integer.
        InvalidOptionError: below.
    """
    count = whole_number(value, what)
    if count < least:
        raise InvalidOptionError(f"{what} must be at least {least}, not {count}")
    return count
