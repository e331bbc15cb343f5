"""What comments and lines of column names say: direction, two sets of vertices, numbers of edges, the ends' columns.

Axes: statement x format that can hold it.
"""

import logging
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pandas as pd
import pytest

import dbfs
from dbfs.edges.readers import from_file
from dbfs.errors import EdgeInputError, FormatError, InvalidOptionError, TruncatedFileError
from dbfs_workers.base.text import counted
from tests.support.edge_files import read_all, write

MTX = "%%MatrixMarket matrix coordinate pattern {}\n"
TEXTS = {
    "a.txt": "1 2\n2 3\n",
    "a.csv": "source,target\n1,2\n2,3\n",
    "names.csv": "source,target\nann,bob\nbob,cy\n",
    "a.ncol": "ann bob\nbob cy\n",
    "a.adjlist": "1 2\n2 3\n",
}
STATED = {
    "# Directed graph (each unordered pair of nodes is saved once): a.txt": True,
    "# Directed Node Graph": True,
    "// Directed graph": True,
    "% asym": True,
    "% asym positive\n% 2 3 3": True,
    "# Directed graph\n# undirected edges occur twice": True,
    "# Undirected graph: directed": False,
    "#undirected weighted Network": False,
    "% sym unweighted unsigned": False,
    "# edges of a graph": False,
}
UNCLEAR = [
    "# this graph is directed",
    "# directed: False",
    "% Non-directed graph",
    "// type=undirected",
    "# Directed graph\n# Undirected graph",
    "# Directed graph\n% sym",
]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("comment", STATED)
def test_a_comment_states_the_direction(tmp_path: Path, name: str, comment: str) -> None:
    path = write(tmp_path, name, f"{comment}\n{TEXTS[name]}")
    assert from_file(path).directed is STATED[comment]
    for directed in (True, False):
        assert from_file(path, directed=directed).directed is directed


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("comment", UNCLEAR)
def test_a_comment_that_may_state_the_direction(tmp_path: Path, name: str, comment: str) -> None:
    path = write(tmp_path, name, f"# c\n{comment}\n{TEXTS[name]}")
    with pytest.raises(FormatError, match=r"line [23]: .*; pass directed=True or directed=False"):
        from_file(path)
    assert from_file(path, directed=True).directed
    assert not from_file(path, directed=False).directed


def test_a_matrix_that_a_comment_calls_undirected(tmp_path: Path) -> None:
    for symmetry, comment, asked in (
        ("general", "% kind: undirected graph", True),
        ("general", "% kind: directed graph", False),
        ("symmetric", "% kind: undirected graph", False),
    ):
        path = write(tmp_path, "a.mtx", f"{MTX.format(symmetry)}{comment}\n2 2 1\n2 1\n")
        if asked:
            with pytest.raises(FormatError, match="line 2: .*the banner says general, and a comment undirected"):
                from_file(path)
            assert not from_file(path, directed=False).directed
        else:
            assert from_file(path).directed == (symmetry == "general")


@pytest.mark.parametrize("ids", [("1", "2"), ("ann", "bob")])
def test_a_column_of_gephi_that_states_the_direction(tmp_path: Path, ids: tuple[str, str]) -> None:
    path = write(tmp_path, "a.csv", f"Source,Target,Type,Weight\n{','.join(ids)},Directed,1.0\n")
    with pytest.raises(FormatError, match="line 2: .*the column 'Type' says 'directed'; pass directed="):
        from_file(path)
    assert from_file(path, directed=True).directed


def test_two_sets_of_vertices(tmp_path: Path) -> None:
    path = write(tmp_path, "out.actors", "% bip unweighted\n% 3 2 3\n1 1\n2 1 \n2 3\n")
    edges = from_file(path)
    assert read_all(edges) == [(0, 2), (1, 2), (1, 4)]
    assert (edges.n, edges.first_id, edges.directed, edges.stated) == (5, 1, False, 3)
    assert from_file(path, directed=True).directed
    one = from_file(path, bipartite=False)
    assert (one.n, read_all(one)) == (None, [(1, 1), (2, 1), (2, 3)])
    for row, id_ in (("3 1", 3), ("1 4", 4), ("0 1", 0)):
        edges = from_file(write(tmp_path, "out.wrong", f"% bip\n% 3 2 3\n1 1\n{row}\n"))
        with pytest.raises(FormatError, match=f"line 4: '{row}': id {id_} is out of range"):
            read_all(edges)


