"""The width of a bucket, by the rules of docs/decisions/weights.md."""

from typing import Any, Final, NamedTuple

import numpy as np

from dbfs_workers.features.weights.purpose import Number


class Rule(NamedTuple):
    """Mean weights of a bucket: a factor, over the mean degree raised to a power; or the least, if that is more."""

    factor: float
    power: float
    least: float = 0.0


CPU: Final = Rule(16.0, 1.5)

GPU: Final = Rule(160.0, 2.0, 1 / 16)
"""Few vertices leave most of a GPU idle, so that wide buckets pay for roads."""


def delta_for(mean: float, degree: float, dtype: np.dtype[Any], rule: Rule = CPU) -> Number:
    """Return the width of a bucket.

    With few edges a vertex, wide buckets spare rounds. With many, a bucket of several edges' weights relaxes most edges
    more than once.

    Args:
        mean: the mean of all weights.
        degree: the mean degree of the vertices with edges.
        dtype: the type of the weights.
        rule: the rule of the device.
    """
    width = mean * max(rule.least, rule.factor / max(degree, 1.0) ** rule.power)
    return int(min(width, 2**62)) if dtype.kind == "i" else float(dtype.type(min(width, float(np.finfo(dtype).max))))
