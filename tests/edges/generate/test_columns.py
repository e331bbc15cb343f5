"""Columns that generators draw: the same for any cut, uniform, independent of each other; and texts that are none."""

import datetime
import pickle

import numpy as np
import pyarrow as pa
import pytest

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import kronecker, uniform
from dbfs.edges.generate.lattice import lattice
from dbfs.errors import InvalidOptionError
from tests.support.generators import ONE_OF_EACH

COLUMNS = ["weight", "share=-1.5..2", "day=2020-02-27..2020-03-02", "kind=road|rail", "same=-5..-5", "one=a"]


def drawn(edges: EdgeList, columns: list[str], piece_edges: int) -> pa.Table:
    kept = edges.keeping(columns)
    assert kept.attributes is not None
    pieces = kept.attributes.cut(piece_edges)
    sizes = [piece.read()[0].size for piece in kept.cut(piece_edges)]
    tables = [pickle.loads(pickle.dumps(piece)).attributes() for piece in pieces]
    assert [table.num_rows for table in tables] == sizes
    assert all(table.schema == kept.attributes.schema for table in tables)
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


@pytest.mark.parametrize("edges", [*ONE_OF_EACH, lattice("line", (50,))], ids=lambda edges: edges.name)
def test_any_cut_draws_the_same_values(edges: EdgeList) -> None:
    whole = drawn(edges, COLUMNS, 2**40)
    assert whole.equals(drawn(edges, COLUMNS, 37))
    assert drawn(edges, ["kind=road|rail"], 50)["kind"].to_pylist() == whole["kind"].to_pylist()


def test_values_are_uniform_and_independent() -> None:
    edges = uniform(1000, 60_000)
    table = drawn(edges, [*COLUMNS, "other"], 2**40)
    weight, other = (table[name].to_numpy() for name in ("weight", "other"))
    # Chi squares of 254 degrees of freedom: 400 is 6 standard deviations above the mean.
    expected = weight.size / 255
    counts = np.bincount(weight, minlength=256)
    assert counts[0] == 0
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 400
    assert abs(np.corrcoef(weight, other)[0, 1]) < 0.03
    share = table["share"].to_numpy()
    assert -1.5 <= share.min() < -1.49
    assert 1.99 < share.max() < 2
    assert np.abs(np.sort(share) - np.linspace(-1.5, 2, share.size)).max() < 0.05
    assert {str(day) for day in set(table["day"].to_pylist())} == {
        f"2020-{day}" for day in ("02-27", "02-28", "02-29", "03-01", "03-02")
    }
    assert table["day"].type == pa.date32()
    assert table["day"][0].as_py() >= datetime.date(2020, 2, 27)
    words = table["kind"].to_pylist()
    assert set(words) == {"road", "rail"}
    assert abs(words.count("road") / len(words) - 0.5) < 0.02
    assert set(table["same"].to_pylist()) == {-5}
    assert set(table["one"].to_pylist()) == {"a"}


def test_parallel_edges_and_other_graphs_have_other_values() -> None:
    def weights(edges: EdgeList) -> list[int]:
        found: list[int] = drawn(edges, ["weight=1..1000000"], 100)["weight"].to_pylist()
        return found[:500]

    first = weights(uniform(2, 500))
    assert len(set(first)) > 490
    for other in (uniform(2, 500, seed=2), kronecker(5)):
        assert sum(map(int.__eq__, first, weights(other))) < 5


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("w=5..1", "range is empty"),
        ("w=1.5..1.5", "range is empty"),
        ("w=0..1099511627776", "more than 2\\^40"),
        ("w=1..b", "neither two numbers nor two dates"),
        ("w=2020-01-01..2020-02-30", "neither two numbers nor two dates"),
        ("w=2020-01-02..2020-01-01", "range is empty"),
        ("w=", "some distinct words"),
        ("w=a|a", "some distinct words"),
        ("w=a||b", "some distinct words"),
    ],
)
def test_texts_that_can_not_be_drawn(column: str, words: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"column 'w' can't be drawn.*{words}.*weight=1..255"):
        uniform(10, 10).keeping([column])


def test_a_name_twice() -> None:
    with pytest.raises(InvalidOptionError, match="'w' twice"):
        uniform(10, 10).keeping(["w=1..5", "w=a"])
