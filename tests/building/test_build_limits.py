"""Builds that fail leave nothing on any worker, and a build's peak of memory is bounded."""

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.cluster.gang import joined_workers
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import DbfsError, FormatError, TruncatedFileError, WorkerLostError
from dbfs_workers.building import delivering
from dbfs_workers.building.pieces import Edges
from tests.support.waiting import eventually

PIECES, PIECE_EDGES = 12, 1000

# The nanny alone acts on a worker's limit, and looks often.
LIMITED = {
    **{f"distributed.worker.memory.{what}": False for what in ("target", "spill", "pause")},
    "distributed.worker.memory.terminate": 1.0,
    "distributed.worker.memory.monitor-interval": "10 ms",
    "dbfs.build.memory-share": 1.0,
}


@dataclass(frozen=True)
class TreePiece:
    """A part of a binary tree; reading takes ``seconds``, and raises an error if the piece is ``bad``."""

    start: int
    seconds: float = 0.0
    bad: bool = False

    def read(self) -> Edges:
        time.sleep(self.seconds)
        if self.bad:
            raise FormatError("tree.txt: a bad last line")
        src = np.arange(self.start, self.start + PIECE_EDGES)
        return src, src // 2


@dataclass(frozen=True, eq=False)
class Tree(EdgeList):
    """The pieces of a binary tree."""

    pieces: tuple[TreePiece, ...]

    def cut(self, piece_edges: int) -> Sequence[TreePiece]:
        return self.pieces

    def largest_piece(self, piece_edges: int, m: int) -> int:
        return PIECE_EDGES


def tree(m: int | None = PIECES * PIECE_EDGES, seconds: float = 0.0, bad: bool = False) -> Tree:
    pieces = [TreePiece(at * PIECE_EDGES, seconds, bad and at == PIECES - 1) for at in range(PIECES)]
    return Tree("tree", PIECES * PIECE_EDGES, m, directed=False, mirrored=False, pieces=tuple(pieces))


def bins_held() -> int:
    """Run on a worker: return the number of collections of this process that still hold bins."""
    gc.collect()
    return sum(store._chunks is not None for each in delivering._collections.values() for store in each.stores)


def assert_no_bins(client: distributed.Client) -> None:
    eventually(lambda: client.run(bins_held), lambda held: not any(held.values()))


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.full), 4])
@pytest.mark.parametrize(
    ("edges", "error"),
    [
        pytest.param(tree(bad=True), FormatError, marks=pytest.mark.full),
        pytest.param(tree(m=None, bad=True), FormatError, marks=pytest.mark.full),
        pytest.param(tree(m=PIECES * PIECE_EDGES - 1), FormatError, marks=pytest.mark.full),
        pytest.param(tree(m=PIECES * PIECE_EDGES + 1), TruncatedFileError, marks=pytest.mark.full),
    ],
    ids=["bad last piece", "bad last piece, unknown count", "an edge too many", "an edge too few"],
)
def test_a_failed_build_leaves_nothing(
    client: distributed.Client, leaves_nothing: None, edges: Tree, error: type[DbfsError], ranks: int
) -> None:
    with pytest.raises(error) as kept:
        dbfs.load(edges, client=client, ranks=ranks)
    assert_no_bins(client)
    assert kept.value.__traceback__ is not None
    with dbfs.load(tree(), client=client, ranks=ranks) as graph:
        assert graph.bfs(0).reached == PIECES * PIECE_EDGES
    assert_no_bins(client)


@pytest.mark.full
def test_a_client_that_leaves_mid_build_leaves_nothing(client: distributed.Client, leaves_nothing: None) -> None:
    other = distributed.Client(client.scheduler.address, set_as_default=False)
    building = threading.Event()
    failed: list[BaseException] = []

    def load() -> None:
        try:
            dbfs.load(tree(seconds=0.2), client=other, ranks=2, progress=lambda _: building.set())
        except BaseException as error:
            failed.append(error)

    with dask.config.set({"dbfs.liveness-interval": "50 ms"}):
        thread = threading.Thread(target=load)
        thread.start()
        assert building.wait(20)
        other.close()
        thread.join(30)
    assert not thread.is_alive()
    assert failed
    assert_no_bins(client)


