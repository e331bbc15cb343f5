"""What a caller tells a reader: names of vertices in any text, separators, comments, codes with leading zeros.

Axes: text of names x header x separator; format x option that it has no place for.
"""

import csv
import io
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dbfs.edges.arrays import from_scipy
from dbfs.edges.readers import from_file
from dbfs.edges.resolve import edge_list
from dbfs.errors import EdgeInputError, FormatError, InvalidOptionError, InvalidOptionTypeError
from tests.support.edge_files import write


def pairs(edges: Any, piece_edges: int = 10**6) -> list[tuple[Any, Any]]:
    """Return the edges of all pieces, whatever their ids are."""
    parts = [piece.read() for piece in edges.cut(piece_edges)]
    return [pair for src, dst in parts for pair in zip(src.tolist(), dst.tolist(), strict=True)]


@pytest.mark.parametrize("name", ["a.txt", "a.edges", "a.csv", "nothing"])
@pytest.mark.parametrize("sep", [" ", "\t", ",", "   "])
@pytest.mark.parametrize("header", [True, False])
def test_names_in_any_text(tmp_path: Path, name: str, sep: str, header: bool) -> None:
    rows = [("ann", "bob"), ("bob", "cy"), ("cy", "ann")]
    text = "# c\n" + "".join(f"{sep.join(row)}\n" for row in [("from", "to")] * header + rows)
    path = write(tmp_path, name, text)
    told = {"format": "edge-list"} if name == "nothing" else {}
    assert pairs(from_file(path, header=header, **told), 1) == rows
    assert pairs(from_file(path, header=header, format="csv"), 1) == rows
    if name != "a.csv":
        with pytest.raises(FormatError, match="pass header=True or header=False|identifies the format"):
            from_file(path)


def test_a_line_of_names_that_may_be_an_edge(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "ann,bob\nbob,cy\n")
    with pytest.raises(FormatError, match="line 1: 'ann,bob': 'bob' is an id in the next lines. Is this line an edge"):
        from_file(path)
    assert pairs(from_file(path, header=False)) == [("ann", "bob"), ("bob", "cy")]
    assert pairs(from_file(path, header=True)) == [("bob", "cy")]
    assert pairs(from_file(path, source="ann", target="bob")) == [("bob", "cy")]


