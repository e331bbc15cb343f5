"""Files of other programs: read as these programs read them, or refused with the way in, whatever their names."""

import contextlib
import gzip
import pickle
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import igraph
import networkx as nx
import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs import from_file
from dbfs.cli import main
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.foreign import READ, REFUSED
from dbfs.errors import DbfsError, EdgeInputError, FormatError, GraphTooLargeError, InvalidOptionError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
GRAPHML = HEAD + '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}</graphml>\n'
GEXF = HEAD + '<gexf xmlns="http://gexf.net/1.3" version="1.3">{}</gexf>\n'


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def listed(ids: Any) -> list[Any]:
    return list(ids.tolist() if hasattr(ids, "tolist") else ids.to_pylist())


def read(edges: EdgeList) -> tuple[set[Any], Counter[Any], bool]:
    """Return the ids of all vertices, the edges with their numbers, and whether these are directed."""
    vertices: set[Any] = set() if edges.n is None else set(range(edges.first_id, edges.first_id + edges.n))
    found: Counter[Any] = Counter()
    for piece in edges.cut(10_000):
        lone = piece.lone_ids() if hasattr(piece, "lone_ids") else None
        vertices.update([] if lone is None else listed(lone))
        first = 0 if edges.n is None else edges.first_id
        src, dst = ([one + first if first else one for one in listed(ids)] for ids in piece.read())
        vertices.update(src, dst)
        pairs = zip(src, dst, strict=True)
        found.update(pairs if edges.directed else (tuple(sorted(pair)) for pair in pairs))
    return vertices, found, edges.directed


def of_networkx(graph: nx.Graph, name: Any = lambda node: node) -> tuple[set[Any], Counter[Any], bool]:
    """Return a graph as ``read`` returns a file."""
    pairs = [(name(u), name(v)) for u, v in graph.edges()]
    found = Counter(pairs if graph.is_directed() else (tuple(sorted(pair)) for pair in pairs))
    return set(map(name, graph)), found, graph.is_directed()


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    """A graph of NetworkX with integers as nodes, lone nodes, loops and parallel edges."""
    kind = draw(st.sampled_from([nx.MultiGraph, nx.MultiDiGraph]))
    graph = kind()
    graph.add_nodes_from(range(draw(st.integers(1, 6))))
    nodes = st.sampled_from(sorted(graph))
    graph.add_edges_from(draw(st.lists(st.tuples(nodes, nodes), max_size=8)))
    return graph


@settings(deadline=None, max_examples=25)
@given(graph=graphs())
def test_what_networkx_and_igraph_write(tmp_path_factory: pytest.TempPathFactory, graph: nx.Graph) -> None:
    folder = tmp_path_factory.mktemp("written")
    nx.set_node_attributes(graph, {node: f'la"bel {node} ü' for node in graph}, "label")
    nx.write_graphml(graph, folder / "g.graphml")
    nx.write_gexf(graph, folder / "g.gexf")
    nx.write_gml(graph, folder / "g.gml")
    assert read(from_file(folder / "g.graphml")) == of_networkx(graph, str)
    assert read(from_file(folder / "g.gexf")) == of_networkx(graph, str)
    # NetworkX gives its own numbers to nodes: those of their order.
    assert read(from_file(folder / "g.gml")) == of_networkx(graph)
    other = igraph.Graph(n=len(graph), edges=list(graph.edges()), directed=graph.is_directed())
    other.write_pajek(str(folder / "g.net"))
    other.write_gml(str(folder / "i.gml"))
    other.write_graphml(str(folder / "i.graphml"))
    assert read(from_file(folder / "g.net")) == of_networkx(graph, lambda node: node + 1)
    assert read(from_file(folder / "i.gml")) == of_networkx(graph)
    assert read(from_file(folder / "i.graphml")) == of_networkx(graph, lambda node: f"n{node}")