@pytest.mark.full
def test_a_rank_killed_mid_build_leaves_nothing_on_the_others() -> None:
    with dbfs.connect(n_workers=3, dashboard_address=None) as client:
        addresses = sorted(joined_workers(client))

        def kill(_: object) -> None:
            if not killed:
                killed.append(addresses[0])
                os.kill(client.run(os.getpid, workers=addresses[:1])[addresses[0]], signal.SIGKILL)

        killed: list[str] = []
        with dask.config.set({"dbfs.liveness-interval": "100 ms"}), pytest.raises(WorkerLostError):
            dbfs.load(tree(seconds=0.5), client=client, progress=kill)
        client.wait_for_workers(3, timeout=30)
        assert_no_bins(client)
        left = client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])
        assert left == []


def forget_peak() -> int:
    """Run on a worker: forget the peak of its memory so far, and return the bytes in use."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak()


def peak() -> int:
    return int(Path("/proc/self/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) * 1024


def from_generator(folder: Path, scale: int) -> Any:
    return dbfs.kronecker(scale)


def from_arrays(folder: Path, scale: int) -> Any:
    src, dst = dbfs.kronecker(scale).cut(1 << 24)[0].read()
    return dbfs.from_arrays(src, dst, n=1 << scale)


def from_text(folder: Path, scale: int) -> Any:
    return written(folder / f"{scale}.mtx", scale)


def from_parquet(folder: Path, scale: int) -> Any:
    return written(folder / f"{scale}.parquet", scale)


def from_parquet_ids(folder: Path, scale: int) -> Any:
    """Ids that are not vertices: the ranks number them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{scale}-ids.parquet"
    src, dst = dbfs.kronecker(scale).cut(1 << 24)[0].read()
    # Several pieces of the small graph too: every rank then loads the libraries.
    pq.write_table(
        pa.table({"from": 7 * src + 3, "to": 7 * dst + 3}), path, row_group_size=min(1 << 20, src.size // 16)
    )
    return path


def from_text_ids(folder: Path, scale: int) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    path = folder / f"{scale}-ids.txt"
    src, dst = dbfs.kronecker(scale).cut(1 << 24)[0].read()
    options = csv.WriteOptions(include_header=False, delimiter=" ")
    csv.write_csv(pa.table({"from": 7 * src + 3, "to": 7 * dst + 3}), path, options)
    return path


def from_parquet_strings(folder: Path, scale: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / f"{scale}-strings.parquet"
    ends = dbfs.kronecker(scale).cut(1 << 24)[0].read()
    rows = min(1 << 20, ends[0].size // 16)
    schema = pa.schema([("from", pa.string()), ("to", pa.string())])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, ends[0].size, rows):
            numbers = [pa.array(ids[start : start + rows]).cast(pa.string()) for ids in ends]
            parts = [pc.binary_join_element_wise("user", part, "-") for part in numbers]
            file.write_table(pa.table(parts, schema))
    return path


def written(path: Path, scale: int) -> Path:
    from dbfs.edges.writers import write_edges

    write_edges(dbfs.kronecker(scale), path)
    return path


@contextlib.contextmanager
def limited(small: Any, ranks: int, more: int) -> Iterator[tuple[distributed.Client, dict[str, int]]]:
    """Yield a cluster whose workers may take ``more`` bytes than they do, and the bytes that they do.

    The limit, of Dask's nannies and of the estimate, is set when the libraries and kernels are loaded.
    """
    with (
        dask.config.set(LIMITED),
        dbfs.connect(n_workers=ranks, dashboard_address=None, memory_limit="8 GiB") as client,
    ):
        # Pieces for all ranks: each loads the libraries and kernels.
        with dask.config.set({"dbfs.build.piece-edges": 1 << 12}):
            dbfs.load(small, client=client, ranks=ranks).unload()
        before = client.run(forget_peak)
        for nanny in (False, True):
            client.run(set_limit, max(before.values()) + more, nanny=nanny)
        yield client, before


@pytest.mark.full
@pytest.mark.parametrize(
    ("form", "scale", "ranks"),
    [
        pytest.param(from_generator, 20, 1, marks=pytest.mark.long),
        (from_generator, 20, 4),
        (from_arrays, 19, 1),
        pytest.param(from_arrays, 20, 4, marks=pytest.mark.long),
        (from_text, 19, 2),
        pytest.param(from_text, 20, 4, marks=pytest.mark.long),
        (from_parquet, 19, 1),
    ],
)
def test_a_build_fits_a_limit_that_three_partitions_would_break(
    tmp_path: Path, form: Callable[[Path, int], Any], scale: int, ranks: int
) -> None:
    source, small = form(tmp_path, scale), form(tmp_path, 12)
    partition = sum(dbfs.estimate(source, ranks).partition.values())
    with limited(small, ranks, int(2.5 * partition)) as (client, before):
        with dbfs.load(source, client=client, ranks=ranks) as graph:
            after = client.run(peak)
            assert graph.bfs(graph.sample_sources(1)[0]).reached > 1 << (scale - 1)
        assert client.run(peak).keys() == before.keys(), "a worker was killed"
    took = [after[address] - before[address] for address in graph.gang.addresses]
    assert max(took) <= 2.2 * max(graph.nbytes), f"peaks of {took} bytes for partitions of {graph.nbytes}"
    assert partition <= 1.01 * max(graph.nbytes), "the limit was no limit"


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("form", "scale", "ranks"),
    [
        pytest.param(from_parquet_ids, 20, 4, marks=pytest.mark.long),
        (from_parquet_ids, 19, 2),
        (from_text_ids, 19, 2),
        pytest.param(from_text_ids, 20, 4, marks=pytest.mark.long),
        # Reading a million rows of strings takes 20 MB more, which are a third of a partition of 4 ranks.
        pytest.param(from_parquet_strings, 20, 2, marks=pytest.mark.long),
        (from_parquet_strings, 19, 1),
    ],
)
def test_numbering_ids_fits_a_limit_that_three_partitions_would_break(
    tmp_path: Path, form: Callable[[Path, int], Any], scale: int, ranks: int
) -> None:
    source, small = form(tmp_path, scale), form(tmp_path, 12)
    columns = 8 * dbfs.kronecker(scale).m // ranks
    with limited(small, ranks, int(2.8 * columns)) as (client, before):
        with dbfs.load(source, client=client, ranks=ranks) as graph:
            after = client.run(peak)
            assert after.keys() == before.keys(), "a worker was killed"
            took = [after[address] - before[address] for address in graph.gang.addresses]
            # What the allocators of Arrow and NumPy keep counts too, and depends on the order of the pieces.
            assert max(took) <= 2.3 * max(graph.nbytes), f"peaks of {took} bytes for partitions of {graph.nbytes}"
            if form is not from_text_ids:
                assert_estimated(dbfs.estimate(source, ranks, vertices=graph.n), max(took))


@pytest.mark.full
def test_the_estimate_of_a_table_of_many_names() -> None:
    """Their numbering takes more memory than the build."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def names(m: int) -> pa.Table:
        ends = np.random.default_rng(5).integers(0, m, (2, m))
        parts = [pc.binary_join_element_wise("a user's name", pa.array(end).cast(pa.string()), " ") for end in ends]
        return pa.table(parts, ["from", "to"])

    table = names(1 << 20)
    with dask.config.set(LIMITED), dbfs.connect(n_workers=2, dashboard_address=None, memory_limit="8 GiB") as client:
        dbfs.load(names(1 << 12), client=client, ranks=2).unload()
        before = client.run(forget_peak)
        with dbfs.load(table, client=client, ranks=2):
            after = client.run(peak)
    needed = dbfs.estimate(table, 2)
    assert sum(needed.numbering.values()) == needed.peak_bytes
    assert_estimated(needed, max(after[address] - before[address] for address in before))


def assert_estimated(needed: dbfs.Estimate, took: int) -> None:
    # A quarter more: what the allocator keeps moves by some 20 MB from run to run.
    assert took <= 1.25 * needed.peak_bytes, f"a peak of {took} bytes where {needed}"
    assert needed.peak_bytes <= 2 * took, f"a peak of {took} bytes where {needed}"


def set_limit(limit: int, dask_worker: Any) -> None:
    """Run on a worker or its nanny: set the limit of the worker's memory."""
    dask_worker.memory_manager.memory_limit = limit
