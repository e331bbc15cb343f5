"""A gang's answers to one traversal in every direction, held against SciPy's."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import DIRECTIONS, TraversalSpec
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS
from tests.support import oracle
from tests.support.gang import Answer, spec
from tests.support.graphs import Arrays


def every_spec(sources: Sequence[int]) -> list[TraversalSpec]:
    """Return a traversal in every direction, with and without predecessors."""
    return [
        spec(*sources, direction=direction, predecessors=predecessors)
        for direction in DIRECTIONS
        for predecessors in (True, False)
    ]


def assert_counts_add_up(answer: Answer) -> dict[str, NDArray[np.int64]]:
    """Compare the counts of a traversal, joined over its ranks, with each other; return them, by level."""
    counts = answer.counts()
    np.testing.assert_array_equal(counts["edges"], counts["filtered"] + counts["own"] + counts["sent"])
    np.testing.assert_array_equal(counts["discovered"], counts["own"] + counts["sent"] - counts["culled"])
    by_rank = [dict(zip(COUNT_FIELDS, run.counts.T, strict=True)) for run in answer.ranks]
    largest = np.max([of_rank["frontier"] for of_rank in by_rank], axis=0)
    np.testing.assert_array_equal(counts["largest_frontier"], largest)
    return counts


def assert_scipys(
    specs: Sequence[TraversalSpec], answers: Sequence[Answer], arrays: Arrays, stripe: Stripe, *, directed: bool
) -> None:
    """Compare the labels and counts of all traversals with SciPy's. All have the same sources."""
    n, src, dst = arrays
    sources = list(specs[0].sources)
    matrix = oracle.adjacency(n, src, dst, directed=directed)
    expected = oracle.distances(matrix, sources)
    # A loop is one directed edge.
    degrees = np.bincount(src if directed else np.concatenate([src, dst[src != dst]]), minlength=n)
    for traversal, answer in zip(specs, answers, strict=True):
        np.testing.assert_array_equal(answer.distances(stripe), expected, err_msg=str(traversal))
        if traversal.predecessors:
            oracle.assert_valid_parents(matrix, expected, answer.parents(stripe), sources)
        assert answer.total(lambda run: run.reached) == (expected >= 0).sum()
        assert answer.total(lambda run: run.edges) == degrees[expected >= 0].sum()
        counts = assert_counts_add_up(answer)
        if traversal.direction != "auto":
            assert (counts["bottom_up"] == stripe.p * (traversal.direction == "bottom-up")).all()