@settings(deadline=None, max_examples=20)
@given(graph=graphs())
def test_lgl_as_igraph_writes_it(tmp_path_factory: pytest.TempPathFactory, graph: nx.Graph) -> None:
    path = tmp_path_factory.mktemp("lgl") / "g.lgl"
    other = igraph.Graph(n=len(graph), edges=list(graph.edges()))
    other.vs["name"] = [f"v{node}" for node in graph]
    other.write_lgl(str(path), weights=None, isolates=True)
    expected = nx.MultiGraph(graph.edges())
    expected.add_nodes_from(graph)
    assert read(from_file(path)) == of_networkx(expected, lambda node: f"v{node}")


# Name, text, ids, edges, direction: what NetworkX's or igraph's readers refuse or read wrong too.
FILES: dict[str, tuple[str, str, set[Any], list[Any], bool]] = {
    "graphml": (
        "g.graphml",
        GRAPHML.format(
            '<key id="d" for="edge" attr.name="w"/><graph edgedefault="directed"><node id="a"><data key="x">1</data>'
            '</node><edge source="a" target="b"/><edge source="a" target="b"/><node id="b"/><node id="z"/></graph>'
        ),
        {"a", "b", "z"},
        [("a", "b"), ("a", "b")],
        True,
    ),
    "graphml-no-namespace": (
        "g.graphml",
        '<graphml><graph edgedefault="undirected"><node id="1"/><node id="2"/><edge source="1" target="2"/>'
        "</graph></graphml>",
        {"1", "2"},
        [("1", "2")],
        False,
    ),
    "graphml-nested": (
        "g.graphml",
        GRAPHML.format(
            '<graph edgedefault="undirected"><node id="g"><graph edgedefault="undirected"><node id="g::a"/><node '
            'id="g::b"/><edge source="g::a" target="g::b"/></graph></node><node id="c"/><edge source="c" '
            'target="g::a"/></graph>'
        ),
        {"g", "g::a", "g::b", "c"},
        [("g::a", "g::b"), ("c", "g::a")],
        False,
    ),
    "graphml-all-edges-say": (
        "g.graphml",
        GRAPHML.format(
            '<graph edgedefault="undirected"><node id="a"/><node id="b"/><edge directed="true" source="b" target="a"/>'
            "</graph>"
        ),
        {"a", "b"},
        [("b", "a")],
        True,
    ),
    "graphml-names-in-data": (
        "g.graphml",
        GRAPHML.format(
            '<graph edgedefault="directed"><node id="a"><data key="k"><y:node xmlns:y="y" id="q"/><node id="r"/>'
            "</data></node></graph>"
        ),
        {"a"},
        [],
        True,
    ),
    "gexf-mutual": (
        "g.gexf",
        GEXF.format(
            '<graph defaultedgetype="directed"><nodes><node id="0" label="0"/><node id="1"/><node id="2"/></nodes>'
            '<edges><edge source="0" target="1" type="mutual"/><edge source="1" target="2" weight="2"/></edges></graph>'
        ),
        {"0", "1", "2"},
        [("0", "1"), ("1", "0"), ("1", "2")],
        True,
    ),
    "gexf-two-lists-of-edges": (
        "g.gexf",
        GEXF.format(
            '<graph><nodes><node id="0"><nodes><node id="1"/></nodes></node></nodes><edges><edge source="0" '
            'target="1"/></edges><edges><edge source="1" target="1"/></edges></graph>'
        ),
        {"0", "1"},
        [("0", "1"), ("1", "1")],
        False,
    ),
    "gml-parallel": (
        "g.gml",
        'Creator "graph [ of me"\n# graph [\ngraph [\n  comment "edge [ source"\n  edge [ source 1 target 2 ]\n'
        '  edge [ source 1 target 2 ]\n  node [ id 1 label "9" graphics [ id 7 x 1.5 ] ]\n'
        '  node [ id 2 label "ü" ]\n  node [ id 5 ]\n  directed 1\n]\n',
        {1, 2, 5},
        [(1, 2), (1, 2)],
        True,
    ),
    "gml-texts": (
        "g.gml",
        'graph [ node [ id "a&amp;b" ] node [ id "c\nd" ] edge [ source "a&amp;b" target "c\nd" ] ]',
        {"a&b", "c\nd"},
        [("a&b", "c\nd")],
        False,
    ),
    "pajek-labels": (
        "g.net",
        '*Network "of it"\n% 1 2\n*Vertices 4\n1 "it\'s"\n2 "same" 0.1 0.2 ellipse\n3 "same"\n'
        "*Arcs\n1 2 5 c Blue\n*Edges\n",
        {1, 2, 3, 4},
        [(1, 2)],
        True,
    ),
    "pajek-lists": ("g.net", "*Vertices 4\n*Arcslist\n1 2 3\n4 1\n", {1, 2, 3, 4}, [(1, 2), (1, 3), (4, 1)], True),
    "pajek-edges-after-none": ("g.net", "*vertices 3\n*arcs\n*edges\n1 2\n", {1, 2, 3}, [(1, 2)], False),
    "pajek-matrix": ("g.net", "*Vertices 3\n*Matrix\n0 1 0\n0 0\n2.5\n0 0 0\n", {1, 2, 3}, [(1, 2), (2, 3)], True),
    "pajek-two-mode": (
        "g.net",
        "*Vertices 5 2\n*Matrix\n0 1 0\n1 0 1\n",
        {1, 2, 3, 4, 5},
        [(1, 4), (2, 3), (2, 5)],
        False,
    ),
    "pajek-project": (
        "g.paj",
        "*Network n\r\n*Vertices 2\r\n*Edges\r\n1 2\r\n\r\n*Partition p\r\n*Vertices 2\r\n1\r\n2\r\n",
        {1, 2},
        [(1, 2)],
        False,
    ),
    "lgl": ("g.lgl", "# 1\n2 0.5\n3\n# 9\n# 2\n3\n", {1, 2, 3, 9}, [(1, 2), (1, 3), (2, 3)], False),
    "lgl-codes": ("g.lgl", "# 01\n2\n", {"01", "2"}, [("01", "2")], False),
    "tgf": ("g.tgf", "1 7\n2 8\n3\n#\n1 2\n2 1 back\n", {1, 2, 3}, [(1, 2), (1, 2)], False),
    # Only blanks of ASCII part words.
    "tgf-names": ("g.tgf", "\x1f\nb\xa0c d\n#\n\x1f b\xa0c\n", {"\x1f", "b\xa0c"}, [("\x1f", "b\xa0c")], False),
    "dl-matrix": (
        "g.dl",
        "dl n=3\nlabels:\na, b,\nc\ndata:\n0 1 0\n0 0 2\n0 0 0\n",
        {"a", "b", "c"},
        [("a", "b"), ("b", "c")],
        True,
    ),
    "dl-numbers": ("g.dl", "DL\nN = 3 FORMAT = EDGELIST1\nDATA:\n1 2 0.5\n", {1, 2, 3}, [(1, 2)], True),
    "dl-nodes": (
        "g.dl",
        "dl n=3, format=nodelist1\nlabels embedded:\ndata:\na b c\n",
        {"a", "b", "c"},
        [("a", "b"), ("a", "c")],
        True,
    ),
    "dl-rows": (
        "g.dl",
        'dl n=2 format=fullmatrix diagonal present\nrow labels:\n"A b"\nC\ncolumn labels:\n"A b"\nC\ndata:\n0 1\n0 0\n',
        {"A b", "C"},
        [("A b", "C")],
        True,
    ),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("case", FILES)
def test_a_file(tmp_path: Path, case: str, packed: bool) -> None:
    name, text, ids, edges, directed = FILES[case]
    data = gzip.compress(text.encode()) if packed else text
    expected = Counter(edges if directed else (tuple(sorted(pair)) for pair in edges))
    assert read(from_file(put(tmp_path, name + ".gz" * packed, data))) == (ids, expected, directed)


@pytest.mark.parametrize("name", ["g.csv", "g.graph"])
@pytest.mark.parametrize("case", [case for case in FILES if case != "lgl-codes"])
def test_a_file_by_its_first_lines(tmp_path: Path, case: str, name: str) -> None:
    _, text, ids, edges, directed = FILES[case]
    expected = Counter(edges if directed else (tuple(sorted(pair)) for pair in edges))
    for encoded in (text.encode(), b"\xef\xbb\xbf" + text.encode()):
        assert read(from_file(put(tmp_path, name, encoded))) == (ids, expected, directed)


BOMB = '<!DOCTYPE g [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;&a;&a;">]>'
OUTER = '<!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
TWO = '<node id="a"/><node id="b"/>'
MANGLED = {
    "entities": (
        "g.graphml",
        f'{HEAD}{BOMB}<graphml><graph edgedefault="directed"><node id="&b;"/></graph></graphml>',
        "document type",
    ),
    "files": ("g.gexf", f"{HEAD}{OUTER}<gexf><graph><nodes><node id='&a;'/></nodes></graph></gexf>", "document type"),
    "dtd": (
        "g.graphml",
        f'{HEAD}<!DOCTYPE graphml SYSTEM "http://127.0.0.1/x.dtd"><graphml/>',
        "line 2: a document type",
    ),
    "cut": ("g.graphml", FILES["graphml"][1][:-30], "no valid XML"),
    "text": ("g.graphml", "1 2\n", "g.graphml, line 1: no valid XML"),
    "svg": ("g.graphml", "<svg/>", "root element is 'svg'"),
    "no-graph": ("g.graphml", GRAPHML.format(""), "no graph"),
    "two": ("g.graphml", GRAPHML.format('<graph edgedefault="directed"/>' * 2), "a second graph"),
    "hyper": ("g.graphml", GRAPHML.format('<graph edgedefault="directed"><hyperedge/></graph>'), "a hyperedge"),
    "elsewhere": ("g.graphml", GRAPHML.format('<graph edgedefault="directed"><locator/></graph>'), "a locator"),
    "mixed": (
        "g.graphml",
        GRAPHML.format(
            f'<graph edgedefault="directed">{TWO}<edge source="a" target="b"/>\n<edge source="b" target="a" '
            'directed="false"/></graph>'
        ),
        "line 2: a directed edge, and an undirected one in line 3; pass directed=False",
    ),
    "unsaid": ("g.graphml", GRAPHML.format(f'<graph>{TWO}<edge source="a" target="b"/></graph>'), "pass directed=True"),
    "kind": ("g.graphml", GRAPHML.format('<graph edgedefault="both"/>'), "edgedefault is 'both'"),
    "nowhere": (
        "g.graphml",
        GRAPHML.format('<graph edgedefault="directed"><node id="a"/><edge source="a" target="q"/></graph>'),
        "'q', which is no vertex",
    ),
    "end": (
        "g.graphml",
        GRAPHML.format('<graph edgedefault="directed"><node id="a"/><edge source="a"/></graph>'),
        "without a target",
    ),
    "twice": (
        "g.graphml",
        GRAPHML.format('<graph edgedefault="directed"><node id="a"/><node id="a"/></graph>'),
        "a second vertex",
    ),
    "nameless": ("g.gexf", GEXF.format("<graph><nodes><node/></nodes></graph>"), "a vertex without an id"),
    "gexf-mixed": (
        "g.gexf",
        GEXF.format(
            f'<graph><nodes>{TWO}</nodes><edges><edge source="a" target="b" type="directed"/>'
            '<edge source="b" target="a"/></edges></graph>'
        ),
        "pass directed=False",
    ),
    "gml-open": ("g.gml", "graph [ node [ id 1 ]", "ends within 'graph'"),
    "gml-quote": ("g.gml", 'graph [ node [ id 1 label "a ] ]', "line 1: the quote is not closed"),
    "gml-twice": ("g.gml", "graph [ node [ id 1 id 2 ] ]", "a second 'id'"),
    "gml-real": ("g.gml", "graph [ node [ id 1.0 ] ]", "the id of a vertex is an integer"),
    "gml-wide": ("g.gml", f"graph [ node [ id {10**19} ] ]", "the id of a vertex is an integer"),
    "gml-kinds": ("g.gml", 'graph [ node [ id 1 ] node [ id "a" ] ]', "ids are all integers, all strings"),
    "gml-two": ("g.gml", "graph [ ] graph [ ]", "a second graph"),
    "gml-direction": ("g.gml", "graph [ directed 2 ]", "directed is 2; expected 0 or 1"),
    "gml-close": ("g.gml", "graph [ ] ]", "closes nothing"),
    "pajek-text": ("g.net", "1 2\n2 3\n", "line 1: '1 2': expected '*Vertices n'"),
    "pajek-range": ("g.net", "*Vertices 2\n*Arcs\n1 3\n", "line 3: '1 3': '3' is no vertex; expected 1 to 2"),
    "pajek-mixed": ("g.net", "*Vertices 3\n*Arcs\n1 2\n*Edges\n2 3\n", "line 3: a directed edge"),
    "pajek-short": ("g.net", "*Vertices 2\n*Matrix\n0 1\n", "ends after 2 entries"),
    "pajek-wide": ("g.net", "*Vertices 2\n*Matrix\n0 1 0\n1\n", "more entries"),
    "pajek-relations": ("g.net", "*Vertices 2\n*Arcs :1\n1 2\n*Arcs :2\n2 1\n", "a second relation"),
    "pajek-networks": ("g.paj", "*Network a\n*Vertices 1\n*Network b\n*Vertices 1\n", "a second network"),
    "pajek-section": ("g.net", "*Vertices 2\n*Events\n1 2\n", "an unknown section"),
    "pajek-early": ("g.net", "*Arcs\n1 2\n", "edges before"),
    "lgl-early": ("g.lgl", "a b\n", "expected '# name'"),
    "lgl-blank": ("g.lgl", "# a b\nc\n", "a name without blanks"),
    "tgf-open": ("g.tgf", "1 a\n2 b\n", "ends before its edges"),
    "tgf-nowhere": ("g.tgf", "1 a\n#\n1 2\n", "'2', which is no vertex"),
    "dl-short": ("g.dl", "dl n=3\ndata:\n0 1 0\n", "3 words in a matrix of 3 x 3"),
    "dl-long": ("g.dl", "dl n=1\ndata:\n0 1\n", "2 words in a matrix of 1 x 1"),
    "dl-names": ("g.dl", "dl n=5\nformat = edgelist1\nlabels embedded:\ndata:\na b\n", "n=5, and 2 names"),
    "dl-labels": ("g.dl", "dl n=2\nlabels:\na,a\ndata:\n0 1 1 0\n", "a second vertex with the id 'a'"),
    "dl-several": ("g.dl", "dl n=2 nm=2\ndata:\n0 1 1 0 0 0 0 0\n", "expected one square matrix"),
    "dl-two-mode": ("g.dl", "dl nr=2 nc=3\ndata:\n0 1 1 0 0 0\n", "expected one square matrix"),
    "dl-format": ("g.dl", "dl n=2 format=upperhalf\ndata:\n0\n", "expected one of fullmatrix"),
}


@pytest.mark.parametrize("case", MANGLED)
def test_a_mangled_file(tmp_path: Path, case: str) -> None:
    name, text, words = MANGLED[case]
    with pytest.raises(FormatError) as raised:
        from_file(put(tmp_path, name, text))
    assert words in str(raised.value)
    assert name in str(raised.value)


@settings(deadline=None, max_examples=100)
@given(case=st.sampled_from(sorted(FILES)), data=st.data())
def test_any_cut_or_change_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, case: str, data: st.DataObject
) -> None:
    name, text, *_ = FILES[case]
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"[", b'"', b"<", b"1", b"\n#\n", b"\xff", b"9" * 20])
        )
    with contextlib.suppress(DbfsError):
        read(from_file(put(tmp_path_factory.mktemp("cut"), name, bytes(raw))))


