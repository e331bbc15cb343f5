"""The report of a strategy's traversal, made from its labels, levels and counters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.lab.enactor import Enactor, Level
from dbfs_workers.features.lab.layout import LabCounter
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun

# Counters of a result, by name: all but the lengths of queues.
_NAMED = {counter.name.lower(): counter for counter in LabCounter if not counter.name.startswith(("QUEUED", "TILES"))}


def counters_of(run: Enactor, reached: int) -> tuple[tuple[str, int], ...]:
    """Return the counters of a traversal by name, with ``duplicates`` (labels written again) and ``bytes`` (memory)."""
    named = {name: int(run.totals[counter]) for name, counter in _NAMED.items()}
    # The strategies that label the source on the host do not count it.
    discovered = reached - (0 if run.policy.strategy in ("contract-expand", "hybrid") else 1)
    return tuple({**named, "duplicates": named["labelled"] - discovered, "bytes": run.problem.nbytes}.items())


def rank_run(
    labels: RankLabels,
    degrees: Any,
    levels: Sequence[Level],
    counters: tuple[tuple[str, int], ...],
    *,
    host: Any,
    elapsed: float,
    setup: float,
    version: int,
) -> RankRun:
    """Return the report of a strategy's traversal.

    Args:
        labels: labels of the traversal.
        degrees: int64[rows], in the memory of the labels.
        levels: counts and times by level.
        counters: see ``counters_of``.
        host: copies an array of the device to the host.
        elapsed: seconds of the levels.
        setup: seconds before them.
    """
    found = labels.distances >= 0
    discovered: NDArray[np.int64] = np.bincount(host(labels.distances[found]), minlength=len(levels) + 1)
    table = np.zeros((len(levels), len(COUNT_FIELDS)), np.int64)
    for row, level, new in zip(table, levels, discovered[1 : len(levels) + 1], strict=True):
        # In the order of COUNT_FIELDS: bottom_up, frontier, edges, filtered, own, sent, culled, discovered, bytes_sent.
        row[:] = (0, level.frontier, level.edges, level.edges - level.kept, level.kept, 0, level.kept - new, new, 0)
    seconds = np.zeros((len(levels), len(TIME_FIELDS)), np.float64)
    seconds[:, 0] = [level.seconds for level in levels]
    return RankRun(
        labels=labels,
        levels=CountedLevels.of(table, seconds),
        reached=int(discovered.sum()),
        edges=int(degrees[found].sum()),
        depth=int(np.flatnonzero(discovered).max(initial=0)),
        elapsed=elapsed,
        setup=setup,
        version=version,
        counters=counters,
    )
