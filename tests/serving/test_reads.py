"""What ranks take out of their labels, against plain arithmetic."""

import os

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from dbfs_workers.serving.reads.kernels import labels as kernels
from dbfs_workers.serving.reads.label_buffer import ClientBuffer, OpenBuffers
from dbfs_workers.serving.reads.messages import MOST_STEPS
from dbfs_workers.serving.reads.server import RankRows

stripes = strategies.builds(
    Stripe,
    strategies.one_of(strategies.integers(1, 5000), strategies.integers(2**31, 2**32 - 2**12)),
    strategies.integers(1, 64),
)


@pytest.mark.parametrize("p", [1, 2, 3, 7, 64])
def test_positions_of_internal_ids_are_exact(p: int) -> None:
    check_positions(Stripe(2**32 - 2**12, p), np.random.default_rng(p).integers(0, 2**32 - 2**12, 300).tolist())


@pytest.mark.full
@hypothesis.given(stripe=stripes, data=strategies.data())
def test_positions_of_any_internal_ids(stripe: Stripe, data: strategies.DataObject) -> None:
    check_positions(stripe, data.draw(strategies.lists(strategies.integers(0, stripe.n - 1), max_size=30)))


def check_positions(stripe: Stripe, vertices: list[int]) -> None:
    # The first and the last row of each rank are where a quotient could be off by one.
    edge = [row * stripe.p + rank for rank in range(stripe.p) for row in (0, stripe.owned(rank) - 1)]
    vertices = [vertex for vertex in [*vertices, *edge] if 0 <= vertex < stripe.n]
    ids = np.array([*(stripe.internal(vertex) for vertex in vertices), NO_VERTEX], np.uint32)
    out = np.empty(ids.size, np.uint32)
    kernels.positions_of(ids, stripe.n_local, stripe.p, out)
    assert out.tolist() == [*vertices, NO_VERTEX]
    # Each rank's labels are its row numbers: every vertex gets its own row, from its owner.
    positions = np.array(vertices, np.uint32)
    placed = np.full(positions.size, NO_VERTEX)
    small = Stripe(min(stripe.n, 5000), stripe.p)
    positions = positions[positions < small.n]
    for rank in range(small.p):
        kernels.place(np.arange(small.n_local, dtype=np.uint32), 0, rank, small.p, positions, placed[: positions.size])
    assert placed[: positions.size].tolist() == (positions // small.p).tolist()


def test_a_long_walk_takes_several_calls() -> None:
    n = 2 * MOST_STEPS
    parents = np.maximum(np.arange(n) - 1, 0)
    rows = RankRows(Stripe(n, 1), 0, None, parents)
    path, over = rows.walk(n - 1)
    assert (len(path), over) == (MOST_STEPS + 1, False)
    rest, over = rows.walk(path.pop())
    assert (path + rest, over) == (list(range(n))[::-1], True)


def test_many_walks_are_made_together() -> None:
    """On rank 1 of 2: a chain of odd positions whose source is 1, one that leaves the rank, and an unreached one."""
    stripe = Stripe(64, 2)
    parents = np.arange(1, 64, 2) - 2
    parents[0], parents[10], parents[20] = 1, 4, -1
    steps = RankRows(stripe, 1, None, parents).walk_all(np.array([7, 25, 41, 1]))
    assert steps.T.tolist() == [[7, 5, 3, 1], [25, 23, 21, 4], [41, -1, -1, -1], [1, 1, 1, 1]]


def test_buffers_are_opened_by_their_token_only() -> None:
    buffers, one = OpenBuffers(), ClientBuffer()
    opened = buffers.open(one.handle)
    assert opened is not None
    assert opened is buffers.open(one.handle)
    one.labels(1, 3)[:] = [5, 6, 7]
    assert opened.labels(1, 3).tolist() == [5, 6, 7]
    with open(os.devnull, "rb") as file:  # noqa: PTH123
        other = ClientBuffer()
        os.dup2(file.fileno(), other.handle.token.descriptor)
        assert buffers.open(other.handle) is None