REFUSED_TEXTS = {
    "GDF": "nodedef>name VARCHAR,label VARCHAR\n1,a\n2,b\nedgedef>node1 VARCHAR,node2 VARCHAR\n1,2\n",
    "DOT": '/* a */ // b\nstrict digraph "G g" {\n1 -> 2\n}\n',
    "DOT (Graphviz)": "graph{1--2}",
    "VNA": "*Node data\nID x\n1 2\n*Tie data\nfrom to\n1 2\n",
    "JSON": '{"nodes": [{"id": 1}], "links": []}',
    "JSON by": "[[1, 2], [2, 3]]",
    "CX": '[{"CXVersion": "2.0"}]',
    "LEDA": "LEDA.GRAPH\nstring\nint\n2\n",
    "graph6": ">>graph6<<A_\n",
    "sparse6": ">>sparse6<<:An\n",
    "XGMML": HEAD + '<graph label="a" xmlns="http://www.cs.rpi.edu/XGMML"><node id="1"/></graph>',
    "DGML": '<DirectedGraph xmlns="http://schemas.microsoft.com/vs/2009/dgml"/>',
    "GXL": "<!-- a --><gxl><graph/></gxl>",
    "OpenStreetMap": HEAD + '<osm version="0.6"/>',
    "RDF": "<http://a/1> <http://a/p> <http://a/2> .\n",
    "RDF by": "@prefix a: <http://a/> .\na:1 a:p a:2 .\n",
    "XML": HEAD + "<nodes><node/></nodes>",
    "a page of the web": "<!DOCTYPE html>\n<title>404</title>",
    "TLP": '(tlp "2.3"\n(nodes 0 1)\n',
    "LGF": "@nodes\nlabel\n1\n2\n@arcs\n",
    "AdjacencyGraph": "AdjacencyGraph\n2\n1\n0\n1\n1\n",
    "TSPLIB": "NAME: a\nTYPE: TSP\n",
    "DIMACS": "c a\np edge 3 2\ne 1 2\ne 2 3\n",
    "a pointer of Git LFS": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "a diagram of Mermaid": "graph TD\n1 --> 2\n",
}


