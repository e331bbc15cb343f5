"""The report of a strategy's traversal, made from its labels, levels and counters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.lab.enactor import Enactor, Level
from dbfs_workers.features.lab.layout import LabCounter
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import ROW, CountedLevels, RankRun, tables

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
    rows, new = np.zeros(len(levels), ROW), discovered[1 : len(levels) + 1]
    for counted, field in (("frontier", "frontier"), ("edges", "edges"), ("kept", "own"), ("seconds", "search")):
        rows[field] = [getattr(level, counted) for level in levels]
    rows["largest_frontier"] = rows["frontier"]
    rows["filtered"], rows["culled"], rows["discovered"] = rows["edges"] - rows["own"], rows["own"] - new, new
    return RankRun(
        labels=labels,
        levels=CountedLevels.of(*tables(rows)),
        reached=int(discovered.sum()),
        edges=int(degrees[found].sum()),
        depth=int(np.flatnonzero(discovered).max(initial=0)),
        elapsed=elapsed,
        setup=setup,
        version=version,
        counters=counters,
    )
