"""Filters of edges on a rank: which edges pass, and the partition and the attributes of these alone.

Bits of vertices are by position: by vertex, or by the order by degree. Attributes stay on the host, and so does what
passes; edges on a GPU are compacted there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.views.attributes import RankAttributes
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.partition.partition import Csr, Partition, PartitionInfo, array_module, on_host
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

# Edges that a thread takes at least, and threads at most.
_THREAD_EDGES = 1 << 20
_MOST_THREADS = 16
# Bytes of an edge that passes: its place and row, its column, and whether it repeats another.
_PLACE_BYTES = 8 + 8 + 4 + 2
# Bytes of an edge while its ends are looked up: its number and row, twice, and three flags.
_END_BYTES = 4 * 8 + 3


class Condition(Protocol):
    """A condition on the attributes of an edge."""

    def passing(self, table: pa.Table) -> NDArray[np.bool]:
        """Return for each row whether the condition holds; a null does not.

        Raises:
            EdgeInputError: the condition can't be computed of a value.
        """


@dataclass(frozen=True)
class Passing:
    """The edges of a rank that pass a filter.

    Attributes:
        out: bool[edges], in the order of the partition's columns.
        into: the same of its in-edges; None if the partition has none.
        left_out: int64, ascending: positions of the vertices of the whole graph that the filter leaves out.
    """

    out: NDArray[np.bool]
    into: NDArray[np.bool] | None
    left_out: NDArray[np.int64]

    def __sizeof__(self) -> int:
        return self.out.nbytes + (0 if self.into is None else self.into.nbytes) + self.left_out.nbytes


def passing(
    partition: Partition,
    attributes: RankAttributes | None,
    condition: Condition | None,
    kept: NDArray[np.uint8] | None,
    ranks_here: int = 1,
) -> Passing:
    """Find the edges of a rank that pass.

    Args:
        attributes: those of the rank's edges; None if there are none.
        condition: on the attributes; None for any edge.
        kept: packed bits of the vertices that are kept; None for all. An edge needs both ends.
        ranks_here: ranks of the host, which share its cores.

    Errors as for ``Condition.passing``.
    """
    stripe = partition.stripe
    left_out, present = partition.deleted, None
    if kept is not None:
        bits = np.unpackbits(kept, count=stripe.n).astype(bool)
        left_out = np.union1d(left_out, np.flatnonzero(~bits))
        present = np.zeros(stripe.p * stripe.n_local, bool)
        present[stripe.internal(np.arange(stripe.n))] = bits
    ways: list[NDArray[np.bool] | None] = []
    for rows, of in ((partition.out_edges, "out"), (partition.in_edges, "into")):
        if rows is None:
            ways.append(None)
            continue
        passes = np.ones(rows.columns.size, bool)
        if condition is not None:
            _evaluate(condition, getattr(attributes, of), passes, ranks_here)
        if present is not None:
            with _there(partition, "filtering its edges", _END_BYTES * rows.columns.size):
                passes &= _between_present(rows, partition.rank * stripe.n_local, present)
        ways.append(passes)
    out, into = ways
    assert out is not None
    return Passing(out, into, left_out)


def kept_vertices(attributes: pa.Table, condition: Condition) -> NDArray[np.uint8]:
    """Return the packed bits of a rank's vertices of which a condition holds. Errors as for ``Condition.passing``."""
    return np.packbits(condition.passing(attributes))


def count(found: Passing) -> tuple[int, int]:
    """Return the numbers of edges and of in-edges that pass."""
    return int(np.count_nonzero(found.out)), 0 if found.into is None else int(np.count_nonzero(found.into))


def compacted(partition: Partition, found: Passing, ranks_here: int = 1) -> Partition:
    """Return the partition of the edges that pass; ``ranks_here`` as of ``passing``."""
    from dbfs_workers.search.partition.shared_rows import share

    with _there(partition, "compacting its edges", found.out.nbytes + _PLACE_BYTES * int(np.count_nonzero(found.out))):
        rows = _compacted(partition.out_edges, found.out, ranks_here)
        into = None
        if partition.in_edges is not None and found.into is not None:
            into = _compacted(partition.in_edges, found.into, ranks_here)
        loops, repeats = _loops_and_repeats(rows, partition.rank, partition.stripe)
    view = replace(
        partition,
        row_offsets=rows.row_offsets,
        columns=rows.columns,
        in_edges=into,
        self_loops=loops,
        duplicates=repeats,
        imbalance=0,
        deleted=found.left_out,
    )
    return share(view) if isinstance(rows.columns, np.ndarray) else view


