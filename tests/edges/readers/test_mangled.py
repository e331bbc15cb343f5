"""Mangled files: each raises its exact error, with file, line and reason, and yields no edges."""

import bz2
import gzip
import lzma
import os
import pickle
import stat

import pytest

from dbfs.edges.readers import from_file
from dbfs.errors import FormatError, MissingFileError, TruncatedFileError
from tests.support.edge_files import read_all, write

MTX = "%%MatrixMarket matrix coordinate pattern general\n"
REAL = "%%MatrixMarket matrix coordinate real general\n"
BIG = 2**64
# name, text, error, fragment of the message
FORMAT = {
    # Lines of an edge list, each in line 3 or as said.
    "junk": ("a.txt", "1 2\n3 4\nhello\n", "line 3: 'hello': id 'hello' is not a plain decimal integer"),
    "two-words": ("a.txt", "x y\n# c\nx y\n1 2\n", "line 3: 'x y'"),
    "one-id": ("a.txt", "1 2\n\n3\n", "line 3: '3': the target is missing"),
    "one-id-csv": ("a.csv", "1,2\n\n3,\n", "line 3: '3,': the target is missing"),
    "no-first-id": ("a.csv", "1,2\n\n,3\n", "line 3: ',3': the source is missing"),
    "empty-column": ("a.tsv", "1\t2\n\n3\t\t4\n", "line 3: '3\\t\\t4': the target is missing"),
    "float": ("a.txt", "1 2\n3 4\n1.5 2\n", "line 3: '1.5 2': id '1.5' is not a plain decimal integer"),
    "whole-float": ("a.txt", "1 2\n3 4\n2 1.0\n", "line 3: '2 1.0': id '1.0' is not"),
    "exponent": ("a.txt", "1 2\n3 4\n1e3 2\n", "id '1e3' is not a plain decimal integer"),
    "exponent-in-column": ("a.csv", "1,2,7\n3,4,8\n1e3,2,9\n", "line 3: '1e3,2,9': id '1e3' is not"),
    "plus": ("a.txt", "1 2\n3 4\n+1 2\n", "line 3: '+1 2': id '+1' is not"),
    "negative": ("a.txt", "1 2\n3 4\n-1 2\n", "line 3: '-1 2': id '-1' is negative"),
    "2^63": ("a.txt", f"1 2\n3 4\n{BIG // 2} 2\n", f"line 3: '{BIG // 2} 2': id {BIG // 2} is out of range"),
    "2^64": ("a.txt", f"1 2\n3 4\n{BIG} 2\n", f"line 3: '{BIG} 2': id '{BIG}' is past 2^63-1"),
    "2^64+1-weighted": ("a.txt", f"1 2 .5\n3 4 .5\n{BIG + 1} 2 .5\n", f"id '{BIG + 1}' is past 2^63-1"),
    "nul": ("a.txt", "1 2\n3 4\n5\0 6\n", "line 3: '5\\x00 6': a NUL byte"),
    "lone-cr": ("a.txt", "1 2\n3 4\n5 6\r7 8\n", "line 3: '5 6\\r7 8': a carriage return within a line"),
    "cr-hides-in-comment": ("a.txt", "1 2\n3 4\n# x\r7 8\n", "line 3: '# x\\r7 8': a carriage return"),
    "text-after-digits": ("a.txt", "1 2\n3 4\n12abc 4\n", "id '12abc' is not"),
    "quotes": ("a.csv", '1,2\n3,4\n"5","6"\n', 'line 3: \'"5","6"\''),
    "hex": ("a.txt", "1 2\n3 4\n0x10 2\n", "id '0x10' is not"),
    "underscore": ("a.txt", "1 2\n3 4\n1_000 2\n", "id '1_000' is not"),
    "unicode-digits": ("a.txt", "1 2\n3 4\n١ ٢\n", "line 3: '١ ٢': id '١' is not"),
    "na": ("a.txt", "1 2\n3 4\n5 NA\n", "id 'NA' stands for a missing value; an edge needs both ends"),
    "other-separator": (
        "a.csv",
        "1,2\n3,4\n5 6\n",
        "line 3: '5 6': id '5 6' is not a plain decimal integer. ids='string' takes",
    ),
    "vertical-tab": ("a.txt", "1 2\n3 4\n5\x0b6\n", "line 3"),
    "long-text-is-shortened": ("a.txt", "1 2\n3 4\n" + "x" * 500 + "\n", "line 3: '" + "x" * 60 + "'...: id"),
    # Lines of an adjacency list, or of groups: the later neighbours must not be taken for values.
    "more-columns": ("a.txt", "1 2\n3 4\n4 5 6\n", "line 3: '4 5 6': 3 columns; all lines need as many as the first"),
    "fewer-columns": ("a.txt", "1 2 3\n4 5 6\n7 8\n", "line 3: '7 8': 2 columns; all lines need as many as the first"),
    "more-columns-csv": ("a.csv", "1,2\n3,4\n4,5,\n", "line 3: '4,5,': 3 columns; all lines need as many"),
    "fewer-columns-csv": ("a.csv", '1,2,"x,y",3\n3,4,,\n4,5,6\n', "line 3: '4,5,6': 3 columns; all lines need as many"),
    "more-columns-tabs": ("a.tsv", "1\t2\t7\n3\t4\tx\n4\t5\tx\ty\n", "line 3: '4\\t5\\tx\\ty': 4 columns; all lines"),
    "neighbours-after-a-tab": ("a.txt", "1\t2\n2\t1 3\n", "line 2: '2\\t1 3': 3 columns; all lines need as many"),
    "neighbours-of-as-many": (
        "a.txt",
        "1\t2 3 4\n2\t1 3 4\n",
        "line 1: '1\\t2 3 4': a tab, and then blanks: format='adj",
    ),
    "half-in-quotes": ("a.csv", '1,2,7\n3,4,"y"\n4,5,"z" z\n', "line 3: '4,5,\"z\" z': the columns are not separated"),
    # Codes, which as integers would be other ids.
    "leading-zero": ("a.txt", "7 2\n3 4\n007 2\n", "line 3: '007 2': id '007' has a leading zero, which an integer"),
    "two-zeros": ("a.el", "7 2\n3 4\n1 00\n", "line 3: '1 00': id '00' has a leading zero"),
    "mtx-leading-zero": ("a.mtx", MTX + "9 9 2\n1 2\n3 04\n", "line 4: '3 04': id '04' has a leading zero"),
    "gr-leading-zero": ("a.gr", "p sp 3 2\na 1 2 9\na 01 3 9\n", "line 3: 'a 01 3 9': id '01' has a leading zero"),
    "metis-leading-zero": ("a.graph", "3 1\n2\n01\n\n", "line 3: '01': id '01' has a leading zero"),
    # Headers of edge lists.
    "names-and-more-columns": (
        "a.csv",
        "source target\n1 10 20\n",
        "line 1: 'source target': 2 columns, and 3 in the next line; expected a name for each column",
    ),
    "p-line": ("a.el", "p xx 3 2\n1 2\n", "line 1: 'p xx 3 2'"),
    # Other formats.
    "png": (
        "a.txt",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0",
        "is a binary file; expected text, text compressed as gz, xz, bz2, zst or zip",
    ),
    "elf": ("a.mtx", b"\x7fELF\x02\x01\x01\0\0\n", "is a binary file; expected text"),
    "random-bytes": ("a.txt", bytes(range(1, 256)), "is a binary file; expected text"),
    "tar": ("a.mtx", b"web/" + b"\0" * 253 + b"ustar\x0000", "is a tar archive; unpack it and pass the file of edges"),
    "binary-after-text": (
        "a.txt",
        b"1 2\n" * 512 + b"\x8f\x02\r\xe17 8\n",
        "line 513: '\ufffd\\x02\\r\ufffd7 8': a carriage return among binary data; expected text in ASCII or UTF-8",
    ),
    "json": ("a.txt", '{"nodes": [1, 2]}\n', "is JSON by its first lines, which is not read here: "),
    "html": ("a.csv", "<!DOCTYPE html>\n<p>Not found\n", "is a page of the web by its first lines"),
    "utf-16": ("a.txt", "1 2\n".encode("utf-16"), "is this a binary file or UTF-16?"),
    "no-line-end": ("a.txt", b"\xff" * 6_000_000, "a line longer than 1048576 bytes"),
    "unknown": ("a.xyz", "hello world\n", "line 1: neither the name nor this line identifies the format"),
    # Matrix Market.
    "mtx-no-banner": ("a.mtx", "3 3 1\n1 2\n", "line 1: '3 3 1': not a Matrix Market file"),
    "mtx-array": (
        "a.mtx",
        "%%MatrixMarket matrix array real general\n1 1\n5\n",
        "line 1: '%%MatrixMarket matrix array real general': layout 'array' is not supported; only coordinate is",
    ),
    "mtx-vector": ("a.mtx", "%%MatrixMarket vector coordinate real general\n1 1\n5\n", "line 1"),
    "mtx-field": ("a.mtx", "%%MatrixMarket matrix coordinate rael general\n", "field 'rael' is unknown"),
    "mtx-symmetry": ("a.mtx", "%%MatrixMarket matrix coordinate real odd\n", "symmetry 'odd' is unknown"),
    "mtx-not-square": ("a.mtx", MTX + "3 4 1\n1 2\n", "line 2: '3 4 1': not square; bipartite=True makes"),
    "mtx-three-percents": ("a.mtx", "%" + MTX + "3 3 1\n1 2\n", "line 1: '%%%MatrixMarket"),
    "mtx-negative-count": ("a.mtx", MTX + "3 3 -1\n1 2\n", "line 2: '3 3 -1': the count of entries is '-1'"),
    "mtx-float-count": ("a.mtx", MTX + "3.0 3 1\n1 2\n", "the count of rows is '3.0'; expected an integer"),
    "mtx-huge-count": ("a.mtx", MTX + f"{BIG} {BIG} 1\n1 2\n", f"the count of rows is '{BIG}'"),
    "mtx-sizes": ("a.mtx", MTX + "3 3\n1 2\n", "line 2: '3 3': expected the size line"),
    "mtx-zero-id": (
        "a.mtx",
        MTX + "3 3 2\n1 2\n0 2\n",
        "line 4: '0 2': id 0 is out of range; expected 'u v' with integer ids 1 to 3",
    ),
    "mtx-id-past-n": ("a.mtx", MTX + "3 3 2\n1 2\n4 2\n", "line 4: '4 2': id 4 is out of range"),
    "mtx-value-missing": ("a.mtx", REAL + "3 3 2\n1 2 .5\n1 3\n", "line 4: '1 3': 2 columns; expected 'u v value 1'"),
    "mtx-value-too-many": ("a.mtx", MTX + "3 3 2\n1 2\n1 3 4\n", "line 4: '1 3 4': 3 columns; expected 'u v'"),
    "mtx-no-rows": ("a.mtx", MTX + "0 0 1\n1 1\n", "a matrix without rows or columns has no entries"),
    "mtx-as-edge-list": (
        "edge-list:a.mtx",
        MTX + "3 3 1\n1 2\n",
        "line 2: '3 3 1': may be the size line of a matrix, because a banner stands above",
    ),
    # .gr
    "gr-header": ("a.gr", "c x\np xx 3 1\n1 2\n", "line 2: 'p xx 3 1': expected the header 'p tw n m' or 'p sp n m'"),
    "gr-no-header": ("a.gr", "1 2\n", "line 1: '1 2': expected the header"),
    "gr-arc-in-tw": ("a.gr", "p tw 3 1\na 1 2 3\n", "line 2: 'a 1 2 3': id 'a' is not"),
    "gr-edge-in-sp": ("a.gr", "p sp 3 1\n1 2 3 44\n", "line 2: '1 2 3 44': doesn't start with 'a'"),
    "gr-no-length": ("a.gr", "p sp 3 1\na 1 2    \n", "line 2: 'a 1 2    ': 2 columns; expected 'a u v value 1'"),
    "gr-zero-id": ("a.gr", "p tw 3 2\n1 2\n0 1\n", "line 3: '0 1': id 0 is out of range"),
    "gr-id-past-n": (
        "a.gr",
        "p tw 3 2\n1 2\n4 1\n",
        "line 3: '4 1': id 4 is out of range; expected 'u v' with integer",
    ),
    "gr-one-id": ("a.gr", "p tw 3 2\n1 2\n3  \n", "line 3: '3  ': the target is missing"),
    "gr-three-ids": ("a.gr", "p tw 3 2\n1 2\n1 2 3\n", "line 3: '1 2 3': 3 columns; expected 'u v'"),
    "gr-float": ("a.gr", "p tw 3 2\n1 2\n1.0 2\n", "line 3: '1.0 2': id '1.0' is not a plain decimal integer"),
    "gr-negative": ("a.gr", "p tw 3 2\n1 2\n1 -2\n", "line 3: '1 -2': id '-2' is negative"),
    "gr-huge": ("a.gr", f"p tw 3 2\n1 2\n{BIG} 2\n", f"line 3: '{BIG} 2': id '{BIG}' is past 2^63-1"),
    "gr-joined-arc": ("a.gr", "p sp 3 1\na1 2 5\n", "line 2: 'a1 2 5': doesn't start with 'a'"),
    "gr-counts": ("a.gr", "p tw x 1\n1 2\n", "line 1: 'p tw x 1': the count of vertices is 'x'"),
    "gr-negative-count": ("a.gr", "p tw 3 -1\n1 2\n", "line 1: 'p tw 3 -1': the count of edges is '-1'"),
    "gr-no-vertices": ("a.gr", "p tw 0 1\n1 1\n", "line 1: 'p tw 0 1': a graph without vertices has no edges"),
    "gr-nul": ("a.gr", "p tw 3 2\n1 2\n1\0 2\n", "line 3: '1\\x00 2': a NUL byte"),
    "gr-two-headers": ("a.gr", "p tw 3 2\n1 2\np tw 3 2\n", "line 3: 'p tw 3 2': id 'p'"),
    # METIS.
    "metis-header": ("a.graph", "% c\n3\n2\n1\n\n", "line 2: '3': expected the header 'n m [fmt [ncon]]'"),
    "metis-blank-header": ("a.graph", "\n3 1\n2\n1\n\n", "line 1: ''"),
    "metis-fmt": (
        "a.graph",
        "3 1 2\n2\n1\n\n",
        "line 1: '3 1 2': fmt, the third number, is '2'; expected one to three digits",
    ),
    "metis-ncon": ("a.graph", "3 1 1 2\n2\n1\n\n", "ncon counts vertex weights, but fmt says there are none"),
    "metis-neighbour-past-n": (
        "a.graph",
        "3 1\n2\n% c\n4\n\n",
        "line 4: '4': neighbour 4 is out of range; expected the neighbours of vertex 2",
    ),
    "metis-zero-neighbour": ("a.graph", "3 1\n2\n0\n\n", "line 3: '0': neighbour 0 is out of range"),
    "metis-huge-neighbour": ("a.graph", f"3 1\n2\n{BIG}\n\n", f"line 3: '{BIG}': neighbour {BIG} is out of range"),
    "metis-self-loop": ("a.graph", "3 1\n2\n1 2\n\n", "line 3: '1 2': vertex 2 is its own neighbour"),
    "metis-float": ("a.graph", "3 1\n2\n1.0\n\n", "line 3: '1.0': id '1.0' is not a plain decimal integer"),
    "metis-negative": ("a.graph", "3 1\n2\n-1\n\n", "line 3: '-1': id '-1' is negative"),
    "metis-no-edge-weight": ("a.graph", "3 1 1\n2 5\n1    \n\n", "line 3: '1    ': 1 numbers; expected"),
    "metis-no-vertex-weight": (
        "a.graph",
        "3 1 10\n5 2\n5 1\n\n% a long comment",
        "line 4: '': 0 numbers; expected the neighbours of vertex 3",
    ),
    "metis-more-lines": ("a.graph", "3 1\n2\n1\n\n\n1\n", "line 6: '1': one line more than the header's 3 vertices"),
    "metis-nul": ("a.graph", "3 1\n2\n1\0\n\n", "line 3: '1\\x00': a NUL byte"),
    "metis-lone-cr": ("a.graph", "3 1\n2\n1\r2\n\n", "line 3: '1\\r2': a carriage return"),
}
TRUNCATED = {
    "comments-only": ("a.txt", "# a\n\n% b\n", "holds no edges"),
    "names-only": ("a.csv", "source,target\n", "holds no edges"),
    "comments-only-unknown": ("a.xyz", "# a\n", "holds only comments"),
    "mtx-banner-only": ("a.mtx", MTX + "% c\n", "ends before its size line"),
    "mtx-too-few": (
        "a.mtx",
        MTX + "3 3 100\n1 2\n",
        "promises 100 entries, which take at least 400 bytes, and 4 follow",
    ),
    "gr-comments-only": ("a.gr", "c x\n", "ends before its header"),
    "gr-too-few": ("a.gr", "p sp 3 5\na 1 2 3\n", "promises 5 edges"),
    "metis-comments-only": ("a.graph", "% x\n", "ends before its header"),
    "metis-too-few": (
        "a.graph",
        "9 1\n2\n1\n%%%%%%%%%%%%%%%%%%%\n",
        "ends after 2 vertex lines; its header promises 9",
    ),
    "metis-huge": ("a.graph", "1000000000000 1\n2\n1\n", "promises 1,000,000,000,000 vertices and 1 edge"),
    "gz-of-nothing": ("a.mtx.gz", b"", "holds nothing"),
}


