"""The width of a bucket, by the rule of docs/decisions/weights.md."""

from typing import Any, Final

import numpy as np

from dbfs_workers.features.weights.purpose import Number

_FACTOR: Final = 16.0
_POWER: Final = 1.5


def delta_for(mean: float, degree: float, dtype: np.dtype[Any]) -> Number:
    """Return the width of a bucket.

    With few edges a vertex, wide buckets spare rounds. With many, a bucket of several edges' weights relaxes most edges
    more than once.

    Args:
        mean: the mean of all weights.
        degree: the mean degree of the vertices with edges.
        dtype: the type of the weights.
    """
    width = mean * _FACTOR / max(degree, 1.0) ** _POWER
    return int(min(width, 2**62)) if dtype.kind == "i" else float(dtype.type(min(width, float(np.finfo(dtype).max))))
