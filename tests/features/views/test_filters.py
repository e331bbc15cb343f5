"""A rank's filter by itself: in threads, each of which has a part of the edges."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dbfs_workers.features.views import filters
from dbfs_workers.features.views.conditions import ArrowCondition
from dbfs_workers.features.views.kept import RankAttributes
from tests.support.gang import partitions
from tests.support.graphs import random


# The second is a column as it is, whose bits begin where a step does.
@pytest.mark.parametrize("condition", [pc.field("year") < 2004, pc.field("early")])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("cores", [1, 5])
def test_threads_share_the_edges(
    monkeypatch: pytest.MonkeyPatch, cores: int, directed: bool, condition: pc.Expression
) -> None:
    monkeypatch.setattr(filters, "_THREAD_EDGES", 10)
    monkeypatch.setattr(filters, "_STEP", 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2 * cores))
    n, src, dst = random(60, 200, 4)
    loops = np.arange(20).repeat(3)
    src, dst = np.append(src, loops), np.append(dst, loops)
    (part,) = partitions(n, src, dst, 1, directed=directed)
    years = np.random.default_rng(4).integers(2000, 2010, part.m_local)
    names = pa.array([f"v{year}" for year in years]).dictionary_encode()
    passes = years < 2004
    out = pa.table({"year": years, "name": names, "early": passes})
    into = None if part.in_edges is None else out.slice(0, part.in_edges.columns.size).combine_chunks()
    attributes = RankAttributes(out, into)
    rule = filters.Rule((ArrowCondition(condition),))
    found = filters.passing(part, attributes, [rule], None, 2)
    assert filters.count(found) == passes.sum() + (0 if into is None else (into["year"].to_numpy() < 2004).sum())
    made = filters.made(part, attributes, None, found, False, 3, 2)
    view, (kept,) = made.partition, made.beside
    assert (view.version, kept.version) == (3, 3)
    np.testing.assert_array_equal(view.columns, part.columns[passes])
    rows = np.repeat(np.arange(part.stripe.n_local), np.diff(part.row_offsets))[passes]
    np.testing.assert_array_equal(np.repeat(np.arange(part.stripe.n_local), np.diff(view.row_offsets)), rows)
    assert kept.columns_of(view).equals(attributes.columns_of(part).filter(pa.array(passes)).combine_chunks())
    assert view.self_loops == (view.columns == rows).sum() > 0
    assert view.duplicates == ((np.diff(view.columns) == 0) & (np.diff(rows) == 0)).sum() > 0
