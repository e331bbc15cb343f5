"""Keys of distances: an integer itself, a float the bits of its type. The order of keys is that of the distances."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dbfs_workers.features.weights.purpose import Number

NONE: Final = 2**63 - 1
"""The key of no vertex: that of an unreached one, where distances are integers without a bound."""

PAST: Final = NONE - 1
"""The key of an integer distance that int64 does not hold."""


def number_of(key: int, dtype: np.dtype[Any]) -> Number:
    """Return the distance of a key."""
    return np.array([key], f"i{dtype.itemsize}").view(dtype)[0].item()  # type: ignore[no-any-return]


def key_of(number: Number, dtype: np.dtype[Any]) -> int:
    """Return the key of a distance."""
    return int(np.array([number], dtype).view(f"i{dtype.itemsize}")[0])


def largest(number: Number, dtype: np.dtype[Any]) -> Number:
    """Return the largest number of a type that is not above a given one, which is at least 0."""
    if dtype.kind == "i":
        return min(int(number), NONE - 1) if number < NONE else NONE - 1
    rounded = dtype.type(number)
    return rounded.item() if rounded <= number else np.nextafter(rounded, dtype.type(0)).item()  # type: ignore[no-any-return]


def first_unreached(most: Number | None, dtype: np.dtype[Any]) -> int:
    """Return the key of an unreached vertex, from which on distances are not labelled; ``most`` is the largest one."""
    unreached = NONE if dtype.kind == "i" else key_of(np.inf, dtype)
    return unreached if most is None else min(unreached, key_of(largest(most, dtype), dtype) + 1)
