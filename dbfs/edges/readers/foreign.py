"""Formats of other programs: how their files begin, what their names end in, and the way in.

A text is recognised by its beginning, whatever its name, and else by its name. What no reader here reads is refused,
with a line of code or a library that reads it: a file that is no edge list must not be read as one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from dbfs.errors import FormatError


@dataclass(frozen=True)
class Foreign:
    """A format of another program.

    Attributes:
        name: what messages call it; the name of the reader, if there is one here.
        suffixes: the ends of its files' names.
        start: matches the beginning of its texts, after blanks; None if nothing there is unmistakable.
        way: how its edges come to dbfs; ``{path}`` stands for the file. Empty if a reader here reads it.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    start: str | None = None
    way: str = ""


# Repeats are possessive, and groups atomic: a text of any kind takes linear time.
# Before the first element of XML: its declaration, comments, a document type.
_XML = r"(?><\?.*?\?>\s*|<!--.*?-->\s*|<!doctype\b[^>\[]*+(?:\[.*?\]\s*)?>\s*)*+<(?:\w++:)?+"
_END = r"(?=[\s/>])"
_HASHES = r"(?:#[^\n]*+\n\s*+)*+"
_OF_DOT = r"(?>(?:#|//)[^\n]*+\n\s*|/\*.*?\*/\s*)*+"
_SKIPPED = r"(?:[%/][^\n]*+\n\s*+)*+"
_OPEN = "json.load(open({path!r}))"

_LGL = Foreign("lgl", (".lgl",))
_TGF = Foreign("tgf", (".tgf",))
READ = (
    Foreign("graphml", (".graphml",), _XML + "graphml" + _END),
    Foreign("gexf", (".gexf",), _XML + "gexf" + _END),
    Foreign(
        "gml",
        (".gml",),
        _HASHES + r'(?:(?!graph\b)[a-z]\w*+\s++(?:"[^"]*+"|[^\s"\[]++)\s*+' + _HASHES + r")*+graph\s*+\[",
    ),
    Foreign("pajek", (".net", ".paj", ".pajek"), _SKIPPED + r"\*\s*(?:network|vertices|matrix|arcs|edges)(?:list)?\b"),
    _LGL,
    _TGF,
    Foreign("dl", (".dl",), r"dl[\s,]+(?:n|nr|nc|nm|format)\s*="),
)
"""The formats that readers here read."""