@pytest.mark.parametrize("mark", [",", ";", "|"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_names_with_blanks(tmp_path: Path, mark: str, quote: str) -> None:
    """The first row alone would be one of words between blanks."""
    rows = [("Ann Lee", "Bo Cy"), ("Bo Cy", "Di")]
    lines = [mark.join(f"{quote}{name}{quote}" for name in row) for row in rows]
    assert pairs(from_file(write(tmp_path, "a.csv", "\n".join([f"who{mark}whom", *lines, ""])))) == rows


def test_an_id_with_a_blank_and_without(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "who,whom\nann, bob\nbob, cy\n")
    with pytest.raises(
        FormatError, match="line 2: 'ann, bob': ' bob' and 'bob' would be two vertices; put ids in quotes"
    ):
        from_file(path)
    assert pairs(from_file(write(tmp_path, "a.csv", 'who,whom\nann," bob"\n"bob"," cy"\n'))) == [
        ("ann", " bob"),
        ("bob", " cy"),
    ]
    assert pairs(
        from_file(
            write(tmp_path, "a.csv", "a,b\n1, 2\n2, 3\n"),
        )
    ) == [(1, 2), (2, 3)]


def test_columns_without_names_are_numbered(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "5,ann,bob\n6,bob,cy\n")
    assert pairs(from_file(path, header=False, source="2", target="1")) == [("bob", "ann"), ("cy", "bob")]
    with pytest.raises(EdgeInputError, match="has no column '3'"):
        from_file(path, header=False, source="2", target="3")


@st.composite
def tables(draw: st.DrawFn) -> tuple[bool, str, list[tuple[str, str]], str]:
    """Return header, separator, edges between names, and the text of a table."""
    header, sep, values = (
        draw(st.booleans()),
        draw(st.sampled_from([" ", "\t", ",", ";", "|", ":"])),
        draw(st.booleans()),
    )
    # 0,0 is refused: it may be a float.
    name = st.text(st.sampled_from("ab0 \t,;|:\"'é#%/{"), min_size=1, max_size=4).filter(
        lambda text: text.strip(" \t0,")
    )
    if sep == " ":
        name = name.filter(lambda text: "\t" not in text)
    rows = draw(st.lists(st.tuples(name, name), min_size=1, max_size=8))
    out = io.StringIO()
    # Quotes around all, so that no line may be a comment.
    writer = csv.writer(out, delimiter=sep, quoting=csv.QUOTE_ALL, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    writer.writerows([("from", "to", "x")[: 2 + values]] * header + [(*row, "7")[: 2 + values] for row in rows])
    return header, sep, rows, out.getvalue()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), name=st.sampled_from(["a.csv", "a.txt"]), piece_edges=st.integers(1, 5))
@example(table=(False, " ", [("a", "0 b")], '"a"   "0 b" \n'), name="a.txt", piece_edges=1)
def test_any_names_with_any_separator(tmp_path: Path, table: Any, name: str, piece_edges: int) -> None:
    header, sep, rows, text = table
    path = write(tmp_path, name, text)
    assert pairs(from_file(path, format="csv", header=header, sep=sep), piece_edges) == rows


@pytest.mark.parametrize("sep", ["|", ":", "\t", " "])
def test_integers_with_a_separator(tmp_path: Path, sep: str) -> None:
    path = write(tmp_path, "a.txt", f"1{sep}2{sep}7\n30 {sep} 4{sep}8\n")
    assert pairs(from_file(path, sep=sep)) == [(1, 2), (30, 4)]
    if sep == "\t":
        with pytest.raises(FormatError, match="line 1: '1 2.*3': id '1 2' is not a plain decimal integer"):
            from_file(write(tmp_path, "a.txt", "1 2\t3\n"), sep=sep)


def test_comments_that_the_caller_names(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "! Directed graph\n1 2\n! x\n2 3\n")
    edges = from_file(path, comment="!")
    assert (edges.directed, pairs(edges)) == (True, [(1, 2), (2, 3)])
    with pytest.raises(FormatError, match="line 2: '# c': id '#'"):
        pairs(from_file(write(tmp_path, "a.txt", "1 2\n# c\n"), comment="!"))


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
@pytest.mark.parametrize("mark", ["#", "%", "//"])
def test_a_line_between_names_that_may_be_a_comment(tmp_path: Path, name: str, mark: str) -> None:
    text = f"{mark} top\nfrom to\nann bob\n{mark} cy\nbob dan\n"
    path = write(tmp_path, name, text.replace(" ", "," if name == "a.csv" else " "))
    edges = from_file(path, header=True)
    with pytest.raises(FormatError, match=f"line 4: .*a comment, or an id\\? Pass comment='{mark}'.* else comment=''"):
        pairs(edges)
    sure = from_file(path, header=True, comment=mark)
    assert pairs(sure) == [("ann", "bob"), ("bob", "dan")]
    assert pairs(from_file(path, header=True, comment=""))[-2:] == [(mark, "cy"), ("bob", "dan")]


@pytest.mark.parametrize(
    ("name", "text", "at", "header"),
    [
        ("a.csv", "src,dst\n# red,blue\nblue,red\n", 2, None),
        ("a.csv", "src,dst\n\n%red,blue\nblue,red\n", 3, True),
        ("a.csv", "#red,blue\nblue,red\n", 1, False),
        ("a.txt", "//red blue\nblue red\n", 1, False),
        ("a.ncol", "#red blue\nblue red\n", 1, None),
        ("a.adjlist", "#red blue\n%red blue\nblue red\n", 2, None),
        ("a.adjlist", "blue red\n# red\n//red blue\n", 3, None),
    ],
)
def test_a_first_row_that_may_be_a_comment(tmp_path: Path, name: str, text: str, at: int, header: bool | None) -> None:
    """It was passed over, and its edge lost."""
    path = write(tmp_path, name, text)
    with pytest.raises(FormatError, match=f"line {at}: .*a comment, or an id\\?"):
        pairs(from_file(path, header=header))
    assert len(pairs(from_file(path, header=header, comment=""))) >= 2
    mark = text.splitlines()[at - 1].split("red")[0].strip()
    assert set(pairs(from_file(path, header=header, comment=mark))) >= {("blue", "red")}


@pytest.mark.parametrize("header", ["", "from,to\n", "a,b,w\n"])
def test_codes_in_the_first_rows_are_strings(tmp_path: Path, header: str) -> None:
    weight = ",5" * (header.count(",") == 2)
    rows = [("7", "8")] * 98 + [("007", "8")]
    path = write(tmp_path, "a.csv", header + "".join(f"{a},{b}{weight}\n" for a, b in rows))
    told = {"source": "a", "target": "b"} if weight else {}
    edges = from_file(path, **told)
    assert (edges.id_kinds, pairs(edges)) == (("string",), rows)
    assert pairs(from_file(path, format="csv", header=bool(header), **told)) == rows


@pytest.mark.parametrize("code", ["007", "00", "01"])
@pytest.mark.parametrize("told", [{}, {"format": "csv", "header": True}, {"source": "u", "target": "v"}], ids=len)
def test_a_code_in_a_later_row_is_an_error(tmp_path: Path, code: str, told: dict[str, Any]) -> None:
    text = "u,v\n" + "7,8\n" * 120 + f"9,{code}\n" + "7,8\n" * 50
    edges = from_file(write(tmp_path, "a.csv", text), **told)
    with pytest.raises(FormatError, match=f"line 122: '9,{code}': .*id '{code}' has a leading zero"):
        pairs(edges, 30)


def test_integers_that_begin_with_no_zero_stay(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "u,v\n0,10\n 100 ,0\n10,20\n")
    for told in ({}, {"source": "u", "target": "v"}):
        edges = from_file(path, **told)
        assert (edges.id_kinds, pairs(edges)) == (("integer",), [(0, 10), (100, 0), (10, 20)])


def test_an_edge_list_below_a_banner(tmp_path: Path) -> None:
    for symmetry, directed in (("symmetric", False), ("general", True)):
        banner = f"%%MatrixMarket matrix coordinate pattern {symmetry}\n"
        path = write(tmp_path, "a.edgelist", f"{banner}%3 3 2\n2 1\n3 2\n")
        with pytest.raises(FormatError, match="line 3: '2 1': expected the size line .*; format='edge-list' reads"):
            from_file(path)
        edges = from_file(path, format="edge-list")
        assert (edges.directed, pairs(edges)) == (directed, [(2, 1), (3, 2)])
        edges = from_file(write(tmp_path, "a.edgelist", f"% x\n{banner}2 1\n3 2\n"))
        assert (edges.directed, pairs(edges)) == (directed, [(2, 1), (3, 2)])
    # As an edge the size line would be one from 3 to 3.
    weighted = "%%MatrixMarket matrix coordinate integer general\n3 3 2\n1 2 5\n3 2 6\n"
    with pytest.raises(FormatError, match="line 2: '3 3 2': may be the size line of a matrix"):
        from_file(write(tmp_path, "a.mtx", weighted), format="edge-list")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", [str, lambda node: f"n{node}", lambda node: f"{node:03}"], ids=["int", "str", "code"])
@pytest.mark.parametrize("piece_edges", [1, 7, 10**6])
def test_adjacency_lists_of_networkx(tmp_path: Path, directed: bool, name: Any, piece_edges: int) -> None:
    graph = nx.gnp_random_graph(30, 0.08, seed=5, directed=directed)
    graph.add_node(30)
    nx.write_adjlist(nx.relabel_nodes(graph, name), tmp_path / "a.adjlist")
    edges = from_file(tmp_path / "a.adjlist", directed=directed)
    pieces = edges.cut(piece_edges)
    found = nx.DiGraph() if directed else nx.Graph()
    for piece in pieces:
        found.add_edges_from(zip(*(end.tolist() for end in piece.read()), strict=True))
        found.add_nodes_from(piece.lone_ids().tolist())
    integers = name(1) == "1"
    assert edges.id_kinds == ("integer" if integers else "string",)
    assert nx.utils.graphs_equal(found, graph if integers else nx.relabel_nodes(graph, name))
    assert any(degree == 0 for _, degree in found.degree)


def test_lines_of_adjacency_lists(tmp_path: Path) -> None:
    path = write(tmp_path, "a.adjlist", "# c\n1 2\t3 \r\n\n  4\n# 5 6\n3  1")
    edges = from_file(path)
    assert pairs(edges) == [(1, 2), (1, 3), (3, 1)]
    assert [piece.lone_ids().tolist() for piece in edges.cut(10**6)] == [[4]]
    assert pairs(from_file(write(tmp_path, "a.txt", "a,b, c\nd\n"), format="adjacency-list", sep=",")) == [
        ("a", "b"),
        ("a", "c"),
    ]
    for row, reason in (
        ("1 x", "id 'x' is not a plain decimal integer; the first lines hold integers"),
        ("007 1", "id '007' has a leading zero"),
        ("1 9223372036854775808", "id 9223372036854775808 is past"),
        ("1 -2", "id '-2' is negative"),
        ("1 2\0", "a NUL byte"),
        ("1\r2", "a carriage return within a line"),
        ("\udcff 2", "a byte that is not UTF-8"),
    ):
        text = "1 2\n" * 110 + f"{row}\n"
        edges = from_file(write(tmp_path, "a.adjlist", text.encode(errors="surrogateescape")))
        with pytest.raises(FormatError, match=f"line 111: .*{reason}"):
            pairs(edges, 20)


@pytest.mark.parametrize("weight", ["", " 0.5"])
def test_ncol(tmp_path: Path, weight: str) -> None:
    path = write(tmp_path, "a.ncol", f"ann  bob{weight}\nbob\tann's{weight}\n")
    assert pairs(from_file(path), 1) == [("ann", "bob"), ("bob", "ann's")]
    assert pairs(from_file(write(tmp_path, "a.ncol", f"1 2{weight}\n"))) == [(1, 2)]
    edges = from_file(write(tmp_path, "a.ncol", f"ann bob{weight}\n" * 200 + "bob\n"))
    with pytest.raises(FormatError, match="line 201: 'bob': 1 column; expected . as in the first row"):
        pairs(edges)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_edge_index_of_pytorch_geometric(tmp_path: Path, order: Any) -> None:
    index = np.array([[1, 2, 3], [2, 3, 9]], order=order)
    expected = [(1, 2), (2, 3), (3, 9)]
    np.save(tmp_path / "a.npy", index)
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), edge_index=index)
    assert pairs(from_file(tmp_path / "a.npy"), 2) == expected
    assert pairs(from_file(tmp_path / "a.npz")) == expected
    assert pairs(edge_list(index)) == expected


