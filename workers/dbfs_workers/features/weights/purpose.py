"""Shortest paths by weight as the purpose of a run."""

from dataclasses import dataclass
from typing import Final

from dbfs_workers.base.spec import Purpose, RunBytes, RunSpec, TraversalSpec

Number = int | float

LEAST_SHARED: Final = 1 << 12
"""Vertices of a near pile beyond which several threads relax its edges: one takes a tenth of a millisecond or more."""

LEAST_THREADS: Final = 3
"""Threads of a rank from which on they share rounds: locks make all of the work 1.6 times as long."""

_ID_BYTES: Final = 8 + 4 + 1 + 4
"""Bytes of a rank for each id of the graph: distance, parent, flags, a place in the lists of changes."""

_ROW_BYTES: Final = 3 * 4
"""Bytes for each of its rows: two queues and the far pile."""

_GPU_BYTES: Final = 2 * 8 + 1
"""Bytes of a row on a GPU: a key, the one that was relaxed last, and three bitmaps."""

_MAPPED_BYTES: Final = 8 + 4 + 1
"""Bytes of one of several GPUs for each id of the graph: a key, a parent, and two bitmaps."""

_LIMIT_BYTES: Final = 2 * 8
"""Bytes of a row for the time in which limits are made of floats, once two searches have met."""

_LABEL_BYTES: Final = 8 + 4
"""Bytes of the labels of a row."""


@dataclass(frozen=True)
class Weighted(Purpose):
    """A run whose distances are sums of a column of weights. Its traversals stop when all targets are final.

    Attributes:
        column: the column's name.
        max_distance: the largest distance to label; None for no bound.
        delta: the width of a bucket, in the column's unit; None for the rule of ``delta``.
        path: whether only the path to the target is wanted, of which there is one. Other labels may be wrong.
    """

    column: str
    max_distance: Number | None = None
    delta: Number | None = None
    path: bool = False

    def nbytes(self, specs: RunSpec, traversals: int, ranks: int, rows: int) -> RunBytes:
        searches = _ID_BYTES * ranks * rows + _ROW_BYTES * rows
        if self.path:
            searches = 2 * searches + _LIMIT_BYTES * rows
        if specs.options.backend == "cuda":
            searches = _GPU_BYTES * rows + _MAPPED_BYTES * (ranks * rows if ranks > 1 else 0)
        return RunBytes(
            searches + traversals * _LABEL_BYTES * rows,
            f"the distances of {traversals:,} traversals by {self.column!r}",
            "traverse from fewer sources at a time",
        )


def weighted(spec: TraversalSpec) -> Weighted:
    """Return the purpose of a spec of such a run."""
    assert isinstance(spec.purpose, Weighted)
    return spec.purpose
