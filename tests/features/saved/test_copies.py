"""Saved graphs whose files others hold: who copies the files, who maps them, and what a change of the files does."""

import os
from collections.abc import Iterator
from pathlib import Path

import distributed
import numpy as np
import pytest

import dbfs
from dbfs import from_file
from dbfs.cluster.gang import joined_workers
from dbfs.errors import InvalidOptionError, TruncatedFileError
from dbfs.features.saved.edges import MappedFiles
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import blocks
from dbfs_workers.features.saved.blocks import Content
from tests.support import oracle
from tests.support.graphs import random
from tests.support.saved import read_manifest
from tests.support.waiting import eventually

N, SRC, DST = random(300, 900, 1)
NAMES = np.array([f"name {v}" for v in range(N)])


@pytest.fixture(scope="module")
def saved(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a file of each kind, saved by two ranks."""
    path = tmp_path_factory.mktemp("saved") / "graph"
    edges = (NAMES[np.append(SRC, np.arange(N))], NAMES[np.append(DST, np.arange(N))])
    with dbfs.load(
        edges, client=client, ranks=2, directed=True, in_edges=True, keep_edges=True, order="degree"
    ) as graph:
        graph.save(path)
    return path


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*.arrow"))


def map_files(client: distributed.Client, path: Path) -> set[str]:
    """The names of the saved graph's files that workers have mapped, without the token of the save."""
    maps = client.run(lambda: Path("/proc/self/maps").read_text())
    return {file.stem.rpartition("-")[0] for file in files(path) if any(str(file) in found for found in maps.values())}


@pytest.fixture
def stranger(client: distributed.Client) -> Iterator[distributed.Client]:
    """A client of a cluster that its program did not start."""
    with distributed.Client(client.scheduler.address, set_as_default=False) as found:
        yield found


# All edges were in one piece, which rank 0 keeps.
ALL = {"rank-0", "rank-1", "edges-0", "order", "ids-0", "ids-1"}


@pytest.mark.parametrize(
    ("own", "mapped", "expected"),
    [(True, None, ALL), (True, False, set()), (False, None, set()), (False, True, ALL), (False, False, set())],
)
def test_only_a_cluster_of_ones_own_maps_by_itself(
    client: distributed.Client,
    stranger: distributed.Client,
    saved: Path,
    own: bool,
    mapped: bool | None,
    expected: set[str],
) -> None:
    # Dask frees the graph of the test before a moment after its end.
    eventually(lambda: not map_files(client, saved))
    with dbfs.load(saved, client=client if own else stranger, ranks=2, mapped=mapped) as graph:
        assert map_files(client, saved) == expected
        assert graph.bfs("name 0", validate=True).reached > 1


@pytest.mark.full
def test_files_that_are_truncated_after_the_load(saved: Path, tmp_path: Path) -> None:
    """A mapped file would end the workers by SIGBUS, with the graph of another client as well."""
    expected = oracle.distances(oracle.adjacency(N, SRC, DST, directed=True), [5])
    with (
        dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as own,
        distributed.Client(own.scheduler.address, set_as_default=False) as other,
        dbfs.load("path:n=9", client=own) as bystander,
        dbfs.load(saved, client=other, ranks=2) as graph,
        dbfs.load(saved, client=other, ranks=1) as rebuilt,
    ):
        before = set(joined_workers(own))
        for file in files(saved):
            (tmp_path / file.name).write_bytes(file.read_bytes())
            os.truncate(file, 0)
        try:
            for one in (graph, rebuilt):
                for direction in ("top-down", "bottom-up"):
                    found = one.bfs("name 5", direction=direction, validate=True).distances()
                    np.testing.assert_array_equal(found[one.vertices_of(NAMES)], expected)
            assert bystander.bfs(0).depth == 8
            assert set(joined_workers(own)) == before
        finally:
            for file in files(saved):
                file.write_bytes((tmp_path / file.name).read_bytes())


@pytest.mark.parametrize("ranks", [2, 3])
def test_files_that_are_truncated_while_they_are_copied(
    client: distributed.Client, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    contents = {file: file.read_bytes() for file in files(saved)}
    size = Folder.size

    def late(self: Folder, name: str) -> int:
        """Truncate the file as soon as its size was found to be right."""
        found = size(self, name)
        if name.endswith(".arrow"):
            os.truncate(self.file(name), found // 2)
        return found

    monkeypatch.setattr(Folder, "size", late)
    try:
        with pytest.raises(TruncatedFileError, match=r"\.arrow has [\d,]+ bytes; the manifest says [\d,]+"):
            dbfs.load(saved, client=client, ranks=ranks, mapped=False)
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_content(saved: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, threads: int) -> None:
    """Copied or mapped, the arrays are those that Arrow finds in the file."""
    monkeypatch.setattr(blocks, "_GROUP_BYTES", 1)
    for file in read_manifest(saved).files:
        content = Content(Folder(str(saved), mapped), file, threads)
        raw = (saved / file.name).read_bytes()
        for place, array in zip(file.arrays, content.all(), strict=True):
            expected = np.frombuffer(raw, place.dtype, place.length, place.offset)
            np.testing.assert_array_equal(array, expected)
            np.testing.assert_array_equal(content.part(place, 3, place.length - 1), expected[3:-1])
            assert array.flags.aligned
            assert array.flags.writeable != mapped


def test_the_option_is_for_saved_graphs_on_a_disk(client: distributed.Client, saved: Path) -> None:
    for mapped in (True, False):
        with pytest.raises(InvalidOptionError, match="mapped= is for saved graphs; path:n=9 is none"):
            dbfs.load("path:n=9", client=client, mapped=mapped)
    with dbfs.load("path:n=9", client=client, ranks=1) as graph:
        graph.save("memory://mapped/graph.dbfs")
    with pytest.raises(InvalidOptionError, match=r"mapped=True is for files on a disk; memory://\S+ is in a store"):
        dbfs.load("memory://mapped/graph.dbfs", client=client, mapped=True)
    for option in (None, False):
        with dbfs.load("memory://mapped/graph.dbfs", client=client, ranks=1, mapped=option) as again:
            assert again.bfs(0).depth == 8


def test_the_estimate_counts_a_copy_of_the_largest_files(saved: Path) -> None:
    found = read_manifest(saved)
    ranks = [rank.partition.arrays + (rank.edges.arrays if rank.edges else ()) for rank in found.ranks]
    of_rank = [sum(place.end - place.offset for place in places) for places in ranks]
    tables = [table.file.nbytes for table in found.ids.tables]
    # Beside the vertices by position, as saved, there are the positions.
    assert dbfs.estimate(saved, 2).partition_bytes >= max(of_rank) + max(tables) + 2 * 4 * N


def test_the_estimate_counts_a_copy_of_the_order(client: distributed.Client, tmp_path: Path) -> None:
    """Each worker that reads pieces of partitions has one, if the graph is built for other ranks."""
    with dbfs.load(dbfs.from_arrays(SRC, DST, n=N), client=client, ranks=2, order="degree") as graph:
        graph.save(tmp_path / "graph")
    assert dbfs.estimate(tmp_path / "graph", 3).build["reading"] == 4 * N
    mapped = MappedFiles(None).take_edges(from_file(tmp_path / "graph"), shared=False)
    assert "reading" not in dbfs.estimate(mapped, 3).build
