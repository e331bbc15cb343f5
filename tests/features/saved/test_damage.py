"""Damaged, missing, foreign and lying saved graphs: each is a typed error that names the file, or the right answer."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import dbfs
from dbfs.errors import DbfsError, FormatError, MissingFileError, TruncatedFileError, UnreadableFileError
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.search.partition.kernels.rows import are_vertices
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle
from tests.support.graphs import random
from tests.support.saved import Json, change_array, change_manifest, copied, load_arrays, put
from tests.support.special_files import put as put_special

ARRAYS = random(60, 200, 3)
OTHER = random(60, 200, 4)


@pytest.fixture(scope="module")
def saved(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a file of each kind, saved by two ranks."""
    path = tmp_path_factory.mktemp("saved") / "graph"
    with load_arrays(client, ARRAYS, directed=True, ranks=2, order="degree", keep_edges=True) as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def plain(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph without kept edges and order, whose pieces are those of its partitions."""
    path = tmp_path_factory.mktemp("plain") / "graph"
    with load_arrays(client, ARRAYS, ranks=2) as graph:
        graph.save(path)
    return path


@pytest.fixture(scope="module")
def other(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another graph of the same size."""
    path = tmp_path_factory.mktemp("other") / "graph"
    with load_arrays(client, OTHER, directed=True, ranks=2, order="degree", keep_edges=True) as graph:
        graph.save(path)
    return path


def files(path: Path, kind: str = "") -> list[Path]:
    return sorted(path.glob(f"{kind}*.arrow"))


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def exchange(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def load(client: distributed.Client, path: Path, ranks: int = 2) -> None:
    """Load a graph, and check one traversal if that succeeds."""
    n, src, dst = ARRAYS
    with dbfs.load(path, client=client, ranks=ranks) as graph:
        matrix = oracle.adjacency(n, src, dst, directed=graph.directed)
        np.testing.assert_array_equal(graph.bfs(0).distances(), oracle.distances(matrix, [0]))


FILES: dict[str, tuple[Callable[[Path], object], type[DbfsError], str]] = {
    "missing partition": (lambda path: files(path, "rank-1")[0].unlink(), MissingFileError, r"rank-1-\w+.arrow: no"),
    "missing edges": (lambda path: files(path, "edges-0")[0].unlink(), MissingFileError, r"edges-0-\w+.arrow: no"),
    "missing order": (
        lambda path: files(path, "order")[0].unlink(),
        MissingFileError,
        r"order-\w+.arrow: no such file",
    ),
    "empty partition": (lambda path: os.truncate(files(path, "rank-0")[0], 0), TruncatedFileError, "has 0 bytes; the"),
    "short order": (lambda path: os.truncate(files(path, "order")[0], 200), TruncatedFileError, "has 200 bytes; the"),
    "long edges": (
        lambda path: files(path, "edges-0")[0].write_bytes(files(path, "edges-0")[0].read_bytes() + b"x"),
        FormatError,
        r"edges-0-\w+.arrow has .* bytes; the manifest says",
    ),
    "a folder for a file": (lambda path: to_folder(files(path, "rank-0")[0]), FormatError, "is a directory; expected"),
    "a pipe for a partition": (
        lambda path: put_special("a named pipe", files(path, "rank-1")[0]),
        FormatError,
        r"rank-1-\w+.arrow is a named pipe; expected a regular file",
    ),
    "a pipe for edges": (
        lambda path: put_special("a named pipe", files(path, "edges-0")[0]),
        FormatError,
        r"edges-0-\w+.arrow is a named pipe",
    ),
    "a device for an order": (
        lambda path: put_special("a device", files(path, "order")[0]),
        FormatError,
        r"order-\w+.arrow is a device; expected a regular file",
    ),
    "a pipe for a manifest": (
        lambda path: put_special("a named pipe", path / "manifest.json"),
        FormatError,
        "manifest.json is a named pipe; expected a regular file",
    ),
    "ranks exchanged": (lambda path: exchange(*files(path, "rank")), DbfsError, r"rank-\d-\w+.arrow has .* bytes; the"),
    "kinds exchanged": (lambda path: exchange(*files(path)[:3:2]), DbfsError, r"-\w+.arrow has .* bytes; the manifest"),
    "no manifest": (
        lambda path: (path / "manifest.json").unlink(),
        MissingFileError,
        "has 5 files of a saved graph and no manifest.json, because the save did not end",
    ),
    "empty manifest": (lambda path: os.truncate(path / "manifest.json", 0), FormatError, "manifest.json is not JSON"),
    "short manifest": (lambda path: os.truncate(path / "manifest.json", 99), FormatError, "manifest.json is not JSON"),
    "a manifest of bytes": (
        lambda path: (path / "manifest.json").write_bytes(b"\xff\xfe\0\x01"),
        FormatError,
        "manifest.json is not JSON",
    ),
    "a deep manifest": (
        lambda path: (path / "manifest.json").write_bytes(b"[" * 100_000),
        FormatError,
        "manifest.json is not JSON",
    ),
    "a list as manifest": (
        lambda path: (path / "manifest.json").write_text("[]"),
        FormatError,
        'is not the manifest of a saved graph: it lacks "format": "dbfs saved graph"',
    ),
    "a manifest of another program": (
        lambda path: (path / "manifest.json").write_text('{"name": "app", "version": 1}'),
        FormatError,
        "is not the manifest of a saved graph",
    ),
    "a newer version": (
        lambda path: edit(path, lambda found: found.update(version=3)),
        FormatError,
        "is of version 3 of the format; dbfs of this version reads up to 2. Update dbfs",
    ),
    "no version": (lambda path: edit(path, lambda found: found.pop("version")), FormatError, "is of version None of"),
    "an edited manifest": (
        lambda path: edit(path, lambda found: found["graph"].update(n=61)),
        FormatError,
        "manifest.json is damaged: its checksum is not that of its content",
    ),
    "no graph": (lambda path: edit(path, lambda found: found.pop("graph")), FormatError, "manifest.json is damaged"),
}


def edit(path: Path, change: Callable[[Json], object]) -> None:
    found = json.loads((path / "manifest.json").read_text())
    change(found)
    (path / "manifest.json").write_text(json.dumps(found))


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("mapped", [True, False])
def test_files_that_are_not_as_they_were_saved(
    client: distributed.Client, leaves_nothing: None, saved: Path, tmp_path: Path, case: str, mapped: bool
) -> None:
    path = copied(saved, tmp_path / "graph")
    mangle, error, message = FILES[case]
    mangle(path)
    with pytest.raises(error, match=message) as found:
        dbfs.load(path, client=client, ranks=2, mapped=mapped)
    assert str(path) in str(found.value)


def _set(*keys: Any, to: Any) -> Callable[[Json], None]:
    def change(graph: Any) -> None:
        for key in keys[:-1]:
            graph = graph[key]
        graph[keys[-1]] = to

    return change


RANK = ("ranks", 0, "partition")
LIES: dict[str, tuple[Callable[[Json], object], str]] = {
    "no field": (lambda graph: graph.pop("n"), "graph must have the fields source, dbfs, .*, not the fields source"),
    "another field": (_set("colour", to=1), "graph must have the fields"),
    "a text for a number": (_set("n", to="60"), "graph.n must be a whole number of at least 0, not '60'"),
    "a float": (_set("n", to=60.0), "graph.n must be a whole number of at least 0, not 60.0"),
    "a bool": (_set("n", to=True), "graph.n must be a whole number of at least 0, not True"),
    "below 0": (_set("input_edges", to=-1), "graph.input_edges must be a whole number of at least 0, not -1"),
    "a number for a bool": (_set("directed", to=1), "graph.directed must be bool, not 1"),
    "ranks as an object": (_set("ranks", to={}), "graph.ranks must be list, not {}"),
    "no ranks": (_set("ranks", to=[]), "ranks is empty; expected at least one rank"),
    "too many vertices": (_set("n", to=2**40), "internal ids; 32 bits hold"),
    "more vertices": (_set("n", to=600), r"row_offsets is int64\[33\]; expected int64\[321\]"),
    "a rank twice": (lambda graph: graph["ranks"].append(graph["ranks"][0]), "two files have one name"),
    "a rank less": (lambda graph: graph["ranks"].pop(), r"row_offsets is int64\[33\]; expected int64\[65\]"),
    "no in-edges": (_set("in_edges", to=False), "has the arrays row_offsets, columns, in_row_offsets, in_columns"),
    "undirected with in-edges": (_set("directed", to=False), "in_edges is true; an undirected graph has none"),
    "a path as name": (_set(*RANK, "name", to="../rank-0-000000000000.arrow"), "is not the name of a file of a saved"),
    "an absolute name": (_set(*RANK, "name", to="/etc/passwd"), "'/etc/passwd' is not the name of a file"),
    "an array past the end": (_set(*RANK, "arrays", 3, "length", to=2**33), "in_columns ends at byte .* of"),
    "an array within another": (_set(*RANK, "arrays", 1, "offset", to=8), "columns starts at byte 8, within another"),
    "an array within a word": (_set(*RANK, "arrays", 0, "offset", to=570), "row_offsets starts at byte 570, within"),
    "another type": (_set(*RANK, "arrays", 1, "dtype", to="int64"), r"columns is int64\[.*\]; expected uint32"),
    "no such type": (_set(*RANK, "arrays", 1, "dtype", to="object"), r"columns is object\[.*\]; expected uint32"),
    "no arrays": (_set(*RANK, "arrays", to=[]), "has the arrays none; expected row_offsets, columns"),
    "no checksums": (_set(*RANK, "checksums", to=[]), "has 0 checksums for"),
    "empty blocks": (_set(*RANK, "block_bytes", to=0), "has blocks of 0 bytes; expected 8 to"),
    "endless blocks": (_set(*RANK, "block_bytes", to=2**60), "has blocks of 1,152,921,504,606,846,976 bytes"),
    "endless file": (_set(*RANK, "nbytes", to=2**60), "checksums for 1,152,921,504,606,846,976 bytes"),
    "too many loops": (_set("ranks", 1, "self_loops", to=10**9), r"ranks\[1\] has more self-loops than edges"),
    "rows that descend": (_set("ranks", 0, "rows", to=[99]), r"ranks\[0\].rows does not ascend within 0..31"),
    "too few rows": (_set("ranks", 0, "rows", to=[]), r"ranks\[0\].rows has 0 entries; expected 1"),
    "rows of nothing": (_set("ranks", 0, "rows_every", to=0), r"ranks\[0\].rows_every is 0"),
    "edges of one rank": (_set("ranks", 1, "edges", to=None), "some ranks have no kept edges"),
    "fewer edges": (_set("input_edges", to=199), "200 edges are kept, of 199 input edges"),
    "half a batch": (lambda graph: graph["ranks"][0]["edges"]["arrays"].pop(), "has the arrays source; expected none"),
    "a short order": (_set("order", "arrays", 0, "length", to=59), r"vertex is uint32\[59\]; expected uint32\[60\]"),
}


@pytest.mark.parametrize("case", LIES)
def test_manifests_that_lie(client: distributed.Client, saved: Path, tmp_path: Path, case: str) -> None:
    path = copied(saved, tmp_path / "graph")
    change, message = LIES[case]
    change_manifest(path, change)
    with pytest.raises(FormatError, match=message) as found:
        dbfs.load(path, client=client, ranks=2)
    assert str(path / "manifest.json") in str(found.value)


ARRAY_LIES: dict[str, tuple[str, str, Callable[[Any], object], str]] = {
    "a column out of all ranks": ("partition", "columns", put(3, 64), "is the internal id of no vertex, with n = 60"),
    "a column of padding": ("partition", "columns", put(3, 31), "is the internal id of no vertex"),
    "the largest column": ("partition", "columns", put(0, 2**32 - 1), "is the internal id of no vertex"),
    "an in-column": ("partition", "in_columns", put(-1, 63), "is the internal id of no vertex"),
    "the first row": ("partition", "row_offsets", put(0, 1), "its rows begin at 1 and end at"),
    "the last row": ("partition", "row_offsets", put(-1, 2**62), "its rows begin at 0 and end at 4,611"),
    "a row below 0": ("partition", "row_offsets", put(5, -8), "its row offsets do not ascend"),
    "a row too high": ("partition", "in_row_offsets", put(5, 2**62), "its row offsets do not ascend"),
    "edges of padding": ("partition", "row_offsets", put(30, 1), "are of rows past the last vertex of rank 0"),
    "an edge of no vertex": ("edges", "source", put(7, 60), "has an edge of the vertex 60; vertices are 0..59"),
    "a vertex twice": ("order", "vertex", put(0, 5), "a vertex is missing or occurs twice"),
    "no vertex": ("order", "vertex", put(59, 60), "is not an order of the vertices 0..59"),
}


@pytest.mark.parametrize("case", ARRAY_LIES)
def test_arrays_that_lie(client: distributed.Client, saved: Path, tmp_path: Path, case: str) -> None:
    path = copied(saved, tmp_path / "graph")
    what, name, change, message = ARRAY_LIES[case]
    change_array(path, 0, name, change, what)
    with pytest.raises(FormatError, match=message) as found:
        dbfs.load(path, client=client, ranks=2)
    assert str(path) in str(found.value)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("columns", put(3, 2**32 - 1), DbfsError),
        ("row_offsets", put(5, -8), FormatError),
        ("row_offsets", put(5, 2**62), FormatError),
        ("row_offsets", put(30, 2), FormatError),
    ],
)
def test_arrays_that_lie_to_other_ranks(
    client: distributed.Client, leaves_nothing: None, plain: Path, tmp_path: Path, name: str, change: Any, error: Any
) -> None:
    path = copied(plain, tmp_path / "graph")
    change_array(path, 0, name, change)
    with pytest.raises(error):
        dbfs.load(path, client=client, ranks=3)


