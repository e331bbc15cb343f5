"""A model of a traversal's time on CPU ranks: crossings, edges, bytes and rows, fitted to measured points.

The counts are exact: the ranks count, and ``level_counts`` computes the same counts from the edges alone. Only the cost
of each is fitted, by least squares of the relative errors, with no cost below zero. Ranks that share a core take turns
on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.layouts import LayoutCost
from dbfs.errors import InvalidOptionError
from dbfs_workers.storage.grid import Grid

FITTED_RANKS = (1, 2, 4, 16)
"""Numbers of ranks whose points the model is fitted to."""

COSTS = (
    "a crossing of one rank",
    "a crossing of several, times the ranks that share a core",
    "an edge looked at",
    "a byte sent",
    "a row and level",
)
"""The events whose costs, in seconds, ``TimeModel`` has."""


@dataclass(frozen=True)
class TimeModel:
    """The fitted costs.

    Attributes:
        seconds: the cost of each of ``COSTS``.
    """

    seconds: tuple[float, ...]

    @classmethod
    def fit(cls, points: Sequence[LayoutCost]) -> TimeModel:
        """Return the model with the least squares of the relative errors.

        Raises:
            InvalidOptionError: there are fewer points than costs.
        """
        if len(points) < len(COSTS):
            raise InvalidOptionError(
                f"a fit needs at least {len(COSTS)} measurements on {_listed(FITTED_RANKS)} ranks, not {len(points)}; "
                "measure with dbfs bench layouts, --graph and --ranks repeated"
            )
        measured = np.array([point.milliseconds / 1e3 for point in points])
        amounts = np.array([_amounts(point) for point in points])
        scale = amounts.max(axis=0)
        scale[scale == 0] = 1.0
        costs, _ = nnls(amounts / scale / measured[:, None], np.ones(len(points)))
        return cls(tuple((costs / scale).tolist()))

    def predict(self, point: LayoutCost) -> float:
        """Return the milliseconds of a point, from its counts."""
        return float(_amounts(point) @ np.array(self.seconds) * 1e3)


@dataclass(frozen=True)
class Errors:
    """Relative errors of the model over some points.

    Attributes:
        points: number of points.
        median: median of the absolute errors, as parts of the measured times.
        largest: the largest of these.
    """

    points: int
    median: float
    largest: float


@dataclass(frozen=True)
class Trial:
    """A model, and its errors.

    Attributes:
        model: fitted to the points on ``FITTED_RANKS``.
        fitted: errors over these points.
        held_out: errors over all others; None if there are none.
    """

    model: TimeModel
    fitted: Errors
    held_out: Errors | None


def try_model(points: Sequence[LayoutCost]) -> Trial:
    """Fit the model to the points on ``FITTED_RANKS``, and hold it against all others.

    Raises:
        InvalidOptionError: there are too few points.
    """
    fitted = [point for point in points if point.ranks in FITTED_RANKS]
    others = [point for point in points if point.ranks not in FITTED_RANKS]
    model = TimeModel.fit(fitted)
    return Trial(model, _errors(model, fitted), _errors(model, others) if others else None)


def _errors(model: TimeModel, points: Sequence[LayoutCost]) -> Errors:
    sizes = [abs(model.predict(point) / point.milliseconds - 1) for point in points]
    return Errors(len(points), float(np.median(sizes)), max(sizes))


def count_crossings(point: LayoutCost) -> float:
    """Return the crossings of a traversal, about: see ``levels.loop`` and ``levels.grid_loop``."""
    if point.layout == "1d":
        # Before the first bottom-up level the ranks measure the frontier.
        return point.levels + (point.bottom_up_levels > 0)
    return 2 * point.levels + 2 * point.predecessors


def _amounts(point: LayoutCost) -> NDArray[np.float64]:
    """Return how much of each of ``COSTS`` a traversal takes, on the busiest core."""
    used = min(point.ranks, point.cores)
    # A bottom-up level reads the visited bits of the rank's rows, and a rank of the 2-D layout has those of its row.
    rows = Grid.of(point.ranks).columns if point.layout == "2d" else 1
    crossings, alone = count_crossings(point), point.ranks == 1
    return np.array(
        [
            crossings * alone,
            crossings * (not alone) * point.ranks / used,
            point.edges / used,
            point.bytes_sent / used,
            point.n * (1 + rows * point.bottom_up_levels) / used,
        ]
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