def test_an_array_that_can_be_read_in_two_ways(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]]))
    with pytest.raises(EdgeInputError, match="2 x 2, which may have an edge in each row or in each column"):
        from_file(tmp_path / "a.npy")
    assert pairs(from_file(tmp_path / "a.npy", source="0", target="1")) == [(1, 2), (3, 4)]
    np.savez(tmp_path / "a.npz", edge_index=np.array([[1, 2], [3, 4]]))
    assert pairs(from_file(tmp_path / "a.npz")) == [(1, 3), (2, 4)]
    with pytest.raises(EdgeInputError, match="has several meanings"):
        edge_list(np.array([[1, 2], [3, 4]]))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_rectangular_matrix_of_scipy(tmp_path: Path, layout: str) -> None:
    matrix = sp.csr_array(np.array([[0, 1, 0], [1, 0, 2]])).asformat(layout)
    sp.save_npz(tmp_path / "a.npz", matrix)
    with pytest.raises(FormatError, match="not 2 x 3; bipartite=True makes a vertex of each row"):
        from_file(tmp_path / "a.npz")
    for edges in (from_file(tmp_path / "a.npz", bipartite=True), from_scipy(matrix, bipartite=True)):
        assert (edges.n, edges.directed, edges.symmetrise) == (5, False, True)
        assert sorted(pairs(edges)) == [(0, 3), (1, 2), (1, 4)]
    with pytest.raises(EdgeInputError, match="not 2 x 3; bipartite=True makes a vertex of each row"):
        from_scipy(matrix)
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.array([[0, 1], [1, 0]])).asformat(layout))
    edges = from_file(tmp_path / "a.npz", bipartite=True)
    assert (edges.n, edges.symmetrise, sorted(pairs(edges))) == (4, True, [(0, 3), (1, 2)])