def describe(partition: Partition) -> PartitionInfo:
    """Return the counts of a rank's edges."""
    with _there(partition, "describing its edges", 0):
        return partition.info


def compacted_attributes(attributes: RankAttributes, found: Passing, ranks_here: int = 1) -> RankAttributes:
    """Return the attributes of the edges that pass; ``ranks_here`` as of ``passing``."""
    import pyarrow as pa

    def kept(table: pa.Table, passes: NDArray[np.bool]) -> pa.Table:
        parts = _in_parts(lambda part: _rows(table, part).filter(pa.array(passes[part])), passes.size, ranks_here)
        return pa.concat_tables(parts).combine_chunks()

    into = None if attributes.into is None or found.into is None else kept(attributes.into, found.into)
    return RankAttributes(kept(attributes.out, found.out), into)


@contextmanager
def _there(partition: Partition, doing: str, nbytes: int) -> Iterator[None]:
    """Work where the edges are: on a GPU with typed errors, if it has so many bytes free; see ``failures.on_gpu``."""
    if isinstance(partition.columns, np.ndarray):
        yield
        return
    where = f"rank {partition.rank}, {doing}"
    with failures.on_gpu(where):
        device_memory.require(nbytes, where)
        yield


def _rows_of_edges(rows: Csr) -> Any:
    """Return the row of each edge."""
    xp, offsets = array_module(rows.columns), rows.row_offsets
    if xp is np:
        return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return xp.searchsorted(offsets, xp.arange(rows.columns.size), side="right") - 1


def _between_present(rows: Csr, first: int, present: NDArray[np.bool]) -> NDArray[np.bool]:
    """Return which edges of rows, the first of which has the id ``first``, have both ends among those present."""
    there = array_module(rows.columns).asarray(present)
    found: NDArray[np.bool] = on_host(there[rows.columns] & there[first + _rows_of_edges(rows)])
    return found


def _in_parts(work: Callable[[slice], T], size: int, ranks_here: int) -> list[T]:
    """Do work by parts of so many edges, in threads if there are many; return the results in order."""
    cores = min(_MOST_THREADS, len(os.sched_getaffinity(0)) // ranks_here)
    threads = max(1, min(cores, size // _THREAD_EDGES))
    parts = [slice(size * part // threads, size * (part + 1) // threads) for part in range(threads)]
    if threads == 1:
        return [work(parts[0])]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def _rows(table: pa.Table, part: slice) -> pa.Table:
    return table.slice(part.start, part.stop - part.start)


def _evaluate(condition: Condition, table: pa.Table, passes: NDArray[np.bool], ranks_here: int) -> None:
    """Write which rows of a table pass."""

    def evaluate(part: slice) -> None:
        passes[part] = condition.passing(_rows(table, part))

    _in_parts(evaluate, passes.size, ranks_here)


def _compacted(rows: Csr, passes: NDArray[np.bool], ranks_here: int) -> Csr:
    # A search takes a fifth of the time of sums over all edges.
    xp = array_module(rows.columns)
    if xp is np:
        found = _in_parts(lambda part: np.flatnonzero(passes[part]) + part.start, passes.size, ranks_here)
        places = found[0] if len(found) == 1 else np.concatenate(found)
    else:
        places = xp.flatnonzero(xp.asarray(passes))
    return Csr(xp.searchsorted(places, rows.row_offsets), rows.columns[places])


def _loops_and_repeats(rows: Csr, rank: int, stripe: Stripe) -> tuple[int, int]:
    """Return the numbers of self-loops and of edges that repeat the one before them in their row."""
    own, columns = _rows_of_edges(rows), rows.columns
    repeats = (columns[1:] == columns[:-1]) & (own[1:] == own[:-1])
    return int((columns == own + rank * stripe.n_local).sum()), int(repeats.sum())
