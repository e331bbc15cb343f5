"""Check on the workers whether labels obey the rules of breadth-first search on the graph's edges.

Graph500's five rules (specification 2.0, "Validation") are stated for edges and vertices, so that each rank checks its
own and no edge moves:

1. Each rank packs its labels into one word a vertex, and checks that they are in range (``pack_labels``).
2. Each rank gets all words, 8 bytes a vertex, and checks its edges, whichever ranks own their ends (``check_edges``).
   Ranks on the CPUs of one host share one table of them (``share_words``).
   No edge may leave the reached set or span more than one level. An edge supports a vertex if it comes from its
   predecessor; without predecessors, if it comes from any vertex one level up.
3. One rank merges the findings (``merge_findings``). Every reached vertex other than a source must be supported by an
   edge.

By induction over the levels, the rules make the distances exact: the edges of a vertex prove that it is not farther
than its label, and its support that it is not nearer. Distances stand for the levels of the tree of predecessors. If
only predecessors are given, their levels are computed first (``levels_along_predecessors``).

The edges are the input edges that a rank keeps, between vertices, or those of its partition, between positions. (A
vertex's position is its place in a graph ordered by degree, else its id.) Input edges depend on nothing that was built,
so that checking them also finds errors of the build.

Some of the functions are Dask tasks. They import Numba kernels where they run, so that a client never does.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ValidationError
from dbfs_workers.base.tokens import Token, issue
from dbfs_workers.features.validation.verdict import Rule, Verdict, Violation, merge_violations
from dbfs_workers.search.partition.partition import InputEdges, Partition, array_module, host_bytes, on, on_host
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe, own_rows

if TYPE_CHECKING:
    from dbfs_workers.search.partition.ordering import DegreeOrder


BLOCK_EDGES: Final = 1 << 20
DEVICE_BLOCK_EDGES: Final = 1 << 25
"""Edges of a partition in one block of pairs, on the CPU and on a GPU; each takes some 24 bytes of temporary arrays."""

# Words of a table that are compared at once.
_BLOCK_WORDS: Final = 1 << 18
_LEVEL_SHIFT: Final = np.uint64(32)
_PARENT_MASK: Final = np.uint64(0xFFFFFFFF)


class Order(Protocol):
    """A degree order, on the host or on a GPU; attributes as in ``DegreeOrder``."""

    @property
    def position(self) -> Any:
        """Each vertex's position."""

    @property
    def vertex(self) -> Any:
        """The vertex at each position."""


@runtime_checkable
class WordsOnGpu(Protocol):
    """Words on a rank's GPU, which the ranks map: see ``cuda.validation``."""

    def on(self, xp: ModuleType) -> Any:
        """Return the words as an array of a module, NumPy or CuPy."""


@dataclass(frozen=True)
class PackedLabels:
    """One rank's labels in one word a vertex, and the rules that they break without regard to edges.

    Attributes:
        words: uint64[rows without padding], distance + 1 in the high half, predecessor in the low half. An unreached
            vertex, and one whose label is out of range, has 0 and ``NO_VERTEX``. Or the words on a rank's GPU. Or the
            table of all ranks' words.
        violations: at most one a rule, in positions.
    """

    words: NDArray[np.uint64] | WordsOnGpu | SharedTable
    violations: tuple[Violation, ...]

    def __sizeof__(self) -> int:
        return host_bytes(self.words)


@dataclass(frozen=True)
class EdgeCheck:
    """The findings of one rank's edges.

    Attributes:
        violations: at most one a rule.
        unsupported: uint32 bitmap of the reached vertices, sources excepted, that no edge of this rank supports.
        edges: edges checked.
        component_edges: edges within the reached set, self-loops left out.
    """

    violations: tuple[Violation, ...]
    unsupported: NDArray[np.uint32]
    edges: int
    component_edges: int

    def __sizeof__(self) -> int:
        return self.unsupported.nbytes


