"""1-D partitions joined from the blocks of a 2-D one, against those that the build makes of the same edges."""

import numpy as np
import pytest

from dbfs_workers.building import joining
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import grids, partitions
from tests.support.graphs import random


@pytest.mark.parametrize("hub_first", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("p", [1, 3, 4, 6])
def test_joined_partitions_are_the_built_ones(p: int, directed: bool, hub_first: bool) -> None:
    n, src, dst = random(200, 900, p)
    # Self-loops, edges more than once, and a row of many columns.
    src = np.concatenate([src, [5, 5, 7], src[:50], np.full(60, 9)])
    dst = np.concatenate([dst, [5, 5, 7], dst[:50], np.arange(60)])
    stripe = Stripe(n, p)
    blocks = grids.build(stripe, src, dst, directed=directed, hub_first=hub_first)
    built = partitions.build(stripe, src, dst, directed=directed, in_edges=directed, hub_first=hub_first)
    grid = GridLayout.of(p)
    for rank, expected in enumerate(built):
        out = [grid.out_part(blocks[peer], rank) for peer in grid.out_holders(rank)]
        into = [grid.in_part(blocks[peer], rank) for peer in grid.in_holders(rank)] if directed else None
        options = {"input_edges": src.size, "directed": directed, "hub_first": hub_first}
        joined = joining.join(stripe, rank, out, into, **options)
        pairs = [(joined.row_offsets, expected.row_offsets), (joined.columns, expected.columns)]
        if directed:
            assert joined.in_edges is not None
            assert expected.in_edges is not None
            pairs.append((joined.in_edges.row_offsets, expected.in_edges.row_offsets))
            pairs.append((joined.in_edges.columns, expected.in_edges.columns))
        for found, wanted in pairs:
            np.testing.assert_array_equal(found, wanted)
        assert (joined.self_loops, joined.duplicates) == (expected.self_loops, expected.duplicates)
        assert joined.nbytes <= joining.nbytes(out, into)
