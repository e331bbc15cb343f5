"""What a graph was made of: which edges can be read again, and whether the source is what it was."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import BuildOptions
from dbfs.edges.resolve import edge_list
from dbfs.errors import GraphLostError
from dbfs.features.rebuild.lineage import Lineage, states

OPTIONS = BuildOptions()
PAIRS = "0 1\n1 2\n2 3\n"


def lineage(source: Any, **reading: Any) -> Lineage | None:
    """Return a lineage as another client gets it."""
    found = Lineage.of(source, reading, edge_list(source, **reading), OPTIONS)
    return None if found is None else pickle.loads(pickle.dumps(found))


@pytest.mark.parametrize("spec", ["path:n=50", "kronecker:scale=6", "grid2d:side=5", "geometric:n=60,radius=0.3"])
def test_a_generator_is_opened_again(spec: str) -> None:
    kept = lineage(spec)
    assert kept is not None
    assert kept.files == ()
    before, again = edge_list(spec), kept.opened("g")
    assert (again.n, again.m, again.directed) == (before.n, before.m, before.directed)
    for first, second in zip(before.cut(100), again.cut(100), strict=True):
        assert all(np.array_equal(*ends) for ends in zip(first.read(), second.read(), strict=True))


@pytest.mark.parametrize(
    "edges",
    [
        (np.array([0, 1]), np.array([1, 2])),
        [("a", "b"), ("b", "c")],
        dbfs.from_arrays(np.array([0, 1]), np.array([1, 2])),
    ],
)
def test_edges_of_a_clients_memory_have_none(edges: Any) -> None:
    assert lineage(edges) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.txt", PAIRS),
        ("g.csv", "source,target\n0,1\n1,2\n"),
        ("g.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n"),
        ("g.gml", "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]"),
        ("g.graph", "3 2\n2\n1 3\n2\n"),
        ("g.net", '*Vertices 2\n1 "a"\n2 "b"\n*Edges\n1 2\n'),
    ],
)
def test_a_file_of_any_format_is_opened_again(tmp_path: Path, name: str, text: str) -> None:
    """Some formats are read whole by the client, whose edge list then holds the edges."""
    path = tmp_path / name
    path.write_text(text)
    kept = lineage(str(path))
    assert kept is not None
    before, again = edge_list(path), kept.opened("g")
    assert (again.n, again.m, again.directed) == (before.n, before.m, before.directed)
    path.write_text(text + "\n")
    with pytest.raises(GraphLostError, match=rf"source was changed since it was read, .*{name}"):
        kept.opened("g")


def test_a_relative_path_is_that_of_the_client_that_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g.gml").write_text("graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]")
    monkeypatch.chdir(tmp_path)
    kept = lineage("g.gml")
    monkeypatch.chdir("/")
    assert kept is not None
    assert kept.opened("g").m == 1


@given(text=st.text("01 \n", max_size=40), other=st.text("01 \n", max_size=40), back=st.booleans())
def test_a_small_file_is_compared_by_its_content(
    tmp_path_factory: pytest.TempPathFactory, text: str, other: str, back: bool
) -> None:
    path = tmp_path_factory.mktemp("files") / "g.txt"
    path.write_text(text)
    before, times = states(str(path)), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_text(other)
    if back:
        # As a copy with its times does.
        os.utime(path, ns=times)
        assert (states(str(path)) == before) == (text == other)
    elif text != other:
        assert states(str(path)) != before


@pytest.mark.parametrize("change", ["added", "removed", "changed", "touched", "gone"])
def test_a_folder_is_compared_file_by_file(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "edges"
    folder.mkdir()
    for part in range(3):
        (folder / f"{part}.txt").write_text(PAIRS)
    kept = lineage(str(folder))
    assert kept is not None
    assert kept.opened("g").path == str(folder)
    match change:
        case "added":
            (folder / "3.txt").write_text(PAIRS)
        case "removed":
            (folder / "1.txt").unlink()
        case "changed":
            (folder / "1.txt").write_text(PAIRS.replace("3", "4"))
        case "touched":
            os.utime(folder / "1.txt", (1, 1))
        case "gone":
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    with pytest.raises(GraphLostError, match="g can't be built again: its source"):
        kept.opened("g")
