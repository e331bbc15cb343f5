"""Each format's small file, plain and compressed: edges, numbers, direction, and the guess of its format."""

import gzip
import pickle

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from dbfs.edges.readers import FORMATS, from_file
from dbfs.errors import InvalidOptionError
from tests.support.edge_files import PACKERS, read_all, write

MTX = "%%MatrixMarket matrix coordinate {} {}\n% a comment\n\n3 3 3\n{}"
# name, text, edges, n, m, directed, mirrored
FILES = {
    "mtx-pattern-symmetric": (
        "g.mtx",
        MTX.format("pattern", "symmetric", "2 1\n3 1\n3 3\n"),
        [(1, 0), (2, 0), (2, 2)],
        3,
        3,
        False,
        False,
    ),
    "mtx-real-general": (
        "g.mtx",
        MTX.format("real", "general", "1 2 0.5\n1 3 -1e-3\n\n3 2 0\n"),
        [(0, 1), (0, 2), (2, 1)],
        3,
        3,
        True,
        False,
    ),
    "mtx-integer-skew": (
        "g.mtx",
        MTX.format("integer", "skew-symmetric", "2 1 5\n3 1 -5\n3 2 7"),
        [(1, 0), (2, 0), (2, 1)],
        3,
        3,
        False,
        False,
    ),
    "mtx-complex-hermitian": (
        "g.mtx",
        MTX.format("complex", "Hermitian", "2 1 5 0\n3 1 -5 1\n3 2 7 .5\n"),
        [(1, 0), (2, 0), (2, 1)],
        3,
        3,
        False,
        False,
    ),
    "mtx-no-entries": ("g.mtx", "%%MatrixMarket matrix coordinate pattern general\n4 4 0\n", [], 4, 0, True, False),
    "metis": ("g.graph", "% c\n4 2\n2\n1 3\n2\n\n", [(0, 1), (1, 0), (1, 2), (2, 1)], 4, 4, False, True),
    "metis-blank-first": ("g.metis", "3 1 0\n\n% c\n3\n2\n\n\n", [(1, 2), (2, 1)], 3, 2, False, True),
    "metis-edge-weights": (
        "g.graph",
        "3 2 1\n2 9 3 8\n1 9\n1 8\n",
        [(0, 1), (0, 2), (1, 0), (2, 0)],
        3,
        4,
        False,
        True,
    ),
    "metis-vertex-weights": ("g.graph", "3 1 10 2\n7 7\n7 7 3\n7 7 2", [(1, 2), (2, 1)], 3, 2, False, True),
    "metis-all-weights": ("g.graph", "2 1 111 1\n5 6 2 9\n5 6 1 9\n", [(0, 1), (1, 0)], 2, 2, False, True),
    "snap-directed": (
        "g.txt",
        "# Directed graph (once): x\n# Nodes: 3 Edges: 2\n# From\tTo\n30\t7\r\n7\t900\n",
        [(30, 7), (7, 900)],
        None,
        None,
        True,
        False,
    ),
    "snap-undirected": (
        "g.txt",
        "# Undirected graph: directed\n1 2\n# later\n2 3",
        [(1, 2), (2, 3)],
        None,
        None,
        False,
        False,
    ),
    "csv-names": ("g.csv", 'source,target,weight\n5,6,0.5\n6, 7 ,"a"\n', [(5, 6), (6, 7)], None, None, False, False),
    "csv-quoted-names": ("g.csv", '\ufeff"source";"target"\n5;6\n', [(5, 6)], None, None, False, False),
    "csv-bom": ("g.csv", "\ufeff5,6\n7,8\n", [(5, 6), (7, 8)], None, None, False, False),
    "tsv-times": ("g.tsv", "// c\n5\t6\t17\n5\t7\t18 x\n", [(5, 6), (5, 7)], None, None, False, False),
    "spaces-then-comma": ("g.txt", "5 6 +,-\n7 8 +\n", [(5, 6), (7, 8)], None, None, False, False),
    "networkx-data": (
        "g.edgelist",
        "1 2 {}\n2 3 {'weight': 7, 'colour': '#fff'} # x\n",
        [(1, 2), (2, 3)],
        None,
        None,
        False,
        False,
    ),
    "comments-after-edges": ("g.txt", "1 2 # 3\n2 3\n", [(1, 2), (2, 3)], None, None, False, False),
    "tsv-empty-value": ("g.tsv", "u\tv\tw\n5\t6\t\n6\t7\t8\n", [(5, 6), (6, 7)], None, None, False, False),
    "konect-blanks": ("out.g", "% sym\n5\t6 1 17\n6\t7 1 18\n", [(5, 6), (6, 7)], None, None, False, False),
    "commas-in-quotes": ("g.csv", '1,2,"a,b",5\n2,3,"c ""d""",\n', [(1, 2), (2, 3)], None, None, False, False),
    "largest-id": (
        "g.el",
        f"{2**63 - 1} 0\n1 {2**63 - 2}\n",
        [(2**63 - 1, 0), (1, 2**63 - 2)],
        None,
        None,
        False,
        False,
    ),
    "pace": ("g.gr", "c hi\np tw 3 2\n1 2\nc more\n 2  3 \n", [(0, 1), (1, 2)], 3, 2, False, False),
    "dimacs": ("g.gr", "c\np sp 3 2\na 1 2 803\na 3 1 -5\n", [(0, 1), (2, 0)], 3, 2, True, False),
}


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("case", FILES)
def test_every_format_is_read_with_its_counts(tmp_path, case, suffix):
    name, text, expected, n, m, directed, mirrored = FILES[case]
    path = write(tmp_path, name + suffix, text)
    edges = from_file(path)
    assert read_all(edges) == expected
    assert (edges.n, edges.m, edges.directed, edges.mirrored, edges.name) == (n, m, directed, mirrored, str(path))
    if suffix:
        assert len(edges.cut(1)) == 1


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("case", FILES)
def test_direction_is_overridden(tmp_path, case, directed):
    name, text, expected, _, _, _, mirrored = FILES[case]
    edges = from_file(write(tmp_path, name, text), directed=directed)
    assert edges.directed is directed
    assert edges.mirrored == (mirrored and not directed)
    assert read_all(edges) == expected