TEXTS = {
    "a.mtx": "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n",
    "a.graph": "2 1\n2\n1\n",
    "a.gr": "p tw 2 1\n1 2\n",
    "a.adjlist": "1 2\n",
    "a.ncol": "a b\n",
    "a.txt": "1 2\n",
    "a.csv": "a,b\nx,y\n",
}
TAKEN = {
    "sep": ("a.txt", "a.csv", "a.adjlist", "a.ncol"),
    "header": ("a.txt", "a.csv"),
    "comment": ("a.txt", "a.csv", "a.adjlist", "a.ncol"),
    "bipartite": ("a.mtx", "a.npz", "a.txt", "a.csv", "a.adjlist", "a.ncol"),
}
VALUES = {"sep": ",", "header": True, "comment": "#", "bipartite": False}


@pytest.mark.parametrize("option", TAKEN)
def test_options_that_a_format_has_no_place_for(tmp_path: Path, option: str) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4], [5, 6]]))
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.eye(2)))
    for name, text in TEXTS.items():
        write(tmp_path, name, text)
    for name in (*TEXTS, "a.npy", "a.npz"):
        if name in TAKEN[option]:
            continue
        with pytest.raises(InvalidOptionError, match=f"{option}= is not for the format '.*' of .*{name}"):
            from_file(tmp_path / name, **{option: VALUES[option]})