@pytest.mark.parametrize("name", ["g.csv", "g.net.gz"])
@pytest.mark.parametrize("what", REFUSED_TEXTS)
def test_what_is_not_read_is_named_by_its_first_lines(tmp_path: Path, what: str, name: str) -> None:
    text = REFUSED_TEXTS[what].encode()
    path = put(tmp_path, name, gzip.compress(text) if name.endswith(".gz") else text)
    words = rf"{name} is {re.escape(what.removesuffix(' by'))}.* by its first lines, which is not read here: \w"
    for options in ({}, {"source": "a", "target": "b"}, {"header": False}):
        with pytest.raises(FormatError, match=words):
            from_file(path, **options)  # type: ignore[arg-type]


BINARY = {
    "a database of SQLite": b"SQLite format 3\0" + bytes(84),
    "a pickle": pickle.dumps(nx.path_graph(3)),
    "a workbook": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(80),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(80),
    "a file of MATLAB": b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM\x0e\0\0\0",
    "a file of R": b"RDX3\nX\n\0\0\0\3\0\4",
}


@pytest.mark.parametrize("what", BINARY)
def test_a_binary_file_is_named(tmp_path: Path, what: str) -> None:
    for name, data in (("g.dat", BINARY[what]), ("g.txt.gz", gzip.compress(BINARY[what]))):
        with pytest.raises(FormatError, match=rf"{name} is {what} by its first lines, which is not read here: "):
            from_file(put(tmp_path, name, data))


