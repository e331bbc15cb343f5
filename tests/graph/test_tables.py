"""Results as tables, in the caller's ids: Arrow, pandas, Dask, Parquet and dictionaries, against SciPy and pandas."""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dbfs
from dbfs.errors import InvalidOptionError, OutputError, ResultReleasedError, WorkerLostError
from dbfs_workers.ids.label_table import places_of
from tests.support import oracle
from tests.support.graphs import GRAPHS, Arrays, random
from tests.support.named import KINDS, named_edges


def assert_frame(
    frame: pd.DataFrame, ids: list[Any], arrays: Arrays, directed: bool, distances: NDArray[np.int32], unreached: bool
) -> None:
    """The rows, by ascending id, are those of SciPy's distances; each predecessor is a neighbour one level up."""
    rows = np.arange(distances.size) if unreached else np.flatnonzero(distances >= 0)
    assert frame["vertex"].tolist() == [ids[row] for row in rows]
    assert frame["distance"].dtype == (pd.Int32Dtype() if unreached else np.dtype(np.int32))
    assert frame["distance"].fillna(-1).tolist() == distances[rows].tolist()
    neighbours = set(zip(*(ends.tolist() for ends in arrays[1:]), strict=True))
    if not directed:
        neighbours |= {(target, source) for source, target in neighbours}
    index = {one: at for at, one in enumerate(ids)}
    for row, parent in zip(rows.tolist(), frame["predecessor"], strict=True):
        if distances[row] <= 0:
            assert pd.isna(parent)
        else:
            assert (index[parent], row) in neighbours
            assert distances[index[parent]] == distances[row] - 1


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Convert a table as pandas does, with tuples for structs and nullable integers as in ``to_pandas``."""
    columns = {}
    for name in table.column_names:
        values = [tuple(one.values()) if isinstance(one, dict) else one for one in table[name].to_pylist()]
        columns[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)


def plain(frame: pd.DataFrame, unsorted: bool = True) -> list[tuple[Any, ...]]:
    """The rows as Python's values, missing ones as None, by ascending id."""
    rows = [tuple(None if pd.isna(one) is True else one for one in row) for row in frame.itertuples(index=False)]
    return sorted(rows, key=lambda row: row[0].encode() if isinstance(row[0], str) else row[0]) if unsorted else rows


@dataclass(frozen=True)
class Case:
    """How a graph is loaded and traversed, and which rows are asked for."""

    order: str
    engine: str
    directed: bool
    unreached: bool
    max_depth: int | None