REFUSED = (
    Foreign(
        "GDF (GUESS, Gephi)",
        (".gdf",),
        r"(?:node|edge)def\s*>",
        "its edges are the table below 'edgedef>': with that line's number k, counted from 1, dbfs.load("
        "pandas.read_csv({path!r}, skiprows=k, header=None), source='0', target='1'). Gephi also exports GraphML",
    ),
    Foreign(
        "DOT (Graphviz)",
        (".dot", ".gv"),
        _OF_DOT + r'(?:strict\s+)?(?:di)?graph\b\s*(?:"[^"\n]*"|[\w.-]+)?\s*\{',
        "with pydot installed dbfs.load(networkx.nx_pydot.read_dot({path!r}))",
    ),
    Foreign(
        "SIF (Cytoscape)",
        (".sif",),
        None,
        "if each line has one target, dbfs.load(dbfs.from_file({path!r}, format='csv', header=False, sep='\\t', "
        "source='0', target='2')): column 1 is the relation",
    ),
    Foreign(
        "XGMML (Cytoscape)",
        (".xgmml",),
        _XML + r"graph\b[^>]*xgmml",
        "Cytoscape exports SIF and CX; py4cytoscape.create_networkx_from_network() gives dbfs.load a graph",
    ),
    Foreign(
        "CX (Cytoscape, NDEx)",
        (".cx", ".cx2"),
        r'\[\s*\{\s*"(?:numberVerification|CXVersion)"',
        "dbfs.load(ndex2.create_nice_cx_from_file({path!r}).to_networkx(mode='default'))",
    ),
    Foreign(
        "JSON",
        (".json", ".jsonl", ".ndjson", ".geojson"),
        r'[\[{]\s*["\[{\]}]',
        f"of NetworkX's node-link form, dbfs.load(networkx.node_link_graph({_OPEN}, edges='links')); a list of pairs, "
        f"dbfs.load(list(map(tuple, {_OPEN}))); a record in each line, dbfs.load(pandas.read_json({{path!r}}, "
        "lines=True), source=..., target=...)",
    ),
    Foreign(
        "VNA (NetDraw)",
        (".vna",),
        r"\*\s*(?:node\s+(?:data|properties)|tie\s+data)\b",
        "its edges are the table below '*Tie data': with the number k of the line of column names there, counted from "
        "0, dbfs.load(pandas.read_csv({path!r}, sep=r'\\s+', skiprows=k), source='from', target='to')",
    ),
    Foreign(
        "a data set of UCINET",
        (".##h", ".##d"),
        None,
        "UCINET exports DL (Data, Export, DL), which dbfs reads",
    ),
    Foreign("LEDA", (".lgr", ".gw", ".leda"), r"LEDA\.GRAPH\b", "dbfs.load(networkx.read_leda({path!r}))"),
    Foreign("graph6", (".g6", ".graph6"), ">>(?:di)?graph6<<", "dbfs.load(networkx.read_graph6({path!r}))"),
    Foreign("sparse6", (".s6", ".sparse6"), ">>sparse6<<", "dbfs.load(networkx.read_sparse6({path!r}))"),
    Foreign(
        "a multi-line adjacency list (NetworkX)",
        (".multiline_adjlist",),
        None,
        "dbfs.load(networkx.read_multiline_adjlist({path!r}))",
    ),
    Foreign(
        "DIMACS (coloring, maximum flow)",
        (".col", ".clq", ".max", ".dimacs"),
        r"(?:c(?:[ \t][^\n]*+)?+\n\s*+)*+p\s+(?:edge|col|max|min|asn)\s",
        "dbfs.load(igraph.Graph.Read_DIMACS({path!r}, directed=False)); 'p sp' and 'p tw' dbfs reads (.gr)",
    ),
    Foreign(
        "TLP (Tulip)",
        (".tlp",),
        r"\(\s*tlp\b",
        "Tulip exports GML: tlp.exportGraph('GML Export', ...)",
    ),
    Foreign(
        "LGF (LEMON)",
        (".lgf",),
        _HASHES + r"@(?:nodes|arcs|edges|attributes|red_nodes|blue_nodes)\b",
        "its edges are the lines below '@arcs' or '@edges' and the line of names there; write these as a text, and "
        "dbfs.load reads the text",
    ),
    Foreign(
        "AdjacencyGraph (Ligra, PBBS)",
        (),
        r"(?:weighted)?adjacency(?:hyper)?graph\s",
        "words = open({path!r}).read().split(); n, m = map(int, words[1:3]); dbfs.load(scipy.sparse.csr_array("
        "(numpy.ones(m), list(map(int, words[3 + n : 3 + n + m])), [*map(int, words[3 : 3 + n]), m])))",
    ),
    Foreign(
        "TSPLIB",
        (".tsp", ".atsp"),
        r"name\s*:[^\n]*+\n\s*+(?:comment|type)\s*:",
        "dbfs.load(tsplib95.load({path!r}).get_graph())",
    ),
    Foreign(
        "GXL",
        (".gxl",),
        _XML + "gxl" + _END,
        "gxl2dot of Graphviz makes DOT of it",
    ),
    Foreign(
        "DGML",
        (".dgml",),
        _XML + "DirectedGraph" + _END,
        "dbfs.load(pandas.read_xml({path!r}, xpath='//*[local-name()=\"Link\"]'), source='Source', target='Target')",
    ),
    Foreign("OpenStreetMap", (".osm",), _XML + "osm" + _END, "dbfs.load(osmnx.graph_from_xml({path!r}))"),
    Foreign(
        "RDF",
        (".rdf", ".nt", ".nq", ".ttl", ".owl", ".n3"),
        r"(?:<[^<>\s]+>|_:\S+)\s+<[^<>\s]+>\s+[<\"_]|@prefix\s|@base\s|prefix\s+\w*:\s*<|" + _XML + "RDF" + _END,
        "dbfs.load([(str(head), str(tail)) for head, _, tail in rdflib.Graph().parse({path!r})])",
    ),
    Foreign(
        "a page of the web", (".html", ".htm"), r"<!doctype\s++html\b|" + _XML + "html" + _END, "did a download fail?"
    ),
    Foreign(
        "XML",
        (".xml",),
        r"<\?xml\b",
        "of XML, GraphML and GEXF are read; dbfs.load(pandas.read_xml({path!r}, xpath=...), source=..., target=...)",
    ),
    Foreign("a pointer of Git LFS", (), r"version https://git-lfs", "git lfs pull brings the file"),
    Foreign(
        "a diagram of Mermaid",
        (".mmd",),
        r"(?:graph|flowchart)\s+(?:TD|TB|BT|RL|LR)\b",
        "write its arrows as a text of two columns",
    ),
    Foreign(
        "a pickle",
        (".pickle", ".pkl", ".gpickle"),
        r"\x80[\x02-\x05]",
        "a pickle can run any code. If you trust it, dbfs.load(pickle.load(open({path!r}, 'rb')))",
    ),
    Foreign(
        "a file of R",
        (".rda", ".rdata", ".rds"),
        r"(?:RD[AX][23]\n|X\n\x00\x00\x00[\x02\x03])",
        "in R, igraph::write_graph(g, 'g.graphml', 'graphml') or arrow::write_parquet; pyreadr.read_r({path!r}) reads "
        "its data frames",
    ),
    Foreign(
        "a workbook",
        (".xls", ".xlsx", ".xlsm", ".ods"),
        r"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "dbfs.load(pandas.read_excel({path!r}))",
    ),
    Foreign(
        "a database of SQLite",
        (".sqlite", ".sqlite3", ".db"),
        r"SQLite format 3\x00",
        "dbfs.load(pandas.read_sql('SELECT source, target FROM edges', sqlite3.connect({path!r})))",
    ),
    Foreign(
        "HDF5",
        (".h5", ".hdf5", ".h5ad"),
        r"\x89HDF\r\n",
        "file = h5py.File({path!r}); dbfs.load((file['src'][:], file['dst'][:]))",
    ),
    Foreign(
        "a file of MATLAB",
        (".mat",),
        r"MATLAB 5[.]0 MAT-file",
        "dbfs.load(scipy.sparse.csr_array(scipy.io.loadmat({path!r})['A'])), with the matrix's name for 'A'",
    ),
    Foreign(
        "a Harwell-Boeing matrix",
        (".hb", ".rb", ".rsa", ".rua", ".psa", ".pua"),
        None,
        "dbfs.load(scipy.sparse.csr_array(scipy.io.hb_read({path!r})))",
    ),
    Foreign(
        "a graph of graph-tool",
        (".gt",),
        r"\xe2\x9b\xbe gt",
        "graph_tool.load_graph({path!r}).save('g.graphml') writes GraphML",
    ),
    Foreign("ORC", (".orc",), "ORC", "dbfs.load(pandas.read_orc({path!r}))"),
    Foreign("Stata's data", (".dta",), None, "dbfs.load(pandas.read_stata({path!r}))"),
)
"""The formats that no reader here reads."""


