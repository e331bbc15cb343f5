"""Filters of edges on a rank: which edges pass, and the partition and the attributes of these alone.

Bits of vertices are by position: by vertex, or by the order by degree. Attributes stay on the host, and so does what
passes; edges on a GPU are compacted there.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.layout import Layout
from dbfs_workers.features.living.carried import Made, Step
from dbfs_workers.features.views.kept import RankAttributes, RankVertices
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.partition.partition import (
    Csr,
    OwnedRows,
    Partition,
    PartitionInfo,
    RankEdges,
    array_module,
    on_host,
)
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

# Edges that a thread takes at least, and threads at most.
_THREAD_EDGES = 1 << 20
_MOST_THREADS = 16
# Rows of which conditions are computed at a time. Memory that is used again takes a third of the time of new memory.
_STEP = 1 << 20
# Bytes of an edge that passes: its place and row, its column, and whether it repeats another.
_PLACE_BYTES = 8 + 8 + 4 + 2
# Bytes of an edge while its ends are looked up: its number and row, twice, and three flags.
_END_BYTES = 4 * 8 + 3


class Condition(Protocol):
    """A condition on the attributes of an edge, or of a vertex."""

    def passing(self, table: pa.Table) -> NDArray[np.bool]:
        """Return for each row whether the condition holds; a null does not.

        Raises:
            EdgeInputError: the condition can't be computed of a value.
        """


@dataclass(frozen=True)
class Among:
    """Vertices that a caller names.

    Attributes:
        bits: packed bits of the vertices that are kept.
        count: number of vertices that there were.
        later: whether vertices that came later are kept.
    """

    bits: NDArray[np.uint8]
    count: int
    later: bool

    def kept(self, n: int) -> NDArray[np.bool]:
        """Return the bits of ``n`` vertices."""
        found = np.full(n, self.later)
        found[: self.count] = np.unpackbits(self.bits, count=self.count)[:n]
        return found


@dataclass(frozen=True)
class Rule:
    """What a view keeps: an edge of which all conditions hold, and both ends of which are kept.

    Attributes:
        edges: conditions on the attributes of an edge.
        vertices: conditions on those of a vertex.
        among: vertices that were named.
        version: version of the graph that the view was made of last. See ``Carried``: a rank of a view that follows
            its graph keeps the rule.
    """

    edges: tuple[Condition, ...] = ()
    vertices: tuple[Condition, ...] = ()
    among: tuple[Among, ...] = ()
    version: int = 0

    def following(self, step: Step) -> Rule:  # noqa: ARG002
        """See ``Carried``."""
        return self

    @property
    def facts(self) -> int:
        """The version."""
        return self.version

    def __sizeof__(self) -> int:
        return 256 + sum(each.bits.nbytes for each in self.among)


def joined(rules: list[Rule], version: int) -> Rule:
    """Return the rule of a view whose edges pass all of some rules; ``version`` as of ``Rule``."""
    edges = tuple(part for rule in rules for part in rule.edges)
    vertices = tuple(part for rule in rules for part in rule.vertices)
    return Rule(edges, vertices, tuple(part for rule in rules for part in rule.among), version)


@dataclass(frozen=True)
class Passing:
    """The edges of a rank that pass a filter.

    Attributes:
        out: int64, ascending: their places among the partition's columns.
        into: the same of its in-edges; None if the partition has none.
        left_out: int64, ascending: positions of the vertices of the whole graph that the filter leaves out.
    """

    out: NDArray[np.int64]
    into: NDArray[np.int64] | None
    left_out: NDArray[np.int64]

    def __sizeof__(self) -> int:
        return self.out.nbytes + (0 if self.into is None else self.into.nbytes) + self.left_out.nbytes


def passing(
    edges: RankEdges,
    attributes: RankAttributes | None,
    rule: Rule,
    kept: NDArray[np.uint8] | None,
    ranks_here: int = 1,
) -> Passing:
    """Find the edges of a rank that pass.

    Args:
        attributes: those of the rank's edges; None if there are none.
        rule: what passes.
        kept: packed bits of the vertices of which its conditions on vertices hold; None if it has none.
        ranks_here: ranks of the host, which share its cores.

    Errors as for ``Condition.passing`` and ``RankAttributes.tables_of``.
    """
    stripe = edges.stripe
    left_out, present = edges.deleted, None
    bits_of = [each.kept(stripe.n) for each in rule.among]
    bits_of += [] if kept is None else [np.unpackbits(kept, count=stripe.n).astype(bool)]
    if bits_of:
        bits = np.logical_and.reduce(bits_of)
        left_out = np.union1d(left_out, np.flatnonzero(~bits))
        present = np.zeros(stripe.p * stripe.n_local, bool)
        present[stripe.internal(np.arange(stripe.n))] = bits
    tables = (None, None) if attributes is None or not rule.edges else attributes.tables_of(edges)
    ways: list[NDArray[np.int64] | None] = []
    for lists, table in zip((edges.out_lists(), edges.in_lists()), tables, strict=True):
        if lists is None:
            ways.append(None)
            continue
        size = sum(each.columns.size for each in lists)
        places = np.arange(size) if table is None else _evaluate(rule.edges, table, ranks_here)
        if present is not None:
            with _there(edges, "filtering its edges", _END_BYTES * size):
                between = np.concatenate([_between_present(each, stripe, present) for each in lists])
            places = places[between[places]]
        ways.append(places)
    out, into = ways
    assert out is not None
    return Passing(out, into, left_out)


def _parts(places: NDArray[np.int64], lists: Sequence[OwnedRows]) -> list[NDArray[np.int64]]:
    """Return of each of some lists the places within that list."""
    firsts = np.cumsum([0, *(each.columns.size for each in lists[:-1])])
    parts = np.split(places, np.searchsorted(places, firsts[1:]))
    return [part - first if first else part for part, first in zip(parts, firsts.tolist(), strict=True)]


def kept_vertices(attributes: RankVertices, rule: Rule, partition: RankEdges) -> NDArray[np.uint8]:
    """Return the packed bits of a rank's vertices of which all conditions hold. Errors as for ``Condition.passing``."""
    owned = attributes.table.slice(0, partition.stripe.owned(partition.rank))
    return np.packbits(np.logical_and.reduce([condition.passing(owned) for condition in rule.vertices]))