CASES = [
    Case("given", "resident", directed=False, unreached=False, max_depth=None),
    Case("degree", "taskgraph", directed=True, unreached=True, max_depth=None),
    Case("given", "taskgraph", directed=True, unreached=False, max_depth=2),
    Case("degree", "resident", directed=False, unreached=True, max_depth=2),
]


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.order}-{case.engine}-{case.max_depth}")
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_has_the_same_rows(
    client: distributed.Client, tmp_path: Path, kind: str, case: Case, ranks: int
) -> None:
    edges, ids, arrays = named_edges(random(300, 330, 4), kind, directed=case.directed)
    matrix = oracle.adjacency(*arrays, directed=case.directed)
    sources = [0, arrays[0] // 2]
    wanted = oracle.distances(matrix, sources, case.max_depth)
    options = {"unreached": case.unreached}
    with dbfs.load(edges, client=client, ranks=ranks, order=case.order) as graph:
        result = graph.bfs(
            [ids[one] for one in sources], predecessors=True, max_depth=case.max_depth, engine=case.engine
        )
        frame = result.to_pandas(**options)
        assert_frame(frame, ids, arrays, case.directed, wanted, case.unreached)
        assert result.to_dict() == {ids[row]: wanted[row] for row in np.flatnonzero(wanted >= 0)}
        table = result.to_arrow(**options)
        assert plain(frame_of(table), unsorted=False) == plain(frame, unsorted=False)
        assert pa.table(result).equals(result.to_arrow())

        folder = tmp_path / "labels"
        result.to_parquet(folder, **options)
        names = [f"part-{rank:05d}.parquet" for rank in range(ranks)]
        assert sorted(path.name for path in folder.iterdir()) == names
        parts = [pq.read_table(folder / name) for name in names]
        assert all(part.schema.equals(table.schema) for part in parts)
        assert plain(frame_of(pa.concat_tables(parts))) == plain(frame)

        partitioned = result.to_dask_dataframe(**options)
        assert partitioned.npartitions == ranks
        assert partitioned.dtypes.equals(frame.dtypes)
        computed = partitioned.compute()
        assert computed.dtypes.equals(frame.dtypes)
        # Each partition has the rows of the rank's file, in their order.
        rows_of_files = [row for part in parts for row in plain(frame_of(part), unsorted=False)]
        assert plain(computed, unsorted=False) == rows_of_files


@pytest.mark.parametrize("name", ["one vertex", "fewer vertices than ranks", "hub"])
def test_small_graphs(client: distributed.Client, tmp_path: Path, name: str) -> None:
    """Ranks without rows have tables and files without rows."""
    n, src, dst = GRAPHS[name]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=4) as graph:
        result = graph.bfs(0)
        wanted = {row: int(one) for row, one in enumerate(result.distances()) if one >= 0}
        assert result.to_dict() == wanted
        result.to_parquet(tmp_path / "labels", compression="zstd")
        assert dict(pq.read_table(tmp_path / "labels").to_pandas().to_records(index=False).tolist()) == wanted
        assert list(result.to_arrow().column_names) == ["vertex", "distance"]
        assert result.to_dask_dataframe()["distance"].sum().compute() == sum(wanted.values())


def test_labels_that_are_published_and_released(client: distributed.Client, tmp_path: Path) -> None:
    with dbfs.load(dbfs.path(100), client=client, ranks=3) as graph:
        result = graph.bfs(7, predecessors=True)
        frame = result.to_dask_dataframe()
        pd.testing.assert_frame_equal(frame.compute().sort_values("vertex", ignore_index=True), result.to_pandas())
        result.to_parquet(tmp_path / "labels")
        result.release()
        # The DataFrame has its own data.
        assert len(frame) == 100
        for form in (result.to_pandas, result.to_dict, result.to_dask_dataframe):
            with pytest.raises(ResultReleasedError):
                form()
        with pytest.raises(ResultReleasedError):
            result.to_parquet(tmp_path / "more")
    assert not (tmp_path / "more").exists()


@pytest.fixture(scope="module")
def threads() -> Iterator[distributed.Client]:
    """A cluster whose workers are threads: they see what a test changes in this process.

    Not Dask's default: tests of the shared cluster may run between two that use this one.
    """
    options = {"backend": "cpu", "processes": False, "dashboard_address": None, "set_as_default": False}
    with dbfs.connect(n_workers=3, **options) as client:
        yield client