def test_every_name_of_the_table(tmp_path: Path) -> None:
    suffixes = [suffix for each in (*READ, *REFUSED) for suffix in each.suffixes]
    assert len(suffixes) == len(set(suffixes))
    for each in REFUSED:
        for suffix in each.suffixes:
            path = put(tmp_path, f"g{suffix}", "1 2\n2 3\n")
            with pytest.raises(
                FormatError, match=rf"{re.escape(each.name)} by its name, which is not read here: "
            ) as raised:
                from_file(path)
            assert "{" not in str(raised.value).replace("{}", "")
            # Who says the format, or that lines hold edges, is believed.
            for options in ({"format": "edge-list"}, {"sep": " "}):
                assert read(from_file(path, **options))[1] == {(1, 2): 1, (2, 3): 1}  # type: ignore[arg-type]
    for each in READ:
        for suffix in each.suffixes:
            with pytest.raises(FormatError, match=rf"g{suffix}.*"):
                from_file(put(tmp_path, f"g{suffix}", "1 2\n2 3\n"))


def test_edge_lists_stay_edge_lists(tmp_path: Path) -> None:
    """What only looks like another format."""
    for text, number in (
        ("#\n# Directed graph: g\n#\n1 2\n", 1),
        ("# 1\n1 2\n", 1),
        ("# nodes\n# edges\n1 2\n# part\n2 1\n", 2),
        ("source,target\ngraph,digraph\n", 1),
        ("name,type\na,b\n", 1),
    ):
        assert read(from_file(put(tmp_path, "g.csv", text)))[1].total() == number