def pack_labels(
    stripe: Stripe,
    rank: int,
    distances: NDArray[np.int32],
    predecessors: NDArray[np.int64] | None,
    sources: Sequence[int],
    farthest: int | None,
) -> PackedLabels:
    """Check a rank's labels without regard to edges, and pack them. Arrays may be NumPy's or CuPy's; so are the words.

    Args:
        rank: the rank that owns the labels.
        distances: int32 of the rank's rows without padding.
        predecessors: int64 positions of the same rows; None for distances alone.
        sources: positions at distance 0.
        farthest: largest distance allowed; None for no bound.
    """
    wrong = (distances < -1) | (distances > (stripe.n - 1 if farthest is None else farthest))
    if predecessors is not None:
        wrong |= (predecessors < -1) | (predecessors >= stripe.n) | ((predecessors < 0) != (distances < 0))
    rows = own_rows(stripe, rank, sources).astype(np.int64)
    xp = array_module(distances)
    rootless = np.setxor1d(on_host(xp.flatnonzero(distances == 0)), rows)
    if predecessors is not None:
        stray = on_host(predecessors[xp.asarray(rows)]) != rows * stripe.p + rank
        rootless = np.union1d(rootless, rows[stray])
    words = (distances + np.int32(1)).astype(np.uint64)
    words <<= _LEVEL_SHIFT
    # -1 becomes NO_VERTEX.
    words |= np.uint64(NO_VERTEX) if predecessors is None else predecessors.astype(np.uint32)
    violations = []
    if wrong.any():
        words[wrong] = np.uint64(NO_VERTEX)
        first = int(xp.argmax(wrong)) * stripe.p + rank
        violations.append(Violation(Rule.RANGE, (first,), (rank,), int(wrong.sum())))
    if rootless.size:
        first = int(rootless[0]) * stripe.p + rank
        violations.append(Violation(Rule.ROOT, (first,), (rank,), rootless.size))
    return PackedLabels(words, tuple(violations))


def share_words(
    stripe: Stripe, rank: int, packed: PackedLabels, table: SharedTable, order: DegreeOrder | None
) -> PackedLabels:
    """Write a rank's words into the table that the ranks share; return the labels with that table as their words.

    Args:
        stripe, rank: as of ``pack_labels``.
        packed: the rank's labels.
        table: the table of all ranks.
        order: the graph's order by degree if the table is by vertex; None if it is by position.
    """
    assert isinstance(packed.words, np.ndarray)
    own = packed.words
    if order is None:
        table.words()[rank :: stripe.p] = own
    else:
        table.words()[order.vertex[rank :: stripe.p]] = _with_vertices(np, own.copy(), order)
    return PackedLabels(table, packed.violations)


def partition_edges(partition: Partition) -> Iterator[InputEdges]:
    """Yield a partition's edges between positions, block by block.

    Raise ``ValidationError`` for an edge that begins or ends past the last position, and so at no label.
    """
    stripe, offsets = partition.stripe, partition.row_offsets
    xp = array_module(offsets)
    block = BLOCK_EDGES if xp is np else DEVICE_BLOCK_EDGES
    for start in range(0, partition.m_local, block):
        stop = min(start + block, partition.m_local)
        ends = xp.asarray([start, stop - 1])
        first, last = (xp.searchsorted(offsets, ends, side="right") - 1).tolist()
        # A row begins at each offset, so the number of rows begun up to an edge gives its row. The first row is counted
        # with them, since CuPy's bincount refused empty arrays until 2026 (cupy/cupy#8116).
        begun = xp.bincount(xp.maximum(offsets[first : last + 1] - start, 0), minlength=stop - start)
        rows = first - 1 + xp.cumsum(begun)
        columns = partition.columns[start:stop]
        owners = columns // np.uint32(stripe.n_local)
        targets = (columns - owners * np.uint32(stripe.n_local)) * np.uint32(stripe.p) + owners
        sources = (rows * stripe.p + partition.rank).astype(np.uint32)
        outside = (sources >= stripe.n) | (targets >= stripe.n) | (owners >= stripe.p)
        if outside.any():
            edge = int(xp.argmax(outside))
            raise ValidationError(
                f"rank {partition.rank} has an edge from {int(sources[edge])} to {int(targets[edge])}; "
                f"vertices are 0..{stripe.n - 1}"
            )
        yield sources, targets


def check_edges(
    stripe: Stripe,
    rank: int,
    edges: Iterable[InputEdges],
    packed: Sequence[PackedLabels],
    order: Order | None,
    xp: ModuleType = np,
    *,
    predecessors: bool,
    directed: bool,
    farthest: int | None,
) -> EdgeCheck:
    """Check a rank's edges against the labels of all ranks, on the GPU if the edges are CuPy arrays.

    Args:
        rank: the rank that checks.
        edges: the edges in blocks.
        packed: the labels by rank.
        order: the graph's order by degree if the edges join vertices; None if they join positions.
        xp: the edges' array module, NumPy or CuPy.
        predecessors: whether the labels have predecessors.
        directed: whether edges hold in one direction only.
        farthest: the traversal's bound on depth: vertices at this distance may have unreached neighbours. None without
            a bound.
    """
    from dbfs_workers.features.validation.kernels import validation as kernels

    check: Callable[..., Any] = kernels.check_edges
    if xp is not np:
        from dbfs_workers.features.validation import on_gpu as device

        check = device.check_edges
    table = _join_words(xp, stripe, packed, order)
    # Levels in words begin with 1 at the sources.
    unsupported = _below_the_sources(table)
    # Every distance is below n; a bound of the caller's may not fit the kernel's 64 bits.
    bound = stripe.n + 1 if farthest is None else min(farthest, stripe.n) + 1
    found = xp.zeros(kernels.FOUND, np.int64)
    count = 0
    for src, dst in edges:
        check(src, dst, table, predecessors, directed, bound, unsupported, found)
        count += src.size
    spans, span_u, span_v, leaks, leak_u, leak_v, component_edges = found.tolist()
    violations = [
        Violation(rule, (u, v), (rank,), broken)
        for rule, broken, u, v in ((Rule.SPAN, spans, span_u, span_v), (Rule.COMPONENT, leaks, leak_u, leak_v))
        if broken
    ]
    return EdgeCheck(tuple(violations), on_host(unsupported), count, component_edges)