@pytest.mark.parametrize(("name", "packed"), [("g.gr", ".xz"), ("g.gr.gz", ".bz2"), ("g.gr.xz", "")])
def test_suffix_may_be_wrong(tmp_path, name, packed):
    path = tmp_path / name
    path.write_bytes(PACKERS[packed](b"p tw 2 1\n1 2\n"))
    assert read_all(from_file(path)) == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "text", "edges"),
    [
        ("a.dat", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", [(0, 1)]),
        ("a.txt", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", [(0, 1)]),
        ("noname", "c x\np sp 2 1\na 1 2 3\n", [(0, 1)]),
        ("out.ucidata", "% asym\n7 8 1 9\n", [(7, 8)]),
        ("out.words", "% sym unweighted\n% 1 2 2\n1\t2\n", [(1, 2)]),
        ("one.mtx", "%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", [(0, 1)]),
        ("indented", " \t%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", [(0, 1)]),
        ("A.MTX", "%%matrixmarket matrix coordinate pattern general\n2 2 1\n1 2\n", None),
    ],
)
def test_format_is_guessed(tmp_path, name, text, edges):
    path = write(tmp_path, name, text)
    if edges is None:
        with pytest.raises(ValueError, match="not a Matrix Market file"):
            from_file(path)
    else:
        assert read_all(from_file(path)) == edges


def test_format_can_be_said(tmp_path):
    path = write(tmp_path, "data", "2 1\n2\n1\n")
    assert read_all(from_file(path, format="metis")) == [(0, 1), (1, 0)]
    assert read_all(from_file(str(write(tmp_path, "g.mtx", "2 1\n")), format="edge-list")) == [(2, 1)]


def test_unknown_format_lists_the_choices(tmp_path):
    with pytest.raises(InvalidOptionError, match="'metiss' is unknown; expected one of " + ", ".join(FORMATS)):
        from_file(tmp_path / "absent", format="metiss")


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["pattern", "integer", "real", "complex"])
def test_matrix_market_as_scipy_reads_it(tmp_path, field, symmetry):
    if (field, symmetry) == ("pattern", "skew-symmetric"):
        pytest.skip("not a Matrix Market combination")
    random = np.random.default_rng(7)
    dense = random.integers(1, 9, (40, 40)) * (random.random((40, 40)) < 0.1)
    if symmetry == "symmetric":
        dense = dense + dense.T
    elif symmetry == "skew-symmetric":
        dense = dense - dense.T
    matrix = scipy.sparse.coo_array(dense * (1 + 1j) if field == "complex" else dense)
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(path, matrix, field=field, symmetry=symmetry)

    edges = from_file(path)
    pairs = read_all(edges)
    if edges.symmetrise:
        pairs += [(v, u) for u, v in pairs]
    oracle = scipy.io.mmread(path, spmatrix=False).tocoo()
    assert edges.n == oracle.shape[0]
    assert set(pairs) == set(zip(oracle.row.tolist(), oracle.col.tolist(), strict=True))
    assert edges.m == len(read_all(edges)) == scipy.io.mminfo(path)[2]


def test_pieces_travel(tmp_path):
    for name, text in (("a.txt", "1 2\n3 4\n"), ("a.graph", "2 1\n2\n1\n"), ("a.gr.xz", "p tw 2 1\n1 2\n")):
        for piece in from_file(write(tmp_path, name, text)).cut(1):
            sources, targets = pickle.loads(pickle.dumps(piece)).read()
            assert sources.tolist() == piece.read()[0].tolist()
            assert targets.tolist() == piece.read()[1].tolist()


def test_opening_reads_the_header_only(tmp_path):
    text = b"p tw 9 2000000\n" + b"1 2\n" * 2_000_000
    path = tmp_path / "cut.gr.gz"
    path.write_bytes(gzip.compress(text, 1)[:-100])
    assert from_file(path).m == 2_000_000