def count(found: Passing) -> tuple[int, int]:
    """Return the numbers of edges and of in-edges that pass."""
    return found.out.size, 0 if found.into is None else found.into.size


def made(
    partition: RankEdges,
    attributes: RankAttributes | None,
    vertices: RankVertices | None,
    rule: Rule | None,
    found: Passing,
    version: int = 0,
    ranks_here: int = 1,
) -> Made:
    """Return a rank of a view with the data beside it: the attributes and the rule, where not None.

    Args:
        partition, attributes, vertices: of the graph.
        found: the edges that pass.
        version: see ``Partition``; of the view.
        ranks_here: as of ``passing``.
    """
    of_edges = None if attributes is None else _of_passing(attributes, partition, found, version, ranks_here)
    beside = tuple(each for each in (of_edges, vertices, rule) if each is not None)
    return Made(_partition(partition, found, version), beside)


def part_of(whole: Made, place: int) -> Any:
    """Return the partition of what was made, or for a ``place`` from 0 on one of the data beside it."""
    return whole.partition if place < 0 else whole.beside[place]


def counting(whole: Made, input_edges: int) -> Made:
    """Return what was made with the number of the view's input edges, which all ranks together have."""
    return Made(whole.partition.with_input_edges(input_edges), whole.beside)


def facts_of(whole: Made) -> tuple[PartitionInfo, tuple[Any, ...]]:
    """Return the counts of what was made, and what the data beside say of themselves."""
    partition = whole.partition
    with _there(partition, "describing its edges", 0):
        return partition.info, tuple(each.facts for each in whole.beside)


def degrees(whole: Made, layout: Layout, owner: int) -> NDArray[np.int64]:
    """Return int64[n_local], the edges of what was made of a rank from each row of another one, or its own."""
    return np.diff(layout.out_part(whole.partition, owner).row_offsets)


def with_degrees(whole: Made, layout: Layout, found: list[NDArray[np.int64]]) -> Made:
    """Return what was made with the degrees of its rows, given what each of ``Layout.out_holders`` has of these."""
    return Made(layout.with_degrees(whole.partition, found), whole.beside)


