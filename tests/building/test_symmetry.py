"""The imbalance of edges, and the reverses that edges lack, against Python's integers and counts of pairs."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.building import symmetry
from dbfs_workers.building.symmetry import MODULUS, imbalance, imbalance_and_largest, imbalance_of_edges, imbalance_on
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.partitions import build

Edge = tuple[int, int]

# Vertices of few edges, so that reverses are often there, and as large as internal ids get.
IDS = st.integers(0, 9) | st.sampled_from([2**31, 2**31 + 1, 2**32 - 2])
EDGES = st.lists(st.tuples(IDS, IDS), max_size=30)
SMALL = st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=40)


def arrays(edges: list[Edge]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    return src, dst


def by_definition(edges: list[Edge]) -> int:
    def parts(vertex: int) -> tuple[int, int]:
        x = (vertex + 1) * 0x9E3779B97F4A7C15 % MODULUS
        return x >> 32, x + (x >> 32) ** 2

    ends = ((*parts(u), *parts(v)) for u, v in edges)
    return sum(q * h - r * g for q, g, r, h in ends) % MODULUS


def lacking(edges: list[Edge]) -> Counter[Edge]:
    """The reverses that edges lack, with their numbers."""
    return Counter((v, u) for u, v in edges) - Counter(edges)


@settings(max_examples=300)
@given(EDGES, st.booleans())
def test_edges_balance_if_each_is_there_as_often_as_its_reverse(edges: list[Edge], both: bool) -> None:
    if both:
        edges += [(v, u) for u, v in edges]
    found = imbalance_of_edges(*arrays(edges)) % MODULUS
    assert found == by_definition(edges)
    assert (found == 0) == (not lacking(edges))
    assert Counter(zip(*(ends.tolist() for ends in symmetry.missing_reverses(*arrays(edges))), strict=True)) == lacking(
        edges
    )


@pytest.mark.parametrize("u", [0, 1, 2**31 - 1, 2**32 - 2])
def test_no_edge_between_two_vertices_is_without_weight(u: int) -> None:
    """The difference of two Fibonacci numbers' multiples of the golden ratio is the smallest there is."""
    others = {u ^ 1, 0, 2971215073, (u + 2971215073) % 2**32, (u + 1836311903) % 2**32, 2**32 - 1} - {u}
    assert all(imbalance_of_edges(*arrays([(u, v)])) for v in others)


@settings(max_examples=40)
@given(SMALL, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_the_ranks_add_up_to_the_graph(edges: list[Edge], p: int, threads: int, both: bool) -> None:
    """On the host, and by the way of GPUs; ``missing_of`` finds the reverses on all ranks together."""
    if both:
        edges += [(v, u) for u, v in edges]
    stripe, (src, dst) = Stripe(40, p), arrays(edges)
    parts = build(stripe, src, dst, directed=True, in_edges=True)
    firsts = [part.rank * stripe.n_local for part in parts]
    found = [imbalance(part.out_edges, first, threads) for part, first in zip(parts, firsts, strict=True)]
    internal = [(int(stripe.internal(u)), int(stripe.internal(v))) for u, v in edges]
    assert sum(found) % MODULUS == by_definition(internal)
    assert found == [imbalance_on(np, part.out_edges, first) for part, first in zip(parts, firsts, strict=True)]
    largest = [imbalance_and_largest(part.out_edges, 0, threads)[1] for part in parts]
    assert max(largest) == max((v for _, v in internal), default=0)
    missing = Counter[Edge]()
    for part in parts:
        missing.update(zip(*(ends.tolist() for ends in symmetry.missing_of(part)), strict=True))
    assert missing == lacking(edges)


def test_chunks_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    src, dst = np.random.default_rng(1).integers(0, 90, (2, 500))
    (part,) = build(Stripe(90, 1), src, dst, directed=True, in_edges=True)
    whole = imbalance(part.out_edges, 0)
    assert whole
    monkeypatch.setattr(symmetry, "_GPU_ITEMS", 64)
    assert imbalance_on(np, part.out_edges, 0) == whole
