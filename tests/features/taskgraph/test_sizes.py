"""Sizes by which Dask weighs data: bytes in the worker's memory, so that Dask spills and moves the right objects."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask.sizeof import sizeof

from dbfs_workers.features.taskgraph.bins import Bin, FrontierSlice
from dbfs_workers.search.backend import EdgeFrontier
from tests.support.gang import partitions

ROWS = np.arange(1000, dtype=np.uint32)
ON_A_GPU: Any = SimpleNamespace(nbytes=4000)


def assert_weighs(data: object, nbytes: int) -> None:
    # An object takes little besides its arrays.
    assert nbytes <= sizeof(data) < nbytes + 500


@pytest.mark.parametrize(
    ("rows", "parents", "nbytes"),
    [(ROWS, ROWS, 8000), (ROWS, None, 4000), (ON_A_GPU, ON_A_GPU, 0), (ON_A_GPU, None, 0)],
)
def test_results_of_a_level(rows: Any, parents: Any, nbytes: int) -> None:
    assert_weighs(EdgeFrontier(rows, parents), nbytes)
    sent = Bin("a-run", 3, 1, 2, rows, parents)
    assert_weighs(sent, nbytes)
    assert_weighs(FrontierSlice("a-run", 3, 1, rows), nbytes // (1 if parents is None else 2))


def test_partitions() -> None:
    src, dst = np.arange(999), np.arange(1, 1000)
    partition = partitions(1000, src, dst, 1, directed=True)[0]
    assert_weighs(partition, partition.nbytes)
    assert_weighs(replace(partition, row_offsets=ON_A_GPU, columns=ON_A_GPU, in_edges=None), 0)