@pytest.mark.parametrize("packed", [False, True])
def test_vertices_and_edges_far_apart(tmp_path: Path, packed: bool) -> None:
    """Where the mark of TGF comes after the lines that the client looks at, workers find it."""
    text = ("".join(f"{vertex} 7\n" for vertex in range(30_000)) + "#\n1 2\n").encode()
    path = put(tmp_path, "g.txt", gzip.compress(text) if packed else text)
    with pytest.raises(FormatError, match="line 30001: '#': a mark alone"):
        read(from_file(path))
    assert read(from_file(path, comment="#"))[1].total() == 30_001
    assert read(from_file(path, format="tgf"))[1] == {(1, 2): 1}


def test_lists_that_may_be_edges(tmp_path: Path) -> None:
    path = put(tmp_path, "g.txt", "# 1\n2 5\n3 7\n# 2\n3 9\n")
    with pytest.raises(FormatError, match=r"g\.txt may be LGL.*; pass format='lgl' or format='edge-list'"):
        from_file(path)
    assert read(from_file(path, format="lgl"))[1] == {(1, 2): 1, (1, 3): 1, (2, 3): 1}
    for options in ({"format": "edge-list"}, {"comment": "#"}):
        assert read(from_file(path, **options))[1] == {(2, 5): 1, (3, 7): 1, (3, 9): 1}  # type: ignore[arg-type]


