"""Living partitions: random updates against a set of edges, and versions that stay whole."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError, InvalidVertexError
from dbfs_workers.building.bin_store import BinStore
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.features.living import pages
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import LivingPartition, NextVersion, incident_edges, update_keys, updated
from dbfs_workers.search.partition.partition import Partition, Rows, describe
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.partitions import build

PLENTY = 2**60
Edge = tuple[int, int]


def change(
    parts: list[Partition], kind: str, edges: list[Edge], *, hub_first: bool = False, free: int = PLENTY, **options: Any
) -> list[NextVersion]:
    """Update the partitions of all ranks by one batch."""
    stripe, directed = parts[0].stripe, parts[0].directed
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    out = bin_edges(src, dst, stripe, symmetrise=not directed, name="batch")
    into = bin_edges(dst, src, stripe, symmetrise=False, name="batch")
    return [
        updated(
            part,
            UpdateSpec(kind, hub_first, **options),
            BinStore.of(stripe, [out[part.rank]]),
            BinStore.of(stripe, [into[part.rank]]) if directed else None,
            lambda: free,
        )
        for part in parts
    ]


def stored(rows: Rows, stripe: Stripe, rank: int) -> Iterator[tuple[int, list[int]]]:
    """The vertices of a rank with their neighbours, in the order of the columns."""
    for row, (start, end) in enumerate(zip(rows.starts, rows.ends, strict=True)):
        yield row * stripe.p + rank, stripe.vertex(rows.columns[start:end].astype(np.int64)).tolist()


def edges_of(parts: list[Partition], *, reverse: bool = False) -> list[Edge]:
    found = []
    for part in parts:
        rows = part.parent_rows if reverse else part.rows
        assert rows is not None
        for vertex, others in stored(rows, part.stripe, part.rank):
            found += [(other, vertex) if reverse else (vertex, other) for other in others]
    return found


batches = st.lists(
    st.tuples(st.booleans(), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60)), max_size=6
)


@settings(deadline=None, max_examples=60)
@given(
    batches=batches,
    built=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=80),
    p=st.integers(1, 4),
    directed=st.booleans(),
    hub_first=st.booleans(),
    in_buckets=st.booleans(),
    rewritten=st.sampled_from([0, 0.5, 2]),
)
def test_random_updates_against_a_set(
    batches: list[tuple[bool, list[Edge]]],
    built: list[Edge],
    p: int,
    directed: bool,
    hub_first: bool,
    in_buckets: bool,
    rewritten: float,
) -> None:
    stripe = Stripe(40, p)
    src, dst = np.array(built, np.int64).reshape(-1, 2).T
    parts = build(stripe, src, dst, directed=directed, in_edges=directed, hub_first=hub_first)

    def both(edges: list[Edge]) -> set[Edge]:
        return set(edges) | (set() if directed else {(v, u) for u, v in edges})

    def count(edges: set[Edge]) -> int:
        return len(edges if directed else {(min(edge), max(edge)) for edge in edges})

    expected = both(built)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_SMALL_UPDATE", 0 if in_buckets else 1 << 15)
        patch.setattr(pages, "_REWRITTEN", rewritten)
        for number, (delete, batch) in enumerate(batches, 1):
            before = expected
            expected = before - both(batch) if delete else before | both(batch)
            results = change(parts, "delete-edges" if delete else "insert-edges", batch, hub_first=hub_first)
            assert sorted(edges_of(parts)) == sorted(edges_of(parts))
            parts = [result.partition for result in results]
            changed = count(before ^ expected)
            assert sum(result.changes.edges for result in results) == changed
            assert sum(result.changes.refused for result in results) == len(batch) - changed
            found = edges_of(parts)
            assert set(found) == expected
            assert len(found) - sum(part.duplicates for part in parts) == len(expected)
            assert [part.version for part in parts] == [number] * p
            assert sum(part.m_local for part in parts) == len(found) == sum(describe(part).m_local for part in parts)
            if directed:
                assert sorted(edges_of(parts, reverse=True)) == sorted(found)
            for part in parts:
                for _, others in stored(part.rows, stripe, part.rank):
                    keys = others if hub_first else [stripe.internal(other) for other in others]
                    assert keys == sorted(keys)
                    # A copy of the version as a CSR has the same rows.
                frozen = updated(part, UpdateSpec("freeze", hub_first), None, None, lambda: PLENTY).partition
                assert list(stored(frozen.rows, stripe, part.rank)) == list(stored(part.rows, stripe, part.rank))
                assert (frozen.version, frozen.self_loops) == (part.version, part.self_loops)


def test_the_version_before_stays_whole() -> None:
    parts = build(Stripe(60, 2), np.arange(59), np.arange(1, 60), directed=False)
    first = [result.partition for result in change(parts, "insert-edges", [(0, 59), (3, 9)])]
    seen = edges_of(first)
    for _ in range(3):
        # As if a batch were prepared and then dropped, again and again.
        change(first, "insert-edges", [(u, v) for u in range(60) for v in range(60)])
        change(first, "delete-edges", [(v, v + 1) for v in range(59)])
    assert edges_of(first) == seen


def test_freed_pages_are_used_again() -> None:
    part = build(Stripe(256, 1), np.repeat(np.arange(256), 8), np.tile(np.arange(8), 256), directed=True)[0]
    edges = [(u, v) for u in range(16) for v in range(20, 26)]
    sizes = []
    for _ in range(20):
        for kind in ("insert-edges", "delete-edges"):
            part = change([part], kind, edges)[0].partition
        sizes.append(part.nbytes)
    # Of a quarter more pages than the rows have, the batches take a few again and again.
    assert max(sizes) == sizes[0]
    assert part.free_pages > 0
    compact = updated(part, UpdateSpec("compact", hub_first=False), None, None, lambda: PLENTY).partition
    assert compact.free_pages == 0
    assert compact.nbytes < part.nbytes
    assert edges_of([compact]) == edges_of([part])


@pytest.mark.full
def test_a_pool_that_does_not_fit_is_refused_and_the_version_stays() -> None:
    n = 100_000
    part = build(Stripe(n, 1), np.arange(n - 1), np.arange(1, n), directed=False)[0]
    with pytest.raises(GraphTooLargeError, match=r"need [\d,]+ bytes, 1,000 bytes are free"):
        change([part], "insert-edges", [(0, 5)], free=1000)
    living = change([part], "insert-edges", [(0, 5)])[0].partition
    many = [(int(u), int(v)) for u, v in np.random.default_rng(1).integers(0, n, (200_000, 2))]
    with pytest.raises(GraphTooLargeError, match="bytes are free"):
        change([living], "insert-edges", many, free=1000)
    assert set(edges_of([living])) == set(edges_of([part])) | {(0, 5), (5, 0)}


@pytest.mark.parametrize("directed", [False, True])
def test_vertices_come_and_go(directed: bool) -> None:
    stripe = Stripe(40, 3, room=10)
    src, dst = (np.random.default_rng(1).integers(0, 40, (2, 200))).astype(np.int64)
    parts = build(stripe, src, dst, directed=directed, in_edges=directed)
    gone: NDArray[np.int64] = np.array([3, 7, 39])
    incident = [(int(u), int(v)) for part in parts for u, v in zip(*incident_edges(part, gone), strict=True)]
    expected = {(u, v) for u, v in edges_of(parts) if u not in gone and v not in gone}
    results = change(parts, "delete-vertices", incident, vertices=gone)
    parts = [result.partition for result in results]
    assert set(edges_of(parts)) == expected
    assert [result.vertices.tolist() for result in results] == [[3, 7, 39]] * 3
    assert [result.absent for result in change(parts, "delete-vertices", [], vertices=np.array([7, 8]))] == [1] * 3
    with pytest.raises(InvalidVertexError, match="vertex 7 was deleted; version 1 of the graph"):
        change(parts, "insert-edges", [(1, 2), (4, 7)])
    results = change(parts, "insert-vertices", [], count=5)
    assert [result.vertices.tolist() for result in results] == [[3, 7, 39, 40, 41]] * 3
    parts = [result.partition for result in results]
    assert {part.stripe for part in parts} == {Stripe(42, 3, room=8)}
    assert parts[0].stripe.n_local == stripe.n_local
    parts = [result.partition for result in change(parts, "insert-edges", [(41, 7)])]
    assert set(edges_of(parts)) == expected | ({(41, 7)} if directed else {(41, 7), (7, 41)})
    with pytest.raises(GraphTooLargeError, match="9 vertices to insert, room for 8"):
        change(parts, "insert-vertices", [], count=9)


def test_a_csr_of_a_version_is_made_once() -> None:
    part = build(Stripe(10, 1), np.array([0]), np.array([1]), directed=False)[0]
    living = change([part], "insert-edges", [(0, 2)])[0].partition
    assert isinstance(living, LivingPartition)
    assert living.row_offsets is living.row_offsets
    assert living.columns.tolist() == [1, 2, 0, 0]
    assert living.on(np) is living


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("p", [1, 3])
def test_keys_of_a_whole_batch_are_those_of_its_bins(p: int, directed: bool) -> None:
    parts = build(Stripe(500, p), np.arange(20), np.arange(20) + 1, directed=directed, in_edges=directed)
    stripe, (src, dst) = parts[0].stripe, np.random.default_rng(p).integers(0, 90, (2, 3000)).astype(np.uint32)
    # A row of more keys than are sorted at once.
    src[:900] = 7
    ends = (src.astype(np.int64), dst.astype(np.int64))
    out = bin_edges(*ends, stripe, symmetrise=not directed, name="batch")
    into = bin_edges(*ends[::-1], stripe, symmetrise=False, name="batch")
    for part in parts:
        order = pages.Order(stripe, part.rank, hub_first=False)
        keys, in_keys = update_keys(part, src, dst, symmetrise=not directed, free_bytes=lambda: PLENTY)
        assert (keys == order.keys(BinStore.of(stripe, [out[part.rank]]))).all()
        assert (in_keys is None) != directed
        if in_keys is not None:
            assert (in_keys == order.keys(BinStore.of(stripe, [into[part.rank]]))).all()
    with pytest.raises(GraphTooLargeError, match="a batch of 3,000 edges needs up to .* bytes, 99 bytes are free"):
        update_keys(parts[0], src, dst, symmetrise=not directed, free_bytes=lambda: 99)


def test_the_longest_row_may_become_shorter() -> None:
    star = np.arange(1, 40)
    parts = build(Stripe(40, 1), np.zeros(39, np.int64), star, directed=True)
    assert parts[0].max_degree == 39
    inserted = [result.partition for result in change(parts, "insert-edges", [(1, 2), (1, 3)])]
    for kept in (20, 1):
        gone = [(0, other) for other in range(kept + 1, 40)]
        shorter = [result.partition for result in change(inserted, "delete-edges", gone)]
        assert shorter[0].max_degree == max(kept, 2)


@pytest.mark.parametrize("rewritten", [0, 2])
def test_a_self_loop_is_one_edge(rewritten: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_REWRITTEN", rewritten)
    parts = build(Stripe(40, 2), np.array([0]), np.array([1]), directed=False)
    for kind, batch, changed, columns in (
        ("insert-edges", [(3, 3), (4, 5)], 2, 3),
        ("insert-edges", [(3, 3), (4, 4)], 1, 1),
        ("delete-edges", [(3, 3), (4, 5), (4, 4)], 3, -4),
    ):
        results = change(parts, kind, batch)
        assert sum(result.changes.edges for result in results) == changed
        assert sum(result.changes.refused for result in results) == len(batch) - changed
        assert sum(result.changes.columns for result in results) == columns
        parts = [result.partition for result in results]