def recognised(path: str, name: str, start: bytes, *, by_name: bool, hashes: bool = True) -> str | None:
    """Return the format of another program that a text is of, one of ``READ``; None if it is of none.

    Args:
        path: the file, for messages.
        name: its name without folders and the suffix of a compression, in lower case.
        start: the beginning of the text: the more, the better.
        by_name: whether the name counts where the beginning says nothing.
        hashes: whether lines that begin with ``#`` may be more than comments.

    Raises:
        FormatError: no reader here reads the format; the message says what does.
    """
    found, reason = _by_start(start), "by its first lines"
    if found is None and hashes:
        found = _by_hashes(path, start)
    if found is None and by_name:
        suffix = PurePosixPath(name).suffix
        found, reason = next((each for each in (*READ, *REFUSED) if suffix in each.suffixes), None), "by its name"
    if found is not None and found.way:
        raise FormatError(f"{path} is {found.name} {reason}, which is not read here: {found.way.format(path=path)}")
    return None if found is None else found.name


def way_in(path: str, name: str, start: bytes) -> str | None:
    """Return what a binary file is and the way in, for a message; None if it is of no known format."""
    try:
        recognised(path, name, start, by_name=True)
    except FormatError as error:
        return str(error)
    return None


def _by_start(start: bytes) -> Foreign | None:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((each for each in (*READ, *REFUSED) if each.start and _compiled(each.start).match(text)), None)


def _by_hashes(path: str, start: bytes) -> Foreign | None:
    """Return TGF for a text with a line ``#`` after data, and LGL for one with lists below lines ``# name``.

    Raise ``FormatError`` for lists of two words that may be edges below comments as well.
    """
    lines = [words for line in start.removeprefix(b"\xef\xbb\xbf").splitlines() if (words := line.split())]
    data = next(
        (place for place, words in enumerate(lines) if not words[0].startswith((b"#", b"%", b"//"))), len(lines)
    )
    if [b"#"] in lines[data:]:
        return _TGF
    names = [words[1] for words in lines if words[0] == b"#" and len(words) == 2]
    rows = [words for words in lines if words[0] != b"#"]
    if len(names) < 2 or lines[0][0] != b"#" or len(names) + len(rows) != len(lines):
        return None
    # A name that is in a list too is one of a vertex, and hardly one of a part of the file.
    if max(map(len, rows), default=0) > 2 or {words[0] for words in rows}.isdisjoint(names):
        return None
    if min(map(len, rows)) == 2:
        raise FormatError(
            f"{path} may be LGL, with a weight after each neighbour, or have an edge in each line, below comments; "
            "pass format='lgl' or format='edge-list'"
        )
    return _LGL


@lru_cache(maxsize=128)
def _compiled(start: str) -> re.Pattern[bytes]:
    return re.compile(start.encode("latin-1"), re.IGNORECASE | re.DOTALL)