def test_random_bytes_as_manifest() -> None:
    @hypothesis.given(
        st.binary()
        | st.text().map(str.encode)
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["format", "version", "graph", "n"]), inner)
            ),
        ).map(lambda value: json.dumps({"format": manifests.FORMAT, "version": 1, "graph": value}).encode())
    )
    @hypothesis.settings(max_examples=50, deadline=None)
    def parse(text: bytes) -> None:
        with pytest.raises(FormatError):
            manifests.parse(text, "manifest.json")

    parse()


def test_any_damage_is_a_typed_error_or_does_no_harm(
    client: distributed.Client, saved: Path, plain: Path, other: Path, tmp_path: Path
) -> None:
    """Bytes flip, files end early, and files come from other ranks and other graphs."""

    @hypothesis.given(data=st.data())
    @hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    def damage(data: st.DataObject) -> None:
        source = data.draw(st.sampled_from([saved, plain]))
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        path = copied(source, tmp_path / "graph")
        names = sorted(file.name for file in path.iterdir())
        victim = path / data.draw(st.sampled_from(names))
        content = bytearray(victim.read_bytes())
        how = data.draw(st.sampled_from(["flip", "truncate", "swap", "foreign"]))
        if how == "flip":
            for _ in range(data.draw(st.integers(1, 3))):
                content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            victim.write_bytes(content)
        elif how == "truncate":
            victim.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        elif how == "swap":
            also = path / data.draw(st.sampled_from(names))
            victim.write_bytes(also.read_bytes())
            also.write_bytes(content)
        else:
            stranger = data.draw(st.sampled_from(sorted(other.iterdir())))
            victim.write_bytes(stranger.read_bytes())
        ranks = data.draw(st.sampled_from([1, 2]))
        with contextlib.suppress(FormatError, MissingFileError, UnreadableFileError):
            load(client, path, ranks)

    damage()


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000, 2**32 - 999])
@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_the_check_of_columns_is_exact(n: int, p: int) -> None:
    stripe = Stripe(n, p)
    near = {0, stripe.p * stripe.n_local - 1, stripe.p * stripe.n_local, 2**32 - 1}
    for owner in range(p):
        edges = (owner * stripe.n_local, owner * stripe.n_local + stripe.owned(owner), (owner + 1) * stripe.n_local)
        near |= {edge + step for edge in edges for step in (-1, 0, 1)}
    for column in (one for one in near if 0 <= one < 2**32):
        owner, row = divmod(column, stripe.n_local)
        right = owner < p and row * p + owner < n
        assert are_vertices(np.array([column], np.uint32), n, p, stripe.n_local) == right, column
