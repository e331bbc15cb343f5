"""Checks of the integers that callers pass: options and vertex ids."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from dbfs.errors import DbfsError, InvalidOptionError, InvalidOptionTypeError, InvalidVertexTypeError


def whole_number(value: Any, what: str) -> int:
    """Return the value of the option ``what`` as an int.

    Raises:
        InvalidOptionTypeError: the value is not an integer (a float, a bool).
    """
    return _integer(value, what, InvalidOptionTypeError)


def whole_count(value: Any, what: str, least: int = 0) -> int:
    """Return the value of the option ``what`` as an int of at least ``least``.

    Raises:
        InvalidOptionTypeError: the value is not an integer (a float, a bool).
        InvalidOptionError: the value is below ``least``.
    """
    count = whole_number(value, what)
    if count < least:
        raise InvalidOptionError(f"{what} must be at least {least}, not {count}")
    return count


def vertex_number(value: Any, what: str) -> int:
    """Return a vertex id or an external id as an int; ``what`` is its name in the message.

    Raises:
        InvalidVertexTypeError: the value is not an integer (a float, a bool).
    """
    return _integer(value, what, InvalidVertexTypeError)


def _integer(value: Any, what: str, error: type[DbfsError]) -> int:
    # Python takes a bool as an int, and some code takes 1.0 as an index. Callers mean neither as an integer.
    if not isinstance(value, bool | np.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise error(f"{what} must be an integer, not {value!r} ({type(value).__name__})")