def read(path):
    if path.name.startswith("edge-list:"):
        return read_all(from_file(path, format="edge-list"), 1)
    return read_all(from_file(path), 1)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("case", FORMAT)
def test_a_mangled_file_is_a_format_error(tmp_path, case, packed):
    name, text, fragment = FORMAT[case]
    path = write(tmp_path, name + ".gz" * packed, text)
    with pytest.raises(FormatError) as caught:
        read(path)
    assert type(caught.value) is FormatError
    assert fragment in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "option", "guess"),
    [
        ("karate.mtx", MTX + "34 34 78\n2 1\n", "metis", "matrix-market"),
        ("road.gr", "p sp 3 1\na 1 2 3\n", "edge-list", "gr"),
        ("web.txt", "1 2\n", "gr", "edge-list"),
    ],
)
def test_a_format_given_that_is_not_the_files(tmp_path, name, text, option, guess):
    words = rf"line \d: .*\. The option format says that the file is {option}; its header or name says {guess}$"
    with pytest.raises(FormatError, match=words):
        from_file(write(tmp_path, name, text), format=option)


def test_a_format_given_for_a_file_of_no_known_one(tmp_path):
    with pytest.raises(FormatError, match=r"line 1: 'hello': expected the header 'n m \[fmt \[ncon\]\]'$"):
        from_file(write(tmp_path, "a.xyz", "hello\n"), format="metis")


