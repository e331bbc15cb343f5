"""Files made to harm, on a cluster whose workers have little memory: nothing is lost, and the next load works.

``tests/edges/readers/test_hostile.py`` has the readers alone.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import distributed
import psutil
import pytest

import dbfs
from dbfs.cluster.gang import joined_workers
from dbfs.edges.readers import from_file
from dbfs.errors import DeadlineExceededError, FormatError, GraphTooLargeError, InvalidOptionError
from tests.support.edge_files import repeated, write

MTX = b"%%MatrixMarket matrix coordinate pattern general\n"
LIMIT = 800_000_000
GIB = 1 << 30


@pytest.fixture(scope="module")
def small() -> Iterator[distributed.Client]:
    """One worker with little memory, and a graph in it."""
    with dbfs.connect(n_workers=1, backend="cpu", memory_limit=LIMIT, dashboard_address=None) as client:
        dbfs.load("kronecker:scale=12", name="other", client=client)
        yield client


class Peak:
    """The most memory that any worker has had."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            sizes = [process.memory_info().rss for process in psutil.Process().children(recursive=True)]
            self.bytes = max(self.bytes, *sizes)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "start", "unit", "size", "error"),
    [
        ("a.mtx.bz2", MTX + b"10 10 10\n", b"1 2\n", 2 * GIB, FormatError),
        ("a.mtx", MTX + b"10 10 10\n", b"1 2\n", GIB // 4, FormatError),
        ("a.txt.bz2", b"", b"1 2\n", GIB, GraphTooLargeError),
        ("a.txt", b"", b"1 2\n", GIB // 4, GraphTooLargeError),
        ("newlines.txt.bz2", b"1 2\n", b"\n", 2 * GIB, FormatError),
        ("comments.txt.bz2", b"", b"# c\n", 2 * GIB, FormatError),
        ("later-comments.mtx.gz", MTX + b"2 2 9\n1 2\n", b"% c\n", 2 * GIB, FormatError),
        ("one-line.txt.gz", b"1 2\n", b" ", GIB, FormatError),
        ("hub.graph.gz", b"3 1000000\n", b"2 ", GIB, GraphTooLargeError),
        ("hubs.graph.gz", b"3 400000000\n", b"2 ", GIB, GraphTooLargeError),
        ("newlines.graph.gz", b"2 1\n2\n1\n", b"\n", 2 * GIB, FormatError),
        ("vertices.gr", b"p tw 100000000 1\n", b"1 2\n", 4, GraphTooLargeError),
    ],
)
def test_other_graphs_and_the_worker_stay(small, tmp_path, name, start, unit, size, error):
    workers = set(joined_workers(small))
    path = repeated(tmp_path / name, start, unit, size)
    with Peak() as peak, pytest.raises(error, match=name):
        dbfs.load(path, client=small)
    assert peak.bytes < 0.93 * LIMIT
    assert set(joined_workers(small)) == workers
    assert dbfs.load(write(tmp_path, "good.txt", "1 2\n"), client=small).n == 2
    assert dbfs.open("other", client=small).bfs(0).reached > 1


@pytest.mark.full
@pytest.mark.parametrize("edges", [2_000_000, 6_000_000])
def test_ids_that_are_all_distinct(small, tmp_path, edges):
    """After the read, the table of ids takes the most memory."""
    workers = set(joined_workers(small))
    unit = b"".join(b"%d %d\n" % (edge, 2**40 + edge) for edge in range(edges))
    path = repeated(tmp_path / "a.txt.gz", b"", unit, len(unit))
    with Peak() as peak, dask.config.set({"dbfs.build-deadline": "60s"}):
        try:
            assert dbfs.load(path, client=small).n == 2 * edges
        except GraphTooLargeError:
            assert edges > 2_000_000
    assert peak.bytes < 0.95 * LIMIT
    assert set(joined_workers(small)) == workers


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose read takes minutes. A worker has one thread, so that its next task waits for the read's end."""
    path = tmp_path_factory.mktemp("endless") / "a.txt.gz"
    return repeated(path, b"", b"1 2\n" * 100 + b"\n" * 10_000, 30 * GIB)


def test_a_deadline_frees_the_worker(client, endless, tmp_path):
    soon = {"dbfs.build-deadline": "300ms", "dbfs.liveness-interval": "100ms"}
    with dask.config.set(soon), pytest.raises(DeadlineExceededError, match=r"a\.txt\.gz"):
        dbfs.load(endless, client=client, ranks=1)
    began = time.monotonic()
    assert dbfs.load(write(tmp_path, "good.txt", "1 2\n"), client=client, ranks=1).n == 2
    assert time.monotonic() - began < 10


def test_a_read_that_nobody_waits_for_ends(client, endless):
    (piece,) = from_file(endless).cut(1)
    worker = next(iter(joined_workers(client)))
    read = client.submit(piece.read, workers=[worker], pure=False)
    while client.processing([worker])[worker] == ():
        time.sleep(0.01)
    with pytest.raises(TimeoutError):
        read.result(timeout=0.1)
    read.release()
    assert client.submit(int, 7, workers=[worker], pure=False).result(timeout=10) == 7


@pytest.mark.full
def test_workers_without_a_limit_have_their_machines_memory(tmp_path):
    path = write(tmp_path, "vertices.gr", f"p tw {psutil.virtual_memory().total // 20} 1\n1 2\n")
    with dbfs.connect(n_workers=2, backend="cpu", memory_limit=0, dashboard_address=None) as client:
        with pytest.raises(GraphTooLargeError, match=r"vertices\.gr.*% of its machine's memory, less what it holds"):
            dbfs.load(path, client=client)
        assert dbfs.load(write(tmp_path, "good.txt", "1 2\n"), client=client).n == 2


def test_a_cluster_of_others_reads_local_files_only(client, tmp_path):
    path = write(tmp_path, "a.txt", "1 2\n")
    url = f"simplecache::file://{path}"
    assert dbfs.load(url, client=client, ranks=1).n == 2
    with distributed.Client(client.scheduler.address) as stranger:
        assert dbfs.load(path, client=stranger, ranks=1).n == 2
        with pytest.raises(
            InvalidOptionError, match="this program did not start reads only file, local, not simplecache"
        ):
            dbfs.load(url, client=stranger, ranks=1)
        with dask.config.set({"dbfs.read.schemes": ["file", "simplecache"]}):
            assert dbfs.load(url, client=stranger, ranks=1).n == 2
