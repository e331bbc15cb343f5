"""dask collections as edges: the partitions' ids, computed where Dask likes, with the errors of tables."""

import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dbfs
from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError, InvalidOptionError

FRAME = pd.DataFrame(
    {
        "from": ["alice", "bob", "carol", "alice", "eve"],
        "w": 0.5,
        "to": ["bob", "carol", "dan", "dan", "eve"],
        "a": [0, 1, 2, 0, 9],
        "b": [1, 2, 3, 3, 9],
    }
)


def rows_of(edges):
    """Read all pieces with Dask's scheduler of this process."""
    found = []
    for piece in edges.cut(1):
        src, dst = piece.read()
        found += zip(
            *(ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist() for ids in (src, dst)), strict=True
        )
    return found


@pytest.fixture
def frame():
    return dd.from_pandas(FRAME, npartitions=3)


def test_partitions_are_pieces(frame):
    edges = edge_list(frame, source="from", target="to")
    assert rows_of(edges) == list(zip(FRAME["from"], FRAME["to"], strict=True))
    assert (edges.n, edges.m, edges.id_kinds) == (None, None, ("string",))
    assert len(edges.cut(10**6)) == frame.npartitions
    assert rows_of(edge_list(frame[["a", "b"]])) == list(zip(FRAME["a"], FRAME["b"], strict=True))


def test_arrays_are_cut_alike():
    edges = edge_list((da.arange(10, chunks=3), da.arange(1, 11, chunks=4)))
    assert rows_of(edges) == [(i, i + 1) for i in range(10)]
    assert len(edges.cut(1)) == 4


def test_columns_are_a_pair(frame):
    assert rows_of(edge_list((frame["a"], frame["b"]))) == list(zip(FRAME["a"], FRAME["b"], strict=True))


@pytest.mark.parametrize(("ranks", "persisted"), [(1, True), (2, False)])
def test_a_dask_dataframe_loads_by_column_names(client: distributed.Client, frame, ranks, persisted):
    given = client.persist(frame) if persisted else frame
    with dbfs.load(given, source="from", target="to", client=client, ranks=ranks) as graph:
        assert graph.ids().to_pylist() == ["alice", "bob", "carol", "dan", "eve"]
        assert graph.bfs("alice").distances().tolist() == [0, 1, 2, 1, -1]
    with dbfs.load(given, source=["a", "from"], target=["b", "to"], directed=True, client=client, ranks=ranks) as graph:
        assert graph.bfs((0, "alice")).distances().tolist() == [0, 1, 2, 1, -1]


class OnlyArrow:
    """A partition like a GPU library's: only columns by name, and Arrow's stream of them."""

    def __init__(self, table):
        self.table = table

    def __getitem__(self, columns):
        return OnlyArrow(self.table.select(columns))

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_partitions_may_offer_arrows_stream_alone(client: distributed.Client):
    def part(start):
        return OnlyArrow(pa.Table.from_pandas(FRAME[start : start + 2]))

    frame = dd.from_map(part, [0, 2, 4], meta=FRAME[:0])
    with dbfs.load(frame, source="from", target="to", client=client, ranks=2) as graph:
        assert graph.ids().to_pylist() == ["alice", "bob", "carol", "dan", "eve"]
        assert graph.bfs("alice").distances().tolist() == [0, 1, 2, 1, -1]
    with dbfs.load(frame, source=["a", "from"], target=["b", "to"], directed=True, client=client) as graph:
        assert graph.bfs((0, "alice")).distances().tolist() == [0, 1, 2, 1, -1]


def test_columns_that_are_not_read_are_not_computed(client: distributed.Client, tmp_path):
    FRAME.to_parquet(tmp_path / "a.parquet")
    with dbfs.load(dd.read_parquet(tmp_path), source="a", target="b", client=client) as graph:
        assert graph.ids().tolist() == [0, 1, 2, 3, 9]


def test_an_error_in_a_partition_names_its_row(client: distributed.Client):
    frame = FRAME.assign(to=["bob", "carol", None, "dan", "eve"])
    with pytest.raises(EdgeInputError, match=r"dask DataFrame, partition 1, row 2 of the index: column 'to' is null"):
        dbfs.load(dd.from_pandas(frame, npartitions=3), source="from", target="to", client=client)


BAD = {
    "names": (
        lambda frame: {"edges": frame[["from", "w", "a", "b"]]},
        EdgeInputError,
        "has 4 columns ('from', 'w', 'a', 'b')",
    ),
    "missing": (lambda frame: {"edges": frame, "source": "x", "target": "b"}, EdgeInputError, "has no column 'x'. Its"),
    "kinds": (lambda frame: {"edges": frame, "source": "a", "target": "to"}, EdgeInputError, "'a' holds integers and"),
    "floats": (lambda frame: {"edges": frame, "source": "w", "target": "a"}, EdgeInputError, "column 'w' holds double"),
    "lengths": (lambda frame: {"edges": (da.arange(5), da.arange(5, chunks=2)[:4])}, EdgeInputError, "both must be"),
    "dimensions": (
        lambda frame: {"edges": (da.zeros((2, 2)), da.arange(2))},
        EdgeInputError,
        "one-dimensional",
    ),
    "format": (lambda frame: {"edges": frame, "format": "csv"}, InvalidOptionError, "format= is for files"),
    "array-names": (
        lambda frame: {"edges": (da.arange(5), da.arange(5)), "source": "a", "target": "b"},
        InvalidOptionError,
        "a pair of dask arrays has none",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_collections(frame, name):
    make, error, words = BAD[name]
    with pytest.raises(error) as caught:
        edge_list(**make(frame))
    assert words in str(caught.value)


def test_a_frame_that_a_client_persisted_by_another_address_of_the_scheduler(client: distributed.Client) -> None:
    """A host has several names."""
    address = client.scheduler.address.replace("127.0.0.1", "localhost")
    assert address != client.scheduler.address
    with distributed.Client(address, set_as_default=False) as other:
        # The scheduler hears of what the client persists only after half a second.
        other.scheduler_comm.interval = 0.5
        other.submit(int).result()
        persisted = other.persist(dd.from_pandas(pd.DataFrame({"s": [1, 2], "t": [2, 3]}), npartitions=2))
        with dbfs.load(persisted, client=client) as graph:
            assert graph.n == 3


def test_a_frame_of_another_cluster_is_refused(client: distributed.Client) -> None:
    """Dask says only that futures were cancelled."""
    frame = dd.from_pandas(pd.DataFrame({"s": [1, 2], "t": [2, 3]}), npartitions=2)
    options = {"n_workers": 1, "processes": False, "dashboard_address": None, "set_as_default": False}
    with distributed.Client(**options) as other:
        foreign = other.persist(frame)
        with pytest.raises(
            EdgeInputError, match=r"persisted on the cluster of \S+, not on that of \S+; pass the client"
        ):
            dbfs.load(foreign, client=client)
    with pytest.raises(EdgeInputError, match="persisted by a client that is closed"):
        dbfs.load(foreign, client=client)
