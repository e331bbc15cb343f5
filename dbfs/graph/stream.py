"""Traversals made while their results are used: a few ahead of the caller, so that few labels lie on the workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from dbfs.errors import NoRoomForLabelsError

if TYPE_CHECKING:
    from dbfs.graph.result import BFSResult

AHEAD = 16
"""Largest number of traversals of one run. A run costs about as much as a few traversals of a small graph."""


def stream(sources: Iterable[int], traverse: Callable[[list[int]], list[BFSResult]]) -> Iterator[BFSResult]:
    """Yield the result of a traversal from each source, in order.

    The next run starts when the caller has taken all results of the run before. The first run makes one traversal, and
    each later run up to twice as many. If their labels do not fit, a run makes fewer.

    Args:
        sources: sources, read as they are needed.
        traverse: makes one run, with a traversal from each source.

    Raises:
        NoRoomForLabelsError: there is no room for the labels of a single traversal.
    """
    remaining = iter(sources)
    size, most = 1, AHEAD
    batch: list[int] = []
    while True:
        batch += itertools.islice(remaining, max(0, size - len(batch)))
        if not batch:
            return
        try:
            results = traverse(batch[:size])
        except NoRoomForLabelsError:
            if size == 1:
                raise
            size = most = size // 2
            continue
        del batch[:size]
        # No reference stays here: the labels are dropped with the caller's last reference to the result.
        results.reverse()
        while results:
            yield results.pop()
        size = min(2 * size, most)