def test_directions_that_the_caller_says(tmp_path: Path) -> None:
    path = put(tmp_path, "g.net", MANGLED["pajek-mixed"][1])
    assert read(from_file(path, directed=False)) == ({1, 2, 3}, {(1, 2): 1, (2, 3): 1}, False)
    assert read(from_file(path, directed=True)) == ({1, 2, 3}, {(1, 2): 1, (2, 3): 1}, True)
    path = put(tmp_path, "g.graphml", MANGLED["unsaid"][1])
    assert read(from_file(path, directed=True)) == ({"a", "b"}, {("a", "b"): 1}, True)
    name, text, *_ = FILES["gexf-mutual"]
    assert read(from_file(put(tmp_path, name, text), directed=False))[2] is False


def test_options_that_have_no_place(tmp_path: Path) -> None:
    path = put(tmp_path, "g.graphml", FILES["graphml"][1])
    for options in ({"source": "a", "target": "b"}, {"sep": ","}, {"bipartite": True}, {"comment": "#"}):
        with pytest.raises(InvalidOptionError, match="format 'graphml'"):
            from_file(path, **options)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"line 1: no valid XML"):
        from_file(put(tmp_path, "g.txt", "1 2\n"), format="graphml")


def test_what_is_left_out_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    edges = from_file(put(tmp_path, "g.graphml", FILES["graphml"][1]))
    assert caplog.messages == [f"{edges.name}: ids and edges are read. Left out of vertices: x"]
    caplog.clear()
    edges = from_file(put(tmp_path, "g.net", FILES["pajek-labels"][1]))
    (message,) = caplog.messages
    assert message.startswith(
        f"{edges.name}: ids and edges are read. Left out of vertices: label, position and shape; "
    )
    assert message.endswith("of edges: weight, further values")
    assert edges.values == ("weight", "further values")
    assert edges.vertex_values == 4
    caplog.clear()
    from_file(put(tmp_path, "g.net", "*Vertices 2\n*Edges\n1 2\n"))
    assert not caplog.messages


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    text = (FILES["graphml"][1] + " " * 3_000_000).encode()
    path = put(tmp_path, f"g.graphml{suffix}", gzip.compress(text) if suffix else text)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=40_000_000))
    with pytest.raises(GraphTooLargeError, match=r"g\.graphml.* is read by this process.*are free; a Parquet table"):
        from_file(path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=60_000_000))
    assert from_file(path).m == 2