@pytest.mark.parametrize("end", ["source", "target"])
def test_one_named_end_is_not_for_a_text_without_names(tmp_path: Path, end: str) -> None:
    for name, told in {"a.mtx": "matrix-market", "a.gr": "gr", "a.txt": "edge-list"}.items():
        path = write(tmp_path, name, TEXTS[name])
        with pytest.raises(InvalidOptionError, match=f"name columns of a table; format '{told}' has none"):
            from_file(path, format=told, **{end: "a"})


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("sep", "", InvalidOptionError),
        ("sep", ", ", InvalidOptionError),
        ("sep", "0", InvalidOptionError),
        ("sep", '"', InvalidOptionError),
        ("sep", "é", InvalidOptionError),
        ("sep", 5, InvalidOptionTypeError),
        ("comment", " #", InvalidOptionError),
        ("comment", "#\n", InvalidOptionError),
        ("comment", b"#", InvalidOptionTypeError),
        ("header", 0.5, InvalidOptionTypeError),
        ("header", "yes", InvalidOptionTypeError),
        ("directed", "no", InvalidOptionTypeError),
        ("bipartite", "no", InvalidOptionTypeError),
        ("strict", "no", InvalidOptionTypeError),
    ],
)
def test_values_of_options(tmp_path: Path, option: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{option} (is|must be)"):
        from_file(write(tmp_path, "a.txt", "1 2\n"), **{option: value})


@pytest.mark.parametrize("row", ["1,9223372036854775808", "9223372036854775808,1"])
def test_an_integer_past_the_largest_in_the_first_rows(tmp_path: Path, row: str) -> None:
    with pytest.raises(FormatError, match=r"line 2: .* past 2\^63-1; the first rows hold integers"):
        from_file(write(tmp_path, "a.csv", f"u,v\n{row}\n1,2\n"), format="csv")
