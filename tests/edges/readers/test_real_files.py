"""The public graphs beside the checkout: vertices and distinct directed edges as SciPy counted them."""

import json
from pathlib import Path

import numpy as np
import pytest

from dbfs.edges.readers import from_file

DATA = Path(__file__).parents[3].parent / "shared" / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text()) if (DATA / "expected.json").exists() else {}

pytestmark = pytest.mark.skipif(not EXPECTED, reason=f"{DATA} is absent")


# The large road network takes seconds.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name == "road-FLA.gr.xz")) for name in EXPECTED]
)
def test_counts_of_real_files(name):
    edges = from_file(DATA / name)
    parts = [piece.read() for piece in edges.cut(3000)]
    u, v = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    assert edges.m in (None, u.size)
    n = edges.n
    if n is None:
        ids, ranks = np.unique(np.concatenate((u, v)), return_inverse=True)
        n, (u, v) = ids.size, np.split(ranks, 2)
    codes = np.concatenate((u * n + v, v * n + u)) if edges.symmetrise else u * n + v
    assert n == EXPECTED[name]["n"]
    assert np.unique(codes).size == EXPECTED[name]["distinct_directed_edges"]