def test_numbers_of_vertices_cost_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_file(put(tmp_path, "g.net", f"*Vertices {10**15}\n*Edges\n1 2\n")).n == 10**15
    with pytest.raises(GraphTooLargeError, match=r"g\.dl: a table of its 1,000,000,000,000,000 vertices"):
        from_file(put(tmp_path, "g.dl", f"dl n={10**15}\nformat=edgelist1\ndata:\n1 2\n"))


def test_junk_takes_linear_time(tmp_path: Path) -> None:
    """The patterns of first lines meet texts that nearly match them; a pattern that goes back would not end."""
    for unit in (
        "a 1 ",
        "1 2\n",
        "# a\n",
        "<?x ?>",
        "<!-- -->",
        "/* */",
        "<!DOCTYPE a>",
        "c a\n",
        "a: b\n",
        "% *",
        "graph ",
        "[{",
        '"a" ',
        "<a> <b> ",
    ):
        with contextlib.suppress(DbfsError):
            read(from_file(put(tmp_path, "g.txt", unit * (200_000 // len(unit)))))


def test_several_of_them_are_no_graph(tmp_path: Path) -> None:
    for name in ("a.graphml", "b.graphml"):
        put(tmp_path, name, FILES["graphml"][1])
    with pytest.raises(EdgeInputError, match=r"a\.graphml has vertices of its own; of several files, only tables"):
        from_file(tmp_path)


def test_graphs_of_files(client: distributed.Client, tmp_path: Path, leaves_nothing: None) -> None:
    """Distances, lone vertices and direction by load, against NetworkX."""
    graph = nx.gnp_random_graph(60, 0.03, seed=4, directed=True)
    nx.write_graphml(graph, tmp_path / "g.graphml")
    nx.write_gml(graph, tmp_path / "g.gml")
    for name, key in (("g.graphml", str), ("g.gml", int)):
        with dbfs.load(tmp_path / name, client=client, progress=False) as loaded:
            assert (loaded.n, loaded.m, loaded.directed) == (60, graph.number_of_edges(), True)
            for source in (0, 7):
                expected = {
                    key(node): far for node, far in nx.single_source_shortest_path_length(graph, source).items()
                }
                assert loaded.bfs(key(source)).to_dict() == expected
    with dbfs.load(put(tmp_path, "g.net", FILES["pajek-lists"][1]), client=client, progress=False) as loaded:
        assert loaded.bfs(4).to_dict() == {4: 0, 1: 1, 2: 2, 3: 2}


def test_commands(tmp_path: Path) -> None:
    path = put(tmp_path, "g.tgf", FILES["tgf"][1])
    out = tmp_path / "g.csv"
    answer = CliRunner().invoke(main, ["convert", str(path), str(out), "--json"])
    assert answer.exit_code == 0, answer.output
    assert sorted(line for line in out.read_text().splitlines() if line[0] != "#") == ["1,2", "2,1"]
    answer = CliRunner().invoke(main, ["convert", str(put(tmp_path, "g.dot", "graph {}")), str(out)])
    assert answer.exit_code == 2
    assert "is DOT (Graphviz)" in answer.stderr
