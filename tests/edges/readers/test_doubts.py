"""Texts that would be read as edges without a word, though they are none: matrices, triples, missing values, floats.

Axes: format and suffix x separator x compression; the first lines and later ones, which another parser reads.
"""

import logging
import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs.cli import main
from dbfs.edges.edge_list import EdgeList, tell_left_out
from dbfs.edges.readers import from_file
from dbfs.edges.readers.options import MISSING
from dbfs.errors import (
    DbfsError,
    EdgeInputError,
    FormatError,
    InvalidOptionError,
    InvalidOptionTypeError,
    TruncatedFileError,
)
from tests.support.edge_files import write

RING = [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [1, 0, 0, 1, 0]]
THREE = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
MATRIX = "look like an adjacency matrix"


def pairs(edges: EdgeList, piece_edges: int = 10**6) -> list[tuple[Any, Any]]:
    parts = [piece.read() for piece in edges.cut(piece_edges)]
    return [pair for src, dst in parts for pair in zip(src.tolist(), dst.tolist(), strict=True)]


def lines(rows: list[list[Any]], mark: str) -> str:
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize("mark", [" ", "\t", ",", ", ", ";", "|", ":"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv.gz", "a.edges", "a.adjlist", "a.ncol", "nothing"])
@pytest.mark.parametrize("rows", [RING, THREE, np.multiply(RING, 2.5).tolist()], ids=["ring", "bits", "weights"])
def test_a_square_of_numbers_is_no_edge_list(tmp_path: Path, name: str, mark: str, rows: list[list[float]]) -> None:
    path = write(tmp_path, name, "# a comment\n" + lines(rows, mark).rstrip("\n"))
    told: dict[str, Any] = {"sep": mark.strip() or mark} if name in ("a.adjlist", "a.ncol") or mark == ":" else {}
    told |= {"format": "edge-list"} if name == "nothing" else {}
    with pytest.raises(FormatError, match=f"{len(rows)} lines of {len(rows)} numbers {MATRIX}"):
        from_file(path, **told)
    found = from_file(path, format="matrix", sep=told.get("sep"))
    assert sorted(pairs(found)) == sorted(nx.DiGraph(np.array(rows, float)).edges)
    assert (found.n, found.directed) == (len(rows), False)


@pytest.mark.parametrize("index", [["a", "b", "c"], [0, 1, 2], [1, 2, 3]])
@pytest.mark.parametrize(
    "options",
    [{}, {"index": False}, {"header": False}, {"sep": "\t"}, {"index_label": "id"}, {"quoting": 1}],
    ids=["named", "columns", "rows", "tabs", "corner", "quotes"],
)
def test_a_square_with_names_is_no_edge_list(tmp_path: Path, index: list[Any], options: dict[str, Any]) -> None:
    text = pd.DataFrame(THREE, index, index).to_csv(**options)
    for name in ("a.csv", "a.tsv.gz"):
        # Names beside numbers alone are refused in other words.
        with pytest.raises(FormatError, match=f"{MATRIX}|id 'a' is not a plain decimal integer"):
            from_file(write(tmp_path, name, text))
    text = pd.DataFrame(THREE, [10, 30, 20], [10, 30, 20]).to_csv()
    with pytest.raises(FormatError, match=MATRIX):
        from_file(write(tmp_path, "b.csv", text))
    with pytest.raises(FormatError, match=MATRIX):
        from_file(write(tmp_path, "r.txt", "A B C\nA 0 1 0\nB 1 0 1\nC 0 1 0\n"))


NO_MATRICES = {
    "three weights": ("a.txt", "1 2 3\n2 3 4\n3 4 5\n", [(1, 2), (2, 3), (3, 4)]),
    "four values": ("a.txt", "1 2 3 4\n2 3 4 4\n3 4 5 4\n5 6 5 5\n", [(1, 2), (2, 3), (3, 4), (5, 6)]),
    "two columns": ("a.txt", "0 1\n1 0\n", [(0, 1), (1, 0)]),
    "a row more": ("a.txt", "0 1 1\n1 0 1\n0 0 1\n1 1 1\n", [(0, 1), (1, 0), (0, 0), (1, 1)]),
    "named ends": ("a.csv", "source,target,w\n0,1,1\n1,0,1\n0,0,1\n", [(0, 1), (1, 0), (0, 0)]),
    "complete": (
        "a.adjlist",
        "0 1 2 3 4\n1 2 3 4 0\n2 3 4 0 1\n3 4 0 1 2\n4 0 1 2 3\n",
        [(u, (u + step) % 5) for u in range(5) for step in range(1, 5)],
    ),
}


@pytest.mark.parametrize(("name", "text", "edges"), NO_MATRICES.values(), ids=NO_MATRICES)
def test_edges_that_are_no_matrix(tmp_path: Path, name: str, text: str, edges: list[tuple[int, int]]) -> None:
    assert pairs(from_file(write(tmp_path, name, text))) == edges


def test_columns_of_a_square_that_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", lines(RING, " "))
    assert pairs(from_file(path, header=False, source="0", target="1"))[:2] == [(0, 1), (1, 0)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_matrix_is_read_as_numpy_reads_it(tmp_path: Path, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    values = st.sampled_from([0, 0, 1, 2.5, -1])
    rows = data.draw(st.lists(st.lists(values, min_size=size, max_size=size), min_size=size, max_size=size))
    path = write(tmp_path, "m.dat", lines(rows, data.draw(st.sampled_from([" ", ",", "\t"]))))
    found = from_file(path, format="matrix", directed=True)
    assert sorted(pairs(found)) == [(int(u), int(v)) for u, v in np.argwhere(np.array(rows))]
    assert from_file(path, format="matrix").directed == (
        not np.array_equal(*[np.array(rows) != 0, np.array(rows).T != 0])
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 0\n0 0\n", "row 3 of the matrix has 2 columns; expected 2 rows"),
        ("0 1\n1\n", "row 2 of the matrix has 1 columns"),
        ("0 1\n", "has 1 rows of 2 numbers"),
        ("0 nan\n1 0\n", "row 1 of the matrix holds 'nan'; expected numbers"),
        ("a b\n0 1\n1 0\n", "row 1 of the matrix holds 'a'; expected numbers"),
        ("# none\n", "holds no matrix"),
    ],
)
def test_a_mangled_matrix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises((FormatError, TruncatedFileError), match=message):
        from_file(write(tmp_path, "m.dat", text), format="matrix")


ASKS = "the third column holds text"
TRIPLES = {
    "integers, blanks": ("a.txt", "1 2 friend\n2 3 foe\n", {}, r"third column holds text \('friend'\)"),
    "integers, commas": ("a.csv", "1,2,friend\n2,3,foe\n", {"header": False}, r"third column holds text \('friend'\)"),
    "tsv": ("a.tsv", "a\tlikes\tb\nb\tlikes\tc\n", {"header": False}, ASKS),
    "csv": ("a.csv.gz", "a,likes,b\n", {"header": False}, ASKS),
    "blanks": ("a.txt", "a likes b\nb likes c\n", {"header": False}, ASKS),
    "sif": ("a.dat", "a pp b\nb pd c\n", {"header": False, "sep": " "}, ASKS),
    "ncol": ("a.ncol", "a likes b\n", {}, ASKS),
    "quotes": ("a.csv", '"a","likes","b"\n', {"header": False}, ASKS),
    "later": ("a.csv", "a,b,3\nb,c,4\nc,likes,d\n", {"header": False}, ASKS),
    "strings": ("a.csv", "a,likes,b\n", {"header": False, "ids": "string"}, ASKS),
    "numbers": ("a.csv", "7,likes,b\n", {"header": False}, ASKS),
    "arrow": ("a.txt", "a -> b\nb -> c\n", {"header": False}, "'->' is an arrow and no id"),
    "weighted arrow": ("a.txt", "a -- b 3\n", {"header": False}, "'--' is an arrow and no id"),
    "neighbours": ("a.adjlist", "a -> b c\n", {}, "'->' is an arrow and no id"),
    "colon": ("a.adjlist", "0: 1 2\n1: 2\n", {}, "a colon after the vertex"),
    "names": ("a.tsv", "head\trelation\ttail\na\tlikes\tb\n", {}, "name those of an edge's ends"),
    "integers": ("a.txt", "1 likes 2\n", {}, "Other columns may be the ends: source='0', target='2'"),
}


@pytest.mark.parametrize(("name", "text", "told", "message"), TRIPLES.values(), ids=TRIPLES)
def test_triples_ask_for_the_ends(tmp_path: Path, name: str, text: str, told: dict[str, Any], message: str) -> None:
    with pytest.raises(DbfsError, match=message):
        from_file(write(tmp_path, name, text), **told)


def test_triples_whose_ends_are_named(tmp_path: Path) -> None:
    for name, text, told in (("a.tsv", "a\tlikes\tb\n", {"header": False}), ("a.ncol", "a likes b\n", {})):
        path = write(tmp_path, name, text)
        assert pairs(from_file(path, source="0", target="2", **told)) == [("a", "b")]
        assert pairs(from_file(path, source="0", target="1", **told)) == [("a", "likes")]


@pytest.mark.parametrize(
    "value",
    ["3", "-0.5", "1e-3", "nan", "2020-01-02", "2020-01-02T03:04", "3/4/2021", "12:30", '"x y"', "NA", "", "{'w': 1}"],
)
def test_values_of_an_edge_are_no_targets(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, "a.csv", f"a,b,{value}\nb,c,{value}\n")
    assert pairs(from_file(path, header=False)) == [("a", "b"), ("b", "c")]


OTHER = "blanks of two kinds"
BLANKS = {
    "both": ("New York\tBoston\tLos Angeles\n", OTHER),
    "later": ("Rome\tParis\nNew York\tBoston\n", OTHER),
    "far below": ("Rome\tParis\n" * 200 + "New York\n", OTHER),
    "spaces first": ("a b\n" * 200 + "New\tYork\n", OTHER),
    "codes": ("007\t1 2\n", OTHER),
}


@pytest.mark.parametrize(("text", "message"), BLANKS.values(), ids=BLANKS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_names_with_blanks_between_tabs(tmp_path: Path, text: str, message: str, suffix: str) -> None:
    path = write(tmp_path, f"a.adjlist{suffix}", text)
    with pytest.raises(FormatError, match=message):
        pairs(from_file(path))
    expected = [(row.split("\t")[0], other) for row in text.splitlines() for other in row.split("\t")[1:]]
    assert pairs(from_file(path, sep="\t")) == expected
    expected = [(row.split()[0], other) for row in text.splitlines() for other in row.split()[1:]]
    assert pairs(from_file(path, sep=" ")) == expected


def test_blanks_that_leave_no_doubt(tmp_path: Path) -> None:
    assert pairs(from_file(write(tmp_path, "a.adjlist", "1\t2 3\n2\t4\n"))) == [(1, 2), (1, 3), (2, 4)]
    assert pairs(from_file(write(tmp_path, "b.adjlist", "a\tb\tc\n\td\te \n"))) == [("a", "b"), ("a", "c"), ("d", "e")]
    with pytest.raises(FormatError, match="names with blanks between tabs"):
        from_file(write(tmp_path, "a.ncol", "New York\tBoston\n"))
    assert pairs(from_file(tmp_path / "a.ncol", sep="\t")) == [("New York", "Boston")]
    with pytest.raises(FormatError, match="an id is missing"):
        from_file(write(tmp_path, "c.adjlist", "a\t\tb\n"))


@pytest.mark.parametrize("word", [word for word in MISSING if not word.startswith("#")])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.txt", "a.ncol", "a.adjlist"])
@pytest.mark.parametrize("before", [0, 200])
def test_words_for_missing_values_are_no_ids(tmp_path: Path, name: str, word: str, before: int) -> None:
    mark, header = {"a.csv": (",", "source,target\n"), "a.tsv.gz": ("\t", "source\ttarget\n")}.get(name, (" ", ""))
    rows = [*[["a", "b"]] * before, ["c", word], [word, "d"]]
    path = write(tmp_path, name, header + lines(rows, mark))
    told = {"header": False} if name == "a.txt" else {}
    reason = f"line {before + 1 + bool(header)}: .*stands for a missing value.*missing=\\(\\)"
    with pytest.raises(FormatError, match=reason):
        pairs(from_file(path, **told))
    assert pairs(from_file(path, missing=(), **told)) == [tuple(row) for row in rows]


def test_words_that_the_caller_names(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "source,target\nNA,b\n" + "a,b\n" * 200 + "c, ? \n")
    with pytest.raises(FormatError, match=r"line 203: .*'\?' stands for a missing value"):
        pairs(from_file(path, missing=["?"]))
    for wrong in ("NA", b"NA", [1]):
        with pytest.raises(InvalidOptionTypeError, match="missing must be a list of words"):
            from_file(path, missing=wrong)  # type: ignore[arg-type]
    # Values that are no ends may be missing; among integers an id may not.
    assert pairs(from_file(write(tmp_path, "b.csv", "source,target,w\na,b,NA\n"))) == [("a", "b")]
    for text in ("1 2\n1 NA\n", "1 2\n" * 200 + "NA 3\n"):
        with pytest.raises(FormatError, match="id 'NA' stands for a missing value; .*missing=\\(\\)"):
            pairs(from_file(write(tmp_path, "c.txt", text)))


@pytest.mark.parametrize("word", ["1.0", "2.50", ".5", "3.", "1e+05", "1.5e3", "1,0"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.ncol.gz", "a.adjlist"])
@pytest.mark.parametrize("before", [0, 200])
def test_floats_are_no_ids_unless_as_strings(tmp_path: Path, name: str, word: str, before: int) -> None:
    mark, header = (";", "source;target\n") if name == "a.csv" else (" ", "")
    rows = [*[["a", "b"]] * before, [word, "2"], ["3", word]]
    path = write(tmp_path, name, header + lines(rows, mark))
    told = {"header": False, "sep": " "} if name == "a.txt" else {}
    with pytest.raises(
        FormatError, match=f"line {before + 1 + bool(header)}: .*{re.escape(repr(word))} is a float.*ids='string'"
    ):
        pairs(from_file(path, **told))
    assert pairs(from_file(path, ids="string", **told)) == [tuple(row) for row in rows]


def test_strings_that_look_like_floats_and_are_none(tmp_path: Path) -> None:
    names = ["10.0.0.1", "1.2.3", "12e4", "v1.0", "a.b", "1.0a", "e+5", "1,5"]
    path = write(tmp_path, "a.tsv", lines([[name, "x"] for name in names], "\t"))
    assert pairs(from_file(path, header=False)) == [(name, "x") for name in names]


def test_floats_among_integers(tmp_path: Path) -> None:
    for name, text in (
        ("a.csv", "source,target\n1,2\n1.0,3\n"),
        ("a.txt", "1.0 2\n"),
        ("b.csv", "1,2\n" * 200 + "1.0,3"),
    ):
        with pytest.raises(FormatError, match=r"id '1.0' is not a plain decimal integer. ids='string' takes ids"):
            pairs(from_file(write(tmp_path, name, text)))


MISSING_ENDS = {
    "target": ("a.csv", "source,target\na,\nb,c\n", {}, "line 2: 'a,': column 'target': the target is missing"),
    "source": ("a.csv", "source,target\n ,a\n", {}, "line 2: ' ,a': column 'source': the source is missing"),
    "integers": ("a.csv", "source,target\n1,\n2,3\n", {}, "line 2: '1,': column 'target': the target is missing"),
    "tabs": ("a.tsv.gz", "source\ttarget\na\t\n", {}, "line 2: .*the target is missing"),
    "blanks": ("a.txt", "1 2\n3\n", {}, "line 2: '3': the target is missing"),
    "far below": ("a.csv", "1,2\n" * 200 + ",3\n", {}, "line 201: ',3': the source is missing"),
    "unnamed": ("a.csv", "a,\nb,c\n", {"header": False}, "line 1: 'a,': column '1': the target is missing"),
}


@pytest.mark.parametrize(("name", "text", "told", "message"), MISSING_ENDS.values(), ids=MISSING_ENDS)
def test_an_end_is_missing(tmp_path: Path, name: str, text: str, told: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        pairs(from_file(write(tmp_path, name, text), **told))


ROWS = 'a,"b c"\n' * 200
QUOTES = {
    "break": ('source,target\n"a\nx",b\nb,c\n', "line 2: '\"a': a line break within quotes; pass pandas.read_csv"),
    "break below": (f'source,target\n{ROWS}"a\nx",b\n', "line 202: '\"a': a line break within quotes"),
    "break in a value": ('source,target,note\na,b,"x\ny"\n', "line 2: .*a line break within quotes"),
    "break beside integers": ('source,target,note\n1,2,"x\ny"\n', "line 2: .*a line break within quotes"),
    "blank before": ('source,target\na, "b c"\n', "line 2: .*column 'target': a blank before quotes"),
    "blank before, below": (f'source,target\n{ROWS}a, "b c"\n', "line 202: .*a blank before quotes"),
    "blank after": (f'source,target\n{ROWS}"a" ,b\n', "line 202: .*',' expected after"),
    "text after": (f'source,target\n{ROWS}a,"b"c\n', "line 202: .*',' expected after"),
}


@pytest.mark.parametrize(("text", "message"), QUOTES.values(), ids=QUOTES)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_quotes_that_enclose_no_value(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        pairs(from_file(write(tmp_path, name, text)))


def test_lines_at_the_top_are_passed_over(tmp_path: Path) -> None:
    texts = {
        "a.csv": ("Report, 2024\nby X\nsource,target\na,b\n", 2, [("a", "b")]),
        "b.csv.gz": ('\ufeff"a\nb"\nsource,target\n1,2\n', 2, [(1, 2)]),
        "c.txt": ("Exported by X\n\n1 2\n2 3\n", 1, [(1, 2), (2, 3)]),
        "d.adjlist": ("a title here\na b\n", 1, [("a", "b")]),
        "e.ncol": ("two words\na b\n", 1, [("a", "b")]),
        "f.dat": ("title\n0 1\n1 0\n", 1, [(0, 1), (1, 0)]),
    }
    for name, (text, count, edges) in texts.items():
        told = {"format": "matrix"} if name == "f.dat" else {}
        path = write(tmp_path, name, text)
        assert pairs(from_file(path, skip_rows=count, **told)) == edges, name
        if name not in ("d.adjlist", "e.ncol"):
            with pytest.raises(DbfsError):
                pairs(from_file(path, **told))
    # Comments after the lines keep their say, and lines keep their numbers.
    found = from_file(write(tmp_path, "g.txt", "title\n% bip\n% 2 2 2\n1 1\n2 2\n"), skip_rows=1)
    assert (found.n, pairs(found)) == (4, [(0, 2), (1, 3)])
    with pytest.raises(FormatError, match="line 302: '1 x'"):
        pairs(from_file(write(tmp_path, "h.txt", "title\n" + "1 2\n" * 300 + "1 x\n"), skip_rows=1))
    with pytest.raises(FormatError, match="skip_rows= passes over lines at the top"):
        from_file(write(tmp_path, "i.csv", "Exported 2024-01-01\nsource,target\na,b\n"))
    with pytest.raises(TruncatedFileError, match="fewer lines than skip_rows=9"):
        from_file(tmp_path / "c.txt", skip_rows=9)
    with pytest.raises(InvalidOptionError, match="skip_rows must be at least 0"):
        from_file(tmp_path / "c.txt", skip_rows=-1)
    with pytest.raises(InvalidOptionTypeError, match="skip_rows must be an integer"):
        from_file(tmp_path / "c.txt", skip_rows="1")  # type: ignore[arg-type]


def test_a_line_of_names_below_another(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "Report,Year\nsource,target\na,b\n")
    with pytest.raises(FormatError, match="line 2: 'source,target': names of columns. Pass skip_rows=1"):
        from_file(path)
    assert pairs(from_file(path, skip_rows=1)) == [("a", "b")]


def test_a_folder_has_the_rules_of_its_files(tmp_path: Path) -> None:
    for name, text in (("0", ""), ("1", "a,b\n"), ("2", ""), ("3", "c,NA\n")):
        write(tmp_path, f"{name}.csv", "source,target\n" + text)
    with pytest.raises(FormatError, match=r"3.csv, line 2: 'c,NA': .*missing=\(\)"):
        from_file(tmp_path)
    assert pairs(from_file(tmp_path, missing=())) == [("a", "b"), ("c", "NA")]
    write(tmp_path, "4.csv", "source,target\n1,2\n")
    with pytest.raises(EdgeInputError, match="all files of a graph need ids of one kind. ids='string'"):
        from_file(tmp_path, missing=())
    found = from_file(str(tmp_path / "*.csv"), missing=(), ids="string")
    assert pairs(found) == [("a", "b"), ("c", "NA"), ("1", "2")]
    with pytest.raises(TruncatedFileError, match="no file holds edges"):
        from_file(str(tmp_path / "[02].csv"))
    with pytest.raises(FormatError, match=MATRIX):
        write(tmp_path, "5.csv", lines(RING, ","))
        from_file(tmp_path, missing=(), ids="string")


@pytest.mark.parametrize("name", ["metis", "matrix-market", "gr"])
def test_formats_of_numbers_have_no_place_for_the_options(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "a", "2 1\n2\n1\n")
    options: list[dict[str, Any]] = [{"missing": ()}, {"skip_rows": 1}, {"ids": "string"}]
    for told in options:
        with pytest.raises(InvalidOptionError, match=f"{next(iter(told))}= is not for the format {name!r}"):
            from_file(path, format=name, **told)


def test_the_command_line_has_the_options(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "a title\nsource,target\nNA,1.0\n1.0,007\n")
    out = tmp_path / "out.parquet"
    options = ["--skip-rows", "1", "--missing", "", "--string-ids"]
    answer = CliRunner().invoke(main, ["convert", str(path), str(out), *options])
    assert answer.exit_code == 0, answer.output
    assert pd.read_parquet(out).to_numpy().tolist() == [["NA", "1.0"], ["1.0", "007"]]
    answer = CliRunner().invoke(main, ["convert", str(path), str(out), *options[:4]])
    assert answer.exit_code == 2
    assert "'1.0' is a float" in answer.output


def test_what_is_not_used_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = {
        "weights.csv": ("source,target,weight\na,b,3\n", "weight", logging.WARNING),
        "plain.txt": ("1 2 0.5\n", "column 2", logging.WARNING),
        "since.csv": ("source,target,since\na,b,3\n", "since", logging.INFO),
        "arcs.gr": ("p sp 2 1\na 1 2 7\n", "length", logging.WARNING),
        "m.mtx": ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 3.5\n", "value", logging.WARNING),
        "m.graph": ("2 1 11\n5 2 7\n5 1 7\n", "edge weight, weights of vertices", logging.WARNING),
        "none.txt": ("1 2\n", None, None),
    }
    for name, (text, words, level) in texts.items():
        caplog.clear()
        with caplog.at_level(logging.INFO, "dbfs"):
            tell_left_out(from_file(write(tmp_path, name, text)))
        told = [(record.levelno, record.getMessage().split(": ")[-1]) for record in caplog.records]
        assert told == ([] if words is None else [(level, words)]), name