def test_two_sets_of_unknown_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "out.actors", "% bip unweighted\n1 1\n2 1\n")
    assert read_all(from_file(path, bipartite=False)) == [(1, 1), (2, 1)]
    for name, text in {**TEXTS, path.name: "1 1\n2 1\n"}.items():
        with pytest.raises(FormatError, match="says that it is bipartite.* in the second line, '% edges left right'"):
            from_file(write(tmp_path, name, f"% bip\n{text}"))
        assert not from_file(write(tmp_path, name, f"% bip\n{text}"), bipartite=False).directed
        with pytest.raises(InvalidOptionError, match="bipartite=True needs the numbers of vertices of both sets"):
            from_file(write(tmp_path, name, text), bipartite=True)


def test_distances_between_two_sets(client: distributed.Client, tmp_path: Path) -> None:
    path = write(tmp_path, "out.actors", "% bip unweighted\n% 3 2 3\n1 1\n2 1\n2 3\n")
    with dbfs.load(path, client=client, ranks=2) as graph:
        assert graph.bfs(1).to_dict() == {1: 0, 3: 1, 2: 2, 5: 3}


MATRICES = {
    "a.mtx": MTX.format("general") + "2 3 3\n1 1\n2 1\n2 3\n",
    "square.mtx": MTX.format("general") + "2 2 1\n1 2\n",
}


def test_a_rectangular_matrix(tmp_path: Path) -> None:
    path = write(tmp_path, "a.mtx", MATRICES["a.mtx"])
    with pytest.raises(FormatError, match="line 2: '2 3 3': not square; bipartite=True makes a vertex of each row"):
        from_file(path)
    edges = from_file(path, bipartite=True)
    assert (edges.n, edges.m, edges.directed, read_all(edges)) == (5, 3, False, [(0, 2), (1, 2), (1, 4)])
    assert from_file(path, bipartite=True, directed=True).directed
    edges = from_file(write(tmp_path, "a.mtx", MATRICES["square.mtx"]), bipartite=True)
    assert (edges.n, read_all(edges)) == (4, [(0, 3)])
    symmetric = write(tmp_path, "a.mtx", MTX.format("symmetric") + "2 2 1\n2 1\n")
    with pytest.raises(FormatError, match="a symmetric matrix is not bipartite=True"):
        from_file(symmetric, bipartite=True)


@pytest.mark.parametrize("header", ["", "source target\n"])
@pytest.mark.parametrize("count", [1, 2, 3, 10**6])
def test_a_number_of_edges_in_a_comment(tmp_path: Path, header: str, count: int, caplog: Any) -> None:
    path = write(tmp_path, "a.txt", f"# Nodes: 3 Edges: {count}\n{header}1 2\n2 3\n")
    edges = from_file(path)
    assert (edges.m, edges.stated, read_all(edges)) == (None, count, [(1, 2), (2, 3)])
    edges.require_count(2)
    assert (f"a comment states {counted(count, 'edge')}, the file has 2" in caplog.text) == (count != 2)
    if count == 2:
        assert from_file(path, strict=True).m == 2
        return
    with pytest.raises(FormatError, match=r"promise"):
        edges = from_file(path, strict=True)
        edges.require_count(len(read_all(edges)))


def test_a_number_of_edges_that_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "# Nodes: 5 Edges: 1e5\n1 2\n")
    assert from_file(path).stated is None
    with pytest.raises(FormatError, match="line 1: '# Nodes: 5 Edges: 1e5': the count of edges is '1e5'"):
        from_file(path, strict=True)
    with pytest.raises(TruncatedFileError, match="promises 1,000 edges"):
        from_file(write(tmp_path, "a.txt", "# Nodes: 9 Edges: 1000\n1 2\n"), strict=True)


def test_a_load_warns_of_a_wrong_number(client: distributed.Client, tmp_path: Path, caplog: Any) -> None:
    path = write(tmp_path, "a.txt", "# Nodes: 3 Edges: 9\n1 2\n2 3\n")
    with caplog.at_level(logging.WARNING), dbfs.load(path, client=client, ranks=2) as graph:
        assert graph.bfs(1).to_dict() == {1: 0, 2: 1, 3: 2}
    assert caplog.text.count("a.txt: a comment states 9 edges, the file has 2") == 1


# Tables whose first column is none of the ends, and whose target may stand before the source.
ENDS = [("source", "target"), ("SRC", "Dst"), ("from", "to"), ("u", "v")]
ROWS = {"integers": [(10, 20), (20, 30)], "strings": [("x", "y"), ("y", "z")]}


