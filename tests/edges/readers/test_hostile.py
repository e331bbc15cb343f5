"""Files made to harm: small ones that hold much text, headers that lie, long lines, paths that are none.

Each ends early with a typed error. ``tests/edges/test_hostile_files.py`` reads some on workers with little memory.
"""

import gzip
import socket
from pathlib import Path

import dask
import pytest

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers import from_file, heading, lines
from dbfs.errors import (
    DeadlineExceededError,
    FormatError,
    GraphTooLargeError,
    InvalidOptionError,
    UnreadableFileError,
)
from dbfs_workers.building import reading
from tests.support.edge_files import repeated, write

MTX = b"%%MatrixMarket matrix coordinate pattern general\n"


def read(edges: EdgeList) -> None:
    for piece in edges.cut(1 << 40):
        piece.read()


@pytest.fixture
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds on text so small that small files pass them."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(heading, "HEAD_BYTES", 1 << 18)
    monkeypatch.setattr(reading, "IDLE_BYTES", 1 << 16)


@pytest.mark.parametrize(
    ("name", "start", "unit"),
    [
        ("a.mtx", MTX + b"10 10 10\n", b"1 2\n"),
        ("a.gr", b"p tw 10 10\n", b"1 2\n"),
        ("a.txt", b"# Nodes: 2 Edges: 10\n", b"1 2\n"),
        ("a.graph", b"1000000 10\n", b"1000000 999999 999998\n"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.usefixtures("little_text")
def test_a_read_stops_past_the_edges_of_the_header(tmp_path, name, start, unit, suffix):
    # The number of an edge list is a comment's, which is a promise only if the caller says so.
    edges = from_file(repeated(tmp_path / (name + suffix), start, unit, 1 << 20), strict=True)
    with pytest.raises(FormatError, match=r"holds more edges than the [12]0 that its header promises$"):
        read(edges)


@pytest.mark.parametrize(
    ("name", "start"), [("a.mtx", MTX + b"2 2 1\n1 2\n"), ("a.txt", b"1 2\n"), ("a.graph", b"2 1\n2\n1\n")]
)
@pytest.mark.parametrize("unit", [b"\n", b"  \n", b"%\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.usefixtures("little_text")
def test_much_text_without_edges(tmp_path, name, start, unit, suffix):
    edges = from_file(repeated(tmp_path / (name + suffix), start, unit, 1 << 20))
    with pytest.raises(
        FormatError, match=r"bytes of text hold (1 edge|2 edges); expected an edge in 4,096 bytes on average"
    ):
        read(edges)


def test_vertices_without_edges_are_no_idle_text(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "IDLE_BYTES", 1)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    read(from_file(write(tmp_path, "a.graph", "9000 1\n2\n1\n" + "\n" * 8998)))


@pytest.mark.parametrize("unit", [b"\n", b"# c\n", b"% c\n", b"c x\n", b" \n"])
@pytest.mark.parametrize("name", ["a.gz", "a.txt.gz", "a.gr.gz"])
@pytest.mark.usefixtures("little_text")
def test_a_head_has_a_limit(tmp_path, name, unit):
    with pytest.raises(FormatError, match=r"no edge in the first 0 MiB|expected the header 'p tw n m'|is not a plain"):
        from_file(repeated(tmp_path / name, unit, unit, 1 << 20))


def test_a_head_of_many_lines_that_say_something(tmp_path):
    path = repeated(tmp_path / "a.txt.gz", b"", b"# Nodes: 1 Edges: 1\n", 1 << 21)
    with pytest.raises(FormatError, match=r"line 65537: 65,536 lines of comments and no edge"):
        from_file(path)


def test_numbers_of_lines_that_a_head_passes_over(tmp_path):
    text = "# c\n\n% c\n  \n# Undirected graph\n//\n1 2\n3\n"
    with pytest.raises(FormatError, match=r"line 8: '3': the target is missing"):
        read(from_file(write(tmp_path, "a.txt", text)))
    with pytest.raises(FormatError, match=r"line 10: 'x y': id 'x'"):
        from_file(write(tmp_path, "b.txt", "# c\n" * 8 + "x y\nx y\n"), format="edge-list").cut(1)[0].read()


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.txt.gz", b"1 2\n"), ("a.mtx.gz", MTX + b"9 9 9\n"), ("a.graph.gz", b"9 9\n"), ("a.txt", b"1 2\n")],
)
def test_a_line_without_end(tmp_path, name, start):
    edges = from_file(repeated(tmp_path / name, start, b"1 ", 1 << 24))
    with pytest.raises(FormatError, match=r"longer than \d+ bytes"):
        read(edges)


def test_weights_that_a_header_may_promise(tmp_path):
    with pytest.raises(FormatError, match=r"line 1: '2 1 010 1000000000': ncon is 1000000000; expected at most 1000"):
        from_file(write(tmp_path, "a.graph", "2 1 010 1000000000\n1 2\n1 1\n"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "1{}x\n"),
        ("a.txt", "1 2\n1{}x\n"),
        ("a.txt", "1 2{}7\n"),
        ("a.txt", "a{}b\n1 2\n"),
        ("a.txt", "# Nodes:{}1 Edges:{}x\n1 2\n"),
        ("a.csv", "1,2\n1{}x\n"),
        ("a.csv", "1,2{}x\n"),
        ("a.csv", "a{},b\n1,2\n"),
        ("a.csv", "1,2\n1{},{}x{},\n"),
        ("a.xyz", "1{}x\n"),
        ("a.xyz", "p{}tw\n"),
        ("a.gr", "p tw 9 1\n1{}x\n"),
        ("a.mtx", MTX.decode() + "9 9 1\n1{}x\n"),
        ("a.graph", "9 1\n1{}x\n"),
        ("a.graph", "9{}1{}x\n"),
    ],
)
@pytest.mark.parametrize("blank", [" ", "\t", "\t "], ids=repr)
def test_many_blanks_in_a_line(tmp_path, name, text, blank):
    """Quadratic time would be minutes: 40,000 blanks took 20 s."""
    path = write(tmp_path, name, text.replace("{}", blank * 300_000))
    try:
        read(from_file(path))
    except FormatError:
        return
    assert name != "a.graph"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_share_of_memory(tmp_path, suffix):
    path = write(tmp_path, "a.txt" + suffix, "1 2\n" * 9)
    with dask.config.set({"dbfs.build.memory-share": 1e-6}):
        edges = from_file(path)
        with pytest.raises(
            GraphTooLargeError, match=r"a\.txt.*, after 0 edges in 36 bytes of text: the next step takes"
        ):
            read(edges)
    read(from_file(path))


def test_the_time_of_a_read(tmp_path, monkeypatch):
    with dask.config.set({"dbfs.build-deadline": 1e-6}):
        (piece,) = from_file(write(tmp_path, "a.txt", "1 2\n")).cut(9)
    with pytest.raises(DeadlineExceededError, match=r"^reading .*a\.txt: not done after 1e-06 s$"):
        piece.read()


def test_file_systems_that_fail(tmp_path):
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 and no more")
    for path, reason in {
        str(tmp_path / "loop.txt"): "symbolic links",
        f"{tmp_path}/a\0b.txt": "null byte",
        f"{tmp_path}/{'a' * 300}": "too long",
        f"zip://a.txt::file://{tmp_path}/bad.zip": "zip file",
        "nonsense://a.txt": "nonsense",
    }.items():
        with pytest.raises(UnreadableFileError, match=rf"can't be read: .*{reason}"):
            from_file(path)


def test_a_connection_that_is_refused(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(UnreadableFileError, match="can't be read"):
            from_file(f"ftp://127.0.0.1:{port}/a.txt")


def test_a_disk_that_fails_during_a_read(tmp_path, monkeypatch):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"1 2\n" * 100))
    (piece,) = from_file(path).cut(1000)

    class Broken:
        def __init__(self, *_, **__):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(gzip, "GzipFile", Broken)
    with pytest.raises(UnreadableFileError, match=r"a\.txt\.gz can't be read: Input/output error$"):
        piece.read()


@pytest.mark.parametrize(
    ("allowed", "path", "refused"),
    [
        (["file"], "memory://a.txt", "memory"),
        (["https", "FILE"], "{}/a.txt", None),
        (["https"], "{}/a.txt", "file"),
        (["file"], "file://{}/a.txt", None),
        (["memory"], "zip://a.txt::memory://b.zip", "zip"),
        ("file", "simplecache::memory://a.txt", "simplecache, memory"),
        ("auto", "{}/a.txt", None),
    ],
)
def test_only_allowed_schemes_are_read(tmp_path, allowed, path, refused):
    write(tmp_path, "a.txt", "1 2\n")
    with dask.config.set({"dbfs.read.schemes": allowed}):
        if refused is None:
            read(from_file(path.format(tmp_path)))
            return
        with pytest.raises(InvalidOptionError, match=rf"dbfs\.read\.schemes has only .*, not {refused}; add"):
            from_file(path.format(tmp_path))


def test_each_machine_checks_the_scheme_of_what_it_reads(tmp_path: Path) -> None:
    (piece,) = from_file(write(tmp_path, "a.txt", "1 2\n")).cut(9)
    with (
        dask.config.set({"dbfs.read.schemes": ["s3"]}),
        pytest.raises(InvalidOptionError, match="has only s3, not file"),
    ):
        piece.read()


@pytest.mark.parametrize("value", [7, [], [7], None])
def test_a_list_of_schemes_that_is_none(tmp_path, value):
    with (
        dask.config.set({"dbfs.read.schemes": value}),
        pytest.raises(InvalidOptionError, match="neither auto nor a list"),
    ):
        from_file(write(tmp_path, "a.txt", "1 2\n"))
