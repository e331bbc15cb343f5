"""Graph500's statistics and their output, computed and printed as the reference code (version 3) does.

A line is a name, a colon and, from column 33 on, a number: numbers of edges as ``%.11g``, all others as ``%g``. The
line of the harmonic mean has an exclamation mark before its number.
"""

import math
from collections.abc import Mapping, Sequence

_ORDER = ("min", "firstquartile", "median", "thirdquartile", "max")
_NUMBER_COLUMN = 32
_HARMONIC_TEPS = "harmonic_mean_TEPS"


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return order statistics, mean and sample standard deviation (0 for a single value), by the output's names.

    A quartile that falls between two values is their mean.
    """
    x, n = sorted(values), len(values)
    mean = math.fsum(x) / n
    return {
        "min": x[0],
        "firstquartile": (x[(n - 1) // 4] + x[n // 4]) / 2,
        "median": (x[(n - 1) // 2] + x[n // 2]) / 2,
        "thirdquartile": (x[n - 1 - (n - 1) // 4] + x[n - 1 - n // 4]) / 2,
        "max": x[-1],
        "mean": mean,
        "stddev": math.sqrt(math.fsum((value - mean) ** 2 for value in x) / (n - 1)) if n > 1 else 0.0,
    }


def statistics(
    seconds: Mapping[str, Sequence[float]],
    edges: Sequence[int],
    validation_seconds: Mapping[str, Sequence[float]],
) -> dict[str, float]:
    """Return the results of searches by their names in the output, in its order.

    Rates are computed from the times per edge, so that their mean is the harmonic mean. Its standard deviation is
    Norris's ("The Standard Errors of the Geometric and Harmonic Means", 1940), 0 for a single search.

    Args:
        seconds: the searches' times by kernel: ``bfs``, and perhaps ``sssp``.
        edges: of each search, for all kernels.
        validation_seconds: the validations' times by kernel.
    """
    rates = {kernel: _rates(times, edges) for kernel, times in seconds.items()}
    return {
        **{
            f"{kernel:4} {name}_time": value
            for kernel, times in seconds.items()
            for name, value in summary(times).items()
        },
        **{f"{name}_nedge": value for name, value in summary(edges).items()},
        **{f"{kernel:4} {name}_TEPS": value for kernel, found in rates.items() for name, value in found.items()},
        **{
            f"{kernel:4} {name}_validate": value
            for kernel, times in validation_seconds.items()
            for name, value in summary(times).items()
        },
    }


def _rates(seconds: Sequence[float], edges: Sequence[int]) -> dict[str, float]:
    n = len(seconds)
    # The longest time per edge is the lowest rate.
    pace = summary([time / count for time, count in zip(seconds, edges, strict=True)])
    rates = {name: 1 / pace[slower] for name, slower in zip(_ORDER, reversed(_ORDER), strict=True)}
    rates["harmonic_mean"] = 1 / pace["mean"]
    rates["harmonic_stddev"] = pace["stddev"] / (pace["mean"] ** 2 * math.sqrt(n - 1)) if n > 1 else 0.0
    return rates


def block(results: Mapping[str, float]) -> str:
    """Return named results as lines of text."""
    return "\n".join(_line(name, value) for name, value in results.items())


def _line(name: str, value: float) -> str:
    number = f"{value:.11g}" if name.endswith("_nedge") or isinstance(value, int) else f"{value:g}"
    head = f"{name}:"
    if name.endswith(_HARMONIC_TEPS):
        return f"{head:<{_NUMBER_COLUMN - 3}}!  {number}"
    return f"{head:<{_NUMBER_COLUMN}}{number}"