def merge_findings(
    stripe: Stripe,
    packed: Sequence[PackedLabels],
    checks: Sequence[EdgeCheck],
    order: DegreeOrder | None,
    predecessors: bool,
    of_input: bool,
) -> Verdict:
    """Merge the findings of all ranks into one verdict, and check that every reached vertex is supported by an edge.

    Args:
        stripe, packed, predecessors: as of ``check_edges``.
        checks: the findings by rank.
        order: the graph's order by degree, if it has one.
        of_input: whether the edges checked join vertices; else they join positions.
    """
    violations = [violation for labels in packed for violation in labels.violations]
    if of_input:
        violations = [violation.in_vertex_ids(order) for violation in violations]
    violations += [violation for check in checks for violation in check.violations]
    unsupported = checks[0].unsupported
    for check in checks[1:]:
        unsupported = unsupported & check.unsupported
    if unsupported.any():
        orphans = np.flatnonzero(np.unpackbits(unsupported.view(np.uint8), bitorder="little"))
        table = _join_words(np, stripe, packed, order if of_input else None)
        violations += _unsupported(stripe, table, orphans, order if of_input else None, predecessors=predecessors)
    if not of_input:
        violations = [violation.in_vertex_ids(order) for violation in violations]
    return Verdict(
        violations=merge_violations(violations),
        edges=sum(check.edges for check in checks),
        component_edges=sum(check.component_edges for check in checks),
    )


def _unsupported(
    stripe: Stripe,
    table: NDArray[np.uint64],
    orphans: NDArray[np.int64],
    order: DegreeOrder | None,
    *,
    predecessors: bool,
) -> list[Violation]:
    """Return the violations of the vertices that no edge supports, with ids as in the table.

    ``order`` maps those ids to positions; None if they are positions.
    """

    def broken(rule: Rule, vertices: NDArray[np.int64], shown: tuple[int, ...]) -> Violation:
        positions = vertices if order is None else order.position[vertices]
        ranks: list[int] = np.unique(positions % stripe.p).tolist()
        return Violation(rule, shown, tuple(ranks), vertices.size)

    if not predecessors:
        return [broken(Rule.PARENT, orphans, (int(orphans[0]),))]
    from dbfs_workers.features.validation.kernels import validation as kernels

    levels, parents = table >> _LEVEL_SHIFT, (table & _PARENT_MASK).astype(np.int64)
    stepped = levels[parents[orphans]] + 1 == levels[orphans]
    violations = []
    if not stepped.all():
        misplaced = orphans[~stepped]
        violations.append(broken(Rule.STEP, misplaced, (int(misplaced[0]), int(parents[misplaced[0]]))))
        parents[levels == 0] = -1
        tree_levels = np.empty(stripe.n, np.int32)
        circle = find_rootless(stripe, parents, tree_levels)
        if circle is not None:
            violations.append(broken(Rule.TREE, np.flatnonzero(tree_levels == kernels.NO_ROOT), circle.vertices))
    if stepped.any():
        edgeless = orphans[stepped]
        violations.append(broken(Rule.PARENT, edgeless, (int(edgeless[0]), int(parents[edgeless[0]]))))
    return violations


def _join_words(
    xp: ModuleType, stripe: Stripe, packed: Sequence[PackedLabels], order: Order | None
) -> NDArray[np.uint64]:
    """Return uint64[n], the words of all ranks by position. With an order: by vertex, predecessors as vertices.

    A table that the ranks share has that order already.
    """
    if packed and isinstance(packed[0].words, SharedTable):
        return packed[0].words.words()
    table: NDArray[np.uint64] = xp.empty(stripe.n, np.uint64)
    for rank, labels in enumerate(packed):
        words = labels.words
        assert not isinstance(words, SharedTable)
        table[rank :: stripe.p] = words.on(xp) if isinstance(words, WordsOnGpu) else on(xp, words)
    if order is None:
        return table
    return _with_vertices(xp, table[on(xp, order.position)], order)


