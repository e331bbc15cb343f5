"""The repair of one rank's labels on its GPU (``kernels/repair.cu``). See ``repair`` for CPUs."""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.living.change_log import EdgeChanges
from dbfs_workers.features.living.kernels.sources import REPAIR
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.cuda.module import Launch, load
from dbfs_workers.search.partition.labels import ChangedRows, RankLabels
from dbfs_workers.search.partition.stripe import WORD_BITS

# The share of a new traversal's time that a repair may take, its preparation included, before a new traversal takes its
# place. Repair and new traversal together are to take at most 1.2 times as long as the traversal alone, and the new one
# begins with colder caches.
_SHARE: Final = 0.12
# A traversal of less time is made anew: to prepare a repair takes 0.1 ms.
_LEAST_SECONDS: Final = 1e-3
# Rows that may lose their distance, or come nearer in one round: this part of all rows, or this many if that is more. A
# repair that changes more of them takes longer than a traversal.
_ROWS_SHARE: Final = 1 / 4
_LEAST_ROWS: Final = 1 << 16
# Most rows of a round that one block makes alone, at most ``kFew`` of repair.cu. That block takes 256 rows of a road
# network at a time; the barriers of the grid take longer than another round.
_FEW: Final = 512
_MOST_LANES: Final = 32
# Threads of a block: those of ``with_types``.
_THREADS: Final = 1024

# ``Repair`` of repair.cu.
_REPAIR: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("offsets", "columns", "in_offsets", "in_columns", "distances", "parents")),
        *((name, np.uint64) for name in ("before", "deleted", "inserted", "changed")),
        ("queues", np.uint64, 2),
        *((name, np.uint64) for name in ("lost", "control")),
        ("rows", np.int64),
        ("limit_ns", np.uint64),
        *((name, np.uint32) for name in ("deletions", "insertions", "capacity", "lanes", "few", "blank")),
    ]
)
# Words of ``control`` in repair.cu, and the outcome of a repair that is complete.
_WORDS: Final = 18
_OUTCOME, _DEPTH, _ROUNDS, _REACHED, _MISSING = 10, 11, 12, 14, 16
_DONE: Final = 1


@dataclass(frozen=True)
class RepairOutcome:
    """What a repair has done.

    Attributes:
        labels: the repaired labels.
        changed: the rows whose distance differs.
        reached: number of rows with a distance.
        edges: the sum of their degrees.
        depth: the largest distance, 0 if no row has one.
        seconds: time that the repair took.
    """

    labels: RankLabels
    changed: ChangedRows
    reached: int
    edges: int
    depth: int
    rounds: int
    seconds: float


def can_repair(graph: DeviceGraph, traversal_seconds: float) -> bool:
    """Return whether labels are repaired.

    Args:
        graph: the graph, which must have one rank, and in-edges to see what supports a row.
        traversal_seconds: time of the traversal that made the labels.
    """
    return graph.stripe.p == 1 and graph.in_columns is not None and traversal_seconds >= _LEAST_SECONDS


def repair(
    graph: DeviceGraph, labels: RankLabels, changes: tuple[EdgeChanges, EdgeChanges], traversal_seconds: float
) -> RepairOutcome | None:
    """Repair labels, or return None if that takes too long or too much memory, or changes too many rows.

    Predecessors change in place, and distances in a copy: those given stay as they are, so that a repair that is given
    up has nothing to restore.

    Args:
        graph: the graph's version to repair to; see ``can_repair``.
        labels: distances and predecessors on the GPU, of an earlier version.
        changes: the edges deleted and those inserted since.
        traversal_seconds: time of the traversal that made the labels.
    """
    import cupy

    began, rows = time.perf_counter(), graph.stripe.n_local
    capacity = max(_LEAST_ROWS, int(_ROWS_SHARE * rows))
    try:
        repaired = RankLabels(labels.distances.copy(), labels.predecessors)
        edges = cupy.asarray(np.concatenate([side for each in changes for side in (each.rows, each.columns)]))
        queues = [cupy.empty(capacity, np.uint32) for _ in range(2)]
        lost, bits = cupy.empty(capacity, np.uint32), cupy.empty(rows // WORD_BITS, np.uint32)
        control = cupy.zeros(_WORDS, np.uint32)
    except cupy.cuda.memory.OutOfMemoryError:
        return None
    place, deletions = device_memory.address, changes[0].rows.size
    arguments = np.zeros(1, [("repair", _REPAIR)])
    given = arguments["repair"][0]
    given["offsets"], given["columns"] = place(graph.row_offsets), place(graph.columns)
    given["in_offsets"], given["in_columns"] = place(graph.in_offsets), place(graph.in_columns)
    given["distances"], given["parents"] = place(repaired.distances), place(repaired.predecessors)
    given["before"], given["changed"], given["lost"] = place(labels.distances), place(bits), place(lost)
    given["deleted"], given["inserted"] = place(edges), place(edges) + 2 * edges.itemsize * deletions
    given["queues"], given["control"], given["rows"] = [place(queue) for queue in queues], place(control), rows
    given["deletions"], given["insertions"] = deletions, changes[1].rows.size
    given["capacity"], given["few"], given["lanes"] = capacity, _FEW, lanes_of(graph)
    prepared = time.perf_counter() - began
    given["limit_ns"] = max(0, int(1e9 * (_SHARE * traversal_seconds - prepared)))
    launch(arguments)
    words: NDArray[np.uint32] = cupy.asnumpy(control)
    if words[_OUTCOME] != _DONE:
        return None
    reached, missing = (int(words[at : at + 2].view(np.uint64)[0]) for at in (_REACHED, _MISSING))
    seconds = time.perf_counter() - began
    depth, rounds = int(words[_DEPTH]), int(words[_ROUNDS])
    return RepairOutcome(repaired, ChangedRows(bits), reached, graph.m_local - missing, depth, rounds, seconds)


def lanes_of(graph: DeviceGraph) -> int:
    """Return how many lanes share a row: a power of two above the average degree, so that most rows take one step."""
    return min(_MOST_LANES, 1 << max(1, graph.m_local // max(1, graph.connected)).bit_length())


def launch(arguments: "np.ndarray[Any, Any]") -> None:
    """Launch the kernel on the current stream, with a block on each multiprocessor."""
    import cupy

    kernel, blocks = _kernel(cupy.cuda.runtime.getDevice())
    Launch(kernel, arguments, cooperative=True)(blocks, _THREADS, 0, cupy.cuda.get_current_stream().ptr)


@cache
def _kernel(device: int) -> tuple[Any, int]:
    """Return the kernel and the number of multiprocessors of the current device, of this number."""
    import cupy

    kernel = load(REPAIR, cooperative=True).get_function("dbfs_repair")
    return kernel, int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])