def test_labels_are_written_to_a_url(threads: distributed.Client) -> None:
    import fsspec

    with dbfs.load(dbfs.path(50), client=threads, ranks=2) as graph:
        graph.bfs(0).to_parquet("memory://tables/path")
    memory = fsspec.filesystem("memory")
    parts = sorted(memory.ls("/tables/path", detail=False))
    assert [part.rpartition("/")[2] for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    with memory.open(parts[1]) as file:
        assert pq.read_table(file)["vertex"].to_pylist() == list(range(1, 50, 2))
    memory.rm("/tables", recursive=True)


def test_what_parquet_refuses(client: distributed.Client, tmp_path: Path, leaves_nothing: None) -> None:
    with dbfs.load(dbfs.path(50), client=client, ranks=3) as graph:
        result = graph.bfs(0)
        full = tmp_path / "full"
        full.mkdir()
        (full / "part-00000.parquet").write_text("of another program")
        with pytest.raises(OutputError, match=r"full has 1 file already, such as part-00000\.parquet; delete the"):
            result.to_parquet(full)
        assert [path.read_text() for path in full.iterdir()] == ["of another program"]
        with pytest.raises(OutputError, match="can't be written: File exists"):
            result.to_parquet(full / "part-00000.parquet")
        with dask.config.set({"dbfs.write.folders": [str(full)]}):
            with pytest.raises(InvalidOptionError, match=r"new: dbfs\.write\.folders has only .*full; choose a folder"):
                result.to_parquet(tmp_path / "new")
        with pytest.raises(OutputError, match="/proc/labels can't be written"):
            result.to_parquet("/proc/labels")
        with pytest.raises(OutputError, match="nosuch://folder can't be written: Protocol not known: nosuch"):
            result.to_parquet("nosuch://folder")
        with pytest.raises(InvalidOptionError, match="unknown compression 'best'; choose one of"):
            result.to_parquet(tmp_path / "new", compression="best")
        assert sorted(tmp_path.iterdir()) == [full]
        result.release()


@pytest.mark.parametrize("step", ["write", "rename"])
def test_a_rank_that_fails_leaves_no_file(
    threads: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The disk fails under rank 2, while its file is written or renamed."""
    if step == "write":
        write = pq.ParquetWriter.write_table

        def write_table(self: pq.ParquetWriter, table: pa.Table, **options: Any) -> None:
            write(self, table, **options)
            if table["vertex"][0].as_py() == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(pq.ParquetWriter, "write_table", write_table)
    else:
        rename = LocalFileSystem.mv

        def mv(self: LocalFileSystem, old: str, new: str) -> None:
            if new.endswith("part-00002.parquet"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rename(self, old, new)

        monkeypatch.setattr(LocalFileSystem, "mv", mv)
    with dbfs.load(dbfs.path(50), client=threads, ranks=3) as graph:
        result = graph.bfs(0)
        with pytest.raises(OutputError, match=r"labels/\.?part-00002.* can't be written: No space left on device"):
            result.to_parquet(tmp_path / "labels")
        assert list(tmp_path.iterdir()) == []
        monkeypatch.undo()
        result.to_parquet(tmp_path / "labels")
        assert len(list((tmp_path / "labels").iterdir())) == 3


vertices = st.integers(0, 60)


@settings(max_examples=60, deadline=None)
@given(among=st.sets(vertices, min_size=1), n=st.sampled_from([61, 2000]), data=st.data())
def test_places_of_vertices_among_ascending_ones(among: set[int], n: int, data: st.DataObject) -> None:
    ascending = np.array(sorted(among), np.int64)
    wanted = data.draw(st.lists(st.sampled_from([*sorted(among), -1])))
    places = places_of(np.array(wanted, np.int64), ascending, n)
    assert [-1 if place < 0 else int(ascending[place]) for place in places] == wanted


@pytest.mark.full
def test_a_worker_killed_while_files_are_written(tmp_path: Path) -> None:
    """Rank 1 is stopped before it writes, and killed when the others have written their files."""
    with dbfs.connect(n_workers=3, dashboard_address=None) as mortal:
        graph = dbfs.load(dbfs.path(3000), client=mortal)
        result = graph.bfs(0)
        kept = result.to_dask_dataframe()
        victim = graph.gang.addresses[1]
        pid = mortal.run(os.getpid, workers=[victim])[victim]
        folder = tmp_path / "labels"
        written: list[int] = []

        def kill() -> None:
            while len(written) < 200 and (not folder.exists() or len(list(folder.iterdir())) < 2):
                written.append(0)
                time.sleep(0.05)
            written[:] = [len(list(folder.iterdir()))]
            os.kill(pid, signal.SIGKILL)

        os.kill(pid, signal.SIGSTOP)
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(WorkerLostError, match=rf"writing .*labels: lost rank 1 \({victim}\); load the graph again"):
            result.to_parquet(folder)
        killer.join()
        assert written == [2]
        assert list(tmp_path.iterdir()) == []
        # Dask would wait for ever for a worker that does not come back; the labels that it needs are lost as well.
        with pytest.raises(distributed.client.FutureCancelledError):
            mortal.compute(kept).result(timeout=60)
