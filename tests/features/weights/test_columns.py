"""Weights are a column of the table that was loaded, of its views too."""

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.errors import InvalidOptionError
from tests.support.weights import arcs, expected


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("directed", [False, True])
def test_a_column_of_a_table_and_of_a_view_gives_the_weights(
    client: distributed.Client, directed: bool, ranks: int
) -> None:
    rng = np.random.default_rng(ranks)
    src, dst, weights = (rng.integers(0, most, 300) for most in (60, 60, 9))
    kinds = rng.choice(["road", "rail"], 300)
    table = pa.table({"from": src, "to": dst, "minutes": weights, "kind": kinds})
    with dbfs.load(
        table,
        source="from",
        target="to",
        edge_columns=["minutes", "kind"],
        client=client,
        ranks=ranks,
        directed=directed,
        ids="given",
    ) as graph:
        assert list(graph.ids()) == sorted({*src.tolist(), *dst.tolist()})
        start = int(src[0])
        for passing, found in (
            (np.ones(300, bool), graph),
            (kinds == "road", graph.where(edges=pc.field("kind") == "road")),
        ):
            between = arcs((60, src[passing], dst[passing]), weights[passing], directed=directed)
            distances = expected(60, between, [start], np.dtype(np.int64))
            result = found.sssp(start, "minutes", predecessors=True)
            assert result.distances().tolist() == distances[np.array(list(graph.ids()))].tolist()
        with pytest.raises(InvalidOptionError, match="no column 'hours'; the columns are: 'minutes', 'kind'"):
            graph.sssp(start, "hours")


def test_edges_without_columns_have_no_weights(client: distributed.Client) -> None:
    with dbfs.load([(1, 2)], client=client) as graph, pytest.raises(InvalidOptionError, match="edge_columns="):
        graph.sssp(1, "minutes")
