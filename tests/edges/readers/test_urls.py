"""Files by URL: a web server, and stores of objects."""

from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path

import dask
import distributed
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs.edges.readers import from_file
from dbfs.errors import FormatError, InvalidOptionError, MissingFileError, OutputError, UnreadableFileError
from tests.support import buckets
from tests.support.web_server import serving

FRAME = pd.DataFrame({"from": ["ann", "bob", "cat", "dan"], "to": ["bob", "cat", "dan", "eve"]})
CSV = FRAME.to_csv(index=False).encode()
FROM_ANN = {"ann": 0, "bob": 1, "cat": 2, "dan": 3, "eve": 4}


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    """A cluster whose workers see this process's stores."""
    with dbfs.connect(n_workers=2, processes=False, dashboard_address=None) as client:
        yield client


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets.register(monkeypatch)


def parquet(frame: pd.DataFrame) -> bytes:
    sink = BytesIO()
    pq.write_table(pa.table(frame), sink)
    return sink.getvalue()


def assert_loads(client: distributed.Client, url: str) -> None:
    with dbfs.load(url, client=client) as graph:
        assert graph.bfs("ann").to_dict() == FROM_ANN


@pytest.mark.full
@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_store_of_objects(client: distributed.Client, scheme: str) -> None:
    files, bucket = fsspec.filesystem(scheme), f"{scheme}://bucket"
    files.pipe_file(f"{bucket}/follows/part-0.parquet", parquet(FRAME[:2]))
    files.pipe_file(f"{bucket}/follows/part-1.parquet", parquet(FRAME[2:]))
    files.pipe_file(f"{bucket}/follows/_SUCCESS", b"")
    files.pipe_file(f"{bucket}/follows.csv", CSV)
    for url in ("follows", "follows/part-?.parquet", "follows.csv"):
        assert_loads(client, f"{bucket}/{url}")
    with dbfs.load(f"{bucket}/follows", client=client) as graph:
        graph.save(f"{bucket}/follows.dbfs")
        graph.bfs("ann", predecessors=True).to_parquet(f"{bucket}/labels")
    for ranks in (2, 1):
        with dbfs.load(f"{bucket}/follows.dbfs", client=client, ranks=ranks) as graph:
            assert graph.bfs("ann").to_dict() == FROM_ANN
    parts = [files.cat_file(path) for path in sorted(files.find(f"{bucket}/labels"))]
    labels = pa.concat_tables([pq.read_table(BytesIO(part)) for part in parts]).to_pydict()
    assert dict(zip(labels["vertex"], labels["distance"], strict=True)) == FROM_ANN
    with pytest.raises(MissingFileError, match=f"{bucket}/absent.csv: no such file"):
        from_file(f"{bucket}/absent.csv")


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_bucket_without_permission(client: distributed.Client, scheme: str) -> None:
    for name in ("follows.csv", "follows.txt.gz", "follows", "part-*.parquet", "follows.dbfs"):
        url = f"{scheme}://{buckets.SECRET}/{name}"
        with pytest.raises(FormatError, match=r"can't be read: permission denied"):
            dbfs.load(url, client=client)
    with dbfs.load(FRAME, client=client) as graph:
        url = f"{scheme}://{buckets.SECRET}/follows.dbfs"
        # A save looks first for a graph that is there already.
        with pytest.raises(FormatError, match=rf"{url} can't be read: permission denied"):
            graph.save(url)
        with pytest.raises(OutputError, match="can't be written"):
            graph.bfs("ann").to_parquet(url)


@pytest.mark.usefixtures("stores")
def test_a_worker_that_lost_its_permission(client: distributed.Client) -> None:
    fsspec.filesystem("gs").pipe_file("gs://bucket/follows.csv", CSV)
    edges = from_file("gs://bucket/follows.csv")
    (piece,) = edges.cut(100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "SECRET", "bucket")
        with pytest.raises(FormatError, match=r"gs://bucket/follows.csv can't be read: permission denied"):
            piece.read()
        with pytest.raises(FormatError, match=r"gs://bucket/follows.csv can't be read: permission denied"):
            dbfs.load(edges, client=client)


@pytest.mark.usefixtures("stores")
def test_only_the_schemes_of_the_list(client: distributed.Client) -> None:
    for scheme in ("s3", "gs"):
        fsspec.filesystem(scheme).pipe_file(f"{scheme}://bucket/follows.csv", CSV)
    with dask.config.set({"dbfs.read.schemes": ["s3"]}):
        assert_loads(client, "s3://bucket/follows.csv")
        for url in ("gs://bucket/follows.csv", "gs://bucket/follows", "http://127.0.0.1/follows.csv"):
            with pytest.raises(InvalidOptionError, match=r"dbfs.read.schemes has only s3, not (gs|http)"):
                dbfs.load(url, client=client)
    with distributed.Client(client.scheduler.address, set_as_default=False) as stranger:
        with pytest.raises(InvalidOptionError, match=r"this program did not start reads only file, local, not s3"):
            dbfs.load("s3://bucket/follows.csv", client=stranger)


def test_a_store_whose_library_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"class": "dbfs_no_such_library.Store", "err": "Install dbfs_no_such_library to read it"}
    monkeypatch.setitem(import_module("fsspec.registry").known_implementations, "nowhere", known)
    with pytest.raises(UnreadableFileError, match="can't be read: Install dbfs_no_such_library to read it"):
        from_file("nowhere://bucket/follows.csv")


def test_a_web_server(client: distributed.Client, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    with dbfs.load(FRAME, client=client) as graph:
        graph.save(tmp_path / "follows.dbfs")
    saved = {f"/follows.dbfs/{path.name}": path.read_bytes() for path in (tmp_path / "follows.dbfs").iterdir()}
    files = {"/follows.csv": CSV, "/follows.parquet": parquet(FRAME), "/secret.csv": CSV, **saved}
    with serving(files, forbidden="/secret.csv") as server:
        assert_loads(client, f"{server}/follows.csv")
        assert_loads(client, f"{server}/follows.parquet")
        with pytest.raises(FormatError, match=r"secret.csv can't be read: permission denied"):
            dbfs.load(f"{server}/secret.csv", client=client)
        with pytest.raises(MissingFileError, match=r"absent.csv: no such file"):
            dbfs.load(f"{server}/absent.csv", client=client)
        with dask.config.set({"dbfs.read.schemes": ["file", "https"]}):
            with pytest.raises(InvalidOptionError, match="has only file, https, not http;"):
                dbfs.load(f"{server}/follows.csv", client=client)
    with serving(files, ranges=False) as server:
        with pytest.raises(UnreadableFileError, match=r"follows.csv can't be read: .* doesn't appear to support range"):
            dbfs.load(f"{server}/follows.csv", client=client)
    with pytest.raises(UnreadableFileError, match=r"follows.csv can't be read"):
        dbfs.load(f"{server}/follows.csv", client=client)