def _partition(edges: RankEdges, found: Passing, version: int) -> RankEdges:
    """Return the edges that pass. Degrees over several ranks are those of before: see ``with_degrees``."""
    from dbfs_workers.search.partition.shared_rows import share

    def compacted(lists: list[OwnedRows], places: NDArray[np.int64]) -> list[tuple[Csr, int, int]]:
        parts = zip(lists, _parts(places, lists), strict=True)
        return [_compacted(each.csr, part, each.owner * edges.stripe.n_local) for each, part in parts]

    in_lists = edges.in_lists()
    with _there(edges, "compacting its edges", _PLACE_BYTES * found.out.size):
        out, loops_of, repeats_of = zip(*compacted(edges.out_lists(), found.out), strict=True)
        into = None if in_lists is None or found.into is None else [csr for csr, *_ in compacted(in_lists, found.into)]
        loops, repeats = sum(loops_of), sum(repeats_of)
    facts = {"self_loops": loops, "duplicates": repeats, "version": version}
    view = edges.with_lists(out, into, deleted=found.left_out, **facts)
    return share(view) if isinstance(view, Partition) and isinstance(view.columns, np.ndarray) else view


def _of_passing(
    attributes: RankAttributes, partition: RankEdges, found: Passing, version: int, ranks_here: int
) -> RankAttributes:
    import pyarrow as pa

    def kept(table: pa.Table, places: NDArray[np.int64]) -> pa.Table:
        parts = _in_parts(lambda part: table.take(pa.array(places[part])), places.size, ranks_here)
        return pa.concat_tables(parts).combine_chunks()

    out, into = attributes.tables_of(partition)
    into = None if into is None or found.into is None else kept(into, found.into)
    return RankAttributes(kept(out, found.out), into, version)


@contextmanager
def _there(edges: RankEdges, doing: str, nbytes: int) -> Iterator[None]:
    """Work where the edges are: on a GPU with typed errors, if it has so many bytes free; see ``failures.on_gpu``."""
    if isinstance(edges.out_lists()[0].columns, np.ndarray):
        yield
        return
    where = f"rank {edges.rank}, {doing}"
    with failures.on_gpu(where):
        device_memory.require(nbytes, where)
        yield


def _rows_of_edges(rows: Csr) -> Any:
    """Return the row of each edge."""
    xp, offsets = array_module(rows.columns), rows.row_offsets
    if xp is np:
        return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return xp.searchsorted(offsets, xp.arange(rows.columns.size), side="right") - 1


def _between_present(rows: OwnedRows, stripe: Stripe, present: NDArray[np.bool]) -> NDArray[np.bool]:
    """Return which edges of some rows have both ends among the internal ids that are present."""
    there = array_module(rows.columns).asarray(present)
    own = rows.owner * stripe.n_local + _rows_of_edges(rows.csr)
    found: NDArray[np.bool] = on_host(there[rows.columns] & there[own])
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


def _evaluate(conditions: tuple[Condition, ...], table: pa.Table, ranks_here: int) -> NDArray[np.int64]:
    """Return the rows of a table that pass, ascending."""

    def evaluate(part: slice) -> list[NDArray[np.int64]]:
        found = []
        for first in range(part.start, part.stop, _STEP):
            rows = table.slice(first, min(_STEP, part.stop - first))
            passes = functools.reduce(np.logical_and, (condition.passing(rows) for condition in conditions))
            found.append(np.flatnonzero(passes) + first)
        return found

    parts = _in_parts(evaluate, table.num_rows, ranks_here)
    return np.concatenate([np.empty(0, np.int64), *itertools.chain.from_iterable(parts)])


def _compacted(rows: Csr, places: NDArray[np.int64], first_id: int) -> tuple[Csr, int, int]:
    """Return the edges at some places, with the numbers of self-loops and of repeats as of ``Partition``.

    ``first_id`` is the internal id of the first row.
    """
    xp = array_module(rows.columns)
    if xp is np:
        # A client, which imports this module, does without Numba.
        from dbfs_workers.features.views.kernels.compaction import compact

        kept = Csr(np.empty_like(rows.row_offsets), np.empty(places.size, np.uint32))
        loops, repeats = compact(rows.row_offsets, rows.columns, places, first_id, kept.row_offsets, kept.columns)
        return kept, int(loops), int(repeats)
    there = xp.asarray(places)
    kept = Csr(xp.searchsorted(there, rows.row_offsets), rows.columns[there])
    own, columns = _rows_of_edges(kept), kept.columns
    repeats = (columns[1:] == columns[:-1]) & (own[1:] == own[:-1])
    return kept, int((columns == own + first_id).sum()), int(repeats.sum())
