"""How fast each phase of the CUDA backend is on one GPU, next to what the memory allows::

    python -m tests.search.cuda.phase_rates

Random columns, 16 per row, rank 0 of 4: no long lists and no locality. Times are by events around the call, host's part
included, medians of 8 with the state put back before each. The limit is the longer of two: the bytes that the backend's
docstrings count at a copy's rate, and the words of bitmaps at a gather's, both measured in the same run.
"""

import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from dbfs_workers.search import backends
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe

ROWS = 2**22
DEGREE = 16


def milliseconds(prepare: Callable[[], object], work: Callable[[], object]) -> float:
    import cupy

    times = []
    for _ in range(9):
        prepare()
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return statistics.median(times[1:])


def main() -> None:
    backend = backends.get("cuda")
    xp: Any = backend.xp
    xp.random.seed(1)
    stripe = Stripe(4 * ROWS, 4)
    offsets = xp.arange(ROWS + 1, dtype=np.int64) * DEGREE
    columns = xp.random.randint(0, 4 * ROWS, ROWS * DEGREE, dtype=np.uint32)
    partition = Partition(stripe, 0, offsets, columns, 0, 0, ROWS * DEGREE, directed=False)
    scratch = Scratch(partition, xp)
    frontier = xp.random.permutation(ROWS)[: ROWS // 4].astype(np.uint32)
    everybody = xp.random.permutation(ROWS).astype(np.uint32)
    edges = frontier.size * DEGREE
    scratch.frontier = frontier
    visited, frontier_bits = scratch.visited, scratch.frontier_bits
    assert frontier_bits is not None
    labels = RankLabels.unreached(xp, stripe, predecessors=True)
    distances_only = RankLabels(labels.distances, None)
    bits = xp.empty(stripe.words_local, np.uint32)
    bin_rows, bin_parents = xp.empty(4 * ROWS, np.uint32), xp.empty(4 * ROWS, np.uint32)
    bins = SimpleNamespace(bin_rows=bin_rows, bin_parents=bin_parents, bin_ends=np.zeros(4, np.int64))
    reached = backend.expand(partition.out_edges, frontier, 0, True)

    def empty() -> None:
        visited.fill(0)
        bins.bin_ends[:] = 0

    def full() -> None:
        visited.fill(0xFFFFFFFF)

    def some(one_of: int) -> Callable[[], None]:
        def prepare() -> None:
            empty()
            frontier_bits.fill(0xFFFFFFFF)
            for _ in range(one_of.bit_length() - 1):
                frontier_bits[:] &= xp.random.randint(0, 2**32, stripe.words, dtype=np.uint32)

        return prepare

    def expand(*, with_parents: bool) -> Callable[[], object]:
        return lambda: backend.expand(partition.out_edges, frontier, 0, with_parents)

    def filter_partition() -> object:
        return backend.filter_partition(reached, visited, stripe)

    def contract() -> object:
        return backend.contract(everybody, everybody, scratch.own_visited, 1, labels, scratch.next_queue)

    def top_down(found: RankLabels) -> Callable[[], object]:
        return lambda: backend.top_down(scratch, found, 1, bins)

    def bottom_up() -> object:
        return backend.bottom_up(scratch, distances_only, 1, bits)

    copied, words = xp.empty_like(columns), columns >> 5
    copy_rate = 2 * columns.nbytes / milliseconds(empty, lambda: xp.copyto(copied, columns))
    gather_rate = columns.size / milliseconds(empty, lambda: xp.take(visited, words, out=copied))
    print(f"a copy: {copy_rate / 1e6:.0f} GB/s; a gather of words: {gather_rate / 1e6:.0f} G/s")
    vertices = frontier.size
    # Edges or vertices, bytes, and words probed or set.
    measured: list[tuple[str, int, int, int, Callable[[], object], Callable[[], object]]] = [
        ("expand", edges, 8 * edges + 60 * vertices, 0, empty, expand(with_parents=False)),
        ("expand, parents", edges, 12 * edges + 60 * vertices, 0, empty, expand(with_parents=True)),
        ("filter + partition, all new", edges, 22 * edges, 2 * edges, empty, filter_partition),
        ("filter + partition, none new", edges, 5 * edges, edges, full, filter_partition),
        ("contract, all new", ROWS, 20 * ROWS, 2 * ROWS, empty, contract),
        ("top-down, all new", edges, 10 * edges + 84 * vertices, 2 * edges, empty, top_down(distances_only)),
        ("top-down, all new, parents", edges, 14 * edges + 84 * vertices, 2 * edges, empty, top_down(labels)),
        ("top-down, none new", edges, 4 * edges + 84 * vertices, edges, full, top_down(distances_only)),
        ("bottom-up, 1 of 2 in the frontier", 2 * ROWS, (40 + 8) * ROWS, 2 * ROWS, some(2), bottom_up),
        ("bottom-up, 1 of 32 in it", 12 * ROWS, (26 + 50) * ROWS, 12 * ROWS, some(32), bottom_up),
        ("mark", ROWS, 4 * ROWS, ROWS, empty, lambda: backend.mark(everybody, bits)),
        ("edge count", ROWS, 20 * ROWS, 0, empty, lambda: backend.edge_count(partition, everybody)),
    ]
    print(f"{'phase':36}{'ms':>8}{'G/s':>8}{'limit, ms':>11}{'of it':>7}")
    for name, items, nbytes, probes, prepare, work in measured:
        ms, limit = milliseconds(prepare, work), max(nbytes / copy_rate, probes / gather_rate)
        print(f"{name:36}{ms:8.3f}{items / ms / 1e6:8.1f}{limit:11.3f}{limit / ms:7.0%}")


if __name__ == "__main__":
    main()
