"""Ids as Python's values, such as the nodes of a NetworkX graph: all integers, all strings, or all tuples of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs.errors import EdgeInputError

if TYPE_CHECKING:
    import pyarrow as pa


def columns_of(values: Sequence[Any], what: str) -> list[pa.Array]:
    """Return ids as Arrow arrays: int64 or ``large_string``; an array for each part of ids that are tuples.

    Args:
        values: integers (NumPy's too), strings, or tuples of one length of these. No values are integers.
        what: what a value is, for messages, such as ``node``.

    Raises:
        EdgeInputError: the values are of several types, of another type, or past int64.
    """
    kinds = set(map(type, values))
    if kinds and all(issubclass(kind, tuple) for kind in kinds):
        lengths = sorted(set(map(len, values)))
        if len(lengths) > 1 or lengths[0] == 0:
            words = f"a {what} is a tuple of length {lengths[0]}, and another of length {lengths[-1]}"
            raise EdgeInputError(f"{words}; expected one length, 1 or more")
        return [_column(part, f"part {place} of a {what}") for place, part in enumerate(zip(*values, strict=True))]
    return [_column(values, what)]


def _column(values: Sequence[Any], what: str) -> pa.Array:
    import pyarrow as pa

    kinds = set(map(type, values))
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowInvalid, OverflowError):
            wide = next(value for value in values if not -(1 << 63) <= int(value) < 1 << 63)
            raise EdgeInputError(
                f"a {what} is {wide}; integer ids are 0 to 2^63-1. As strings any id will do"
            ) from None
    if all(issubclass(kind, str) for kind in kinds):
        try:
            return pa.array(values, pa.large_string())
        except UnicodeEncodeError as error:
            raise EdgeInputError(f"a {what} is no text that UTF-8 can hold: {error.object!r}") from None
    names = sorted(kind.__name__ for kind in kinds)
    raise EdgeInputError(
        f"a {what} is of type {' or '.join(names[:4])}; ids are all integers, all strings, or all tuples of these"
    )