def test_control_characters_in_comments(tmp_path):
    path = write(tmp_path, "a.txt", "# \x02 and \x7f\n1 2\n")
    assert read_all(from_file(path), 1)


@pytest.mark.parametrize("case", TRUNCATED)
def test_truncated_file_error(tmp_path, case):
    name, text, fragment = TRUNCATED[case]
    path = write(tmp_path, name, text)
    with pytest.raises(TruncatedFileError) as caught:
        read(path)
    assert fragment in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("pieces", [1, 5, 500])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_number_in_any_piece(tmp_path, pieces, end):
    rows = ["1 2"] * 2000
    rows[1234] = "1 2.5"
    path = write(tmp_path, "a.txt", "".join(row + end for row in rows))
    with pytest.raises(FormatError, match=r"line 1235: '1 2\.5': id '2\.5'"):
        read_all(from_file(path), 2000 // pieces)


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, "gz"), (lzma.compress, "xz"), (bz2.compress, "bz2")])
def test_damaged_streams(tmp_path, pack, suffix):
    whole = pack(b"p tw 9999 5000\n" + b"".join(b"%d %d\n" % (i, i + 1) for i in range(1, 5001)))
    path = tmp_path / f"a.gr.{suffix}"
    for kept in (len(whole) - 1, len(whole) // 2, 20):
        path.write_bytes(whole[:kept])
        with pytest.raises(TruncatedFileError, match=r"is truncated: its .* stream ends before its end mark") as caught:
            read(path)
        assert str(path) in str(caught.value)
    path.write_bytes(whole[: len(whole) // 2] + b"\0" * 40 + whole[len(whole) // 2 + 40 :])
    with pytest.raises(FormatError) as corrupt:
        read(path)
    assert type(corrupt.value) is FormatError
    assert str(path) in str(corrupt.value)


@pytest.mark.parametrize("name", ["a.mtx", "a.graph", "a.txt", "a.gr", "a", "a.txt.gz"])
def test_an_empty_file_is_truncated(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(TruncatedFileError, match="is empty"):
        from_file(tmp_path / name)


@pytest.mark.parametrize("path", ["absent.txt", "file.txt/x.txt", "memory://absent.txt"])
def test_a_missing_file_is_named(tmp_path, monkeypatch, path):
    write(tmp_path, "file.txt", "1 2\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingFileError, match="no such file"):
        from_file(path)


def test_missing_where_it_is_read(tmp_path):
    path = write(tmp_path, "a.txt", "1 2\n")
    (piece,) = from_file(path).cut(9)
    path.unlink()
    with pytest.raises(MissingFileError, match=r"a\.txt: no such file"):
        piece.read()


def test_not_a_file(tmp_path):
    with pytest.raises(MissingFileError, match="no file there; expected files of edges"):
        from_file(tmp_path)
    (tmp_path / "gone.txt").symlink_to("nowhere")
    for path in (tmp_path / "gone.txt", tmp_path, tmp_path / "*.txt"):
        # Edges of a folder or a pattern that are passed over would be missing without a word.
        with pytest.raises(MissingFileError, match=r"gone\.txt: no such file"):
            from_file(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_no_permission(tmp_path):
    path = write(tmp_path, "a.txt", "1 2\n")
    path.chmod(stat.S_IWUSR)
    with pytest.raises(FormatError, match="permission denied"):
        from_file(path)
