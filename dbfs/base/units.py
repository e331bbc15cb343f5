"""Bytes, durations and rates as people write them: the one style of messages, tables and pages."""

from __future__ import annotations

import itertools

from dask import utils

# In millions of traversed edges per second.
_RATES = (("TTEPS", 1e6), ("GTEPS", 1e3), ("MTEPS", 1.0), ("kTEPS", 1e-3), ("TEPS", 1e-6))
_SHORT = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
# In seconds. A long duration is written in one of these and the next smaller one.
_LONG = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def format_bytes(size: float) -> str:
    """Write a number of bytes with its binary unit: ``500 B``, ``1.95 KiB``, ``16.00 MiB``."""
    # Dask writes kiB, beside MiB and GiB.
    return str(utils.format_bytes(int(size))).replace("kiB", "KiB")


def format_seconds(seconds: float) -> str:
    """Write a duration with its unit: ``123 µs``, ``1.23 ms``, ``59.9 s``, ``2 min 5 s``, ``3 h 4 min``."""
    # Clocks of two hosts differ, so that the age of something new may be negative.
    seconds = max(seconds, 0.0)
    rounded = float(f"{seconds:.3g}")
    if rounded < 60:
        unit, size = next((pair for pair in _SHORT if rounded >= pair[1]), _SHORT[-1])
        return f"{rounded / size:.3g} {unit}"
    whole = round(seconds)
    (unit, size), (smaller, part) = next(pairs for pairs in itertools.pairwise(_LONG) if whole >= pairs[0][1])
    rest = whole % size // part
    return f"{whole // size:,} {unit}" + (f" {rest} {smaller}" if rest else "")


def format_rate(mteps: float) -> str:
    """Write a rate of traversed edges per second with its unit: ``642 MTEPS``, ``3.09 GTEPS``."""
    rounded = float(f"{mteps:.3g}")
    unit, size = next((pair for pair in _RATES if rounded >= pair[1]), _RATES[-1])
    return f"{rounded / size:.3g} {unit}"