def _with_vertices(xp: ModuleType, table: NDArray[np.uint64], order: Order) -> NDArray[np.uint64]:
    """Replace the predecessors in words, positions, by vertices; return the words."""
    parents = table & _PARENT_MASK
    present = parents != NO_VERTEX
    parents[present] = on(xp, order.vertex)[parents[present].astype(np.int64)]
    table &= ~_PARENT_MASK
    table |= parents
    return table


def _below_the_sources(table: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the bitmap of reached vertices other than sources, at least one word."""
    xp = array_module(table)
    words: NDArray[np.uint32] = xp.zeros(max(1, -(-table.size // 32)), np.uint32)
    # In blocks, so that no flags of all vertices take a byte each. A GPU has the memory, and would wait for each block.
    block = _BLOCK_WORDS if xp is np else max(1, table.size)
    for start in range(0, table.size, block):
        bits = xp.packbits(table[start : start + block] >= np.uint64(2) << _LEVEL_SHIFT, bitorder="little")
        words.view(np.uint8)[start // 8 : start // 8 + bits.size] = bits
    return words


Levels = tuple[list[NDArray[np.int32]], Violation | None]
"""Distances by rank, and the rule that the predecessors break; None if they break none."""

_MOST_NAMED = 8
"""Vertices of a circle that a violation names."""


def levels_along_predecessors(stripe: Stripe, predecessors: Sequence[NDArray[np.int64]]) -> Levels:
    """Return each vertex's number of steps along predecessors to a vertex that is its own predecessor.

    Predecessors out of range are one violation; no distances are returned then. Predecessors that lead in a circle, or
    to an unreached vertex, are another violation.

    Args:
        predecessors: by rank, int64 positions of the rank's rows without padding; -1 unreached.
    """
    parents = np.empty(stripe.n, np.int64)
    for rank, own in enumerate(predecessors):
        parents[rank :: stripe.p] = own
    levels = np.empty(stripe.n, np.int32)
    outside = np.flatnonzero((parents < -1) | (parents >= stripe.n))
    if outside.size:
        ranks: list[int] = np.unique(outside % stripe.p).tolist()
        return [], Violation(Rule.RANGE, (int(outside[0]),), tuple(ranks), outside.size)
    violation = find_rootless(stripe, parents, levels)
    return [levels[rank :: stripe.p].copy() for rank in range(stripe.p)], violation


def find_rootless(stripe: Stripe, parents: NDArray[np.int64], levels: NDArray[np.int32]) -> Violation | None:
    """Write the levels of all vertices into ``levels``; return the violation of vertices without a root, if any.

    Args:
        parents: int64[n], predecessors by position, all in range; -1 unreached.
        levels: int32[n]; ``kernels.NO_ROOT`` for vertices from which predecessors lead to no root.
    """
    from dbfs_workers.features.validation.kernels import validation as kernels

    if not kernels.levels_of_predecessors(parents, levels):
        return None
    rootless = np.flatnonzero(levels == kernels.NO_ROOT)
    path: list[int] = []
    at, seen = int(rootless[0]), set[int]()
    while at >= 0 and at not in seen:
        seen.add(at)
        path.append(at)
        at = int(parents[at])
    # A circle is named without the path that leads to it.
    vertices = path[path.index(at) :] if at >= 0 else path
    ranks: list[int] = np.unique(rootless % stripe.p).tolist()
    return Violation(Rule.TREE, tuple(vertices[:_MOST_NAMED]), tuple(ranks), rootless.size)


@dataclass(frozen=True)
class SharedTable:
    """A table of one word a vertex. Picklable. The memory ends with the maker's object and the last mapping.

    Attributes:
        token: the token of the maker's file, which is the memory.
        size: number of words.
    """

    token: Token
    graph_id: str
    size: int

    @classmethod
    def make(cls, stripe: Stripe, graph_id: str) -> SharedTable:
        """Return a table of zeros for a graph's vertices. Errors as for ``tokens.issue``."""
        token = issue(graph_id)
        table = cls(token, graph_id, stripe.n)
        weakref.finalize(table, os.close, token.descriptor)
        os.ftruncate(token.descriptor, max(1, 8 * stripe.n))
        fcntl.fcntl(token.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return table

    def words(self) -> NDArray[np.uint64]:
        """Map the table: uint64[n]. Errors as for ``Token.open``."""
        descriptor = self.token.open(self.graph_id, f"the labels of process {self.token.pid} can't be mapped")
        try:
            memory = mmap.mmap(descriptor, max(1, 8 * self.size))
        finally:
            os.close(descriptor)
        # The array keeps the mapping.
        return np.frombuffer(memory, np.uint64, self.size)