def tables(folder: Path, names: list[str], columns: list[Any]) -> dict[str, Any]:
    """Return a table in each form in which tables come."""
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "quoted.csv", index=False, quoting=1)
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "a.parquet")
    frame.to_feather(folder / "a.feather")
    found: dict[str, Any] = {path.name: path for path in folder.iterdir()}
    if all(np.issubdtype(type(column[0]), np.integer) for column in columns):
        frame.to_csv(folder / "a.txt", index=False, sep=" ")
        np.savez(folder / "a.npz", **{name: frame[name].to_numpy() for name in names})
        np.save(folder / "a.npy", frame.to_records(index=False))
        found |= {name: folder / name for name in ("a.txt", "a.npz", "a.npy")}
    return found | {"frame": frame}


def ends_of(edges: Any) -> list[tuple[Any, Any]]:
    listed = dbfs.edges.resolve.edge_list(edges, directed=True)
    return [pair for piece in listed.cut(10) for pair in zip(*(end.tolist() for end in piece.read()), strict=True)]


@pytest.mark.parametrize("ids", ROWS)
@pytest.mark.parametrize("ends", ENDS, ids=lambda ends: ends[0])
def test_well_known_names_stand_anywhere(tmp_path: Path, ids: str, ends: tuple[str, str]) -> None:
    sources, targets = zip(*ROWS[ids], strict=True)
    source, target = ends
    for place, (names, columns) in enumerate(
        (
            (["row", source, target], [[0, 1], sources, targets]),
            ([target, "weight", source], [targets, [5, 6], sources]),
            ([target, source], [targets, sources]),
        )
    ):
        (tmp_path / str(place)).mkdir()
        for form, table in tables(tmp_path / str(place), names, columns).items():
            assert ends_of(table) == ROWS[ids], (form, names)


@pytest.mark.parametrize("ids", ROWS)
@pytest.mark.parametrize("names", [["row", "a", "b"], ["source", "target", "from", "to"], ["row", "source", "to"]])
def test_other_names_are_asked_for(tmp_path: Path, ids: str, names: list[str]) -> None:
    sources, targets = zip(*ROWS[ids], strict=True)
    columns = [[0, 1], sources, targets] if len(names) == 3 else [sources, targets, targets, sources]
    for form, table in tables(tmp_path, names, columns).items():
        with pytest.raises(EdgeInputError, match="name those of an edge's ends by source= and target="):
            raise AssertionError(f"{form}: {ends_of(table)}")


@pytest.mark.parametrize("ids", ROWS)
def test_the_index_of_pandas_has_no_name(tmp_path: Path, ids: str) -> None:
    frame = pd.DataFrame(ROWS[ids], columns=["source", "target"])
    frame.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith(",source,target\n0,")
    assert ends_of(tmp_path / "a.csv") == ROWS[ids]


SETS = ["a.csv", "quoted.csv", "a.tsv", "a.parquet", "a.feather", "a.txt", "a.npz", "a.npy"]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("names", [["a", "b"], ["from", "to"], ["row", "from", "to"]], ids=len)
def test_columns_of_a_set_go_by_name(tmp_path: Path, name: str, names: list[str]) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    columns = dict(zip(names, ([[7]] if len(names) == 3 else []) + [[1], [2]], strict=True))
    later = dict(zip(names, ([[8]] if len(names) == 3 else []) + [[2], [3]], strict=True))
    for place, order in enumerate((names, names[::-1])):
        (tmp_path / str(place)).mkdir()
        parts = tables(tmp_path / str(place), order, [np.array((columns, later)[place][each]) for each in order])
        parts[name].rename(folder / f"{place}{Path(name).suffix}")
    assert ends_of(folder) == [(1, 2), (2, 3)]


def test_files_without_names_among_files_with_names(tmp_path: Path) -> None:
    write(tmp_path, "0.txt", "1 2\n")
    write(tmp_path, "1.csv", "a,b\n2,3\n")
    assert ends_of(tmp_path) == [(1, 2), (2, 3)]
    write(tmp_path, "1.csv", "to,from\n3,2\n")
    with pytest.raises(EdgeInputError, match=r"0\.txt names no columns, and the ends of an edge in .*1\.csv are not"):
        from_file(tmp_path)
    write(tmp_path, "1.csv", "a,b\n2,3\n")
    write(tmp_path, "2.csv", "b,a\n2,3\n")
    with pytest.raises(EdgeInputError, match=r"2\.csv has the columns 'b', 'a', and .*1\.csv 'a', 'b'"):
        from_file(tmp_path)
